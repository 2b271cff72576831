//! Values move into volumes, the journal gives its room back, and nobody sees a difference.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use assent_journal::{Journal, Log};
use assent_kv::{Config, Durability, Kv, Op, Snapshot};
use assent_runs::AtOnce;
use assent_sim::{SimClock, SimDice, SimDisk};
use assent_world::Disk;
use assent_xa::Past;

use super::xid;

pub const SEGMENT_BYTES: u64 = 4 * 4096;

pub fn config() -> Config {
    Config {
        space_amplification_max_percent: 110,
        space_room_bytes_min: 0,
        volume_bytes: 24 << 10,
        ..Config::default()
    }
}

/// A store over a journal of small segments that are kept until they are released.
pub struct House {
    pub disk: SimDisk,
    pub log: Arc<Journal>,
    pub kv: Arc<Kv>,
}

pub fn journal(disk: &SimDisk, salt: u64, log_size: u64) -> Arc<Journal> {
    let config = assent_journal::Config {
        log_size,
        max_buffer_log_size: 2 * 4096,
        kept_until_released: true,
        ..Default::default()
    };
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(salt)));
    Journal::open(Arc::new(disk.clone()), clock, dice, Path::new("log"), config).unwrap().0
}

pub fn house(disk: &SimDisk, salt: u64) -> House {
    house_over(disk, journal(disk, salt, SEGMENT_BYTES + 4096), config())
}

pub fn house_over(disk: &SimDisk, log: Arc<Journal>, config: Config) -> House {
    let shared: Arc<dyn Log> = Arc::<Journal>::clone(&log);
    let kv = Kv::open(shared, Arc::new(disk.clone()), Arc::new(SimClock::new()), Path::new("kv"), config).unwrap();
    House { disk: disk.clone(), log, kv: Arc::new(kv) }
}

impl House {
    pub fn again(self, salt: u64) -> House {
        let House { disk, log, kv } = self;
        drop((log, kv));
        disk.kill();
        house(&disk, salt)
    }

    /// The ledger is lost: what is left are journal and volumes.
    pub fn without_ledger(self, salt: u64) -> House {
        let disk = self.disk.clone();
        self.without_ledger_on(disk, salt)
    }

    /// The same, of this disk, and who read from the other one is gone.
    pub fn without_ledger_on(self, disk: SimDisk, salt: u64) -> House {
        drop((self.log, self.kv));
        disk.kill();
        for name in disk.list(Path::new("kv")).unwrap() {
            disk.unlink(&Path::new("kv").join(name)).unwrap();
        }
        house(&disk, salt)
    }

    pub fn compact_all(&self) -> u64 {
        let mut done = 0;
        while self.kv.compact_once(&AtOnce).unwrap() {
            done += 1;
        }
        done
    }

    pub fn files(&self, folder: &str, ending: &str) -> usize {
        let names = self.disk.list(Path::new(folder)).unwrap_or_default();
        names.iter().filter(|name| name.ends_with(ending)).count()
    }
}

/// Merges and compacts until there is nothing to do; a turn has each once.
pub fn merge_all(kv: &Kv) {
    while kv.work(&AtOnce) {}
}

pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn rows(kv: &Kv) -> Map {
    kv.scan(0, Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap().into_iter().collect()
}

#[test]
fn what_is_overwritten_gives_its_room_back_and_what_lives_is_read_from_volumes() {
    let house = house(&SimDisk::new(), 1);
    let mut model = Map::new();
    for round in 0..40_u64 {
        for key in 0..10_u64 {
            let value = (round * 100 + key).to_le_bytes().repeat(50);
            // Some keys are written once.
            let key = if key < 2 { round * 1000 + key } else { key };
            house.kv.put(0, &key.to_be_bytes(), &value, Durability::Durable).unwrap();
            model.insert(key.to_be_bytes().to_vec(), value);
        }
        if round % 5 == 4 {
            house.kv.checkpoint().unwrap();
        }
    }
    let before = house.kv.stats();
    assert_eq!((before.volumes, before.compactions, before.compacts), (0, 0, 1));
    let done = house.compact_all();
    let after = house.kv.stats();
    assert!(done > 0 && after.compactions == done && after.volumes > 0, "{after:?}");
    // Each volume has three blocks of its own, which is much where volumes are small.
    assert!(after.value_bytes_on_disk * 10 < before.value_bytes_on_disk * 7, "{before:?}\n{after:?}");
    assert!(house.log.oldest() > assent_ids::Lsn(0), "the journal was released");
    assert!(rows(&house.kv) == model);
    assert_eq!(after.broken_accounts, 0);
    let mut told = Vec::new();
    let verified = house.kv.verify(&mut |error| told.push(error.to_string()));
    assert_eq!((verified.damaged, told, verified.values), (0, vec![], model.len() as u64));
    assert!(verified.items > 0);
    let house = house.again(2);
    assert_eq!(
        (rows(&house.kv), house.kv.stats().rebuilt, house.kv.stats().volumes),
        (model.clone(), 0, after.volumes)
    );
    let house = house.without_ledger(3);
    let stats = house.kv.stats();
    assert!(rows(&house.kv) == model);
    assert_eq!((stats.rebuilt, stats.volumes, stats.keys), (1, after.volumes, model.len() as u64));
    assert_eq!((stats.live_bytes, stats.value_bytes_on_disk), {
        // What was only in memory is in runs now.
        house.kv.checkpoint().unwrap();
        (house.kv.stats().live_bytes, house.kv.stats().value_bytes_on_disk)
    });
}

/// Two thousand values of 64 bytes take more than a quarter of the cache, and the ledger less than its part.
#[test]
fn small_values_are_kept_where_the_ledger_leaves_room() {
    let disk = SimDisk::new();
    let config = Config { cache_bytes: 1 << 20, ..Config::default() };
    let House { kv, .. } = house_over(&disk, journal(&disk, 1, 1 << 20), config);
    let keys = || (0..2_000_u64).map(u64::to_be_bytes);
    let writes: Vec<[u8; 8]> = keys().collect();
    for part in writes.chunks(100) {
        let ops: Vec<Op<'_>> = part.iter().map(|key| Op::put(0, key, &[7; 64])).collect();
        kv.batch(&ops, Durability::Durable).unwrap();
    }
    kv.checkpoint().unwrap();
    kv.tick();
    let read_all = || {
        let before = disk.calls();
        assert!(keys().all(|key| kv.get(0, &key).unwrap() == Some(vec![7; 64])));
        disk.calls() - before
    };
    assert!(read_all() >= 2_000);
    let again = read_all();
    assert!(again < 100, "{again} calls of the disk for what was just read");
}

#[test]
fn a_small_value_stays_with_its_row_through_a_flush_and_goes_with_the_next_write() {
    let disk = SimDisk::new();
    let House { kv, .. } = house_over(&disk, journal(&disk, 1, 1 << 20), Config::default());
    let long = vec![1; 4 << 10];
    let put = |key: &[u8], value: &[u8]| kv.put(0, key, value, Durability::Durable).unwrap();
    let calls = |of: &dyn Fn()| {
        let before = disk.calls();
        of();
        disk.calls() - before
    };
    put(b"small", b"first");
    put(b"long", &long);
    put(b"longer", &[2; (4 << 10) + 1]);
    put(b"empty", b"");
    let read = |small: &[u8]| {
        assert_eq!(kv.get(0, b"small").unwrap().as_deref(), Some(small));
        assert_eq!(kv.get(0, b"long").unwrap().as_ref(), Some(&long));
        assert_eq!(kv.entry(0, b"small").unwrap().map(|found| found.value).as_deref(), Some(small));
        assert_eq!(kv.snapshot().get(0, b"small").unwrap().as_deref(), Some(small));
    };
    assert_eq!(calls(&|| assert_eq!(kv.get(0, b"empty").unwrap(), Some(Vec::new()))), 0, "its row says all of it");
    assert!(calls(&|| read(b"first")) > 0);
    assert_eq!(calls(&|| read(b"first")), 0, "of rows in memory");
    let before = kv.snapshot();
    kv.checkpoint().unwrap();
    assert_eq!(calls(&|| read(b"first")), 0, "a flush brought nothing newer");
    let longer = || assert_eq!(kv.get(0, b"longer").unwrap().map(|value| value.len()), Some((4 << 10) + 1));
    longer();
    assert!(calls(&longer) > 0, "one byte beyond");
    put(b"small", b"second");
    for is_flushed in [false, true] {
        if is_flushed {
            kv.checkpoint().unwrap();
        }
        read(b"second");
        assert_eq!(before.get(0, b"small").unwrap().as_deref(), Some(&b"first"[..]));
        assert_eq!(calls(&|| read(b"second")), 0);
    }
    kv.erase(0, b"", None, Durability::Durable).unwrap();
    assert_eq!((kv.get(0, b"small").unwrap(), kv.entry(0, b"long").unwrap()), (None, None));
}

#[test]
fn what_is_dead_within_the_least_room_is_no_debt_and_is_not_compacted() {
    for (space_room_bytes_min, is_compacted) in [(0, true), (1 << 20, false)] {
        let disk = SimDisk::new();
        let log = journal(&disk, 1, SEGMENT_BYTES + 4096);
        let house = house_over(&disk, log, Config { space_room_bytes_min, ..config() });
        for round in 0..5_u64 {
            for key in 0..60_u64 {
                house.kv.put(0, &key.to_be_bytes(), &round.to_le_bytes().repeat(200), Durability::Durable).unwrap();
            }
            house.kv.checkpoint().unwrap();
        }
        let before = house.kv.stats();
        assert!(before.value_bytes_on_disk > 4 * 60 * 1600, "{before:?}");
        assert_eq!((before.value_debt_bytes > 0, house.compact_all() > 0), (is_compacted, is_compacted));
    }
}

/// What a merge has not met yet is superseded all the same: a compaction need not wait for it.
#[test]
fn what_a_flush_supersedes_is_known_to_be_dead_before_any_merge() {
    let house = house(&SimDisk::new(), 1);
    for round in 0..3_u64 {
        for key in 0..60_u64 {
            house.kv.put(0, &key.to_be_bytes(), &round.to_le_bytes().repeat(200), Durability::Durable).unwrap();
        }
        house.kv.checkpoint().unwrap();
    }
    let before = house.kv.stats();
    // The rows of all three rounds are in files that nobody has merged.
    assert_eq!((before.runs, before.live_bytes > 3 * 60 * 1600, before.compactions), (3, true, 0));
    // A third of it lives; what no file has yet does not count.
    assert!((300..330).contains(&before.space_amplification_percent), "{before:?}");
    house.kv.put(2, b"", &[1; 9000], Durability::Durable).unwrap();
    assert_eq!(house.kv.stats().space_amplification_percent, before.space_amplification_percent);
    house.kv.delete(2, b"", Durability::Durable).unwrap();
    assert!(before.value_debt_bytes > 60 * 1600, "{before:?}");
    let done = house.compact_all();
    let after = house.kv.stats();
    assert!(done > 0 && after.runs == 3, "{after:?}");
    // What was left out is dead in no account; it cannot be more than all.
    assert!((100..200).contains(&after.space_amplification_percent), "{after:?}");
    assert!(after.value_bytes_on_disk < before.value_bytes_on_disk - 60 * 1600, "{before:?}\n{after:?}");
    // Once a merge has met them, the accounts say the same.
    merge_all(&house.kv);
    for _ in 0..3 {
        house.kv.put(1, b"", b"", Durability::Durable).unwrap();
        house.kv.checkpoint().unwrap();
    }
    merge_all(&house.kv);
    let merged = house.kv.stats();
    assert_eq!((merged.broken_accounts, merged.runs), (0, 1), "{merged:?}");
    let house = house.again(2);
    assert_eq!(rows(&house.kv).len(), 60);
}

#[test]
fn a_snapshot_reads_what_was_compacted_away_since() {
    let house = house(&SimDisk::new(), 1);
    let write = |word: u64| {
        for key in 0..60_u8 {
            house.kv.put(0, &[key], &(word + u64::from(key)).to_le_bytes().repeat(60), Durability::Durable).unwrap();
        }
        house.kv.checkpoint().unwrap();
        // What an open may go back to is not compacted: one more, and it is this one.
        for _ in 0..4 {
            house.kv.put(1, b"", b"", Durability::Durable).unwrap();
            house.kv.checkpoint().unwrap();
        }
        // What is superseded is counted when it leaves the ledger's files, by a merge.
        merge_all(&house.kv);
    };
    write(1000);
    let (early, oldest) = (house.kv.snapshot(), house.log.oldest());
    write(2000);
    let (middle, compactions) = (house.kv.snapshot(), house.kv.stats().compactions);
    write(3000);
    write(4000);
    assert!(house.kv.stats().compactions > compactions);
    let read = |snapshot: &Snapshot, word: u64| {
        for key in 0..60_u8 {
            let expected = (word + u64::from(key)).to_le_bytes().repeat(60);
            assert_eq!(snapshot.get(0, &[key]).unwrap(), Some(expected), "{word} {key}");
        }
    };
    read(&early, 1000);
    read(&middle, 2000);
    assert_eq!(house.log.oldest(), oldest, "it reads the journal from there on");
    let held = house.files("kv-values", ".values");
    drop(early);
    house.kv.compact_once(&AtOnce).unwrap();
    assert!(house.log.oldest() > oldest, "nobody does any more");
    read(&middle, 2000);
    drop(middle);
    house.compact_all();
    let left = house.files("kv-values", ".values");
    assert!(left < held && left as u64 == house.kv.stats().volumes, "{left} of {held}");
    read(&house.kv.snapshot(), 4000);
}

#[test]
fn what_was_deleted_stays_so_without_the_ledger_whatever_old_files_a_reader_keeps() {
    let house = house(&SimDisk::new(), 1);
    for key in 0..60_u8 {
        house.kv.put(0, &[key], &[key; 400], Durability::Durable).unwrap();
    }
    // What is dead beside them, and moves the journal on.
    let pass = |rounds: u64| {
        for round in 0..rounds {
            for _ in 0..4 {
                house.kv.put(1, b"", &round.to_le_bytes().repeat(60), Durability::Durable).unwrap();
            }
            house.kv.checkpoint().unwrap();
        }
        merge_all(&house.kv);
    };
    pass(30);
    let (reader, held) = (house.kv.snapshot(), house.files("kv-values", ".values"));
    assert!(held > 0);
    for key in 0..60_u8 {
        house.kv.delete(0, &[key], Durability::Durable).unwrap();
    }
    for salt in 2..20 {
        pass(4);
        let copy = house.disk.copy();
        copy.kill();
        for name in copy.list(Path::new("kv")).unwrap() {
            copy.unlink(&Path::new("kv").join(name)).unwrap();
        }
        let lost = super::compactions::house(&copy, salt);
        assert_eq!((rows(&lost.kv), lost.kv.stats().rebuilt), (Map::new(), 1), "{salt}");
    }
    assert_eq!(reader.get(0, &[7]).unwrap(), Some(vec![7; 400]), "the reader has it still");
    assert_eq!((house.kv.stats().compactions_failed, house.kv.stats().broken_accounts), (0, 0));
    drop(reader);
    // Of what had nothing left the places are joined: they do not grow for ever.
    pass(40);
    house.compact_all();
    let left = house.files("kv-values", ".values");
    assert!(left as u64 == house.kv.stats().volumes && left <= 10, "{left}");
}

/// Segments of the store were four times as long by default: its cells stay as they were made, and several segments lie in one.
#[test]
fn a_store_whose_segments_were_longer_goes_on_with_shorter_ones() {
    let disk = SimDisk::new();
    let mut model = Map::new();
    let mut write = |kv: &Kv, rounds: std::ops::Range<u64>| {
        for round in rounds {
            for key in 0..10_u64 {
                let value = (round * 100 + key).to_le_bytes().repeat(50);
                kv.put(0, &key.to_be_bytes(), &value, Durability::Durable).unwrap();
                model.insert(key.to_be_bytes().to_vec(), value);
            }
            kv.checkpoint().unwrap();
        }
        model.clone()
    };
    let longer = house_over(&disk, journal(&disk, 1, 4 * SEGMENT_BYTES + 4096), config());
    longer.log.maintain();
    write(&longer.kv, 0..40);
    let from = longer.log.end().0;
    assert!(from > 8 * SEGMENT_BYTES);
    let house = longer.again(2);
    let wrote = write(&house.kv, 40..80);
    assert!(house.log.end().0 > from + 8 * SEGMENT_BYTES);
    assert!(house.compact_all() > 0);
    assert!(house.log.oldest().0 > from, "what was written to longer segments is given back");
    let kept = house.log.end().0 - house.log.oldest().0;
    assert!(kept <= 8 * SEGMENT_BYTES, "of the journal: {kept}");
    assert!(rows(&house.kv) == wrote);
    let house = house.again(3);
    assert!(rows(&house.kv) == wrote);
    let house = house.without_ledger(4);
    assert!(rows(&house.kv) == wrote && house.kv.stats().rebuilt == 1);
    let verified = house.kv.verify(&mut |error| panic!("{error}"));
    assert_eq!((verified.damaged, verified.values), (0, 10));
}

#[test]
fn it_is_built_anew_where_the_journal_begins_within_a_cell_and_nothing_was_left_before() {
    let first = house(&SimDisk::new(), 1);
    first.kv.put(0, b"k", &[1; 1600], Durability::Durable).unwrap();
    let disk = first.disk.clone();
    drop((first.log, first.kv));
    disk.kill();
    // Cells never change, but from here on stretches are longer, and end within them.
    let open = |disk: &SimDisk, salt| house_over(disk, journal(disk, salt, 7 * 4096), config());
    let house = open(&disk, 2);
    house.kv.start(&xid(1)).unwrap();
    house.kv.branch_put(&xid(1), 0, b"branch", &[2; 400]).unwrap();
    house.kv.end(&xid(1), true).unwrap();
    house.kv.wait(house.kv.prepare_begin(&xid(1)).unwrap().pending).unwrap();
    house.kv.delete(0, b"k", Durability::Durable).unwrap();
    let (mut within, mut rebuilt) = (0, 0);
    for round in 0..40_u64 {
        for _ in 0..4 {
            house.kv.put(1, b"", &round.to_le_bytes().repeat(60), Durability::Durable).unwrap();
        }
        if round == 3 {
            house.kv.wait(house.kv.commit_begin(&xid(1)).unwrap()).unwrap();
        }
        if round == 6 {
            house.kv.delete(0, b"branch", Durability::Durable).unwrap();
        }
        house.kv.checkpoint().unwrap();
        merge_all(&house.kv);
        house.compact_all();
        within += u64::from(!house.log.oldest().0.is_multiple_of(SEGMENT_BYTES));
        let copy = house.disk.copy();
        copy.kill();
        for name in copy.list(Path::new("kv")).unwrap() {
            copy.unlink(&Path::new("kv").join(name)).unwrap();
        }
        let lost = open(&copy, 3 + round);
        rebuilt += lost.kv.stats().rebuilt;
        assert_eq!(rows(&lost.kv), rows(&house.kv), "{round}");
        assert_eq!(lost.kv.get(1, b"").unwrap(), Some(round.to_le_bytes().repeat(60)));
    }
    assert!(within > 3 && rebuilt > 10 && rows(&house.kv).is_empty(), "{within} {rebuilt}");
}

#[test]
fn what_became_of_a_branch_is_known_without_the_ledger_though_its_outcome_was_compacted() {
    const BRANCHES: u64 = 12;
    const MOST: u64 = 8;
    let limits = Config { finished_max: 8, ..config() };
    let over = |disk: &SimDisk, salt| house_over(disk, journal(disk, salt, SEGMENT_BYTES + 4096), limits);
    let house = over(&SimDisk::new(), 1);
    let is_rolled_back = |branch: u64| branch.is_multiple_of(3);
    for branch in 0..BRANCHES {
        let own = xid(branch);
        house.kv.start(&own).unwrap();
        house.kv.branch_put(&own, 1, &branch.to_be_bytes(), b"decided").unwrap();
        house.kv.end(&own, true).unwrap();
        house.kv.wait(house.kv.prepare_begin(&own).unwrap().pending).unwrap();
        let outcome = if is_rolled_back(branch) { house.kv.rollback_begin(&own) } else { house.kv.commit_begin(&own) };
        house.kv.wait(outcome.unwrap()).unwrap();
    }
    let last = house.kv.stats().published;
    for round in 0..40_u64 {
        for key in 0..8_u64 {
            house.kv.put(0, &key.to_be_bytes(), &round.to_le_bytes().repeat(60), Durability::Durable).unwrap();
        }
        house.kv.checkpoint().unwrap();
        merge_all(&house.kv);
    }
    assert!(house.log.oldest() > last, "the journal has none of them any more");
    // What a coordinator asks by name alone, of the last ones; of those before nobody remembers anything.
    let known = |kv: &Kv| -> Vec<_> { (0..BRANCHES).map(|branch| kv.inquire(&xid(branch), &[])).collect() };
    let before = known(&house.kv);
    for branch in BRANCHES - MOST..BRANCHES {
        let expected = if is_rolled_back(branch) { Past::RolledBack } else { Past::Committed };
        assert_eq!(before[usize::try_from(branch).unwrap()], expected, "branch {branch}");
    }
    let disk = house.disk.clone();
    drop(house);
    // Twice: what a rebuild has found, the next compaction keeps.
    for salt in 2..4 {
        disk.kill();
        for name in disk.list(Path::new("kv")).unwrap() {
            disk.unlink(&Path::new("kv").join(name)).unwrap();
        }
        let house = over(&disk, salt);
        assert_eq!((house.kv.stats().rebuilt, house.kv.stats().finished), (1, MOST));
        assert_eq!(known(&house.kv), before);
        for round in 0..20_u64 {
            for key in 0..8_u64 {
                house.kv.put(0, &key.to_be_bytes(), &round.to_le_bytes().repeat(60), Durability::Durable).unwrap();
            }
            house.kv.checkpoint().unwrap();
            merge_all(&house.kv);
        }
        assert_eq!(known(&house.kv), before);
    }
}

/// A compaction looked each value up, small ones too, which is dearer than all else that is done to such a one: that most of them are dead merges
/// had found out already.
#[test]
fn of_small_values_that_merges_have_met_the_ledger_is_not_asked() {
    // No cache has room for a window: each is asked for by itself.
    let (asked, asked_anew) = looks_of_compactions(16 << 10);
    assert!(asked * 3 < asked_anew && asked_anew > 1_500, "{asked}, {asked_anew}");
}

/// And of those that are asked for, several stand in a block of the ledger.
#[test]
fn small_values_are_asked_for_together() {
    let (_, asked_anew) = looks_of_compactions(config().cache_bytes);
    assert!(asked_anew < 100, "{asked_anew}");
}

/// Pieces of the ledger's files that compactions of 2,400 values looked at; and where the same was opened anew: of all of them is asked.
fn looks_of_compactions(cache_bytes: u64) -> (u64, u64) {
    let config = Config { space_room_bytes_min: 1 << 30, cache_bytes, ..config() };
    let disk = SimDisk::new();
    let house = house_over(&disk, journal(&disk, 1, SEGMENT_BYTES + 4096), config);
    for round in 0..12_u64 {
        for key in 0..200_u64 {
            let (key, value) = (key.to_be_bytes(), (round * 1000 + key).to_le_bytes().repeat(8));
            // Some expire, one day.
            let op = Op::put(0, &key, &value).expiring(if key[7] % 16 == 3 { u64::MAX } else { 0 });
            house.kv.batch(&[op], Durability::Durable).unwrap();
        }
        house.kv.checkpoint().unwrap();
    }
    // No room is worth a compaction yet.
    merge_all(&house.kv);
    let compacted = |house: &House| {
        let looks = || {
            let (facts, _) = house.kv.ledger_facts();
            facts.cache_hits + facts.cache_misses
        };
        // Behind an open it is not known what the older manifest asks for.
        for number in 0..2_u8 {
            house.kv.put(0, &[number], b"one more", Durability::Durable).unwrap();
            house.kv.checkpoint().unwrap();
        }
        let (shown, from) = (rows(&house.kv), looks());
        while house.kv.compact_asked(&AtOnce).unwrap() {}
        let asked = looks() - from;
        assert!(rows(&house.kv) == shown && shown.len() == 202);
        assert_eq!(house.kv.stats().broken_accounts, 0);
        (asked, house.kv.stats().reclaimed_bytes)
    };
    // The same, opened anew: nothing is known, and all of it is asked for.
    let copy = disk.copy();
    copy.kill();
    let (asked, reclaimed) = compacted(&house);
    drop(house);
    let anew = house_over(&copy, journal(&copy, 2, SEGMENT_BYTES + 4096), config);
    let (asked_anew, reclaimed_anew) = compacted(&anew);
    println!("{asked} looks, {reclaimed} bytes given back; opened anew {asked_anew} and {reclaimed_anew}");
    assert_eq!(reclaimed, reclaimed_anew);
    (asked, asked_anew)
}
