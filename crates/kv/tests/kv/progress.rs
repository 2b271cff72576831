//! An open that reads everything back tells how far it is.

use std::path::Path;
use std::sync::Arc;

use assent_journal::Log;
use assent_kv::{Config, Durability, Kv, Progress};
use assent_sim::{SimClock, SimDisk};

use super::compactions::{House, SEGMENT_BYTES, config, house, journal};
use super::faults::lose_ledger;

fn told(disk: &SimDisk, settings: Config) -> (Kv, Vec<Progress>) {
    let (log, mut all): (Arc<dyn Log>, _) = (journal(disk, 9, SEGMENT_BYTES + 4096), Vec::new());
    let disk = Arc::new(disk.clone());
    let clock = Arc::new(SimClock::new());
    let kv = Kv::open_telling(log, disk, clock, Path::new("kv"), settings, &mut |progress| all.push(progress)).unwrap();
    (kv, all)
}

/// One like the next, and the last is all of it.
fn is_a_way(all: &[Progress], least: u64) {
    let total = all.last().unwrap().total;
    assert!(total >= least && all.iter().all(|progress| progress.total == total), "{all:?}");
    assert!(all.is_sorted_by_key(|progress| progress.read) && all.len() > 20, "{all:?}");
    let done = all.iter().filter(|progress| progress.read == total).count();
    assert_eq!((done, all.last().unwrap().read), (1, total), "{all:?}");
}

#[test]
fn a_ledger_that_is_built_anew_tells_how_far_it_is_and_an_open_behind_one_tells_nothing() {
    for is_compacted in [false, true] {
        let house = house(&SimDisk::new(), 1);
        // These live on.
        for key in 10..60_u64 {
            house.kv.put(0, &key.to_be_bytes(), &key.to_le_bytes().repeat(50), Durability::Durable).unwrap();
        }
        for round in 0..40_u64 {
            for key in 0..10_u64 {
                house.kv.put(0, &key.to_be_bytes(), &round.to_le_bytes().repeat(50), Durability::Durable).unwrap();
            }
            house.kv.checkpoint().unwrap();
        }
        assert!(!is_compacted || house.compact_all() > 0);
        let House { disk, log, kv } = house;
        let bytes = log.end().0 - log.oldest().0;
        drop((log, kv));
        disk.kill();
        let (kv, all) = told(&disk.copy(), config());
        assert_eq!((kv.stats().rebuilt, all), (0, Vec::new()), "compacted: {is_compacted}");
        lose_ledger(&disk);
        let (kv, all) = told(&disk, config());
        is_a_way(&all, bytes);
        assert_eq!(kv.get(0, &3_u64.to_be_bytes()).unwrap(), Some(39_u64.to_le_bytes().repeat(50)));
    }
    let (_, all) = told(&SimDisk::new(), config());
    assert_eq!(all, [], "a store that is made");
}
