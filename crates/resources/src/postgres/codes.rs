//! What a SQLSTATE says to each verb: one table.
//!
//! Walk: [`judge`] takes the row with the longest matching beginning · FATAL and PANIC never get here: they end the
//! session, so its answer is lost (`session.rs`).
//! Source: PostgreSQL's manual, appendix A; what the server really does was tried on PostgreSQL 15.
//! Deliberately absent: the server's texts, which are translated.

use assent_kind::Kind;
use assent_xa::{Native, Reply};

/// What was being done, as far as an error's meaning depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// PREPARE TRANSACTION. Any error rolls the transaction back.
    Vote,
    /// COMMIT of the only branch. The same, but nobody else knows what became of a transaction that is not there.
    OnePhase,
    /// COMMIT PREPARED, ROLLBACK PREPARED. An error leaves the branch prepared.
    Second,
    /// BEGIN, ROLLBACK, a list. An error changes nothing.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Lost,
    RolledBack,
    Unknown,
    Refused(Kind),
}

use Says::{Lost, Refused, RolledBack, Unknown};

struct Row {
    state: &'static str,
    vote: Says,
    second: Says,
    other: Says,
}

const fn row(state: &'static str, vote: Says, second: Says, other: Says) -> Row {
    Row { state, vote, second, other }
}

const TABLE: &[Row] = &[
    // A session that the server ended: shutdown, crash, still starting, dropped database, idle too long.
    row("08", Lost, Lost, Lost),
    row("57P", Lost, Lost, Lost),
    row("25P03", Lost, Lost, Lost),
    row("25P04", Lost, Lost, Lost),
    // It says itself that it does not know.
    row("40003", Lost, Lost, Lost),
    // A broken promise of the server's: nothing follows from it.
    row("XX", Lost, Refused(Kind::Internal), Refused(Kind::Internal)),
    // No transaction: the application has ended it on its own, one way or the other.
    row("25P01", Unknown, Refused(Kind::Internal), Refused(Kind::Invalid)),
    row("25P02", RolledBack, Refused(Kind::Busy), Refused(Kind::Invalid)),
    row("25001", RolledBack, Refused(Kind::Busy), Refused(Kind::Invalid)),
    // A standby, or a server that is being recovered.
    row("25006", RolledBack, Refused(Kind::Unavailable), Refused(Kind::Unavailable)),
    // No such gid: finished before, by somebody else, or lost by a fail-over.
    row("42704", RolledBack, Unknown, Refused(Kind::Internal)),
    row("42501", RolledBack, Refused(Kind::Denied), Refused(Kind::Denied)),
    // Another branch has this gid; this one is rolled back, but the name is not free.
    row("42710", Refused(Kind::Conflict), Refused(Kind::Internal), Refused(Kind::Internal)),
    // Vote: temporary objects, NOTIFY, exported snapshots, held cursors. Second: it belongs to another database.
    row("0A000", RolledBack, Refused(Kind::Invalid), Refused(Kind::Invalid)),
    // Vote: max_prepared_transactions is zero. Second: somebody else is finishing the same gid.
    row("55000", RolledBack, Refused(Kind::Busy), Refused(Kind::Busy)),
    row("55P03", RolledBack, Refused(Kind::Busy), Refused(Kind::Busy)),
    row("40", RolledBack, Refused(Kind::Busy), Refused(Kind::Busy)),
    // 53200 to a vote: all slots for prepared transactions are taken.
    row("53100", RolledBack, Refused(Kind::Full), Refused(Kind::Full)),
    row("53", RolledBack, Refused(Kind::Busy), Refused(Kind::Busy)),
    row("57014", RolledBack, Refused(Kind::Busy), Refused(Kind::Busy)),
    row("58", RolledBack, Refused(Kind::Unavailable), Refused(Kind::Unavailable)),
    // Constraints and triggers that were deferred to the end, and everything else.
    row("", RolledBack, Refused(Kind::Internal), Refused(Kind::Internal)),
];

/// The reply to a verb that was answered with this SQLSTATE.
pub(crate) fn judge(step: Step, native: Native) -> Reply {
    let row = TABLE.iter().filter(|row| native.code.starts_with(row.state)).max_by_key(|row| row.state.len());
    let says = row.map_or(Lost, |row| match step {
        Step::Vote => row.vote,
        // The protocol takes "unknown" for rolled back here, and the application may have committed it by itself.
        Step::OnePhase if row.vote == Unknown => Lost,
        Step::OnePhase => row.vote,
        Step::Second => row.second,
        Step::Other => row.other,
    });
    match says {
        Lost => Reply::Lost(native),
        RolledBack => Reply::RolledBack(native),
        Unknown => Reply::Unknown(native),
        Refused(kind) => Reply::Refused(kind, native),
    }
}

