//! What an error number says to each verb: one table.
//!
//! Walk: [`judge`] takes the row of the number; where the server reports a state instead of a reason (1399), it is
//! read out of the message, where it stands untranslated.
//! Source: MariaDB's list of error codes and `sql/xa.cc` of 10.11; tried on 10.11.
//! Deliberately absent: the second look that some answers need (`session.rs`).

use assent_kind::Kind;
use assent_xa::Native;

/// What was being done, as far as an error's meaning depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// XA START, XA RECOVER, and XA END: an error changes nothing unless it says that the branch is rolled back.
    Open,
    /// XA PREPARE and XA COMMIT ... ONE PHASE.
    Vote,
    /// XA COMMIT of a prepared branch.
    Commit,
    /// XA ROLLBACK of a prepared branch, or of an open one.
    Rollback,
}

/// What an error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// The connection is over, the verb may have been done.
    Lost,
    /// The branch is rolled back, or can only be.
    RolledBack,
    /// It is not to be had here: gone, or attached to a session that lives.
    NotHere,
    /// It is finished as the verb wanted.
    Done,
    /// Nothing was changed.
    Refused(Kind),
    /// Not in the table. Phase two keeps the branch; a vote asks the server by rolling back.
    Unclear,
}

use Says::{Done, Lost, NotHere, Refused, RolledBack, Unclear};

struct Row {
    code: u16,
    open: Says,
    vote: Says,
    commit: Says,
    rollback: Says,
}

const fn row(code: u16, open: Says, vote: Says, commit: Says, rollback: Says) -> Row {
    Row { code, open, vote, commit, rollback }
}

const fn same(code: u16, says: Says) -> Row {
    row(code, says, says, says, says)
}

const INVALID: Says = Refused(Kind::Invalid);
const BUSY: Says = Refused(Kind::Busy);
const UNAVAILABLE: Says = Refused(Kind::Unavailable);
const DENIED: Says = Refused(Kind::Denied);

const TABLE: &[Row] = &[
    // Shutdown, network, a killed connection; 2006 and 2013 are the client library's, which proxies repeat.
    same(1053, Lost),
    same(1077, Lost),
    same(1078, Lost),
    same(1079, Lost),
    same(1080, Lost),
    same(1152, Lost),
    same(1158, Lost),
    same(1159, Lost),
    same(1160, Lost),
    same(1161, Lost),
    same(1184, Lost),
    same(1927, Lost),
    same(2006, Lost),
    same(2013, Lost),
    // XAER_NOTA
    row(1397, NotHere, NotHere, NotHere, NotHere),
    // XAER_INVAL
    same(1398, INVALID),
    // XAER_RMFAIL: wrong state; ROLLBACK ONLY is taken out before.
    row(1399, INVALID, INVALID, BUSY, BUSY),
    // XAER_OUTSIDE: the session has work or a branch of its own.
    row(1400, INVALID, INVALID, BUSY, BUSY),
    // XAER_RMERR. Commit: a backup holds its lock, the branch stays. One phase: it failed halfway.
    row(1401, Unclear, Unclear, BUSY, BUSY),
    // XA_RBROLLBACK. A prepared branch answers it to commit only if it wrote nothing and its session has ended
    // (trans_xa_detach); there was nothing to commit, and it is gone.
    row(1402, RolledBack, RolledBack, Done, Done),
    // XAER_DUPID
    same(1440, Refused(Kind::Conflict)),
    // XA_RBTIMEOUT, XA_RBDEADLOCK
    row(1613, RolledBack, RolledBack, RolledBack, Done),
    row(1614, RolledBack, RolledBack, RolledBack, Done),
    // Lock wait, deadlock
    row(1205, BUSY, Unclear, BUSY, BUSY),
    row(1213, RolledBack, RolledBack, BUSY, BUSY),
    // Interrupted, statement timeout
    row(1317, BUSY, Unclear, BUSY, BUSY),
    row(1969, BUSY, Unclear, BUSY, BUSY),
    // Out of memory, connections, resources
    row(1037, BUSY, Unclear, BUSY, BUSY),
    row(1040, BUSY, Unclear, BUSY, BUSY),
    row(1041, BUSY, Unclear, BUSY, BUSY),
    row(1226, BUSY, Unclear, BUSY, BUSY),
    row(1021, Refused(Kind::Full), Unclear, Refused(Kind::Full), Refused(Kind::Full)),
    // A replica, or a server made read-only
    row(1290, UNAVAILABLE, Unclear, UNAVAILABLE, UNAVAILABLE),
    row(1836, UNAVAILABLE, Unclear, UNAVAILABLE, UNAVAILABLE),
    // No right
    row(1044, DENIED, Unclear, DENIED, DENIED),
    row(1045, DENIED, Unclear, DENIED, DENIED),
    row(1142, DENIED, Unclear, DENIED, DENIED),
    row(1227, DENIED, Unclear, DENIED, DENIED),
];

