//! A group in simulated time: members on simulated disks, an arbiter, clients, and a network that loses, doubles, delays and cuts.
//! What must never be is looked for at every step.
//!
//! Walk: a [`Play`] says which machine its members have and what their clients do · [`play`] lets a seed begin, go wrong and heal ·
//! [`gate`] plays as many seeds as it is told · [`Group`] by hand.

use std::collections::{BTreeMap, BTreeSet};

use std::time::Duration;

use assent_membership::{Ack, Configuration, InSync, Member, Sequence, Standing, Word};
use assent_sim::{Rng, SimClock};
use assent_world::{Clock as _, RealClock};

use super::seat_test::{Said, Seat, Shape, Up};
use crate::{Chain, Entry, Front, Input, Machine, Mark, Message};

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
    paused_until_ms: &'a [u64],
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

/// Plays [`SEEDS`] seeds, in at most so many seconds; `make sim SEEDS=number` says otherwise. How many were played, and what they saw.
pub fn gate<P: Play>(seconds: u64, who: impl Fn(&Shape, u64) -> P, mut each: impl FnMut(P)) -> (u64, Seen) {
    let first = number("ASSENT_SIM_SEED").unwrap_or(1);
    let (seeds, limit) = match number("ASSENT_SIM_SEEDS") {
        Some(seeds) => (seeds, Duration::MAX),
        None => (SEEDS, Duration::from_secs(seconds)),
    };
    let begun = RealClock.now();
    let (mut played, mut all) = (0, Seen::default());
    // At least some, however loaded the machine is.
    while played < seeds && (played < 60 || RealClock.now().since(begun) < limit) {
        let (seed, shape) = (first + played, Shape::of(first + played));
        let (seen, who) = play(&shape, seed, who(&shape, seed)).unwrap_or_else(|broken| panic!("{broken}"));
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
    println!("{played} seeds from {first} in {:?}: {all:?}", RealClock.now().since(begun));
    (played, all)
}

/// What is going to happen.
#[derive(Clone, Debug)]
enum Happening {
    /// A message arrives: bytes, as they were laid.
    Message {
        from: usize,
        to: usize,
        bytes: Vec<u8>,
    },
    /// A question arrives at the arbiter.
    Read(usize),
    Change {
        from: usize,
        expect: u64,
        to: Configuration,
    },
    /// Its answer arrives, or none.
    Answer {
        to: usize,
        configuration: Option<Configuration>,
    },
    /// A member's clock says that something is due.
    Due(usize),
    /// A disk gets round to it.
    Disk {
        at: usize,
        to_disk: bool,
    },
    Client(u8),
    Snapshot(usize),
    Snapped(usize),
    Loaded(usize),
    Fault,
    Start(usize),
    Mend(Mended),
}

#[derive(Clone, Copy, Debug)]
enum Mended {
    Link(usize, usize),
    Arbiter(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    /// The process: what reached the kernel stays.
    Kill,
    /// The machine: what reached the disk stays.
    Power,
    /// The disk too.
    Burn,
}

pub struct Group<P: Play> {
    pub shape: Shape,
    pub play: P,
    pub now_ms: u64,
    rng: Rng,
    happenings: BTreeMap<(u64, u64), Happening>,
    count: u64,
    pub seats: Vec<Seat<P>>,
    pub arbiter: Configuration,
    cut_links: BTreeSet<(usize, usize)>,
    cut_arbiter: BTreeSet<usize>,
    paused_until_ms: Vec<u64>,
    disk_planned: Vec<[bool; 2]>,
    /// Disks that never get round to it.
    pub stuck_disks: BTreeSet<usize>,
    /// Of a thousand messages, how many are lost and doubled.
    loss: u64,
    faults: bool,
    /// What was applied anywhere, by its number: one history.
    decided: BTreeMap<Sequence, Chain>,
    led: BTreeMap<u32, usize>,
    pub reads: u64,
    pub crashes: u64,
    pub burns: u64,
    pub hand_overs: u64,
    pub installs: u64,
    pub broken: Option<String>,
}

impl<P: Play> Group<P> {
    pub fn new(shape: &Shape, seed: u64, play: P) -> Self {
        let mut rng = Rng::new(seed);
        let mut seats: Vec<Seat<P>> = (0..shape.members).map(|me| Seat::new(me, seed)).collect();
        for seat in &mut seats {
            // Clocks run up to 5 % off, and show anything.
            seat.rate = rng.range(952..1_050);
            seat.offset_ms = rng.below(1_000_000);
        }
        let members = seats.len();
        let mut group = Self {
            shape: shape.clone(),
            play,
            now_ms: 0,
            rng,
            happenings: BTreeMap::new(),
            count: 0,
            seats,
            arbiter: Configuration::default(),
            cut_links: BTreeSet::new(),
            cut_arbiter: BTreeSet::new(),
            paused_until_ms: vec![0; members],
            disk_planned: vec![[false; 2]; members],
            stuck_disks: BTreeSet::new(),
            loss: 0,
            faults: false,
            decided: BTreeMap::new(),
            led: BTreeMap::new(),
            reads: 0,
            crashes: 0,
            burns: 0,
            hand_overs: 0,
            installs: 0,
            broken: None,
        };
        for at in 0..members {
            group.start(at);
            let later = group.rng.range(shape.pause_ms.clone());
            group.plan(later, Happening::Snapshot(at));
        }
        for client in 0..group.play.clients() {
            group.plan(5, Happening::Client(client));
        }
        group
    }

    /// From now on things go wrong.
    pub fn begin_faults(&mut self) {
        self.faults = true;
        self.loss = self.rng.below(60);
        self.plan(1, Happening::Fault);
    }

    /// From now on nothing goes wrong, and what did is mended.
    pub fn end_faults(&mut self) {
        self.faults = false;
        self.loss = 0;
        self.cut_links.clear();
        self.cut_arbiter.clear();
        self.paused_until_ms.fill(self.now_ms);
        for at in 0..self.seats.len() {
            self.word(at, Word::Out(false));
            if self.seats[at].up.is_none() {
                self.plan(1, Happening::Start(at));
            }
        }
    }

    /// Lets time pass.
    pub fn run(&mut self, for_ms: u64) {
        let until = self.now_ms + for_ms;
        while self.broken.is_none()
            && let Some(entry) = self.happenings.first_entry().filter(|entry| entry.key().0 <= until)
        {
            let ((at_ms, _), happening) = entry.remove_entry();
            self.now_ms = self.now_ms.max(at_ms);
            self.happen(happening);
        }
        self.now_ms = until;
    }

    fn word(&mut self, at: usize, word: Word) {
        let said = self.seats[at].word(&self.shape, self.now_ms, word);
        self.heard(at, said);
    }

    /// A member sleeps for so long.
    pub fn pause(&mut self, at: usize, for_ms: u64) {
        self.paused_until_ms[at] = self.now_ms + for_ms;
    }

    /// A member's process dies, or its machine, and comes back.
    pub fn crash(&mut self, at: usize, power: Option<u64>, back_in_ms: u64) {
        self.seats[at].crash(power);
        self.plan(back_in_ms, Happening::Start(at));
    }

    /// Nobody hears of a member, and it hears of nobody, for so long.
    pub fn cut_off(&mut self, at: usize, arbiter: bool, for_ms: u64) {
        for other in (0..self.seats.len()).filter(|other| *other != at) {
            for (from, to) in [(at, other), (other, at)] {
                self.cut_links.insert((from, to));
                self.plan(for_ms, Happening::Mend(Mended::Link(from, to)));
            }
        }
        if arbiter {
            self.cut_arbiter.insert(at);
            self.plan(for_ms, Happening::Mend(Mended::Arbiter(at)));
        }
    }

    /// Whether everybody is up, in sync, and has applied the same.
    pub fn is_healed(&self) -> bool {
        let mut applied = self.seats.iter().map(|seat| seat.up.as_ref().map(|up| (up.applied, up.machine.hash())));
        let first = applied.next().flatten();
        self.play.is_idle()
            && first.is_some_and(|(end, _)| end.sequence >= self.play.acknowledged().1)
            && applied.all(|other| other == first)
            && self.arbiter.in_sync.len() == self.seats.len()
            && self.seats.iter().any(|seat| seat.up.as_ref().is_some_and(|up| up.replica.standing() == Standing::Leads))
    }

    /// What clients were told is there, and every request was executed once.
    pub fn audit(&mut self) {
        for (member, up) in self.seats.iter().filter_map(|seat| Some((seat.me, seat.up.as_ref()?))) {
            if let Err(broken) = self.play.audit(member, &up.machine) {
                self.broken = Some(broken);
            }
        }
    }

    fn plan(&mut self, in_ms: u64, happening: Happening) {
        self.count += 1;
        // Of one moment, anything may come first.
        let order = (self.rng.below(1 << 20) << 40) + self.count;
        self.happenings.insert((self.now_ms + in_ms, order), happening);
    }

    fn start(&mut self, at: usize) {
        let shape = self.shape.clone();
        let said = self.seats[at].start(&mut self.play, &shape, self.now_ms);
        self.look_at_votes();
        self.heard(at, said);
        self.plan(1, Happening::Due(at));
    }

    fn step(&mut self, at: usize, input: Input) {
        let said = self.seats[at].step(&self.shape, self.now_ms, input);
        self.heard(at, said);
    }

    fn happen(&mut self, happening: Happening) {
        // Who is paused hears of it later.
        let whose = match &happening {
            Happening::Message { to, .. } | Happening::Answer { to, .. } => Some(*to),
            Happening::Due(at) | Happening::Disk { at, .. } | Happening::Snapshot(at) => Some(*at),
            Happening::Snapped(at) | Happening::Loaded(at) => Some(*at),
            _ => None,
        };
        if let Some(until) = whose.map(|at| self.paused_until_ms[at]).filter(|until| *until > self.now_ms) {
            let later = until - self.now_ms;
            return self.plan(later, happening);
        }
        match happening {
            Happening::Message { from, to, bytes } => {
                if !self.cut_links.contains(&(from, to)) {
                    let (message, used) = Message::read(&bytes).unwrap().unwrap();
                    assert_eq!(used, bytes.len());
                    self.step(to, Input::Heard(message));
                }
            }
            Happening::Read(from) => {
                let held = self.arbiter.clone();
                self.answer(from, held);
            }
            Happening::Change { from, expect, to } => {
                if self.arbiter.version == expect && to.version > expect {
                    self.arbiter = to;
                    self.look_at_votes();
                }
                let held = self.arbiter.clone();
                self.answer(from, held);
            }
            Happening::Answer { to, configuration } => {
                let input = configuration.map_or(Input::ArbiterSilent, Input::Arbiter);
                self.step(to, input);
            }
            Happening::Due(at) => {
                if let Some(up) = &self.seats[at].up {
                    let (seat, due) = (&self.seats[at], up.replica.due_ms());
                    let time = seat.time(self.now_ms);
                    if due <= time || up.front.pause().is_some() {
                        self.step(at, Input::Time);
                    }
                    self.plan(5, Happening::Due(at));
                }
            }
            Happening::Disk { at, to_disk } => {
                self.disk_planned[at][usize::from(to_disk)] = false;
                if self.stuck_disks.contains(&at) {
                    return;
                }
                let said = self.seats[at].disk_works(&self.shape, self.now_ms, to_disk);
                self.heard(at, said);
            }
            Happening::Client(client) => self.client(client),
            Happening::Snapshot(_) | Happening::Snapped(_) | Happening::Loaded(_) => self.snapshots(&happening),
            Happening::Fault => self.fault(),
            Happening::Start(at) => {
                if self.seats[at].up.is_none() {
                    self.start(at);
                }
            }
            Happening::Mend(Mended::Link(from, to)) => _ = self.cut_links.remove(&(from, to)),
            Happening::Mend(Mended::Arbiter(at)) => _ = self.cut_arbiter.remove(&at),
        }
    }

    fn snapshots(&mut self, happening: &Happening) {
        let (at, said) = match *happening {
            Happening::Snapshot(at) => {
                if self.seats[at].snap() {
                    let later = self.rng.range(self.shape.snapshot_ms.clone());
                    self.plan(later, Happening::Snapped(at));
                }
                let later = self.rng.range(self.shape.pause_ms.clone());
                return self.plan(later, Happening::Snapshot(at));
            }
            Happening::Snapped(at) => (at, self.seats[at].snapped(&self.shape, self.now_ms)),
            Happening::Loaded(at) => (at, self.seats[at].was_loaded(&self.shape, self.now_ms)),
            _ => return,
        };
        self.heard(at, said);
    }

    fn is_lost(&mut self) -> bool {
        self.rng.below(1_000) < self.loss
    }

    fn answer(&mut self, to: usize, held: Configuration) {
        let configuration = (!self.is_lost() && !self.cut_arbiter.contains(&to)).then_some(held);
        let later = if configuration.is_some() { self.rng.range(1..6) } else { 50 };
        self.plan(later, Happening::Answer { to, configuration });
    }

    fn ask(&mut self, from: usize, question: Happening) {
        if self.is_lost() || self.cut_arbiter.contains(&from) {
            return self.plan(50, Happening::Answer { to: from, configuration: None });
        }
        // Now and then one is late, and comes when nobody expects it any more.
        let later =
            if self.faults && self.rng.below(30) == 0 { self.rng.range(100..600) } else { self.rng.range(1..6) };
        self.plan(later, question);
    }

    /// What a member said goes on its way.
    fn heard(&mut self, at: usize, said: Vec<Said>) {
        let loading = self.seats[at].up.as_ref().is_some_and(|up| up.loading.is_some());
        if loading && !self.happenings.values().any(|one| matches!(one, Happening::Loaded(of) if *of == at)) {
            let later = self.rng.range(self.shape.snapshot_ms.clone());
            self.plan(later, Happening::Loaded(at));
        }
        for said in said {
            match said {
                Said::Message(message) => {
                    let to = usize::from(message.to.0);
                    let mut bytes = Vec::new();
                    message.lay(&mut bytes);
                    for _ in 0..1 + u64::from(self.is_lost()) {
                        if self.is_lost() || self.cut_links.contains(&(at, to)) {
                            continue;
                        }
                        let late = self.faults && self.rng.below(40) == 0;
                        let later = if late { self.rng.range(20..400) } else { self.rng.range(1..4) };
                        self.plan(later, Happening::Message { from: at, to, bytes: bytes.clone() });
                    }
                }
                Said::Read => self.ask(at, Happening::Read(at)),
                Said::Change { expect, to } => self.ask(at, Happening::Change { from: at, expect, to }),
                Said::Applied { entry, answer, is_awaited } => self.applied(at, &entry, &answer, is_awaited),
                Said::Voted { entry, command, answer } => {
                    self.play.kept(entry);
                    self.look_at_votes();
                    self.answered(entry, &command, &answer);
                }
                Said::Answered { seen, must } => {
                    self.reads += 1;
                    if seen < must && self.shape.ack != Ack::None {
                        self.broken =
                            Some(format!("a read at {at} saw entry {seen}, and {must} had been acknowledged"));
                    }
                }
                Said::Halted(fault) => self.broken = Some(format!("member {at} halts: {fault}")),
                Said::Leads(epoch) => {
                    if let Some(other) = self.led.insert(epoch.0, at) {
                        self.broken = Some(format!("epoch {epoch} is led by {other} and again by {at}"));
                    }
                }
                Said::Broken(broken) => self.broken = Some(format!("member {at}: {broken}")),
                Said::Installed => self.installs += 1,
            }
        }
        self.plan_disk(at);
    }

    /// The disk writes and syncs when it likes, sooner when it is asked.
    fn plan_disk(&mut self, at: usize) {
        let Some(up) = &self.seats[at].up else { return };
        let (end, (written, durable), up_wants_sync) = (up.log.end().sequence, up.log.held(), up.wants_sync);
        let asked = up_wants_sync || self.shape.ack == Ack::Durable;
        if written < end && self.shape.ack == Ack::Written {
            self.plan_disk_once(at, false, 1..5);
        }
        if durable < end || up_wants_sync {
            self.plan_disk_once(at, true, if asked { 1..6 } else { 10..90 });
        }
    }

    fn plan_disk_once(&mut self, at: usize, to_disk: bool, in_ms: std::ops::Range<u64>) {
        let planned = &mut self.disk_planned[at][usize::from(to_disk)];
        if !std::mem::replace(planned, true) {
            let later = self.rng.range(in_ms);
            self.plan(later, Happening::Disk { at, to_disk });
        }
    }

    fn applied(&mut self, at: usize, entry: &Entry, answer: &[u8], is_awaited: bool) {
        let lossy = self.shape.ack == Ack::None;
        let before = self.decided.insert(entry.sequence, entry.chain);
        if before.is_some_and(|before| before != entry.chain) && !lossy {
            self.broken = Some(format!("member {at} applies another entry {} than somebody else did", entry.sequence));
        } else if let Err(broken) = self.play.executed(self.seats[at].me, entry, answer, before.is_none()) {
            self.broken = Some(format!("entry {} at member {at}: {broken}", entry.sequence));
        }
        if is_awaited {
            self.answered(entry.mark(), &entry.payload, answer);
        }
    }

    fn answered(&mut self, entry: Mark, command: &[u8], answer: &[u8]) {
        if !self.is_lost() {
            self.play.told(entry, command, answer);
        }
    }

    /// Every vote that was told is on the disk of everybody in the recorded set; whose disk is another one does not count.
    fn look_at_votes(&mut self) {
        let voted = self.play.voted();
        let lacks = |seat: &Seat<P>| {
            let counts = self.arbiter.in_sync.life(seat.me).is_some_and(|life| life.disk == seat.life.disk);
            let held = seat.up.as_ref().map(|up| up.log.held().1);
            held.filter(|held| counts && *held < voted).map(|held| (seat.me, held))
        };
        if let Some((member, held)) = self.seats.iter().find_map(lacks) {
            self.broken = Some(format!("vote {voted} was told; member {member} of the set has {held} on its disk"));
        }
    }

    fn client(&mut self, client: u8) {
        let mut stage = Stage {
            seats: &mut self.seats,
            rng: &mut self.rng,
            now_ms: self.now_ms,
            faults: self.faults,
            paused_until_ms: &self.paused_until_ms,
        };
        match self.play.client(client, &mut stage) {
            Ok(Some(at)) if self.paused_until_ms[at] <= self.now_ms => self.step(at, Input::Time),
            Ok(_) => {}
            Err(broken) => self.broken = Some(format!("client {client}: {broken}")),
        }
        self.look_at_votes();
        let later = self.rng.range(3..15);
        self.plan(later, Happening::Client(client));
    }

    fn fault(&mut self) {
        if !self.faults {
            return;
        }
        let members = self.seats.len();
        let (at, other) = (self.rng.index(members), self.rng.index(members));
        match self.rng.below(18) {
            14 | 15 if at != other => {
                self.hand_overs += 1;
                self.word(at, Word::HandOver(Member(u8::try_from(other).unwrap())));
            }
            16 => {
                let out = self.rng.below(2) == 0;
                self.word(at, Word::Out(out));
            }
            17 => {
                if self.seats[at].up.is_some() && self.is_survived(at, Crash::Burn) {
                    self.burns += 1;
                    self.seats[at].burn();
                    let later = self.rng.range(1..500);
                    self.plan(later, Happening::Start(at));
                }
            }
            12 | 13 => {
                // Cut off from everybody; those that had a connection notice at once, or not.
                let length = self.rng.range(20..600);
                self.cut_off(at, self.rng.clone().below(2) == 0, length);
                if at != other && self.rng.below(2) == 0 {
                    self.lose(at, other);
                }
            }
            10 | 11 if at != other => self.lose(at, other),
            0..=2 => {
                let power = (self.rng.below(2) == 0).then(|| self.rng.roll());
                let how = if power.is_some() { Crash::Power } else { Crash::Kill };
                if self.seats[at].up.is_some() && self.is_survived(at, how) {
                    self.crashes += 1;
                    self.seats[at].crash(power);
                    let later = self.rng.range(1..500);
                    self.plan(later, Happening::Start(at));
                }
            }
            3 | 4 => {
                let length = self.rng.range(20..400);
                self.paused_until_ms[at] = self.now_ms + length;
            }
            5 | 6 if at != other => {
                for (from, to) in
                    if self.rng.below(2) == 0 { vec![(at, other)] } else { vec![(at, other), (other, at)] }
                {
                    self.cut_links.insert((from, to));
                    let later = self.rng.range(20..600);
                    self.plan(later, Happening::Mend(Mended::Link(from, to)));
                }
            }
            7 | 8 => {
                self.cut_arbiter.insert(at);
                let later = self.rng.range(20..600);
                self.plan(later, Happening::Mend(Mended::Arbiter(at)));
            }
            _ => self.loss = self.rng.below(100),
        }
        let later = self.rng.range(10..150);
        self.plan(later, Happening::Fault);
    }

    /// A connection breaks, at one end or both, although both members are well; and there is a new one.
    fn lose(&mut self, at: usize, other: usize) {
        let member = |at: usize| Member(u8::try_from(at).unwrap());
        let ends = if self.rng.below(2) == 0 { vec![(at, other)] } else { vec![(at, other), (other, at)] };
        for (end, of) in
            ends.iter().copied().filter(|(end, _)| self.paused_until_ms[*end] <= self.now_ms).collect::<Vec<_>>()
        {
            self.step(end, Input::Lost(member(of)));
            self.step(end, Input::Connected(member(of)));
        }
    }

    /// Whether the mode promises to lose nothing by this crash, after all that has gone before: by every set that counts, or may
    /// count any moment.
    fn is_survived(&self, at: usize, how: Crash) -> bool {
        let under_way = self.happenings.values().filter_map(|happening| match happening {
            Happening::Change { expect, to, .. } if *expect >= self.arbiter.version => Some(&to.in_sync),
            _ => None,
        });
        let counted =
            self.seats.iter().filter_map(|seat| seat.up.as_ref()).flat_map(|up| up.replica.membership().sets());
        std::iter::once(&self.arbiter.in_sync)
            .chain(under_way)
            .chain(counted)
            .all(|set| self.is_survived_by(at, how, set))
    }

    fn is_survived_by(&self, at: usize, how: Crash, set: &InSync) -> bool {
        let me = Member(u8::try_from(at).unwrap());
        let kept = match (self.shape.ack, how) {
            (_, Crash::Burn) => false,
            (Ack::None | Ack::Durable, _) | (Ack::Written, Crash::Kill) => true,
            _ => set.is_only(me),
        };
        kept || set.life(me).is_none()
            || set.iter().any(|(member, life)| {
                let seat = &self.seats[usize::from(member.0)];
                member != me && seat.up.is_some() && seat.life == life
            })
    }

    /// The group in a few lines, for a failed seed.
    pub fn brief(&self) -> String {
        let mut text =
            format!("{} ms; arbiter {:?}; acknowledged {:?}\n", self.now_ms, self.arbiter, self.play.acknowledged());
        for seat in &self.seats {
            let Some(up) = &seat.up else {
                text.push_str(&format!("  {} is down\n", seat.me));
                continue;
            };
            let (known, end) = (up.replica.configuration(), up.replica.end().sequence);
            text.push_str(&format!(
                "  {} unconfirmed {} life {:?} v{} e{} {:?} end {end} confirmed {} applied {} base {}\n",
                seat.me,
                up.replica.recent.unconfirmed_bytes(),
                seat.life,
                known.version,
                known.epoch,
                up.replica.standing(),
                up.replica.confirmed(),
                up.applied.sequence,
                up.shelf.base().end.sequence,
            ));
        }
        text
    }
}
