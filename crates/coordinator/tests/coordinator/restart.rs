//! Restarting costs what is unfinished, not what was ever done.

use std::path::Path;
use std::sync::Arc;

use assent_coordinator::{Config, Coordinator, Known};
use assent_journal::{Journal, Log};
use assent_sim::{SimClock, SimDice, SimDisk};
use assent_xa::Outcome;

use crate::stand::{IDENTITY, LOST, Stand, commit, tx};

#[test]
fn a_hundred_thousand_finished_transactions_leave_a_bounded_log() {
    let (disk, clock, dice) = (SimDisk::new(), SimClock::new(), Arc::new(SimDice::new(1)));
    let open = || {
        let config = assent_journal::Config { log_size: 1 << 18, max_buffer_log_size: 1 << 16, ..Default::default() };
        let clock = Arc::new(clock.clone());
        let (log, _) =
            Journal::open(Arc::new(disk.clone()), clock.clone(), dice.clone(), Path::new("log"), config).unwrap();
        let config = Config { checkpoint_bytes: 1 << 20, ..Config::default() };
        (Arc::clone(&log), Coordinator::open(log, clock, IDENTITY, config).unwrap())
    };
    let (log, coordinator) = open();
    let session = coordinator.handshake("client").unwrap();
    clock.advance(LOST);
    coordinator.tick().unwrap();
    let unfinished = tx(&session, 0);
    coordinator.decide(&commit(unfinished)).unwrap();
    for counter in 1..=100_000 {
        let tx = tx(&session, counter);
        // Twenty share a sync, as under load.
        let pending = coordinator.decide_begin(&commit(tx)).unwrap();
        coordinator.finished(tx);
        if counter % 20 == 0 {
            coordinator.decide_end(pending).unwrap();
        }
        if counter % 1_000 == 0 {
            coordinator.tick().unwrap();
        }
    }
    let gauges = coordinator.gauges();
    assert_eq!((gauges.live, gauges.forgotten), (1, 100_000));
    assert!(gauges.checkpoints >= 5, "{gauges:?}");
    assert!(log.end().0 - log.start().0 < 3 << 20, "from {} to {}", log.start(), log.end());
    log.close().unwrap();
    drop((log, coordinator));
    disk.kill();
    let (_, coordinator) = open();
    let replayed = coordinator.gauges().replayed;
    assert!(replayed < 20_000, "{replayed} records for one unfinished transaction");
    assert_eq!(coordinator.ask(unfinished), Known::Committed);
    assert_eq!(coordinator.gauges().live, 1);
}

#[test]
fn a_checkpoint_keeps_every_unfinished_decision_and_nothing_else() {
    let config = Config { checkpoint_bytes: 1, ..Config::default() };
    let mut stand = Stand::with(config);
    stand.fence();
    let session = stand.coordinator.handshake("client").unwrap();
    for counter in 1..=10 {
        stand.coordinator.decide(&commit(tx(&session, counter))).unwrap();
    }
    for counter in 1..=4 {
        stand.coordinator.finished(tx(&session, counter));
    }
    stand.coordinator.tick().unwrap();
    stand.coordinator.decide(&commit(tx(&session, 11))).unwrap();
    stand.restart(false);
    assert_eq!(stand.coordinator.gauges().replayed, 2, "the checkpoint, and what came after it");
    for counter in 1..=11 {
        let expected = if counter <= 4 { Known::Unknown } else { Known::Committed };
        assert_eq!(stand.coordinator.ask(tx(&session, counter)), expected, "{counter}");
    }
    let branches = stand.coordinator.show(tx(&session, 7)).unwrap().branches;
    assert_eq!(branches.iter().map(|branch| branch.number).collect::<Vec<_>>(), [0, 1]);
    stand.coordinator.resume(session.incarnation, session.secret).unwrap();
    let decision = crate::stand::decision(tx(&session, 7), Outcome::Committed, false);
    assert_eq!(stand.coordinator.decide(&decision), Ok(Outcome::Committed));
}

#[test]
fn a_log_without_ticks_still_learns_what_is_finished() {
    let stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    for counter in 1..=1_024 {
        let tx = tx(&session, counter);
        stand.coordinator.decide_begin(&commit(tx)).map(|_| ()).unwrap();
    }
    let before = stand.log.stored().appends;
    (1..=1_024).for_each(|counter| stand.coordinator.finished(tx(&session, counter)));
    assert_eq!(stand.log.stored().appends - before, 1, "one record of 1,024");
}
