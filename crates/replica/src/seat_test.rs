//! One member as the simulation sees it: the value, its journal, snapshot and configuration on a simulated disk, and a toy that
//! is what the log leads to.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use assent_ids::Epoch;
use assent_journal::{Config, Journal};
use assent_membership::{Ack, Configuration, History, Life, Member, Sequence, Setup, Word};
use assent_sim::{SimClock, SimDice, SimDisk};

use crate::rules::Rule;
use crate::{
    Base, Coming, Entry, Fault, Input, LeaseSettings, Lent, Mark, Message, Next, Opened, Output, Own, OwnLog, Put,
    ReadAt, Replica, Settings, Shelf, Told, Wrote,
};

pub(crate) const FOLDER: &str = "member";

/// A request of a client: its number, and how much it adds to which asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) client: u8,
    pub(crate) number: u64,
}

impl Request {
    pub(crate) fn asset(self) -> u8 {
        (self.client ^ self.number.to_le_bytes()[0]) % 5
    }

    pub(crate) fn adds(self) -> u64 {
        self.number * 3 + u64::from(self.client)
    }

    /// Whether its answer waits until it is on the disk of everybody in the set.
    pub(crate) fn is_vote(self) -> bool {
        self.number.is_multiple_of(3)
    }

    /// Of different lengths, so that segments and batches are full at different moments.
    pub(crate) fn payload(self) -> Vec<u8> {
        let mut bytes = vec![self.client];
        bytes.extend(self.number.to_le_bytes());
        bytes.resize(9 + usize::try_from(self.number * 37 % 300).unwrap(), 0xa5);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Self {
        Self { client: bytes[0], number: u64::from_le_bytes(*bytes[1..].first_chunk().unwrap()) }
    }
}

/// What the log leads to. A request that was executed is answered again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Toy {
    pub(crate) assets: BTreeMap<u8, u64>,
    /// The last request of each client, and its answer.
    pub(crate) last: BTreeMap<u8, (u64, u64)>,
}

impl Toy {
    pub(crate) fn apply(&mut self, request: Request) -> Result<u64, String> {
        let last = self.last.get(&request.client).copied().unwrap_or_default();
        if request.number <= last.0 {
            return Ok(last.1);
        }
        if request.number != last.0 + 1 {
            return Err(format!("{request:?} is applied after {}: a client asks for one after the other", last.0));
        }
        let value = self.assets.entry(request.asset()).or_default();
        *value += request.adds();
        let answer = *value;
        self.last.insert(request.client, (request.number, answer));
        Ok(answer)
    }

    pub(crate) fn hash(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.save())
    }

    pub(crate) fn save(&self) -> Vec<u8> {
        let mut fields = assent_frame::Writer::new();
        fields.u32(u32::try_from(self.assets.len()).unwrap());
        for (asset, value) in &self.assets {
            fields.u8(*asset).u64(*value);
        }
        for (client, (number, answer)) in &self.last {
            fields.u8(*client).u64(*number).u64(*answer);
        }
        fields.into_vec()
    }

    /// In chunks as they come: small ones, so that a snapshot has many pieces.
    pub(crate) fn lay(&self, put: Put<'_>) -> std::io::Result<()> {
        self.save().chunks(32).try_for_each(put)
    }

    fn take(next: Next<'_>) -> Self {
        let mut bytes = Vec::new();
        while let Some(chunk) = next() {
            bytes.extend(chunk);
        }
        Self::load(&bytes)
    }

    /// The state of the snapshot that is kept, and where it stands.
    fn kept(shelf: &Shelf) -> (Self, Base) {
        let mut toy = Self::default();
        if let Some(kept) = shelf.kept() {
            kept.load(|next| {
                toy = Self::take(next);
                Ok(())
            })
            .unwrap();
        }
        (toy, shelf.base())
    }

    pub(crate) fn load(bytes: &[u8]) -> Self {
        let mut toy = Self::default();
        if bytes.is_empty() {
            return toy;
        }
        let mut fields = assent_frame::Reader::new(bytes);
        for _ in 0..fields.u32("count").unwrap() {
            toy.assets.insert(fields.u8("asset").unwrap(), fields.u64("value").unwrap());
        }
        while !fields.rest().is_empty() {
            let client = fields.u8("client").unwrap();
            toy.last.insert(client, (fields.u64("number").unwrap(), fields.u64("answer").unwrap()));
        }
        toy
    }
}

