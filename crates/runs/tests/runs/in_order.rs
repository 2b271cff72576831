//! Many look-ups in the order of their keys: the same answers as one by one, for fewer reads.

use assent_runs::{Change, Config, Found, Newest, Runs};
use assent_sim::{Rng, SimDisk};

use super::{Accounts, open, settle};

/// A block of the index leads to many blocks of entries, and there are several.
const KEYS: u64 = 30_000;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Each second key in the files, each third of them written again, and some of those only in level 0 or in memory.
fn built(disk: &SimDisk) -> (Runs, Accounts) {
    let sizes = Config { block_bytes: 512, run_bytes: 128 << 10, level0_runs: 1, ..Config::default() };
    let config = Config { cache_bytes: 512 << 10, level1_bytes: 256 << 10, ..sizes };
    let (runs, _, accounts) = open(disk, config).unwrap();
    let mut seq = 0_u64;
    for round in 0..4_u64 {
        for number in (0..KEYS).step_by(2).filter(|number| round == 0 || number % 3 == 0 && number % 7 == round) {
            seq += 1;
            let value = seq.to_be_bytes().repeat(4);
            let change = match number % 11 {
                5 if round > 0 => Change::Delete { key: &key(number) },
                _ => Change::Put { key: &key(number), value: &value },
            };
            runs.apply(seq, &[change]).unwrap();
        }
        if round < 3 {
            runs.rotate(seq);
        }
        match round {
            0 => _ = settle(&runs, &accounts),
            _ => _ = runs.flush(&accounts, &assent_runs::AtOnce).unwrap(),
        }
    }
    let facts = runs.facts();
    assert!(facts.levels[0].runs == 2 && facts.levels[1].runs > 1 && facts.memtable_entries > 100, "{facts:?}");
    (runs, accounts)
}

#[test]
fn keys_in_any_order_become_what_they_are_one_by_one() {
    let (runs, _accounts) = built(&SimDisk::new());
    let view = runs.view();
    let mut rng = Rng::new(3);
    let ascending: Vec<u64> = (0..KEYS).collect();
    let descending = ascending.iter().rev().copied().collect();
    let sparse = (0..KEYS).step_by(997).collect();
    let anyhow = (0..KEYS).map(|_| rng.below(KEYS + 9)).collect();
    for numbers in [ascending, descending, sparse, anyhow] {
        for mut rows in [view.in_order(), view.in_order_ahead()] {
            for number in &numbers {
                let key = key(*number);
                let newest = |seq, value: Option<&[u8]>| Newest { seq, value: value.map(<[u8]>::to_vec) };
                let expected = runs.newest(&key, newest).unwrap();
                assert_eq!(rows.newest(&key, newest).unwrap(), expected, "{number}");
                assert_eq!(rows.last_written(&key), view.last_written(&key), "{number}");
                let value = expected.and_then(|Newest { seq, value }| Some(Found { seq, value: value? }));
                assert_eq!(view.get(&key).unwrap(), value, "{number}");
            }
        }
    }
}

#[test]
fn in_their_order_keys_that_are_near_each_other_share_what_is_read() {
    let disk = SimDisk::new();
    let (runs, _accounts) = built(&disk);
    let view = runs.view();
    let blocks = runs.facts().bytes / 512;
    let looks = |step: usize, rows: &mut assent_runs::InOrder| {
        let (pieces, calls) = (|| runs.facts().cache_hits + runs.facts().cache_misses, || disk.calls());
        let (pieces_before, calls_before) = (pieces(), calls());
        for number in (0..KEYS).step_by(step) {
            rows.newest(&key(number), |_, _| {}).unwrap();
        }
        (pieces() - pieces_before, calls() - calls_before)
    };
    // What each run holds is read by the first who asks.
    looks(1, &mut view.in_order());
    let (pieces, _) = looks(1, &mut view.in_order());
    assert!(pieces < blocks * 2 && pieces < KEYS / 4, "{pieces} pieces for {KEYS} keys in {blocks} blocks");
    let (_, calls) = looks(1, &mut view.in_order_ahead());
    assert!(calls < blocks / 16, "{calls} reads of {blocks} blocks");
    // Far from each other, each is read by itself.
    let bytes = runs.facts().cache_bytes;
    let (_, calls) = looks(1_499, &mut view.in_order_ahead());
    assert!(calls <= KEYS.div_ceil(1_499) * 2, "{calls} reads");
    assert_eq!(runs.facts().cache_bytes, bytes, "who reads past the cache leaves nothing there");
}

/// Of short runs all is read ahead at once, and one after the other is asked: what was read of one is nothing of the next.
#[test]
fn what_was_read_ahead_of_a_run_is_not_taken_for_another_one_s() {
    let sizes = Config { block_bytes: 256, run_bytes: 4 << 10, level0_runs: 1, ..Config::default() };
    // Whatever is held of a run, of blocks there is no cache.
    let config = Config { cache_bytes: 1 << 10, level1_bytes: 64 << 10, ..sizes };
    let (runs, _, accounts) = open(&SimDisk::new(), config).unwrap();
    let value = |number: u64| number.to_be_bytes().repeat(5);
    for number in 0..2_000 {
        runs.apply(number + 1, &[Change::Put { key: &key(number), value: &value(number) }]).unwrap();
    }
    runs.rotate(runs.seq());
    settle(&runs, &accounts);
    assert!(runs.facts().runs > 10, "{:?}", runs.facts());
    let mut rng = Rng::new(5);
    let ascending: Vec<u64> = (0..2_000).collect();
    let descending = ascending.iter().rev().copied().collect();
    let here_and_there =
        (0..2_000).map(|number| if number % 2 == 0 { number / 2 } else { 1_000 + number / 2 }).collect();
    let anyhow = (0..4_000).map(|_| rng.below(2_000)).collect();
    for numbers in [ascending, descending, here_and_there, anyhow] {
        let mut rows = runs.view().in_order_ahead();
        for number in numbers {
            let found = rows.newest(&key(number), |seq, found| (seq, found.map(<[u8]>::to_vec)));
            assert_eq!(found, Ok(Some((number + 1, Some(value(number))))), "{number}");
        }
    }
}
