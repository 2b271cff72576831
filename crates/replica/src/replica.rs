//! One member's share of a group's log: who leads is `membership`'s, what is in the log and how it comes to the others is here.
//!
//! ```text
//!   client ── submit ──▶ Append, Stream ──────────────▶ take: sequence, chain, epoch ──▶ Append
//!                          │  Held (own disk)                                  │ Held (own disk)
//!                          ▼                                                   ▼
//!                        watermark of the set ◀────────────── Held { reach } ──┘    one number, for all that waits
//!                          ▼
//!                        Commit: apply, answer        Commit: apply, answer nobody
//! ```
//! Walk: [`Replica::start`] with what was found · [`Replica::submit`] takes a command, [`Replica::read`] a read ·
//! [`Replica::step`] takes an [`Input`], and everything that was submitted since, and answers what is to be done · the
//! sending side is `primary`, the receiving one `standby`.
//! Nothing is applied before it is confirmed: so no state is ever taken back, and a request that was sent twice is told apart
//! by the state itself, at the moment when it is applied.
//! Deliberately absent: I/O, threads, clocks, and what a command means.

use std::collections::BTreeMap;

use assent_journal::KIND_RESERVED;
use assent_membership::{
    Ack, Action, Body, Configuration, Event, Letter, Member, Node, Promise, Reach, Sequence, Standing, Word, WordError,
};
use bytes::BytesMut;

use crate::entry::{COMMAND_BYTES_MAX, Entry, Mark};
use crate::event::{Fault, Input, Opened, Output, ReadAt, Refused};
use crate::keeping::Keeping;
use crate::message::{Message, Said};
use crate::primary::Primary;
use crate::recent::Recent;
use crate::rules::Rule;
use crate::settings::{Settings, SettingsError};
use crate::standby::Standby;
use crate::states::States;
use crate::status::Counts;
use crate::told::Told;
use crate::watch::Watch;

/// Commands are put together in pieces of memory of so many bytes: one for many, not one for each.
const LAID_BYTES: usize = 64 << 10;

/// One member of a group.
#[derive(Clone, Debug)]
pub struct Replica {
    pub(crate) settings: Settings,
    pub(crate) node: Node,
    pub(crate) side: Side,
    /// The own log's end.
    pub(crate) end: Mark,
    pub(crate) reach: Reach,
    /// Entries that the node has not been told of: since the last step.
    grown: bool,
    pub(crate) keeping: Keeping,
    pub(crate) recent: Recent,
    /// Everything up to here is confirmed, as far as known here.
    pub(crate) confirmed: Sequence,
    /// Nothing before it can be cut.
    pub(crate) base: Sequence,
    /// Nothing before it is in the log, as far as was said.
    pub(crate) trimmed: Sequence,
    pub(crate) states: States,
    pub(crate) watch: Watch,
    promise: Promise,
    /// How long a promise may be that a later life must keep, as is durable.
    promised_ms: u64,
    /// The last beat that was answered, and of which epoch.
    promised: (u32, u64),
    /// When the arbiter was last asked what it holds.
    read_ms: u64,
    /// What this member was told of the group, and the digest of it.
    pub(crate) told: Told,
    pub(crate) digest: u64,
    /// Members that were told otherwise, and what.
    pub(crate) otherwise: BTreeMap<Member, (u64, Told)>,
    halted: bool,
    pub(crate) counts: Counts,
    /// Where commands are put together; their payloads are parts of it.
    laid: BytesMut,
    pub(crate) out: Vec<Output>,
    #[cfg(test)]
    pub(crate) left_out: Option<Rule>,
}

/// What it does in the stream.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    Neither,
    Primary(Primary),
    Standby(Standby),
}

