//! The model check: every order of events over small groups, and the same with each rule left out, which must go red.

use std::time::Duration;

use assent_world::{Clock, RealClock};
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::group_test::{Crash, Group, Seat, Shape, Wire, member};
use crate::progress_test::{Faults, brief, formed, progress};
use crate::rules::Rule;
use crate::{Ack, Event, Word};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Move {
    Deliver(Wire),
    Tell(usize),
    Submit(usize, u8),
    Sync(usize),
    Write(usize),
    Crash(usize, Crash),
    Start(usize),
    Silent(usize, usize),
    Patience(usize),
    ArbiterSilent(usize),
    Ask(usize),
    HandOver(usize, usize),
    Force(usize),
    Refuse(Wire),
    /// So much time passes that it asks an arbiter again that has refused.
    Rest(usize),
}

impl Model for Shape {
    type State = Group;
    type Action = Move;

    fn init_states(&self) -> Vec<Group> {
        vec![formed(self)]
    }

    fn actions(&self, group: &Group, moves: &mut Vec<Move>) {
        moves.extend(group.net.iter().cloned().map(Move::Deliver));
        let spent = &group.spent;
        let count = group.seats.len();
        if spent.refusals < self.refusals {
            let changes = group.net.iter().filter(|wire| matches!(wire, Wire::Change { .. }));
            moves.extend(changes.cloned().map(Move::Refuse));
        }
        for (at, seat) in group.seats.iter().enumerate() {
            let Some(node) = &seat.node else {
                moves.push(Move::Start(at));
                continue;
            };
            if node.configuration().version < group.arbiter.version || node.leads().is_none() {
                moves.push(Move::Tell(at));
            }
            if node.pause > 0 {
                moves.push(Move::Rest(at));
            }
            if node.takes_commands() {
                moves.extend((1..=self.requests.min(spent.requests + 1)).map(|request| Move::Submit(at, request)));
            }
            if seat.durable < seat.log.len() {
                moves.push(Move::Sync(at));
            }
            if self.ack == Ack::Written && seat.written < seat.log.len() {
                moves.push(Move::Write(at));
            }
            if spent.crashes < self.crashes {
                let kinds: &[Crash] =
                    if self.ack == Ack::Written { &[Crash::Kill, Crash::Power] } else { &[Crash::Power] };
                let kinds = kinds.iter().copied().chain(self.burns.then_some(Crash::Burn));
                // Under `durable` such a copy is the same life: nothing shows that it is one.
                let goes_back = self.burns && matches!(self.ack, Ack::Received | Ack::Written);
                let kinds = kinds.chain(goes_back.then_some(Crash::Back));
                let survived = kinds.filter(|how| group.is_survived(self, at, *how));
                moves.extend(survived.map(|how| Move::Crash(at, how)));
            }
            if spent.suspicions < self.suspicions {
                moves.extend((0..count).filter(|other| *other != at).map(|other| Move::Silent(at, other)));
                moves.push(Move::ArbiterSilent(at));
                if node.leads().is_none() {
                    moves.push(Move::Patience(at));
                }
            }
            if spent.reads < self.reads && node.leads().is_some() {
                moves.push(Move::Ask(at));
            }
            if spent.hand_overs < self.hand_overs && node.leads().is_some() {
                // Who is about to give it away may keep it after all.
                moves.extend(
                    (0..count).filter(|to| (*to == at) != node.takes_commands()).map(|to| Move::HandOver(at, to)),
                );
            }
            let others_down = group.seats.iter().enumerate().all(|(other, seat)| other == at || seat.node.is_none());
            if spent.forces < self.forces && others_down {
                moves.push(Move::Force(at));
            }
        }
    }

