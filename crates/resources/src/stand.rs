//! Where a connection stands with its branch, and what a verb asks of the server there.
//!
//! Walk: [`Stand::plan`] is a table of verb and stand; what the rules of XA forbid is answered without a word to the
//! server.
//! Source: X/Open CAE Specification C193 (XA), tables 6-1 to 6-4.
//! Deliberately absent: SQL, connections. Both database adapters do what the plan says in their own words.

use assent_ids::Xid;
use assent_kind::Kind;
use assent_xa::{Native, Reply, Verb};

use crate::kept::{not_sent, said};

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// It is nobody's.
    Idle,
    /// Work on it belongs to the branch.
    Active(Xid),
    /// The work is done.
    Ended {
        xid: Xid,
        /// Whether it went well; else the branch can only be rolled back.
        success: bool,
    },
    /// The branch is prepared and still tied to this connection (MariaDB).
    #[cfg_attr(not(feature = "mariadb"), allow(dead_code, reason = "PostgreSQL lets go of it"))]
    Prepared(Xid),
    /// The branch was found rolled back, and its own rollback may still be asked for.
    Over(Xid),
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing: this is the answer.
    Answer(Reply),
    Start(Xid),
    End {
        xid: Xid,
        success: bool,
    },
    Prepare(Xid),
    CommitOnePhase(Xid),
    /// Commit it, and a row with it.
    CommitLast(Xid),
    /// Roll the branch back and say no: its work had failed.
    VoteNo(Xid),
    CommitPrepared(Xid),
    RollbackPrepared(Xid),
    /// The branch is not prepared.
    RollbackOpen(Xid),
    Recover,
    /// What else recovery asks: claim, inquire, evict.
    Recovery,
}

impl Stand {
    /// The branch that occupies the connection.
    pub(crate) fn occupant(self) -> Option<Xid> {
        match self {
            Self::Active(xid) | Self::Ended { xid, .. } | Self::Prepared(xid) => Some(xid),
            Self::Idle | Self::Over(_) => None,
        }
    }

    /// What the verb asks for here.
    pub(crate) fn plan(self, verb: &Verb) -> Plan {
        match *verb {
            Verb::Start(xid) => match self.occupant() {
                None => Plan::Start(xid),
                Some(other) => refused(Kind::Invalid, format!("branch {other} is not finished on this connection")),
            },
            Verb::End { xid, success } => match self {
                Self::Active(own) if own == xid => Plan::End { xid, success },
                Self::Ended { xid: own, .. } | Self::Prepared(own) if own == xid => {
                    refused(Kind::Invalid, format!("branch {xid} has already been ended"))
                }
                _ => self.not_here(xid),
            },
            Verb::Prepare(xid) => self.plan_vote(xid, Plan::Prepare(xid)),
            Verb::CommitOnePhase(xid) => self.plan_vote(xid, Plan::CommitOnePhase(xid)),
            Verb::CommitLast { xid, .. } => self.plan_vote(xid, Plan::CommitLast(xid)),
            Verb::Commit(xid) => match self {
                Self::Active(own) | Self::Ended { xid: own, .. } if own == xid => {
                    refused(Kind::Invalid, format!("branch {xid} must be prepared before it can be committed"))
                }
                _ => self.plan_second(xid, Plan::CommitPrepared(xid)),
            },
            Verb::Rollback(xid) => match self {
                Self::Active(own) | Self::Ended { xid: own, .. } if own == xid => Plan::RollbackOpen(xid),
                Self::Over(own) if own == xid => Plan::Answer(Reply::Done),
                _ => self.plan_second(xid, Plan::RollbackPrepared(xid)),
            },
            Verb::Recover(_) => match self.occupant() {
                None => Plan::Recover,
                Some(other) => occupied(other),
            },
            // Neither database ever decides alone and remembers it: there is nothing to forget.
            Verb::Forget(_) => Plan::Answer(Reply::Done),
            Verb::Claim(_)
            | Verb::Inquire { .. }
            | Verb::Evict(_)
            | Verb::Freed { .. }
            | Verb::Settle { .. }
            | Verb::Rows { .. }
            | Verb::Clear { .. } => match self.occupant() {
                None => Plan::Recovery,
                Some(other) => occupied(other),
            },
        }
    }

    fn plan_vote(self, xid: Xid, vote: Plan) -> Plan {
        match self {
            Self::Ended { xid: own, success: true } if own == xid => vote,
            Self::Ended { xid: own, success: false } if own == xid => Plan::VoteNo(xid),
            Self::Active(own) if own == xid => refused(Kind::Invalid, format!("branch {xid} has not been ended")),
            Self::Prepared(own) if own == xid => refused(Kind::Invalid, format!("branch {xid} is already prepared")),
            _ => self.not_here(xid),
        }
    }