impl Replica {
    /// A member that has just started.
    ///
    /// # Errors
    /// [`SettingsError`] for a group or numbers that cannot be.
    pub fn start(settings: Settings, opened: Opened, now_ms: u64) -> Result<(Self, Vec<Output>), SettingsError> {
        settings.check()?;
        let Opened { known, out, promised_ms, history, end, base } = opened;
        let (node, actions) = Node::start(settings.setup.clone(), known, history, out)?;
        let length_ms = settings.lease.map_or(0, |lease| lease.length_ms);
        let told = Told::new(settings.setup.ack, &settings.group, &settings.arbiter);
        let mut replica = Self {
            promise: Promise::at_start(length_ms, length_ms.max(promised_ms), now_ms),
            promised_ms,
            promised: (0, 0),
            settings,
            node,
            side: Side::Neither,
            end,
            reach: Reach::durable(end.sequence),
            grown: false,
            keeping: Keeping::default(),
            recent: Recent::default(),
            confirmed: base,
            base,
            trimmed: base,
            states: States::default(),
            watch: Watch::new(now_ms),
            read_ms: 0,
            digest: told.digest(),
            told,
            otherwise: BTreeMap::new(),
            halted: false,
            counts: Counts::default(),
            laid: BytesMut::new(),
            out: Vec::new(),
            #[cfg(test)]
            left_out: None,
        };
        if length_ms > promised_ms {
            replica.promises(length_ms);
        }
        replica.act(actions);
        let out = replica.done();
        Ok((replica, out))
    }

    /// Puts a command behind the log. It is on its way with the next step; it is done when [`Output::Commit`] has passed its
    /// sequence, and in doubt if [`Output::Yield`] comes before.
    ///
    /// # Errors
    /// [`Refused`]; nothing has happened then.
    pub fn submit(&mut self, kind: u16, payload: &[u8]) -> Result<Sequence, Refused> {
        self.submit_parts(kind, &[payload])
    }

    /// As [`Replica::submit`]: the parts one after the other are the command.
    ///
    /// # Errors
    /// [`Refused`]; nothing has happened then.
    pub fn submit_parts(&mut self, kind: u16, parts: &[&[u8]]) -> Result<Sequence, Refused> {
        let Some(epoch) = self.node.leads().filter(|_| self.node.takes_commands() && !self.halted) else {
            return Err(Refused::NotLeading { primary: self.node.configuration().primary });
        };
        if kind >= KIND_RESERVED {
            return Err(Refused::Kind { kind });
        }
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes > COMMAND_BYTES_MAX {
            return Err(Refused::Long { bytes });
        }
        let unconfirmed = self.recent.unconfirmed_bytes();
        if unconfirmed >= self.settings.unconfirmed_bytes_max {
            return Err(Refused::Busy { bytes: unconfirmed });
        }
        if self.laid.capacity() < bytes {
            self.laid.reserve(bytes.max(LAID_BYTES));
        }
        parts.iter().for_each(|part| self.laid.extend_from_slice(part));
        let entry = Entry::behind(self.end, epoch, kind, self.laid.split().freeze());
        self.append(entry);
        self.grown = true;
        self.counts.ordered += 1;
        Ok(self.end.sequence)
    }

    /// Asks when a read may be answered.
    ///
    /// # Errors
    /// [`Refused::NotLeading`].
    pub fn read(&mut self, now_ms: u64) -> Result<ReadAt, Refused> {
        self.watch.look(now_ms, self.settings.silent_ms);
        if self.node.leads().is_none() || self.halted {
            return Err(Refused::NotLeading { primary: self.node.configuration().primary });
        }
        if self.reads_alone() {
            return Ok(ReadAt::Now);
        }
        self.ask();
        Ok(ReadAt::Beat(self.node.beat()))
    }

    /// Takes an input in, and all commands and reads since the last one.
    pub fn step(&mut self, input: Input, now_ms: u64) -> Vec<Output> {
        if self.halted {
            return Vec::new();
        }
        self.watch.look(now_ms, self.settings.silent_ms);
        self.grew();
        self.tell_keep();
        match input {
            Input::Time => {}
            Input::Heard(message) => self.heard(message),
            Input::Connected(member) => self.connected(member),
            Input::Lost(member) => self.suspect(member),
            Input::Arbiter(configuration) => self.node(Event::Arbiter(configuration)),
            Input::ArbiterSilent => self.node(Event::ArbiterSilent),
            Input::Refused { expect, to } => self.node(Event::Refused { expect, to }),
            Input::Held { written, durable } => self.held(written, durable),
            Input::WasCut(end) => self.was_cut(end),
            Input::Fetched { to, after, chain, entries } => self.fetched(to, after, chain, entries),
            Input::PieceRead { to, piece } => self.piece_read(to, piece),
            Input::Loaded { base, whole } => self.loaded(base, whole),
            Input::Installed => self.installed(),
            Input::SnapshotKept(mark) => self.snapshot_kept(mark),
            Input::State { at, hash } => self.own_state(at, hash),
        }
        if self.watch.tick(self.settings.tick_ms) && !self.halted {
            self.tick();
        }
        self.sync_kept();
        self.feed();
        self.done()
    }

