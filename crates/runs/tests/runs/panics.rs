//! An owner that panics behind a commit: what counts is on disk, and nobody goes on with a map that does not show it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use assent_runs::{AtOnce, Entry, Fate, Owner, RunsError, Step, Tally};
use assent_sim::SimDisk;

use super::script::{Batch, Model, Op};
use super::{Accounts, open, small};

/// As its accounts, but it panics once a note of theirs is durable.
struct Bomb<'a>(&'a Accounts);

struct Fuse<'a>(Box<dyn Tally + 'a>);

impl Owner for Bomb<'_> {
    fn tally(&self) -> Box<dyn Tally + '_> {
        Box::new(Fuse(self.0.tally()))
    }

    fn durable(&self) -> u64 {
        self.0.durable()
    }
}

impl Tally for Fuse<'_> {
    fn enters(&mut self, entry: &Entry<'_>) {
        self.0.enters(entry);
    }

    fn leaves(&mut self, entry: &Entry<'_>) {
        self.0.leaves(entry);
    }

    fn judge(&mut self, entry: &Entry<'_>) -> Fate {
        self.0.judge(entry)
    }

    fn note(&mut self, applied: u64) -> Vec<u8> {
        self.0.note(applied)
    }

    fn committed(self: Box<Self>) {
        panic!("a promise is broken");
    }
}

/// Others went on: a merge left out what nobody was shown, and a flush wrote again what was written.
#[test]
fn who_panics_behind_a_commit_closes_the_map_and_what_counts_is_there_when_it_is_opened_again() {
    let put = |key: &str, value: &str| Op::Put(key.as_bytes().to_vec(), value.as_bytes().to_vec());
    let log = [
        Batch { seq: 1, ops: vec![put("a", "v1"), put("b", "v1"), put("c", "v1")] },
        Batch { seq: 2, ops: vec![put("b", "v2"), Op::Delete(b"c".to_vec())] },
        Batch { seq: 3, ops: vec![put("a", "v3"), put("d", "v3")] },
    ];
    for (piece, applied) in [("flush", 3), ("merge", 2), ("note", 2)] {
        let disk = SimDisk::new();
        let (runs, _, accounts) = open(&disk, small()).unwrap();
        for batch in &log {
            batch.apply(&runs).unwrap();
            runs.rotate(batch.seq);
            if batch.seq < 3 {
                assert!(matches!(runs.flush(&accounts, &AtOnce), Ok(Some(Step::Flushed { .. }))));
            }
        }
        let bomb = Bomb(&accounts);
        let panicked = catch_unwind(AssertUnwindSafe(|| match piece {
            "flush" => runs.flush(&bomb, &AtOnce).map(drop),
            "merge" => runs.merge(&bomb, &AtOnce).map(drop),
            _ => runs.renote(|| accounts.sums().lay(), || panic!("a promise is broken")),
        }));
        assert!(panicked.is_err() && runs.is_closed(), "{piece}");
        let later = Batch { seq: 4, ops: vec![put("e", "v4")] };
        let refused = [
            later.apply(&runs),
            runs.flush(&accounts, &AtOnce).map(drop),
            runs.merge(&accounts, &AtOnce).map(drop),
            runs.renote(|| accounts.sums().lay(), || ()),
        ];
        refused.iter().for_each(|done| assert!(matches!(done, Err(RunsError::Closed { .. })), "{piece}: {done:?}"));
        // What is shown is what was shown.
        assert_eq!(Model::of(&log).compare(&runs.view()), Ok(()), "{piece}");
        drop(runs);
        let (runs, opened, accounts) = open(&disk, small()).unwrap();
        assert_eq!(opened.applied, applied, "{piece}");
        let durable = log.iter().filter(|batch| batch.seq <= applied);
        assert_eq!(Model::of(durable).compare(&runs.view()), Ok(()), "{piece}");
        assert_eq!(accounts.agree_with(&runs.facts()), Ok(()), "{piece}");
    }
}
