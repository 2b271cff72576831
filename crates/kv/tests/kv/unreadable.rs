//! What the disk refuses to read, for once or for good: nothing is lost, nothing older is taken for it, nothing waits for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assent_journal::Log;
use assent_kind::Kind;
use assent_kv::{Durability, Kv, KvError};
use assent_runs::AtOnce;
use assent_sim::{Call, Fault, Operation, SimDisk};
use assent_world::{Access, Disk, Open};

use super::compactions::{House, SEGMENT_BYTES, house, merge_all};
use super::faults::{flip, lose_ledger, opened, settle};

const DURABLE: Durability = Durability::Durable;
const VALUES: &str = "kv-values";

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Many volumes, each with values that live.
fn filled() -> (House, Map) {
    let house = house(&SimDisk::new(), 1);
    let mut model = Map::new();
    for round in 0..30_u64 {
        for key in 0..12_u64 {
            let key = if key < 4 { 100 * round + key } else { key };
            let value = (round * 1000 + key).to_le_bytes().repeat(60);
            house.kv.put(0, &key.to_be_bytes(), &value, DURABLE).unwrap();
            model.insert(key.to_be_bytes().to_vec(), value);
        }
        house.kv.checkpoint().unwrap();
    }
    (house, model)
}

fn stopped(house: House) -> SimDisk {
    let House { disk, log, kv } = house;
    drop((log, kv));
    disk.kill();
    disk
}

/// Supersedes all that there is, again and again, and compacts; what failed meanwhile.
fn overwrite(kv: &Kv, rounds: u64) -> Vec<KvError> {
    let mut errors = Vec::new();
    for round in 0..rounds {
        for key in (0..3000_u64).filter(|key| key % 100 < 4 || *key < 12) {
            kv.put(0, &key.to_be_bytes(), &round.to_le_bytes(), DURABLE).unwrap();
        }
        kv.checkpoint().unwrap();
        merge_all(kv);
        errors.extend((0..10).filter_map(|_| kv.compact_once(&AtOnce).err()));
    }
    errors
}

/// What was written: nothing more than usual, while the machine had no descriptors for some seconds. What the user saw: a stretch that cannot be read, and
/// values in it that no compaction takes until the next start. That there was no descriptor was taken for a word about the file.
#[test]
fn want_of_descriptors_sets_nothing_aside() {
    let (house, model) = filled();
    let all = stopped(house);
    let mut short = 0;
    // Of the calls of a compaction that open a file each is refused, four times in a row.
    for nth in 1..=6 {
        let disk = all.copy();
        let kv = opened(&disk).unwrap();
        settle(&kv);
        for _ in 0..4 {
            disk.inject(Call::of(Operation::Open, nth), Fault::Descriptors);
            let refused = kv.compact_once(&AtOnce);
            short += u32::from(refused.is_err());
        }
        // Those that nobody has met yet come now.
        while kv.compact_once(&AtOnce) != Ok(false) {}
        let stats = kv.stats();
        assert!(stats.unreadable_stretches == 0 && stats.compactions > 0, "{nth}: {stats:?}");
        super::faults::holds(&kv, &model);
    }
    assert!(short >= 8, "{short}");
}

#[test]
fn a_sector_that_the_disk_refuses_to_read_is_left_alone_and_the_others_are_compacted() {
    let (house, _) = filled();
    assert!(house.compact_all() > 1);
    let disk = stopped(house);
    let mut names = disk.list(Path::new(VALUES)).unwrap();
    names.sort();
    assert!(names.len() > 3, "{names:?}");
    for name in names.iter().take(2) {
        let disk = disk.copy();
        disk.set_unreadable(&Path::new(VALUES).join(name), 8, true);
        let kv = opened(&disk).unwrap();
        let errors = overwrite(&kv, 12);
        let stats = kv.stats();
        // Perhaps it passes, so it is tried again.
        assert!(stats.compactions > 3 && stats.compactions_failed == 3, "{stats:?} {errors:?}");
        assert!(errors.iter().all(|error| error.to_string().contains(name)), "{errors:?}");
        let left = disk.list(Path::new(VALUES)).unwrap();
        assert_eq!(names.iter().filter(|old| left.contains(old)).collect::<Vec<_>>(), [name], "{left:?}");
    }
}

