//! How the end of a transaction is said: in one text, by words whose tag tells, or behind a question that is prepared.
//!
//! Deliberately absent: which of them is right when (`session.rs`).

use std::sync::Arc;

use super::prepared::Prepared;

/// Which of the questions is asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    /// By the end of a branch: whether it wrote.
    End,
    /// By its vote.
    Vote,
}

impl Question {
    pub(super) const fn of<T>(self, [end, vote]: &[T; 2]) -> &T {
        match self {
            Self::End => end,
            Self::Vote => vote,
        }
    }

    pub(super) const fn of_mut(self, [end, vote]: &mut [Prepared; 2]) -> &mut Prepared {
        match self {
            Self::End => end,
            Self::Vote => vote,
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
