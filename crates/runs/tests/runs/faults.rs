//! A disk that is full, that fails once, and a step that is stopped: each leaves the map as it was.

use std::sync::atomic::{AtomicU64, Ordering};

use assent_runs::{AtOnce, Change, Config, Go, Pace, RunsError, Step};
use assent_sim::{Call, Fault, Rng, SimDisk};
use assent_world::Disk;

use super::script::{Batch, Model};
use super::{Accounts, FOLDER, open, settle, small};

/// A map with something at every level and a memtable that waits; the same for the same seed.
fn built(seed: u64) -> (SimDisk, assent_runs::Runs, Accounts, Vec<Batch>) {
    let mut rng = Rng::new(seed);
    let disk = SimDisk::new();
    let (runs, _, accounts) = open(&disk, small()).unwrap();
    let mut log = Vec::new();
    for seq in 1..=rng.range(40..90) {
        let batch = Batch::roll(&mut rng, seq, 24);
        while let Err(error) = batch.apply(&runs) {
            assert!(matches!(error, RunsError::Busy { .. }), "{error}");
            runs.step(&accounts, &AtOnce).unwrap();
        }
        log.push(batch);
        if rng.below(4) == 0 {
            runs.step(&accounts, &AtOnce).unwrap();
        }
    }
    runs.rotate(runs.seq());
    (disk, runs, accounts, log)
}

fn run_files(disk: &SimDisk) -> Vec<String> {
    disk.list(FOLDER.as_ref()).unwrap().into_iter().filter(|name| name.ends_with(".run")).collect()
}

#[test]
fn any_call_of_a_step_may_fail_and_the_map_is_as_before_or_closed() {
    let (mut refused, mut closed) = (0, 0);
    for seed in 0..40 {
        for nth in 1.. {
            let fault = [Fault::Io, Fault::Full, Fault::Short][nth as usize % 3];
            let (disk, runs, accounts, log) = built(seed);
            // Flushes first; then what comes behind them.
            (0..seed % 5).for_each(|_| _ = runs.step(&accounts, &AtOnce).unwrap());
            let model = Model::of(&log);
            let (files, applied, facts) = (run_files(&disk), runs.applied(), runs.facts().levels);
            let before = disk.calls();
            disk.inject(Call::any(nth), fault);
            let stepped = runs.step(&accounts, &AtOnce);
            let is_past = disk.calls() - before < nth;
            if is_past {
                break;
            }
            match stepped {
                Ok(_) => {}
                Err(RunsError::Closed { .. }) => {
                    closed += 1;
                    drop(runs);
                    let (runs, opened, accounts) = open(&disk, small()).unwrap();
                    let batches = log.iter().filter(|batch| batch.seq <= opened.applied);
                    assert_eq!(Model::of(batches).compare(&runs.view()), Ok(()), "seed {seed} call {nth}");
                    assert_eq!(accounts.agree_with(&runs.facts()), Ok(()));
                    continue;
                }
                Err(error) => {
                    refused += 1;
                    assert!(matches!(error, RunsError::Disk { .. } | RunsError::Damaged { .. }), "{error}");
                    assert_eq!(run_files(&disk), files, "seed {seed} call {nth}: {error}");
                    assert_eq!((runs.applied(), runs.facts().levels), (applied, facts), "seed {seed} call {nth}");
                }
            }
            assert_eq!(model.compare(&runs.view()), Ok(()), "seed {seed} call {nth}");
            assert_eq!(accounts.agree_with(&runs.facts()), Ok(()), "seed {seed} call {nth}");
            settle(&runs, &accounts);
            assert_eq!(model.compare(&runs.view()), Ok(()), "seed {seed} call {nth}");
            assert_eq!(accounts.agree_with(&runs.facts()), Ok(()), "seed {seed} call {nth}");
        }
    }
    assert!(refused > 100 && closed > 10, "{refused} refused, {closed} closed");
}