#[test]
fn one_that_is_read_again_the_third_time_is_compacted_like_any_other() {
    let (house, model) = filled();
    assert!(house.compact_all() > 1);
    let disk = stopped(house);
    let name = disk.list(Path::new(VALUES)).unwrap().into_iter().min().unwrap();
    let path = Path::new(VALUES).join(&name);
    let kv = opened(&disk).unwrap();
    for key in model.keys() {
        kv.put(0, key, b"new", DURABLE).unwrap();
    }
    disk.set_unreadable(&path, 8, true);
    for turn in 0.. {
        assert!(turn < 1000, "it was never tried: {:?}", kv.stats());
        kv.put(1, b"", b"", DURABLE).unwrap();
        kv.checkpoint().unwrap();
        kv.work(&AtOnce);
        if kv.stats().compactions_failed == 2 {
            break;
        }
    }
    disk.set_unreadable(&path, 8, false);
    // Behind a failure it rests for some turns.
    (0..100).for_each(|_| _ = kv.work(&AtOnce));
    merge_all(&kv);
    assert!(!disk.list(Path::new(VALUES)).unwrap().contains(&name));
    for key in model.keys() {
        assert_eq!(kv.get(0, key).unwrap().as_deref(), Some(&b"new"[..]));
    }
}

/// The oldest stretch of the journal that is kept.
fn first_kept(disk: &SimDisk) -> PathBuf {
    let names = disk.list(Path::new("log")).unwrap();
    Path::new("log").join(names.iter().filter(|name| name.ends_with(".kept")).min().unwrap())
}

#[test]
fn nor_does_the_journal_stand_still_for_a_sector_that_cannot_be_read() {
    let (house, mut model) = filled();
    let disk = stopped(house);
    let path = first_kept(&disk);
    disk.set_unreadable(&path, 8 + 3, true);
    let kv = opened(&disk).unwrap();
    settle(&kv);
    let errors: Vec<KvError> = (0..30).filter_map(|_| kv.compact_once(&AtOnce).err()).collect();
    assert!(errors.len() == 3 && errors.iter().all(|error| error.kind() == Kind::Unavailable), "{errors:?}");
    let stats = kv.stats();
    assert!(stats.unreadable_stretches == 1 && stats.compactions > 1, "{stats:?}");
    model.insert(b"new".to_vec(), vec![3; 400]);
    kv.put(0, b"new", &[3; 400], DURABLE).unwrap();
    drop(kv);
    disk.kill();
    disk.set_unreadable(&path, 8 + 3, false);
    let kv = opened(&disk).unwrap();
    super::faults::holds(&kv, &model);
    settle(&kv);
    while kv.compact_once(&AtOnce).unwrap() {}
    assert_eq!(kv.stats().unreadable_stretches, 0);
    super::faults::holds(&kv, &model);
}

#[test]
fn a_kept_stretch_whose_file_is_not_there_stops_no_compaction_after_a_restart() {
    let (house, _) = filled();
    let disk = stopped(house);
    let path = first_kept(&disk);
    assert!(flip(&disk, &path, 0));
    let kv = opened(&disk).unwrap();
    settle(&kv);
    assert_eq!((0..20).filter(|_| kv.compact_once(&AtOnce).is_err()).count(), 1);
    assert_eq!(kv.stats().unreadable_stretches, 1);
    drop(kv);
    disk.kill();
    // Not repaired; once still in the folder, once taken out of it.
    for is_there in [true, false] {
        let disk = disk.copy();
        if !is_there {
            disk.unlink(&path).unwrap();
        }
        let kv = opened(&disk).unwrap();
        // What the stretch has is superseded, so that it is worth most.
        let errors = overwrite(&kv, 12);
        let stats = kv.stats();
        assert!(stats.compactions_failed == 1 && stats.compactions > 3, "{is_there} {errors:?} {stats:?}");
        assert!(errors.iter().all(|error| error.kind() == Kind::Corrupt), "{errors:?}");
        assert_eq!((stats.unreadable_stretches, stats.broken_accounts), (1, 0));
    }
}

