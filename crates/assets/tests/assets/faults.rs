//! A failing disk: what is refused was not done, what is in doubt says so, and a snapshot that fails harms nobody. And the one primary
//! of a pair of which another node asks for what its disk has lost.

use std::path::Path;

use assent_assets::{Client, Trace};
use assent_journal::Log;
use assent_kind::Kind;
use assent_membership::Ack;
use assent_sim::{Call, Fault, Operation, SimDisk};
use assent_world::Disk;

use super::group::{Group, Plan};
use super::{add, batch, create, done, fresh, get, open};

#[test]
fn a_full_disk_refuses_the_command_and_nothing_of_it_is_there() {
    let house = fresh();
    house.run(&(0..200).map(|id| create(id, 0)).collect::<Vec<_>>());
    house.disk.set_capacity(Some(house.disk.used_bytes()));
    let ops: Vec<_> = (0..200).map(|id| add(id, 1)).collect();
    let (mut done, before) = (0, house.engine.stats());
    let error = loop {
        match house.engine.execute(&batch(None, &ops)) {
            Ok(_) => done += 1,
            Err(error) => break error,
        }
        assert!(done < 100);
    };
    assert_eq!(error.kind(), Kind::Full, "{error}");
    assert_eq!((house.value(0), house.value(199)), (Some(done), Some(done)));
    assert_eq!(house.engine.stats().sequence.0, before.sequence.0 + done as u64);
    assert!(house.engine.snapshot().is_err(), "no room for it either");
    house.disk.set_capacity(None);
    house.run(&ops);
    house.engine.snapshot().unwrap().unwrap();
    let house = house.again(2);
    assert_eq!(house.value(7), Some(done + 1));
}

#[test]
fn a_failed_sync_leaves_the_command_in_doubt_and_closes_the_engine() {
    let house = fresh();
    house.run(&[create(1, 0)]);
    house.disk.inject(Call::of(Operation::WriteDurable, 1), Fault::Io);
    let error = house.engine.execute(&batch(None, &[add(1, 1)])).unwrap_err();
    assert_eq!(error.kind(), Kind::InDoubt, "{error}");
    for ops in [[add(1, 1)], [get(1)]] {
        let refused = house.engine.order(&batch(None, &ops), &mut Vec::new(), &mut Trace::default()).unwrap_err();
        assert_eq!(refused.kind(), Kind::Closed, "what nobody can know is not read: {refused}");
    }
    assert_eq!(house.engine.snapshot().unwrap_err().kind(), Kind::Closed);
    let house = house.again(2);
    assert!([Some(0), Some(1)].contains(&house.value(1)));
    house.run(&[add(1, 1)]);
}

#[test]
fn whatever_call_of_a_snapshot_fails_nothing_is_lost_and_the_next_one_works() {
    let (mut failed, mut untrimmed) = (0, 0);
    for fault in [Fault::Io, Fault::Full, Fault::Short] {
        for nth in 1.. {
            let house = fresh();
            house.run(&(0..60).map(|id| create(id, 0)).collect::<Vec<_>>());
            let work = || (0..20).for_each(|_| drop(house.run(&(0..60).map(|id| add(id, 1)).collect::<Vec<_>>())));
            for _ in 0..2 {
                work();
                house.engine.snapshot().unwrap();
            }
            work();
            let before = house.disk.calls();
            house.disk.inject(Call::any(nth), fault);
            let written = house.engine.snapshot();
            let calls = house.disk.calls() - before;
            failed += u64::from(written.is_err());
            untrimmed +=
                u64::from(written.as_ref().is_ok_and(|one| one.as_ref().is_some_and(|one| one.untrimmed.is_some())));
            assert!(fault != Fault::Short || written.is_ok(), "{written:?}");
            if nth > calls {
                break;
            }
            let (hash, disk) = (house.engine.stats().hash, house.disk.clone());
            let copy = disk.copy();
            copy.kill();
            let other = open(&copy, 50);
            assert_eq!((other.engine.stats().hash, other.recovery.damaged.len()), (hash, 0), "{fault:?} {nth}");
            if house.log.state() == assent_journal::State::Open {
                house.run(&[add(1, 1)]);
                house.engine.snapshot().unwrap().unwrap();
                assert_eq!(house.disk.list("assets".as_ref()).unwrap(), ["assets-1", "assets-2"]);
            }
        }
    }
    assert!(failed > 8 && untrimmed > 0, "{failed} failed, {untrimmed} gave no log back");
}