#[test]
fn a_full_disk_stops_steps_and_not_the_map_and_room_lets_them_go_on() {
    let mut refused = 0;
    for seed in 0..40 {
        let (disk, runs, accounts, log) = built(seed);
        let model = Model::of(&log);
        disk.set_capacity(Some(disk.used_bytes()));
        let error = loop {
            match runs.step(&accounts, &AtOnce) {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        // What is left of a memtable may be nothing: that takes no room.
        if let Some(error) = error {
            refused += 1;
            assert!(matches!(error, RunsError::Disk { full: true, .. }), "{error}");
            assert_eq!(error.kind(), assent_kind::Kind::Full);
        }
        assert_eq!(model.compare(&runs.view()), Ok(()), "seed {seed}");
        assert_eq!(accounts.agree_with(&runs.facts()), Ok(()), "seed {seed}");
        // A reopen needs none either.
        drop(runs);
        let (runs, opened, accounts) = open(&disk, small()).unwrap();
        assert_eq!(opened.orphans_removed, 0, "seed {seed}");
        let before = Model::of(log.iter().filter(|batch| batch.seq <= opened.applied));
        assert_eq!(before.compare(&runs.view()), Ok(()), "seed {seed}");
        disk.set_capacity(None);
        for batch in log.iter().filter(|batch| batch.seq > opened.applied) {
            while batch.apply(&runs).is_err() {
                runs.step(&accounts, &AtOnce).unwrap();
            }
        }
        runs.rotate(runs.seq());
        settle(&runs, &accounts);
        assert_eq!(model.compare(&runs.view()), Ok(()), "seed {seed}");
        assert_eq!(accounts.agree_with(&runs.facts()), Ok(()), "seed {seed}");
    }
    assert!(refused > 20, "{refused}");
}

/// A map whose newest manifest no longer names runs that the older one names, and nothing else to do.
fn merged() -> (SimDisk, assent_runs::Runs, Accounts, u64) {
    let disk = SimDisk::new();
    let config = Config { run_bytes: 16 << 10, level1_bytes: 1 << 20, memory_bytes_max: 64 << 10, ..small() };
    let (runs, _, accounts) = open(&disk, config).unwrap();
    for seq in 1..=2 {
        let keys = (0..100_u8).map(|number| [number, b'k']).collect::<Vec<_>>();
        let puts: Vec<_> = keys.iter().map(|key| Change::Put { key, value: &[b'v'; 100] }).collect();
        runs.apply(seq, &puts).unwrap();
        runs.rotate(seq);
        assert!(matches!(runs.step(&accounts, &AtOnce), Ok(Some(Step::Flushed { .. }))));
    }
    assert!(matches!(runs.step(&accounts, &AtOnce), Ok(Some(Step::Merged { .. }))));
    assert_eq!((runs.facts().runs, runs.facts().runs_leaving, run_files(&disk).len()), (1, 2, 3));
    (disk, runs, accounts, 2)
}

#[test]
fn a_flush_on_a_full_disk_takes_the_room_of_runs_that_only_the_older_manifest_names() {
    for is_reopened in [false, true] {
        let (disk, mut runs, mut accounts, seq) = merged();
        if is_reopened {
            drop(runs);
            (runs, _, accounts) = open(&disk, small()).unwrap();
            assert_eq!(runs.facts().runs_leaving, 2);
        }
        runs.apply(seq + 1, &[Change::Put { key: b"new", value: &[b'n'; 4000] }]).unwrap();
        runs.rotate(seq + 1);
        disk.set_capacity(Some(disk.used_bytes()));
        assert!(matches!(runs.step(&accounts, &AtOnce), Ok(Some(Step::Flushed { .. }))));
        assert_eq!((runs.applied(), runs.replay_floor(), runs.facts().runs_leaving), (seq + 1, seq, 0));
        // Whichever manifest is believed, what it names is there.
        drop(runs);
        let (runs, opened, _) = open(&disk, small()).unwrap();
        assert_eq!((opened.applied, opened.orphans_removed, run_files(&disk).len()), (seq + 1, 0, 2));
        assert_eq!(runs.get(b"new").unwrap().unwrap().value.len(), 4000);
    }
}

#[test]
fn a_view_keeps_the_room_of_what_it_sees_and_a_full_disk_says_so() {
    let (disk, runs, accounts, seq) = merged();
    let view = runs.view();
    runs.apply(seq + 1, &[Change::Put { key: &[0, b'k'], value: &[b'n'; 4000] }]).unwrap();
    runs.rotate(seq + 1);
    // What goes is not what this view sees: it sees the merged run.
    disk.set_capacity(Some(disk.used_bytes()));
    assert!(matches!(runs.step(&accounts, &AtOnce), Ok(Some(Step::Flushed { .. }))));
    disk.set_capacity(Some(disk.used_bytes()));
    runs.apply(seq + 2, &[Change::Put { key: &[0, b'k'], value: &[b'm'; 4000] }]).unwrap();
    runs.rotate(seq + 2);
    // Nothing is left to give back.
    for _ in 0..2 {
        assert!(matches!(runs.step(&accounts, &AtOnce), Err(RunsError::Disk { full: true, .. })));
    }
    assert_eq!((runs.applied(), view.get(&[0, b'k']).unwrap().unwrap().value), (seq + 1, vec![b'v'; 100]));
}

#[test]
fn a_step_with_nothing_else_to_do_gives_back_what_only_the_older_manifest_names() {
    let (disk, runs, accounts, seq) = merged();
    let note = open(&disk, small()).unwrap().1.note;
    assert_eq!(runs.step(&accounts, &AtOnce), Ok(None));
    assert_eq!((runs.facts().runs_leaving, run_files(&disk).len(), runs.applied()), (0, 1, seq));
    let commits = runs.facts().commits;
    assert_eq!((runs.step(&accounts, &AtOnce), runs.facts().commits), (Ok(None), commits), "once");
    drop(runs);
    let (_, opened, _) = open(&disk, small()).unwrap();
    assert_eq!((opened.applied, opened.orphans_removed, opened.note), (seq, 0, note));
}

#[test]
fn any_call_of_an_open_may_fail_and_the_next_open_finds_all_of_it() {
    let mut refused = 0;
    for seed in 0..12 {
        let (disk, runs, accounts, log) = built(seed);
        (0..=seed % 6).for_each(|_| _ = runs.step(&accounts, &AtOnce).unwrap());
        let (applied, files) = (runs.applied(), run_files(&disk));
        drop(runs);
        for nth in 1.. {
            let before = disk.calls();
            disk.inject(Call::any(nth), Fault::Io);
            let error = open(&disk, small()).map(|_| ()).err();
            if disk.calls() - before < nth {
                break;
            }
            let error = error.unwrap_or_else(|| panic!("seed {seed} call {nth}: it was not told"));
            refused += 1;
            assert!(matches!(error, RunsError::Disk { .. }), "seed {seed} call {nth}: {error}");
            assert_eq!(run_files(&disk), files, "seed {seed} call {nth}: {error}");
            let (runs, opened, accounts) = open(&disk, small()).unwrap();
            assert_eq!((opened.applied, opened.manifest_torn), (applied, None), "seed {seed} call {nth}: {error}");
            let model = Model::of(log.iter().filter(|batch| batch.seq <= applied));
            assert_eq!(model.compare(&runs.view()), Ok(()), "seed {seed} call {nth}");
            assert_eq!(accounts.agree_with(&runs.facts()), Ok(()), "seed {seed} call {nth}");
        }
    }
    assert!(refused > 100, "{refused}");
}

/// Stops when it is asked so many times.
struct Stops {
    left: AtomicU64,
    asked: AtomicU64,
}

impl Pace for Stops {
    fn wrote(&self, _: u64) -> Go {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 { Go::Stop } else { Go::On }
    }
}

#[test]
fn a_step_that_is_stopped_anywhere_leaves_nothing() {
    let config = Config { level0_runs: 2, run_bytes: 600 << 10, ..Config::default() };
    let disk = SimDisk::new();
    let (runs, _, accounts) = open(&disk, config).unwrap();
    let files = || run_files(&disk);
    let value = vec![b'v'; 100 << 10];
    let mut seq = 0;
    let mut stopped = 0;
    for round in 0..4_u8 {
        for number in 0..12_u8 {
            seq += 1;
            runs.apply(seq, &[Change::Put { key: &[number, round % 2], value: &value }]).unwrap();
        }
        runs.rotate(seq);
        loop {
            let (before, applied, facts) = (files(), runs.applied(), runs.facts().levels);
            let mut done = None;
            for nth in 1.. {
                let pace = Stops { left: AtomicU64::new(nth), asked: AtomicU64::new(0) };
                match runs.step(&accounts, &pace).unwrap() {
                    Some(Step::Stopped) => {
                        stopped += 1;
                        assert_eq!((files(), runs.applied()), (before.clone(), applied), "round {round} stop {nth}");
                        assert_eq!(runs.facts().levels, facts);
                        assert_eq!(accounts.agree_with(&runs.facts()), Ok(()));
                    }
                    other => {
                        done = other;
                        break;
                    }
                }
            }
            if done.is_none() {
                break;
            }
        }
    }
    assert!(stopped > 12, "{stopped}");
    assert_eq!(runs.facts().levels.iter().map(|level| level.entries).sum::<u64>(), 24);
    assert_eq!(accounts.agree_with(&runs.facts()), Ok(()));
}

#[test]
fn what_memory_cannot_hold_is_refused_and_a_step_makes_room() {
    let (runs, _, accounts) = open(&SimDisk::new(), small()).unwrap();
    let put = |seq: u64| runs.apply(seq, &[Change::Put { key: &seq.to_be_bytes(), value: &[b'v'; 300] }]);
    let seq = (1..).find(|seq| put(*seq).is_err()).unwrap();
    let error = put(seq).unwrap_err();
    assert!(matches!(error, RunsError::Busy { limit: 8192, .. }), "{error}");
    assert!((15..25).contains(&seq), "{seq}");
    assert_eq!((runs.get(&seq.to_be_bytes()), runs.seq()), (Ok(None), seq - 1));
    runs.rotate(seq - 1);
    assert!(put(seq).is_err(), "what waits is held too");
    let debt = runs.debt();
    assert!(debt.immutables == 1 && debt.active_bytes == 0 && debt.immutable_bytes > 6000, "{debt:?}");
    assert!(matches!(runs.step(&accounts, &AtOnce), Ok(Some(Step::Flushed { .. }))));
    put(seq).unwrap();
    assert!(runs.get(&seq.to_be_bytes()).unwrap().is_some());
}