/// A store with a volume and the file that it replaced, which a reader has kept; what was deleted since stands in that. Their names.
fn with_a_leftover() -> (SimDisk, Map, [String; 2]) {
    let house = house(&SimDisk::new(), 1);
    let mut model = Map::new();
    let mut put = |key: &[u8], value: Vec<u8>| {
        house.kv.put(0, key, &value, DURABLE).unwrap();
        model.insert(key.to_vec(), value);
    };
    put(b"gone", vec![9; 400]);
    for key in 0..20_u64 {
        put(&key.to_be_bytes(), key.to_le_bytes().repeat(60));
    }
    for number in 0_u64.. {
        if house.log.end().0 >= 3 * SEGMENT_BYTES {
            break;
        }
        house.kv.put(1, b"", &number.to_le_bytes().repeat(40), DURABLE).unwrap();
    }
    settle(&house.kv);
    assert!(house.compact_all() > 0);
    let old = house.disk.list(Path::new(VALUES)).unwrap().into_iter().min().unwrap();
    let reader = house.kv.snapshot();
    assert_eq!(reader.get(0, b"gone").unwrap(), Some(vec![9; 400]));
    house.kv.delete(0, b"gone", DURABLE).unwrap();
    model.remove(&b"gone"[..]);
    for key in 0..16_u64 {
        house.kv.put(0, &key.to_be_bytes(), b"short", DURABLE).unwrap();
        model.insert(key.to_be_bytes().to_vec(), b"short".to_vec());
    }
    for number in 0_u64.. {
        if house.log.end().0 >= 6 * SEGMENT_BYTES {
            break;
        }
        house.kv.put(1, b"", &number.to_le_bytes().repeat(40), DURABLE).unwrap();
    }
    settle(&house.kv);
    merge_all(&house.kv);
    house.compact_all();
    let disk = house.disk.copy();
    assert_eq!(reader.get(0, b"gone").unwrap(), Some(vec![9; 400]), "it is kept for him");
    drop(reader);
    disk.kill();
    lose_ledger(&disk);
    let names = disk.list(Path::new(VALUES)).unwrap();
    let of_it = |name: &&String| name[..16] == old[..16] && **name > old;
    let new = names.iter().filter(of_it).max().unwrap().clone();
    assert!(names.contains(&old), "{names:?}");
    (disk, model, [old, new])
}