    /// When it is to be stepped again, if nothing comes before.
    #[must_use]
    pub const fn due_ms(&self) -> u64 {
        self.watch.due_ms()
    }

    /// Follows a person's word.
    ///
    /// # Errors
    /// [`WordError`] where that cannot be; nothing has changed then.
    pub fn word(&mut self, word: Word, now_ms: u64) -> Result<Vec<Output>, WordError> {
        self.watch.look(now_ms, self.settings.silent_ms);
        self.grew();
        let actions = self.node.word(word)?;
        self.act(actions);
        Ok(self.done())
    }

    /// Where it stands, and if nothing goes on, why.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.node.standing()
    }

    /// The last configuration known.
    #[must_use]
    pub const fn configuration(&self) -> &Configuration {
        self.node.configuration()
    }

    /// The end of its log.
    #[must_use]
    pub const fn end(&self) -> Mark {
        self.end
    }

    /// Everything up to here is confirmed, as far as known here.
    #[must_use]
    pub const fn confirmed(&self) -> Sequence {
        self.confirmed
    }

    /// The member who decides: whom it follows or waits for, and the sets that count.
    #[must_use]
    pub const fn membership(&self) -> &Node {
        &self.node
    }
}

/// What both sides do.
impl Replica {
    pub(crate) const fn me(&self) -> Member {
        self.settings.setup.me
    }

    pub(crate) fn others(&self) -> Vec<Member> {
        self.settings.setup.members.iter().copied().filter(|member| *member != self.me()).collect()
    }

    pub(crate) fn send(&mut self, to: Member, said: Said) {
        let (from, told, epoch) = (self.me(), self.digest, self.node.configuration().epoch);
        self.out.push(Output::Send(Message { from, to, told, epoch, said }));
    }

    /// Puts an entry that follows the end behind it.
    pub(crate) fn append(&mut self, entry: Entry) {
        self.end = entry.mark();
        self.reach.received = entry.sequence;
        if !self.keeps(Rule::HeldIsHeld) {
            self.reach = Reach::durable(entry.sequence);
        }
        self.recent.push(entry.clone());
        match self.out.last_mut() {
            Some(Output::Append(run)) => run.push(entry),
            _ => self.out.push(Output::Append(vec![entry])),
        }
    }

    /// Tells the node that entries of this epoch were put behind the log, or are held better now.
    pub(crate) fn tell_reach(&mut self, epoch: assent_ids::Epoch) {
        self.node(Event::Log { epoch, reach: self.reach });
    }

    pub(crate) fn confirm(&mut self, to: Sequence) {
        let to = to.min(self.end.sequence);
        if to > self.confirmed {
            self.confirmed = to;
            // Where nothing lands before it is durable, a standby that catches up may be told that what it has not on its disk is confirmed.
            let landed = if self.settings.setup.ack == Ack::Durable { self.reach.durable } else { to };
            self.recent.confirm(to, landed, self.settings.recent_bytes_max);
            self.out.push(Output::Commit(to));
        }
    }

    pub(crate) fn halt(&mut self, fault: Fault) {
        self.halted = true;
        self.out.push(Output::Halt(fault));
    }

    /// A member has been silent for too long. A promise is kept first.
    pub(crate) fn suspect(&mut self, member: Member) {
        let primary = self.node.configuration().primary == Some(member) && self.node.leads().is_none();
        if !primary || self.is_free() {
            self.node(Event::Silent(member));
        }
    }

    /// Whether nothing that was promised keeps it from asking for the lead.
    fn is_free(&self) -> bool {
        let over = self.promise.is_over(self.watch.now_ms);
        let earlier = self.settings.lease.is_none() && !self.keeps(Rule::EarlierPromise);
        over || earlier || !self.keeps(Rule::Promise)
    }

