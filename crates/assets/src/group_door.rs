//! The door of a member of a group: clients, on the member's own thread.
//!
//! ```text
//!   round     read what has arrived · commands: one run of all of them, ordered with the primary's time · reads: asked   (the desk lays and sends)
//!   applied   confirmed and executed: the answer goes to whoever ordered it, the change to who subscribed    POINT OF NO RETURN was before
//!   flush     votes and outcomes that are on every disk in the set · one write for each connection
//! ```
//! Answers come in the order of requests, so each connection has a queue of what is due. A member that does not lead answers the first
//! command with where the primary is, and takes nothing behind it. One that loses the lead closes the connections that wait
//! for answers: what they sent is in doubt, and a session finds out at the next primary.
//! Deliberately absent: TLS and accounts; deciding who leads; waiting.

mod guests;
mod runs;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use assent_ids::Epoch;
use assent_kind::Kind;
use assent_membership::{Member, Sequence};
use assent_replica::{FRONT_TOKEN, Front, Port, Ready, Refused};
use assent_world::Clock;
use assent_world::net::{Address, Interest, Listener, Registry, Token, Waker};

use self::runs::lay_answer;
use crate::caller::{Asked, Caller, Held, Ordered, Whose};
use crate::command::{COMMAND_BYTES_MAX, Command};
use crate::duties::Duty;
use crate::engine::{KIND_COMMAND as ENTRY_COMMAND, KIND_RULES as ENTRY_RULES, Stats};
use crate::guest::{AGAIN, NEWS_KEPT_MAX, NEWS_MAX, READ_BYTES, ROUND_BYTES_MAX};
use crate::machine::Machine;
use crate::member::rules_of;
use crate::message::{self, ASKED_BYTES_MAX, Ask, KIND_ASK, KIND_COMMAND, Status, Word};
use crate::run::{KIND_RUN as ENTRY_RUN, Run};
use crate::standing::{self, GroupStatus};
use crate::subscribe::Subscriptions;
use crate::trace::{Step, Steps, Trace};

const LISTENER: usize = FRONT_TOKEN;
const FIRST: usize = FRONT_TOKEN + 1;
/// What the answers of all connections may take that are not there yet; with so much nothing more is taken.
const OWED_BYTES_MAX: usize = 128 << 20;
/// Connections that have closed their end and wait for answers; with more the oldest goes, and where nothing goes on all are old.
const LISTENING_MAX: usize = 64;
/// Places that are kept for questions: when nobody is served a person must be able to look.
const QUESTIONS_MAX: usize = 16;

/// How a door of a member works.
#[derive(Clone, Debug)]
pub struct GroupDoorConfig {
    /// Where clients ask each member.
    pub nodes: BTreeMap<Member, Address>,
    /// One in so many commands is traced. 0: none.
    pub trace_every: u32,
    /// Connections at once.
    pub clients_max: usize,
    /// Milliseconds after which what was answered is on the disk at the latest, where it is not before.
    pub window_ms: u64,
}

/// The door of a member.
pub struct GroupDoor {
    config: GroupDoorConfig,
    /// None where nobody comes by an address: in a simulation.
    listener: Option<Listener>,
    registry: Option<Registry>,
    clock: Arc<dyn Clock>,
    clients: BTreeMap<usize, Caller>,
    next: usize,
    accept_again: bool,
    /// Connections that may have more to be read than their turn took.
    again: BTreeSet<usize>,
    /// Connections that may have something to be written.
    said: BTreeSet<usize>,
    /// Commands of this round that have no place in the log yet: the next one is theirs.
    run: Run,
    /// Commands without an answer, as they stand in the log.
    ordered: VecDeque<Ordered>,
    /// What the log did not take of this round, and why.
    refused: Vec<(Whose, Refused)>,
    /// Those whose places are kept for questions.
    asking: BTreeSet<usize>,
    /// Those that say nothing more, and wait for answers.
    listening: BTreeSet<usize>,
    /// What the answers of all may take.
    owed_bytes: usize,
    /// Connections that have left in this turn, and may have questions here. Their tokens do not come again.
    left: BTreeSet<usize>,
    /// The entry that says limits and business logic comes before anything of a client.
    wants_rules: bool,
    /// Answers about branches, until what they tell is on every disk in the set.
    held: VecDeque<Held>,
    /// Reads without an answer, by their tags.
    reads: BTreeMap<u64, Asked>,
    tags: u64,
    subscriptions: Subscriptions,
    subscribers: BTreeSet<usize>,
    has_news: bool,
    steps: Steps,
    arrived: u64,
    traced: VecDeque<Trace>,
    answered: Vec<Trace>,
    /// The primary's time of all commands of this round.
    round_ms: u64,
    buffer: Vec<u8>,
    answer: Vec<u8>,
}

