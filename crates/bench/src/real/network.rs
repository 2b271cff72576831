//! A network between the client and its two databases: for the floors and the subject alike.
//!
//! Walk: [`Network::between`] puts a proxy before each and leads the URLs there · [`Network::messages`] that went to them.
//! Recovery's sessions and the race's own questions go straight.
//! Deliberately absent: TLS, several hosts in one URL.

use std::time::Duration;

use assent_kind::Kind;
use assent_world::net::Address;

use crate::BenchError;
use crate::databases::Databases;
use crate::proxy::{Delay, Proxy};

pub(super) struct Network {
    proxies: [Proxy; 2],
    /// The way through it.
    pub(super) databases: Databases,
}

impl Network {
    /// Nothing where nothing is between them.
    pub(super) fn between(databases: &Databases, delay: Delay) -> Result<Option<Self>, BenchError> {
        if delay == Delay::default() {
            return Ok(None);
        }
        let (postgres, mariadb) = (server(&databases.postgres, 5432)?, server(&databases.mariadb, 3306)?);
        let proxies = [Proxy::start(&postgres, delay)?, Proxy::start(&mariadb, delay)?];
        let [bank, shop] = &proxies;
        let databases = Databases {
            postgres: through(&databases.postgres, bank.address())?,
            mariadb: through(&databases.mariadb, shop.address())?,
        };
        Ok(Some(Self { proxies, databases }))
    }

    /// Messages to the databases so far.
    pub(super) fn messages(&self) -> u64 {
        self.proxies.iter().map(Proxy::messages).sum()
    }

    /// Its processor time so far, which is part of this process's.
    pub(super) fn cpu(&self) -> Duration {
        self.proxies.iter().map(Proxy::cpu).sum()
    }
}

/// The part of a URL that names the server, between what comes before and behind it.
fn parts(url: &str) -> Result<(&str, &str, &str), BenchError> {
    let wrong = || BenchError::new(Kind::Invalid, "a delay needs URLs as scheme://user@host:port/database");
    let begins = url.find("://").ok_or_else(wrong)? + 3;
    let (before, rest) = url.split_at_checked(begins).ok_or_else(wrong)?;
    let (authority, behind) = rest.split_at_checked(rest.find(['/', '?']).unwrap_or(rest.len())).ok_or_else(wrong)?;
    let server_at = authority.rfind('@').map_or(0, |at| at + 1);
    let (_, server) = authority.split_at_checked(server_at).ok_or_else(wrong)?;
    if server.is_empty() || server.contains(',') {
        return Err(wrong());
    }
    let (before, _) = url.split_at_checked(before.len() + server_at).ok_or_else(wrong)?;
    Ok((before, server, behind))
}

fn server(url: &str, port: u16) -> Result<Address, BenchError> {
    let (_, server, _) = parts(url)?;
    let text = if server.contains(':') { server.to_owned() } else { format!("{server}:{port}") };
    text.parse().map_err(|error| BenchError::new(Kind::Invalid, format!("{text}: {error}")))
}

fn through(url: &str, proxy: &Address) -> Result<String, BenchError> {
    let (before, _, behind) = parts(url)?;
    Ok(format!("{before}{proxy}{behind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_leads_to_the_proxy_and_stays_as_it_was() {
        let proxy = Address::Tcp { host: "127.0.0.1".to_owned(), port: 7 };
        for (url, led, at) in [
            ("postgresql://u@h/db?x=1", "postgresql://u@127.0.0.1:7/db?x=1", "h:5432"),
            ("mysql://u:p%40@h:33/db", "mysql://u:p%40@127.0.0.1:7/db", "h:33"),
            ("mysql://h", "mysql://127.0.0.1:7", "h:5432"),
        ] {
            assert_eq!(through(url, &proxy).unwrap(), led);
            assert_eq!(server(url, 5432).unwrap().to_string(), at);
        }
        for url in ["u@h/db", "postgresql://u@/db", "postgresql://h:1,i:2/db", "mysql://h:port/db"] {
            assert_eq!(server(url, 5432).unwrap_err().kind, Kind::Invalid, "{url}");
        }
    }
}
