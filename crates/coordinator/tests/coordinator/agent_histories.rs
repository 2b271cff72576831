//! Every order of what can happen around one transaction, up to a bound, and long random ones: a client that decides late,
//! asks again, sends twice and dies; a coordinator that restarts; an agent's looks; a copy of the data folder with an agent
//! of its own; a database that fails over to a standby which missed what was prepared. Whatever the order, no transaction
//! is half done without being reported.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use assent_coordinator::{Agent, Config, Coordinator, Fate, Session};
use assent_ids::{TxId, Xid};
use assent_sim::Rng;
use assent_xa::{Connector, Outcome, Resource, Verb};

use crate::stand::{IDENTITY, Stand, decision, tx};

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The client prepares at the next bank.
    Prepare,
    /// It asks for a commit, and hears the answer.
    Decide,
    /// It asks, and the answer is lost.
    Ask,
    /// A copy of what it asked before comes once more.
    Again,
    /// It tells the next bank what it heard.
    Tell,
    /// Its connection ends; later it is fenced.
    Lose,
    Fence,
    Resume,
    /// The agent looks.
    Look,
    /// The coordinator's machine dies; what was not synced is lost.
    Restart,
    /// A copy of the data folder starts, and its agent looks.
    Copy,
    /// The copy's clients are fenced, and its agent looks.
    CopyLooks,
    /// The claiming connection to the first bank breaks.
    Break,
}

const STEPS: [Step; 13] = [
    Step::Prepare,
    Step::Decide,
    Step::Ask,
    Step::Again,
    Step::Tell,
    Step::Lose,
    Step::Fence,
    Step::Resume,
    Step::Look,
    Step::Restart,
    Step::Copy,
    Step::CopyLooks,
    Step::Break,
];

/// Orders up to this length, as far as they lead to something new.
const DEPTH: usize = 9;
const STATES_MAX: usize = 2_500;
/// Every order of so many things is looked at within that, and what leads to nothing new is not looked at twice.
const WHOLE_DEPTH: usize = 3;
const SEEDS: u64 = 1_000;

struct World {
    stand: Stand,
    session: Session,
    mine: TxId,
    branches: [Xid; 2],
    prepared: usize,
    asked: bool,
    heard: Option<Outcome>,
    told: usize,
    is_connected: bool,
    copy: Option<(Arc<Coordinator>, Agent)>,
    looks: usize,
    copy_looks: usize,
    is_failed_over: bool,
    /// Whether the coordinator's agent has finished a branch; whether the copy has kept it from that, having taken a claim that broke.
    acted: bool,
    held_up: bool,
}

impl World {
    fn new() -> Self {
        let stand = Stand::new();
        let session = stand.coordinator.handshake("client").unwrap();
        let mine = tx(&session, 1);
        let branches = [0, 1].map(|at| stand.banks[usize::from(at)].xid(IDENTITY.node, mine, at));
        Self {
            stand,
            session,
            mine,
            branches,
            prepared: 0,
            asked: false,
            heard: None,
            told: 0,
            is_connected: true,
            copy: None,
            looks: 0,
            copy_looks: 0,
            is_failed_over: false,
            acted: false,
            held_up: false,
        }
    }

    /// What has been finished in both banks.
    fn finished(&self) -> usize {
        let finished = |bank: usize| {
            let vault = self.stand.banks[bank].vault();
            vault.committed.len() + vault.rolled_back.len()
        };
        finished(0) + finished(1)
    }

