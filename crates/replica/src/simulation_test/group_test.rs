//! A group in simulated time: members on simulated disks, an arbiter, clients, and a network that loses, doubles, delays and cuts.
//!
//! Walk: [`Group::run`] lets happen what is due, in its order · what a member said goes on its way ([`Group::heard`]) · what goes wrong is
//! in `harm_test`, what must never be in `judge_test`.

use std::collections::{BTreeMap, BTreeSet};

use assent_membership::{Ack, Configuration, Sequence, Word};
use assent_sim::Rng;

use super::play_test::{Play, Stage};
use super::seat_test::{Said, Seat};
use super::shape_test::Shape;
use crate::{Chain, Front as _, Input, Message};

/// What is going to happen.
#[derive(Clone, Debug)]
pub(super) enum Happening {
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
        input: Input,
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
pub(super) enum Mended {
    Link(usize, usize),
    Arbiter(usize),
}

pub struct Group<P: Play> {
    pub shape: Shape,
    pub play: P,
    pub now_ms: u64,
    pub(super) rng: Rng,
    pub(super) happenings: BTreeMap<(u64, u64), Happening>,
    pub(super) count: u64,
    pub seats: Vec<Seat<P>>,
    pub arbiter: Configuration,
    /// The arbiter's disk is full: it answers, and does nothing.
    pub is_full: bool,
    pub(super) cut_links: BTreeSet<(usize, usize)>,
    pub(super) cut_arbiter: BTreeSet<usize>,
    pub(super) paused_until_ms: Vec<u64>,
    pub(super) disk_planned: Vec<[bool; 2]>,
    /// Disks that never get round to it.
    pub stuck_disks: BTreeSet<usize>,
    /// Of a thousand messages, how many are lost and doubled.
    pub(super) loss: u64,
    pub(super) faults: bool,
    /// What was applied anywhere, by its number: one history.
    pub(super) decided: BTreeMap<Sequence, Chain>,
    pub(super) led: BTreeMap<u32, usize>,
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
            is_full: false,
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

    pub(super) fn word(&mut self, at: usize, word: Word) {
        let said = self.seats[at].word(&self.shape, self.now_ms, word);
        self.heard(at, said);
    }

    pub(super) fn plan(&mut self, in_ms: u64, happening: Happening) {
        self.count += 1;
        // Of one moment, anything may come first.
        let order = (self.rng.below(1 << 20) << 40) + self.count;
        self.happenings.insert((self.now_ms + in_ms, order), happening);
    }

    pub(super) fn start(&mut self, at: usize) {
        let shape = self.shape.clone();
        let said = self.seats[at].start(&mut self.play, &shape, self.now_ms);
        self.look_at_votes();
        self.heard(at, said);
        self.plan(1, Happening::Due(at));
    }

    pub(super) fn step(&mut self, at: usize, input: Input) {
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
                self.answer(from, Input::Arbiter(held));
            }
            Happening::Change { from, expect, to } if self.is_full && self.arbiter.version == expect => {
                self.answer(from, Input::Refused { expect, to })
            }
            Happening::Change { from, expect, to } => {
                if self.arbiter.version == expect && to.version > expect {
                    self.arbiter = to;
                    self.look_at_votes();
                }
                let held = self.arbiter.clone();
                self.answer(from, Input::Arbiter(held));
            }
            Happening::Answer { to, input } => self.hear_arbiter(to, input),
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

    /// A refusal is told when nothing else that was asked may still arrive, and be done.
    fn hear_arbiter(&mut self, to: usize, input: Input) {
        let is_open = |happening: &Happening, version: u64| matches!(happening, Happening::Change { from, expect, .. } if *from == to && *expect >= version);
        let input = match input {
            Input::Refused { expect, .. } if self.happenings.values().any(|one| is_open(one, expect)) => Input::Time,
            input => input,
        };
        self.step(to, input);
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

    pub(super) fn is_lost(&mut self) -> bool {
        self.rng.below(1_000) < self.loss
    }

    fn answer(&mut self, to: usize, input: Input) {
        let is_heard = !self.is_lost() && !self.cut_arbiter.contains(&to);
        let input = if is_heard { input } else { Input::ArbiterSilent };
        let later = if is_heard { self.rng.range(1..6) } else { 50 };
        self.plan(later, Happening::Answer { to, input });
    }

    fn ask(&mut self, from: usize, question: Happening) {
        if self.is_lost() || self.cut_arbiter.contains(&from) {
            return self.plan(50, Happening::Answer { to: from, input: Input::ArbiterSilent });
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
}