impl GroupDoor {
    /// Listens there; nobody is served before the member begins.
    ///
    /// # Errors
    /// As the operating system says of the address.
    pub fn bind(at: &Address, config: GroupDoorConfig, clock: Arc<dyn Clock>) -> io::Result<Self> {
        Ok(Self { listener: Some(Listener::bind(at)?), ..Self::closed(config, clock) })
    }

    /// Nobody comes in by an address.
    pub(crate) fn closed(config: GroupDoorConfig, clock: Arc<dyn Clock>) -> Self {
        Self {
            config,
            listener: None,
            registry: None,
            clock,
            clients: BTreeMap::new(),
            next: FIRST,
            accept_again: false,
            again: BTreeSet::new(),
            said: BTreeSet::new(),
            run: Run::default(),
            ordered: VecDeque::new(),
            refused: Vec::new(),
            asking: BTreeSet::new(),
            listening: BTreeSet::new(),
            owed_bytes: 0,
            left: BTreeSet::new(),
            wants_rules: false,
            held: VecDeque::new(),
            reads: BTreeMap::new(),
            tags: 0,
            subscriptions: Subscriptions::default(),
            subscribers: BTreeSet::new(),
            has_news: false,
            steps: Steps::default(),
            arrived: 0,
            traced: VecDeque::new(),
            answered: Vec::new(),
            round_ms: 0,
            buffer: vec![0; READ_BYTES],
            answer: Vec::new(),
        }
    }

