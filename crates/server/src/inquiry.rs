//! What takes longer than a turn: an operator's word that must be durable, reading the whole log, and reading a long value.
//!
//! Walk: [`ask`] queues an [`Inquiry`] · a thread in [`serve`] takes one after the other, one thread for each kind, so that however many ask, one
//! reader at a time walks the log, and neither a desk nor a value waits for it · the answer goes back as a letter.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use assent_coordinator::history::{self, Filter, Past};
use assent_coordinator::{Digest, Operator};
use assent_ids::{ResourceId, TxId};
use assent_journal::Log;
use assent_kind::Kind;
use assent_kv::Snapshot;
use assent_wire::{self as wire, Answer, Detail, LogQuery, LogState, Long, OperatorWord, PAYLOAD_BYTES_MAX, Request};
use assent_world::Gate;
use assent_xa::Outcome;

use crate::long::Share;
use crate::range::Range;
use crate::role::Visit;
use crate::shared::{Asked, Letter, Shared, Timed};
use crate::{chores, decisions, keyspaces, objects, views};

/// So many may wait; beyond, an inquiry is `Busy`.
const WAITING_MAX: usize = 64;
/// Transactions of one page of the log, however many are asked for.
const LOG_PAGE_MAX: usize = 1_000;

/// What is asked.
#[derive(Debug)]
pub(crate) enum Inquiry {
    Force(TxId, Outcome, Said),
    Forget(TxId, Said),
    /// And whether it is told what branches voted.
    Log(Filter, Detail),
    Verify(Option<(u64, Digest)>),
    /// Reads everything in the store, as long as somebody waits for it.
    Check,
    /// Walks over a range.
    Walk(Range),
    /// Compacts the store's values, as long as somebody waits for it.
    Compact,
    /// Makes a keyspace.
    Create(String),
    /// Drops a keyspace.
    Drop(String),
    /// Lists keyspaces.
    Keyspaces {
        name: Option<String>,
        after: Option<String>,
    },
    /// A value that is longer than a frame.
    Value {
        /// As of when; else as it is by then.
        of: Option<Arc<Snapshot>>,
        keyspace: u32,
        key: Vec<u8>,
    },
}

/// What goes back: a frame as it is laid, or an answer in parts with its room.
pub(crate) enum Answered {
    Frame(Vec<u8>),
    Long(Long, Share),
}

impl Inquiry {
    /// The inquiry in a request, if it is one.
    pub(crate) fn of(request: &Request<'_>, from: impl FnOnce() -> String) -> Option<Self> {
        let said = |word: &OperatorWord<'_>| Said { operator: operator(word), from: from() };
        Some(match request {
            Request::TxForce { tx, outcome, word } => Self::Force(*tx, decisions::outcome(*outcome), said(word)),
            Request::TxForget { tx, word } => Self::Forget(*tx, said(word)),
            Request::TxLog(query) => Self::Log(filter(query), Detail::Fates),
            Request::TxLogVotes(query) => Self::Log(filter(query), Detail::Votes),
            Request::TxLogWitnesses(query) => Self::Log(filter(query), Detail::Witnesses),
            Request::TxVerify { kept } => Self::Verify(kept.map(|(number, digest)| (number, Digest(digest)))),
            _ => return None,
        })
    }

    /// Whether it is for nobody's sake but the caller's, and short: whoever has said that he says nothing more still wants to hear it.
    const fn is_a_read(&self) -> bool {
        match self {
            Self::Log(..) | Self::Verify(_) | Self::Walk(_) | Self::Keyspaces { .. } | Self::Value { .. } => true,
            // Chores look by themselves.
            Self::Check | Self::Compact | Self::Force(..) | Self::Forget(..) | Self::Create(_) | Self::Drop(_) => false,
        }
    }
}

/// A person's word, and from where it came: the name in it is whatever the command said.
#[derive(Debug)]
pub(crate) struct Said {
    operator: Operator,
    from: String,
}

impl Said {
    /// Tells the server's log, whatever the coordinator keeps of it: a state table keeps nothing.
    fn note(&self, doing: &str, tx: TxId, came_of_it: &Result<String, Refusal>) {
        let Self { operator: Operator { who, reason }, from } = self;
        let came_of_it = came_of_it.as_ref().map_or_else(|(kind, why)| format!("{kind}: {why}"), Clone::clone);
        tracing::warn!("an operator, {who:?} by {from}, {doing} {tx}, because {reason:?}: {came_of_it}");
    }
}

fn operator(word: &OperatorWord<'_>) -> Operator {
    Operator { who: word.who.to_owned(), reason: word.reason.to_owned() }
}

