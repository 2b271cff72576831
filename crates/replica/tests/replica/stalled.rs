//! A disk on which nothing ends for a while, under a group that acknowledges what is on every disk: no desk waits for it.

use std::io;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use assent_membership::{Ack, Sequence, Standing};
use assent_replica::{Status, Tuning};
use assent_world::{Barrier, Clock as _, Disk, Durably, File, Lock, Open, RealClock, RealDisk};

use super::front::{Group, LIMIT, calm};

const CALLERS: u64 = 30;
/// More than what a batch under way and an open one hold together, and less than what may be unconfirmed.
const COMMAND_BYTES: usize = 500 << 10;
const SEGMENT_BYTES: u64 = 4 << 20;
/// So many commands fit one.
const COMMANDS_EACH: u64 = 8;
/// A desk that sleeps for twice as long is taken for lost.
const SILENT_MS: u64 = 2_000;

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
#[derive(Clone, Debug, Default)]
struct Stalls {
    log: Arc<Stall>,
    making: Arc<Stall>,
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

#[derive(Debug)]
struct Stalling(Stalls);

#[derive(Debug)]
struct StallingLog(Arc<dyn File>, Stalls);

impl Disk for Stalling {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir(path)
    }
    fn open(&self, path: &Path, open: Open) -> io::Result<Arc<dyn File>> {
        let file = RealDisk.open(path, open)?;
        // A segment has its name only when it is made.
        let is_log = path.extension().is_some_and(|extension| extension == "log") || path.ends_with("next.tmp");
        Ok(if is_log { Arc::new(StallingLog(file, self.0.clone())) } else { file })
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        RealDisk.unlink(path)
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(folder)
    }
    fn sync_dir(&self, folder: &Path, barrier: Barrier) -> io::Result<()> {
        RealDisk.sync_dir(folder, barrier)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        RealDisk.lock(path)
    }
}

impl File for StallingLog {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(at, buffer)
    }
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        self.1.making.pass();
        self.0.write_at(at, bytes)
    }
    fn write_durable_at(&self, at: u64, bytes: &[u8], how: Durably, barrier: Barrier) -> io::Result<usize> {
        self.1.log.pass();
        self.0.write_durable_at(at, bytes, how, barrier)
    }
    fn preallocate_zeroed(&self, bytes: u64) -> io::Result<()> {
        self.1.making.pass();
        self.0.preallocate_zeroed(bytes)
    }
    fn reserve_zeroed(&self, bytes: u64) -> io::Result<()> {
        self.0.reserve_zeroed(bytes)
    }
    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.0.set_size(bytes)
    }
    fn sync_data(&self, barrier: Barrier) -> io::Result<()> {
        self.1.log.pass();
        self.0.sync_data(barrier)
    }
    fn sync_all(&self, barrier: Barrier) -> io::Result<()> {
        self.1.making.pass();
        self.0.sync_all(barrier)
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
fn group(members: u8, stalls: u8) -> (Group, Stalls) {
    let (on, tuning) = (Stalls::default(), Tuning { log_size: SEGMENT_BYTES, silent_ms: SILENT_MS, ..calm(1_000_000) });
    let mut group = Group::empty(members, Ack::Durable, tuning);
    let ends = on.clone();
    group.disks.insert(stalls, (Arc::new(Stalling(on.clone())), Box::new(move || ends.end())));
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
        RealClock.sleep(Duration::from_millis(2 * SILENT_MS));
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
    // One is made ahead.
    group.until("there are two", |group| group.bytes(0) >= 2 * SEGMENT_BYTES);
    on.making.set(true);
    under(&group, &on, |before| {
        let all = Sequence(before.end.0 + 2 * COMMANDS_EACH);
        group.until("all that they hold is confirmed", |group| awake(group, 0).confirmed >= all);
        assert_eq!(awake(&group, 0).confirmed, all);
    });
}
