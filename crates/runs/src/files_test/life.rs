//! A run's file: a sync keeps it, the last who uses it takes it away, and no failure leaves one behind.

use assent_kind::Kind;
use assent_sim::{Call, Fault, Rng, Survival};

use super::{FOLDER, NAMES, Stage, agrees, any_model, entry};
use crate::run::RunId;
use crate::run_reader::Reading;
use crate::run_writer::{RUN, RunWriter};
use crate::{RunsError, filter};

#[test]
fn a_passing_failure_to_read_passes() {
    let stage = Stage::new();
    let model = any_model(&mut Rng::new(1), 300);
    let run = stage.run(1, &model, 256);
    let (key, one) = model.iter().nth(150).unwrap();
    let mut failed = 0;
    for nth in 1.. {
        let run = stage.again(&run);
        let calls = stage.sim.calls();
        run.get(key, filter::hash(key)).unwrap();
        if nth > stage.sim.calls() - calls {
            // Open, size, end and data were failed, each in turn; where the stretch was, its pieces are read by themselves.
            return assert_eq!((failed, nth), (4, 6));
        }
        let run = stage.again(&run);
        stage.sim.inject(Call::any(nth), Fault::Io);
        match run.get(key, filter::hash(key)) {
            Err(error) => {
                assert_eq!(error.kind(), Kind::Unavailable, "call {nth}");
                failed += 1;
            }
            // It was the stretch: each of its pieces was read by itself.
            Ok(found) => assert_eq!(found.as_ref(), Some(one), "call {nth}"),
        }
        assert_eq!(run.get(key, filter::hash(key)).unwrap().as_ref(), Some(one), "call {nth}");
    }
}

#[test]
fn the_sync_of_a_run_is_what_keeps_it() {
    let model = any_model(&mut Rng::new(3), 500);
    for ignored in [false, true] {
        let stage = Stage::new();
        if ignored {
            stage.sim.ignore(RUN);
        }
        let run = stage.run(1, &model, 256);
        stage.disk.sync_dir(FOLDER.as_ref(), NAMES).unwrap();
        stage.sim.cut_power(Survival::Nothing);
        let damaged = stage.again(&run).verify(&mut |_| {}).damaged;
        assert_eq!(damaged > 0, ignored, "{damaged} places are damaged");
    }
}

#[test]
fn whatever_fails_leaves_no_file() {
    let model = any_model(&mut Rng::new(3), 500);
    let write = |stage: &Stage| -> Result<(), RunsError> {
        let mut writer = RunWriter::create(&stage.disk, FOLDER.as_ref(), RunId(1), 256)?;
        model.iter().try_for_each(|(key, one)| writer.push(&entry(key, one)))?;
        writer.finish(0).map(drop)
    };
    let stage = Stage::new();
    let before = stage.sim.calls();
    write(&stage).unwrap();
    let calls = stage.sim.calls() - before;
    assert!(calls >= 3, "create, write, sync");
    for nth in 1..=calls {
        let stage = Stage::new();
        stage.sim.inject(Call::any(nth), Fault::Io);
        assert_eq!(write(&stage).unwrap_err().kind(), Kind::Unavailable, "call {nth}");
        assert_eq!(stage.names(), [""; 0], "call {nth}");
    }
    let stage = Stage::new();
    stage.sim.set_capacity(Some(stage.sim.used_bytes() + 4096));
    assert_eq!(write(&stage).unwrap_err().kind(), Kind::Full);
    assert_eq!(stage.names(), [""; 0]);
    // A writer that is given up.
    drop(stage.writer(1, 256));
    assert_eq!(stage.names(), [""; 0]);
    stage.sim.set_capacity(None);
    write(&stage).unwrap();
    assert_eq!(stage.names(), ["0000000000000001.run"]);
}

#[test]
fn a_doomed_run_goes_with_the_last_who_uses_it() {
    let stage = Stage::new();
    let model = any_model(&mut Rng::new(5), 100);
    let run = stage.run(1, &model, 256);
    let spared = stage.run(2, &model, 256);
    let mut walk = run.cursor(Reading::Cached);
    run.doom();
    spared.doom();
    spared.spare();
    drop((run, spared));
    assert_eq!(stage.names().len(), 2);
    agrees(&mut walk, &model, &mut Rng::new(6), 500, "while it is doomed");
    drop(walk);
    assert_eq!(stage.names(), ["0000000000000002.run"]);
}