    /// A later life must keep promises of this length.
    fn promises(&mut self, length_ms: u64) {
        self.promised_ms = length_ms;
        self.out.push(Output::Promise(length_ms));
    }

    pub(crate) fn node_step(&mut self, event: Event, no_heartbeat: bool) {
        let before = (self.node.leads(), self.node.follows());
        let mut actions = self.node.step(event);
        if no_heartbeat {
            actions.retain(|action| !matches!(action, Action::Send(Letter { body: Body::Lead { .. }, .. })));
        }
        self.act(actions);
        if before != (self.node.leads(), self.node.follows()) {
            self.watch.begin();
        }
    }

    pub(crate) fn node(&mut self, event: Event) {
        self.node_step(event, false);
    }

    /// The node hears of what was submitted, in one go.
    fn grew(&mut self) {
        if std::mem::take(&mut self.grown)
            && let Some(epoch) = self.node.leads()
        {
            self.tell_reach(epoch);
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            if self.halted {
                return;
            }
            match action {
                Action::Store(configuration) => self.out.push(Output::Store(configuration)),
                Action::Send(letter) => self.post(letter),
                Action::Read => self.read_arbiter(),
                Action::Change { expect, to } => self.change(expect, to),
                Action::Lead(epoch) => {
                    self.side = Side::Primary(Primary::new(self.settings.lease, self.end.sequence));
                    // What an earlier primary said of entries that are not here is of another history than this one's.
                    self.states.cut(self.end.sequence);
                    self.begin_keeping();
                    self.counts.leads += 1;
                    self.out.push(Output::Lead(epoch));
                }
                Action::Yield => {
                    self.unlend();
                    self.counts.yields += 1;
                    self.side = Side::Neither;
                    self.out.push(Output::Yield);
                }
                Action::Sync => self.out.push(Output::Sync),
                Action::Release(to) => self.confirm(to),
                Action::Kept(to) => self.keeping.kept = self.keeping.kept.max(to),
                Action::Confirmed(beat) => self.out.push(Output::Confirmed(beat)),
                Action::Follow { primary, cut, .. } => self.follow(primary, cut),
            }
        }
    }

    /// Who leads asks only whether somebody else does out of earshot, which changes nothing that it may do: not with each tick.
    fn read_arbiter(&mut self) {
        let now = self.watch.now_ms;
        if self.node.awaits_arbiter() || now.saturating_sub(self.read_ms) >= self.settings.silent_ms {
            self.read_ms = now;
            self.out.push(Output::Read);
        }
    }

    fn change(&mut self, expect: u64, to: Configuration) {
        let known = self.node.configuration().epoch;
        let asks_for_lead = to.primary == Some(self.me()) && to.epoch > known;
        // What is not said now is said again with a tick. A person looks that no other one runs; that one once led by force says nothing.
        if !asks_for_lead || self.node.asks_by_force() || self.is_free() {
            self.out.push(Output::Change { expect, to });
        }
    }

    fn post(&mut self, letter: Letter) {
        let now = self.watch.now_ms;
        let Letter { from, to, epoch, mut body } = letter;
        match &mut body {
            Body::Lead { beat, .. } => {
                if let Side::Primary(primary) = &mut self.side {
                    primary.beats(*beat, now);
                }
            }
            Body::Held { beat, promised_ms, .. } => {
                if let Some(lease) = self.settings.lease {
                    *promised_ms = lease.length_ms;
                    // Only the first answer to a beat promises: the lease counts from when that beat was sent.
                    if (epoch.0, *beat) > self.promised {
                        self.promised = (epoch.0, *beat);
                        self.promise.answered(now);
                    }
                }
            }
            _ => {}
        }
        let told = self.digest;
        self.out.push(Output::Send(Message { from, to, told, epoch, said: Said::Letter(body) }));
    }

