//! Many branches at once, and one resource that answers nobody: neither delays the others.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use assent_coordinator::{Agent, Attendance, Resolution, Round};
use assent_ids::Xid;
use assent_kind::Kind;
use assent_world::{Clock, RealClock};
use assent_xa::Connector;

use super::stand::{IDENTITY, Stand, tx};
use crate::bank::{Bank, Trouble};

/// So many branches of a fenced client at each of the first banks.
fn left_behind(stand: &Stand, count: u64, banks: usize) -> Vec<Xid> {
    let session = stand.coordinator.handshake("client").unwrap();
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    let mut all = Vec::new();
    for counter in 1..=count {
        for (number, bank) in (0..).zip(&stand.banks[..banks]) {
            all.push(bank.prepare(IDENTITY.node, tx(&session, counter), number));
        }
    }
    all
}

fn told(bank: &Bank) -> u64 {
    bank.vault().verbs.get("rollback").copied().unwrap_or_default()
}

#[test]
fn a_crowd_is_told_over_five_connections_and_decided_with_one_sync() {
    for (count, connections) in [(48, 1), (49, 5)] {
        let mut stand = Stand::new();
        left_behind(&stand, count, 1);
        stand.round();
        let syncs = stand.log.stored().syncs;
        let round = stand.round();
        assert_eq!(round.branches.len(), usize::try_from(count).unwrap());
        assert!(round.branches.iter().all(|one| one.resolution == Resolution::RolledBack));
        assert_eq!(stand.log.stored().syncs, syncs + 1, "all aborts share a sync");
        assert_eq!(stand.banks[0].vault().open_most, connections, "{count} branches");
        assert_eq!(told(&stand.banks[0]), count, "each is told once");
        stand.round();
        assert_eq!(stand.banks[0].vault().open, 1, "the helpers are given back");
        assert_eq!(stand.coordinator.gauges().live, 0);
    }
}

/// A decision names no more than 4,096 branches. Those beyond are told what their transaction was told.
#[test]
fn a_transaction_of_more_branches_than_a_decision_names_is_rolled_back_all_the_same() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    for number in 0..=4_096 {
        stand.banks[0].prepare(IDENTITY.node, tx(&session, 1), number);
    }
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    (0..6).for_each(|_| _ = stand.round());
    assert_eq!(told(&stand.banks[0]), 4_097);
    assert!(stand.banks[0].vault().prepared.is_empty());
    assert_eq!(stand.coordinator.gauges().live, 0);
}

#[test]
fn ten_thousand_branches_over_two_databases_are_finished_in_two_looks() {
    let mut stand = Stand::new();
    let all = left_behind(&stand, 5_000, 2);
    assert_eq!(all.len(), 10_000);
    stand.round();
    let round = stand.round();
    assert_eq!(round.branches.len(), 10_000);
    assert!(round.branches.iter().all(|one| one.resolution == Resolution::RolledBack));
    let decided = stand.coordinator.gauges().decided_rolled_back;
    assert_eq!(decided, 5_000, "each is decided once, whichever bank comes first");
    assert!(stand.banks.iter().all(|bank| bank.vault().prepared.is_empty()));
}

#[test]
fn an_answer_that_a_helper_lost_costs_one_branch_a_second_try() {
    let mut stand = Stand::new();
    let all = left_behind(&stand, 200, 1);
    stand.round();
    // The 122nd is told over a helper: five take turns, and the first of each five is the kept connection's.
    stand.banks[0].vault().loses = Some(all[121]);
    let round = stand.round();
    let retried = round.branches.iter().filter(|one| matches!(one.resolution, Resolution::Retry(Kind::InDoubt, _)));
    assert_eq!(retried.map(|one| one.xid).collect::<Vec<_>>(), [all[121]]);
    assert_eq!(round.resources[0].trouble, None, "the kept connection is well");
    assert_eq!(stand.banks[0].vault().rolled_back.len(), 200);
}

#[test]
fn nothing_more_is_told_once_the_connection_with_the_claim_is_lost() {
    let mut stand = Stand::new();
    let all = left_behind(&stand, 200, 1);
    stand.round();
    stand.banks[0].vault().loses = Some(all[50]);
    let round = stand.round();
    let told = round.branches.iter().filter(|one| one.resolution == Resolution::RolledBack).count();
    assert_eq!(told, 54, "ten whole waves, and the four helpers of the eleventh");
    while !stand.round().is_clean() {}
    assert_eq!(stand.banks[0].vault().rolled_back.len(), 200);
}

#[test]
fn a_resource_that_hangs_in_connect_for_ever_delays_nobody() {
    let stand = Stand::new();
    let bank = |at: usize| stand.banks[at].clone();
    left_behind(&stand, 3, 3);
    stand.banks[0].trouble(Some(Trouble::Hangs));
    let connectors = (0..3).map(|at| Box::new(bank(at)) as Box<dyn Connector>).collect();
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let coordinator = Arc::clone(&stand.coordinator);
    // The old agent's connections have the claims.
    drop(stand.agent);
    let agent = Agent::new(Arc::clone(&coordinator), connectors, Arc::clone(&clock));
    let (tell, news) = mpsc::channel();
    let tell = Mutex::new(tell);
    let listener: assent_coordinator::Listener = Box::new(move |_| _ = tell.lock().unwrap().send(()));
    let attendance = Attendance::start(agent, clock, Arc::new(listener)).unwrap();
    while (1..3).any(|at| bank(at).vault().rolled_back.len() < 3) {
        news.recv_timeout(Duration::from_secs(20)).expect("a look at a living bank");
    }
    assert_eq!(bank(0).vault().prepared.len(), 3);
    // An operator is answered, and told who is silent.
    let round = attendance.recover(Duration::from_secs(3));
    let silent: Vec<(&str, bool)> =
        round.resources.iter().map(|one| (one.name.as_str(), one.trouble.is_some())).collect();
    assert_eq!(silent, [("bank-a", true), ("bank-b", false), ("bank-c", false)]);
    assert!(attendance.last().resources[0].trouble.is_some());
    // It comes to itself, and is finished, too.
    stand.banks[0].trouble(None);
    let finished = |round: &Round| round.resources.iter().all(|one| one.trouble.is_none());
    while !finished(&attendance.recover(Duration::from_secs(20))) || bank(0).vault().rolled_back.len() < 3 {}
    // A stop does not wait for who hangs.
    drop(attendance);
    assert_eq!(bank(1).vault().open, 0);
}

/// A call is answered by several looks: what a dead client's server does late is not left to the next rest's end, 10 s away.
#[test]
fn the_bell_calls_for_more_than_one_look() {
    let stand = Stand::new();
    let bank = Box::new(stand.banks[0].clone()) as Box<dyn Connector>;
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let coordinator = Arc::clone(&stand.coordinator);
    drop(stand.agent);
    let agent = Agent::new(coordinator, vec![bank], Arc::clone(&clock));
    let (tell, news) = mpsc::channel();
    let tell = Mutex::new(tell);
    let listener: assent_coordinator::Listener = Box::new(move |_| _ = tell.lock().unwrap().send(()));
    let attendance = Attendance::start(agent, clock, Arc::new(listener)).unwrap();
    news.recv_timeout(Duration::from_secs(60)).expect("its first look");
    attendance.bell().ring();
    for look in 0..4 {
        news.recv_timeout(Duration::from_secs(9)).unwrap_or_else(|_| panic!("look {look} has been left to the rest"));
    }
}
