//! An error of the server, or the loss of the connection.
//!
//! Deliberately absent: what it means to a verb (`codes.rs`).

use std::error::Error as _;

use assent_xa::{Native, Reply};
use tokio_postgres::error::Severity;

use super::codes::{Step, judge};
use crate::kept::said;

/// An error as the verbs see it.
pub(crate) struct Failure {
    pub(crate) native: Native,
    /// The session is over, whatever the code says.
    pub(crate) lost: bool,
}

impl Failure {
    pub(crate) fn of(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(said) => Self {
                native: Native { code: said.code().code().to_owned(), message: said.message().to_owned() },
                lost: matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic)),
            },
            None => {
                // The driver's own words name the operation, its source the reason.
                let message = error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
                Self { native: said(message), lost: true }
            }
        }
    }

    pub(super) fn is(&self, code: &str) -> bool {
        !self.lost && self.native.code == code
    }

    pub(super) fn judged(self, step: Step) -> Reply {
        if self.lost { Reply::Lost(self.native) } else { judge(step, self.native) }
    }
}
