//! A served coordinator for a race: the user's, or this binary's server, started in the race's folder.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use assent_kind::Kind;
use assent_world::net::Address;

use crate::failure::Failure;

/// A resource that the race's server has registered.
#[derive(Clone, Copy)]
pub(super) struct Store<'s> {
    pub(super) name: &'s str,
    /// `postgres`, `mariadb` or `assent`.
    pub(super) kind: &'s str,
    pub(super) url: &'s str,
}

/// The server. One that was started is killed when this is dropped.
pub(super) enum Server {
    Given(Address),
    Started(Child, Address),
}

impl Server {
    /// Starts this binary's server over `folder`/served; returns when it says that it is ready.
    pub(super) fn start(folder: &Path, stores: &[Store<'_>]) -> Result<Self, Failure> {
        let file = folder.join("assent.toml");
        let quiet = "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[coordinator]\n";
        let resource = |Store { name, kind, url }: &Store<'_>| {
            format!("[[resource]]\nname = {name:?}\nkind = {kind:?}\nurl = {url:?}\n")
        };
        let resources: String = stores.iter().map(resource).collect();
        crate::demo::write(&file, &format!("data_dir = \"served\"\n{quiet}{resources}"))?;
        let program = std::env::current_exe().map_err(|error| Failure::io("find", "this program", &error))?;
        let mut child = Command::new(program)
            .args(["serve", "--config"])
            .arg(&file)
            .env_remove("ASSENT_STOP")
            .env("ASSENT_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::io("start", "a server", &error))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(|error| Failure::io("read from", "the server", &error))?;
        }
        match line.strip_prefix("ready protocol=").and_then(|rest| rest.split(' ').next()) {
            Some(text) => {
                let address = address("the server's address", text)?;
                Ok(Self::Started(child, address))
            }
            None => {
                _ = child.kill();
                _ = child.wait();
                Err(Failure::new(Kind::Unavailable, "the race's server did not start"))
            }
        }
    }

    /// Its process, where this program started it.
    pub(super) fn process(&self) -> Option<u32> {
        match self {
            Self::Given(_) => None,
            Self::Started(child, _) => Some(child.id()),
        }
    }

    pub(super) const fn address(&self) -> &Address {
        match self {
            Self::Given(address) | Self::Started(_, address) => address,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Started(child, _) = self {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

/// An address of the command line.
pub(super) fn address(what: &str, text: &str) -> Result<Address, Failure> {
    text.parse().map_err(|error| Failure::invalid(format!("{what} {text:?}: {error}")))
}
