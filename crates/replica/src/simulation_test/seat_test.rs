//! One member as the simulation sees it: the value, its journal, snapshot and configuration on a simulated disk, the machine that the
//! log leads to, and what sits on its desk.
//!
//! Walk: a [`Seat`] is up or not · [`Seat::step`] hears of something and has a turn, as a desk has it: the front's round, one step of the
//! value, what is confirmed is executed, reads, the front says what it may.
//! Deliberately absent: what machine that is ([`Play`]), and everything that happens between members; bounded execution: all that is
//! confirmed is executed in the same turn, and a person's word comes by [`Seat::word`] alone.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use assent_ids::Epoch;
use assent_journal::{Config, Journal};
use assent_membership::{Configuration, Life, Member, Sequence, Setup, Word};
use assent_sim::{SimClock, SimDice, SimDisk};
use assent_world::Disk;

use super::play_test::Play;
use super::shape_test::Shape;
use super::up_test::{Up, kept};
use crate::front::Wanted;
use crate::{
    Base, Entry, Fault, Front as _, Input, LeaseSettings, Lent, Machine, Mark, Message, Opened, Output, Own, OwnLog,
    Replica, Settings, Shelf, Told, Wrote,
};

const FOLDER: &str = "member";
/// With each so many entries the members compare their states.
pub(super) const COMPARE_EVERY: u64 = 8;

/// A member's machine.
pub struct Seat<P: Play> {
    pub me: Member,
    pub disk: SimDisk,
    pub clock: SimClock,
    dice: Arc<SimDice>,
    pub up: Option<Up<P>>,
    /// Its clock, in thousandths of true time, and what it showed at the beginning.
    pub rate: u64,
    pub offset_ms: u64,
    /// The life that it had when it was last up.
    pub life: Life,
}

/// What a member says to the world around it.
#[derive(Clone, Debug)]
pub enum Said {
    Message(Message),
    Read,
    Change {
        expect: u64,
        to: Configuration,
    },
    /// An entry was applied; a caller hears of it if one waits.
    Applied {
        entry: Entry,
        answer: Vec<u8>,
        is_awaited: bool,
    },
    /// A caller's vote is told.
    Voted {
        entry: Mark,
        command: Vec<u8>,
        answer: Vec<u8>,
    },
    /// A caller's read is answered; it must have seen this.
    Answered {
        seen: Sequence,
        must: Sequence,
    },
    Halted(Fault),
    Broken(String),
    Leads(Epoch),
    Installed,
}

impl<P: Play> Seat<P> {
    pub fn new(me: u8, seed: u64) -> Self {
        let dice = Arc::new(SimDice::new(seed ^ (u64::from(me) << 32)));
        let life = Life { disk: 0, memory: 0 };
        let (disk, clock) = (SimDisk::new(), SimClock::new());
        Self { me: Member(me), disk, clock, dice, up: None, rate: 1_000, offset_ms: 0, life }
    }

    pub fn time(&self, now_ms: u64) -> u64 {
        self.offset_ms + now_ms * self.rate / 1_000
    }

    fn told(&self, shape: &Shape) -> Told {
        let otherwise = shape.otherwise.clone().filter(|_| self.me.0 + 1 == shape.members);
        otherwise.unwrap_or_else(|| Told::new(shape.ack, "", ""))
    }

    pub fn settings(&self, shape: &Shape, life: Life) -> Settings {
        let members = (0..shape.members).map(Member).collect();
        let leases = shape.lease && !(shape.mixed && self.me.0 + 1 == shape.members);
        let Told { ack, group, arbiter } = self.told(shape);
        let setup = Setup { me: self.me, members, preferred: Member(0), life, ack };
        Settings {
            group,
            arbiter,
            tick_ms: 20,
            silent_ms: shape.silent_ms,
            patience_ms: 300,
            slow_ms: 250,
            resend_ms: 40,
            lease: leases.then_some(LeaseSettings { length_ms: shape.silent_ms - 20, drift_ppm: 50_000 }),
            window_bytes: 2_000,
            unconfirmed_bytes_max: 6_000,
            recent_bytes_max: 1_500,
            catch_up_bytes_per_s: 64 << 20,
            compare_every: COMPARE_EVERY,
            hold_ms: 3_000,
            ..Settings::new(setup)
        }
    }

