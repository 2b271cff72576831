//! A group in simulated time: members on simulated disks, an arbiter, clients, and a network that loses, doubles, delays and cuts.
//! What must never be is looked for at every step.

use std::collections::{BTreeMap, BTreeSet};

use assent_membership::{Ack, Configuration, InSync, Member, Sequence, Standing, Word};
use assent_sim::Rng;

use crate::seat_test::{Request, Said, Seat, Shape};
use crate::{Chain, Input, Mark, Message};

pub(crate) const CLIENTS: u8 = 2;

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
    Reader,
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

#[derive(Clone, Debug, Default)]
struct Client {
    /// The request that has no answer yet, or the next one.
    number: u64,
    asking: bool,
    since_ms: u64,
    member: usize,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) shape: Shape,
    pub(crate) now_ms: u64,
    rng: Rng,
    happenings: BTreeMap<(u64, u64), Happening>,
    count: u64,
    pub(crate) seats: Vec<Seat>,
    pub(crate) arbiter: Configuration,
    cut_links: BTreeSet<(usize, usize)>,
    cut_arbiter: BTreeSet<usize>,
    paused_until_ms: Vec<u64>,
    disk_planned: Vec<[bool; 2]>,
    /// Disks that never get round to it.
    pub(crate) stuck_disks: BTreeSet<usize>,
    /// Of a thousand messages, how many are lost and doubled.
    loss: u64,
    faults: bool,
    clients: Vec<Client>,
    /// What was applied anywhere, by its number: one history.
    decided: BTreeMap<Sequence, Chain>,
    /// What clients were told.
    pub(crate) acked: BTreeMap<Request, (Mark, u64)>,
    highest_acked: Sequence,
    /// The last vote that was told, which must be on the disk of everybody in the set.
    pub(crate) voted: Sequence,
    led: BTreeMap<u32, usize>,
    pub(crate) reads: u64,
    pub(crate) crashes: u64,
    pub(crate) burns: u64,
    pub(crate) hand_overs: u64,
    pub(crate) installs: u64,
    pub(crate) broken: Option<String>,
}

