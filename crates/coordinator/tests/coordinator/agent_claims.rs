//! One resolver per node: claims, rivals, and two copies of one data folder at work at the same moment.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use assent_coordinator::{Agent, Config, Coordinator, Resolution};
use assent_ids::{Incarnation, ResourceId, TxId};
use assent_kind::Kind;
use assent_sim::SimClock;
use assent_xa::{BranchRecord, Connector, Decision, Outcome, Resource, Verb};

use crate::bank::{Bank, Trouble};
use crate::memory::MemoryLog;
use crate::stand::{IDENTITY, NAMES, Stand, branch, commit, decision, operator, tx};

fn agent(stand: &Stand) -> Agent {
    let connectors = stand.banks.iter().map(|bank| Box::new(bank.clone()) as Box<dyn Connector>).collect();
    Agent::new(Arc::clone(&stand.coordinator), connectors, Arc::new(stand.clock.clone()))
}

#[test]
fn nothing_is_decided_before_every_resource_was_asked_for_its_claim() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    stand.dies();
    let mut agent = agent(&stand);
    let refused = stand.coordinator.decide(&commit(tx(&session, 1))).unwrap_err();
    assert_eq!(refused.kind, Kind::Unavailable);
    assert_eq!(stand.coordinator.handshake("newcomer").unwrap_err().kind(), Kind::Unavailable);
    let abort = stand.coordinator.decide(&decision(tx(&session, 1), Outcome::RolledBack, false));
    assert_eq!(abort, Ok(Outcome::RolledBack), "an abort needs no claim");
    stand.banks[1].trouble(Some(Trouble::Dead));
    agent.claim();
    assert_eq!(stand.coordinator.decide(&commit(tx(&session, 2))), Ok(Outcome::Committed), "a dead one was asked");
    stand.coordinator.handshake("newcomer").unwrap();
}

#[test]
fn a_first_pass_that_hangs_is_waited_for_a_second_and_no_longer() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    stand.dies();
    let _agent = agent(&stand);
    stand.clock.advance(Duration::from_secs(1));
    assert!(stand.coordinator.decide(&commit(tx(&session, 1))).is_err(), "at the limit");
    stand.clock.advance(Duration::from_micros(1));
    assert_eq!(stand.coordinator.decide(&commit(tx(&session, 1))), Ok(Outcome::Committed), "one beyond");
}

#[test]
fn the_claim_is_the_first_word_on_every_new_connection() {
    let mut stand = Stand::new();
    let claims = |stand: &Stand| stand.banks[0].vault().verbs.get("claim").copied().unwrap_or_default();
    (0..3).for_each(|_| _ = stand.round());
    assert_eq!(claims(&stand), 1, "a kept connection keeps it");
    stand.banks[0].trouble(Some(Trouble::Dead));
    stand.round();
    stand.banks[0].trouble(None);
    while !stand.round().is_clean() {}
    assert_eq!(claims(&stand), 2, "a new one claims anew");
}