    fn next_state(&self, before: &Group, action: Move) -> Option<Group> {
        let mut group = before.clone();
        match action {
            Move::Deliver(wire) => group.deliver(self, &wire),
            Move::Tell(at) => group.tell(at),
            Move::Submit(at, request) => _ = group.submit(self, at, request),
            Move::Sync(at) => _ = group.sync(at, true),
            Move::Write(at) => _ = group.sync(at, false),
            Move::Start(at) => group.start(self, at),
            Move::Crash(at, how) => {
                group.spent.crashes += 1;
                group.crash(at, how);
            }
            Move::Silent(at, other) => {
                group.spent.suspicions += 1;
                group.step(at, Event::Silent(member(other)));
            }
            Move::ArbiterSilent(at) => group.step(at, Event::ArbiterSilent),
            Move::Patience(at) => {
                group.spent.suspicions += 1;
                group.step(at, Event::Patience);
            }
            Move::Ask(at) => {
                group.spent.reads += 1;
                group.ask(at);
            }
            Move::HandOver(at, to) => {
                group.spent.hand_overs += 1;
                group.word(at, Word::HandOver(member(to)));
            }
            Move::Force(at) => {
                group.spent.forces += 1;
                group.force(self, at);
            }
            Move::Refuse(wire) => {
                group.spent.refusals += 1;
                group.refuse(self, &wire);
            }
            Move::Rest(at) => {
                while group.seats[at].node.as_ref().is_some_and(|node| node.pause > 0) {
                    group.step(at, Event::Tick);
                }
            }
        }
        (group != *before).then_some(group)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing that must never be", |_, group: &Group| group.broken.is_none()),
            Property::always("what was acknowledged is kept", |_, group: &Group| group.keeps_acknowledged()),
            Property::always("what was told to be on every disk is", |_, group: &Group| group.keeps_votes()),
            Property::always("a request is executed once", |_, group: &Group| group.executes_once()),
            Property::always("logs that share an entry share all before it", |_, group: &Group| group.logs_agree()),
        ]
    }
}

/// A small generator, so that a seed means the same walk for ever.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// One walk through the model, deeper than all walks together can go. The answer is what was broken, and how.
fn walk(shape: &Shape, formed: &Group, seed: u64, look: &mut dyn FnMut(&Group, &mut Dice)) -> Option<String> {
    let mut dice = Dice::new(seed);
    let (mut group, mut way, mut moves) = (formed.clone(), Vec::new(), Vec::new());
    let properties = shape.properties();
    for _ in 0..WALK_STEPS {
        shape.actions(&group, &mut moves);
        loop {
            if moves.is_empty() {
                return None;
            }
            let at = dice.below(moves.len());
            let chosen = moves.swap_remove(at);
            if let Some(next) = shape.next_state(&group, chosen.clone()) {
                group = next;
                way.push(chosen);
                break;
            }
        }
        moves.clear();
        if let Some(property) = properties.iter().find(|property| !(property.condition)(shape, &group)) {
            let why = group.broken.unwrap_or(property.name);
            return Some(format!("seed {seed} of {shape:?}: {why}, after {way:#?}\nacknowledged {:?}", group.acked));
        }
        look(&group, &mut dice);
    }
    None
}

const WALK_STEPS: usize = 90;

/// Small shapes, which a search exhausts sooner, and large ones.
fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for ack in [Ack::Received, Ack::Written, Ack::Durable, Ack::None] {
        for members in [2, 3] {
            let small = Shape { members, ..Shape::pair(ack) };
            let large = Shape { requests: 4, crashes: 4, suspicions: 5, reads: 2, hand_overs: 2, burns: true, ..small };
            // What nobody promised to keep of a burnt disk is no fault of votes.
            let votes = Shape { votes: true, burns: ack != Ack::None, ..large };
            shapes.extend([small, large, Shape { forces: 1, ..large }, votes, Shape { refusals: 3, ..large }]);
        }
    }
    shapes
}

