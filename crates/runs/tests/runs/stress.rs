//! Readers in threads, while one writes and one steps: every look is whole, and never goes back.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use assent_runs::{AtOnce, Change, RunsError};
use assent_sim::{Rng, SimDisk};

use super::{open, settle, small};

const KEYS: u64 = 40;
const BATCHES: u64 = 1_500;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Each batch writes all keys, or erases all of them and writes the even ones.
fn erases(seq: u64) -> bool {
    seq.is_multiple_of(7)
}

#[test]
fn readers_see_whole_batches_while_others_write_and_step() {
    let disk = SimDisk::new();
    let (runs, _, accounts) = open(&disk, small()).unwrap();
    let done = AtomicBool::new(false);
    let looks = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (runs, done, looks) = (&runs, &done, &looks);
            scope.spawn(move || {
                let mut rng = Rng::new(reader);
                let mut newest = 0;
                let mut is_last = false;
                while !is_last {
                    is_last = done.load(Ordering::Acquire);
                    let view = runs.view();
                    let seq = view.seq();
                    assert!(seq >= newest, "{newest} was seen, then {seq}");
                    newest = seq;
                    if seq == 0 {
                        continue;
                    }
                    let expected = if erases(seq) { KEYS / 2 } else { KEYS };
                    let mut walk = view.range(Bound::Unbounded, Bound::Unbounded);
                    let mut count = 0;
                    while let Some(entry) = if rng.below(2) == 0 { walk.next() } else { walk.prev() }.unwrap() {
                        assert_eq!((entry.1.seq, entry.1.value), (seq, key(seq).to_vec()));
                        count += 1;
                    }
                    assert_eq!(count, expected, "as of {seq}");
                    let number = rng.below(KEYS);
                    let there = !erases(seq) || number.is_multiple_of(2);
                    let found = view.get(&key(number)).unwrap();
                    assert_eq!(found.map(|found| found.seq), there.then_some(seq), "key {number} as of {seq}");
                    // Without a view it is a place from then on.
                    if let Some(found) = runs.get(&key(number)).unwrap() {
                        assert!(found.seq >= seq, "{} after {seq}", found.seq);
                    }
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                if runs.step(&accounts, &AtOnce).unwrap().is_none() {
                    std::thread::yield_now();
                }
            }
        });
        for seq in 1..=BATCHES {
            let keys: Vec<_> = (0..KEYS).map(key).collect();
            let value = key(seq);
            let erase = erases(seq).then_some(Change::Erase { from: b"", to: None });
            let puts = keys.iter().step_by(if erases(seq) { 2 } else { 1 });
            let puts = puts.map(|key| Change::Put { key, value: &value });
            let changes: Vec<_> = erase.into_iter().chain(puts).collect();
            while let Err(error) = runs.apply(seq, &changes) {
                assert!(matches!(error, RunsError::Busy { .. }), "{error}");
                std::thread::yield_now();
            }
            super::close_if_full(&runs);
        }
        // On a busy machine all may be written before a reader has run: one look while others write, then the last one of each.
        while looks.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Release);
    });
    assert!(looks.load(Ordering::Relaxed) > 3);
    runs.rotate(runs.seq());
    settle(&runs, &accounts);
    assert_eq!(accounts.agree_with(&runs.facts()), Ok(()));
}