#[test]
fn while_another_process_resolves_nothing_is_touched_and_no_commit_is_taken() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let lost = stand.coordinator.handshake("lost").unwrap();
    let (decided, undecided) = (tx(&session, 1), tx(&lost, 1));
    stand.coordinator.decide(&commit(decided)).unwrap();
    let xid = stand.banks[1].prepare(IDENTITY.node, undecided, 0);
    stand.coordinator.lost(lost.incarnation);
    stand.fence();
    stand.dies();
    let mut other = stand.banks[0].teller();
    other.call(Verb::Claim(IDENTITY.node));
    let asked = stand.banks[0].vault().verbs.get("recover").copied();
    stand.agent = agent(&stand);
    for _ in 0..4 {
        let round = stand.round();
        let (kind, native) = round.resources[0].trouble.clone().expect("trouble");
        assert_eq!(kind, Kind::Conflict);
        assert!(native.message.contains("copied data folder"), "{native:?}");
        assert!(round.branches.iter().all(|one| one.resolution == Resolution::Waiting), "{round:?}");
    }
    assert_eq!(stand.banks[0].vault().verbs.get("recover").copied(), asked, "not even looked at");
    assert_eq!(stand.coordinator.rivals().len(), 1);
    assert!(stand.agent.pause() <= Duration::from_secs(1), "it asks again soon");
    let refused = stand.coordinator.decide(&commit(tx(&session, 2))).unwrap_err();
    assert!(refused.kind == Kind::Unavailable && refused.message.contains("bank-a"), "{refused:?}");
    assert_eq!(stand.coordinator.decide(&commit(decided)), Ok(Outcome::Committed), "what is decided stays so");
    // The other one is gone.
    drop(other);
    (0..4).for_each(|_| _ = stand.round());
    assert_eq!(stand.coordinator.unclaimed(), None);
    assert_eq!(stand.coordinator.decide(&commit(tx(&session, 2))), Ok(Outcome::Committed));
    assert!(stand.banks[1].vault().rolled_back.contains(&xid));
}

#[test]
fn a_rival_is_believed_in_until_the_resource_itself_says_otherwise() {
    let mut stand = Stand::new();
    stand.dies();
    let mut other = stand.banks[0].teller();
    other.call(Verb::Claim(IDENTITY.node));
    stand.agent = agent(&stand);
    stand.round();
    stand.banks[0].trouble(Some(Trouble::Dead));
    for _ in 0..10 {
        stand.round();
        assert!(stand.coordinator.unclaimed().is_some(), "it cannot be asked whether the other one is gone");
    }
    drop(other);
    stand.banks[0].trouble(None);
    while !stand.round().is_clean() {}
    assert_eq!(stand.coordinator.unclaimed(), None);
}

#[test]
fn a_resource_that_is_dead_behind_a_predecessors_claim_keeps_nobody_waiting_once_that_has_gone() {
    let mut stand = Stand::new();
    stand.dies();
    let mut other = stand.banks[0].teller();
    other.call(Verb::Claim(IDENTITY.node));
    stand.banks[1].trouble(Some(Trouble::Dead));
    stand.agent = agent(&stand);
    // For more than a second: whoever is refused for so long gives all up.
    (0..6).for_each(|_| _ = stand.round());
    assert!(stand.coordinator.unclaimed().is_some());
    drop(other);
    (0..6).for_each(|_| _ = stand.round());
    assert_eq!(stand.coordinator.unclaimed(), None, "the dead one was never ours to leave");
}

#[test]
fn no_operator_decides_beside_another_process_of_this_node() {
    let mut stand = Stand::new();
    let lost = stand.coordinator.handshake("lost").unwrap();
    let mine = tx(&lost, 1);
    stand.banks[1].prepare(IDENTITY.node, mine, 0);
    stand.coordinator.lost(lost.incarnation);
    stand.round();
    stand.dies();
    let mut other = stand.banks[0].teller();
    other.call(Verb::Claim(IDENTITY.node));
    stand.agent = agent(&stand);
    let force = |stand: &Stand| stand.coordinator.force(mine, Outcome::RolledBack, &operator());
    assert_eq!(force(&stand).unwrap_err().kind, Kind::Unavailable, "it has not been asked whether there is one");
    stand.round();
    let refused = force(&stand).unwrap_err();
    assert!(refused.kind == Kind::Conflict && refused.message.contains("bank-a"), "{refused:?}");
    drop(other);
    (0..3).for_each(|_| _ = stand.round());
    // A branch of a client that was never here: this folder is an old one, or a copy.
    let unknown = TxId { incarnation: Incarnation { number: 99, ..lost.incarnation }, counter: 1 };
    let xid = stand.banks[2].prepare(IDENTITY.node, unknown, 0);
    (0..3).for_each(|_| _ = stand.round());
    let refused = force(&stand).unwrap_err();
    assert!(refused.kind == Kind::Conflict && refused.message.contains("bank-c"), "{refused:?}");
    stand.banks[2].vault().prepared.remove(&xid);
    (0..3).for_each(|_| _ = stand.round());
    // Nothing of this opening is presumed any more: all are asked first.
    assert_eq!(force(&stand).unwrap_err().kind, Kind::Unavailable);
    stand.round();
    assert_eq!(force(&stand), Ok(Outcome::RolledBack), "alone again");
}

