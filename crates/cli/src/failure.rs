//! How a command fails: one sentence, one kind, one exit code; as JSON where JSON was asked for.

use std::io::Write as _;

use assent_kind::Kind;

/// Why a command did not do its work.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// What the caller must do, and with it the exit code.
    pub(crate) kind: Kind,
    /// One sentence with the value and what to do.
    pub(crate) message: String,
    /// Whoever reads a long answer wants to hear no more of it: that is no failure, and nobody is told.
    pub(crate) hung_up: bool,
}

impl Failure {
    /// A failure of that kind.
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hung_up: false }
    }

    /// What the user gave cannot work.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    /// The operating system refused to do something to something.
    pub(crate) fn io(doing: &str, what: impl std::fmt::Display, error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => Kind::NotFound,
            std::io::ErrorKind::PermissionDenied => Kind::Denied,
            std::io::ErrorKind::StorageFull => Kind::Full,
            std::io::ErrorKind::AddrInUse | std::io::ErrorKind::WouldBlock => Kind::Busy,
            std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::TimedOut => Kind::Unavailable,
            _ => Kind::Internal,
        };
        let advice = match kind {
            Kind::Full => ": make room",
            Kind::Denied => ": give this user the right, or name another place",
            _ => "",
        };
        Self::new(kind, format!("cannot {doing} {what}: {error}{advice}"))
    }

    /// What the command has to say could not be said.
    pub(crate) fn stdout(error: &std::io::Error) -> Self {
        let hung_up = error.kind() == std::io::ErrorKind::BrokenPipe;
        Self { hung_up, ..Self::io("write", "stdout", error) }
    }

    /// Says it on stderr, or on stdout as `{"error":{"kind","message"}}` if that can be written to. Where nobody hears it the exit code still
    /// says it.
    pub(crate) fn print(&self, json: bool) {
        if json {
            let told = serde_json::json!({"error": {"kind": self.kind.name(), "message": self.message}});
            if writeln!(std::io::stdout(), "{told}").is_ok() {
                return;
            }
        }
        aside!("assent: {}", self.message);
    }
}

macro_rules! from_room {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new(error.kind(), error.to_string())
            }
        })*
    };
}

from_room!(
    assent_arbiter::ArbiterError,
    assent_assets::AssetsError,
    assent_bench::BenchError,
    assent_client::WorkError,
    assent_coordinator::CoordinatorError,
    assent_docs::DocsError,
    assent_door::DoorError,
    assent_journal::JournalError,
    assent_kv::KvError,
    assent_link::LinkError,
    assent_replica::ReplicaError,
    assent_replica::StartError,
    assent_resources::RemoteError,
    assent_resources::ResourceError,
    assent_rest::IdentityError,
    assent_rest::RestError,
    assent_rest::TlsError,
    assent_server::ServerError,
);

impl From<assent_client::ClientError> for Failure {
    fn from(error: assent_client::ClientError) -> Self {
        Self::new(error.kind, error.message)
    }
}

impl From<assent_assets::ClientError> for Failure {
    fn from(error: assent_assets::ClientError) -> Self {
        Self::new(error.kind, error.message)
    }
}

impl From<assent_client::CommitError> for Failure {
    fn from(error: assent_client::CommitError) -> Self {
        Self::new(error.kind, error.message)
    }
}