    fn plan_second(self, xid: Xid, plan: Plan) -> Plan {
        match self.occupant() {
            None => plan,
            Some(own) if own == xid => plan,
            Some(other) => occupied(other),
        }
    }

    fn not_here(self, xid: Xid) -> Plan {
        Plan::Answer(match self {
            Self::Over(own) if own == xid => Reply::RolledBack(said(format!("branch {xid} was rolled back before"))),
            _ => Reply::Unknown(said(format!("this connection has no branch {xid}"))),
        })
    }
}

/// The answer on a connection that is gone: what is certain without it stays certain.
pub(crate) fn unreachable(verb: &Verb, plan: Plan, native: Native) -> Reply {
    match plan {
        Plan::Answer(reply @ (Reply::Done | Reply::RolledBack(_))) => reply,
        _ => not_sent(verb, native),
    }
}

fn refused(kind: Kind, message: String) -> Plan {
    Plan::Answer(Reply::Refused(kind, said(message)))
}

fn occupied(other: Xid) -> Plan {
    refused(Kind::Busy, format!("branch {other} occupies this connection; use another one or come again"))
}

#[cfg(test)]
mod tests {
    use assent_ids::{Epoch, Incarnation, Mark, NodeId, ResourceId, TxId};

    use super::*;

    /// Every verb about branch `a`, in every stand: with `a` itself, with another branch, with none.
    #[test]
    fn every_verb_in_every_stand() {
        let (a, b) = (Xid::new(1, b"a", b"").unwrap(), Xid::new(1, b"b", b"").unwrap());
        let ended = |xid, success| Stand::Ended { xid, success };
        let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter: 1 };
        let mark = Mark { resource: ResourceId(1), table: 1, timeline: 1 };
        let stands = [
            Stand::Idle,
            Stand::Active(a),
            ended(a, true),
            ended(a, false),
            Stand::Prepared(a),
            Stand::Over(a),
            Stand::Active(b),
            ended(b, true),
            Stand::Prepared(b),
            Stand::Over(b),
        ];
        let table = [
            // verb, and in the order above: D = done by the server, N = votes no, O = rolls the open branch back,
            // I = refused invalid, B = refused busy, U = unknown, R = rolled back, k = answered done.
            (Verb::Start(a), "DIIIIDIIID"),
            (Verb::End { xid: a, success: true }, "UDIIIRUUUU"),
            (Verb::Prepare(a), "UIDNIRUUUU"),
            (Verb::CommitOnePhase(a), "UIDNIRUUUU"),
            (Verb::Commit(a), "DIIIDDBBBD"),
            (Verb::Rollback(a), "DOOODkBBBD"),
            (Verb::Recover(NodeId(1)), "DBBBBDBBBD"),
            (Verb::Forget(a), "kkkkkkkkkk"),
            (Verb::Claim(NodeId(1)), "DBBBBDBBBD"),
            (Verb::Inquire { xid: a, witness: Vec::new() }, "DBBBBDBBBD"),
            (Verb::Evict(a), "DBBBBDBBBD"),
            (Verb::Freed { xid: a, witness: Vec::new() }, "DBBBBDBBBD"),
            (Verb::CommitLast { xid: a, votes: Vec::new() }, "UIDNIRUUUU"),
            (Verb::Settle { node: NodeId(1), tx, mark }, "DBBBBDBBBD"),
            (Verb::Rows { node: NodeId(1), after: None }, "DBBBBDBBBD"),
            (Verb::Clear { node: NodeId(1), txs: Vec::new() }, "DBBBBDBBBD"),
        ];
        for (verb, expected) in table {
            let found: String = stands.iter().map(|stand| letter(&stand.plan(&verb))).collect();
            assert_eq!(found, expected, "{verb:?}");
        }
    }

    fn letter(plan: &Plan) -> char {
        match plan {
            Plan::Answer(Reply::Refused(Kind::Invalid, _)) => 'I',
            Plan::Answer(Reply::Refused(Kind::Busy, _)) => 'B',
            Plan::Answer(Reply::Unknown(_)) => 'U',
            Plan::Answer(Reply::RolledBack(_)) => 'R',
            Plan::Answer(Reply::Done) => 'k',
            Plan::Answer(_) => '?',
            Plan::VoteNo(_) => 'N',
            Plan::RollbackOpen(_) => 'O',
            _ => 'D',
        }
    }
}
