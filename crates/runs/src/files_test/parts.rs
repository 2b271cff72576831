//! Entries in any order become runs in order, through parts that leave no file.

use std::path::Path;
use std::sync::Arc;

use assent_kind::Kind;
use assent_sim::{Call, Fault, Operation, Rng};

use super::{FOLDER, Model, Stage, entry, owned};
use crate::entry::Cursor as _;
use crate::level::LevelCursor;
use crate::parts::{Parts, Sizes};
use crate::run_reader::{OwnedEntry, Reading};
use crate::{Entry, RunsError};

fn sizes() -> Sizes {
    Sizes { part_bytes: 4 << 10, run_bytes: 8 << 10, block_bytes: 256 }
}

#[test]
fn parts_in_any_order_become_runs_in_order() {
    for seed in 0..6 {
        let stage = Stage::new();
        let mut rng = Rng::new(seed);
        let mut parts = Parts::new(&stage.disk, Path::new(FOLDER), sizes(), 40).unwrap();
        let mut model = Model::new();
        // Enough that parts of parts are made: 64 and more of them are spilt. Or few keys and places, so that many are equal.
        let (count, keys, places) = if seed == 0 { (12_000_u64, 3_000, 500) } else { (900, 60, 6) };
        for number in 0..count {
            let key = rng.below(keys).to_be_bytes().to_vec();
            let value = (rng.below(6) > 0).then(|| number.to_be_bytes().repeat(25).into());
            let one = OwnedEntry { seq: rng.below(places), value };
            parts.add(&entry(&key, &one)).unwrap();
            // The greatest seq is kept; of equal ones, the last that was added.
            if model.get(&key).is_none_or(|other: &OwnedEntry| other.seq <= one.seq) {
                model.insert(key, one);
            }
        }
        model.retain(|key, one| one.value.is_some() && key[7] % 10 != 3);
        let (mut paced, mut asked) = (0, Vec::new());
        let keep = &mut |entry: &Entry<'_>| {
            assert!(entry.value.is_some());
            asked.push(entry.key.to_vec());
            entry.key[7] % 10 != 3
        };
        let pace = &mut |bytes| {
            paced += bytes;
            Ok(())
        };
        let built = parts.finish(9, keep, pace).unwrap();
        assert!(asked.is_sorted_by(|a, b| a < b), "seed {seed}: each key is judged once, in order");
        assert!(seed > 0 || paced > 0, "{paced} bytes");
        let runs: Arc<[_]> = built.runs.into();
        assert!(seed > 0 || runs.len() > 10, "{} runs", runs.len());
        assert!(runs.is_sorted_by(|a, b| a.facts().last < b.facts().first));
        assert!(runs.iter().all(|run| run.facts().knows == 9 && run.facts().bytes < 12 << 10));
        assert!(runs.iter().all(|run| (40..built.next_id).contains(&run.id().0)));
        let mut walk = LevelCursor::new(Arc::clone(&runs), Reading::Cached);
        walk.seek(&[]).unwrap();
        let mut found = Model::new();
        while let Some(entry) = walk.entry() {
            let (key, one) = owned(&entry);
            found.insert(key, one);
            walk.next().unwrap();
        }
        assert_eq!(found, model, "seed {seed}");
        assert_eq!(stage.names().len(), runs.len(), "no part is left");
        runs.iter().for_each(|run| run.spare());
        drop((walk, runs));
        assert!(!stage.names().is_empty(), "seed {seed}: spared runs stay");
    }
}

#[test]
fn parts_that_are_given_up_leave_no_file() {
    let fill = |stage: &Stage| -> Result<Parts, RunsError> {
        let mut parts = Parts::new(&stage.disk, Path::new(FOLDER), sizes(), 0)?;
        for number in 0..9_000_u64 {
            let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            parts.add(&Entry { key: &key, seq: number, value: Some(&[1; 60]) })?;
        }
        Ok(parts)
    };
    let stage = Stage::new();
    let parts = fill(&stage).unwrap();
    assert!(!stage.names().is_empty());
    drop(parts);
    assert_eq!(stage.names(), [""; 0]);
    let stopped = RunsError::Closed { reason: "the owner stops".to_owned() };
    let refused = fill(&stage).unwrap().finish(0, &mut |_| true, &mut |_| Err(stopped.clone()));
    assert_eq!(refused.unwrap_err(), stopped);
    assert_eq!(stage.names(), [""; 0]);
    stage.sim.inject(Call::of(Operation::Write, 90), Fault::Full);
    let refused = fill(&stage).and_then(|parts| parts.finish(0, &mut |_| true, &mut |_| Ok(())));
    assert_eq!(refused.unwrap_err().kind(), Kind::Full);
    assert_eq!(stage.names(), [""; 0]);
    // Numbers of files that are there already are not used.
    _ = stage.run(77, &Model::new(), 256);
    let built = fill(&stage).unwrap().finish(0, &mut |_| true, &mut |_| Ok(())).unwrap();
    assert!(built.runs.iter().all(|run| run.id().0 > 77));
}