impl Group {
    pub(crate) fn new(shape: &Shape, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut seats: Vec<Seat> = (0..shape.members).map(|me| Seat::new(me, seed)).collect();
        for seat in &mut seats {
            // Clocks run up to 5 % off, and show anything.
            seat.rate = rng.range(952..1_050);
            seat.offset_ms = rng.below(1_000_000);
        }
        let members = seats.len();
        let mut group = Self {
            shape: shape.clone(),
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
            clients: vec![Client { number: 1, ..Client::default() }; usize::from(CLIENTS)],
            decided: BTreeMap::new(),
            acked: BTreeMap::new(),
            highest_acked: Sequence(0),
            voted: Sequence(0),
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
        for client in 0..CLIENTS {
            group.plan(5, Happening::Client(client));
        }
        group.plan(5, Happening::Reader);
        group
    }

    /// From now on things go wrong.
    pub(crate) fn begin_faults(&mut self) {
        self.faults = true;
        self.loss = self.rng.below(60);
        self.plan(1, Happening::Fault);
    }

    /// From now on nothing goes wrong, and what did is mended.
    pub(crate) fn end_faults(&mut self) {
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
    pub(crate) fn run(&mut self, for_ms: u64) {
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
    pub(crate) fn pause(&mut self, at: usize, for_ms: u64) {
        self.paused_until_ms[at] = self.now_ms + for_ms;
    }

    /// A member's process dies, or its machine, and comes back.
    pub(crate) fn crash(&mut self, at: usize, power: Option<u64>, back_in_ms: u64) {
        self.seats[at].crash(power);
        self.plan(back_in_ms, Happening::Start(at));
    }

    /// Nobody hears of a member, and it hears of nobody, for so long.
    pub(crate) fn cut_off(&mut self, at: usize, arbiter: bool, for_ms: u64) {
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
    pub(crate) fn is_healed(&self) -> bool {
        let mut applied = self.seats.iter().map(|seat| seat.up.as_ref().map(|up| (up.applied, up.toy.hash())));
        let first = applied.next().flatten();
        first.is_some_and(|(end, _)| end.sequence >= self.highest_acked)
            && applied.all(|other| other == first)
            && self.arbiter.in_sync.len() == self.seats.len()
            && self.seats.iter().any(|seat| seat.up.as_ref().is_some_and(|up| up.replica.standing() == Standing::Leads))
    }

    /// Nobody asks for anything any more.
    pub(crate) fn quiet(&mut self) {
        self.happenings.retain(|_, happening| !matches!(happening, Happening::Client(_) | Happening::Reader));
    }

    /// What clients were told is there, and every request was executed once.
    pub(crate) fn audit(&mut self) {
        let toys: Vec<_> =
            self.seats.iter().filter_map(|seat| seat.up.as_ref().map(|up| (seat.me, up.toy.clone()))).collect();
        for (member, toy) in toys {
            for (request, (_, answer)) in &self.acked {
                let last = toy.last.get(&request.client).copied().unwrap_or_default();
                if last.0 < request.number || (last.0 == request.number && last.1 != *answer) {
                    self.broken = Some(format!("{request:?} was answered {answer}; member {member} has {last:?}"));
                }
            }
            let mut sums: BTreeMap<u8, u64> = BTreeMap::new();
            for (client, (last, _)) in &toy.last {
                for number in 1..=*last {
                    let request = Request { client: *client, number };
                    *sums.entry(request.asset()).or_default() += request.adds();
                }
            }
            if sums != toy.assets {
                self.broken = Some(format!("member {member} has {:?}; each request once makes {sums:?}", toy.assets));
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
        let said = self.seats[at].start(&shape, self.now_ms);
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
                    if due <= time {
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
            Happening::Reader => self.reader(),
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
                Said::Applied { entry, request, answer, client } => self.applied(at, entry, request, answer, client),
                Said::Voted { entry, request, answer } => self.voted(entry, request, answer),
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

    fn applied(&mut self, at: usize, entry: Mark, request: Request, answer: u64, client: bool) {
        let lossy = self.shape.ack == Ack::None;
        let before = self.decided.insert(entry.sequence, entry.chain);
        if before.is_some_and(|before| before != entry.chain) && !lossy {
            self.broken = Some(format!("member {at} applies another entry {} than somebody else did", entry.sequence));
        }
        if client {
            self.answered(entry, request, answer);
        }
    }

    fn answered(&mut self, entry: Mark, request: Request, answer: u64) {
        if !self.is_lost() {
            self.acked.insert(request, (entry, answer));
            self.highest_acked = self.highest_acked.max(entry.sequence);
            let known = &mut self.clients[usize::from(request.client)];
            if known.number == request.number {
                (known.asking, known.number) = (false, request.number + 1);
            }
        }
    }

    fn voted(&mut self, entry: Mark, request: Request, answer: u64) {
        self.voted = self.voted.max(entry.sequence);
        self.look_at_votes();
        self.answered(entry, request, answer);
    }

    /// Every vote that was told is on the disk of everybody in the recorded set; whose disk is another one does not count.
    fn look_at_votes(&mut self) {
        let lacks = |seat: &Seat| {
            let counts = self.arbiter.in_sync.life(seat.me).is_some_and(|life| life.disk == seat.life.disk);
            let held = seat.up.as_ref().map(|up| up.log.held().1);
            held.filter(|held| counts && *held < self.voted).map(|held| (seat.me, held))
        };
        if let Some((member, held)) = self.seats.iter().find_map(lacks) {
            let voted = self.voted;
            self.broken = Some(format!("vote {voted} was told; member {member} of the set has {held} on its disk"));
        }
    }

    fn client(&mut self, client: u8) {
        let members = self.seats.len();
        let known = &mut self.clients[usize::from(client)];
        if !known.asking || self.now_ms.saturating_sub(known.since_ms) > 150 {
            known.member = if known.asking { (known.member + 1) % members } else { known.member };
            (known.asking, known.since_ms) = (true, self.now_ms);
            let (request, at) = (Request { client, number: known.number }, known.member);
            let awake = self.paused_until_ms[at] <= self.now_ms;
            let taken = awake && self.seats[at].up.as_mut().is_some_and(|up| up.submit(request));
            if taken {
                self.step(at, Input::Time);
            } else {
                // Refused: the next one is asked with the next turn.
                self.clients[usize::from(client)].since_ms = 0;
            }
        }
        let later = self.rng.range(3..15);
        self.plan(later, Happening::Client(client));
    }

    fn reader(&mut self) {
        let at = self.rng.index(self.seats.len());
        let must = self.highest_acked;
        if self.paused_until_ms[at] <= self.now_ms {
            let time = self.seats[at].time(self.now_ms);
            let said = self.seats[at].up.as_mut().and_then(|up| up.read(time, must));
            self.heard(at, said.into_iter().collect());
            self.step(at, Input::Time);
        }
        let later = self.rng.range(3..25);
        self.plan(later, Happening::Reader);
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
    pub(crate) fn brief(&self) -> String {
        let mut text = format!(
            "{} ms; arbiter {:?}; acknowledged to {}; {:?}\n",
            self.now_ms, self.arbiter, self.highest_acked, self.clients
        );
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