    /// Whether it can happen now, and it has.
    fn step(&mut self, step: Step) -> bool {
        match step {
            Step::Prepare if self.prepared < 2 && !self.asked => {
                self.stand.banks[self.prepared].vault().prepared.insert(self.branches[self.prepared]);
                self.prepared += 1;
                self.looks = 0;
            }
            Step::Decide | Step::Ask if self.prepared == 2 && self.heard.is_none() => {
                let asked = self.stand.coordinator.decide(&decision(self.mine, Outcome::Committed, !self.asked));
                self.asked = true;
                if step == Step::Decide {
                    self.heard = asked.ok();
                }
            }
            Step::Again if self.asked && self.told < 2 => {
                // As it was sent first; nobody reads the answer.
                _ = self.stand.coordinator.decide_begin(&decision(self.mine, Outcome::Committed, true));
            }
            Step::Tell if self.told < 2 => {
                let Some(outcome) = self.heard else { return false };
                let xid = self.branches[self.told];
                let verb = if outcome == Outcome::Committed { Verb::Commit(xid) } else { Verb::Rollback(xid) };
                self.stand.banks[self.told].teller().call(verb);
                self.told += 1;
                if self.told == 2 {
                    self.stand.coordinator.finished(self.mine);
                }
            }
            Step::Lose if self.is_connected => {
                self.stand.coordinator.lost(self.session.incarnation);
                self.is_connected = false;
            }
            Step::Fence => {
                self.stand.fence();
            }
            Step::Resume if !self.is_connected => {
                self.is_connected =
                    self.stand.coordinator.resume(self.session.incarnation, self.session.secret).is_ok();
            }
            Step::Look => {
                let before = self.finished();
                self.stand.round();
                self.acted |= self.finished() > before;
                self.looks += 1;
            }
            // The copy would become the heir of all that follows.
            Step::Restart if self.copy.is_none() => {
                self.stand.restart(false);
                self.is_connected = false;
                self.looks = 0;
            }
            Step::Copy if self.copy.is_none() => {
                let (coordinator, mut agent) = copied(&self.stand);
                agent.claim();
                self.copy = Some((coordinator, agent));
                self.copy_looks = 0;
            }
            Step::CopyLooks => return self.copy_looks(),
            Step::Break => {
                let mut vault = self.stand.banks[0].vault();
                let holder = vault.claims.remove(&IDENTITY.node);
                vault.broken.extend(holder);
            }
            _ => return false,
        }
        true
    }

    /// Whether there is a copy, and it has looked.
    fn copy_looks(&mut self) -> bool {
        let before = self.finished();
        let Some((coordinator, agent)) = &mut self.copy else { return false };
        self.stand.clock.advance(std::time::Duration::from_millis(1_001));
        coordinator.tick().unwrap();
        agent.round();
        let both = coordinator.unclaimed().is_none() && self.stand.coordinator.unclaimed().is_none();
        assert!(!both, "both take work");
        assert_eq!(self.finished(), before, "the copy takes work while the first one lives");
        self.held_up |= self.stand.coordinator.unclaimed().is_some();
        self.copy_looks += 1;
        true
    }

    /// A standby takes the second bank's place; it has missed what is prepared there.
    fn fail_over(&mut self) {
        let mut vault = self.stand.banks[1].vault();
        if vault.prepared.is_empty() {
            return;
        }
        vault.prepared.clear();
        vault.is_elsewhere = true;
        self.is_failed_over = true;
    }

    /// Everybody dies; recovery does the rest. Nothing is half done and not reported.
    fn end(mut self, history: &[Step]) -> &'static str {
        self.copy = None;
        self.stand.restart(false);
        self.stand.fence();
        (0..8).for_each(|_| _ = self.stand.round());
        let [one, other] = [0, 1].map(|at| {
            let vault = self.stand.banks[at].vault();
            let xid = self.branches[at];
            assert!(!vault.prepared.contains(&xid), "{history:?}: left prepared");
            (vault.committed.contains(&xid), vault.rolled_back.contains(&xid))
        });
        let is_reported = self
            .stand
            .coordinator
            .show(self.mine)
            .is_some_and(|view| view.branches.iter().any(|branch| matches!(branch.fate, Fate::Heuristic(..))));
        for went in [one, other] {
            assert_ne!(went, (true, true), "{history:?}: a branch went both ways");
        }
        let is_half = one.0 != other.0;
        assert!(!is_half || is_reported, "{history:?}: half done, and nobody is told");
        assert!(!is_half || self.is_failed_over, "{history:?}: half done without a fail-over");
        if self.heard == Some(Outcome::Committed) && !self.is_failed_over {
            assert!(one.0 && other.0, "{history:?}: told committed");
        }
        if self.heard == Some(Outcome::RolledBack) {
            assert!(!one.0 && !other.0, "{history:?}: told rolled back");
        }
        match (one.0, other.0) {
            (true, true) => "committed",
            (false, false) => "rolled back",
            _ => "half done and reported",
        }
    }

    /// All that later steps can depend on.
    fn signature(&self) -> String {
        let vaults: Vec<_> = self.stand.banks[..2]
            .iter()
            .map(|bank| {
                let vault = bank.vault();
                (vault.prepared.len(), vault.committed.len(), vault.rolled_back.len(), vault.claims.clone().len())
            })
            .collect();
        let view = |coordinator: &Coordinator| {
            let view = coordinator.show(self.mine);
            let view = view.map(|view| (view.decided, view.is_durable, view.is_acknowledged, view.branches));
            (view, coordinator.standing(self.session.incarnation), coordinator.unclaimed().is_some())
        };
        let copy = self.copy.as_ref().map(|(coordinator, _)| (view(coordinator), self.copy_looks.min(3)));
        let client = (self.prepared, self.asked, self.heard, self.told, self.is_connected);
        format!("{vaults:?} {:?} {copy:?} {client:?} {}", view(&self.stand.coordinator), self.looks.min(3))
    }
}

