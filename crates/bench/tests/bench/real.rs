//! The race over real branches: every way is run, every update is found.

use std::time::Duration;

use assent_bench::proxy::Delay;
use assent_bench::real::{self, Options, Way, Workload};

fn options(workloads: &[Workload]) -> Options {
    Options {
        databases: super::databases(),
        threads: vec![1, 3],
        rounds: 2,
        slice: Duration::from_millis(40),
        workloads: workloads.to_vec(),
        delay: Delay::default(),
        embedded: true,
        served: None,
    }
}

/// A statement each, a vote each, an outcome each; by hand five for MariaDB and four for PostgreSQL.
#[test]
fn over_a_network_fewer_messages_are_sent_than_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let delay = Delay { rtt_us: 500, jitter_us: 0 };
    let far = Options { delay, threads: vec![2], slice: Duration::from_millis(500), ..options(&[Workload::BothWrite]) };
    let outcome = real::run(folder.path(), &far, |_, _| {}).unwrap();
    assert_eq!(outcome.rtt_us, 500);
    let messages: Vec<f64> = outcome.figures.iter().map(|row| row.messages_per_tx.unwrap()).collect();
    let [plain, by_hand, embedded, last] = messages[..] else { panic!("{outcome:?}") };
    // The counters are asked for once a slice; of a new connection more is asked.
    assert!((6.0..6.9).contains(&plain) && (9.0..9.9).contains(&by_hand), "{messages:?}");
    assert!((6.0..8.0).contains(&embedded), "{messages:?}");
    // A statement each, the vote of one, the row with its commit, the outcome of the one that voted.
    assert!((5.0..7.0).contains(&last), "{messages:?}");
    let [.., embedded, last] = &outcome.figures[..] else { panic!("{outcome:?}") };
    let syncs = |row: &real::Figures| row.postgres_syncs_per_tx.unwrap() + row.journal_syncs_per_tx.unwrap();
    assert!(syncs(embedded) > 2.5 && syncs(last) < 1.5, "one durable write in place of three: {embedded:?} {last:?}");
    assert!(outcome.figures.iter().all(|row| row.latency_us.p50 > 1_500.0), "each waits for the network");
}

#[test]
fn every_way_is_raced_against_both_floors_and_every_update_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut told = Vec::new();
    let outcome = real::run(folder.path(), &options(&[Workload::BothWrite]), |done, of| told.push((done, of))).unwrap();
    assert_eq!(told.last(), Some(&(16, 16)), "four ways, two numbers of threads, two rounds");
    let rows: Vec<_> = outcome.figures.iter().map(|row| (row.threads, row.way)).collect();
    let ways = [Way::Plain, Way::ByHand, Way::Embedded, Way::EmbeddedLast];
    let expected: Vec<_> = [1, 3].into_iter().flat_map(|threads| ways.map(|way| (threads, way))).collect();
    assert_eq!(rows, expected);
    let counted: u64 = outcome.figures.iter().map(|row| row.transactions).sum();
    assert!(outcome.updates_found >= 2 * counted, "the warm-up's come on top");
    for row in &outcome.figures {
        assert!(row.tps > 0.0 && row.ratio_to_plain > 0.0 && row.latency_us.p50 > 0.0, "{row:?}");
        let one = (row.ratio_to_by_hand - 1.0).abs() < 1e-9;
        assert!(row.way != Way::ByHand || one, "a floor is as fast as itself: {row:?}");
    }
}

#[test]
fn a_branch_that_only_reads_needs_no_decision() {
    let folder = tempfile::tempdir().unwrap();
    let workloads = [Workload::PostgresReads, Workload::MariadbReads];
    let outcome = real::run(folder.path(), &options(&workloads), |_, _| {}).unwrap();
    let ours = |way| [Way::Embedded, Way::EmbeddedReader].contains(&way);
    assert_eq!(outcome.figures.iter().filter(|row| ours(row.way)).count(), 8, "two workloads, two numbers of threads");
    for row in outcome.figures.iter().filter(|row| ours(row.way)) {
        // Not quite none: a sync of the journal's housekeeping may fall into a slice, and an adapter may look seldom.
        assert!(row.journal_syncs_per_tx.unwrap() < 0.5, "{row:?}");
    }
}
