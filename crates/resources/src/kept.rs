//! A connection and the helper thread that works on it while a verb is under way: a driver that can only block lets
//! the branches of one transaction overlap, and one that never comes back holds nobody up.
//!
//! Walk: `send` puts a verb's first words on the wire, where the session can do that without waiting, and `receive` does the
//! rest on the caller's thread; else it hands connection and verb to the helper · `defer` keeps the verb of a session that
//! has a time limit of its own, and `receive` does it on the caller's thread: of two branches one needs no helper ·
//! `receive` takes connection and answer back, or gives the connection up after `answer_ms_max` · `let_go` ends it for the
//! sake of its branch · `with` lends the connection to the caller, who has it only while no verb is under way.
//! Deliberately absent: what a verb means to the server (`Session::step`), locks: the connection has one owner.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use assent_ids::Xid;
use assent_kind::Kind;
use assent_xa::{Native, Reply, Verb};

use crate::dummy::unsent;
use crate::error::ResourceError;

/// How many given-up helpers of one connector may still hang before it opens nothing more.
const STUCK_MAX: usize = 4;

/// How long a server may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the first byte to a usable connection.
    pub connect_ms_max: u64,
    /// From a verb to its answer. Beyond it the connection is given up and the answer counts as lost. The start of a
    /// branch on a PostgreSQL connection of the caller's own has no limit but the kernel's for machines that vanish.
    pub answer_ms_max: u64,
}

impl Limits {
    /// For a connection on which an application works: a prepare may have many deferred checks to do.
    pub const WORK: Limits = Limits { connect_ms_max: 5_000, answer_ms_max: 60_000 };
    /// For recovery, which comes again: one dead server must not hold up the others.
    pub const RECOVERY: Limits = Limits { connect_ms_max: 3_000, answer_ms_max: 10_000 };
}

/// A connection that does one verb after the other.
pub(crate) trait Session: Send + 'static {
    /// Does it, blocking.
    fn step(&mut self, verb: &Verb) -> Reply;

    /// The branch that lasts as long as this connection, or is kept from others by it.
    fn occupant(&self) -> Option<Xid>;

    /// Has the reads of the next verb give up after so long; whether that can be had. A verb whose read gave up is `Lost`.
    /// The caller's own work has no limit.
    fn limit(&mut self, _longest: Duration) -> bool {
        false
    }

    /// Puts on the wire what the verb begins with, and does not wait; whether the rest can then be done by whoever receives,
    /// its reads giving up after so long.
    fn ahead(&mut self, _verb: &Verb, _longest: Duration) -> bool {
        false
    }

    /// Whether [`Session::ahead`] would.
    fn goes_ahead(&self, _verb: &Verb) -> bool {
        false
    }

    /// The answer to a verb that needs no word with the server.
    fn at_once(&mut self, _verb: &Verb) -> Option<Reply> {
        None
    }

    /// Whether it is over, as far as that shows without a word to the server.
    fn has_ended(&self) -> bool {
        false
    }
}

/// Helpers that were given up while their driver had not come back. Shared by a connector and its connections.
#[derive(Clone, Default)]
pub(crate) struct Stuck(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl Stuck {
    fn give_up(&self, helper: JoinHandle<()>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(helper);
    }

    fn count(&self) -> usize {
        let mut helpers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        helpers.retain(|helper| !helper.is_finished());
        helpers.len()
    }
}

impl fmt::Debug for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stuck({})", self.count())
    }
}

enum Place<S> {
    Here(Box<S>),
    WithHelper,
    Gone(Native),
}

enum Pending {
    Nothing,
    Answered(Reply),
    /// To be done in `receive`.
    Deferred(Verb),
    WithHelper,
}

struct Lane<S> {
    verbs: SyncSender<(Box<S>, Verb)>,
    answers: Receiver<(Box<S>, Reply)>,
    helper: JoinHandle<()>,
}

/// A session with its helper.
pub(crate) struct Kept<S> {
    place: Place<S>,
    pending: Pending,
    lane: Option<Lane<S>>,
    limits: Limits,
    stuck: Stuck,
}

/// Why the session cannot be lent.
pub(crate) enum NotHere {
    UnderWay,
    Gone(Native),
}

impl<S: Session> Kept<S> {
    /// Keeps a session that exists.
    pub(crate) fn new(session: S, limits: Limits, stuck: Stuck) -> Self {
        Self { place: Place::Here(Box::new(session)), pending: Pending::Nothing, lane: None, limits, stuck }
    }

