//! A disk on which nothing ends for a while, under a group that acknowledges what is on every disk: no desk waits for it.

use std::io;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};

use assent_membership::{Ack, Sequence, Standing};
use assent_replica::{Status, Tuning};
use assent_world::{Barrier, Disk, Durably, File, Lock, Open, RealDisk};

use super::front::{Group, LIMIT, calm};

const CALLERS: u64 = 30;
/// More than what a batch under way and an open one hold together, and less than what may be unconfirmed.
const COMMAND_BYTES: usize = 500 << 10;

/// Whether durable writes of logs wait.
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

/// Ends the stall, also where a test fails within it.
struct Ends<'a>(&'a Stall);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[derive(Debug)]
struct Stalling(Arc<Stall>);

#[derive(Debug)]
struct StallingLog(Arc<dyn File>, Arc<Stall>);

impl Disk for Stalling {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir(path)
    }
    fn open(&self, path: &Path, open: Open) -> io::Result<Arc<dyn File>> {
        let file = RealDisk.open(path, open)?;
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        Ok(if is_log { Arc::new(StallingLog(file, Arc::clone(&self.0))) } else { file })
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
        self.0.write_at(at, bytes)
    }
    fn write_durable_at(&self, at: u64, bytes: &[u8], how: Durably, barrier: Barrier) -> io::Result<usize> {
        self.1.pass();
        self.0.write_durable_at(at, bytes, how, barrier)
    }
    fn preallocate_zeroed(&self, bytes: u64) -> io::Result<()> {
        self.0.preallocate_zeroed(bytes)
    }
    fn reserve_zeroed(&self, bytes: u64) -> io::Result<()> {
        self.0.reserve_zeroed(bytes)
    }
    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.0.set_size(bytes)
    }
    fn sync_data(&self, barrier: Barrier) -> io::Result<()> {
        self.1.pass();
        self.0.sync_data(barrier)
    }
    fn sync_all(&self, barrier: Barrier) -> io::Result<()> {
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

#[test]
fn a_disk_that_stalls_under_load_keeps_no_desk_waiting_and_loses_nothing() {
    for stalls in [0, 1] {
        let stall = Arc::new(Stall::default());
        let mut group = Group::empty(2, Ack::Durable, Tuning { log_size: 4 << 20, ..calm(1_000_000) });
        let end = Arc::clone(&stall);
        group.disks.insert(stalls, (Arc::new(Stalling(Arc::clone(&stall))), Box::new(move || end.set(false))));
        group.start(false);
        group.start(false);
        group.until("it leads", |group| group.leader() == Some((0, 2)));
        group.members[0].execute(1, &7_u64.to_le_bytes()).unwrap();
        let before = group.status(0);
        stall.set(true);
        let ends = Ends(&stall);
        std::thread::scope(|scope| {
            let _ends = ends;
            let callers: Vec<_> = (0..CALLERS)
                .map(|number| {
                    let command = [&(1_000 + number).to_le_bytes()[..], &vec![9; COMMAND_BYTES]].concat();
                    let group = &group;
                    scope.spawn(move || group.members[0].execute(1, &command))
                })
                .collect();
            let all = Sequence(before.end.0 + CALLERS);
            group.until("all of them are ordered", |group| awake(group, 0).end == all);
            if stalls == 1 {
                // As much is sent to it as may be on its way, and no more: it would have to keep it in memory.
                let least = Sequence(before.end.0 + 4);
                group.until("it has some of them", |group| awake(group, 1).end >= least);
                let held = awake(&group, 1);
                assert!(held.end <= Sequence(before.end.0 + 10) && held.durable <= before.end, "{held:?}");
            }
            for at in [0, 1] {
                let status = awake(&group, at);
                assert_eq!(
                    (status.configuration.epoch, status.confirmed),
                    (before.configuration.epoch, before.confirmed)
                );
            }
            assert_eq!(awake(&group, 0).standing, Standing::Leads);
            stall.set(false);
            for caller in callers {
                caller.join().unwrap().unwrap();
            }
        });
        group.until("both have executed the same", |group| {
            let (one, two) = (group.status(0), group.status(1));
            one.applied == two.applied && one.hash == two.hash && one.applied >= Sequence(before.end.0 + CALLERS)
        });
        assert_eq!(group.members[0].read(|machine| machine.counter.0.len()).unwrap() as u64, CALLERS + 1);
    }
}