/// What this error says to this step.
pub(crate) fn judge(step: Step, code: u16, message: &str) -> Says {
    if code == 1399 && message.contains("ROLLBACK ONLY") {
        // XAER_RMFAIL with the state that a deadlock leaves behind, instead of XA_RBDEADLOCK.
        return if step == Step::Rollback { BUSY } else { RolledBack };
    }
    TABLE.iter().find(|row| row.code == code).map_or(Unclear, |row| match step {
        Step::Open => row.open,
        Step::Vote => row.vote,
        Step::Commit => row.commit,
        Step::Rollback => row.rollback,
    })
}

/// Why a connection was refused.
pub(crate) fn judge_connect(code: u16) -> Kind {
    match code {
        1044 | 1045 | 1129 | 1130 | 1142 | 1227 | 1251 | 1698 | 1820 | 1862 => Kind::Denied,
        1049 => Kind::NotFound,
        1040 | 1203 | 1226 => Kind::Busy,
        _ => Kind::Unavailable,
    }
}

/// What the caller must do about a failed statement of its own.
pub(crate) fn judge_work(code: u16) -> Kind {
    match code {
        1022 | 1048 | 1062 | 1169 | 1213 | 1216 | 1217 | 1451 | 1452 | 1557 | 1586 | 4025 => Kind::Conflict,
        1205 | 1317 | 1969 | 1040 | 1041 | 1037 | 1226 => Kind::Busy,
        1402 | 1613 | 1614 => Kind::RolledBack,
        1044 | 1045 | 1142 | 1143 | 1227 | 1370 => Kind::Denied,
        1021 | 1114 => Kind::Full,
        1290 | 1836 => Kind::Unavailable,
        1053 | 1077..=1080 | 1152 | 1158..=1161 | 1184 | 1927 | 2006 | 2013 => Kind::InDoubt,
        _ => Kind::Invalid,
    }
}

/// A number of the server and its text.
pub(crate) fn native(code: u16, message: &str) -> Native {
    Native { code: code.to_string(), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_says_its_thing_to_each_step() {
        let full = Refused(Kind::Full);
        let conflict = Refused(Kind::Conflict);
        let table = [
            (1397, NotHere, NotHere, NotHere, NotHere),
            (1398, INVALID, INVALID, INVALID, INVALID),
            (1399, INVALID, INVALID, BUSY, BUSY),
            (1400, INVALID, INVALID, BUSY, BUSY),
            (1401, Unclear, Unclear, BUSY, BUSY),
            (1402, RolledBack, RolledBack, Done, Done),
            (1440, conflict, conflict, conflict, conflict),
            (1614, RolledBack, RolledBack, RolledBack, Done),
            (1205, BUSY, Unclear, BUSY, BUSY),
            (1213, RolledBack, RolledBack, BUSY, BUSY),
            (1021, full, Unclear, full, full),
            (1290, UNAVAILABLE, Unclear, UNAVAILABLE, UNAVAILABLE),
            (1227, DENIED, Unclear, DENIED, DENIED),
            (2006, Lost, Lost, Lost, Lost),
            (2013, Lost, Lost, Lost, Lost),
            (1053, Lost, Lost, Lost, Lost),
            (1927, Lost, Lost, Lost, Lost),
            (9999, Unclear, Unclear, Unclear, Unclear),
        ];
        for (code, open, vote, commit, rollback) in table {
            let steps = [Step::Open, Step::Vote, Step::Commit, Step::Rollback];
            assert_eq!(steps.map(|step| judge(step, code, "any")), [open, vote, commit, rollback], "{code}");
        }
    }

    #[test]
    fn the_state_after_a_deadlock_is_read_out_of_the_message() {
        let message =
            "XAER_RMFAIL: The command cannot be executed when global transaction is in the  ROLLBACK ONLY state";
        assert_eq!(judge(Step::Open, 1399, message), RolledBack);
        assert_eq!(judge(Step::Vote, 1399, message), RolledBack);
        assert_eq!(judge(Step::Vote, 1399, "... is in the  PREPARED state"), INVALID);
    }

    #[test]
    fn each_number_has_one_row() {
        for row in TABLE {
            assert_eq!(TABLE.iter().filter(|other| other.code == row.code).count(), 1, "{}", row.code);
        }
    }

    #[test]
    fn connecting_and_work_have_kinds_of_their_own() {
        let kinds = [1045, 1049, 1040, 1053].map(judge_connect);
        assert_eq!(kinds, [Kind::Denied, Kind::NotFound, Kind::Busy, Kind::Unavailable]);
        let kinds = [1062, 1213, 1205, 1402, 1142, 1114, 1836, 2013, 1064].map(judge_work);
        let expected = [
            Kind::Conflict,
            Kind::Conflict,
            Kind::Busy,
            Kind::RolledBack,
            Kind::Denied,
            Kind::Full,
            Kind::Unavailable,
            Kind::InDoubt,
            Kind::Invalid,
        ];
        assert_eq!(kinds, expected);
    }
}