/// Each id is created, in batches.
fn create_all(client: &mut Client, ids: std::ops::Range<u64>) {
    for first in ids.clone().step_by(1_000) {
        client.execute(&(first..(first + 1_000).min(ids.end)).map(|id| create(id, 0)).collect::<Vec<_>>()).unwrap();
    }
}

/// The second of two is lost, and the first one leads alone, in a new life: its memory holds none of the log.
fn alone_again(group: &mut Group) {
    drop(group.members.remove(&1));
    let is_alone =
        |group: &Group| (group.leader() == Some(0) && group.status(0).configuration.in_sync.len() == 1).then_some(());
    group.until("it is alone in the set", is_alone);
    drop(group.members.remove(&0));
    group.start(0);
    group.until("it leads again", is_alone);
}

/// A node with a new disk asked for the snapshot: the one complete node met a sector of it that its disk had lost, stopped, and could
/// not start again.
#[test]
fn a_primary_whose_snapshot_cannot_be_read_goes_on_and_takes_another_one() {
    let mut group = Group::new(Plan::calm(2, Ack::Received));
    create_all(&mut group.client(&[0]), 0..40_000);
    alone_again(&mut group);
    group.client(&[0]).snapshot().unwrap();
    let taken = group.until("it has a snapshot of everything", |group| {
        let status = group.status(0);
        (status.counts.snapshots > 0 && status.snapshot == status.applied).then_some(status.counts.snapshots)
    });
    // Behind what is read of it when it gets its name. This is the name under which it was laid.
    let (laid, sector) = (Path::new("group/snapshot.new"), (600 << 10) / 512);
    group.disks[0].set_unreadable(laid, sector, true);
    group.disks[1] = SimDisk::new();
    group.start(1);
    let failed = group.until("another one is taken, although nothing was executed since", |group| {
        let status = group.status(0);
        assert_eq!(status.halted, None);
        (status.counts.snapshots > taken).then_some(status.counts.lends_failed)
    });
    assert!(failed > 0);
    // It is on other sectors.
    group.disks[0].set_unreadable(laid, sector, false);
    let mut client = group.client(&[0]);
    assert_eq!(client.execute(&[add(1, 1)]).unwrap(), done(&[(1, 1)]));
    assert_eq!(group.until_whole(), 0);
    assert!(group.status(1).counts.snapshots_installed > 0);
    assert_eq!(client.execute(&[add(1, 1)]).unwrap(), done(&[(2, 2)]));
}

/// As with the snapshot: a node that had been away for a while asked for what it lacked of the log.
#[test]
fn a_primary_whose_log_cannot_be_read_goes_on_and_sends_a_snapshot() {
    let mut group = Group::new(Plan::calm(2, Ack::Received));
    create_all(&mut group.client(&[0]), 0..2_000);
    drop(group.members.remove(&1));
    create_all(&mut group.client(&[0]), 2_000..4_000);
    alone_again(&mut group);
    let folder = Path::new("group");
    for name in group.disks[0].list(folder).unwrap() {
        (8..4_096).for_each(|sector| group.disks[0].set_unreadable(&folder.join(&name), sector, true));
    }
    group.start(1);
    group.until("it asks for what cannot be read", |group| {
        let status = group.status(0);
        assert_eq!(status.halted, None);
        (status.counts.lends_failed > 0).then_some(())
    });
    let mut client = group.client(&[0]);
    assert_eq!(client.execute(&[add(1, 1)]).unwrap(), done(&[(1, 1)]));
    assert_eq!(group.until_whole(), 0);
    assert!(group.status(1).counts.snapshots_installed > 0);
    assert_eq!(client.execute(&[add(3_999, 1)]).unwrap(), done(&[(1, 1)]));
}