    /// Where it really listens.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn address(&self) -> io::Result<Address> {
        self.listener.as_ref().ok_or(io::ErrorKind::NotConnected)?.address()
    }

    /// Takes what one connection has said, as much as a round takes.
    fn take_in(&mut self, token: usize, client: &mut Caller, port: &mut Port<'_, Machine>) {
        let inbox = std::mem::take(&mut client.guest.inbox);
        let (mut taken, before) = (0, client.guest.outbox.len());
        loop {
            let rest = inbox.get(taken..).unwrap_or_default();
            let (frame, laid) = match assent_frame::parse(rest, ASKED_BYTES_MAX) {
                Ok(Some(parsed)) => parsed,
                Ok(None) => break,
                Err(_) => {
                    client.guest.is_over = true;
                    taken = inbox.len();
                    break;
                }
            };
            let said = client.guest.outbox.len() - before;
            if client.has_no_room() || said >= ROUND_BYTES_MAX || taken >= ROUND_BYTES_MAX {
                client.guest.has_more = true;
                break;
            }
            match frame.kind {
                // It was told to go elsewhere: nothing behind that is done.
                _ if client.due.is_closed() => {}
                KIND_COMMAND => self.command(token, client, frame.mark, frame.payload, port),
                KIND_ASK if client.guest.has_asked => {
                    client.guest.has_more = true;
                    break;
                }
                KIND_ASK => {
                    // A person's word may end what lets commands be ordered.
                    self.lay_run(port);
                    client.guest.has_asked = true;
                    self.ask(token, client, frame.mark, frame.payload, port);
                }
                _ => client.guest.is_over = true,
            }
            taken += laid;
        }
        client.guest.inbox = inbox;
        client.guest.inbox.drain(..taken);
    }

    fn command(&mut self, token: usize, client: &mut Caller, mark: u64, bytes: &[u8], port: &mut Port<'_, Machine>) {
        let mut trace = self.sample();
        trace.stamp(Step::Arrived, &*self.clock);
        let command = match Command::read(bytes) {
            Ok(command) if bytes.len() <= COMMAND_BYTES_MAX => command,
            Ok(_) => {
                let text = format!("a command of {} bytes; at most {COMMAND_BYTES_MAX} are taken", bytes.len());
                return client.refuse(mark, Kind::Invalid, &text);
            }
            Err(error) => {
                let text = format!("a command is malformed at its field {:?}", error.field);
                return client.refuse(mark, Kind::Invalid, &text);
            }
        };
        let owed = client.owes(&command, bytes.len(), |request| port.machine().kept_bytes(request));
        let ordered = match command.is_read() {
            _ if !port.takes() => Err(Refused::NotLeading { primary: None }),
            _ if client.only_asks => {
                return client.send_elsewhere(mark, "", "this node serves as many clients as it can");
            }
            _ if self.wants_rules || self.owed_bytes >= OWED_BYTES_MAX => Err(Refused::Busy { bytes: self.owed_bytes }),
            true => port.read(self.tags).map(|()| None),
            false if Run::takes(&command) => Ok(Some(self.join(&command, port))),
            false => {
                if Duty::Behind.is_kept() {
                    self.lay_run(port);
                }
                port.order(ENTRY_COMMAND, &[&self.round_ms.to_le_bytes(), bytes]).map(Some)
            }
        };
        match ordered {
            Ok(at) => {
                self.owed_bytes += owed;
                let whose = client.begin(token, mark, command.request, owed);
                self.await_answer(at, whose, &command, bytes, port);
                if let Some(at) = at.filter(|_| trace.is_on()) {
                    trace.sequence = at;
                    trace.stamp(Step::Ordered, &*self.clock);
                    self.traced.push_back(trace);
                }
            }
            Err(Refused::NotLeading { .. }) => self.send_elsewhere(client, mark, port),
            Err(refused) => client.refuse(mark, refused.kind(), &refused.to_string()),
        }
    }

    /// It is ordered there, or asked as a read.
    fn await_answer(
        &mut self,
        at: Option<Sequence>,
        whose: Whose,
        command: &Command<'_>,
        bytes: &[u8],
        port: &mut Port<'_, Machine>,
    ) {
        let is_of_branch = command.is_of_branch();
        let Some(at) = at else {
            self.reads.insert(self.tags, Asked { whose, command: bytes.to_vec() });
            self.tags += 1;
            return;
        };
        self.ordered.push_back(Ordered { at, whose, is_of_branch });
        if is_of_branch {
            port.keep(at);
        }
    }

    /// Says where the primary is; nothing more of this connection is done.
    fn send_elsewhere(&self, client: &mut Caller, mark: u64, port: &Port<'_, Machine>) {
        let status = port.status();
        let me = port.me();
        let primary = port.leader().filter(|leader| *leader != me).and_then(|leader| self.config.nodes.get(&leader));
        let primary = primary.map(ToString::to_string).unwrap_or_default();
        client.send_elsewhere(mark, &primary, &standing::why_not_here(&status));
    }

    fn ask(&mut self, token: usize, client: &mut Caller, mark: u64, payload: &[u8], port: &mut Port<'_, Machine>) {
        match Ask::read(payload) {
            Ok(Ask::Status) => {}
            Ok(Ask::Snapshot) => port.snapshot(),
            Ok(Ask::Subscribe { .. }) if port.halted().is_some() => {
                let why = port.halted().unwrap_or_default();
                let text = format!("this node has stopped, and nothing changes here any more: {why}");
                return client.refuse(mark, Kind::Closed, &text);
            }
            Ok(Ask::Subscribe { .. }) if client.subscription.is_some() => {
                return client.refuse(mark, Kind::Busy, "a connection has one subscription");
            }
            Ok(Ask::Subscribe { wanted, most }) => {
                let most = usize::try_from(most.min(NEWS_KEPT_MAX)).unwrap_or(1);
                let wanted = if wanted.is_empty() { None } else { Some(wanted) };
                match self.subscriptions.add(wanted.as_deref(), most) {
                    Ok(id) => client.subscription = Some((id, mark)),
                    Err(error) => return client.refuse(mark, error.kind(), &error.to_string()),
                }
                self.subscribers.insert(token);
            }
            Ok(Ask::Word(word)) => {
                let word = match word {
                    Word::HandOver(to) => assent_membership::Word::HandOver(to),
                    Word::HoldOut => assent_membership::Word::Out(true),
                    Word::Release => assent_membership::Word::Out(false),
                    Word::Force => assent_membership::Word::Force,
                    Word::Settle => assent_membership::Word::Settle,
                };
                if let Err(error) = port.word(word) {
                    return client.refuse(mark, error.kind(), &error.to_string());
                }
            }
            Err(error) => return client.refuse(mark, Kind::Invalid, &error.to_string()),
        }
        let status = self.status(port);
        client.reply(mark, |out, mark| status.lay(out, mark));
    }

    fn status(&self, port: &Port<'_, Machine>) -> Status {
        let (machine, group) = (port.machine(), port.status());
        let (sessions, session_bytes) = machine.sessions();
        let stats = Stats {
            assets: machine.assets(),
            sessions,
            session_bytes,
            in_doubt: machine.prepared(),
            sequence: machine.sequence(),
            hash: group.hash,
            unsynced_bytes: 0,
            replay_bytes: group.replay_bytes,
            memory_bytes: machine.memory_bytes(),
            subscriptions: self.subscriptions.len(),
        };
        Status {
            ack: group.told.ack,
            window_ms: self.config.window_ms,
            closed: group.halted.clone(),
            stats,
            steps: self.steps.times(),
            trace: self.steps.table().unwrap_or_default(),
            group: Some(GroupStatus::of(&group)),
        }
    }

    fn sample(&mut self) -> Trace {
        let every = u64::from(self.config.trace_every);
        self.arrived += 1;
        if every > 0 && (self.arrived - 1).is_multiple_of(every) { Trace::on() } else { Trace::OFF }
    }

    /// The answer goes to whoever asked; one about a branch when it may.
    fn told(&mut self, is_of_branch: bool, held: Held, answer: &[u8]) {
        if is_of_branch && Duty::Kept.is_kept() {
            self.held.push_back(Held { answer: answer.to_vec(), ..held });
            return;
        }
        self.answer_to(held.whose, |out, mark| lay_answer(out, mark, answer));
    }

    /// What is told of branches is on every disk in the set: whoever hears it may forget it.
    fn tell_kept(&mut self, port: &mut Port<'_, Machine>) {
        if let Some(last) = self.held.back() {
            port.keep(last.at);
        }
        let kept = port.kept();
        while let Some(Held { whose, answer, .. }) = self.held.pop_front_if(|held| held.at <= kept) {
            self.answer_to(whose, |out, mark| lay_answer(out, mark, &answer));
        }
    }

    /// What was confirmed is told to subscribers who have room; the others are told later, or that they missed it.
    fn tell_news(&mut self) {
        for token in &self.subscribers {
            let Some(client) = self.clients.get_mut(token) else { continue };
            let Some((id, mark)) = client.subscription else { continue };
            while !client.guest.is_full() {
                let news = self.subscriptions.take(id, NEWS_MAX);
                if news.is_empty() {
                    break;
                }
                message::lay_news(&mut client.guest.outbox, mark, &news);
                self.said.insert(*token);
            }
        }
    }

    /// Whoever waits for an answer that does not come is told by a connection that ends.
    fn doubt(&mut self) {
        if !Duty::Doubt.is_kept() {
            return;
        }
        self.ordered.clear();
        self.held.clear();
        self.reads.clear();
        self.traced.clear();
        let waiting = |(token, client): (&usize, &Caller)| (!client.due.is_empty()).then_some(*token);
        let waiting: Vec<usize> = self.clients.iter().filter_map(waiting).collect();
        for token in waiting {
            // What was answered in this turn is not in doubt.
            self.clients.get_mut(&token).into_iter().for_each(|client| client.guest.say());
            self.leave(token);
        }
    }

    fn leave_subscribers(&mut self) {
        for token in std::mem::take(&mut self.subscribers) {
            self.leave(token);
        }
    }

    fn lay_rules(&mut self, port: &mut Port<'_, Machine>) {
        let rules = rules_of(port.machine());
        // Behind a long tail that is not confirmed there is no room for it yet: then nothing of a client is taken either.
        self.wants_rules = matches!(port.order(ENTRY_RULES, &[&rules]), Err(Refused::Busy { .. }));
    }
}

