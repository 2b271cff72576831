//! `assent witness` as a pair meets it: ready, killed, paused, started again on its folder.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers fail by panicking")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use assent_arbiter::{Arbiter, open};
use assent_ids::Epoch;
use assent_kind::Kind;
use assent_membership::{Configuration, InSync, Life, Member};
use assent_world::{Clock as _, RealClock};
use rustix::process::{Pid, Signal, kill_process};

use super::assent::{command, fails};

const LIMIT: Duration = Duration::from_secs(20);

struct Served {
    child: Child,
    at: String,
}

fn serve(folder: &Path, listen: &str) -> Served {
    let mut command = command(&["witness", "--data", folder.to_str().unwrap(), "--listen", listen]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let at = line.trim().strip_prefix("ready witness=").unwrap_or_else(|| panic!("{line:?}")).to_owned();
    Served { child, at }
}

impl Served {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id().cast_signed()).unwrap(), signal).unwrap();
    }

    /// Waits until every thread of it stands still.
    fn pause(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let stands = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat"));
            stat.is_ok_and(|stat| stat.contains(") T "))
        };
        let until = RealClock.now().after(LIMIT);
        while !std::fs::read_dir(&tasks).unwrap().all(stands) {
            assert!(RealClock.now() < until, "it does not stand still");
            RealClock.sleep(Duration::from_millis(2));
        }
    }

    fn ask(&self, limit: Duration) -> Box<dyn Arbiter> {
        open(&self.at, "g".parse().unwrap(), Arc::new(RealClock), limit).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn configuration(version: u64) -> Configuration {
    let in_sync = InSync::only(Member(1), Life { disk: 1, memory: version });
    let epoch = Epoch(u32::try_from(version).unwrap());
    Configuration { version, epoch, primary: Some(Member(1)), in_sync, forced: false }
}

#[test]
fn a_witness_that_was_killed_or_paused_has_what_it_told() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("w");
    let mut served = serve(&data, "127.0.0.1:0");
    let at = served.at.clone();
    let member = served.ask(LIMIT);
    for version in 1..=5 {
        assert_eq!(member.change(version - 1, &configuration(version)).unwrap().version, version);
        served.signal(Signal::KILL);
        served.child.wait().unwrap();
        let error = member.read().unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        served = serve(&data, &at);
        assert_eq!(member.read().unwrap(), configuration(version));
    }
    served.pause();
    let hasty = served.ask(Duration::from_millis(100));
    assert_eq!(hasty.read().unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(hasty.change(5, &configuration(6)).unwrap_err().kind(), Kind::InDoubt, "it may hear of it yet");
    served.signal(Signal::CONT);
    let held = member.watch(5, LIMIT).unwrap();
    assert_eq!(held, configuration(6), "and here it did: what lay in its socket was a change like any other");
    // As whoever has new certificates says it to all that is ours.
    served.signal(Signal::HUP);
    served.signal(Signal::TERM);
    assert!(served.child.wait().unwrap().success(), "an orderly stop is exit 0");
}

#[test]
fn a_witness_says_what_it_cannot_do() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("w");
    let text = data.to_str().unwrap();
    let served = serve(&data, "127.0.0.1:0");
    fails(&["witness", "--data", text, "--listen", "127.0.0.1:0"], 5, "in use");
    let other = folder.path().join("other");
    let other = other.to_str().unwrap();
    fails(&["witness", "--data", other, "--listen", &served.at], 5, &served.at);
    fails(&["witness", "--data", other, "--listen", "0.0.0.0:0"], 6, "--insecure");
    fails(&["witness", "--data", other, "--listen", "nowhere"], 2, "nowhere");
    fails(&["witness"], 2, "--data");
    served.ask(LIMIT).change(0, &configuration(1)).unwrap();
    drop(served);
    super::assent::write(&data.join("witness"), "no ledger");
    fails(&["witness", "--data", text, "--listen", "127.0.0.1:0"], 13, "witness");
}
