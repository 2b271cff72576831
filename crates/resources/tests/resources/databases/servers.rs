//! Where the servers are: named by the environment, or started here and stopped when this process ends.

use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Who kills a server is alone with it; everybody else shares.
static QUIET: RwLock<()> = RwLock::new(());

pub(crate) struct Servers {
    pub(crate) postgres: String,
    pub(crate) mariadb: String,
    script: String,
    folder: String,
    /// Ends the private servers when our end of its input closes, however this process ends.
    _keeper: Option<Child>,
}

fn servers() -> &'static Servers {
    static SERVERS: OnceLock<Servers> = OnceLock::new();
    SERVERS.get_or_init(|| {
        let given = |name: &str| std::env::var(name).ok();
        match (
            given("ASSENT_TEST_POSTGRES"),
            given("ASSENT_TEST_MARIADB"),
            given("ASSENT_TEST_SERVERS"),
            given("ASSENT_TEST_SERVERS_DIR"),
        ) {
            (Some(postgres), Some(mariadb), Some(script), Some(folder)) => {
                Servers { postgres, mariadb, script, folder, _keeper: None }
            }
            _ => private(),
        }
    })
}

fn private() -> Servers {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/servers").to_owned();
    let folder = tempfile::Builder::new().prefix("assent-test.").tempdir().unwrap().keep();
    let folder = folder.to_str().unwrap().to_owned();
    // Before the servers, so that a start that fails halfway is cleaned up too.
    let keeper = Command::new("setsid")
        .args(["sh", "-c", r#"cat >/dev/null; "$0" stop "$1"; rm -rf "$1""#, &script, &folder])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    run(&script, &["install"]);
    run(&script, &["start", &folder]);
    let postgres = run(&script, &["url", &folder, "postgres"]);
    let mariadb = run(&script, &["url", &folder, "mariadb"]);
    Servers { postgres, mariadb, script, folder, _keeper: Some(keeper) }
}

fn run(script: &str, arguments: &[&str]) -> String {
    let done = Command::new(script).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "{script} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// The servers, which nobody kills meanwhile.
pub(crate) struct Shared(&'static Servers, #[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>);

pub(crate) fn shared() -> Shared {
    let quiet = QUIET.read().unwrap_or_else(PoisonError::into_inner);
    Shared(servers(), quiet)
}

impl std::ops::Deref for Shared {
    type Target = Servers;
    fn deref(&self) -> &Servers {
        self.0
    }
}

/// The servers for somebody who may kill them.
pub(crate) struct Alone(&'static Servers, #[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>);

pub(crate) fn alone() -> Alone {
    let quiet = QUIET.write().unwrap_or_else(PoisonError::into_inner);
    Alone(servers(), quiet)
}

impl std::ops::Deref for Alone {
    type Target = Servers;
    fn deref(&self) -> &Servers {
        self.0
    }
}

/// A hot standby of the PostgreSQL server, for as long as this lives.
pub(crate) struct Standby<'s> {
    servers: &'s Servers,
    pub(crate) url: String,
}

impl Servers {
    pub(crate) fn standby(&self) -> Standby<'_> {
        run(&self.script, &["start", &self.folder, "standby"]);
        Standby { servers: self, url: run(&self.script, &["url", &self.folder, "standby"]) }
    }
}

impl Drop for Standby<'_> {
    fn drop(&mut self) {
        let Servers { script, folder, .. } = self.servers;
        let _ = Command::new(script).args(["stop", folder, "standby"]).output();
    }
}

impl Alone {
    pub(crate) fn kill(&self, name: &str) {
        run(&self.0.script, &["kill", &self.0.folder, name]);
    }

    pub(crate) fn revive(&self, name: &str) {
        run(&self.0.script, &["revive", &self.0.folder, name]);
    }
}

impl Drop for Alone {
    /// A test that failed between kill and revive must not take the others with it.
    fn drop(&mut self) {
        for name in ["postgres", "mariadb"] {
            let _ = Command::new(&self.0.script).args(["revive", &self.0.folder, name]).output();
        }
    }
}

/// A server of one test alone, which ends with it, however that ends.
pub(crate) struct Own {
    pub(crate) url: String,
    name: &'static str,
    options: String,
    folder: String,
    _keeper: Child,
}

impl Own {
    pub(crate) fn start(name: &'static str, options: &str) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/servers");
        let folder = tempfile::Builder::new().prefix("assent-own.").tempdir().unwrap().keep();
        let folder = folder.to_str().unwrap().to_owned();
        let keeper = Command::new("setsid")
            .args(["sh", "-c", r#"cat >/dev/null; "$0" stop "$1" "$2"; rm -rf "$1""#, script, &folder, name])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut own = Self { url: String::new(), name, options: options.to_owned(), folder, _keeper: keeper };
        own.run("start");
        own.url = own.run("url");
        own
    }

    fn run(&self, verb: &str) -> String {
        let Self { name, options, folder, .. } = self;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/servers");
        let mut command = Command::new(script);
        command.args([verb, folder, name]).stdin(Stdio::null());
        command.env("ASSENT_SERVERS_POSTGRES_OPTIONS", options).env("ASSENT_SERVERS_MARIADB_OPTIONS", options);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{verb} {name}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    /// A stop, and a start on the same port with other options.
    pub(crate) fn again(&mut self, options: &str) {
        self.run("stop");
        self.options = options.to_owned();
        self.run("revive");
    }

    /// SIGKILL to all of it, and a start on the same port.
    pub(crate) fn killed(&self) {
        self.run("kill");
        self.run("revive");
    }

    /// A stop, a copy of its data, a start.
    pub(crate) fn copied(&self) {
        self.run("stop");
        self.shell(r#"cp -a "$0/data" "$0/copy""#);
        self.run("revive");
    }

    /// SIGKILL, its data replaced by that copy, a start on the same port.
    pub(crate) fn put_back(&self) {
        self.run("kill");
        self.shell(r#"rm -rf "$0/data" && mv "$0/copy" "$0/data""#);
        self.run("revive");
    }

    fn shell(&self, words: &str) {
        let home = format!("{}/{}", self.folder, self.name);
        assert!(Command::new("sh").args(["-c", words, &home]).status().unwrap().success(), "{words}");
    }
}
