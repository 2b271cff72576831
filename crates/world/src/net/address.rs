//! Where a server listens, as people write it.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a server listens: `host:port`, `[::1]:port`, or a Unix socket as `/path` or `unix:path`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// Host name or IP address, and port.
    Tcp {
        /// Without the brackets of an IPv6 address.
        host: String,
        /// 0 lets the system choose when listening.
        port: u16,
    },
    /// A socket file.
    Unix(PathBuf),
}

/// A text that names no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    text: String,
    why: &'static str,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = "write host:port, [ipv6]:port or unix:/path";
        if self.text.contains('@') || self.text.contains("://") {
            // A database's, in an address's place: it may hold a password.
            return write!(f, "a URL is no address; {shape}");
        }
        write!(f, "address {:?} {}; {shape}", self.text, self.why)
    }
}

impl std::error::Error for AddressError {}

/// The most bytes of a Unix socket's path: what `sockaddr_un` of Linux holds, less its closing zero.
const UNIX_PATH_BYTES_MAX: usize = 107;

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |why| AddressError { text: text.chars().take(200).collect(), why };
        let path = text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text));
        if let Some(path) = path {
            return match path.len() {
                1..=UNIX_PATH_BYTES_MAX => Ok(Self::Unix(PathBuf::from(path))),
                0 => Err(wrong("has an empty path")),
                _ => Err(wrong("has a path of more than 107 bytes")),
            };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("has no port"))?;
        let port = port.parse().map_err(|_| wrong("has no port from 0 to 65535"))?;
        let host = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
            Some(Some(inner)) => inner,
            None if !host.contains([':', '[', ']']) => host,
            _ => return Err(wrong("has a host with stray colons or brackets")),
        };
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(wrong("has no host"));
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(at: SocketAddr) -> Self {
        Self::Tcp { host: at.ip().to_string(), port: at.port() }
    }
}

impl Address {
    /// Each address that the name of a host stands for; a socket file is one.
    ///
    /// # Errors
    /// As the resolver says; `NotFound` for a name without an address.
    pub fn each(&self) -> io::Result<Vec<Self>> {
        let Self::Tcp { host, port } = self else { return Ok(vec![self.clone()]) };
        let each: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.map(Self::from).collect();
        if each.is_empty() { Err(super::nowhere(host)) } else { Ok(each) }
    }

    /// Whether only processes of this machine can reach it, judged by its text: no name is resolved.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp { host, .. } => {
                host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
            }
            Self::Unix(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_text_and_a_wrong_one_is_told_why() {
        for text in ["127.0.0.1:7430", "localhost:0", "[::1]:65535", "unix:/tmp/a.sock", "db-1.example:5"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        assert_eq!("/run/a".parse(), Ok(Address::Unix("/run/a".into())));
        let longest = format!("/{}", "a".repeat(106));
        assert!(longest.parse::<Address>().is_ok());
        for wrong in ["", "host", ":1", "host:", "host:65536", "::1:5", "[::1:5", "unix:", "a b:1"] {
            let error = wrong.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")) && error.contains("write host:port"), "{error}");
        }
        for url in ["postgresql://u:s3cret@h/d", "mysql://h:1/d?password=s3cret", "u:s3cret@h:5:5"] {
            assert_eq!(
                url.parse::<Address>().unwrap_err().to_string(),
                "a URL is no address; write host:port, [ipv6]:port or unix:/path"
            );
        }
        assert!(format!("{longest}b").parse::<Address>().is_err());
        assert!("[::1]:1".parse::<Address>().unwrap().is_local());
        assert!(!"0.0.0.0:1".parse::<Address>().unwrap().is_local());
    }
}
