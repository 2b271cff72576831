//! Members in processes of their own, with a witness: what they acknowledged is there, once, whoever dies or sleeps.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use assent_arbiter::{Door, Ledger};
use assent_world::{Clock, RealClock, RealDisk};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use super::child::CHILD;

/// Generous: a loaded machine is no fault.
const LIMIT: Duration = Duration::from_secs(60);

struct Process {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Process {
    fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        self.answers.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("no answer to {order:?}"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// It may open files up to this number. Returns what it was.
    fn descriptors(&self, current: Option<u64>) -> Option<u64> {
        let pid = Some(Pid::from_child(&self.child));
        let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
        prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).unwrap().current
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that is frozen dies too.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A group, and the client that knows all of it.
struct Group {
    folder: tempfile::TempDir,
    witness: Option<Door>,
    ack: &'static str,
    members: Vec<Option<Process>>,
    /// The next number to be added.
    next: u64,
    added: u64,
}

impl Group {
    fn new(members: usize, ack: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(Arc::new(RealDisk), &folder.path().join("witness")).unwrap();
        let address = format!("unix:{}", folder.path().join("w").display()).parse().unwrap();
        let witness = Some(Door::open(ledger, &address, Arc::new(RealClock)).unwrap());
        let mut group = Self { folder, witness, ack, members: Vec::new(), next: 0, added: 0 };
        group.members.resize_with(members, || None);
        (0..members).for_each(|at| group.start(at));
        group.until("everybody is in sync", |group| group.leader().is_some_and(|(_, in_sync)| in_sync == members));
        group
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&mut self, at: usize) {
        let unix = |path: &Path| format!("unix:{}", path.display());
        let mut told = vec![at.to_string(), self.ack.to_owned(), unix(&self.path("w"))];
        told.push(self.path(&format!("member{at}")).display().to_string());
        told.extend((0..self.members.len()).map(|member| unix(&self.path(&format!("m{member}")))));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::child", "--nocapture", "--test-threads", "1"])
            .env(CHILD, told.join(" "))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (lines, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                // The test runner says things too, perhaps on the same line.
                if let Some((_, answer)) = line.split_once("child: ")
                    && lines.send(answer.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let process = Process { child, orders, answers };
        assert_eq!(process.answers.recv_timeout(LIMIT).unwrap(), "started");
        self.members[at] = Some(process);
    }

    fn kill(&mut self, at: usize) {
        self.members[at] = None;
    }

    fn ask(&mut self, at: usize, order: &str) -> String {
        self.members[at].as_mut().map_or("gone".to_owned(), |member| member.ask(order))
    }

    /// Whoever leads of those that are not left out, and how many it says are in sync.
    fn leader_but(&mut self, out: Option<usize>) -> Option<(usize, usize)> {
        for at in (0..self.members.len()).filter(|at| Some(*at) != out) {
            let status = self.ask(at, "status");
            if let Some(rest) = status.strip_prefix("ok leads ") {
                return Some((at, rest.split(' ').nth(1).unwrap().parse().unwrap()));
            }
        }
        None
    }

    fn leader(&mut self) -> Option<(usize, usize)> {
        self.leader_but(None)
    }

    /// Who leads, once all are in sync.
    fn settled(&mut self) -> usize {
        let (members, mut primary) = (self.members.len(), None);
        self.until("all are in sync", |group| {
            primary = group.leader().filter(|(_, in_sync)| *in_sync == members);
            primary.is_some()
        });
        primary.unwrap().0
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = RealClock.now();
        while !done(self) {
            let all: Vec<String> =
                if RealClock.now().since(begun) < LIMIT { Vec::new() } else { vec![what.to_owned()] };
            assert!(all.is_empty(), "{all:?}");
            RealClock.sleep(Duration::from_millis(10));
        }
    }

    /// Adds so many numbers, each until it is answered, at whoever leads.
    fn add(&mut self, count: u64, out: Option<usize>) {
        for _ in 0..count {
            let order = format!("add {}", self.next);
            self.until(&order, |group| {
                let Some((at, _)) = group.leader_but(out) else { return false };
                group.ask(at, &order).starts_with("ok ")
            });
            self.next += 1;
            self.added += 1;
        }
    }

    fn count(&mut self, out: Option<usize>) -> u64 {
        let mut count = None;
        self.until("a read is answered", |group| {
            let Some((at, _)) = group.leader_but(out) else { return false };
            count = group.ask(at, "count").strip_prefix("ok ").map(|count| count.parse().unwrap());
            count.is_some()
        });
        count.unwrap()
    }

    fn heals(&mut self) {
        let members = self.members.len();
        self.until("the group heals", |group| group.leader().is_some_and(|(_, in_sync)| in_sync == members));
        assert_eq!(self.count(None), self.added, "what was acknowledged is there, once");
    }
}

#[test]
fn a_killed_primary_loses_nothing_and_comes_back_as_a_standby() {
    for (members, ack) in [(2, "received"), (2, "durable"), (3, "written")] {
        let mut group = Group::new(members, ack);
        // The third time a member leads that was started from its snapshot.
        for _ in 0..3 {
            group.add(30, None);
            let primary = group.settled();
            group.kill(primary);
            group.add(10, None);
            assert_eq!(group.count(None), group.added);
            group.start(primary);
            group.heals();
        }
    }
}

#[test]
fn a_frozen_primary_is_replaced_and_finds_out_when_it_wakes() {
    let mut group = Group::new(2, "received");
    group.add(20, None);
    let primary = group.settled();
    group.members[primary].as_ref().unwrap().signal(Signal::STOP);
    group.add(10, Some(primary));
    assert_eq!(group.count(Some(primary)), group.added);
    group.members[primary].as_ref().unwrap().signal(Signal::CONT);
    group.heals();
    assert_ne!(group.settled(), primary);
}

#[test]
fn a_standby_that_was_away_for_long_catches_up_by_snapshot_and_log() {
    let mut group = Group::new(2, "received");
    let primary = group.settled();
    let standby = 1 - primary;
    group.kill(standby);
    // Over three snapshots; and its folder is lost, so that only a snapshot can help.
    group.add(200, None);
    std::fs::remove_dir_all(group.path(&format!("member{standby}"))).unwrap();
    group.start(standby);
    group.heals();
    // The whole state is there: it can lead.
    group.kill(primary);
    assert_eq!(group.count(None), group.added);
    group.start(primary);
    group.heals();
}

#[test]
fn a_pair_goes_on_without_its_witness_and_a_hand_over_needs_it() {
    let mut group = Group::new(2, "received");
    let primary = group.settled();
    group.witness.take().unwrap().stop();
    group.add(20, None);
    let ledger = Ledger::open(Arc::new(RealDisk), &group.path("witness")).unwrap();
    let address = format!("unix:{}", group.path("w").display()).parse().unwrap();
    group.witness = Some(Door::open(ledger, &address, Arc::new(RealClock)).unwrap());
    let standby = 1 - primary;
    assert!(group.ask(primary, &format!("hand {standby}")).starts_with("ok Ok"));
    group.until("the standby leads", |group| group.leader().is_some_and(|(at, _)| at == standby));
    group.add(10, None);
    group.heals();
}

/// Whoever came while it had no descriptors was heard only when somebody else came.
#[test]
fn who_comes_while_there_are_no_descriptors_is_heard_once_there_are() {
    let mut group = Group::new(1, "received");
    let before = group.members[0].as_ref().unwrap().descriptors(Some(0));
    let mut stranger = UnixStream::connect(group.path("m0")).unwrap();
    // With the second answer it has had a turn since.
    for _ in 0..2 {
        assert!(group.ask(0, "status").starts_with("ok leads"));
    }
    group.members[0].as_ref().unwrap().descriptors(before);
    // Says what no member says: who is heard is shown the door.
    _ = stranger.write_all(&[7; 1_024]);
    stranger.set_read_timeout(Some(LIMIT)).unwrap();
    match stranger.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("nobody hears it: {other:?}"),
    }
}