/// Why a connection was refused.
pub(crate) fn judge_connect(code: &str) -> Kind {
    match code.split_at_checked(2) {
        Some(("28", _)) => Kind::Denied,
        Some(("3D", _)) => Kind::NotFound,
        Some(("53", _)) => Kind::Busy,
        _ if code == "42501" => Kind::Denied,
        // Starting, stopping, or something new: nothing was done.
        _ => Kind::Unavailable,
    }
}

/// What the caller must do about a failed statement of its own.
pub(crate) fn judge_work(code: &str) -> Kind {
    match code {
        // No code: the answer was lost.
        "" => Kind::InDoubt,
        "25P02" => Kind::RolledBack,
        "42501" => Kind::Denied,
        "53100" => Kind::Full,
        "57014" | "55P03" => Kind::Busy,
        _ => match code.split_at_checked(2) {
            Some(("23" | "40", _)) => Kind::Conflict,
            Some(("53", _)) => Kind::Busy,
            Some(("08" | "57", _)) => Kind::InDoubt,
            Some(("28", _)) => Kind::Denied,
            Some(("58" | "XX", _)) => Kind::Internal,
            _ => Kind::Invalid,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(step: Step, code: &str) -> String {
        match judge(step, Native { code: code.to_owned(), message: String::new() }) {
            Reply::Lost(_) => "lost".to_owned(),
            Reply::RolledBack(_) => "rolled back".to_owned(),
            Reply::Unknown(_) => "unknown".to_owned(),
            Reply::Refused(kind, _) => kind.name().to_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn every_code_says_its_thing_to_each_step() {
        let table = [
            ("08006", "lost", "lost", "lost"),
            ("57P01", "lost", "lost", "lost"),
            ("57P02", "lost", "lost", "lost"),
            ("57P03", "lost", "lost", "lost"),
            ("25P03", "lost", "lost", "lost"),
            ("40001", "rolled back", "busy", "busy"),
            ("40P01", "rolled back", "busy", "busy"),
            ("40003", "lost", "lost", "lost"),
            ("23505", "rolled back", "internal", "internal"),
            ("23503", "rolled back", "internal", "internal"),
            ("P0001", "rolled back", "internal", "internal"),
            ("53200", "rolled back", "busy", "busy"),
            ("53100", "rolled back", "full", "full"),
            ("0A000", "rolled back", "invalid", "invalid"),
            ("42704", "rolled back", "unknown", "internal"),
            ("42501", "rolled back", "denied", "denied"),
            ("42710", "conflict", "internal", "internal"),
            ("25001", "rolled back", "busy", "invalid"),
            ("25006", "rolled back", "unavailable", "unavailable"),
            ("25P01", "unknown", "internal", "invalid"),
            ("25P02", "rolled back", "busy", "invalid"),
            ("55000", "rolled back", "busy", "busy"),
            ("57014", "rolled back", "busy", "busy"),
            ("XX000", "lost", "internal", "internal"),
            ("", "rolled back", "internal", "internal"),
            ("99999", "rolled back", "internal", "internal"),
        ];
        for (code, vote, second, other) in table {
            assert_eq!(letter(Step::Vote, code), vote, "{code}");
            assert_eq!(letter(Step::OnePhase, code), if vote == "unknown" { "lost" } else { vote }, "{code}");
            assert_eq!(letter(Step::Second, code), second, "{code}");
            assert_eq!(letter(Step::Other, code), other, "{code}");
        }
    }

    #[test]
    fn nothing_that_phase_two_hears_counts_as_done_or_rolled_back() {
        for row in TABLE {
            assert!(
                !matches!(row.second, RolledBack),
                "{:?}: a prepared branch ends by a definite word only",
                row.state
            );
        }
    }

    #[test]
    fn each_state_has_one_row() {
        for row in TABLE {
            assert_eq!(TABLE.iter().filter(|other| other.state == row.state).count(), 1, "{}", row.state);
        }
    }

    #[test]
    fn connecting_and_work_have_kinds_of_their_own() {
        let connect = ["28P01", "28000", "3D000", "53300", "57P03", "42501", ""].map(judge_connect);
        let kinds = [
            Kind::Denied,
            Kind::Denied,
            Kind::NotFound,
            Kind::Busy,
            Kind::Unavailable,
            Kind::Denied,
            Kind::Unavailable,
        ];
        assert_eq!(connect, kinds);
        let work = ["", "23505", "40001", "25P02", "42P01", "57014", "57P01", "53100", "42501"].map(judge_work);
        let kinds = [
            Kind::InDoubt,
            Kind::Conflict,
            Kind::Conflict,
            Kind::RolledBack,
            Kind::Invalid,
            Kind::Busy,
            Kind::InDoubt,
            Kind::Full,
            Kind::Denied,
        ];
        assert_eq!(work, kinds);
    }
}