fn copied(stand: &Stand) -> (Arc<Coordinator>, Agent) {
    let clock = Arc::new(stand.clock.clone());
    let log = Arc::new(stand.log.copied());
    let coordinator = Coordinator::open(log, clock.clone(), IDENTITY, Config::default()).unwrap();
    let coordinator = Arc::new(coordinator);
    let connectors = stand.banks.iter().map(|bank| Box::new(bank.clone()) as Box<dyn Connector>).collect();
    let agent = Agent::new(Arc::clone(&coordinator), connectors, clock);
    (coordinator, agent)
}

/// The world after these steps; none if one of them cannot happen there.
fn replay(history: &[Step]) -> Option<World> {
    let mut world = World::new();
    history.iter().all(|step| world.step(*step)).then_some(world)
}

#[test]
fn gate_no_order_leaves_half_a_transaction_that_nobody_is_told_of() {
    // With more seconds it goes deeper: about a hundred states each.
    let seconds = std::env::var("ASSENT_GATE_SECONDS").ok().and_then(|text| text.parse::<usize>().ok());
    let states_max = seconds.map_or(STATES_MAX, |seconds| STATES_MAX.max(seconds * 100));
    let mut whole = DEPTH;
    let (mut seen, mut queue) = (BTreeSet::new(), VecDeque::from([Vec::new()]));
    let mut ends: BTreeMap<&str, u32> = BTreeMap::new();
    let mut depth = 0;
    while let Some(history) = queue.pop_front() {
        for step in STEPS {
            let longer = [&history[..], &[step]].concat();
            let Some(world) = replay(&longer) else { continue };
            if seen.len() >= states_max {
                whole = whole.min(history.len());
                continue;
            }
            if !seen.insert(world.signature()) {
                continue;
            }
            depth = depth.max(longer.len());
            *ends.entry(world.end(&longer)).or_default() += 1;
            let mut lagging = replay(&longer).unwrap();
            lagging.fail_over();
            *ends.entry(lagging.end(&longer)).or_default() += 1;
            if longer.len() < DEPTH {
                queue.push_back(longer);
            }
        }
    }
    eprintln!("{} states, every order of {whole} steps, up to {depth}: {ends:?}", seen.len());
    assert!(whole >= WHOLE_DEPTH, "only every order of {whole} steps, and not of {WHOLE_DEPTH}");
    assert!(seen.len() > 1_000 && ends.len() == 3, "{} states: {ends:?}", seen.len());
}

#[test]
fn no_random_history_leaves_half_a_transaction_that_nobody_is_told_of() {
    let (mut seen, mut ends) = (BTreeSet::new(), BTreeMap::<&str, u32>::new());
    let (mut acted, mut held_up) = (0, 0);
    for seed in 1..=SEEDS {
        let mut rng = Rng::new(seed);
        let (mut world, mut history) = (World::new(), Vec::new());
        for _ in 0..rng.range(4..40) {
            let step = STEPS[rng.index(STEPS.len())];
            if world.step(step) {
                history.push(step);
                seen.insert(world.signature());
            }
        }
        acted += u32::from(world.acted);
        held_up += u32::from(world.held_up);
        if rng.below(3) == 0 {
            world.fail_over();
        }
        *ends.entry(world.end(&history)).or_default() += 1;
    }
    eprintln!(
        "{} states in {SEEDS} histories: {ends:?}; the agent finished branches in {acted}, the copy held it up in {held_up}",
        seen.len()
    );
    assert!(acted > 100 && held_up > 20, "{acted} {held_up}");
    assert!(seen.len() > 1_000 && ends.len() == 3, "{} states: {ends:?}", seen.len());
}