fn filter(query: &LogQuery<'_>) -> Filter {
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX).clamp(1, LOG_PAGE_MAX);
    Filter {
        since_ms: query.since_ms,
        until_ms: query.until_ms,
        state: query.state.map(|state| match state {
            LogState::Committed => history::State::Committed,
            LogState::RolledBack => history::State::RolledBack,
            LogState::Heuristic => history::State::Heuristic,
            LogState::InDoubt => history::State::InDoubt,
            LogState::Forced => history::State::Forced,
        }),
        // A name that is not registered any more has the same id as ever.
        resource: query.resource.map(ResourceId::of),
        tx: query.tx,
        after: query.after,
        limit,
    }
}

/// One that waits for the thread.
type Waiting = (Asked, Inquiry, Option<Timed>, Caller);

/// Whoever waits for an answer.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Weak<()>);

impl Caller {
    /// Its connection ended: work on the whole store that it asked for is for nobody.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// Those that wait for the thread.
#[derive(Debug, Default)]
pub(crate) struct Inquiries {
    waiting: Mutex<VecDeque<Waiting>>,
    bell: Gate,
    stopping: AtomicBool,
}

impl Inquiries {
    /// False if too many wait.
    fn put(&self, waits: Waiting) -> bool {
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.len() >= WAITING_MAX {
                return false;
            }
            waiting.push_back(waits);
        }
        self.ring();
        true
    }

    fn take(&self) -> Option<Waiting> {
        loop {
            let seen = self.bell.value();
            if self.stopping.load(Ordering::Acquire) {
                return None;
            }
            let first = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            if first.is_some() {
                return first;
            }
            self.bell.wait(seen, None);
        }
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        self.bell.bump();
        self.bell.wake_all();
    }
}

/// Queues an operator's inquiry; it is answered later.
pub(crate) fn ask(visit: &mut Visit<'_>, inquiry: Inquiry) {
    if visit.shared.coordinator.is_none() {
        return visit.error(Kind::NotFound, "this server has no coordinator; connect to one that has");
    }
    if matches!(inquiry, Inquiry::Log(..) | Inquiry::Verify(_)) {
        // All of the log: nobody's value or keyspace waits behind it.
        return queue(visit, inquiry, &visit.shared.histories);
    }
    ask_store(visit, inquiry);
}

/// Queues an inquiry about the store; it is answered later.
pub(crate) fn ask_store(visit: &mut Visit<'_>, inquiry: Inquiry) {
    queue(visit, inquiry, &visit.shared.inquiries);
}

/// Queues work on the whole store. It has a thread of its own: nobody's value waits behind it.
pub(crate) fn ask_chore(visit: &mut Visit<'_>, inquiry: Inquiry) {
    queue(visit, inquiry, &visit.shared.chores);
}

/// Queues a walk over more dead keys than a desk steps over. Nobody waits behind it but who asks for such a one, too.
pub(crate) fn ask_walk(visit: &mut Visit<'_>, range: Range) {
    visit.shared.numbers.walks.inc();
    queue(visit, Inquiry::Walk(range), &visit.shared.walks);
}

fn queue(visit: &mut Visit<'_>, inquiry: Inquiry, behind: &Inquiries) {
    if !visit.has_room() {
        return;
    }
    let asked = Asked { desk: visit.desk, token: visit.token, request: visit.mark };
    let connection = &visit.connection;
    let caller = if inquiry.is_a_read() { &connection.is_there } else { &connection.lives };
    let caller = Caller(Arc::downgrade(caller));
    if behind.put((asked, inquiry, visit.timed, caller)) {
        visit.timed = None;
        visit.connection.pending += 1;
    } else {
        visit.error(Kind::Busy, &format!("{WAITING_MAX} requests that take long wait already; ask again"));
    }
}

/// Answers these inquiries until the server stops.
pub(crate) fn serve(shared: &Shared, inquiries: &Inquiries, log: Option<&Arc<dyn Log>>) {
    while let Some((asked, inquiry, timed, caller)) = inquiries.take() {
        let Asked { desk, token, request } = asked;
        // Nothing but an answer that nobody waits for any more.
        if inquiry.is_a_read() && caller.is_gone() {
            continue;
        }
        let answered = answer(shared, log, inquiry, (request, &caller));
        if let Some(timed) = timed {
            timed.ends(shared, answered.is_err());
        }
        let letter = match answered {
            Ok(Answered::Frame(frame)) => Letter::Late { token, frame },
            Ok(Answered::Long(long, share)) => Letter::Long { token, long, share },
            Err((kind, message)) => {
                shared.numbers.refused(kind);
                let mut frame = Vec::new();
                _ = Answer::Error { kind, message: &message }.lay(&mut frame, request, PAYLOAD_BYTES_MAX);
                Letter::Late { token, frame }
            }
        };
        if let Some(inbox) = shared.inboxes.get(desk) {
            inbox.post(letter);
        }
    }
}

pub(crate) type Refusal = (Kind, String);

