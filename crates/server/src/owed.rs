//! What is answered at the end of a turn, once it may be told.

use assent_ids::{TxId, Xid};
use assent_kind::Kind;
use assent_wire::{Answer, Outcome, Reply};
use assent_world::stop::{self, Stop};

use crate::connection::Connection;
use crate::long::Share;
use crate::role;
use crate::shared::{Shared, Timed};

/// An answer that waits.
#[derive(Debug)]
pub(crate) struct Owed {
    pub(crate) token: usize,
    pub(crate) request: u64,
    pub(crate) due: Due,
    /// The room of a long request, given back once this is answered.
    pub(crate) share: Option<Share>,
    pub(crate) timed: Option<Timed>,
}

/// For what.
#[derive(Debug)]
pub(crate) enum Due {
    /// A decision to commit that must be durable; or whatever was decided before it.
    Commit(assent_coordinator::Pending, TxId),
    /// A decision to roll back.
    Rollback(assent_coordinator::Pending),
    /// A vote of yes.
    Vote(assent_kv::Pending, Xid),
    /// A vote of one that wrote nothing and had conditions.
    ReadOnly(assent_kv::Pending, Xid),
    /// A branch's commit.
    Committed(assent_kv::Pending, Xid),
    /// A branch's rollback.
    RolledBack(assent_kv::Pending),
    /// A plain write.
    Write(assent_kv::Pending),
    /// A write under conditions, or that one does not hold.
    Judged(assent_kv::Judged),
}

impl Owed {
    /// Waits, then answers if the connection is still there. Says which decision was made.
    pub(crate) fn settle(self, shared: &Shared, connection: Option<&mut Connection>) -> Option<TxId> {
        let witness;
        let (answer, decided) = match self.due {
            Due::Commit(pending, tx) => {
                let answer = decided(shared, pending);
                stop::about(Stop::CoordinatorAfterDecision, || tx);
                (answer, Some(tx))
            }
            Due::Rollback(pending) => (decided(shared, pending), None),
            Due::Vote(pending, xid) => {
                witness = shared.kv.as_ref().map(|kv| kv.witness(pending)).unwrap_or_default();
                let answer = stored(shared, pending, |_| Answer::Branch(Reply::Yes(&witness)));
                stop::about(Stop::StoreAfterPrepare, || xid);
                (answer, None)
            }
            Due::ReadOnly(pending, xid) => {
                let answer = stored(shared, pending, |_| Answer::Branch(Reply::ReadOnly));
                stop::about(Stop::StoreAfterPrepare, || xid);
                (answer, None)
            }
            Due::Committed(pending, xid) => {
                let answer = stored(shared, pending, |_| Answer::Branch(Reply::Done));
                stop::about(Stop::StoreAfterCommit, || xid);
                (answer, None)
            }
            Due::RolledBack(pending) => (stored(shared, pending, |_| Answer::Branch(Reply::Done)), None),
            Due::Write(pending) => {
                (stored(shared, pending, |pending| Answer::Written(pending.lsn().unwrap_or_default())), None)
            }
            Due::Judged(judged) => (self::judged(shared, judged), None),
        };
        if let Some(timed) = self.timed {
            timed.ends(shared, answer.is_err());
        }
        if let Some(connection) = connection {
            connection.pending = connection.pending.saturating_sub(1);
            match &answer {
                Ok(answer) => role::answer(shared, connection, self.request, answer),
                Err((kind, message)) => {
                    shared.numbers.refused(*kind);
                    role::answer(shared, connection, self.request, &Answer::Error { kind: *kind, message });
                }
            }
        }
        decided
    }
}

type Settled<'a> = Result<Answer<'a>, (Kind, String)>;

fn decided(shared: &Shared, pending: assent_coordinator::Pending) -> Settled<'static> {
    let Some(coordinator) = &shared.coordinator else { return Err(gone()) };
    match coordinator.decide_end(pending) {
        Ok(assent_xa::Outcome::Committed) => Ok(Answer::Decided(Outcome::Committed)),
        Ok(assent_xa::Outcome::RolledBack) => Ok(Answer::Decided(Outcome::RolledBack)),
        Err(error) => Err((error.kind, error.message)),
    }
}

fn stored<'a>(
    shared: &Shared,
    pending: assent_kv::Pending,
    answer: impl FnOnce(assent_kv::Pending) -> Answer<'a>,
) -> Settled<'a> {
    let Some(kv) = &shared.kv else { return Err(gone()) };
    kv.wait(pending).map(|()| answer(pending)).map_err(|error| (error.kind(), error.to_string()))
}

fn judged(shared: &Shared, judged: assent_kv::Judged) -> Settled<'static> {
    let Some(kv) = &shared.kv else { return Err(gone()) };
    kv.wait_judged(judged).map(Answer::Written).map_err(|error| (error.kind(), error.to_string()))
}

fn gone() -> (Kind, String) {
    (Kind::Internal, "the engine that took this request is not there any more".to_owned())
}
