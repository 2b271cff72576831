//! `assent serve` as an operator meets it: ready, health, metrics, an orderly stop, a second start, damage.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use assent_link::{Link, LinkConfig};
use assent_wire::{Hello, Request, Role};
use assent_world::{Clock as _, RealClock};

use super::assent::{command, fails, json, run, write};

pub(crate) struct Served {
    child: Child,
    pub(crate) protocol: String,
    pub(crate) admin: String,
    /// Where there are documents.
    pub(crate) docs: Option<String>,
    /// Where there are assets.
    pub(crate) assets: Option<String>,
}

pub(crate) fn serve(folder: &Path) -> Served {
    #[allow(clippy::disallowed_methods, reason = "a test keeps what its server says")]
    let said = std::fs::File::create(folder.join("said")).unwrap();
    let mut command = command(&["serve", "--config", folder.join("assent.toml").to_str().unwrap()]);
    ready(command.stdout(Stdio::piped()).stderr(said))
}

/// The same by a command of the caller's.
pub(crate) fn start(command: &mut Command) -> Served {
    ready(command.stdout(Stdio::piped()).stderr(Stdio::null()))
}

fn ready(command: &mut Command) -> Served {
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut words = line.trim().split(' ');
    assert_eq!(words.next(), Some("ready"), "{line:?}");
    let address = |word: Option<&str>| word.unwrap().split_once('=').unwrap().1.to_owned();
    let (protocol, admin) = (address(words.next()), address(words.next()));
    let more: Vec<&str> = words.collect();
    let find = |name: &str| more.iter().find_map(|word| word.strip_prefix(name)).map(str::to_owned);
    Served { child, protocol, admin, docs: find("docs="), assets: find("assets=") }
}

