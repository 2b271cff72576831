//! The door of a member of a group: clients, on the member's own thread.
//!
//! ```text
//!   round     read what has arrived · a command: the primary's time before it, ordered · reads: asked        (the desk lays and sends)
//!   applied   confirmed and executed: the answer goes to whoever ordered it, the change to who subscribed    POINT OF NO RETURN was before
//!   flush     votes and outcomes that are on every disk in the set · one write for each connection
//! ```
//! Answers come in the order of requests, so each connection has a queue of what is due. A member that does not lead answers the first
//! command with where the primary is, and takes nothing behind it. One that loses the lead closes the connections that wait
//! for answers: what they sent is in doubt, and a session finds out at the next primary.
//! Deliberately absent: TLS and accounts; deciding who leads; waiting.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use assent_frame::{Head, lay};
use assent_ids::Epoch;
use assent_kind::Kind;
use assent_membership::{Member, Sequence};
use assent_replica::{FRONT_TOKEN, Front, Port, Refused};
use assent_world::Clock;
use assent_world::net::{Address, Interest, Listener, Registry, Token, Waker};

use crate::command::{COMMAND_BYTES_MAX, Command};
use crate::due::Due;
use crate::engine::{KIND_COMMAND as ENTRY_COMMAND, KIND_RULES as ENTRY_RULES, Stats};
use crate::guest::{AGAIN, CLIENTS_MAX, Guest, NEWS_KEPT_MAX, NEWS_MAX, READ_BYTES, ROUND_BYTES_MAX};
use crate::machine::Machine;
use crate::member::rules_of;
use crate::message::{self, ASKED_BYTES_MAX, Ask, KIND_ANSWER, KIND_ASK, KIND_COMMAND, Status, Word};
use crate::standing::{self, GroupStatus};
use crate::subscribe::{SubscriptionId, Subscriptions};
use crate::trace::{Step, Steps, Trace};

const LISTENER: usize = FRONT_TOKEN;
const FIRST: usize = FRONT_TOKEN + 1;
/// Commands of one connection that have no answer; with so many nothing more is taken from it.
const DUE_MAX: usize = 8_192;

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
    listener: Listener,
    registry: Option<Registry>,
    clock: Arc<dyn Clock>,
    clients: BTreeMap<usize, Client>,
    next: usize,
    accept_again: bool,
    /// Connections that may have more to be read than their turn took.
    again: BTreeSet<usize>,
    /// Connections that may have something to be written.
    said: BTreeSet<usize>,
    /// Commands without an answer, as they stand in the log.
    ordered: VecDeque<Ordered>,
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
    buffer: Vec<u8>,
    answer: Vec<u8>,
}

/// A command that waits to be confirmed.
struct Ordered {
    at: Sequence,
    client: usize,
    place: u64,
    is_of_branch: bool,
}

/// An answer that is there, and may not be told yet.
struct Held {
    at: Sequence,
    client: usize,
    place: u64,
    answer: Vec<u8>,
}

/// A read that waits until it may be answered.
struct Asked {
    client: usize,
    place: u64,
    command: Vec<u8>,
}

struct Client {
    guest: Guest,
    due: Due,
    subscription: Option<(SubscriptionId, u64)>,
}

impl GroupDoor {
    /// Listens there; nobody is served before the member begins.
    ///
    /// # Errors
    /// As the operating system says of the address.
    pub fn bind(at: &Address, config: GroupDoorConfig, clock: Arc<dyn Clock>) -> io::Result<Self> {
        Ok(Self {
            config,
            listener: Listener::bind(at)?,
            registry: None,
            clock,
            clients: BTreeMap::new(),
            next: FIRST,
            accept_again: false,
            again: BTreeSet::new(),
            said: BTreeSet::new(),
            ordered: VecDeque::new(),
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
            buffer: vec![0; READ_BYTES],
            answer: Vec::new(),
        })
    }

