//! Opens: snapshots and logs that are whole, rotten, cut, missing, or of another place.

use std::path::Path;

use assent_assets::{AssetsError, Config, Engine, Kept, Limits, Logics, compare, verify};
use assent_journal::{Journal, Log};
use assent_kind::Kind;
use assent_sim::{SimClock, SimDice, SimDisk};
use assent_world::{Access, Clock, Disk, Open, write_all_at};
use std::sync::Arc;

use super::{House, add, create, fresh, open, small, try_open};

/// So many commands that a few segments are full.
fn work(house: &House, commands: usize) {
    let ops: Vec<_> = (0..60).map(|id| add(id, 1)).collect();
    (0..commands).for_each(|_| drop(house.run(&ops)));
}

fn filled() -> House {
    let house = fresh();
    house.run(&(0..60).map(|id| create(id, 0)).collect::<Vec<_>>());
    work(&house, 30);
    house
}

fn with_two_snapshots() -> House {
    let house = filled();
    house.engine.snapshot().unwrap();
    work(&house, 30);
    house.engine.snapshot().unwrap();
    house
}

fn damage(disk: &SimDisk, name: &str, at: u64) {
    let path = Path::new("assets").join(name);
    let file = disk.open(&path, Open { access: Access::Write, direct: false }).unwrap();
    let mut byte = [0];
    file.read_at(at, &mut byte).unwrap();
    write_all_at(&*file, at, &[byte[0] ^ 0x10]).unwrap();
}

fn snapshots(disk: &SimDisk) -> Vec<String> {
    disk.list(Path::new("assets")).unwrap()
}

#[test]
fn a_snapshot_bounds_the_replay_and_the_log_behind_the_older_one_is_kept() {
    let house = filled();
    assert_eq!(house.engine.stats().replay_bytes, house.log.end().0);
    let written = house.engine.snapshot().unwrap().unwrap();
    assert_eq!((written.sequence.0, written.assets), (31, 60));
    assert!(house.engine.snapshot().unwrap().is_none(), "nothing happened since");
    assert_eq!((house.log.start().0, house.engine.stats().replay_bytes), (0, 0), "only one snapshot: all log is kept");
    work(&house, 30);
    let first = house.log.end();
    house.engine.snapshot().unwrap().unwrap();
    let start = house.log.start();
    assert!(start.0 > 0 && start < first, "{start}");
    work(&house, 3);
    let before = house.engine.stats();
    let house = house.again(2);
    assert_eq!((house.recovery.snapshot.0, house.recovery.replayed), (61, 3));
    assert_eq!((house.engine.stats().hash, house.engine.stats().sequence), (before.hash, before.sequence));
    assert_eq!(snapshots(&house.disk), ["assets-1", "assets-2"]);
    let verified = house.engine.verify().unwrap();
    assert_eq!(verified.iter().map(|one| one.found.as_ref().unwrap().0.0).collect::<Vec<_>>(), [31, 61]);
}

#[test]
fn rot_in_the_newest_snapshot_is_named_and_the_older_one_and_a_longer_log_give_the_same() {
    let house = with_two_snapshots();
    work(&house, 5);
    let (before, disk) = (house.engine.stats(), house.disk.clone());
    drop(house);
    let path = Path::new("assets/assets-2");
    let size = disk.open(path, Open { access: Access::Read, direct: false }).unwrap().size().unwrap();
    let mut named = 0;
    for at in (0..size).step_by(31) {
        let disk = disk.copy();
        disk.kill();
        damage(&disk, "assets-2", at);
        let house = open(&disk, 100 + at);
        assert_eq!(house.engine.stats().hash, before.hash, "byte {at}");
        // Padding behind a frame is covered by nothing and means nothing.
        if house.recovery.damaged.is_empty() {
            continue;
        }
        named += 1;
        assert_eq!((house.recovery.snapshot.0, house.recovery.replayed), (31, 35));
        let (file, what) = &house.recovery.damaged[0];
        assert_eq!(file, path);
        assert!(what.contains("damaged at byte"), "{what}");
        // The next one takes the damaged one's place.
        house.run(&[add(0, 1)]);
        house.engine.snapshot().unwrap();
        assert!(house.engine.verify().unwrap().iter().all(|one| one.found.is_ok()));
    }
    assert!(named > size / 31 - 6, "{named} of {}", size / 31);
}

