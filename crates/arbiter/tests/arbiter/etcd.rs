//! etcd as the arbiter, where it is installed (`scripts/servers install`): a private one, in a folder of its own, killed and
//! paused in the middle.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use assent_arbiter::{Arbiter, open};
use assent_kind::Kind;
use assent_world::net::tcp_listener;
use assent_world::{Clock, RealClock};

use crate::suite::{self, LIMIT, configuration};

struct Server {
    process: Child,
    folder: tempfile::TempDir,
    ports: [u16; 2],
}

fn program() -> Option<PathBuf> {
    let places = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&places).map(|place| place.join("etcd")).find(|path| path.exists())
}

fn spawn(program: &Path, folder: &Path, ports: [u16; 2]) -> Child {
    let [client, peer] = ports.map(|port| format!("http://127.0.0.1:{port}"));
    Command::new(program)
        .env_clear()
        .args(["--data-dir", &folder.join("data").display().to_string()])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

impl Server {
    /// A server that answers; none, said aloud, where etcd is not installed.
    fn start() -> Option<Self> {
        let Some(program) = program() else {
            println!("SKIPPED: no etcd on PATH; scripts/servers install brings it");
            return None;
        };
        for _ in 0..8 {
            // Free a moment ago; whoever takes one first, we try others.
            let free = || tcp_listener(&"127.0.0.1:0".parse().unwrap()).unwrap().local_addr().unwrap().port();
            let ports = [free(), free()];
            let folder = tempfile::tempdir().unwrap();
            let process = spawn(&program, folder.path(), ports);
            let mut server = Self { process, folder, ports };
            if server.answers() {
                return Some(server);
            }
        }
        panic!("etcd is installed and does not start");
    }

    /// Waits until it does, or has ended.
    fn answers(&mut self) -> bool {
        let end = RealClock.now().after(Duration::from_secs(60));
        while RealClock.now() < end && self.process.try_wait().unwrap().is_none() {
            if self.ask("ready", Duration::from_secs(1)).read().is_ok() {
                return true;
            }
            RealClock.sleep(Duration::from_millis(50));
        }
        false
    }

    fn ask(&self, group: &str, limit: Duration) -> Box<dyn Arbiter> {
        let at = format!("etcd://127.0.0.1:{}", self.ports[0]);
        open(&at, group.parse().unwrap(), Arc::new(RealClock), limit).unwrap()
    }

    fn signal(&self, name: &str) {
        let killed = Command::new("kill").args([name, &self.process.id().to_string()]).status().unwrap();
        assert!(killed.success());
    }
}

impl Server {
    /// Waits until every thread of it stands still.
    fn pause(&self) {
        self.signal("-STOP");
        let tasks = format!("/proc/{}/task", self.process.id());
        let stands = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat"));
            stat.is_ok_and(|stat| stat.contains(") T "))
        };
        let end = RealClock.now().after(LIMIT);
        while !std::fs::read_dir(&tasks).unwrap().all(stands) {
            assert!(RealClock.now() < end, "it does not stand still");
            RealClock.sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

#[test]
fn etcd_keeps_what_every_arbiter_keeps_also_when_it_is_paused_and_killed() {
    let Some(mut server) = Server::start() else { return };
    suite::all(&|name| server.ask(name, LIMIT), "");

    let member = server.ask("faults", LIMIT);
    member.change(0, &configuration(1, 1)).unwrap();
    server.pause();
    let hasty = server.ask("faults", Duration::from_millis(100));
    assert_eq!(hasty.read().unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(hasty.change(1, &configuration(2, 1)).unwrap_err().kind(), Kind::Unavailable, "it reads first");
    server.signal("-CONT");
    assert_eq!(member.read().unwrap(), configuration(1, 1));
    member.change(1, &configuration(2, 2)).unwrap();

    server.process.kill().unwrap();
    server.process.wait().unwrap();
    assert_eq!(member.read().unwrap_err().kind(), Kind::Unavailable);
    server.process = spawn(&program().unwrap(), server.folder.path(), server.ports);
    assert!(server.answers(), "it starts again on its folder");
    assert_eq!(member.read().unwrap(), configuration(2, 2), "what was answered is there");
    assert_eq!(member.change(2, &configuration(3, 1)).unwrap().version, 3);
}

#[test]
fn an_etcd_without_room_refuses_for_sure_only_what_it_then_does_not_hold() {
    let nothing = Some("200 OK\r\n\r\n{}");
    let full = Some("429 Too Many\r\n\r\n{\"error\":\"etcdserver: mvcc: database space exceeded\",\"code\":8}");
    let busy = Some("429 Too Many\r\n\r\n{\"error\":\"etcdserver: too many requests\",\"code\":8}");
    let cases = [
        (vec![nothing, full, nothing], Kind::Full),
        (vec![nothing, full, None], Kind::InDoubt),
        (vec![nothing, busy, nothing], Kind::InDoubt),
    ];
    for (answers, kind) in cases {
        let at = format!("etcd://127.0.0.1:{}", scripted(answers.clone()));
        let arbiter = open(&at, "g".parse().unwrap(), Arc::new(RealClock), LIMIT).unwrap();
        let error = arbiter.change(0, &configuration(1, 1)).unwrap_err();
        assert_eq!(error.kind(), kind, "{answers:?}: {error}");
    }
}

/// A gateway that says what it is told to, one connection an answer, and closes without a word where it has none.
fn scripted(answers: Vec<Option<&'static str>>) -> u16 {
    let listener = tcp_listener(&"127.0.0.1:0".parse().unwrap()).unwrap();
    listener.set_nonblocking(false).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            let mut buffer = [0; 1024];
            // A question ends with its JSON object.
            while !asked.ends_with(b"}") {
                let read = stream.read(&mut buffer).unwrap();
                asked.extend_from_slice(&buffer[..read]);
            }
            if let Some(answer) = answer {
                stream.write_all(format!("HTTP/1.0 {answer}").as_bytes()).unwrap();
            }
        }
    });
    port
}

#[test]
fn an_answer_that_was_lost_is_in_doubt_and_one_that_makes_no_sense_is_said_so() {
    let nothing = Some("200 OK\r\n\r\n{}");
    let timed_out = Some("503 Unavailable\r\n\r\n{\"error\":\"etcdserver: request timed out\"}");
    let cases = [
        (vec![nothing, None], Kind::InDoubt),
        (vec![nothing, timed_out], Kind::InDoubt),
        (vec![nothing, Some("200 OK\r\n\r\nhello")], Kind::InDoubt),
        (vec![nothing, nothing], Kind::InDoubt),
        (vec![None], Kind::Unavailable),
        (vec![timed_out], Kind::Unavailable),
        (vec![Some("200 OK\r\n\r\nhello")], Kind::Corrupt),
        (vec![Some("200 OK\r\n\r\n{\"kvs\":[{\"value\":\"e30=\",\"mod_revision\":\"1\"}]}")], Kind::Corrupt),
    ];
    for (answers, kind) in cases {
        let at = format!("etcd://127.0.0.1:{}", scripted(answers.clone()));
        let arbiter = open(&at, "g".parse().unwrap(), Arc::new(RealClock), LIMIT).unwrap();
        let error = arbiter.change(0, &configuration(1, 1)).unwrap_err();
        assert_eq!(error.kind(), kind, "{answers:?}: {error}");
    }
}