#[test]
fn a_volume_that_has_rotted_or_cannot_be_read_gives_way_to_no_file_that_it_replaced() {
    let (disk, model, [_, new]) = with_a_leftover();
    let check = |disk: &SimDisk, what: &str| {
        let kv = opened(disk).unwrap();
        assert_eq!((kv.stats().rebuilt, kv.get(0, b"gone").unwrap()), (1, None), "{what}");
        super::faults::holds(&kv, &model);
    };
    let path = Path::new(VALUES).join(&new);
    let files = disk.list(Path::new(VALUES)).unwrap();
    let refused = |disk: &SimDisk, kind| {
        let error = opened(disk).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(&new), "{error}");
        assert_eq!(disk.list(Path::new(VALUES)).unwrap(), files, "it keeps its hands off");
        disk.kill();
    };
    // Whole, it counts; the sectors of its items are each refused, and what stands there twice harms nothing.
    check(&disk.copy(), "whole");
    let (mut named, mut harmless) = (0, 0);
    for sector in 0.. {
        let rotten = disk.copy();
        if !flip(&rotten, &path, sector * 512) {
            break;
        }
        rotten.kill();
        match opened(&rotten) {
            Err(_) => {
                rotten.kill();
                refused(&rotten, Kind::Corrupt);
                named += 1;
            }
            Ok(kv) => {
                assert_eq!(kv.get(0, b"gone").unwrap(), None, "{sector}");
                super::faults::holds(&kv, &model);
                harmless += 1;
            }
        }
    }
    assert!(named > 2 && harmless > 10, "{named} {harmless}");
    // So is one that was cut and cannot be opened at all: its first seal says that it was whole.
    let cut = disk.copy();
    cut.open(&path, Open { access: Access::Write, direct: false }).unwrap().set_size(4096).unwrap();
    cut.kill();
    refused(&cut, Kind::Corrupt);
    // And a block of the disk, in which the end of the index and what stands behind it are one; and sectors that the disk refuses.
    let blocks = (0..).map_while(|block| {
        let rotten = disk.copy();
        let flipped: Vec<bool> = (0..8).map(|sector| flip(&rotten, &path, block * 4096 + sector * 512)).collect();
        rotten.kill();
        flipped.contains(&true).then_some((rotten, Kind::Corrupt))
    });
    let sectors = (0..(named + harmless)).map(|sector| {
        let refusing = disk.copy();
        refusing.set_unreadable(&path, sector, true);
        (refusing, Kind::Unavailable)
    });
    let mut counts = [0, 0];
    for (disk, kind) in blocks.chain(sectors) {
        let Ok(kv) = opened(&disk) else {
            disk.kill();
            refused(&disk, kind);
            counts[0] += 1;
            continue;
        };
        assert_eq!(kv.get(0, b"gone").unwrap(), None);
        super::faults::holds(&kv, &model);
        counts[1] += 1;
    }
    assert!(counts[0] > 4 && counts[1] > 10, "{counts:?}");
    // A disk that refuses for a while: nothing is decided upon it.
    let refusing = disk.copy();
    refusing.set_unreadable(&path, 8, true);
    refused(&refusing, Kind::Unavailable);
    refusing.set_unreadable(&path, 8, false);
    check(&refusing, "read again");
}

#[test]
fn a_volume_that_was_not_opened_is_tried_again_and_nothing_is_lost_meanwhile() {
    let (house, model) = filled();
    assert!(house.compact_all() > 1);
    let disk = stopped(house);
    let names = disk.list(Path::new(VALUES)).unwrap();
    let mut struck = 0;
    for nth in 1..60 {
        let disk = disk.copy();
        disk.inject(Call::of(Operation::Open, nth), Fault::Io);
        let Ok(kv) = opened(&disk) else { continue };
        let unread: Vec<KvError> = model.keys().filter_map(|key| kv.get(0, key).err()).collect();
        struck += usize::from(!unread.is_empty());
        assert!(
            unread.iter().all(|error| error.kind() == Kind::Corrupt && error.to_string().contains("opening")),
            "{unread:?}"
        );
        // Some are compacted in vain before.
        let tried = if nth % 2 == 0 { 0 } else { overwrite(&kv, 4).len() };
        kv.tick();
        if nth % 2 == 0 {
            for (key, value) in &model {
                assert_eq!(kv.get(0, key).unwrap().as_ref(), Some(value), "open {nth}");
            }
        }
        let errors = overwrite(&kv, 12);
        assert!(errors.is_empty(), "open {nth}, {tried} failures before: {errors:?}");
        let left = disk.list(Path::new(VALUES)).unwrap();
        assert!(names.iter().all(|old| !left.contains(old)), "open {nth}: each is compacted: {left:?}");
    }
    assert!(struck > 3, "{struck} opens were those of volumes");
}