    /// Opens a session on a helper, for no longer than the limit.
    pub(crate) fn open(
        limits: Limits,
        stuck: Stuck,
        open: impl FnOnce() -> Result<S, (Kind, Native)> + Send + 'static,
    ) -> Result<Self, (Kind, Native)> {
        let hanging = stuck.count();
        if hanging >= STUCK_MAX {
            let message = format!("{hanging} earlier connections still wait for it to answer");
            return Err((Kind::Unavailable, said(message)));
        }
        let (opened, waiting) = sync_channel(1);
        let helper = Builder::new()
            .name("assent-connect".to_owned())
            .spawn(move || {
                // Nobody waits any more: the session is dropped, which closes it.
                let _late = opened.send(open());
            })
            .map_err(|error| (Kind::Busy, said(format!("no thread to connect with: {error}"))))?;
        match waiting.recv_timeout(Duration::from_millis(limits.connect_ms_max)) {
            Ok(session) => Ok(Self::new(session?, limits, stuck)),
            Err(RecvTimeoutError::Timeout) => {
                stuck.give_up(helper);
                let message = format!("no answer within {} ms of connecting", limits.connect_ms_max);
                Err((Kind::Unavailable, said(message)))
            }
            Err(RecvTimeoutError::Disconnected) => Err((Kind::Internal, said("the driver gave up".to_owned()))),
        }
    }

    /// Puts a verb on its way. A second one before the answer is not done; its missing answer says so.
    pub(crate) fn send(&mut self, verb: Verb) {
        if !matches!(self.pending, Pending::Nothing) {
            return;
        }
        (self.place, self.pending) = match std::mem::replace(&mut self.place, Place::WithHelper) {
            Place::Here(mut session) => match session.at_once(&verb) {
                Some(reply) => (Place::Here(session), Pending::Answered(reply)),
                None if session.ahead(&verb, self.answer_max()) => (Place::Here(session), Pending::Deferred(verb)),
                // Not worth a helper: the caller's own first statement follows on the same thread, without a limit too.
                None if matches!(verb, Verb::Start(_)) => {
                    session.limit(self.answer_max());
                    (Place::Here(session), Pending::Deferred(verb))
                }
                None => match self.hand_over(session, verb) {
                    Ok(()) => (Place::WithHelper, Pending::WithHelper),
                    Err((place, reply)) => (place, Pending::Answered(reply)),
                },
            },
            Place::Gone(native) => {
                let reply = not_sent(&verb, native.clone());
                (Place::Gone(native), Pending::Answered(reply))
            }
            Place::WithHelper => (Place::WithHelper, Pending::WithHelper),
        };
    }

    /// Keeps a verb for `receive` if the session keeps the time limit by itself, and cannot send it before; else gives it
    /// back.
    #[cfg_attr(not(feature = "mariadb"), allow(dead_code, reason = "PostgreSQL's driver keeps no time limit"))]
    pub(crate) fn defer(&mut self, verb: Verb) -> Option<Verb> {
        let (Place::Here(session), Pending::Nothing) = (&mut self.place, &self.pending) else { return Some(verb) };
        if let Some(reply) = session.at_once(&verb) {
            self.pending = Pending::Answered(reply);
            return None;
        }
        // Both branches then overlap without a helper.
        if session.goes_ahead(&verb) || !session.limit(Duration::from_millis(self.limits.answer_ms_max)) {
            return Some(verb);
        }
        self.pending = Pending::Deferred(verb);
        None
    }

    const fn answer_max(&self) -> Duration {
        Duration::from_millis(self.limits.answer_ms_max)
    }

    fn hand_over(&mut self, session: Box<S>, verb: Verb) -> Result<(), (Place<S>, Reply)> {
        let lane = match self.lane.take() {
            Some(lane) => lane,
            None => match start_lane() {
                Ok(lane) => lane,
                Err(error) => {
                    let native = said(format!("no thread for this branch: {error}"));
                    return Err((Place::Here(session), Reply::Refused(Kind::Busy, native)));
                }
            },
        };
        // The helper is idle, so there is room; a dead one hands session and verb back.
        match lane.verbs.send((session, verb)) {
            Ok(()) => {
                self.lane = Some(lane);
                Ok(())
            }
            Err(back) => {
                let native = said("the helper thread of this connection has ended".to_owned());
                Err((Place::Here(back.0.0), Reply::Refused(Kind::Busy, native)))
            }
        }
    }

