//! Progress: faults stay as they are, everything that can be heard is heard, and then either a new command is acknowledged
//! or it is not. DESIGN says in which states it must be, and it must be in exactly those.

use assent_ids::Epoch;

use crate::group_test::{Crash, Group, Shape, Wire, member};
use crate::{Ack, Event, Node, Standing, Why};

/// What is up and who hears whom; links go both ways.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    pub(crate) up: Vec<bool>,
    pub(crate) cut: Vec<(usize, usize)>,
    pub(crate) hears_arbiter: Vec<bool>,
    /// Whether the arbiter does what it is asked for, or only answers.
    pub(crate) takes_changes: bool,
}

impl Faults {
    /// All there are.
    pub(crate) fn all(members: usize) -> Vec<Self> {
        let pairs: Vec<(usize, usize)> = (0..members).flat_map(|a| (a + 1..members).map(move |b| (a, b))).collect();
        let bits = |mask: usize, count: usize| (0..count).map(move |at| mask >> at & 1 == 1).collect::<Vec<bool>>();
        let mut all = Vec::new();
        for up in 1..1 << members {
            for cut in 0..1 << pairs.len() {
                for arbiter in 0..1 << members {
                    let cut = pairs.iter().zip(bits(cut, pairs.len())).filter(|(_, cut)| *cut).map(|(pair, _)| *pair);
                    let (up, hears_arbiter) = (bits(up, members), bits(arbiter, members));
                    let faults = Self { up, cut: cut.collect(), hears_arbiter, takes_changes: true };
                    let dead = |at: &usize| !faults.up[*at];
                    // A link of a dead member, or its way to the arbiter, makes no difference.
                    if faults.cut.iter().any(|(a, b)| dead(a) || dead(b))
                        || (0..members).any(|at| dead(&at) && faults.hears_arbiter[at])
                    {
                        continue;
                    }
                    all.push(faults);
                }
            }
        }
        all
    }

    /// Everybody is up and hears everybody.
    pub(crate) fn none(members: usize) -> Self {
        Self { up: vec![true; members], cut: Vec::new(), hears_arbiter: vec![true; members], takes_changes: true }
    }

    fn linked(&self, a: usize, b: usize) -> bool {
        self.up[a] && self.up[b] && !self.cut.contains(&(a.min(b), a.max(b)))
    }
}

const ROUNDS: usize = 24;

/// Sets the faults, loses what is under way, and lets everything else happen.
pub(crate) fn settle(group: &mut Group, shape: &Shape, faults: &Faults) {
    for round in 0..ROUNDS {
        for at in 0..group.seats.len() {
            group.step(at, Event::Tick);
            group.stream(shape, at);
            group.sync(at, true);
            for to in (0..group.seats.len()).filter(|to| *to != at) {
                if !faults.linked(at, to) || (round > ROUNDS / 3 && is_mute(group, shape, at, to)) {
                    group.step(at, Event::Silent(member(to)));
                }
            }
            if round > ROUNDS / 3 {
                group.step(at, Event::Patience);
            }
            if !faults.hears_arbiter[at] {
                group.step(at, Event::ArbiterSilent);
            }
        }
        // What answers bring about is said in the same round; a storm is no progress.
        for _ in 0..12 {
            let mut under_way = std::mem::take(&mut group.net);
            if !faults.takes_changes {
                let heard = |from: &crate::Member| faults.hears_arbiter[usize::from(from.0)];
                let is_asked = |wire: &Wire| matches!(wire, Wire::Change { from, .. } if heard(from));
                let changes: Vec<Wire> = under_way.extract_if(.., |wire| is_asked(wire)).collect();
                // What it could not do it need not refuse.
                let may =
                    |wire: &&Wire| matches!(wire, Wire::Change { expect, .. } if *expect == group.arbiter.version);
                let possible: Vec<Wire> = changes.iter().filter(may).cloned().collect();
                group.net.extend(possible);
                changes.iter().for_each(|wire| group.refuse(shape, wire));
            }
            for wire in &under_way {
                let heard = match wire {
                    Wire::Letter(letter) => faults.linked(usize::from(letter.from.0), usize::from(letter.to.0)),
                    Wire::Stream { from, to, .. } => faults.linked(usize::from(from.0), usize::from(to.0)),
                    Wire::Change { from, .. } => faults.hears_arbiter[usize::from(from.0)],
                };
                if heard {
                    group.deliver(shape, wire);
                }
            }
            for at in (0..group.seats.len()).filter(|at| faults.hears_arbiter[*at]) {
                group.tell(at);
            }
            if group.net.is_empty() {
                break;
            }
        }
    }
}

