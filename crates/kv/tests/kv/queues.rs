//! Keys that live for a short time, beside values that live for long: what is remembered of their deletes has a bound.
//!
//! A delete is remembered beside whatever volume is older than it. A load that lives is never worth reading of itself, so those of a queue
//! were more and more: by 0.6 of the load here with each 4096 that came and went.

use assent_kv::{Config, Durability, Kv, Op};
use assent_runs::AtOnce;
use assent_sim::SimDisk;

use super::compactions::{House, Map, house_over, journal, rows};
use super::faults::{lose_ledger, settle};

const SEGMENT_BYTES: u64 = 64 << 10;
const DURABLE: Durability = Durability::Durable;
const LOAD: u64 = 256;
const VALUE_BYTES: usize = 4000;

/// Of whose load what is full is passed, or is not.
fn opened(disk: &SimDisk, salt: u64, passes: bool) -> House {
    let config = Config {
        space_amplification_max_percent: 140,
        space_room_bytes_min: 0,
        volume_bytes: 4 * SEGMENT_BYTES,
        passed_bytes_min: if passes { 4096 } else { 1 << 40 },
        memory_bytes: 1 << 20,
        ..Config::default()
    };
    house_over(disk, journal(disk, salt, SEGMENT_BYTES + 4096), config)
}

struct Queue {
    house: House,
    load: Map,
    next: u64,
}

impl Queue {
    fn new(passes: bool) -> Self {
        let house = opened(&SimDisk::new(), 1, passes);
        let mut load = Map::new();
        for key in 0..LOAD {
            let value = key.to_le_bytes().repeat(VALUE_BYTES / 8);
            house.kv.put(0, &key.to_be_bytes(), &value, DURABLE).unwrap();
            load.insert(key.to_be_bytes().to_vec(), value);
        }
        settle(&house.kv);
        Self { house, load, next: 0 }
    }

    /// So many come and go, in batches.
    fn turns(&mut self, many: u64) {
        const BATCH: u64 = 16;
        let kv = &self.house.kv;
        for batch in 0..many / BATCH {
            let keys: Vec<Vec<u8>> =
                (self.next..self.next + BATCH).map(|key| format!("{key:0100}").into_bytes()).collect();
            self.next += BATCH;
            let puts: Vec<Op<'_>> = keys.iter().map(|key| Op::put(2, key, &[9; 900])).collect();
            kv.batch(&puts, DURABLE).unwrap();
            let deletes: Vec<Op<'_>> = keys.iter().map(|key| Op::delete(2, key)).collect();
            kv.batch(&deletes, DURABLE).unwrap();
            if batch % 16 == 0 {
                kv.tick();
                while kv.work(&AtOnce) {}
            }
        }
        settle(kv);
        while kv.work(&AtOnce) {}
    }

    /// What the disk has, by what lives.
    fn space(&self) -> f64 {
        self.house.disk.used_bytes() as f64 / (LOAD * u64::try_from(VALUE_BYTES).unwrap()) as f64
    }

    fn check_of(&self, kv: &Kv) {
        assert!(rows(kv) == self.load);
        assert_eq!(kv.scan(2, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, 9).unwrap(), vec![]);
        let mut told = Vec::new();
        kv.verify(&mut |error| told.push(error.to_string()));
        assert_eq!((told, kv.stats().broken_accounts), (vec![], 0));
    }
}

#[test]
fn what_is_remembered_of_keys_that_came_and_went_has_a_bound() {
    for passes in [true, false] {
        let mut queue = Queue::new(passes);
        let mut most: f64 = 0.0;
        for round in 0..8 {
            queue.turns(4096);
            let (space, stats) = (queue.space(), queue.house.kv.stats());
            let values = stats.value_bytes_on_disk as f64 / stats.live_bytes as f64;
            let written = stats.compacted_bytes_out as f64 / stats.put_bytes as f64;
            println!("{round}: {space:.3} x, of values {values:.3}, written {written:.3} x what was put");
            // Each round is deletes of 0.6 of the load, and a quarter of it is what may be remembered.
            assert!(values < 1.3 && written < 0.65, "{round}: {values} {written} {stats:?}");
            assert!(round < 2 || space <= most, "{round}: {space}, {most} before");
            most = most.max(space);
        }
        queue.check_of(&queue.house.kv);
        for lost in [false, true] {
            let disk = queue.house.disk.copy();
            disk.kill();
            if lost {
                lose_ledger(&disk);
            }
            queue.check_of(&opened(&disk, 7, passes).kv);
        }
    }
}
