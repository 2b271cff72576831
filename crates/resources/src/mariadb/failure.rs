//! An error of a statement, and the reply that it makes where it needs no second look.

use assent_kind::Kind;
use assent_xa::{Native, Reply};

use super::codes::{Says, Step, judge, native};
use crate::kept::said;

/// An error as the verbs see it.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server's own.
    Server(u16, String),
    /// The connection is over.
    Lost(Native),
}

impl Failure {
    pub(crate) fn of(error: &mysql::Error) -> Self {
        match error {
            mysql::Error::MySqlError(error) => Self::Server(error.code, error.message.clone()),
            mysql::Error::IoError(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                Self::Lost(said("no answer within the time limit".to_owned()))
            }
            other => Self::Lost(said(other.to_string())),
        }
    }

    pub(crate) fn native(&self) -> Native {
        match self {
            Self::Server(code, message) => native(*code, message),
            Self::Lost(native) => native.clone(),
        }
    }

    /// The driver's error for who has to hear of it again.
    pub(super) fn as_error(&self) -> mysql::Error {
        match self {
            Self::Server(code, message) => mysql::Error::MySqlError(mysql::MySqlError {
                state: String::new(),
                code: *code,
                message: message.clone(),
            }),
            Self::Lost(native) => {
                let error = std::io::Error::new(std::io::ErrorKind::NotConnected, native.message.clone());
                mysql::Error::IoError(error)
            }
        }
    }

    pub(super) fn says(&self, step: Step) -> Says {
        match self {
            Self::Server(code, message) => judge(step, *code, message),
            Self::Lost(_) => Says::Lost,
        }
    }
}

/// The reply where the error needs no second look.
pub(super) fn plain(step: Step, failure: &Failure) -> Reply {
    let native = failure.native();
    match failure.says(step) {
        Says::Lost => Reply::Lost(native),
        Says::RolledBack => Reply::RolledBack(native),
        Says::NotHere => Reply::Unknown(native),
        Says::Done => Reply::Done,
        Says::Refused(kind) => Reply::Refused(kind, native),
        Says::Unclear => Reply::Refused(Kind::Internal, native),
    }
}

/// The connection is over, or the driver no longer knows which answer belongs to which question.
pub(super) fn is_broken(error: &mysql::Error) -> bool {
    use mysql::DriverError::{PacketOutOfSync, UnexpectedPacket};
    match error {
        mysql::Error::IoError(_) | mysql::Error::CodecError(_) => true,
        mysql::Error::DriverError(driver) => matches!(driver, PacketOutOfSync | UnexpectedPacket),
        _ => false,
    }
}