    /// Where it really listens.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn address(&self) -> io::Result<Address> {
        self.listener.address()
    }

    fn accept(&mut self) {
        self.accept_again = false;
        let Some(registry) = &self.registry else { return };
        loop {
            let mut peer = match self.listener.accept() {
                Ok(Some(peer)) => peer,
                Ok(None) => return,
                Err(_) => {
                    self.accept_again = true;
                    return;
                }
            };
            if self.clients.len() >= self.config.clients_max.min(CLIENTS_MAX) {
                continue;
            }
            let token = self.next;
            self.next = self.next.wrapping_add(1).max(FIRST);
            let both = Interest::READABLE | Interest::WRITABLE;
            if registry.register(&mut peer, Token(token), both).is_ok() {
                let guest = Guest::new(peer);
                self.clients.insert(token, Client { guest, due: Due::default(), subscription: None });
                self.again.insert(token);
            }
        }
    }

    /// Takes what one connection has said, as much as a round takes.
    fn take_in(&mut self, token: usize, client: &mut Client, port: &mut Port<'_, Machine>) {
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

    fn command(&mut self, token: usize, client: &mut Client, mark: u64, bytes: &[u8], port: &mut Port<'_, Machine>) {
        let mut trace = self.sample();
        trace.stamp(Step::Arrived, &*self.clock);
        let (read, is_of_branch) = match Command::read(bytes) {
            Ok(command) if bytes.len() <= COMMAND_BYTES_MAX => (command.is_read(), command.is_of_branch()),
            Ok(_) => {
                let text = format!("a command of {} bytes; at most {COMMAND_BYTES_MAX} are taken", bytes.len());
                return client.refuse(mark, Kind::Invalid, &text);
            }
            Err(error) => {
                let text = format!("a command is malformed at its field {:?}", error.field);
                return client.refuse(mark, Kind::Invalid, &text);
            }
        };
        let ordered = match read {
            _ if !port.takes() => Err(Refused::NotLeading { primary: None }),
            true => port.read(self.tags).map(|()| None),
            false => port.order(ENTRY_COMMAND, &[&self.clock.wall_ms().to_le_bytes(), bytes]).map(Some),
        };
        match ordered {
            Ok(Some(at)) => {
                let place = client.due.begin(mark);
                self.ordered.push_back(Ordered { at, client: token, place, is_of_branch });
                if is_of_branch {
                    port.keep(at);
                }
                if trace.is_on() {
                    trace.sequence = at;
                    trace.stamp(Step::Ordered, &*self.clock);
                    self.traced.push_back(trace);
                }
            }
            Ok(None) => {
                let place = client.due.begin(mark);
                self.reads.insert(self.tags, Asked { client: token, place, command: bytes.to_vec() });
                self.tags += 1;
            }
            Err(Refused::NotLeading { .. }) => self.send_elsewhere(client, mark, port),
            Err(refused) => client.refuse(mark, refused.kind(), &refused.to_string()),
        }
    }

    /// Says where the primary is; nothing more of this connection is done.
    fn send_elsewhere(&self, client: &mut Client, mark: u64, port: &Port<'_, Machine>) {
        let status = port.status();
        let me = port.me();
        let primary = port.leader().filter(|leader| *leader != me).and_then(|leader| self.config.nodes.get(&leader));
        let primary = primary.map(ToString::to_string).unwrap_or_default();
        let place = client.due.begin(mark);
        client.due.answer(place, &mut client.guest.outbox, |out, mark| {
            message::lay_elsewhere(out, mark, &primary, &standing::why_not_here(&status));
        });
        client.due.close();
    }

    fn ask(&mut self, token: usize, client: &mut Client, mark: u64, payload: &[u8], port: &mut Port<'_, Machine>) {
        match Ask::read(payload) {
            Ok(Ask::Status) => {}
            Ok(Ask::Snapshot) => port.snapshot(),
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
        let percentiles = self.steps.percentiles().into_iter();
        Status {
            ack: group.ack,
            window_ms: self.config.window_ms,
            closed: group.halted.clone(),
            stats,
            steps: percentiles.map(|(name, row)| (name.to_owned(), row)).collect(),
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
        if is_of_branch {
            self.held.push_back(Held { answer: answer.to_vec(), ..held });
            return;
        }
        self.answer_to(held.client, held.place, answer);
    }

    /// What is told of branches is on every disk in the set: whoever hears it may forget it.
    fn tell_kept(&mut self, port: &mut Port<'_, Machine>) {
        if let Some(last) = self.held.back() {
            port.keep(last.at);
        }
        let kept = port.kept();
        while let Some(Held { client, place, answer, .. }) = self.held.pop_front_if(|held| held.at <= kept) {
            self.answer_to(client, place, &answer);
        }
    }

    fn answer_to(&mut self, token: usize, place: u64, answer: &[u8]) {
        // It may have gone; what it ordered was done all the same.
        if let Some(client) = self.clients.get_mut(&token) {
            client.due.answer(place, &mut client.guest.outbox, |out, mark| {
                lay(out, Head { mark, kind: KIND_ANSWER, ..Head::default() }, &[answer]);
            });
            self.said.insert(token);
        }
    }

    fn leave(&mut self, token: usize) {
        self.again.remove(&token);
        self.subscribers.remove(&token);
        if let Some(Client { subscription: Some((id, _)), .. }) = self.clients.remove(&token) {
            self.subscriptions.remove(id);
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
        self.ordered.clear();
        self.held.clear();
        self.reads.clear();
        self.traced.clear();
        let waiting = |(token, client): (&usize, &Client)| (!client.due.is_empty()).then_some(*token);
        let waiting: Vec<usize> = self.clients.iter().filter_map(waiting).collect();
        waiting.into_iter().for_each(|token| self.leave(token));
    }
}

impl Client {
    fn has_no_room(&self) -> bool {
        self.guest.is_full() || self.due.len() >= DUE_MAX
    }

    fn reply(&mut self, mark: u64, lay: impl FnOnce(&mut Vec<u8>, u64)) {
        let place = self.due.begin(mark);
        self.due.answer(place, &mut self.guest.outbox, lay);
    }

    fn refuse(&mut self, mark: u64, kind: Kind, text: &str) {
        self.reply(mark, |out, mark| message::lay_refused(out, mark, kind, text));
    }

    fn has_gone(&self) -> bool {
        self.guest.is_over && self.guest.outbox.is_empty() && self.due.is_empty()
    }
}

impl Front<Machine> for GroupDoor {
    fn open(&mut self, registry: &Registry, _: &Arc<Waker>) -> io::Result<()> {
        let registry = registry.try_clone()?;
        registry.register(&mut self.listener, Token(LISTENER), Interest::READABLE)?;
        self.registry = Some(registry);
        Ok(())
    }

    fn round(&mut self, ready: &[usize], port: &mut Port<'_, Machine>) {
        if self.accept_again || ready.contains(&LISTENER) {
            self.accept();
        }
        let mut turns = std::mem::take(&mut self.again);
        turns.extend(ready.iter().filter(|token| **token >= FIRST));
        for token in turns {
            let Some(mut client) = self.clients.remove(&token) else { continue };
            // What could not be written before goes first: it makes room.
            client.guest.say();
            client.guest.hear(&mut self.buffer, true);
            self.take_in(token, &mut client, port);
            self.clients.insert(token, client);
            self.said.insert(token);
        }
    }

    fn applied(&mut self, at: Sequence, _: u16, answer: &[u8], machine: &Machine) {
        if !self.subscriptions.is_empty() {
            machine.changes().iter().for_each(|change| self.subscriptions.tell(change));
            self.has_news = true;
        }
        if let Some(ordered) = self.ordered.pop_front_if(|ordered| ordered.at == at) {
            let Ordered { client, place, is_of_branch, .. } = ordered;
            self.told(is_of_branch, Held { at, client, place, answer: Vec::new() }, answer);
        }
        if let Some(mut trace) = self.traced.pop_front_if(|trace| trace.sequence == at) {
            trace.stamp(Step::Confirmed, &*self.clock);
            self.answered.push(trace);
        }
    }

    fn readable(&mut self, tag: u64, machine: &Machine) {
        let Some(Asked { client, place, command }) = self.reads.remove(&tag) else { return };
        let Ok(command) = Command::read(&command) else { return };
        let mut answer = std::mem::take(&mut self.answer);
        answer.clear();
        machine.answer_read(&command, &mut answer);
        let held = Held { at: machine.sequence(), client, place, answer: Vec::new() };
        self.told(command.is_of_branch(), held, &answer);
        self.answer = answer;
    }

    fn leads(&mut self, _: Epoch, port: &mut Port<'_, Machine>) {
        let rules = rules_of(port.machine());
        // A primary that has just begun has room for it; if it leads no more already, the next one says it.
        _ = port.order(ENTRY_RULES, &[&rules]);
    }

    fn yields(&mut self) {
        self.doubt();
    }

    fn replaced(&mut self, _: &Machine) {
        // What changed meanwhile nobody can tell them: they ask again, and look again.
        for token in std::mem::take(&mut self.subscribers) {
            self.leave(token);
        }
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
                self.again.insert(token);
            }
        }
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
    }
}

impl std::fmt::Debug for GroupDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupDoor").field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}