    fn heard(&mut self, message: Message) {
        let Message { from, to, told, epoch, said } = message;
        if to != self.me() || from == to || !self.settings.setup.members.contains(&from) {
            return;
        }
        if let Said::Told { told, asks } = said {
            return self.was_told(from, told, asks);
        }
        if told == self.digest {
            if !self.otherwise.is_empty() {
                self.otherwise.remove(&from);
            }
        } else if self.keeps(Rule::ToldAlike) && !self.listens_to(from, told) {
            // What it confirms would be counted as something else, and what it would do with the lead too.
            return;
        }
        let Said::Letter(body) = said else {
            let current = epoch == self.node.configuration().epoch;
            if current || !self.keeps(Rule::Epoch) {
                self.streamed(from, epoch, said);
            }
            return;
        };
        let (held, leads) = match &body {
            Body::Held { life, reach, beat, promised_ms, .. } => (Some((*life, *reach, *beat, *promised_ms)), false),
            Body::Lead { .. } => (None, true),
            _ => (None, false),
        };
        self.node(Event::Heard(Letter { from, to, epoch, body }));
        let current = epoch == self.node.configuration().epoch;
        let believes = !self.keeps(Rule::SaidPromise);
        match &mut self.side {
            _ if self.node.leads().is_none() && self.node.follows().is_none() => self.watch.heard(from),
            Side::Primary(primary) => {
                // What another life says is no sign of the one that is counted on.
                let counts = |life| self.node.counts_on(from, life);
                if let Some((_, reach, beat, promised_ms)) = held.filter(|(life, ..)| current && counts(*life)) {
                    primary.answered(from, reach, self.watch.now_ms);
                    primary.promised(from, beat, if believes { u64::MAX } else { promised_ms });
                    self.watch.heard(from);
                }
            }
            _ if leads && current => self.watch.heard(from),
            _ => {}
        }
    }

    fn streamed(&mut self, from: Member, epoch: assent_ids::Epoch, said: Said) {
        match said {
            Said::Resume(mark) => self.resumed(from, mark),
            Said::More { at, offset } => self.more(from, at, offset),
            said if self.node.takes_stream(from, epoch) || !self.keeps(Rule::Epoch) => match said {
                Said::Stream { end, confirmed, keep, entries } => {
                    self.take(end, confirmed, entries);
                    self.hear_keep(keep);
                }
                Said::Differs(at) => self.halt(Fault::LogDiffers { at }),
                Said::Piece(piece) => self.piece(piece),
                Said::State { at, hash } => self.their_state(at, hash),
                _ => {}
            },
            _ => {}
        }
    }

    /// How far the own log has come.
    fn held(&mut self, written: Sequence, durable: Sequence) {
        let received = self.end.sequence;
        let reach = Reach { received, written: written.min(received), durable: durable.min(written).min(received) };
        if reach != self.reach {
            self.reach = reach;
            self.tell_reach(self.node.place().epoch);
        }
    }

    /// There is a snapshot of the state after this entry.
    fn snapshot_kept(&mut self, mark: Mark) {
        let at = mark.sequence;
        // Of another history than the log is now: what was cut in between is nobody's beginning.
        if at > self.confirmed || self.chain_at(at).is_some_and(|chain| chain != mark.chain) {
            return;
        }
        self.base = self.base.max(at);
        self.trim();
    }

    fn tick(&mut self) {
        let leads = self.node.leads().is_some();
        let asked = leads && self.settings.lease.is_some();
        if asked {
            self.ask();
        }
        self.node_step(Event::Tick, asked);
        for member in self.others() {
            if self.watch.silence_ms(member) >= self.settings.silent_ms {
                self.suspect(member);
            }
        }
        // What an earlier life promised is over: the next one need not wait for it.
        let length_ms = self.settings.lease.map_or(0, |lease| lease.length_ms);
        if self.promised_ms > length_ms && self.promise.is_over(self.watch.now_ms) {
            self.promises(length_ms);
        }
        let waits = self.node.leads().is_none() && self.node.follows().is_none();
        if waits && self.watch.waited_ms() >= self.settings.patience_ms {
            self.node(Event::Patience);
        }
        match self.side {
            Side::Primary(_) => self.tick_primary(),
            Side::Standby(_) => self.tick_standby(),
            Side::Neither => {}
        }
    }

    fn done(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    #[cfg(test)]
    pub(crate) fn leaving_out(mut self, rule: Option<Rule>) -> Self {
        self.left_out = rule;
        self
    }

    #[cfg(test)]
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "only a test leaves a rule out")]
    pub(crate) const fn keeps(&self, _: Rule) -> bool {
        true
    }
}
