//! The longest value that there is, on a real disk: written, read, moved, found again.

use std::path::Path;
use std::sync::Arc;

use assent_journal::{Journal, Log};
use assent_kind::Kind;
use assent_kv::{Config, Durability, Kv, Op, VALUE_BYTES_MAX};
use assent_runs::AtOnce;
use assent_world::{RealClock, RealDice, RealDisk};

fn open(folder: &Path) -> (Arc<Journal>, Kv) {
    let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock));
    let config = assent_journal::Config { log_size: 16 << 20, kept_until_released: true, ..Default::default() };
    let (log, _) = Journal::open(disk.clone(), clock.clone(), Arc::new(RealDice), &folder.join("log"), config).unwrap();
    let kv = Kv::open(Arc::<Journal>::clone(&log) as _, disk, clock, &folder.join("kv"), Config::default()).unwrap();
    (log, kv)
}

#[test]
fn a_value_of_256_mib_is_written_read_compacted_and_found_without_the_ledger_and_one_byte_more_is_refused() {
    const MOST: usize = VALUE_BYTES_MAX as usize;
    let folder = tempfile::tempdir().unwrap();
    let (log, kv) = open(folder.path());
    // Told apart wherever a piece of it is missing or stands twice.
    let mut value: Vec<u8> = (0..MOST as u64 / 8).flat_map(u64::to_le_bytes).collect();
    kv.put(0, b"longest", &value, Durability::Durable).unwrap();
    value.push(0);
    let refused = kv.put(0, b"longest", &value, Durability::Durable).unwrap_err();
    assert!(refused.kind() == Kind::Invalid && refused.to_string().contains("268435457"), "{refused}");
    let refused = kv.batch(&[Op::put(0, b"a", b""), Op::put(0, b"longest", &value)], Durability::Durable).unwrap_err();
    assert_eq!((refused.kind(), kv.exists(0, b"a")), (Kind::Invalid, Ok(false)));
    value.pop();
    assert!(kv.get(0, b"longest").unwrap().as_ref() == Some(&value));
    // As much again dies behind it: together they are worth moving.
    for _ in 0..10 {
        kv.put(0, b"other", &value[..32 << 20], Durability::Durable).unwrap();
    }
    for _ in 0..4 {
        kv.put(0, b"other", b"", Durability::Durable).unwrap();
        kv.checkpoint().unwrap();
    }
    while kv.compact_once(&AtOnce).unwrap() {}
    let stats = kv.stats();
    assert!(stats.compactions > 0 && log.oldest().0 > 0, "{stats:?}");
    assert!(kv.get(0, b"longest").unwrap().as_ref() == Some(&value));
    drop(kv);
    log.close().unwrap();
    drop(log);
    std::fs::remove_dir_all(folder.path().join("kv")).unwrap();
    let (_log, kv) = open(folder.path());
    assert_eq!(kv.stats().rebuilt, 1);
    assert!(kv.get(0, b"longest").unwrap().as_ref() == Some(&value));
    assert_eq!(kv.get(0, b"other").unwrap(), Some(vec![]));
}