/// Before, a sector that the disk did not give kept the server from opening, in the snapshot that nobody needed, too.
#[test]
fn a_snapshot_that_the_disk_does_not_read_is_named_and_the_other_one_and_the_log_give_the_same() {
    let house = with_two_snapshots();
    work(&house, 5);
    let (before, disk) = (house.engine.stats(), house.disk.clone());
    drop(house);
    for (name, snapshot, replayed) in [("assets-1", 61, 5), ("assets-2", 31, 35)] {
        let disk = disk.copy();
        disk.kill();
        let path = Path::new("assets").join(name);
        disk.set_unreadable(&path, 0, true);
        let house = open(&disk, 7);
        assert_eq!(house.engine.stats().hash, before.hash, "{name}");
        assert_eq!((house.recovery.snapshot.0, house.recovery.replayed), (snapshot, replayed), "{name}");
        let [(file, what)] = &house.recovery.damaged[..] else { panic!("{:?}", house.recovery.damaged) };
        assert_eq!(file, &path);
        assert!(what.starts_with("not to be read from byte 0 on: "), "{what}");
        let verified = house.engine.verify().unwrap();
        assert_eq!(verified.iter().filter(|one| one.found.is_err()).map(|one| &one.path).collect::<Vec<_>>(), [&path]);
        // The next one takes its place.
        house.run(&[add(0, 1)]);
        house.engine.snapshot().unwrap();
        disk.set_unreadable(&path, 0, false);
        assert!(house.engine.verify().unwrap().iter().all(|one| one.found.is_ok()), "{name}");
    }
}

#[test]
fn with_both_snapshots_gone_or_rotten_and_the_log_trimmed_nothing_is_served() {
    let house = with_two_snapshots();
    let disk = house.disk.clone();
    drop(house);
    let both = disk.copy();
    both.kill();
    snapshots(&both).iter().for_each(|name| damage(&both, name, 40));
    let error = try_open(&both, 3, Config::default()).unwrap_err();
    assert!(error.starts_with("assets/assets-1: damaged at byte 0"), "{error}");
    let none = disk.copy();
    none.kill();
    snapshots(&none).iter().for_each(|name| none.unlink(&Path::new("assets").join(name)).unwrap());
    let error = try_open(&none, 3, Config::default()).unwrap_err();
    assert!(error.starts_with("assets: there is no snapshot in it, and the log begins at"), "{error}");
    // A cut one is as good as none.
    disk.kill();
    for name in ["assets-1", "assets-2"] {
        let file = disk.open(&Path::new("assets").join(name), Open { access: Access::Write, direct: false }).unwrap();
        file.set_size(file.size().unwrap() - 24).unwrap();
    }
    let error = try_open(&disk, 3, Config::default()).unwrap_err();
    assert!(error.contains("within a snapshot"), "{error}");
}

/// What the newest held is not had from the older one and a log that has lost its end.
#[test]
fn a_damaged_snapshot_that_knows_more_than_its_log_is_refused_too() {
    let house = filled();
    house.engine.snapshot().unwrap();
    let short = house.disk.copy();
    work(&house, 30);
    house.engine.snapshot().unwrap();
    let disk = house.disk.clone();
    drop(house);
    short.kill();
    disk.kill();
    let path = Path::new("assets/assets-2");
    let from = disk.open(path, Open { access: Access::Read, direct: false }).unwrap();
    let mut bytes = vec![0; usize::try_from(from.size().unwrap()).unwrap()];
    from.read_at(0, &mut bytes).unwrap();
    let last = bytes.len() - 20;
    bytes[last] ^= 0x10;
    let to = short.open(path, Open { access: Access::Create, direct: false }).unwrap();
    write_all_at(&*to, 0, &bytes).unwrap();
    let error = try_open(&short, 5, Config::default()).map(drop).unwrap_err();
    assert!(error.starts_with("the log of the assets: it ends at "), "{error}");
    assert!(error.contains("; assets/assets-2: damaged at byte"), "{error}");
}

#[test]
fn a_snapshot_that_knows_more_than_its_log_is_refused() {
    let house = filled();
    house.engine.snapshot().unwrap();
    let disk = house.disk.clone();
    drop(house);
    disk.kill();
    let (the_disk, clock) = (Arc::new(disk), Arc::new(SimClock::new()));
    let dice = Arc::new(SimDice::new(9));
    let (log, _) = Journal::open(the_disk.clone(), clock.clone(), dice, Path::new("other"), small()).unwrap();
    let error =
        Engine::open(log, the_disk, clock, Path::new("assets"), Config::default(), Logics::default()).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(
        error.to_string().starts_with("the log of the assets: it ends at 0, and a snapshot was taken at"),
        "{error}"
    );
}

#[test]
fn a_log_that_no_engine_laid_is_refused_by_its_place() {
    for (kind, payload, what) in [
        (7, &b""[..], "kind 7 is not of assets"),
        (1, b"short", "malformed at its field \"sequence\""),
        (1, &[9; 20], "follows 0 in the log; 1 was expected"),
        (
            1,
            &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0],
            "a command is malformed at its field \"what\"",
        ),
    ] {
        let disk = SimDisk::new();
        let house = open(&disk, 1);
        house.log.append(kind, &[payload]).unwrap();
        house.log.sync().unwrap();
        drop(house);
        disk.kill();
        let error = try_open(&disk, 2, Config::default()).unwrap_err();
        assert!(error.starts_with("the log of the assets: the entry at") && error.contains(what), "{error}");
    }
}

