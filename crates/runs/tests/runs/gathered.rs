//! Runs of level 0 that are little beside what they meet below are merged among themselves first.

use std::sync::atomic::Ordering;

use assent_runs::{AtOnce, Config, Step};
use assent_sim::{Rng, SimDisk};

use super::beside::Beside;
use super::script::{Batch, Model, Op};
use super::{open, settle, small};

fn config() -> Config {
    Config { level0_runs: 3, level1_bytes: 1 << 20, run_bytes: 8 << 10, memory_bytes_max: 1 << 20, ..small() }
}

/// Keys among those of the scripts, so many that level 1 is long.
fn base() -> Batch {
    let put = |number: u32| Op::Put(format!("{:02}-{number:04}", number % 30).into_bytes(), vec![b'v'; 100]);
    Batch { seq: 1, ops: (0..600).map(put).collect() }
}

#[test]
fn what_was_gathered_hides_and_is_hidden_as_before_whatever_was_flushed_meanwhile() {
    let (mut gathered, mut beside_others, mut down) = (0, 0, 0);
    for seed in 0..40 {
        let (disk, mut rng) = (SimDisk::new(), Rng::new(seed));
        let (runs, _, accounts) = open(&disk, config()).unwrap();
        accounts.gathers.store(true, Ordering::SeqCst);
        let mut log = vec![base()];
        log[0].apply(&runs).unwrap();
        runs.rotate(1);
        settle(&runs, &accounts);
        accounts.gathers.store(false, Ordering::SeqCst);
        settle(&runs, &accounts);
        runs.merge(&accounts, &AtOnce).unwrap();
        for _ in 0..40 {
            accounts.gathers.store(rng.below(8) > 0, Ordering::SeqCst);
            let mut write = |log: &mut Vec<Batch>| {
                let seq = log.last().unwrap().seq + 1;
                log.push(Batch::roll(&mut rng, seq, 24));
                let batch = log.last().unwrap();
                batch.apply(&runs).unwrap();
                runs.rotate(seq);
            };
            write(&mut log);
            while runs.flush(&accounts, &AtOnce).unwrap().is_some() {}
            let is_beside = log.len() % 3 == 0;
            if is_beside {
                write(&mut log);
            }
            let flush = || while runs.flush(&accounts, &AtOnce).unwrap().is_some() {};
            let beside = Beside::new(&accounts, if is_beside { 1 } else { u64::MAX }, flush);
            match runs.merge(&beside, &AtOnce).unwrap() {
                Some(Step::Merged { to: 0, .. }) => {
                    gathered += 1;
                    beside_others += u32::from(beside.is_done());
                }
                Some(Step::Merged { .. }) => down += 1,
                _ => {}
            }
            drop(beside);
            assert_eq!(Model::of(&log).compare(&runs.view()), Ok(()), "seed {seed}, {} batches", log.len());
            assert_eq!(accounts.agree_with(&runs.facts()), Ok(()), "seed {seed}");
        }
        while runs.flush(&accounts, &AtOnce).unwrap().is_some() {}
        let verified = runs.verify(&mut |error| panic!("seed {seed}: {error}"));
        assert_eq!(verified.damaged, 0);
        drop(runs);
        let (runs, opened, accounts) = open(&disk, config()).unwrap();
        assert_eq!(opened.applied, log.last().unwrap().seq);
        assert_eq!(Model::of(&log).compare(&runs.view()), Ok(()), "seed {seed}, opened again");
        settle(&runs, &accounts);
        assert_eq!(Model::of(&log).compare(&runs.view()), Ok(()), "seed {seed}, settled");
        assert_eq!(accounts.agree_with(&runs.facts()), Ok(()), "seed {seed}");
    }
    assert!(
        gathered > 60 && beside_others > 15 && down > 15,
        "{gathered} gathered, {beside_others} of them beside a flush, {down} went down"
    );
}

/// What may stay as it is until more has come was told as what merges would have to read now: for days, where nobody wrote.
#[test]
fn what_waits_for_more_is_no_debt() {
    let config = Config { level1_bytes: 40 << 10, ..config() };
    let (runs, _, accounts) = open(&SimDisk::new(), config).unwrap();
    accounts.gathers.store(true, Ordering::SeqCst);
    let flush = |seq: u64| {
        let put = |number: u64| Op::Put(format!("{:05}", 3 * number + seq).into_bytes(), vec![b'v'; 100]);
        Batch { seq, ops: (0..180).map(put).collect() }.apply(&runs).unwrap();
        runs.rotate(seq);
        while runs.flush(&accounts, &AtOnce).unwrap().is_some() {}
    };
    (1..=3).for_each(flush);
    assert!(runs.debt().merge_bytes > 0);
    while runs.merge(&accounts, &AtOnce).unwrap().is_some() {}
    let level1 = runs.facts().levels[1].bytes;
    assert!(level1 > 40 << 10, "{level1}");
    assert_eq!(runs.debt().merge_bytes, 0);
    (4..=5).for_each(flush);
    while runs.merge(&accounts, &AtOnce).unwrap().is_some() {}
    assert_eq!((runs.facts().levels[0].runs, runs.debt().merge_bytes), (2, 0));
}
