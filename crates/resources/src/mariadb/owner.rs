//! Who is at work on a server, told by its user-level locks: recovery's claim, and the marks of a client's sessions.
//!
//! A session cannot be asked which branch it holds: XA RECOVER knows no session, `innodb_trx` no XID,
//! performance_schema has both and is off by default, and the process list shows a resting session as empty. A
//! user-level lock needs no right, no table and no setting, anybody may ask who has it (IS_USED_LOCK), it is untouched
//! by XA, and it goes with the session, after the session's branch has been let go.
//! A mark is numbered: each session of a client takes the smallest number that is free.
//! Source: MariaDB's manual, "GET_LOCK" (a name has at most 64 characters; several locks a session); tried on 10.11.
//! Deliberately absent: saying it to the server (`recovery.rs`).

use std::fmt::Write as _;

use assent_ids::{Incarnation, NodeId, ResourceId, Xid};

/// How many sessions of one client at one server can be told apart.
pub(crate) const MARKS_MAX: u32 = 4_096;
/// Marks tried by one statement.
pub(crate) const TAKE_BATCH: u32 = 16;
/// Marks asked after by one statement.
pub(crate) const FIND_BATCH: u32 = 256;

const _: () =
    assert!(MARKS_MAX.is_multiple_of(TAKE_BATCH) && MARKS_MAX.is_multiple_of(FIND_BATCH), "batches leave nothing over");

/// The client process that a branch belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    node: NodeId,
    incarnation: Incarnation,
}

/// A mark that a session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) owner: Owner,
    pub(crate) number: u32,
}

impl Owner {
    /// Nothing for an XID that is not Assent's.
    pub(crate) fn of(xid: &Xid) -> Option<Self> {
        xid.branch().map(|branch| Self { node: branch.node, incarnation: branch.tx.incarnation })
    }

    /// The lock's name.
    pub(crate) fn lock(self, number: u32) -> String {
        format!("assent:{}:{}:{number}", self.node, self.incarnation)
    }

    /// One statement that takes the first free mark from `first` on and answers its number, or NULL. A mark that the
    /// session has already is kept; one of an earlier client is let go.
    pub(crate) fn take(self, first: u32, had: Option<Mark>) -> String {
        let mut sql = String::from("SELECT CASE");
        if let Some(mark) = had.filter(|mark| mark.owner == self) {
            let lock = self.lock(mark.number);
            // Writing into a String cannot fail.
            let _ok = write!(sql, " WHEN IS_USED_LOCK('{lock}') = CONNECTION_ID() THEN {}", mark.number);
        }
        for number in first..first + TAKE_BATCH {
            let _ok = write!(sql, " WHEN GET_LOCK('{}', 0) = 1 THEN {number}", self.lock(number));
        }
        sql.push_str(" END");
        if let Some(mark) = had.filter(|mark| mark.owner != self) {
            let _ok = write!(sql, ", RELEASE_LOCK('{}')", mark.owner.lock(mark.number));
        }
        sql
    }

    /// One statement that answers, mark by mark from `first` on, which connection has it.
    pub(crate) fn find(self, first: u32) -> String {
        let each: Vec<_> =
            (first..first + FIND_BATCH).map(|number| format!("IS_USED_LOCK('{}')", self.lock(number))).collect();
        format!("SELECT {}", each.join(","))
    }
}

/// One statement that takes recovery's claim: 1 where it is this session's now, and whose it is.
pub(crate) fn claim(node: NodeId, resource: ResourceId) -> String {
    let lock = format!("assent:{node}:{resource}");
    // Asked first, as a lock that is taken twice must be let go twice.
    format!(
        "SELECT IF(IFNULL(IS_USED_LOCK('{lock}'), 0) = CONNECTION_ID(), 1, GET_LOCK('{lock}', 0)), IS_USED_LOCK('{lock}')"
    )
}

#[cfg(test)]
mod tests {
    use assent_ids::{Branch, Epoch, TxId};

    use super::*;

    #[test]
    fn every_name_fits_and_no_two_are_the_same() {
        let incarnation = Incarnation { epoch: Epoch(u32::MAX), number: u32::MAX };
        let owner = Owner { node: NodeId(u64::MAX), incarnation };
        let name = owner.lock(MARKS_MAX - 1);
        assert_eq!(name, "assent:ffffffffffffffff:4294967295.4294967295:4095");
        assert!(name.len() <= 64, "{}", name.len());
        let claim = claim(NodeId(1), ResourceId(2));
        assert!(claim.contains("'assent:0000000000000001:0000000000000002'"), "{claim}");
    }

    #[test]
    fn only_branches_of_assent_have_an_owner() {
        let tx = TxId { incarnation: Incarnation { epoch: Epoch(3), number: 1 }, counter: 42 };
        let xid = Branch { node: NodeId(7), tx, resource: ResourceId(1), number: 0, flags: 0, mark: None }.xid();
        assert_eq!(Owner::of(&xid), Some(Owner { node: NodeId(7), incarnation: tx.incarnation }));
        assert_eq!(Owner::of(&Xid::new(1, xid.gtrid(), xid.bqual()).unwrap()), None);
    }

    #[test]
    fn a_session_keeps_its_mark_and_lets_that_of_another_client_go() {
        let owner = |number| Owner { node: NodeId(7), incarnation: Incarnation { epoch: Epoch(3), number } };
        let had = Some(Mark { owner: owner(1), number: 5 });
        let same = owner(1).take(0, had);
        assert!(
            same.starts_with("SELECT CASE WHEN IS_USED_LOCK('assent:0000000000000007:3.1:5') = CONNECTION_ID() THEN 5")
        );
        assert!(!same.contains("RELEASE_LOCK"), "{same}");
        let next = owner(2).take(16, had);
        assert!(
            next.starts_with("SELECT CASE WHEN GET_LOCK('assent:0000000000000007:3.2:16', 0) = 1 THEN 16"),
            "{next}"
        );
        assert!(next.ends_with("THEN 31 END, RELEASE_LOCK('assent:0000000000000007:3.1:5')"), "{next}");
    }
}