/// What is simulated, and how.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) members: u8,
    pub(crate) ack: Ack,
    pub(crate) lease: bool,
    /// The last member was told to promise nothing.
    pub(crate) mixed: bool,
    /// With each start a member may be told to promise nothing.
    pub(crate) fickle: bool,
    /// The last member was told this of the group.
    pub(crate) otherwise: Option<Told>,
    pub(crate) left_out: Option<Rule>,
    /// What is stored of a configuration is not durable, and acted on.
    pub(crate) forgets: bool,
    /// A snapshot that is being written when the log is cut is kept all the same.
    pub(crate) never_revokes: bool,
    /// So many bytes of a snapshot go at once.
    pub(crate) piece_bytes: u64,
    /// How long a snapshot takes to be written or read, and how long there is none then.
    pub(crate) snapshot_ms: std::ops::Range<u64>,
    pub(crate) pause_ms: std::ops::Range<u64>,
}

impl Shape {
    pub(crate) const fn new(members: u8, ack: Ack) -> Self {
        let (snapshot_ms, pause_ms, piece_bytes) = (1..150, 50..400, 300);
        let (left_out, otherwise, lease, mixed) = (None, None, false, false);
        let (fickle, forgets, never_revokes) = (false, false, false);
        Self {
            members,
            ack,
            lease,
            mixed,
            fickle,
            otherwise,
            left_out,
            forgets,
            never_revokes,
            piece_bytes,
            snapshot_ms,
            pause_ms,
        }
    }
}

/// A member's machine.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) me: Member,
    pub(crate) disk: SimDisk,
    pub(crate) clock: SimClock,
    dice: Arc<SimDice>,
    pub(crate) up: Option<Up>,
    /// Its clock, in thousandths of true time, and what it showed at the beginning.
    pub(crate) rate: u64,
    pub(crate) offset_ms: u64,
    /// The life that it had when it was last up.
    pub(crate) life: Life,
}

/// A member that runs.
#[derive(Debug)]
pub(crate) struct Up {
    pub(crate) replica: Replica,
    pub(crate) log: OwnLog,
    own: Own,
    pub(crate) shelf: Shelf,
    lent: Lent,
    /// A snapshot that is being written: of which turn, where, and the state as it was.
    writing: Option<(u64, Base, Toy)>,
    /// A snapshot that is being read: where it is said to stand.
    pub(crate) loading: Option<Base>,
    /// One that was read, while it is asked whether it is to be the state.
    loaded: Option<Toy>,
    pub(crate) toy: Toy,
    pub(crate) applied: Mark,
    applied_history: History,
    /// Appended and not applied.
    fresh: VecDeque<Entry>,
    coming: Option<Coming>,
    /// Commands whose clients wait.
    pub(crate) waiting: BTreeMap<Sequence, Request>,
    /// Votes that were executed, and wait until they are on every disk.
    held: VecDeque<(Mark, Request, u64)>,
    /// Reads that wait for a beat, with what they must see.
    pub(crate) reads: Vec<(u64, Sequence)>,
    pub(crate) wants_sync: bool,
    pub(crate) installs: u64,
    pub(crate) fetches: u64,
}

