//! Figures, printed and not judged: `cargo test --release -p assent-coordinator -- --ignored --nocapture figures`.

use std::path::Path;
use std::sync::Arc;

use assent_coordinator::{Coordinator, history};
use assent_journal::{Journal, Log};
use assent_world::{Clock, RealClock, RealDice, RealDisk};
use assent_xa::Decision;

use crate::stand::{IDENTITY, commit, tx};

fn journal(folder: &Path) -> Arc<Journal> {
    let config = assent_journal::Config { archive_bytes_max: 1 << 30, ..Default::default() };
    Journal::open(Arc::new(RealDisk), Arc::new(RealClock), Arc::new(RealDice), folder, config).unwrap().0
}

fn open(log: &Arc<Journal>) -> Coordinator {
    let log: Arc<dyn Log> = log.clone();
    Coordinator::open(log, Arc::new(RealClock), IDENTITY, assent_coordinator::Config::default()).unwrap()
}

#[test]
#[ignore = "prints figures: takes seconds, judges nothing"]
fn figures_of_a_restart_with_a_million_finished_and_a_thousand_in_doubt() {
    let folder = std::env::temp_dir().join(format!("assent-restart-{}", std::process::id()));
    {
        let log = journal(&folder);
        let coordinator = open(&log);
        coordinator.listening();
        let session = coordinator.handshake("load").unwrap();
        RealClock.sleep(std::time::Duration::from_millis(1_100));
        coordinator.tick().unwrap();
        let begun = RealClock.now();
        for counter in 0..1_001_000_u64 {
            let decision: Decision = commit(tx(&session, counter));
            let pending = coordinator.decide_begin(&decision).unwrap();
            if counter >= 1_000 {
                coordinator.finished(decision.tx);
            }
            if counter % 500 == 0 {
                coordinator.decide_end(pending).unwrap();
            }
            if counter % 5_000 == 0 {
                coordinator.tick().unwrap();
            }
        }
        coordinator.tick().unwrap();
        log.sync().unwrap();
        let took = RealClock.now().since(begun);
        eprintln!("1,001,000 decisions laid in {took:?}, {} ns each", took.as_nanos() / 1_001_000);
        let gauges = coordinator.gauges();
        assert_eq!((gauges.live, gauges.forgotten), (1_000, 1_000_000));
    }
    // Died without a close.
    for _ in 0..3 {
        let begun = RealClock.now();
        let log = journal(&folder);
        let opened = RealClock.now();
        let coordinator = open(&log);
        let serving = RealClock.now();
        let gauges = coordinator.gauges();
        assert_eq!(gauges.live, 1_000);
        let (journal, replay) = (opened.since(begun), serving.since(opened));
        eprintln!("serving after {:?}: journal {journal:?}, {} records {replay:?}", journal + replay, gauges.replayed);
    }
    let log = journal(&folder);
    let begun = RealClock.now();
    let found = history::verify(&*log, None).unwrap();
    eprintln!("verified in {:?}: {} seals, {} records", RealClock.now().since(begun), found.seals, found.records);
    let (begun, mut told) = (RealClock.now(), 0_u64);
    let more = history::read(&*log, &history::Filter::default(), &mut |_| {
        told += 1;
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(more, Ok(false));
    eprintln!("history read in {:?}: {told} transactions", RealClock.now().since(begun));
    drop(log);
    std::fs::remove_dir_all(&folder).unwrap();
}
