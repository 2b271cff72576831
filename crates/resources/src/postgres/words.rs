//! How the end of a transaction is said: in one text, by words whose tag tells, or behind a question that is prepared.
//!
//! Deliberately absent: which of them is right when (`session.rs`).

use std::sync::Arc;

use super::prepared::Prepared;
use super::witness::Place;

/// The branch's transaction number if it has one, and what else is kept of its vote. By the old name of the function,
/// which every server since 10 has.
const WROTE: &str = "SELECT pg_catalog.txid_current_if_assigned(), \
     EXISTS (SELECT FROM pg_catalog.pg_foreign_table)";
/// The same within the vote, which gives a number to whoever has none.
const VOTES: &str = "SELECT pg_catalog.txid_current_if_assigned(), pg_catalog.txid_current()";
/// The same of who has told that it wrote, as a role that is known: two functions less, of 25,000 instructions 6,000.
const WRITER: &str = "SELECT pg_catalog.txid_current()";
/// For a server where this role may read its place, which was tried when connecting: an error here would be the vote's.
const PLACE: &str = ", pg_catalog.pg_current_wal_insert_lsn()";
/// For one of which it may only know when it was started.
const NO_PLACE: &str = ", '0/0'";
const ROLE: &str = ", current_user";

/// Which of the questions is asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    /// By the end of a branch: whether it wrote.
    End,
    /// By its vote.
    Vote,
    /// By the vote of a branch that has told that it wrote, as a role that is known.
    Writer,
}

impl Question {
    /// As they are asked of a server of which so much is known.
    pub(super) fn texts(place: &Place) -> [Arc<str>; 3] {
        let (keeps, role) = match place {
            Place { system: Some(_), .. } => (PLACE, ROLE),
            Place { run: Some(_), .. } => (NO_PLACE, ROLE),
            _ => ("", ""),
        };
        [[WROTE, keeps, role], [VOTES, keeps, role], [WRITER, keeps, ""]].map(|parts| Arc::from(parts.concat()))
    }

    /// Under which they are kept prepared.
    pub(super) fn names(number: u64) -> [Prepared; 3] {
        ["assent_end", "assent_vote", "assent_writer"].map(|stem| Prepared::named(stem, number))
    }

    pub(super) const fn of<T>(self, [end, vote, writer]: &[T; 3]) -> &T {
        match self {
            Self::End => end,
            Self::Vote => vote,
            Self::Writer => writer,
        }
    }

    pub(super) const fn of_mut(self, [end, vote, writer]: &mut [Prepared; 3]) -> &mut Prepared {
        match self {
            Self::End => end,
            Self::Vote => vote,
            Self::Writer => writer,
        }
    }
}

/// How the end of a transaction is said.
pub(super) enum Words {
    /// As they stand.
    Text(String),
    /// The tag of their answer has to be this one.
    End(String, &'static str),
    /// A question that the server keeps prepared, and such an end behind it.
    Asked(Question, Arc<str>, Option<(String, &'static str)>),
}

impl Words {
    pub(super) fn in_full(self) -> String {
        match self {
            Self::Text(words) | Self::End(words, _) => words,
            Self::Asked(_, question, None) => question.to_string(),
            Self::Asked(_, question, Some((end, _))) => format!("{question}; {end}"),
        }
    }
}
