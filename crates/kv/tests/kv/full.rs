//! A disk that fills up under a store: what fails leaves nothing, and what is acknowledged when there is room again survives.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use assent_journal::{Journal, Log};
use assent_kind::Kind;
use assent_kv::{Condition, Config, Durability, Expect, Kv, Op};
use assent_runs::AtOnce;
use assent_sim::{SimClock, SimDice, SimDisk, Survival};

use super::{all, xid};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(disk: &SimDisk, salt: u64) -> (Arc<Journal>, Kv) {
    open_with(disk, salt, super::compactions::config())
}

fn open_with(disk: &SimDisk, salt: u64, small: Config) -> (Arc<Journal>, Kv) {
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(salt)));
    let config = assent_journal::Config {
        log_size: 5 * 4096,
        max_buffer_log_size: 2 * 4096,
        kept_until_released: true,
        ..Default::default()
    };
    let (log, _) = Journal::open(Arc::new(disk.clone()), clock.clone(), dice, Path::new("log"), config).unwrap();
    let shared: Arc<dyn Log> = Arc::<Journal>::clone(&log);
    let kv = Kv::open(shared, Arc::new(disk.clone()), clock, Path::new("kv"), small).unwrap();
    (log, kv)
}

fn contents(kv: &Kv) -> Map {
    all(kv, 0).into_iter().collect()
}

/// Fills what the journal has ready, so that not the smallest fits: with puts, and with the deletes for which these leave room.
fn fill(kv: &Kv) {
    let put = |key: u32| kv.put(1, &key.to_be_bytes(), &[1; 100], Durability::Durable);
    let refused = (0..).find_map(|key| put(key).err()).unwrap();
    assert_eq!(refused.kind(), Kind::Full, "{refused}");
    let delete = |key: u32| kv.delete(1, &key.to_be_bytes(), Durability::Durable);
    let (deleted, refused) = (0..).find_map(|key| Some((key, delete(key).err()?))).unwrap();
    assert!(deleted > 0 && refused.kind() == Kind::Full, "{deleted}, {refused}");
}

/// A store that was studied lost acknowledged writes behind a batch that had found no room. Each way to write is refused here while
/// the disk is full to its last byte, whole and without a trace; then there is room, and the process or the machine dies.
#[test]
fn what_finds_no_room_leaves_nothing_and_what_is_acknowledged_behind_it_survives() {
    for (is_power_cut, fills) in [(false, 1), (false, 3), (true, 1), (true, 3)] {
        let disk = SimDisk::new();
        let (log, kv) = open(&disk, 1);
        let mut model = Map::new();
        let mut put = |kv: &Kv, key: &str, value: &[u8]| {
            kv.put(0, key.as_bytes(), value, Durability::Durable).unwrap();
            model.insert(key.as_bytes().to_vec(), value.to_vec());
        };
        for key in 0..30 {
            put(&kv, &format!("key {key}"), &[7; 900]);
        }
        kv.checkpoint().unwrap();
        let big = [9; 12_000];
        for round in 0..fills {
            disk.set_capacity(Some(disk.used_bytes()));
            let before = contents(&kv);
            fill(&kv);
            let many: Vec<[u8; 2]> = (0..40).map(|number| [b'n', number]).collect();
            let ops: Vec<Op<'_>> = many
                .iter()
                .map(|key| Op::put(0, key, &big[..300]))
                .chain([Op::delete(0, b"key 3"), Op::erase(0, b"key", None), Op::put(0, b"key 4", &big)])
                .collect();
            let unmet = [Condition::new(0, b"nobody", Expect::Absent)];
            for durability in [Durability::Durable, Durability::Buffered] {
                assert_eq!(kv.batch(&ops, durability).unwrap_err().kind(), Kind::Full);
                assert_eq!(kv.batch_if(&unmet, &ops, durability).unwrap_err().kind(), Kind::Full);
            }
            let own = xid(round);
            kv.start(&own).unwrap();
            kv.branch_put(&own, 0, b"key 5", &big).unwrap();
            kv.end(&own, true).unwrap();
            assert_eq!(kv.commit_one_phase_begin(&own).unwrap_err().kind(), Kind::Full);
            assert_eq!(kv.prepare_begin(&own).unwrap_err().kind(), Kind::Full);
            kv.wait(kv.rollback_begin(&own).unwrap()).unwrap();
            assert_eq!(kv.keyspace_create(&format!("space {round}")).unwrap_err().kind(), Kind::Full);
            assert!(contents(&kv) == before && kv.keyspaces().unwrap().is_empty() && kv.prepared().is_empty());
            let stats = kv.stats();
            assert_eq!((stats.unpublished, stats.held_keys, stats.branches), (0, 0, 0));
            disk.set_capacity(None);
            put(&kv, &format!("after {round}"), &big);
            put(&kv, "key 4", &round.to_le_bytes());
        }
        if fills > 1 {
            kv.checkpoint().unwrap();
            while kv.compact_once(&AtOnce).unwrap() {}
            assert!(kv.stats().compactions > 0);
            put(&kv, "last", b"word");
        }
        drop((kv, log));
        if is_power_cut {
            disk.cut_power(Survival::Nothing)
        } else {
            disk.kill()
        }
        let (_log, kv) = open(&disk, 2);
        assert!(contents(&kv) == model, "power {is_power_cut}, {fills}: {:?}", contents(&kv).keys());
        assert!(kv.keyspaces().unwrap().is_empty() && kv.prepared().is_empty());
        let mut told = Vec::new();
        kv.verify(&mut |error| told.push(error.to_string()));
        assert_eq!(told, Vec::<String>::new());
    }
}