/// What a member says to the world around it.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Message(Message),
    Read,
    Change {
        expect: u64,
        to: Configuration,
    },
    /// An entry was applied; a client hears of it if one waits.
    Applied {
        entry: Mark,
        request: Request,
        answer: u64,
        client: bool,
    },
    /// A vote is told.
    Voted {
        entry: Mark,
        request: Request,
        answer: u64,
    },
    /// A read is answered; it must have seen this.
    Answered {
        seen: Sequence,
        must: Sequence,
    },
    Halted(Fault),
    Broken(String),
    Leads(Epoch),
    Installed,
}

impl Seat {
    pub(crate) fn new(me: u8, seed: u64) -> Self {
        let dice = Arc::new(SimDice::new(seed ^ (u64::from(me) << 32)));
        let life = Life { disk: 0, memory: 0 };
        let (disk, clock) = (SimDisk::new(), SimClock::new());
        Self { me: Member(me), disk, clock, dice, up: None, rate: 1_000, offset_ms: 0, life }
    }

    pub(crate) fn time(&self, now_ms: u64) -> u64 {
        self.offset_ms + now_ms * self.rate / 1_000
    }

    fn told(&self, shape: &Shape) -> Told {
        let otherwise = shape.otherwise.clone().filter(|_| self.me.0 + 1 == shape.members);
        otherwise.unwrap_or_else(|| Told::new(shape.ack, "", ""))
    }

    pub(crate) fn settings(&self, shape: &Shape, life: Life) -> Settings {
        let members = (0..shape.members).map(Member).collect();
        let leases = shape.lease && !(shape.mixed && self.me.0 + 1 == shape.members);
        let Told { ack, group, arbiter } = self.told(shape);
        let setup = Setup { me: self.me, members, preferred: Member(0), life, ack };
        Settings {
            group,
            arbiter,
            tick_ms: 20,
            silent_ms: 120,
            patience_ms: 300,
            slow_ms: 250,
            resend_ms: 40,
            lease: leases.then_some(LeaseSettings { length_ms: 100, drift_ppm: 50_000 }),
            window_bytes: 2_000,
            unconfirmed_bytes_max: 6_000,
            recent_bytes_max: 1_500,
            catch_up_bytes_per_s: 64 << 20,
            compare_every: 8,
            hold_ms: 3_000,
            ..Settings::new(setup)
        }
    }

    pub(crate) fn start(&mut self, shape: &Shape, now_ms: u64) -> Vec<Said> {
        let disk: Arc<dyn assent_world::Disk> = Arc::new(self.disk.clone());
        let folder = Path::new(FOLDER);
        let config = Config {
            log_size: 5 * 4096,
            max_buffer_log_size: 2 * 4096,
            max_elapsed_sync_time: 10,
            ..Config::default()
        };
        let clock = Arc::new(self.clock.clone());
        let (journal, _) = Journal::open(Arc::clone(&disk), clock, self.dice.clone(), folder, config).unwrap();
        let own = Own::open(Arc::clone(&disk), &self.clock, &*self.dice, folder).unwrap();
        let shelf = Shelf::open(Arc::clone(&disk), folder).unwrap();
        let (toy, base) = Toy::kept(&shelf);
        let (log, history) = OwnLog::open(journal, self.dice.clone(), &base).unwrap();
        self.life = own.life(self.told(shape).ack);
        let known = own.known().clone();
        let (promised_ms, end) = (own.promised_ms(), log.end());
        let opened = Opened { known, out: false, promised_ms, history, end, base: base.end.sequence };
        let mut settings = self.settings(shape, self.life);
        if shape.fickle && assent_world::Dice::roll(&*self.dice).is_multiple_of(2) {
            settings.lease = None;
        }
        let (mut replica, outputs) = Replica::start(settings, opened, self.time(now_ms)).unwrap();
        replica.left_out = shape.left_out;
        self.up = Some(Up {
            replica,
            log,
            own,
            toy,
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
            wants_sync: false,
            installs: 0,
            fetches: 0,
        });
        let mut said = Vec::new();
        self.act(shape, now_ms, outputs, &mut said);
        said
    }

