//! Who plays in a group: a machine, what sits on its members' desks, and those who ask them; and how a seed is played.
//!
//! Walk: a [`Play`] says which machine its members have and what their clients do, each on a [`Stage`] · [`play`] lets a seed begin, go
//! wrong and heal · [`gate`] plays as many seeds as it is told.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::Duration;

use assent_membership::{Member, Sequence};
use assent_sim::{Rng, SimClock};
use assent_world::{Clock as _, RealClock};

use super::group_test::Group;
use super::seat_test::Seat;
use super::shape_test::Shape;
use super::up_test::Up;
use crate::{Entry, Front, Machine, Mark};

/// As many seeds as a gate plays where nobody says otherwise.
pub const SEEDS: u64 = 2_000;

/// A machine, what sits on the desks of its members, and those who ask them.
pub trait Play: Sized {
    /// What the log leads to.
    type Machine: Machine;
    /// What sits on a member's desk.
    type Front: Front<Self::Machine>;

    /// One before its first command.
    fn machine(&self) -> Self::Machine;

    /// Of a member that starts: what it was told in an earlier life is gone.
    fn front(&mut self, member: Member, clock: &SimClock) -> Self::Front;

    /// How many there are who ask.
    fn clients(&self) -> u8;

    /// One of them has its turn; whom it has asked comes back. What was broken, if it sees that.
    fn client(&mut self, client: u8, stage: &mut Stage<'_, Self>) -> Result<Option<usize>, String>;

    /// An entry was executed at a member; by nobody before, if it is the first. What is wrong with the answer.
    fn executed(&mut self, member: Member, entry: &Entry, answer: &[u8], is_first: bool) -> Result<(), String>;

    /// A caller's command was answered.
    fn told(&mut self, entry: Mark, command: &[u8], answer: &[u8]) {
        _ = (entry, command, answer);
    }

    /// A caller's vote is told.
    fn kept(&mut self, entry: Mark) {
        _ = entry;
    }

    /// The last vote that was told to anybody: it must be on the disk of everybody in the set.
    fn voted(&self) -> Sequence;

    /// How much was acknowledged, and the last entry of it that is known.
    fn acknowledged(&self) -> (usize, Sequence);

    /// Nobody begins anything any more.
    fn quiet(&mut self);

    /// Whether everything that was begun has its end.
    fn is_idle(&self) -> bool;

    /// What clients were told is there, once.
    fn audit(&self, member: Member, machine: &Self::Machine) -> Result<(), String>;
}

/// What a client finds when it has its turn.
pub struct Stage<'a, P: Play> {
    pub seats: &'a mut [Seat<P>],
    pub rng: &'a mut Rng,
    pub now_ms: u64,
    /// Whether things go wrong.
    pub faults: bool,
    pub(super) paused_until_ms: &'a [u64],
}

impl<P: Play> Stage<'_, P> {
    /// The member, if it is up and not asleep.
    pub fn awake(&mut self, at: usize) -> Option<&mut Up<P>> {
        if self.paused_until_ms[at] > self.now_ms {
            return None;
        }
        self.seats[at].up.as_mut()
    }
}

/// What a seed, or many of them, have seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub acked: u64,
    pub reads: u64,
    pub crashes: u64,
    pub burns: u64,
    pub hand_overs: u64,
    pub installs: u64,
    pub epochs: u64,
}

/// Plays a seed; the answer is what it saw and who played, or what was broken.
pub fn play<P: Play>(shape: &Shape, seed: u64, who: P) -> Result<(Seen, P), String> {
    let mut group = Group::new(shape, seed, who);
    let told = |group: &Group<P>, what: &str| format!("seed {seed} of {shape:?}: {what}\n{}", group.brief());
    let check = |group: &Group<P>| group.broken.as_ref().map_or(Ok(()), |broken| Err(told(group, broken)));
    group.run(500);
    check(&group)?;
    group.begin_faults();
    group.run(2_500);
    check(&group)?;
    group.end_faults();
    let before = group.play.acknowledged().0;
    group.run(3_000);
    check(&group)?;
    if group.play.acknowledged().0 <= before {
        return Err(told(&group, "nothing is acknowledged any more"));
    }
    group.play.quiet();
    for _ in 0..30 {
        group.run(100);
        check(&group)?;
        if group.is_healed() {
            break;
        }
    }
    if !group.is_healed() {
        return Err(told(&group, "it does not heal"));
    }
    group.audit();
    check(&group)?;
    let seen = Seen {
        acked: group.play.acknowledged().0 as u64,
        reads: group.reads,
        crashes: group.crashes,
        burns: group.burns,
        hand_overs: group.hand_overs,
        installs: group.installs,
        epochs: u64::from(group.arbiter.epoch.0),
    };
    Ok((seen, group.play))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.trim().parse().ok())
}

/// Plays [`SEEDS`] seeds, in at most so many seconds, each processor some of them; `make sim SEEDS=number` says otherwise. How many were
/// played, and what they saw.
pub fn gate<P: Play + Send>(
    seconds: u64,
    who: impl Fn(&Shape, u64) -> P + Sync,
    mut each: impl FnMut(P),
) -> (u64, Seen) {
    let first = number("ASSENT_SIM_SEED").unwrap_or(1);
    let (seeds, limit) = match number("ASSENT_SIM_SEEDS") {
        Some(seeds) => (seeds, Duration::MAX),
        None => (SEEDS, Duration::from_secs(seconds)),
    };
    let (begun, next) = (RealClock.now(), AtomicU64::new(0));
    let (ended, all_ended) = mpsc::sync_channel(0);
    let turns = |ended: SyncSender<Result<(Seen, P), String>>| loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        // At least some, however loaded the machine is.
        if at >= seeds || (at >= 60 && RealClock.now().since(begun) >= limit) {
            return;
        }
        let (seed, shape) = (first + at, Shape::of(first + at));
        if ended.send(play(&shape, seed, who(&shape, seed))).is_err() {
            // One that was broken has been told.
            return;
        }
    };
    let (mut played, mut all) = (0, Seen::default());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZeroUsize::get) {
            let ended = ended.clone();
            scope.spawn(|| turns(ended));
        }
        drop(ended);
        for one in all_ended {
            let (seen, who) = one.unwrap_or_else(|broken| panic!("{broken}"));
            each(who);
            all.acked += seen.acked;
            all.reads += seen.reads;
            all.crashes += seen.crashes;
            all.burns += seen.burns;
            all.hand_overs += seen.hand_overs;
            all.installs += seen.installs;
            all.epochs += seen.epochs;
            played += 1;
        }
    });
    println!("{played} seeds from {first} in {:?}: {all:?}", RealClock.now().since(begun));
    (played, all)
}
