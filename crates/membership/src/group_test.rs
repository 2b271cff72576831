//! A group of members as the model check sees it: logs, disks, an arbiter, and a network that keeps every message for ever.
//!
//! A message once sent can be delivered at any later time, any number of times, or never: that is loss, duplication,
//! reordering and a pause in one. Members crash, with what the mode says they may lose, and start again. Their logs are
//! real here, so that what was acknowledged can be looked for.

use std::collections::{BTreeMap, BTreeSet};

use assent_ids::Epoch;

use crate::rules::Rule;
use crate::{
    Ack, Action, Admission, Body, Configuration, Event, History, InSync, Letter, Life, Member, Node, Reach, Sequence,
    Sessions, Setup, Word,
};

/// One command: who wrote it, and which request of the one client it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Entry {
    pub(crate) epoch: u32,
    pub(crate) request: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Wire {
    Letter(Letter),
    /// The primary's log, as far as it goes.
    Stream {
        from: Member,
        to: Member,
        epoch: Epoch,
        log: Vec<Entry>,
    },
    /// A compare-and-set on its way to the arbiter, and in which start of which disk it was asked.
    Change {
        from: Member,
        asker: (u64, u64),
        expect: u64,
        to: Configuration,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Crash {
    /// The process: what reached the kernel stays.
    Kill,
    /// The machine: what reached the disk stays.
    Power,
    /// The disk too.
    Burn,
    /// Its folder is an older copy of what it was.
    Back,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seat {
    /// None while it is down.
    pub(crate) node: Option<Node>,
    pub(crate) log: Vec<Entry>,
    pub(crate) written: usize,
    pub(crate) durable: usize,
    pub(crate) kept: Configuration,
    pub(crate) starts: u64,
    pub(crate) boots: u64,
    /// How often its folder went back in time: what tells apart the lives that have one number.
    pub(crate) back: u64,
    pub(crate) disk: u64,
    pub(crate) released: usize,
}

/// What is checked, and how far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) members: u8,
    pub(crate) ack: Ack,
    pub(crate) left_out: Option<Rule>,
    pub(crate) requests: u8,
    pub(crate) crashes: u8,
    /// Silences that are noticed, true or false.
    pub(crate) suspicions: u8,
    pub(crate) reads: u8,
    pub(crate) hand_overs: u8,
    pub(crate) forces: u8,
    /// Changes that the arbiter answers and does not do.
    pub(crate) refusals: u8,
    pub(crate) burns: bool,
    /// Each answer waits until its command is on every disk that counts, as those of votes do.
    pub(crate) votes: bool,
}

impl Shape {
    pub(crate) const fn pair(ack: Ack) -> Self {
        Self {
            members: 2,
            ack,
            left_out: None,
            requests: 2,
            crashes: 2,
            suspicions: 2,
            reads: 0,
            hand_overs: 0,
            forces: 0,
            refusals: 0,
            burns: false,
            votes: false,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Spent {
    pub(crate) requests: u8,
    pub(crate) crashes: u8,
    pub(crate) suspicions: u8,
    pub(crate) reads: u8,
    pub(crate) hand_overs: u8,
    pub(crate) forces: u8,
    pub(crate) refusals: u8,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Group {
    pub(crate) arbiter: Configuration,
    pub(crate) seats: Vec<Seat>,
    pub(crate) net: BTreeSet<Wire>,
    /// What clients were told is done, in its order.
    pub(crate) acked: Vec<Entry>,
    /// What they were told is on every disk that counts.
    kept: Vec<Entry>,
    /// Who led which epoch.
    led: BTreeMap<u32, Member>,
    /// Which epochs a person began.
    forced: BTreeSet<u32>,
    /// Who reads, with which beat, and how much was acknowledged when the read was asked.
    reads: Vec<(Member, u64, usize)>,
    pub(crate) spent: Spent,
    /// `ack = none`: what was acknowledged may be lost.
    lossy: bool,
    /// What must never be, and was.
    pub(crate) broken: Option<&'static str>,
}

pub(crate) fn member(at: usize) -> Member {
    Member(u8::try_from(at).unwrap())
}

pub(crate) fn sequence(length: usize) -> Sequence {
    Sequence(length as u64)
}

impl Seat {
    fn reach(&self) -> Reach {
        Reach { received: sequence(self.log.len()), written: sequence(self.written), durable: sequence(self.durable) }
    }

    fn history(&self) -> History {
        let mut history = History::default();
        for (at, entry) in self.log.iter().enumerate() {
            history.grew(Epoch(entry.epoch), sequence(at + 1));
        }
        history
    }

    pub(crate) fn life(&self, ack: Ack) -> Life {
        let memory = match ack {
            Ack::None | Ack::Received => self.starts * 16 + self.back,
            Ack::Written => self.boots * 16 + self.back,
            Ack::Durable => 0,
        };
        Life { disk: self.disk, memory }
    }
}

impl Group {
    /// All down, on empty disks.
    pub(crate) fn new(shape: &Shape) -> Self {
        let seat = |disk| Seat {
            node: None,
            log: Vec::new(),
            written: 0,
            durable: 0,
            kept: Configuration::default(),
            starts: 0,
            boots: 0,
            back: 0,
            disk,
            released: 0,
        };
        Self {
            arbiter: Configuration::default(),
            seats: (0..shape.members).map(|at| seat(u64::from(at) * 10)).collect(),
            net: BTreeSet::new(),
            acked: Vec::new(),
            kept: Vec::new(),
            led: BTreeMap::new(),
            forced: BTreeSet::new(),
            reads: Vec::new(),
            spent: Spent::default(),
            lossy: shape.ack == Ack::None,
            broken: None,
        }
    }

    pub(crate) fn start(&mut self, shape: &Shape, at: usize) {
        let seat = &mut self.seats[at];
        seat.starts += 1;
        seat.released = 0;
        let setup = Setup {
            me: member(at),
            members: (0..shape.members).map(Member).collect(),
            preferred: Member(0),
            life: seat.life(shape.ack),
            ack: shape.ack,
        };
        // An opened log is durable before anything of it is believed.
        seat.written = seat.log.len();
        seat.durable = seat.log.len();
        let (mut node, actions) = Node::start(setup, seat.kept.clone(), seat.history(), false).unwrap();
        node.left_out = shape.left_out;
        seat.node = Some(node);
        self.act(at, actions);
    }

    pub(crate) fn crash(&mut self, at: usize, how: Crash) {
        let seat = &mut self.seats[at];
        let stays = match how {
            Crash::Kill => seat.written,
            Crash::Power => seat.durable,
            Crash::Burn => 0,
            Crash::Back => seat.durable / 2,
        };
        seat.log.truncate(stays);
        seat.written = seat.written.min(stays);
        seat.durable = seat.durable.min(stays);
        seat.node = None;
        if how != Crash::Kill {
            seat.boots += 1;
        }
        if how == Crash::Burn {
            seat.disk += 1;
        }
        if how == Crash::Back {
            (seat.back, seat.boots) = (seat.back + 1, 0);
        }
        if matches!(how, Crash::Burn | Crash::Back) {
            seat.starts = 0;
            seat.kept = Configuration::default();
        }
        self.reads.retain(|(member, ..)| usize::from(member.0) != at);
    }

    /// Whether the mode promises to lose nothing by this crash, after all that has gone before: also by the sets that are on
    /// their way to the arbiter, since any of them may be the recorded one when it counts.
    pub(crate) fn is_survived(&self, shape: &Shape, at: usize, how: Crash) -> bool {
        let under_way = self.net.iter().filter_map(|wire| match wire {
            Wire::Change { expect, to, .. } if *expect >= self.arbiter.version => Some(&to.in_sync),
            _ => None,
        });
        std::iter::once(&self.arbiter.in_sync).chain(under_way).all(|set| self.is_survived_by(shape, at, how, set))
    }

    fn is_survived_by(&self, shape: &Shape, at: usize, how: Crash, set: &InSync) -> bool {
        let me = member(at);
        let kept = match (shape.ack, how) {
            (Ack::None, _) => true,
            (_, Crash::Burn | Crash::Back) => false,
            (Ack::Durable, _) | (Ack::Written, Crash::Kill) => true,
            _ => set.is_only(me),
        };
        kept || set.life(me).is_none() || self.others_hold(shape, at, set)
    }

    fn others_hold(&self, shape: &Shape, at: usize, set: &InSync) -> bool {
        set.iter().any(|(member, life)| {
            let other = usize::from(member.0);
            let seat = &self.seats[other];
            let there = seat.node.is_some() || shape.ack == Ack::Durable;
            other != at && there && seat.life(shape.ack) == life
        })
    }

    pub(crate) fn step(&mut self, at: usize, event: Event) {
        let Some(node) = self.seats[at].node.as_mut() else { return };
        let actions = node.step(event);
        self.act(at, actions);
    }

    pub(crate) fn word(&mut self, at: usize, word: Word) -> bool {
        let Some(node) = self.seats[at].node.as_mut() else { return false };
        let Ok(actions) = node.word(word) else { return false };
        self.act(at, actions);
        true
    }

    fn act(&mut self, at: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Store(configuration) => self.seats[at].kept = configuration,
                Action::Send(letter) => _ = self.net.insert(Wire::Letter(letter)),
                Action::Change { expect, to } => {
                    let change = self.change(at, expect, to);
                    self.net.insert(change);
                }
                Action::Lead(epoch) => self.leads(at, epoch),
                Action::Yield => self.reads.retain(|(member, ..)| usize::from(member.0) != at),
                Action::Follow { cut, .. } => {
                    let seat = &mut self.seats[at];
                    seat.log.truncate(usize::try_from(cut.0).unwrap());
                    seat.written = seat.written.min(seat.log.len());
                    seat.durable = seat.durable.min(seat.log.len());
                }
                Action::Release(to) => self.release(at, usize::try_from(to.0).unwrap()),
                Action::Kept(to) => self.kept(at, usize::try_from(to.0).unwrap()),
                Action::Confirmed(beat) => self.confirmed(at, beat),
                // The arbiter speaks when it likes, and the disk syncs when it likes.
                Action::Read | Action::Sync => {}
            }
        }
    }

    fn change(&self, at: usize, expect: u64, to: Configuration) -> Wire {
        let asker = (self.seats[at].disk * 16 + self.seats[at].back, self.seats[at].starts);
        Wire::Change { from: member(at), asker, expect, to }
    }

    /// The arbiter could do a change, answers, and does not do it. Who asked hears of that when nothing else that it asked in this life
    /// is open.
    pub(crate) fn refuse(&mut self, shape: &Shape, wire: &Wire) {
        let Wire::Change { from, asker, expect, to } = wire else { return };
        if self.arbiter.version != *expect {
            return;
        }
        let sure = shape.left_out != Some(Rule::SureRefusal);
        if sure {
            self.net.remove(wire);
        }
        let at = usize::from(from.0);
        let is_open = |wire: &Wire| match wire {
            Wire::Change { from: by, asker: then, expect: of, .. } => by == from && then == asker && of >= expect,
            _ => false,
        };
        let is_asker = (self.seats[at].disk * 16 + self.seats[at].back, self.seats[at].starts) == *asker;
        if is_asker && !(sure && self.net.iter().any(is_open)) {
            self.step(at, Event::Refused { expect: *expect, to: to.clone() });
        }
    }

    fn leads(&mut self, at: usize, epoch: Epoch) {
        let me = member(at);
        self.seats[at].released = 0;
        if self.led.insert(epoch.0, me).is_some() {
            self.broken = Some("two primaries of one epoch");
        }
        if epoch > self.arbiter.epoch || (epoch == self.arbiter.epoch && self.arbiter.primary != Some(me)) {
            self.broken = Some("leads without the arbiter");
        }
        if self.forced.contains(&epoch.0) {
            // A person took it on him that what only the others held is lost.
            let held = self.acked.iter().zip(&self.seats[at].log).take_while(|(one, other)| one == other).count();
            self.acked.truncate(held);
            let held = self.kept.iter().zip(&self.seats[at].log).take_while(|(one, other)| one == other).count();
            self.kept.truncate(held);
        }
    }

    fn release(&mut self, at: usize, to: usize) {
        let seat = &mut self.seats[at];
        seat.released = seat.released.max(to);
        for sequence in 0..to {
            match (self.acked.get(sequence), seat.log.get(sequence)) {
                (_, None) => self.broken = Some("acknowledges what it does not have"),
                (None, Some(entry)) => self.acked.push(*entry),
                (Some(acked), Some(entry)) if acked != entry && !self.lossy => {
                    self.broken = Some("two histories acknowledged")
                }
                _ => {}
            }
        }
    }

    fn kept(&mut self, at: usize, to: usize) {
        let log = &self.seats[at].log;
        match log.get(..to) {
            Some(told) if told.starts_with(&self.kept) => self.kept = told.to_vec(),
            Some(told) if self.kept.starts_with(told) => {}
            _ => self.broken = Some("what was told as kept is another history"),
        }
    }

    fn confirmed(&mut self, at: usize, beat: u64) {
        let released = self.seats[at].released;
        let me = member(at);
        if self.reads.iter().any(|(by, asked, floor)| *by == me && *asked <= beat && *floor > released && !self.lossy) {
            self.broken = Some("a read that does not see what was acknowledged before it");
        }
        self.reads.retain(|(by, asked, _)| *by != me || *asked > beat);
    }

    /// A client asks a member for a request, as often as it likes.
    pub(crate) fn submit(&mut self, shape: &Shape, at: usize, request: u8) -> bool {
        let seat = &mut self.seats[at];
        let Some(node) = seat.node.as_mut().filter(|node| node.takes_commands()) else { return false };
        let epoch = node.leads().unwrap();
        let mut sessions = Sessions::new(1);
        sessions.open(Sequence(0));
        for (at, entry) in seat.log.iter().enumerate() {
            if shape.left_out != Some(Rule::Sessions) || entry.epoch == epoch.0 {
                sessions.executed(Sequence(0), sequence(at + 1), ());
            }
        }
        let own = usize::from(request);
        let refused = match sessions.admit(Sequence(0), u64::from(request)) {
            Admission::New => false,
            // The rule left out: an earlier primary's requests are unknown here, so there is no gap to see.
            Admission::Gap { .. } => shape.left_out != Some(Rule::Sessions) || own == 0,
            Admission::Again(..) | Admission::InDoubt => true,
        };
        if refused {
            return false;
        }
        seat.log.push(Entry { epoch: epoch.0, request });
        self.spent.requests = self.spent.requests.max(request);
        self.grown(at, epoch);
        if shape.votes {
            let end = sequence(self.seats[at].log.len());
            self.step(at, Event::Keep(end));
        }
        self.stream(shape, at);
        true
    }

    /// A person forces a member to lead. He looks that no other one runs until it is done.
    pub(crate) fn force(&mut self, shape: &Shape, at: usize) -> bool {
        self.tell(at);
        self.sync(at, true);
        if !self.word(at, Word::Force) {
            return false;
        }
        self.tell(at);
        let asked = self.seats[at].node.as_ref().and_then(|node| node.asked.clone());
        if let Some(asked) = asked {
            self.forced.insert(asked.to.epoch.0);
            let change = self.change(at, asked.expect, asked.to);
            self.deliver(shape, &change);
            self.tell(at);
        }
        true
    }

    pub(crate) fn ask(&mut self, at: usize) -> bool {
        let Some(node) = self.seats[at].node.as_ref().filter(|node| node.leads().is_some()) else { return false };
        let beat = node.beat() + 1;
        self.reads.push((member(at), beat, self.acked.len()));
        self.step(at, Event::Ask);
        true
    }

    fn grown(&mut self, at: usize, epoch: Epoch) {
        let reach = self.seats[at].reach();
        self.step(at, Event::Log { epoch, reach });
    }

    pub(crate) fn sync(&mut self, at: usize, to_disk: bool) -> bool {
        let seat = &mut self.seats[at];
        let end = seat.log.len();
        let before = (seat.written, seat.durable);
        seat.written = end;
        if to_disk {
            seat.durable = end;
        }
        if before == (seat.written, seat.durable) || seat.node.is_none() {
            return false;
        }
        let epoch = seat.log.last().map_or(0, |entry| entry.epoch);
        self.grown(at, Epoch(epoch));
        true
    }

    /// The primary sends what it has to everybody.
    pub(crate) fn stream(&mut self, shape: &Shape, at: usize) {
        let seat = &self.seats[at];
        let Some(epoch) = seat.node.as_ref().and_then(Node::leads) else { return };
        if seat.log.is_empty() {
            return;
        }
        for to in (0..shape.members).map(Member).filter(|to| usize::from(to.0) != at) {
            self.net.insert(Wire::Stream { from: member(at), to, epoch, log: seat.log.clone() });
        }
    }

    pub(crate) fn tell(&mut self, at: usize) {
        self.step(at, Event::Arbiter(self.arbiter.clone()));
    }

    pub(crate) fn deliver(&mut self, shape: &Shape, wire: &Wire) {
        match wire {
            Wire::Letter(letter) => {
                let to = usize::from(letter.to.0);
                self.step(to, Event::Heard(letter.clone()));
                if matches!(letter.body, Body::Held { .. }) {
                    self.stream(shape, to);
                }
            }
            Wire::Change { expect, to, .. } => {
                if self.arbiter.version == *expect && to.version > *expect {
                    self.arbiter = to.clone();
                }
            }
            Wire::Stream { from, to, epoch, log } => self.streamed(usize::from(to.0), *from, *epoch, log),
        }
    }

    fn streamed(&mut self, at: usize, from: Member, epoch: Epoch, log: &[Entry]) {
        let seat = &self.seats[at];
        if seat.node.as_ref().is_none_or(|node| !node.takes_stream(from, epoch)) {
            return;
        }
        for entry in log.iter().skip(seat.log.len()) {
            self.seats[at].log.push(*entry);
            self.grown(at, Epoch(entry.epoch));
        }
    }

    /// Whether the primary of the highest epoch has everything that was acknowledged.
    pub(crate) fn keeps_acknowledged(&self) -> bool {
        let last = self.led.keys().next_back();
        self.lossy
            || self.seats.iter().all(|seat| {
                let leads = seat.node.as_ref().and_then(Node::leads);
                leads.map(|epoch| epoch.0).as_ref() != last || last.is_none() || seat.log.starts_with(&self.acked)
            })
    }

    /// Whether everybody in the recorded set has on its disk what was told to be on every disk.
    pub(crate) fn keeps_votes(&self) -> bool {
        self.arbiter.in_sync.iter().all(|(member, life)| {
            let seat = &self.seats[usize::from(member.0)];
            // On a disk that is not the recorded one nobody counts, nor on one that has gone back in time since.
            seat.disk != life.disk || seat.back != life.memory % 16 || seat.log[..seat.durable].starts_with(&self.kept)
        })
    }

    /// Whether no log has a request twice.
    pub(crate) fn executes_once(&self) -> bool {
        self.seats.iter().all(|seat| {
            let requests: BTreeSet<u8> = seat.log.iter().map(|entry| entry.request).collect();
            requests.len() == seat.log.len()
        })
    }

    /// Whether logs that share an entry share all before it.
    pub(crate) fn logs_agree(&self) -> bool {
        let pairs = || self.seats.iter().flat_map(|one| self.seats.iter().map(move |other| (one, other)));
        pairs().all(|(one, other)| {
            let shared = one.log.len().min(other.log.len());
            let last = (0..shared).rev().find(|at| one.log[*at].epoch == other.log[*at].epoch);
            last.is_none_or(|at| one.log[..=at] == other.log[..=at])
        })
    }
}