    pub fn start(&mut self, play: &mut P, shape: &Shape, now_ms: u64) -> Vec<Said> {
        shape.unsynced.into_iter().for_each(|barrier| self.disk.ignore(barrier));
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let folder = Path::new(FOLDER);
        let small = Config { log_size: 5 * 4096, max_buffer_log_size: 2 * 4096, ..Config::default() };
        let config = OwnLog::config(self.told(shape).ack, 10, small);
        let clock = Arc::new(self.clock.clone());
        let journal = match Journal::open(Arc::clone(&disk), clock, self.dice.clone(), folder, config) {
            Ok((journal, _)) => journal,
            Err(why) => return vec![Said::Broken(why.to_string())],
        };
        let own = Own::open(Arc::clone(&disk), &self.clock, &*self.dice, folder).unwrap();
        let shelf = Shelf::open(Arc::clone(&disk), folder).unwrap();
        let mut machine = play.machine();
        let base = match kept(&shelf, &mut machine) {
            Ok(base) => base,
            Err(why) => return vec![Said::Broken(format!("{} starts with a snapshot that is {why}", self.me))],
        };
        let (log, history) = OwnLog::open(journal, self.dice.clone(), &base).unwrap();
        self.life = own.life(self.told(shape).ack);
        let known = own.known().clone();
        let (promised_ms, end) = (own.promised_ms(), log.end());
        let opened = Opened { known, out: false, promised_ms, history, end, base: base.end.sequence };
        let mut settings = self.settings(shape, self.life);
        if shape.fickle && assent_world::Dice::roll(&*self.dice).is_multiple_of(2) {
            settings.lease = None;
        }
        let (replica, outputs) = Replica::start(settings, opened, self.time(now_ms)).unwrap();
        #[cfg(test)]
        let replica = replica.leaving_out(shape.left_out);
        self.up = Some(Up {
            replica,
            log,
            own,
            machine,
            front: play.front(self.me, &self.clock),
            ready: Vec::new(),
            wanted: Wanted::default(),
            asked: VecDeque::new(),
            beat: 0,
            clock: self.clock.clone(),
            applied: base.end,
            applied_history: base.history,
            shelf,
            lent: Lent::default(),
            writing: None,
            loading: None,
            loaded: None,
            fresh: VecDeque::new(),
            coming: None,
            waiting: BTreeMap::new(),
            held: VecDeque::new(),
            reads: Vec::new(),
            answered: Vec::new(),
            wants_sync: false,
            installs: 0,
            fetches: 0,
        });
        let mut said = Vec::new();
        self.act(shape, now_ms, outputs, &mut said);
        self.turn(shape, now_ms, &mut said);
        said
    }

    /// The process dies, or the machine.
    pub fn crash(&mut self, power: Option<u64>) {
        self.up = None;
        match power {
            Some(seed) => {
                self.disk.cut_power(assent_sim::Survival::Seeded(seed));
                self.clock.reboot();
            }
            None => self.disk.kill(),
        }
    }

    pub fn step(&mut self, shape: &Shape, now_ms: u64, input: Input) -> Vec<Said> {
        let mut said = Vec::new();
        self.feed(shape, now_ms, input, &mut said);
        self.turn(shape, now_ms, &mut said);
        said
    }

    /// The rest of a desk's turn: the front's round, one step for what it ordered and asked, and what it may tell.
    fn turn(&mut self, shape: &Shape, now_ms: u64, said: &mut Vec<Said>) {
        let time = self.time(now_ms);
        for _ in 0..2 {
            let Some(up) = &mut self.up else { return };
            up.clock.set_wall_ms(time);
            let ready = std::mem::take(&mut up.ready);
            up.with_port(time, |front, port| front.round(&ready, port));
            let has_asked = up.take_reads(shape, time);
            if has_asked || up.replica.keeps_anew() || up.replica.end().sequence > up.log.end().sequence {
                self.feed(shape, now_ms, Input::Time, said);
            }
            let Some(up) = &mut self.up else { return };
            up.answer_reads(said);
            up.with_port(time, |front, port| front.flush(port));
            // What it keeps anew is heard of at once.
            if !up.replica.keeps_anew() {
                return;
            }
        }
    }

    fn feed(&mut self, shape: &Shape, now_ms: u64, input: Input, said: &mut Vec<Said>) {
        let time = self.time(now_ms);
        let Some(up) = &mut self.up else { return };
        let outputs = up.replica.step(input, time);
        self.act(shape, now_ms, outputs, said);
    }