    /// Waits for the answer.
    pub(crate) fn receive(&mut self) -> Reply {
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => Reply::Refused(Kind::Internal, unsent()),
            Pending::Answered(reply) => reply,
            Pending::Deferred(verb) => match &mut self.place {
                Place::Here(session) => session.step(&verb),
                Place::WithHelper => Reply::Refused(Kind::Internal, unsent()),
                Place::Gone(native) => not_sent(&verb, native.clone()),
            },
            Pending::WithHelper => {
                let limit = self.answer_max();
                let answer = match &self.lane {
                    Some(lane) => lane.answers.recv_timeout(limit),
                    None => Err(RecvTimeoutError::Disconnected),
                };
                match answer {
                    Ok((session, reply)) => {
                        self.place = Place::Here(session);
                        reply
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        self.give_up(format!("no answer within {} ms", self.limits.answer_ms_max))
                    }
                    Err(RecvTimeoutError::Disconnected) => self.give_up("the driver gave up".to_owned()),
                }
            }
        }
    }

    fn give_up(&mut self, reason: String) -> Reply {
        if let Some(lane) = self.lane.take() {
            self.stuck.give_up(lane.helper);
        }
        let native = said(reason);
        self.place = Place::Gone(native.clone());
        Reply::Lost(native)
    }

    /// Ends the connection if a branch is tied to it, so that others can finish the branch.
    pub(crate) fn let_go(&mut self) {
        if let (Place::Here(_), Pending::Deferred(_)) = (&self.place, &self.pending) {
            // Its answer would be taken for that of the next verb.
            let native = said("its verb is left to recovery".to_owned());
            self.pending = Pending::Answered(Reply::Lost(native.clone()));
            self.place = Place::Gone(native);
            return;
        }
        let tied = match &self.place {
            Place::Here(session) => session.occupant(),
            Place::WithHelper => {
                // It ends when the verb does, as nobody takes it back.
                let lost = self.give_up("its branch is left to recovery".to_owned());
                self.pending = Pending::Answered(lost);
                None
            }
            Place::Gone(_) => None,
        };
        if let Some(xid) = tied {
            self.place = Place::Gone(said(format!("ended, as its branch {xid} is left to recovery")));
        }
    }

    /// Whether the connection is over. One that is at work tells by its answer.
    pub(crate) fn has_ended(&self) -> bool {
        match (&self.place, &self.pending) {
            (Place::Here(session), Pending::Nothing) => session.has_ended(),
            (Place::Gone(_), _) => true,
            (Place::Here(_) | Place::WithHelper, _) => false,
        }
    }

    /// What a connection is made to be for as long as it lasts.
    pub(crate) fn set_up(
        &mut self,
        name: &str,
        say: impl FnOnce(&mut S) -> Result<(), (Kind, Native)>,
    ) -> Result<(), ResourceError> {
        let longest = self.answer_max();
        let limited = |session: &mut S| {
            session.limit(longest);
            say(session)
        };
        let said = match self.with(limited) {
            Ok(said) => said,
            Err(NotHere::UnderWay) => Err((Kind::Busy, said("a verb is under way".to_owned()))),
            Err(NotHere::Gone(native)) => Err((Kind::Unavailable, native)),
        };
        let place = "the connection that was opened".to_owned();
        said.map_err(|(kind, native)| ResourceError::Connect { name: name.to_owned(), place, kind, native })
    }

    /// Lends the session to the caller.
    pub(crate) fn with<T>(&mut self, work: impl FnOnce(&mut S) -> T) -> Result<T, NotHere> {
        match &mut self.place {
            // The verb was there first.
            Place::Here(_) if matches!(self.pending, Pending::Deferred(_)) => Err(NotHere::UnderWay),
            Place::Here(session) => Ok(work(session)),
            Place::WithHelper => Err(NotHere::UnderWay),
            Place::Gone(native) => Err(NotHere::Gone(native.clone())),
        }
    }
}

impl<S> fmt::Debug for Kept<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.place {
            Place::Here(_) => "Kept(here)",
            Place::WithHelper => "Kept(a verb is under way)",
            Place::Gone(_) => "Kept(gone)",
        })
    }
}

fn start_lane<S: Session>() -> std::io::Result<Lane<S>> {
    let (verbs, work) = sync_channel::<(Box<S>, Verb)>(1);
    let (done, answers) = sync_channel(1);
    let helper = Builder::new().name("assent-branch".to_owned()).spawn(move || {
        for (mut session, verb) in work {
            let reply = session.step(&verb);
            if done.send((session, reply)).is_err() {
                return;
            }
        }
    })?;
    Ok(Lane { verbs, answers, helper })
}

/// What a verb gets that surely was not sent, as the connection was gone before. Phase one and two cannot count that
/// as an answer: an earlier verb may have been done.
pub(crate) fn not_sent(verb: &Verb, native: Native) -> Reply {
    match verb {
        Verb::Start(_)
        | Verb::Recover(_)
        | Verb::Claim(_)
        | Verb::Inquire { .. }
        | Verb::Evict(_)
        | Verb::Freed { .. }
        | Verb::Settle { .. }
        | Verb::Rows { .. }
        | Verb::Clear { .. } => Reply::Refused(Kind::Unavailable, native),
        _ => Reply::Lost(native),
    }
}

/// Words of ours where the server said nothing.
pub(crate) fn said(message: String) -> Native {
    Native { code: String::new(), message }
}

#[cfg(test)]
#[path = "kept_test.rs"]
mod tests;