/// A small disk filled up with what was dead, for that was within the least room: every write was refused, and nothing was given back.
#[test]
fn a_full_disk_or_who_asks_has_what_is_dead_within_the_least_room_given_back() {
    for asks in [false, true] {
        let disk = SimDisk::new();
        let config = Config { space_room_bytes_min: 1 << 30, ..super::compactions::config() };
        let (_log, kv) = open_with(&disk, 1, config);
        let put = |number: u64| kv.put(0, &(number % 4).to_le_bytes(), &[7; 900], Durability::Durable);
        for number in 0..400 {
            put(number).unwrap();
            if number % 50 == 49 {
                kv.checkpoint().unwrap();
            }
        }
        assert!(!kv.compact_once(&AtOnce).unwrap(), "all of it is within the least room");
        if asks {
            assert!(kv.compact_asked(&AtOnce).unwrap());
        } else {
            // A volume of what lives finds room, a segment of the journal none.
            disk.set_capacity(Some(disk.used_bytes() + (14 << 10)));
            let refused = (400..).find_map(|number| put(number).err()).unwrap();
            assert_eq!(refused.kind(), Kind::Full, "{refused}");
            assert!(kv.compact_once(&AtOnce).unwrap());
            // What the journal leaves free on the disk comes first; nobody is refused before whom nothing is given back.
            for number in 0..10 {
                while let Err(refused) = put(number) {
                    assert_eq!(refused.kind(), Kind::Full, "{refused}");
                    assert!(kv.compact_once(&AtOnce).unwrap());
                }
            }
            // Once all of it is, nobody is.
            while kv.compact_once(&AtOnce).unwrap() {}
            (0..10).for_each(|number| _ = put(number).unwrap());
            disk.set_capacity(None);
        }
        let used = disk.used_bytes();
        while kv.compact_once(&AtOnce).unwrap() || asks && kv.compact_asked(&AtOnce).unwrap() {}
        // Whatever can be given back is; from here on the least room counts again.
        assert!(kv.stats().reclaimed_bytes > 0 && disk.used_bytes() <= used, "{:?}", kv.stats());
        (0..20).for_each(|number| _ = put(number).unwrap());
        assert!(!kv.compact_once(&AtOnce).unwrap(), "asks: {asks}");
        (0..4).for_each(|number: u64| assert_eq!(kv.get(0, &number.to_le_bytes()), Ok(Some(vec![7; 900]))));
    }
}