impl Front<Machine> for GroupDoor {
    fn open(&mut self, registry: &Registry, _: &Arc<Waker>) -> io::Result<()> {
        let registry = registry.try_clone()?;
        if let Some(listener) = &mut self.listener {
            registry.register(listener, Token(LISTENER), Interest::READABLE)?;
        }
        self.registry = Some(registry);
        Ok(())
    }

    fn round(&mut self, ready: &[Ready], port: &mut Port<'_, Machine>) {
        if self.accept_again || ready.iter().any(|ready| ready.token == LISTENER) {
            self.accept();
        }
        if self.wants_rules {
            self.lay_rules(port);
        }
        // Nobody says again what became of those whose turn was not enough: they are read to the end.
        let mut turns: BTreeMap<usize, bool> =
            std::mem::take(&mut self.again).into_iter().map(|token| (token, true)).collect();
        for Ready { token, is_closing } in ready.iter().filter(|ready| ready.token >= FIRST) {
            *turns.entry(*token).or_default() |= *is_closing;
        }
        self.round_ms = self.clock.wall_ms();
        for (token, is_closing) in turns {
            let Some(mut client) = self.clients.remove(&token) else { continue };
            // What could not be written before goes first: it makes room.
            client.guest.say();
            client.guest.hear(&mut self.buffer, is_closing);
            self.take_in(token, &mut client, port);
            self.clients.insert(token, client);
            self.said.insert(token);
        }
        self.lay_run(port);
        self.tell_refused();
    }