/// Whether one member does not hear of another what it waits for, although the other is up and heard.
fn is_mute(group: &Group, shape: &Shape, at: usize, to: usize) -> bool {
    let (Some(node), Some(other)) = (&group.seats[at].node, &group.seats[to].node) else { return true };
    let epoch = node.configuration().epoch;
    match node.standing() {
        Standing::Follows(primary) if usize::from(primary.0) == to => other.leads() != Some(epoch),
        Standing::Leads | Standing::Stalls(_) => {
            let is_known = node.counts_on(member(to), group.seats[to].life(shape.ack));
            other.standing() != Standing::Follows(member(at)) || other.configuration().epoch != epoch || !is_known
        }
        _ => false,
    }
}

/// A group that has formed: all up, the first member leads, everybody is in sync, nothing is under way.
pub(crate) fn formed(shape: &Shape) -> Group {
    let members = usize::from(shape.members);
    let mut group = Group::new(shape);
    for at in 0..members {
        group.start(shape, at);
    }
    settle(&mut group, shape, &Faults::none(members));
    assert_eq!(group.arbiter.in_sync.len(), members, "all in sync: {:?}", group.arbiter);
    assert_eq!((group.seats[0].node.as_ref().unwrap().leads(), group.broken), (Some(Epoch(1)), None));
    group
}

/// Whether a new command is acknowledged under these faults, and whether it should be.
pub(crate) fn progress(group: &Group, shape: &Shape, faults: &Faults) -> (bool, bool) {
    let mut group = group.clone();
    group.broken = None;
    for at in 0..group.seats.len() {
        match (group.seats[at].node.is_some(), faults.up[at]) {
            (false, true) => group.start(shape, at),
            (true, false) => group.crash(at, Crash::Kill),
            _ => {}
        }
    }
    group.net.clear();
    let expected = expected(&group, shape, faults);
    // A primary of an epoch that is over, while the only ones who could say so are dead, deaf or out of earshot: it goes on if
    // its whole set does, and what it acknowledges they all hold. Both are right.
    let over = |node: &Node| node.leads().is_some_and(|epoch| epoch < group.arbiter.epoch);
    let either = group.seats.iter().any(|seat| seat.node.as_ref().is_some_and(over));
    settle(&mut group, shape, faults);
    let before = group.acked.len();
    // The client knows all of them, and one that was deposed out of earshot takes what it will never acknowledge.
    for at in 0..group.seats.len() {
        let next = group.seats[at].log.iter().map(|entry| entry.request).max().unwrap_or(0) + 1;
        group.submit(shape, at, next);
    }
    settle(&mut group, shape, faults);
    let seen = group.acked.len() > before;
    (seen, expected || (either && seen))
}

