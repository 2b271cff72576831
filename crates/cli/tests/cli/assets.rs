//! `assent assets` as a user meets it: served, changed, killed, watched, verified and compared.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::assent::{command, fails, json, run, unsaid};

struct Served {
    child: Child,
    at: String,
}

fn serve(data: &Path, more: &[&str]) -> Served {
    let fixed = ["assets", "serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()];
    let mut command = command(&[&fixed[..], more].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let at = line.trim().strip_prefix("ready assets=").unwrap_or_else(|| panic!("{line:?}")).to_owned();
    Served { child, at }
}

impl Served {
    fn ask(&self, arguments: &[&str]) -> Output {
        run(&[&["assets"][..], arguments, &["--server", &self.at]].concat())
    }

    fn asked(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.ask(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        json(&output)
    }

    fn end(mut self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id().cast_signed()).unwrap(), signal).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn asset(id: u64, value: i64, updates: u64) -> serde_json::Value {
    json!({"id": id, "value": value, "updates": updates})
}

#[test]
fn assets_are_served_changed_and_there_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let served = serve(&data, &["--trace-every", "1"]);
    assert_eq!(served.asked(&["create", "1=100", "2=-5"])["assets"], json!([asset(1, 100, 0), asset(2, -5, 0)]));
    assert_eq!(served.asked(&["add", "1=-30", "2=30", "--min=0"])["assets"], json!([asset(1, 70, 1), asset(2, 25, 1)]));
    let refused = served.ask(&["add", "2=1", "1=-71", "--min=0"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("asset 1 would be -1; the bound is 0 (operation 2 of 2); nothing was changed"), "{said}");
    for (arguments, code) in [
        (&["get", "7"][..], 3),
        (&["create", "1=0"], 4),
        (&["compare-and-set", "1", "0", "5"], 4),
        (&["add", "1=9223372036854775807"], 2),
        (&["add", "1"], 2),
    ] {
        assert_eq!(served.ask(arguments).status.code(), Some(code), "{arguments:?}");
    }
    // What was done and cannot be said is not told as if it could be done again; what was read may be.
    let unsaid = |words: &[&str]| unsaid(&[&["assets"], words, &["--server", &served.at]].concat());
    let (code, said) = unsaid(&["add", "1=-1", "2=1"]);
    assert!(code == Some(7) && said.contains("it was done, but cannot write stdout"), "{code:?} {said}");
    assert_eq!(served.asked(&["add", "1=1", "2=-1"])["assets"], json!([asset(1, 70, 3), asset(2, 25, 3)]));
    assert!(!unsaid(&["get", "1"]).1.contains("was done"));
    // What runs is asked, and its files are not read beside it.
    let folder = data.to_str().unwrap();
    fails(&["assets", "verify", folder], 5, "another process");
    assert_eq!(served.asked(&["compare-and-set", "1", "70", "-1"])["assets"], json!([asset(1, -1, 4)]));
    assert_eq!(served.asked(&["set", "2=7"])["assets"], json!([asset(2, 7, 4)]));
    let before = served.asked(&["status"]);
    assert_eq!((&before["ack"], &before["assets"], &before["sequence"]), (&json!("durable"), &json!(2), &json!(6)));
    assert_eq!((&before["window_ms"], &before["closed"]), (&json!(0), &json!(null)));
    assert!(before["steps"]["total"]["count"].as_u64().unwrap() >= 4, "{before}");
    served.end(Signal::KILL);
    let served = serve(&data, &[]);
    assert_eq!(served.asked(&["get", "1", "2"])["assets"], json!([asset(1, -1, 4), asset(2, 7, 4)]));
    assert_eq!(served.asked(&["status"])["hash"], before["hash"]);
    assert_eq!(served.asked(&["remove", "2"])["assets"], json!([asset(2, 7, 4)]));
    let table = served.ask(&["status"]);
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(text.contains("durable: what was answered is on the disk") && text.contains("takes commands"), "{text}");
    let at = served.at.clone();
    served.end(Signal::TERM);
    fails(&["assets", "get", "1", "--server", &at], 8, "connecting to");
}

#[test]
fn what_a_stopped_server_left_is_verified_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    for (data, last) in [(&one, "1=5"), (&other, "1=6")] {
        let served = serve(data, &["--ack", "written"]);
        served.asked(&["create", "1=0"]);
        assert_eq!(served.asked(&["snapshot"])["ack"], json!("written"));
        served.asked(&["add", last]);
        served.end(Signal::TERM);
    }
    let (one, other) = (one.to_str().unwrap(), other.to_str().unwrap());
    let found = json(&run(&["assets", "verify", one, "--json"]));
    assert_eq!((&found["sequence"], &found["assets"]), (&json!(2), &json!(1)));
    let same = run(&["assets", "compare", one, one, "--json"]);
    assert_eq!((same.status.code(), &json(&same)["same"]), (Some(0), &json!(true)));
    let differs = run(&["assets", "compare", one, other, "--json"]);
    assert_eq!(differs.status.code(), Some(13), "{differs:?}");
    // When each was ordered stands in the log, too: the clocks of two machines are not one.
    assert_eq!(json(&differs)["same"], json!(false));
    fails(&["assets", "verify", folder.path().to_str().unwrap()], 3, "log");
}

#[test]
fn a_watch_prints_what_is_confirmed() {
    let folder = tempfile::tempdir().unwrap();
    let served = serve(folder.path(), &[]);
    served.asked(&["create", "1=0", "2=0"]);
    let mut watch = command(&["assets", "watch", "1", "--lines", "2", "--json", "--server", &served.at])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It is there when the server says so.
    while served.asked(&["status"])["subscriptions"] != json!(1) {}
    served.asked(&["add", "1=4", "2=4"]);
    served.asked(&["remove", "1"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut line = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(line(), json!({"entry": 2, "asset": 1, "value": 4, "updates": 1}));
    assert_eq!(line(), json!({"entry": 3, "asset": 1, "value": null, "updates": null}));
    assert!(watch.wait().unwrap().success());
}
