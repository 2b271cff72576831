//! A disk on which nothing ends for a while, under a group that acknowledges what is on every disk: no desk waits for it.

use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use assent_membership::{Ack, Sequence, Standing};
use assent_replica::{Status, Tuning};
use assent_sim::{Operation, Watch, WatchedDisk};
use assent_world::{Clock as _, RealClock, RealDisk};

use super::front::{Group, LIMIT, calm};

const CALLERS: u64 = 30;
/// More than what a batch under way and an open one hold together, and less than what may be unconfirmed.
const COMMAND_BYTES: usize = 500 << 10;
const SEGMENT_BYTES: u64 = 4 << 20;
/// So many commands fit one.
const COMMANDS_EACH: u64 = 8;
/// A desk that sleeps for longer is taken for lost.
const SILENT_MS: u64 = 8_000;

/// Whether what is to be done waits.
#[derive(Debug, Default)]
struct Stall {
    on: Mutex<bool>,
    changed: Condvar,
}

impl Stall {
    fn set(&self, on: bool) {
        *self.on.lock().unwrap() = on;
        self.changed.notify_all();
    }

    fn pass(&self) {
        drop(self.changed.wait_while(self.on.lock().unwrap(), |on| *on).unwrap());
    }
}

/// On which of a log's writes and syncs nothing ends, and on which of the making of its segments.
#[derive(Debug, Default)]
struct Stalls {
    log: Stall,
    making: Stall,
}

impl Stalls {
    fn end(&self) {
        self.log.set(false);
        self.making.set(false);
    }
}

/// Ends them, also where a test fails within.
struct Ends<'a>(&'a Stalls);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Watch for Stalls {
    fn begins(&self, path: &Path, operation: Operation) {
        // A segment has its name only when it is made.
        let is_log = path.extension().is_some_and(|extension| extension == "log") || path.ends_with("next.tmp");
        match operation {
            _ if !is_log => {}
            Operation::WriteDurable | Operation::SyncData => self.log.pass(),
            Operation::Write | Operation::Preallocate | Operation::SyncAll => self.making.pass(),
            _ => {}
        }
    }
}

/// The desk says where it stands: it does not wait for a disk.
fn awake(group: &Group, at: usize) -> Status {
    let (told, heard) = channel();
    std::thread::scope(|scope| {
        // It has a way out even where the desk sleeps: the one who waits for it ends the stall.
        scope.spawn(move || _ = told.send(group.status(at)));
        let status = heard.recv_timeout(LIMIT);
        if status.is_err() {
            group.disks.values().for_each(|(_, ends)| ends());
        }
        status.unwrap_or_else(|_| panic!("the desk of {at} waits for its disk"))
    })
}

/// A group on whose disks nothing stalls yet but on this one's.
fn group(members: u8, stalls: u8) -> (Group, Arc<Stalls>) {
    let (on, tuning) =
        (Arc::<Stalls>::default(), Tuning { log_size: SEGMENT_BYTES, silent_ms: SILENT_MS, ..calm(1_000_000) });
    let mut group = Group::empty(members, Ack::Durable, tuning);
    let (disk, ends) = (WatchedDisk::new(RealDisk, Arc::clone(&on)), Arc::clone(&on));
    group.disks.insert(stalls, (Arc::new(disk), Box::new(move || ends.end())));
    (0..members).for_each(|_| group.start(false));
    group.until("it leads", |group| group.leader() == Some((0, usize::from(members))));
    group.members[0].execute(1, &7_u64.to_le_bytes()).unwrap();
    (group, on)
}

/// Has so many commands ordered while `on` lasts, and answered once it ends.
fn under(group: &Group, on: &Stalls, within: impl FnOnce(&Status)) {
    let before = group.status(0);
    std::thread::scope(|scope| {
        let _ends = Ends(on);
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| {
                let command = [&(1_000 + number).to_le_bytes()[..], &vec![9; COMMAND_BYTES]].concat();
                scope.spawn(move || group.members[0].execute(1, &command))
            })
            .collect();
        let all = Sequence(before.end.0 + CALLERS);
        group.until("all of them are ordered", |group| awake(group, 0).end == all);
        within(&before);
        on.end();
        for caller in callers {
            caller.join().unwrap().unwrap();
        }
    });
    group.until("all have executed the same", |group| {
        let all: Vec<Status> = (0..group.members.len()).map(|at| group.status(at)).collect();
        all.iter().all(|one| one.applied == all[0].end && one.hash == all[0].hash)
    });
    assert_eq!(group.members[0].read(|machine| machine.counter.0.len()).unwrap() as u64, CALLERS + 1);
}

/// Nobody is taken for lost, and nothing is confirmed, for longer than a desk may be silent.
fn nothing_ends(stalls: u8) {
    let (group, on) = group(2, stalls);
    on.log.set(true);
    on.making.set(true);
    under(&group, &on, |before| {
        if stalls == 1 {
            // As much is sent to it as may be on its way, and no more: it would have to keep it in memory.
            let least = Sequence(before.end.0 + 4);
            group.until("it has some of them", |group| awake(group, 1).end >= least);
        }
        RealClock.sleep(Duration::from_millis(SILENT_MS + 1_000));
        for at in [0, 1] {
            let status = awake(&group, at);
            assert_eq!((&status.configuration, status.confirmed), (&before.configuration, before.confirmed));
        }
        assert_eq!(awake(&group, 0).standing, Standing::Leads);
        let held = awake(&group, 1);
        assert!(stalls == 0 || (held.end.0 <= before.end.0 + 10 && held.durable <= before.end), "{held:?}");
    });
}

#[test]
fn a_primarys_disk_that_stalls_under_load_keeps_no_desk_waiting_and_loses_nothing() {
    nothing_ends(0);
}

#[test]
fn a_standbys_disk_that_stalls_under_load_keeps_no_desk_waiting_and_loses_nothing() {
    nothing_ends(1);
}

#[test]
fn what_is_on_the_disk_is_told_although_no_segment_can_be_made() {
    let (group, on) = group(1, 0);
    // One is made ahead; it has its name once it is whole.
    group.until("there are two", |group| group.segments(0) >= 2);
    on.making.set(true);
    under(&group, &on, |before| {
        let all = Sequence(before.end.0 + 2 * COMMANDS_EACH);
        group.until("all that they hold is confirmed", |group| awake(group, 0).confirmed >= all);
        assert_eq!(awake(&group, 0).confirmed, all);
    });
}
