//! A served coordinator for a race: the user's, or this binary's server, started in the race's folder.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use assent_bench::host::without_settings;
use assent_kind::Kind;
use assent_world::net::Address;
use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;

/// A resource that the race's server has registered.
#[derive(Clone, Copy)]
pub(super) struct Store<'s> {
    pub(super) name: &'s str,
    /// `postgres`, `mariadb` or `assent`.
    pub(super) kind: &'s str,
    pub(super) url: &'s str,
}

/// What a race's server is told beside its resources; what is not told is its own default.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// `server.threads`.
    pub(super) threads: Option<u32>,
    /// `coordinator.engine`.
    pub(super) engine: Option<String>,
    /// Numbers of the section `coordinator`.
    pub(super) numbers: Vec<(&'static str, u64)>,
    /// A signal of the terminal does not reach it: whoever started it hears the signal, and ends it.
    pub(super) is_apart: bool,
}

/// The server. One that was started is killed when this is dropped.
pub(super) enum Server {
    Given(Address),
    Started { child: Child, address: Address, admin: Address },
}

impl Settings {
    /// The sections of its configuration; ports are the system's choice.
    fn sections(&self) -> String {
        let mut text = "[server]\nlisten = \"127.0.0.1:0\"\n".to_owned();
        // Writing into a String does not fail.
        if let Some(threads) = self.threads {
            _ = writeln!(text, "threads = {threads}");
        }
        text.push_str("[admin]\nlisten = \"127.0.0.1:0\"\n[coordinator]\n");
        if let Some(engine) = &self.engine {
            _ = writeln!(text, "engine = {engine:?}");
        }
        for (key, number) in &self.numbers {
            _ = writeln!(text, "{key} = {number}");
        }
        text
    }
}

impl Server {
    /// Starts this binary's server over `folder`/served; returns when it says that it is ready.
    pub(super) fn start(folder: &Path, stores: &[Store<'_>]) -> Result<Self, Failure> {
        Self::start_as(folder, stores, &Settings::default())
    }

    /// The same with settings.
    pub(super) fn start_as(folder: &Path, stores: &[Store<'_>], settings: &Settings) -> Result<Self, Failure> {
        let file = folder.join("assent.toml");
        let said = folder.join("said");
        let resource = |Store { name, kind, url }: &Store<'_>| {
            format!("[[resource]]\nname = {name:?}\nkind = {kind:?}\nurl = {url:?}\n")
        };
        let resources: String = stores.iter().map(resource).collect();
        crate::demo::write(&file, &format!("data_dir = \"served\"\n{}{resources}", settings.sections()))?;
        #[expect(clippy::disallowed_methods, reason = "what a child process says goes to a file of the race's folder")]
        let err = std::fs::File::create(&said).map_err(|error| Failure::io("write", said.display(), &error))?;
        let program = std::env::current_exe().map_err(|error| Failure::io("find", "this program", &error))?;
        let mut command = Command::new(program);
        without_settings(&mut command);
        command.args(["serve", "--config"]).arg(&file).env("ASSENT_LOG", "error");
        if settings.is_apart {
            command.process_group(0);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(err)
            .spawn()
            .map_err(|error| Failure::io("start", "a server", &error))?;
        running().insert(child.id());
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(|error| Failure::io("read from", "the server", &error))?;
        }
        let places = line.trim().strip_prefix("ready protocol=").and_then(|rest| rest.split_once(" admin="));
        if let Some((protocol, admin)) = places {
            let (address, admin) = (address("the server's address", protocol)?, address("its admin address", admin)?);
            return Ok(Self::Started { child, address, admin });
        }
        end(&mut child);
        #[expect(clippy::disallowed_methods, reason = "what a child process has said")]
        let words = std::fs::read(&said).unwrap_or_default();
        let words = String::from_utf8_lossy(&words);
        let last = words.lines().last().unwrap_or("it said nothing").trim_start_matches("assent: ");
        // The folder is the race's, and tells nobody anything.
        let last = last.replace(&format!("{}/", folder.display()), "");
        Err(Failure::new(Kind::Unavailable, format!("the race's server did not start: {last}")))
    }

    /// Its process, where this program started it.
    pub(super) fn process(&self) -> Option<u32> {
        match self {
            Self::Given(_) => None,
            Self::Started { child, .. } => Some(child.id()),
        }
    }

    pub(super) const fn address(&self) -> &Address {
        match self {
            Self::Given(address) | Self::Started { address, .. } => address,
        }
    }

    /// Where it tells its metrics, where this program started it.
    pub(super) const fn admin(&self) -> Option<&Address> {
        match self {
            Self::Given(_) => None,
            Self::Started { admin, .. } => Some(admin),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Started { child, .. } = self {
            end(child);
        }
    }
}

fn end(child: &mut Child) {
    // Before it is waited for: then its number may be another's.
    running().remove(&child.id());
    _ = child.kill();
    _ = child.wait();
}

/// The servers that this process has started and not ended.
fn running() -> MutexGuard<'static, BTreeSet<u32>> {
    static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills every server of this process, which is about to leave without dropping anything.
pub(super) fn kill_all() {
    for number in running().iter().filter_map(|number| i32::try_from(*number).ok()) {
        if let Some(process) = Pid::from_raw(number) {
            _ = kill_process(process, Signal::KILL);
        }
    }
}

/// An address of the command line.
pub(super) fn address(what: &str, text: &str) -> Result<Address, Failure> {
    text.parse().map_err(|error| Failure::invalid(format!("{what} {text:?}: {error}")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn who_leaves_without_dropping_takes_its_servers_along() {
        let start = || Command::new("sleep").arg("600").spawn().unwrap();
        let (mut ended, mut left) = (start(), start());
        running().extend([ended.id(), left.id()]);
        end(&mut ended);
        assert!(!running().contains(&ended.id()) && running().contains(&left.id()));
        kill_all();
        assert_eq!(left.wait().unwrap().signal(), Some(9));
        running().remove(&left.id());
    }

    #[test]
    fn a_server_is_told_what_the_race_says_and_keeps_its_defaults() {
        let plain = "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[coordinator]\n";
        assert_eq!(Settings::default().sections(), plain);
        let settings = Settings {
            threads: Some(3),
            engine: Some("table".into()),
            numbers: vec![("max_elapsed_sync_time", 5), ("log_size", 5_242_880)],
            is_apart: true,
        };
        let told = "[server]\nlisten = \"127.0.0.1:0\"\nthreads = 3\n[admin]\nlisten = \"127.0.0.1:0\"\n[coordinator]\n\
                    engine = \"table\"\nmax_elapsed_sync_time = 5\nlog_size = 5242880\n";
        assert_eq!(settings.sections(), told);
    }
}