    /// The process dies, or the machine.
    pub(crate) fn crash(&mut self, power: Option<u64>) {
        self.up = None;
        match power {
            Some(seed) => {
                self.disk.cut_power(assent_sim::Survival::Seeded(seed));
                self.clock.reboot();
            }
            None => self.disk.kill(),
        }
    }

    pub(crate) fn step(&mut self, shape: &Shape, now_ms: u64, input: Input) -> Vec<Said> {
        let mut said = Vec::new();
        self.feed(shape, now_ms, input, &mut said);
        said
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
                    Err(fault) => return said.push(Said::Halted(fault)),
                },
                Output::Commit(to) => {
                    let states = up.commit(to, said);
                    later.extend(states.into_iter().map(|(at, hash)| Input::State { at, hash }));
                }
                Output::Confirmed(beat) => {
                    let seen = up.applied.sequence;
                    let (ready, rest) =
                        std::mem::take(&mut up.reads).into_iter().partition(|(asked, _)| *asked <= beat);
                    up.reads = rest;
                    let ready: Vec<(u64, Sequence)> = ready;
                    said.extend(ready.into_iter().map(|(_, must)| Said::Answered { seen, must }));
                }
                Output::Lead(epoch) => said.push(Said::Leads(epoch)),
                Output::Yield => {
                    up.waiting.clear();
                    up.held.clear();
                    up.reads.clear();
                }
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
    pub(crate) fn word(&mut self, shape: &Shape, now_ms: u64, word: Word) -> Vec<Said> {
        let (time, mut said) = (self.time(now_ms), Vec::new());
        let outputs = self.up.as_mut().and_then(|up| up.replica.word(word, time).ok()).unwrap_or_default();
        self.act(shape, now_ms, outputs, &mut said);
        said
    }

    /// The process dies, and its disk is another one, empty.
    pub(crate) fn burn(&mut self) {
        self.up = None;
        self.disk = SimDisk::new();
    }

    /// The disk gets round to it.
    pub(crate) fn disk_works(&mut self, shape: &Shape, now_ms: u64, to_disk: bool) -> Vec<Said> {
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
    pub(crate) fn snap(&mut self) -> bool {
        let Some(up) = self.up.as_mut() else { return false };
        if up.writing.is_none() && up.applied.sequence > up.shelf.base().end.sequence {
            let base = Base { history: up.applied_history.clone(), end: up.applied };
            up.writing = Some((up.shelf.turn(), base, up.toy.clone()));
            return true;
        }
        false
    }

    /// It is written, if it is still to be.
    pub(crate) fn snapped(&mut self, shape: &Shape, now_ms: u64) -> Vec<Said> {
        let Some((up, (turn, base, toy))) = self.up.as_mut().and_then(|up| up.writing.take().map(|one| (up, one)))
        else {
            return Vec::new();
        };
        match up.shelf.write(turn, &base, |_| Ok(()), |put| toy.lay(put)).unwrap() {
            Wrote::Kept(kept) => self.step(shape, now_ms, Input::SnapshotKept(kept.base.end)),
            Wrote::Revoked => Vec::new(),
            Wrote::Failed(error) => vec![Said::Broken(error.to_string())],
        }
    }

    /// What came from elsewhere is read.
    pub(crate) fn was_loaded(&mut self, shape: &Shape, now_ms: u64) -> Vec<Said> {
        let Some((up, base)) = self.up.as_mut().and_then(|up| up.loading.take().map(|base| (up, base))) else {
            return Vec::new();
        };
        let mut toy = Toy::default();
        let coming = up.coming.as_ref().unwrap();
        let checked = up.shelf.check(coming, &base, |next| {
            toy = Toy::take(next);
            Ok(())
        });
        if let Err(why) = checked.unwrap() {
            return vec![Said::Broken(format!("a snapshot came broken: {why}"))];
        }
        up.loaded = Some(toy);
        let said = self.step(shape, now_ms, Input::Loaded { base, whole: true });
        if let Some(up) = &mut self.up {
            up.loaded = None;
        }
        said
    }
}

impl Up {
    /// The state of the snapshot; the log leads on from there.
    fn load(&mut self) {
        let (toy, base) = Toy::kept(&self.shelf);
        self.toy = toy;
        self.applied = base.end;
        self.applied_history = base.history;
        self.fresh.clear();
    }