/// DESIGN, section 8: primary and set are up and connected and no role change is needed; or the arbiter and one member of the
/// set are there that lives as it did when it was taken in; or, as a cold start, the disks of all of them.
fn expected(group: &Group, shape: &Shape, faults: &Faults) -> bool {
    let members = || 0..group.seats.len();
    let arbiter = &group.arbiter;
    let lives = |at: usize| group.seats[at].life(shape.ack);
    let leads = members().any(|at| {
        let Some(node) = group.seats[at].node.as_ref() else { return false };
        let sets = [Some(&node.configuration().in_sync), node.asked.as_ref().map(|asked| &asked.to.in_sync)];
        // Who wants to lead, and may have been heard by the arbiter, confirms nothing until it knows.
        let follows = |there: usize, other: &Node| {
            let learns = |expect: u64| faults.hears_arbiter[there] && arbiter.version > expect;
            let wants = match &other.asked {
                Some(asked) => asked.expect >= node.configuration().version && !learns(asked.expect),
                None => {
                    let unsynced = other.standing() == Standing::Waits(Why::Unsynced);
                    unsynced && !learns(other.configuration().version)
                }
            };
            !wants && other.configuration().epoch <= arbiter.epoch
        };
        node.leads().is_some()
            && node.configuration().epoch == arbiter.epoch
            && sets.into_iter().flatten().flat_map(|set| set.iter()).all(|(other, life)| {
                let there = usize::from(other.0);
                let same = lives(there) == life;
                let ready = group.seats[there].node.as_ref().is_some_and(|other| follows(there, other));
                there == at || (faults.linked(at, there) && same && ready)
            })
    });
    let led = |node: &Node| node.leads() == Some(arbiter.epoch);
    let whole = |at: usize| {
        // Who leads holds everything, whatever is recorded of its life.
        arbiter.in_sync.vouches(member(at), lives(at)) || group.seats[at].node.as_ref().is_some_and(led)
    };
    let reached = members().any(|at| faults.hears_arbiter[at] && faults.up[at] && whole(at));
    let holders: Vec<usize> = arbiter.in_sync.iter().map(|(of, _)| usize::from(of.0)).collect();
    let disk =
        |at: &usize| faults.up[*at] && arbiter.in_sync.life(member(*at)).is_some_and(|l| l.disk == lives(*at).disk);
    let cold = !holders.is_empty() && holders.iter().all(|at| disk(at) && !whole(*at)) && {
        let rank = |at: &usize| (group.seats[*at].node.as_ref().map(Node::place), *at == 0, std::cmp::Reverse(*at));
        let best = holders.iter().copied().max_by_key(rank).unwrap();
        faults.hears_arbiter[best] && holders.iter().all(|at| *at == best || faults.linked(best, *at))
    };
    // Who had heard all of them before, or had everything, may have asked by now, or asks once its log is synced.
    let chosen = members().any(|at| {
        let asks = |node: &Node| match &node.asked {
            Some(asked) => asked.expect == arbiter.version,
            None => node.standing() == Standing::Waits(Why::Unsynced) && node.configuration() == arbiter,
        };
        faults.hears_arbiter[at] && group.seats[at].node.as_ref().is_some_and(asks)
    });
    (leads || reached || cold || chosen) && shape.ack != Ack::None
}

/// A group in a few lines, for a failed test.
pub(crate) fn brief(group: &Group, shape: &Shape) -> String {
    let set = |of: &crate::Configuration| {
        let members = of.in_sync.iter().map(|(member, life)| format!("{member}:{}.{}", life.disk, life.memory));
        let primary = of.primary.map_or(9, |member| member.0);
        format!("v{} e{} p{primary} {}", of.version, of.epoch, members.collect::<Vec<_>>().join(" "))
    };
    let mut text = format!("  arbiter {} | acknowledged {:?}\n", set(&group.arbiter), group.acked.len());
    for (at, seat) in group.seats.iter().enumerate() {
        let log: Vec<String> = seat.log.iter().map(|entry| format!("{}:{}", entry.epoch, entry.request)).collect();
        let life = seat.life(shape.ack);
        let node = seat.node.as_ref().map_or("down".to_owned(), |node| {
            let asked = node.asked.as_ref().map(|asked| format!("{} -> {}", asked.expect, set(&asked.to)));
            format!("{} asked {asked:?} {:?} forgot {:?}", set(node.configuration()), node.standing(), node.forgot)
        });
        text.push_str(&format!(
            "  {at} life {}.{} log {log:?} durable {} {node}\n",
            life.disk, life.memory, seat.durable
        ));
    }
    text
}