/// One of two processes over copies of one folder.
struct Copy {
    coordinator: Arc<Coordinator>,
    agent: Agent,
}

impl Copy {
    /// It meets the resources in an order of its own.
    fn start(log: &MemoryLog, clock: &SimClock, banks: &[Bank], is_turned: bool) -> Self {
        let clock = Arc::new(clock.clone());
        let config = Config::default();
        let coordinator = Coordinator::open(Arc::new(log.clone()), clock.clone(), IDENTITY, config).unwrap();
        let coordinator = Arc::new(coordinator);
        let mut banks: Vec<Bank> = banks.to_vec();
        if is_turned {
            banks.reverse();
        }
        let connectors = banks.into_iter().map(|bank| Box::new(bank) as Box<dyn Connector>).collect();
        let agent = Agent::new(Arc::clone(&coordinator), connectors, clock);
        Self { coordinator, agent }
    }
}

#[test]
fn of_two_processes_over_one_copied_folder_exactly_one_gets_to_commit() {
    // Both open the same epoch and give their clients the same incarnation. Without claims the second one's agent rolls
    // back, as a fenced client's, what the first one's client has prepared and commits.
    for steps in 0..16_u32 {
        let (log, clock) = (MemoryLog::new(), SimClock::new());
        let banks: Vec<Bank> = NAMES.iter().map(|name| Bank::new(name)).collect();
        let (first, second) = (log.copied(), log.copied());
        let mut copies =
            [Copy::start(&first, &clock, &banks, false), Copy::start(&second, &clock, &banks, steps % 2 == 1)];
        // They start at the same moment, and come forward in turns of every kind.
        for at in 0..40 {
            let turn = usize::try_from((steps >> (at / 3 % 4)) & 1).unwrap();
            for copy in [turn, 1 - turn] {
                copies[copy].agent.attendants()[at % 3].claim();
            }
            clock.advance(Duration::from_millis(60));
        }
        let mut outcomes = BTreeSet::new();
        let mut committed = 0;
        for copy in &mut copies {
            let Ok(session) = copy.coordinator.handshake("client") else { continue };
            let mine = tx(&session, 1);
            let branches: Vec<BranchRecord> = vec![branch(NAMES[0], 0), branch(NAMES[1], 1)];
            for record in &branches {
                banks[usize::from(record.number)].prepare(IDENTITY.node, mine, record.number);
            }
            let decision = Decision { tx: mine, outcome: Outcome::Committed, first: true, branches };
            committed += u32::from(copy.coordinator.decide(&decision) == Ok(Outcome::Committed));
            copy.coordinator.lost(session.incarnation);
        }
        assert_eq!(committed, 1, "order {steps:04b}");
        for _ in 0..8 {
            for copy in &mut copies {
                clock.advance(Duration::from_millis(600));
                copy.coordinator.tick().unwrap();
                copy.agent.round();
            }
        }
        for bank in &banks[..2] {
            let vault = bank.vault();
            outcomes.insert((vault.committed.len(), vault.rolled_back.len(), vault.prepared.len()));
        }
        assert_eq!(outcomes, BTreeSet::from([(1, 0, 0)]), "order {steps:04b}: no transaction is half done");
    }
}