    fn cut(&mut self, to: Sequence, never_revokes: bool) -> Result<Mark, Fault> {
        let base = if never_revokes { self.shelf.base() } else { self.shelf.revoke() };
        if base.end.sequence > to {
            return Err(Fault::CutBehindSnapshot { to, base: base.end.sequence });
        }
        let end = self.log.cut(to).unwrap();
        self.fresh.retain(|entry| entry.sequence <= to);
        if self.applied.sequence > to {
            self.load();
        }
        Ok(end)
    }

    fn install(&mut self, base: &Base) {
        self.installs += 1;
        self.shelf.install(&self.coming.take().unwrap(), base).unwrap();
        self.log.begin(base.end);
        self.toy = self.loaded.take().unwrap();
        self.applied = base.end;
        self.applied_history = base.history.clone();
        self.fresh.clear();
    }

    /// Applies what is confirmed; the hashes of states that are to be compared come back.
    fn commit(&mut self, to: Sequence, said: &mut Vec<Said>) -> Vec<(Sequence, u64)> {
        let mut states = Vec::new();
        while self.applied.sequence < to {
            self.fresh.retain(|entry| entry.sequence > self.applied.sequence);
            let next = self.fresh.front().is_some_and(|entry| entry.sequence.0 == self.applied.sequence.0 + 1);
            let entries = if next {
                vec![self.fresh.pop_front().unwrap()]
            } else {
                self.log.fetch(self.applied.sequence, 1).unwrap().entries
            };
            for entry in entries.into_iter().filter(|entry| entry.sequence <= to) {
                let request = Request::parse(&entry.payload);
                let answer = match self.toy.apply(request) {
                    Ok(answer) => answer,
                    Err(broken) => {
                        said.push(Said::Broken(broken));
                        return states;
                    }
                };
                self.applied = entry.mark();
                self.applied_history.grew(entry.epoch, entry.sequence);
                let client = self.waiting.remove(&entry.sequence) == Some(request);
                if client && request.is_vote() {
                    self.held.push_back((entry.mark(), request, answer));
                }
                let client = client && !request.is_vote();
                said.push(Said::Applied { entry: entry.mark(), request, answer, client });
                if entry.sequence.0 % 8 == 0 {
                    states.push((entry.sequence, self.toy.hash()));
                }
            }
        }
        states
    }

    fn tell_votes(&mut self, said: &mut Vec<Said>) {
        let kept = self.replica.kept();
        while let Some((entry, request, answer)) = self.held.pop_front_if(|(entry, ..)| entry.sequence <= kept) {
            said.push(Said::Voted { entry, request, answer });
        }
    }

    /// A client's command.
    pub(crate) fn submit(&mut self, request: Request) -> bool {
        match self.replica.submit(1, &request.payload()) {
            Ok(sequence) => {
                self.waiting.insert(sequence, request);
                if request.is_vote() {
                    self.replica.keep(sequence);
                }
                true
            }
            Err(_) => false,
        }
    }

    /// A client's read, which must see this.
    pub(crate) fn read(&mut self, time: u64, must: Sequence) -> Option<Said> {
        match self.replica.read(time).ok()? {
            ReadAt::Now => Some(Said::Answered { seen: self.applied.sequence, must }),
            ReadAt::Beat(beat) => {
                self.reads.push((beat, must));
                None
            }
        }
    }
}