    fn act(&mut self, shape: &Shape, now_ms: u64, outputs: Vec<Output>, said: &mut Vec<Said>) {
        // Cuts and installations are answered at once; what else is answered comes when all of this is done.
        let mut later = Vec::new();
        for output in outputs {
            let Some(up) = &mut self.up else { return };
            match output {
                Output::Store(configuration) if shape.forgets => drop(configuration),
                Output::Store(configuration) => up.own.store(configuration).unwrap(),
                Output::Promise(length_ms) => up.own.promise(length_ms).unwrap(),
                Output::Send(message) => said.push(Said::Message(message)),
                Output::Read => said.push(Said::Read),
                Output::Change { expect, to } => said.push(Said::Change { expect, to }),
                Output::Append(entries) => {
                    entries.iter().for_each(|entry| up.log.append(entry).unwrap());
                    up.fresh.extend(entries);
                }
                Output::Sync => up.wants_sync = true,
                Output::Cut(to) => match up.cut(to, shape.never_revokes) {
                    Ok(end) => self.feed(shape, now_ms, Input::WasCut(end), said),
                    Err(why) => return said.push(why),
                },
                Output::Commit(to) => {
                    let states = up.commit(to, said);
                    later.extend(states.into_iter().map(|(at, hash)| Input::State { at, hash }));
                }
                Output::Confirmed(beat) => {
                    let seen = up.applied.sequence;
                    let ready = up.reads.extract_if(.., |(asked, _)| *asked <= beat);
                    up.answered.extend(ready.map(|(_, must)| (seen, must)));
                    up.confirmed(beat);
                }
                Output::Lead(epoch) => {
                    said.push(Said::Leads(epoch));
                    let time = self.offset_ms + now_ms * self.rate / 1_000;
                    up.with_port(time, |front, port| front.leads(epoch, port));
                }
                Output::Yield => up.doubt(),
                Output::Fetch { to, after, bytes_max } => {
                    up.fetches += 1;
                    let fetched = up.log.fetch(after, bytes_max.min(1_500)).unwrap();
                    let (chain, entries) = (fetched.chain, fetched.entries);
                    later.push(Input::Fetched { to, after, chain, entries });
                }
                Output::ReadPiece { to, at, offset, bytes_max } => {
                    let bytes_max = bytes_max.min(shape.piece_bytes);
                    let piece = up.lent.piece(&up.shelf, to, at, offset, bytes_max).unwrap();
                    later.push(Input::PieceRead { to, piece });
                }
                Output::Unlend(member) => up.lent.end(member),
                Output::Trim(to) => up.log.trim(to).unwrap(),
                Output::KeepPiece(piece) => {
                    if piece.offset == 0 {
                        up.coming = Some(up.shelf.begin().unwrap());
                        up.loading = None;
                    }
                    up.coming.as_mut().unwrap().keep(&piece).unwrap();
                }
                Output::Load(base) => up.loading = Some(base),
                Output::Install(base) => {
                    up.install(&base);
                    said.push(Said::Installed);
                    self.feed(shape, now_ms, Input::Installed, said);
                }
                Output::Halt(fault) => said.push(Said::Halted(fault)),
            }
        }
        self.up.iter_mut().for_each(|up| up.tell_votes(said));
        for input in later {
            self.feed(shape, now_ms, input, said);
        }
    }

    /// A person's word, if it can be followed.
    pub fn word(&mut self, shape: &Shape, now_ms: u64, word: Word) -> Vec<Said> {
        let (time, mut said) = (self.time(now_ms), Vec::new());
        let outputs = self.up.as_mut().and_then(|up| up.replica.word(word, time).ok()).unwrap_or_default();
        self.act(shape, now_ms, outputs, &mut said);
        self.turn(shape, now_ms, &mut said);
        said
    }

    /// The process dies, and its disk is another one, empty.
    pub fn burn(&mut self) {
        self.up = None;
        self.disk = SimDisk::new();
    }

    /// The disk gets round to it.
    pub fn disk_works(&mut self, shape: &Shape, now_ms: u64, to_disk: bool) -> Vec<Said> {
        let Some(up) = &mut self.up else { return Vec::new() };
        if to_disk {
            up.log.sync().unwrap();
            up.wants_sync = false;
        } else {
            up.log.write().unwrap();
        }
        let (written, durable) = up.log.held();
        self.step(shape, now_ms, Input::Held { written, durable })
    }

    /// The state as it is now is to become the snapshot. Whether one is being written.
    pub fn snap(&mut self) -> bool {
        let Some(up) = self.up.as_mut() else { return false };
        if up.writing.is_none() && up.applied.sequence > up.shelf.base().end.sequence {
            let base = Base { history: up.applied_history.clone(), end: up.applied };
            up.writing = Some((up.shelf.turn(), base, up.machine.view()));
            return true;
        }
        false
    }

    /// It is written, if it is still to be.
    pub fn snapped(&mut self, shape: &Shape, now_ms: u64) -> Vec<Said> {
        let Some((up, (turn, base, view))) = self.up.as_mut().and_then(|up| up.writing.take().map(|one| (up, one)))
        else {
            return Vec::new();
        };
        match up.shelf.write(turn, &base, |_| Ok(()), |put| P::Machine::lay(&view, put)).unwrap() {
            Wrote::Kept(kept) => self.step(shape, now_ms, Input::SnapshotKept(kept.base.end)),
            Wrote::Revoked => Vec::new(),
            Wrote::Failed(error) => vec![Said::Broken(error.to_string())],
        }
    }

    /// What came from elsewhere is read.
    pub fn was_loaded(&mut self, shape: &Shape, now_ms: u64) -> Vec<Said> {
        let Some((up, base)) = self.up.as_mut().and_then(|up| up.loading.take().map(|base| (up, base))) else {
            return Vec::new();
        };
        let mut machine = up.machine.empty();
        let coming = up.coming.as_ref().unwrap();
        let checked = up.shelf.check(coming, &base, |next| machine.load(next));
        if let Err(why) = checked.unwrap() {
            return vec![Said::Broken(format!("a snapshot came broken: {why}"))];
        }
        up.loaded = Some(machine);
        let said = self.step(shape, now_ms, Input::Loaded { base, whole: true });
        if let Some(up) = &mut self.up {
            up.loaded = None;
        }
        said
    }
}