fn answer(
    shared: &Shared,
    log: Option<&Arc<dyn Log>>,
    inquiry: Inquiry,
    (mark, caller): (u64, &Caller),
) -> Result<Answered, Refusal> {
    let log = || log.ok_or_else(|| (Kind::NotFound, "this server's coordinator has no log to read".to_owned()));
    let coordinator = || {
        let absent = || (Kind::NotFound, "this server has no coordinator; connect to one that has".to_owned());
        shared.coordinator.as_deref().ok_or_else(absent)
    };
    let frame = match inquiry {
        Inquiry::Force(tx, wanted, said) => {
            let forced = coordinator()?.force(tx, wanted, &said.operator).map_err(|error| (error.kind, error.message));
            let doing = if wanted == Outcome::Committed { "forces the commit of" } else { "forces the rollback of" };
            let is =
                |outcome: Outcome| if outcome == Outcome::Committed { "it is committed" } else { "it is rolled back" };
            said.note(doing, tx, &forced.clone().map(|outcome| is(outcome).to_owned()));
            // The branches need not wait for the agent's next look.
            shared.recovery.ring();
            forced.and_then(|outcome| lay(shared, mark, &Answer::Decided(views::outcome(outcome))))
        }
        Inquiry::Forget(tx, said) => {
            let forgotten = coordinator()?.forget(tx, &said.operator).map_err(|error| (error.kind, error.message));
            said.note(
                "forgets the heuristic outcome of",
                tx,
                &forgotten.clone().map(|()| "it is forgotten".to_owned()),
            );
            forgotten.and_then(|()| lay(shared, mark, &Answer::Forgotten))
        }
        Inquiry::Log(filter, detail) => page(shared, &**log()?, &filter, detail, mark),
        Inquiry::Verify(kept) => verify(shared, &**log()?, kept, mark),
        Inquiry::Check => chores::check(shared, mark, caller),
        Inquiry::Compact => chores::compact(shared, mark, caller),
        Inquiry::Create(name) => keyspaces::create(shared, &name, mark),
        Inquiry::Drop(name) => keyspaces::drop(shared, &name, mark),
        Inquiry::Keyspaces { name, after } => keyspaces::list(shared, name.as_deref(), after.as_deref(), mark),
        Inquiry::Walk(range) => range.walk(shared, mark),
        Inquiry::Value { of, keyspace, key } => return objects::value(shared, of, (keyspace, &key), mark),
    };
    frame.map(Answered::Frame)
}

/// Lays an answer as a frame.
pub(crate) fn lay(shared: &Shared, mark: u64, answer: &Answer<'_>) -> Result<Vec<u8>, Refusal> {
    let limit = usize::try_from(shared.limits.frame_bytes_max).unwrap_or(PAYLOAD_BYTES_MAX);
    let mut out = Vec::new();
    match answer.lay(&mut out, mark, limit) {
        Ok(()) => Ok(out),
        Err(error) => Err((error.kind(), error.to_string())),
    }
}

/// A page of the log: as many as were asked for and fit a message.
fn page(shared: &Shared, log: &dyn Log, filter: &Filter, detail: Detail, mark: u64) -> Result<Vec<u8>, Refusal> {
    let mut list: Vec<(Past, Vec<String>)> = Vec::new();
    let mut more = history::read(log, filter, &mut |past| {
        let names = past.branches.iter().map(|branch| shared.resource_name(branch.resource)).collect();
        list.push((past.clone(), names));
        ControlFlow::Continue(())
    })
    .map_err(|error| (error.kind(), error.to_string()))?;
    loop {
        let views = list.iter().map(|(past, names)| views::past(past, names)).collect();
        match lay(shared, mark, &Answer::Log { more, detail, list: views }) {
            // Half as many until they fit; one alone that does not is answered with the limit it breaks.
            Err(_) if list.len() > 1 => {
                list.truncate(list.len() / 2);
                more = true;
            }
            laid => return laid,
        }
    }
}

fn verify(shared: &Shared, log: &dyn Log, kept: Option<(u64, Digest)>, mark: u64) -> Result<Vec<u8>, Refusal> {
    let found = history::verify(log, kept).map_err(|error| (error.kind(), error.to_string()))?;
    // Seals are lazy, and the reading sees what is not on disk yet. Whoever keeps the head must find it after a power cut.
    log.sync().map_err(|error| (error.kind(), error.to_string()))?;
    let seal =
        |seal: assent_coordinator::Seal| wire::Seal { number: seal.number, digest: seal.digest.0, at_ms: seal.at_ms };
    let verified = wire::Verified {
        seals: found.seals,
        records: found.records,
        unsealed: found.unsealed,
        is_whole: found.is_whole,
        first: found.first.map(seal),
        head: found.head.map(seal),
    };
    lay(shared, mark, &Answer::Verified(verified))
}