#[test]
fn a_copy_that_gets_one_lost_claim_takes_nothing_before_it_has_asked_for_those_that_it_gave_up() {
    let (log, clock) = (MemoryLog::new(), SimClock::new());
    let banks: Vec<Bank> = NAMES.iter().map(|name| Bank::new(name)).collect();
    let (first, second) = (log.copied(), log.copied());
    let [mut worker, mut copy] = [&first, &second].map(|log| Copy::start(log, &clock, &banks, false));
    worker.agent.claim();
    let session = worker.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    let xid = banks[0].prepare(IDENTITY.node, mine, 0);
    for at in 0..60 {
        copy.agent.attendants()[at % NAMES.len()].claim();
        clock.advance(Duration::from_millis(60));
    }
    // The worker's connection to the lowest breaks, and the copy is first to ask there.
    let low = copy.agent.attendants().iter().map(|one| one.name().to_owned()).min_by_key(|name| ResourceId::of(name));
    let at = NAMES.iter().position(|name| Some(*name) == low.as_deref()).unwrap();
    banks[at].vault().claims.clear();
    clock.advance(Duration::from_secs(1));
    copy.agent.attendants()[at].claim();
    assert!(copy.coordinator.rivals().is_empty(), "nobody refuses it now");
    let refused = copy.coordinator.handshake("client").unwrap_err();
    assert_eq!(refused.kind(), Kind::Unavailable, "{refused}");
    // Nor for as long as those cannot be asked.
    for bank in &banks {
        bank.trouble(Some(Trouble::Dead));
    }
    for _ in 0..4 {
        clock.advance(Duration::from_secs(1));
        (0..NAMES.len()).filter(|one| *one != at).for_each(|one| copy.agent.attendants()[one].claim());
        copy.coordinator.tick().unwrap();
        assert!(copy.coordinator.unclaimed().is_some(), "{:?}", copy.coordinator.unclaimed());
    }
    for bank in &banks {
        bank.trouble(None);
    }
    clock.advance(Duration::from_secs(1));
    (0..NAMES.len()).filter(|one| *one != at).for_each(|one| copy.agent.attendants()[one].claim());
    assert!(!copy.coordinator.rivals().is_empty(), "the worker has them");
    // What the worker's client has prepared is not taken for a branch of a client that the copy has fenced.
    (0..4).for_each(|_| _ = copy.agent.round());
    assert!(banks[0].vault().prepared.contains(&xid), "{:?}", banks[0].vault().rolled_back);
}

#[test]
fn two_copies_with_half_of_the_claims_each_do_not_swap_them_for_ever() {
    for steps in 0..64_u32 {
        let (log, clock) = (MemoryLog::new(), SimClock::new());
        let banks: Vec<Bank> = NAMES.iter().map(|name| Bank::new(name)).collect();
        let (first, second) = (log.copied(), log.copied());
        let mut predecessors: Vec<_> = banks.iter().map(Bank::teller).collect();
        predecessors.iter_mut().for_each(|other| _ = other.call(Verb::Claim(IDENTITY.node)));
        let mut copies = [&first, &second].map(|log| Copy::start(log, &clock, &banks, false));
        let turn = |copies: &mut [Copy; 2], at: usize| {
            let first = usize::try_from((steps >> (at % 6)) & 1).unwrap();
            for copy in [first, 1 - first] {
                copies[copy].agent.attendants()[at % NAMES.len()].claim();
            }
            clock.advance(Duration::from_millis(60));
        };
        (0..60).for_each(|at| turn(&mut copies, at));
        // Both have been refused for long; then each is first at one.
        drop(predecessors);
        clock.advance(Duration::from_secs(1));
        copies[0].agent.attendants()[0].claim();
        copies[1].agent.attendants()[1].claim();
        (0..600).for_each(|at| turn(&mut copies, at));
        let has_all = |copy: &Copy| copy.coordinator.unclaimed().is_none();
        assert_eq!(copies.iter().filter(|copy| has_all(copy)).count(), 1, "order {steps:06b}");
    }
}
