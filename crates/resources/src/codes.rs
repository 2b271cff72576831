//! The return codes of the XA interface and what each one says, by verb.
//!
//! Source: X/Open CAE Specification C193 (XA), `xa.h` and the pages of chapter 5.
//! Deliberately absent: TMFLAGS and the asynchronous mode (XAER_ASYNC says that it is not wanted).

use assent_kind::Kind;
use assent_xa::{Heuristic, Native, Past, Reply, Verb, Vote};

/// The names of `xa.h` with their numbers. XA_RETRY stands for "send it again", XA_NOMIGRATE never comes: nothing is
/// suspended.
const NAMES: &[(&str, i32)] = &[
    ("XA_OK", 0),
    ("XA_RDONLY", 3),
    ("XA_RETRY", 4),
    ("XA_HEURMIX", 5),
    ("XA_HEURRB", 6),
    ("XA_HEURCOM", 7),
    ("XA_HEURHAZ", 8),
    ("XA_RBROLLBACK", 100),
    ("XA_RBCOMMFAIL", 101),
    ("XA_RBDEADLOCK", 102),
    ("XA_RBINTEGRITY", 103),
    ("XA_RBOTHER", 104),
    ("XA_RBPROTO", 105),
    ("XA_RBTIMEOUT", 106),
    ("XA_RBTRANSIENT", 107),
    ("XAER_ASYNC", -2),
    ("XAER_RMERR", -3),
    ("XAER_NOTA", -4),
    ("XAER_INVAL", -5),
    ("XAER_PROTO", -6),
    ("XAER_RMFAIL", -7),
    ("XAER_DUPID", -8),
    ("XAER_OUTSIDE", -9),
];

/// The number of a code's name.
pub(crate) fn by_name(name: &str) -> Option<i32> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, code)| *code)
}

/// What a resource manager says when it answers `verb` with `code`. Nothing for XA_OK to recover: that is a list.
pub(crate) fn reply(verb: &Verb, code: i32) -> Reply {
    let name = NAMES.iter().find(|(_, known)| *known == code).map_or("an unknown code", |(name, _)| name);
    let native = Native { code: code.to_string(), message: name.to_owned() };
    match code {
        0 => match verb {
            Verb::Prepare(_) => Reply::Vote(Vote::Yes),
            Verb::Recover(_) => Reply::Listed(Vec::new()),
            Verb::Inquire { .. } => Reply::Past(Past::Forgotten),
            _ => Reply::Done,
        },
        // Not of C193: ours know a branch that only read when it ends, and it drops out there.
        3 if matches!(verb, Verb::Prepare(_) | Verb::End { success: true, .. }) => Reply::Vote(Vote::ReadOnly),
        4 => Reply::Refused(Kind::Busy, native),
        5 => Reply::Heuristic(Heuristic::Mixed, native),
        6 => Reply::Heuristic(Heuristic::RolledBack, native),
        7 => Reply::Heuristic(Heuristic::Committed, native),
        8 => Reply::Heuristic(Heuristic::Hazard, native),
        100..=107 => Reply::RolledBack(native),
        -3 => match verb {
            // xa_commit [XAER_RMERR]: the branch's work has been rolled back. xa_prepare: it may be prepared or not.
            Verb::Commit(_) | Verb::CommitOnePhase(_) => Reply::RolledBack(native),
            Verb::Prepare(_) => Reply::Lost(native),
            _ => Reply::Refused(Kind::Internal, native),
        },
        -4 => Reply::Unknown(native),
        // The resource manager is gone, at whatever point of the verb.
        -7 => Reply::Lost(native),
        -8 => Reply::Refused(Kind::Conflict, native),
        -9 | -6 | -5 | -2 => Reply::Refused(Kind::Invalid, native),
        _ => Reply::Refused(Kind::Internal, native),
    }
}

#[cfg(test)]
mod tests {
    use assent_ids::Xid;

    use super::*;

    #[test]
    fn every_name_has_one_number_and_every_number_one_name() {
        for (name, code) in NAMES {
            assert_eq!(by_name(name), Some(*code));
            assert_eq!(NAMES.iter().filter(|(_, other)| other == code).count(), 1, "{name}");
        }
        assert_eq!(by_name("XA_ok"), None);
    }

    #[test]
    fn the_same_code_says_different_things_to_different_verbs() {
        let xid = Xid::new(1, b"g", b"b").unwrap();
        let (prepare, commit, rollback) = (Verb::Prepare(xid), Verb::Commit(xid), Verb::Rollback(xid));
        assert_eq!(reply(&prepare, 0), Reply::Vote(Vote::Yes));
        assert_eq!(reply(&commit, 0), Reply::Done);
        assert_eq!(reply(&prepare, 3), Reply::Vote(Vote::ReadOnly));
        let end = |success| Verb::End { xid, success };
        assert_eq!(reply(&end(true), 3), Reply::Vote(Vote::ReadOnly));
        assert!(matches!(reply(&end(false), 3), Reply::Refused(Kind::Internal, _)), "what failed is rolled back");
        assert!(matches!(reply(&commit, 3), Reply::Refused(Kind::Internal, _)), "only a vote can be read-only");
        assert!(matches!(reply(&commit, -3), Reply::RolledBack(_)));
        assert!(matches!(reply(&prepare, -3), Reply::Lost(_)));
        assert!(matches!(reply(&rollback, -3), Reply::Refused(Kind::Internal, _)));
        assert!(matches!(reply(&commit, -4), Reply::Unknown(_)));
        assert!(matches!(reply(&commit, -7), Reply::Lost(_)));
        assert!(matches!(reply(&commit, 4711), Reply::Refused(Kind::Internal, _)));
        assert!(matches!(reply(&commit, 5), Reply::Heuristic(Heuristic::Mixed, _)));
    }
}