    fn applied(&mut self, at: Sequence, kind: u16, answer: &[u8], machine: &Machine) {
        if !self.subscriptions.is_empty() {
            machine.changes().iter().for_each(|change| self.subscriptions.tell(change));
            self.has_news = Duty::News.is_kept();
        }
        if kind == ENTRY_RUN {
            self.answer_run(at, answer);
        } else if let Some(ordered) = self.ordered.pop_front_if(|ordered| ordered.at == at) {
            let Ordered { whose, is_of_branch, .. } = ordered;
            self.told(is_of_branch, Held { at, whose, answer: Vec::new() }, answer);
        }
        while let Some(mut trace) = self.traced.pop_front_if(|trace| trace.sequence == at) {
            trace.stamp(Step::Confirmed, &*self.clock);
            self.answered.push(trace);
        }
    }

    fn readable(&mut self, tag: u64, machine: &Machine) {
        let Some(Asked { whose, command }) = self.reads.remove(&tag) else { return };
        let Ok(command) = Command::read(&command) else { return };
        let mut answer = std::mem::take(&mut self.answer);
        answer.clear();
        machine.answer_read(&command, &mut answer);
        let held = Held { at: machine.sequence(), whose, answer: Vec::new() };
        self.told(command.is_of_branch(), held, &answer);
        self.answer = answer;
    }

    fn leads(&mut self, _: Epoch, port: &mut Port<'_, Machine>) {
        self.lay_rules(port);
    }

    fn yields(&mut self) {
        self.wants_rules = false;
        self.doubt();
    }

    fn replaced(&mut self, _: &Machine) {
        // What changed meanwhile nobody can tell them: they ask again, and look again.
        self.leave_subscribers();
    }

    fn flush(&mut self, port: &mut Port<'_, Machine>) {
        self.tell_kept(port);
        let is_awaited = |token: &usize| self.said.contains(token);
        if std::mem::take(&mut self.has_news) || self.subscribers.iter().any(is_awaited) {
            self.tell_news();
        }
        for trace in &mut self.traced {
            // With this turn it went out.
            trace.stamp_once(Step::Sent, &*self.clock);
        }
        for token in std::mem::take(&mut self.said) {
            let Some(client) = self.clients.get_mut(&token) else { continue };
            client.guest.say();
            if client.has_gone() {
                self.leave(token);
            } else if client.guest.has_more && !client.has_no_room() {
                // Also of one that has ended its own direction: only what finds no room for its answer lets it listen.
                self.listening.remove(&token);
                self.again.insert(token);
            } else if client.only_listens() {
                self.listening.insert(token);
            }
        }
        while self.listening.len() > LISTENING_MAX
            && let Some(oldest) = self.listening.first().copied()
        {
            self.leave(oldest);
        }
        self.forget_left();
        for mut trace in self.answered.drain(..) {
            trace.stamp(Step::Replied, &*self.clock);
            self.steps.take(trace);
        }
    }

    fn pause(&self) -> Option<Duration> {
        match (self.again.is_empty(), self.accept_again) {
            (false, _) => Some(Duration::ZERO),
            (true, true) => Some(AGAIN),
            (true, false) => None,
        }
    }

    fn halts(&mut self, _: &str) {
        self.doubt();
        // A connection that stands and says nothing would look like an asset that does not change.
        self.leave_subscribers();
    }
}

impl std::fmt::Debug for GroupDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupDoor").field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}