#[test]
fn a_rate_limited_snapshot_waits_and_is_due_when_the_log_says_so() {
    let disk = SimDisk::new();
    let config = Config { snapshot_bytes_per_second: 1 << 20, snapshot_log_bytes: 4_000_000, ..Config::default() };
    let house = try_open(&disk, 1, config).unwrap();
    for first in (0..50_000).step_by(1_000) {
        house.run(&(first..first + 1_000).map(|id| create(id, 0)).collect::<Vec<_>>());
    }
    assert!(!house.engine.snapshot_due());
    let before = house.clock.now();
    let bytes = house.engine.snapshot().unwrap().unwrap().bytes;
    assert!(bytes > 1_200_000, "{bytes}");
    let took = house.clock.now().since(before).as_millis();
    assert!((1_000..=1_200).contains(&took), "{took} ms for {bytes} bytes at a megabyte a second");
    while !house.engine.snapshot_due() {
        work(&house, 100);
    }
    let stats = house.engine.stats();
    assert!((4_000_000..4_300_000).contains(&stats.replay_bytes), "{}", stats.replay_bytes);
    house.engine.snapshot().unwrap();
    assert!(!house.engine.snapshot_due());
}

#[test]
fn a_snapshot_while_nothing_happens_is_not_held_back() {
    let house = fresh();
    for first in (0..200_000).step_by(1_000) {
        house.run(&(first..first + 1_000).map(|id| create(id, 0)).collect::<Vec<_>>());
    }
    let before = house.clock.now();
    let bytes = house.engine.snapshot().unwrap().unwrap().bytes;
    let took = house.clock.now().since(before).as_millis();
    // Until it is seen that nothing happens it goes as beside commands; all of it at that pace were more than a second.
    assert!(bytes > 4_800_000 && took <= 70, "{took} ms for {bytes} bytes");
}

/// A stopped server's data, looked at.
fn inspect<T>(disk: &SimDisk, look: impl FnOnce(&Kept<'_>) -> T) -> T {
    let the_disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (log, _) = Journal::open_read_only(the_disk.clone(), &SimClock::new(), Path::new("log")).unwrap();
    let (limits, logics) = (Limits::default(), Logics::default());
    look(&Kept { log: &log, disk: the_disk, folder: Path::new("assets"), limits, logics })
}

fn stopped(house: House) -> SimDisk {
    let House { disk, log, engine, .. } = house;
    log.close().unwrap();
    drop((log, engine));
    disk
}

#[test]
fn what_is_whole_is_verified_and_a_state_that_the_log_does_not_lead_to_is_named() {
    let house = with_two_snapshots();
    work(&house, 5);
    let stats = house.engine.stats();
    let disk = stopped(house);
    let found = inspect(&disk, |kept| verify(kept).unwrap());
    assert_eq!((found.hash, found.sequence, found.assets), (stats.hash, stats.sequence, 60));
    assert_eq!((found.reached, found.snapshots.len(), found.recovery.replayed), (1, 2, 5), "the newer one, on the way");
    // A whole snapshot of another history: as after a restored file.
    let other = filled();
    other.run(&[add(1, 7)]);
    work(&other, 29);
    other.engine.snapshot().unwrap();
    let other = stopped(other);
    let read = Open { access: Access::Read, direct: false };
    let file = other.open(Path::new("assets/assets-1"), read).unwrap();
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    let place = Open { access: Access::Write, direct: false };
    let file = disk.open(Path::new("assets/assets-2"), place).unwrap();
    file.set_size(bytes.len() as u64).unwrap();
    write_all_at(&*file, 0, &bytes).unwrap();
    let error = inspect(&disk, |kept| verify(kept).unwrap_err());
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
}

#[test]
fn two_that_applied_the_same_are_the_same_and_the_first_other_command_is_named() {
    let one = stopped(filled());
    let longer = filled();
    work(&longer, 3);
    let longer = stopped(longer);
    let other = filled();
    other.run(&[add(1, 7)]);
    work(&other, 2);
    let other = stopped(other);
    let pair = |a: &SimDisk, b: &SimDisk| inspect(a, |a| inspect(b, |b| compare([a, b]).unwrap()));
    let same = pair(&one, &longer);
    assert_eq!((same.commands, same.differs, same.are_same()), (31, None, true));
    assert_eq!(same.ends.map(|end| end.0), [31, 34]);
    let differs = pair(&longer, &other);
    assert_eq!((differs.commands, differs.differs.map(|at| at.0), differs.are_same()), (31, Some(32), false));
}

#[test]
fn a_word_that_cannot_be_is_refused_by_its_name() {
    let config = Config { ack: assent_membership::Ack::Received, ..Config::default() };
    let error = try_open(&SimDisk::new(), 1, config).unwrap_err();
    assert_eq!(error, "ack = received; it must be durable, written or none");
    let expected = AssetsError::Config { name: "snapshot_log_bytes", value: "0", rule: "at least 1" };
    let error = try_open(&SimDisk::new(), 1, Config { snapshot_log_bytes: 0, ..Config::default() }).unwrap_err();
    assert_eq!(error, expected.to_string());
}
