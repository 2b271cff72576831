//! A map and a plain sorted map, side by side, through everything that may happen but a crash.

use std::ops::Bound;

use assent_runs::{AtOnce, RunsError, View};
use assent_sim::{Rng, SimDisk};

use super::script::{Batch, Model, Op};
use super::{Accounts, open, small};

struct Pair {
    disk: SimDisk,
    runs: assent_runs::Runs,
    accounts: Accounts,
    /// The owner's log.
    log: Vec<Batch>,
    model: Model,
    views: Vec<(View, Model)>,
    seq: u64,
}

impl Pair {
    fn new() -> Self {
        let disk = SimDisk::new();
        let (runs, _, accounts) = open(&disk, small()).unwrap();
        Self { disk, runs, accounts, log: Vec::new(), model: Model::default(), views: Vec::new(), seq: 0 }
    }

    fn write(&mut self, rng: &mut Rng) {
        let seq = self.seq + rng.range(1..4);
        self.take(Batch::roll(rng, seq, 24));
    }

    /// All that there is.
    fn erase(&mut self) {
        self.take(Batch { seq: self.seq + 1, ops: vec![Op::Erase(Vec::new(), None)] });
    }

    fn take(&mut self, batch: Batch) {
        match batch.apply(&self.runs) {
            Ok(()) => {
                self.seq = batch.seq;
                self.model.take(&batch);
                self.log.push(batch);
            }
            Err(RunsError::Busy { .. }) => _ = self.runs.step(&self.accounts, &AtOnce).unwrap(),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(self.runs.seq(), self.seq);
    }

    fn reopen(&mut self) {
        self.views.clear();
        let sums = self.accounts.sums();
        let (runs, opened, accounts) = open(&self.disk, small()).unwrap();
        assert_eq!(accounts.sums(), sums, "the note is as it was committed");
        assert_eq!(opened.orphans_removed, 0, "steps that ended leave nothing behind");
        let (before, after): (Vec<_>, Vec<_>) = self.log.iter().partition(|batch| batch.seq <= opened.applied);
        assert_eq!(Model::of(before).compare(&runs.view()), Ok(()), "at {}", opened.applied);
        (self.runs, self.accounts) = (runs, accounts);
        for batch in after {
            while let Err(error) = batch.apply(&self.runs) {
                assert!(matches!(error, RunsError::Busy { .. }), "{error}");
                self.runs.step(&self.accounts, &AtOnce).unwrap();
            }
        }
        self.seq = self.seq.max(opened.applied);
    }

    fn check(&self) {
        assert_eq!(self.model.compare(&self.runs.view()), Ok(()));
        for (view, model) in &self.views {
            assert_eq!(model.compare(view), Ok(()), "a view of {}", view.seq());
        }
        assert_eq!(self.accounts.agree_with(&self.runs.facts()), Ok(()));
        assert!(self.runs.replay_floor() <= self.runs.applied());
    }

    /// A part of the keys, from both sides and with every kind of bound.
    fn check_part(&self, rng: &mut Rng) {
        let view = self.runs.view();
        let mut bound = |wild: bool| {
            let key = format!("{:02}", rng.below(26)).into_bytes();
            match rng.below(3) {
                0 if wild => Bound::Unbounded,
                1 => Bound::Included(key),
                _ => Bound::Excluded(key),
            }
        };
        let (from, to) = (bound(true), bound(true));
        let borrow = |bound: &Bound<Vec<u8>>| bound.clone();
        let (a, b) = (borrow(&from), borrow(&to));
        let mut walk = view.range(a.as_ref().map(Vec::as_slice), b.as_ref().map(Vec::as_slice));
        let mut onwards = Vec::new();
        while let Some(entry) = walk.next().unwrap() {
            onwards.push((entry.0, entry.1.seq));
        }
        let mut walk = view.range(a.as_ref().map(Vec::as_slice), b.as_ref().map(Vec::as_slice));
        let mut backwards = Vec::new();
        while let Some(entry) = walk.prev().unwrap() {
            backwards.push((entry.0, entry.1.seq));
        }
        backwards.reverse();
        let inside = |key: &Vec<u8>| {
            (match &from {
                Bound::Unbounded => true,
                Bound::Included(from) => key >= from,
                Bound::Excluded(from) => key > from,
            }) && (match &to {
                Bound::Unbounded => true,
                Bound::Included(to) => key <= to,
                Bound::Excluded(to) => key < to,
            })
        };
        let all = super::script::walked(&view).unwrap();
        let expected: Vec<_> =
            all.iter().filter(|(key, _)| inside(key)).map(|(key, (seq, _))| (key.clone(), *seq)).collect();
        assert_eq!((&onwards, &backwards), (&expected, &expected), "{from:?} {to:?}");
    }
}

#[test]
fn whatever_is_done_the_map_its_views_and_its_note_are_those_of_the_model() {
    let (mut merges, mut drops, mut moves) = (0, 0, 0);
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::new();
        for _ in 0..rng.range(20..160) {
            match rng.below(20) {
                0 => pair.runs.rotate(pair.seq),
                1..=4 => match pair.runs.step(&pair.accounts, &AtOnce).unwrap() {
                    Some(assent_runs::Step::Merged { .. }) => merges += 1,
                    Some(assent_runs::Step::Dropped { .. }) => drops += 1,
                    Some(assent_runs::Step::Moved { .. }) => moves += 1,
                    _ => {}
                },
                5 => pair.views.push((pair.runs.view(), pair.model.clone())),
                6 if !pair.views.is_empty() => drop(pair.views.swap_remove(rng.index(pair.views.len()))),
                7 => pair.reopen(),
                8 => pair.check(),
                9 => pair.check_part(&mut rng),
                10 => {
                    let note = pair.accounts.set_word(rng.roll());
                    pair.runs.renote(|| note, || {}).unwrap();
                }
                // Some are erased again and again, and forget it as often.
                11 | 12 if seed % 3 == 0 => pair.erase(),
                13 if seed % 3 == 0 => {
                    pair.runs.rotate(pair.seq);
                    super::settle(&pair.runs, &pair.accounts);
                }
                _ => pair.write(&mut rng),
            }
            assert_eq!(pair.model.look_up(&pair.runs.view()), Ok(()), "seed {seed}");
        }
        pair.check();
        pair.runs.rotate(pair.seq);
        super::settle(&pair.runs, &pair.accounts);
        pair.check();
        let mut told = Vec::new();
        let verified = pair.runs.verify(&mut |error| told.push(error.to_string()));
        assert_eq!((verified.damaged, told), (0, Vec::<String>::new()), "seed {seed}");
        pair.reopen();
        pair.check();
    }
    assert!(merges > 100 && drops > 5 && moves > 5, "{merges} merges, {drops} drops, {moves} moves");
}