impl Served {
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until it stands at its stop point.
    pub(crate) fn freezes(&self) {
        let path = format!("/proc/{}/stat", self.child.id());
        let until = RealClock.now().after(Duration::from_secs(20));
        #[allow(clippy::disallowed_methods, reason = "a test looks at its server's process")]
        while !std::fs::read_to_string(&path).unwrap().contains(") T ") {
            assert!(RealClock.now() < until, "it does not freeze");
            RealClock.sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn stop(mut self) {
        self.signal(rustix::process::Signal::TERM);
        assert!(self.child.wait().unwrap().success(), "an orderly stop is exit 0");
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.signal(rustix::process::Signal::KILL);
        self.child.wait().unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> String {
        #[allow(clippy::disallowed_methods, reason = "a test is a client of its own")]
        let mut stream = TcpStream::connect(&self.admin).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// No test leaves a server behind, also not one that fails.
impl Drop for Served {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

pub(crate) fn configure(folder: &Path) {
    let text = "data_dir = \"data\"\n[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
                [coordinator]\n[kv]\n";
    write(&folder.join("assent.toml"), text);
}

#[test]
fn a_server_is_ready_healthy_counted_and_stops_in_an_orderly_way() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path());
    let served = serve(folder.path());
    let health = served.get("/health");
    assert!(health.starts_with("HTTP/1.1 200") && health.contains("coordinator") && health.contains("kv"), "{health}");
    let metrics = served.get("/metrics");
    assert!(metrics.contains("decisions") && metrics.contains("kv_keys"), "{metrics}");
    for log in ["coordinator", "kv"] {
        let syncs = format!("assent_log_syncs_total{{log=\"{log}\"}} ");
        let syncs =
            metrics.lines().find_map(|line| line.strip_prefix(&syncs)).map(|count| count.parse::<u64>().unwrap());
        assert!(syncs.is_some(), "{log}: {metrics}");
    }
    assert!(served.get("/nowhere").starts_with("HTTP/1.1 404"));
    let listed = run(&["--json", "tx", "list", "--server", &served.protocol]);
    assert_eq!(json(&listed)["transactions"], serde_json::json!([]));
    // A second server on the same folder is refused, and says why.
    let file = folder.path().join("assent.toml");
    fails(&["serve", "--config", file.to_str().unwrap()], 5, "another process");
    // Nor is what it has in memory told from its files.
    let data = folder.path().join("data");
    for verb in ["list", "log", "verify"] {
        fails(&["tx", verb, "--data", data.to_str().unwrap()], 5, "ask it, with --server");
    }
    // A batch on its way would be damage.
    for (verb, log) in [("check", "coordinator"), ("inspect", "kv")] {
        fails(&["journal", verb, data.join(log).to_str().unwrap()], 5, "open in another process");
    }
    served.stop();
    let told = String::from_utf8(run(&["tx", "list", "--data", data.to_str().unwrap()]).stdout).unwrap();
    assert!(
        told.contains("no decided transaction is unfinished") && told.contains("only its resources know"),
        "{told}"
    );
    let tx = ["tx", "show", "1.1.1", "--data", data.to_str().unwrap()];
    fails(&tx, 3, "was not decided");
    let journal = data.join("coordinator");
    let checked = run(&["--json", "journal", "check", journal.to_str().unwrap()]);
    assert_eq!(json(&checked)["closed_cleanly"], true, "{checked:?}");
    let inspected = json(&run(&["--json", "journal", "inspect", journal.to_str().unwrap()]));
    assert!(inspected["batches"].as_array().is_some_and(|batches| !batches.is_empty()), "{inspected}");
    let offline = run(&["--json", "tx", "list", "--data", data.to_str().unwrap()]);
    assert_eq!(json(&offline)["transactions"], serde_json::json!([]));
    assert_eq!(json(&offline)["held"], serde_json::Value::Null);
    serve(folder.path()).stop();
}

#[test]
fn damage_is_refused_by_file_and_offset_and_nothing_is_changed() {
    let played = run(&["--json", "demo", "--transfers", "100", "--accounts", "20", "--clients", "1", "--keep"]);
    let said = String::from_utf8_lossy(&played.stderr).into_owned();
    let kept = said.lines().find_map(|line| line.split_once(" are in ")).unwrap().1.to_owned();
    let folder = Path::new(&kept).join("coordinator");
    let journal = folder.join("data").join("coordinator");
    let segment = std::fs::read_dir(&journal)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .min()
        .unwrap();
    let inspected = json(&run(&["--json", "journal", "inspect", journal.to_str().unwrap()]));
    let batches = inspected["batches"].as_array().unwrap();
    let offset = batches.iter().find(|batch| batch["frames"] != 0).unwrap()["offset_bytes"].as_u64().unwrap();
    #[allow(clippy::disallowed_methods, reason = "a test damages a file")]
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = usize::try_from(offset).unwrap() + 100;
    bytes[at] ^= 1;
    #[allow(clippy::disallowed_methods, reason = "a test damages a file")]
    std::fs::write(&segment, &bytes).unwrap();
    fails(&["journal", "check", journal.to_str().unwrap()], 13, &offset.to_string());
    let file = folder.join("assent.toml");
    fails(&["serve", "--config", file.to_str().unwrap()], 13, "damaged at byte");
    #[allow(clippy::disallowed_methods, reason = "a test compares a file")]
    let after = std::fs::read(&segment).unwrap();
    assert_eq!(after, bytes, "a refused open changes nothing");
    std::fs::remove_dir_all(&kept).unwrap();
}

#[test]
fn a_server_that_was_frozen_forgives_the_silence_that_was_its_own() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path());
    let served = serve(folder.path());
    let role = Role::Client { label: "patient", resume: None, resources: vec![] };
    let link = Link::connect(&served.protocol.parse().unwrap(), &Hello::new(role), &LinkConfig::default()).unwrap();
    link.request(&Request::Ping).unwrap();
    served.signal(rustix::process::Signal::STOP);
    // Longer than three heartbeats, as when the whole machine was suspended: the client could not send any.
    RealClock.sleep(Duration::from_millis(1_500));
    served.signal(rustix::process::Signal::CONT);
    // It has its time again: longer than several checks of patience, shorter than three heartbeats.
    RealClock.sleep(Duration::from_millis(250));
    assert!(link.request(&Request::Ping).is_ok(), "the connection goes on");
    served.stop();
}