/// Seconds for one gate; `ASSENT_GATE_SECONDS` says otherwise.
fn seconds(default: f64) -> f64 {
    std::env::var("ASSENT_GATE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// As many states as fit in memory; the walks go on from there.
const STATES_MAX: usize = 4_000_000;

#[test]
fn gate_no_order_of_events_breaks_a_pair() {
    for ack in [Ack::Received, Ack::Durable] {
        let shape = Shape::pair(ack);
        let limit = Duration::from_secs_f64(seconds(5.0) / 2.0);
        let search = shape.checker().threads(2).timeout(limit).target_state_count(STATES_MAX);
        let search = search.finish_when(HasDiscoveries::Any).spawn_bfs().join();
        println!(
            "{ack:?}: {} states, all to depth {}",
            search.unique_state_count(),
            search.max_depth().saturating_sub(1)
        );
        let found = search.discoveries().into_iter().map(|(name, path)| (name, path.into_actions())).next();
        assert!(found.is_none(), "{shape:?}: {found:#?}");
        assert!(search.unique_state_count() > 1_000, "it searched");
    }
}

#[test]
fn gate_no_long_walk_loses_what_was_acknowledged_and_progress_is_where_it_should_be() {
    let shapes = shapes();
    let share = Duration::from_secs_f64(seconds(7.5) / shapes.len() as f64);
    let first = std::env::var("ASSENT_GATE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for shape in shapes {
        let (formed, all) = (formed(&shape), Faults::all(usize::from(shape.members)));
        let (start, mut seed, mut looked) = (RealClock.now(), first, 0_u64);
        // At least a few, however loaded the machine is.
        while seed < first + 20 || RealClock.now().since(start) < share {
            let broken = walk(&shape, &formed, seed, &mut |group, dice| {
                // A hand-over is a role change under way, and a person's word is no rule.
                let handing = |seat: &Seat| {
                    seat.node.as_ref().is_some_and(|node| node.leads().is_some() && !node.takes_commands())
                };
                if shape.forces > 0 || shape.ack == Ack::None || group.seats.iter().any(handing) || dice.below(50) > 0 {
                    return;
                }
                looked += 1;
                let faults = &all[dice.below(all.len())];
                let (seen, expected) = progress(group, &shape, faults);
                let state = brief(group, &shape);
                assert_eq!(seen, expected, "progress; seed {seed} of {shape:?} under {faults:?}\n{state}");
            });
            assert_eq!(broken, None, "{}", broken.as_deref().unwrap_or_default());
            seed += 1;
        }
        println!("{:?}, {} members: {} walks, {looked} looks for progress", shape.ack, shape.members, seed - first);
    }
}

#[test]
fn a_formed_group_goes_on_in_exactly_the_states_of_the_design() {
    for shape in shapes().iter().filter(|shape| shape.ack != Ack::None && shape.forces == 0 && !shape.burns) {
        let group = formed(shape);
        let mut counts = [0, 0];
        for faults in Faults::all(usize::from(shape.members)) {
            let (seen, expected) = progress(&group, shape, &faults);
            assert_eq!(seen, expected, "{shape:?} under {faults:?}");
            counts[usize::from(seen)] += 1;
        }
        assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}: both happen");
    }
}

/// The rule left out is missed: some walk breaks what the whole set of rules keeps.
fn missed(rule: Rule, shape: Shape) {
    let shape = Shape { left_out: Some(rule), ..shape };
    let begin = formed(&shape);
    for seed in 1..=SEEDS_MAX {
        if let Some(broken) = walk(&shape, &begin, seed, &mut |_, _| {}) {
            println!("{rule:?}: {}", broken.lines().next().unwrap_or_default());
            // And only that rule was missing.
            let whole = Shape { left_out: None, ..shape };
            assert_eq!(walk(&whole, &formed(&whole), seed, &mut |_, _| {}), None);
            return;
        }
    }
    panic!("nobody misses {rule:?} in {SEEDS_MAX} walks");
}

/// The same by search, for what a walk seldom meets and few steps lead to.
fn missed_nearby(rule: Rule, shape: Shape) {
    let shape = Shape { left_out: Some(rule), ..shape };
    let search = shape.checker().threads(2).target_state_count(STATES_MAX).finish_when(HasDiscoveries::Any);
    let search = search.spawn_bfs().join();
    let broken = search.discoveries();
    println!("{rule:?}: {:?} after {} states", broken.keys(), search.unique_state_count());
    assert!(!broken.is_empty(), "nobody misses {rule:?} in {} states", search.unique_state_count());
}

/// A bound, so that a rule that nobody misses is found out.
const SEEDS_MAX: u64 = 60_000;

const RECEIVED: Shape = Shape::pair(Ack::Received);
const DURABLE: Shape = Shape::pair(Ack::Durable);

#[test]
fn rule_1_lower_epochs_are_refused() {
    missed(Rule::Fence, DURABLE);
}

#[test]
fn rule_2_only_a_member_of_the_set_is_promoted() {
    missed(Rule::OnlyInSync, RECEIVED);
}

#[test]
fn rule_3_a_primary_takes_its_lost_standby_out_before_it_acknowledges_alone() {
    missed(Rule::ShrinkFirst, RECEIVED);
}

#[test]
fn rule_4_a_refused_change_is_refused() {
    missed(Rule::RefusedIsRefused, RECEIVED);
}

#[test]
fn rule_5_without_an_arbiter_nobody_is_promoted() {
    missed(Rule::NoArbiterNoChange, RECEIVED);
}

#[test]
fn rule_5_without_an_arbiter_a_pair_goes_on() {
    let shape = Shape { left_out: Some(Rule::ArbiterOffThePath), ..RECEIVED };
    let group = formed(&shape);
    let differs = |faults: &Faults| {
        let (seen, expected) = progress(&group, &shape, faults);
        seen != expected
    };
    assert!(Faults::all(2).iter().any(differs), "nobody misses it");
}

#[test]
fn rule_6_a_read_is_confirmed_by_the_set() {
    missed(Rule::ConfirmedReads, Shape { requests: 1, crashes: 0, suspicions: 1, reads: 2, ..RECEIVED });
}

#[test]
fn rule_7_a_diverged_tail_is_cut() {
    missed(Rule::CutTail, RECEIVED);
}

#[test]
fn rule_7_only_who_has_caught_up_is_in_the_set() {
    missed(Rule::CaughtUp, RECEIVED);
}

#[test]
fn rule_8_a_confirmation_counts_for_what_it_says() {
    missed(Rule::GradeOfAck, Shape { requests: 1, ..DURABLE });
}

#[test]
fn rule_9_a_request_sent_again_is_not_executed_again() {
    missed(Rule::Sessions, RECEIVED);
}

#[test]
fn rule_10_durable_is_durable_on_the_own_disk_too() {
    missed_nearby(Rule::OwnDisk, Shape { requests: 1, crashes: 1, suspicions: 1, ..DURABLE });
}

#[test]
fn a_member_in_another_life_does_not_count() {
    missed(Rule::Lives, RECEIVED);
}

#[test]
fn who_asks_to_be_alone_has_everything_on_its_disk() {
    missed(Rule::DurableAlone, RECEIVED);
}

#[test]
fn a_vote_is_on_the_disk_of_everybody_in_the_set_before_it_is_told() {
    for ack in [Ack::None, Ack::Received, Ack::Written] {
        missed(Rule::KeptByAll, Shape { votes: true, ..Shape::pair(ack) });
    }
}

#[test]
fn who_comes_into_the_set_has_every_vote_on_its_disk() {
    for ack in [Ack::None, Ack::Received] {
        missed(Rule::KeptByNewcomers, Shape { votes: true, ..Shape::pair(ack) });
    }
}

#[test]
fn what_was_asked_may_come_true_so_both_sets_count() {
    missed(Rule::BothSets, RECEIVED);
}

#[test]
fn what_was_refused_once_may_come_true_by_an_earlier_try() {
    missed(Rule::SureRefusal, Shape { refusals: 2, ..RECEIVED });
}

#[test]
fn who_asked_to_lead_confirms_nothing() {
    missed_nearby(Rule::SilentCandidate, Shape { requests: 1, crashes: 1, suspicions: 1, ..RECEIVED });
}