#[test]
fn nothing_is_left_of_a_map_that_was_erased_and_its_files_go_with_the_last_view() {
    let mut rng = Rng::new(7);
    let mut pair = Pair::new();
    for _ in 0..200 {
        pair.write(&mut rng);
    }
    let view = pair.runs.view();
    let model = pair.model.clone();
    let erase = Batch { seq: pair.seq + 1, ops: vec![Op::Erase(Vec::new(), None)] };
    super::settle(&pair.runs, &pair.accounts);
    erase.apply(&pair.runs).unwrap();
    pair.runs.rotate(erase.seq);
    super::settle(&pair.runs, &pair.accounts);
    let facts = pair.runs.facts();
    assert!(facts.levels.is_empty() && facts.ranges == 0, "{facts:?}");
    assert_eq!(pair.accounts.agree_with(&facts), Ok(()));
    // What the older manifest names goes with the next commit; what a view pins, with the view.
    pair.runs.renote(|| pair.accounts.sums().lay(), || {}).unwrap();
    pair.runs.renote(|| pair.accounts.sums().lay(), || {}).unwrap();
    assert_eq!(model.compare(&view), Ok(()));
    let files = || assent_world::Disk::list(&pair.disk, super::FOLDER.as_ref()).unwrap();
    assert!(files().iter().any(|name| name.ends_with(".run")), "a view pins files: {:?}", files());
    drop(view);
    assert_eq!(files(), ["manifest-a", "manifest-b"]);
}
