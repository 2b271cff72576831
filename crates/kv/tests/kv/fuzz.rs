//! Any bytes in the journal or a checkpoint get an answer from an open.

use std::path::Path;
use std::sync::Arc;

use assent_journal::Log;
use assent_kind::Kind;
use assent_kv::{Config, Durability, Kv, Op};
use assent_sim::{SimClock, SimDisk};

use super::branches::{commit, ended, prepare, rollback};
use super::scripted_log::ScriptedLog;
use super::{fresh, xid};

/// What `make fuzz` runs too: the first two bytes are the entry's kind.
fn target(bytes: &[u8]) {
    let disk = SimDisk::new();
    let log = Arc::new(ScriptedLog::open(&disk, false).unwrap());
    let mut rest = bytes;
    while let Some(([kind, length], behind)) = rest.split_first_chunk::<2>() {
        let (payload, behind) = behind.split_at_checked(usize::from(*length)).unwrap_or((behind, &[]));
        log.append(u16::from(*kind % 6), &[payload]).unwrap();
        rest = behind;
    }
    log.sync().unwrap();
    match Kv::open(log, Arc::new(disk), Arc::new(SimClock::new()), Path::new("kv"), Config::default()) {
        Ok(kv) => {
            for keyspace in [0, 1] {
                kv.scan(keyspace, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, 100).unwrap();
            }
            kv.checkpoint().unwrap();
        }
        Err(error) => assert_eq!(error.kind(), Kind::Corrupt, "{error}"),
    }
}

#[test]
fn fuzz_records() {
    let desk = fresh();
    desk.kv.batch(&[Op::put(0, b"k", b"v"), Op::delete(1, b"l")], Durability::Durable).unwrap();
    for number in [1, 2] {
        ended(&desk.kv, &xid(number), &[number.to_le_bytes()[0]], b"branch");
        prepare(&desk.kv, &xid(number)).unwrap();
    }
    commit(&desk.kv, &xid(1)).unwrap();
    rollback(&desk.kv, &xid(2)).unwrap();
    let mut good = Vec::new();
    for entry in desk.log.read(desk.log.start()).unwrap() {
        let entry = entry.unwrap();
        good.extend_from_slice(&[entry.kind.to_le_bytes()[0], u8::try_from(entry.payload.len()).unwrap()]);
        good.extend_from_slice(&entry.payload);
    }
    let runs = assent_sim::fuzz(1, &[&good, b""], target);
    assert!(runs > 1_000, "{runs}");
}
