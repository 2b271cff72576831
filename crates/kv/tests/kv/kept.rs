//! What of the journal no compaction can read stays where it is, and nothing waits for it.

use std::path::Path;

use assent_ids::Lsn;
use assent_journal::Log;
use assent_kind::Kind;
use assent_kv::{Durability, Kv, KvError};
use assent_runs::AtOnce;
use assent_sim::SimDisk;

use super::compactions::{House, SEGMENT_BYTES, house};
use super::faults::{flip, lose_ledger, opened, settle};

const DURABLE: Durability = Durability::Durable;

/// Moves the journal on to a place with what is dead soon.
fn fill(house: &House, to: u64) {
    for number in 0_u64.. {
        if house.log.end().0 >= to {
            break;
        }
        house.kv.put(1, b"", &number.to_le_bytes().repeat(40), DURABLE).unwrap();
    }
}

/// A store whose third stretch has values of its own, one that ends in the fourth, a delete of what stands before it, and a value
/// that is deleted behind it.
fn filled() -> House {
    let house = house(&SimDisk::new(), 1);
    let put = |key: &[u8], value: &[u8]| house.kv.put(0, key, value, DURABLE).unwrap();
    put(b"before", &[1; 400]);
    put(b"deleted within", &[2; 400]);
    fill(&house, 2 * SEGMENT_BYTES + 2000);
    put(b"within", &[3; 400]);
    put(b"deleted behind", &[4; 400]);
    house.kv.delete(0, b"deleted within", DURABLE).unwrap();
    fill(&house, 2 * SEGMENT_BYTES + 10_000);
    put(b"over its end", &[5; 9000]);
    fill(&house, 5 * SEGMENT_BYTES);
    put(b"behind", &[6; 400]);
    house.kv.delete(0, b"deleted behind", DURABLE).unwrap();
    fill(&house, 12 * SEGMENT_BYTES);
    settle(&house.kv);
    house
}

fn holds(kv: &Kv) {
    for (key, value) in [("before", vec![1; 400]), ("within", vec![3; 400]), ("behind", vec![6; 400])] {
        assert_eq!(kv.get(0, key.as_bytes()).unwrap(), Some(value), "{key}");
    }
    for key in ["deleted within", "deleted behind"] {
        assert_eq!(kv.get(0, key.as_bytes()).unwrap(), None, "{key}");
    }
}

fn holds_all(kv: &Kv) {
    holds(kv);
    assert_eq!(kv.get(0, b"over its end").unwrap(), Some(vec![5; 9000]));
}

/// Compacts until there is nothing to do; what failed meanwhile.
fn compact_all(kv: &Kv) -> Vec<KvError> {
    let mut errors = Vec::new();
    for _ in 0..200 {
        match kv.compact_once(&AtOnce) {
            Ok(true) => {}
            Ok(false) => return errors,
            Err(error) => errors.push(error),
        }
    }
    panic!("it does not come to an end: {errors:?}");
}

fn stretches(disk: &SimDisk) -> Vec<u64> {
    let names = assent_world::Disk::list(disk, Path::new("log")).unwrap();
    let kept = names.iter().filter_map(|name| name.get(..16).filter(|_| name.ends_with(".kept")));
    kept.map(|first| u64::from_str_radix(first, 16).unwrap()).collect()
}

#[test]
fn what_of_the_journal_cannot_be_read_stays_and_what_is_behind_it_is_compacted() {
    let House { disk, log, kv } = filled();
    drop((log, kv));
    disk.kill();
    let name = format!("{:016x}.kept", 2 * SEGMENT_BYTES);
    let damaged = Path::new("log").join(&name);
    assert!(flip(&disk, &damaged, 4096 + 512));
    let kv = opened(&disk).unwrap();
    settle(&kv);
    let errors = compact_all(&kv);
    assert!(errors.len() == 1 && errors[0].to_string().contains(&name), "{errors:?}");
    let stats = kv.stats();
    assert!(stats.unreadable_stretches == 1 && stats.compactions > 1 && stats.volumes > 1, "{stats:?}");
    // What is before and behind it was given back; it was not, nor what it goes on in, nor the one that says that this is all.
    let left: Vec<u64> = stretches(&disk).into_iter().filter(|first| *first < 8 * SEGMENT_BYTES).collect();
    assert_eq!(left, [2, 3, 4].map(|stretch| stretch * SEGMENT_BYTES));
    let check = |kv: &Kv| {
        holds(kv);
        let error = kv.get(0, b"over its end").unwrap_err();
        assert!(error.kind() == Kind::Corrupt && error.to_string().contains(&name), "{error}");
        let mut told = Vec::new();
        kv.verify(&mut |error| told.push(error.to_string()));
        assert!(told.iter().any(|damage| damage.contains(&name)), "{told:?}");
    };
    check(&kv);
    drop(kv);
    disk.kill();
    // Nor is it lost by an open; without a ledger there is none, as what is damaged may be a delete.
    check(&opened(&disk).unwrap());
    disk.kill();
    let lost = disk.copy();
    lose_ledger(&lost);
    let error = opened(&lost).unwrap_err();
    assert!(error.kind() == Kind::Corrupt && error.to_string().contains(&name), "{error}");
    // Somebody has its file in a backup.
    for disk in [disk, lost] {
        assert!(flip(&disk, &damaged, 4096 + 512));
        let kv = opened(&disk).unwrap();
        holds_all(&kv);
        settle(&kv);
        assert_eq!(compact_all(&kv), []);
        assert_eq!((kv.stats().unreadable_stretches, kv.stats().broken_accounts), (0, 0));
        assert!(stretches(&disk).first().is_none_or(|first| *first > 4 * SEGMENT_BYTES), "{:?}", stretches(&disk));
        holds_all(&kv);
        drop(kv);
        disk.kill();
        lose_ledger(&disk);
        holds_all(&opened(&disk).unwrap());
    }
}

#[test]
fn a_kept_stretch_is_released_by_no_open_and_no_reader() {
    let House { disk, log, kv } = filled();
    drop((log, kv));
    disk.kill();
    let damaged = Path::new("log").join(format!("{:016x}.kept", 2 * SEGMENT_BYTES));
    assert!(flip(&disk, &damaged, 4096 + 512));
    for salt in 0..3 {
        let house = house(&disk, 100 + salt);
        settle(&house.kv);
        // It pins what is there now; then it goes.
        let reader = house.kv.snapshot();
        compact_all(&house.kv);
        assert_eq!(reader.get(0, b"within").unwrap(), Some(vec![3; 400]));
        drop(reader);
        fill(&house, house.log.end().0 + 3 * SEGMENT_BYTES);
        house.kv.checkpoint().unwrap();
        settle(&house.kv);
        compact_all(&house.kv);
        assert_eq!(house.log.oldest(), Lsn(2 * SEGMENT_BYTES));
        holds(&house.kv);
        drop((house.log, house.kv));
        disk.kill();
    }
}
