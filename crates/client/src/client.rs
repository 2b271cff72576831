//! A process's one connection to its coordinator.

use std::sync::Arc;
use std::time::Duration;

use assent_ids::TxId;
use assent_link::{Address, LinkConfig};
use assent_world::{Clock, RealClock};
use assent_xa::Decider;

use crate::helper::Helper;
use crate::served::{Counts, Served};
use crate::{ClientError, Transaction};

/// Who a program is, for servers that ask. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// How a served coordinator is reached and how long it is asked.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Where it listens.
    pub address: Address,
    /// For people: which program this is.
    pub label: String,
    /// The registered resources this program will enlist; the handshake refuses unknown ones.
    pub resources: Vec<String>,
    /// Who this program is, for servers that ask.
    pub token: Option<Token>,
    /// Times of the connection, and the clock.
    pub link: LinkConfig,
    /// For how long a decision is asked for, again and again, before it is in doubt. One whose answer is lost is asked for once more, however
    /// long that took: each answer has the time of its connection ([`LinkConfig::answer_ms`]).
    pub decide_ms: u64,
    /// Between two such questions.
    pub pause_ms: u64,
    /// For branches that cannot be told the outcome at once.
    pub retries: Retries,
}

impl ClientConfig {
    /// A coordinator at this address, with times that suit a local network.
    #[must_use]
    pub fn new(address: Address, label: &str) -> Self {
        Self {
            address,
            label: label.to_owned(),
            resources: Vec::new(),
            token: None,
            link: LinkConfig::default(),
            decide_ms: 5_000,
            pause_ms: 20,
            retries: Retries::default(),
        }
    }
}

/// How often a branch is told its outcome again before it is left to recovery.
#[derive(Clone, Debug)]
pub struct Retries {
    /// After the first time.
    pub attempts: u32,
    /// Before each.
    pub pause_ms: u64,
    /// Whose time that is.
    pub clock: Arc<dyn Clock>,
}

impl Default for Retries {
    fn default() -> Self {
        Self { attempts: 3, pause_ms: 50, clock: Arc::new(RealClock) }
    }
}

impl Retries {
    pub(crate) fn pause(&self) {
        self.clock.sleep(Duration::from_millis(self.pause_ms));
    }
}

/// The answer to "what became of it?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is committed, or its branches will be.
    Committed,
    /// It is rolled back, or its branches will be.
    RolledBack,
    /// Not decided yet: ask again.
    Undecided,
    /// The coordinator's log failed over it: ask again once that was restarted.
    InDoubt,
    /// Never heard of, or finished and forgotten: then every branch went one way.
    Unknown,
}

#[derive(Debug)]
enum Backend {
    Served {
        served: Arc<Served>,
        _helper: Helper,
    },
    #[cfg(feature = "embedded")]
    Embedded(assent_coordinator::Embedded),
}

#[derive(Debug)]
struct Inner {
    backend: Backend,
    retries: Retries,
}

/// Begins transactions. Clones share the connection; so do all threads.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

impl Client {
    /// A client of a served coordinator. Says nothing to it before the first transaction begins.
    #[must_use]
    pub fn connect(config: ClientConfig) -> Self {
        let retries = config.retries.clone();
        let served = Arc::new(Served::new(config));
        let backend = Backend::Served { _helper: Helper::start(Arc::clone(&served)), served };
        Self(Arc::new(Inner { backend, retries }))
    }

    /// A client of a coordinator in this process. Whoever opened it has it taken care of
    /// ([`assent_coordinator::Caretaker`]).
    ///
    /// # Errors
    /// `Busy` if the coordinator has as many clients as it takes.
    #[cfg(feature = "embedded")]
    pub fn embedded(coordinator: &Arc<assent_coordinator::Coordinator>, retries: Retries) -> Result<Self, ClientError> {
        let refused = |error: assent_coordinator::CoordinatorError| ClientError {
            kind: error.kind(),
            message: error.to_string(),
        };
        let backend = Backend::Embedded(coordinator.embedded().map_err(refused)?);
        Ok(Self(Arc::new(Inner { backend, retries })))
    }

    /// A new transaction. Sends no message, but for the first one, which greets the coordinator.
    ///
    /// # Errors
    /// `Unavailable` if the coordinator was never reached; what it said if it refused.
    pub fn begin<'r>(&self) -> Result<Transaction<'r>, ClientError> {
        let (node, tx) = self.decider().begin()?;
        Ok(Transaction::new(self.clone(), node, tx))
    }

    /// What became of a transaction.
    ///
    /// # Errors
    /// `Unavailable` or `InDoubt` if the coordinator does not answer, what it said if it refused.
    pub fn ask(&self, tx: TxId) -> Result<Known, ClientError> {
        match &self.0.backend {
            Backend::Served { served, .. } => {
                served.ask(tx).map_err(|error| ClientError { kind: error.kind(), message: error.to_string() })
            }
            #[cfg(feature = "embedded")]
            Backend::Embedded(embedded) => {
                use assent_coordinator::Known as K;
                Ok(match embedded.coordinator().ask(tx) {
                    K::Committed => Known::Committed,
                    K::RolledBack => Known::RolledBack,
                    K::Undecided => Known::Undecided,
                    K::InDoubt => Known::InDoubt,
                    K::Unknown => Known::Unknown,
                })
            }
        }
    }

    /// What has travelled to the coordinator so far; nothing does if it is embedded.
    #[must_use]
    pub fn counts(&self) -> Counts {
        match &self.0.backend {
            Backend::Served { served, .. } => served.counts(),
            #[cfg(feature = "embedded")]
            Backend::Embedded(_) => Counts::default(),
        }
    }

    pub(crate) fn decider(&self) -> &dyn Decider {
        match &self.0.backend {
            Backend::Served { served, .. } => &**served,
            #[cfg(feature = "embedded")]
            Backend::Embedded(embedded) => embedded,
        }
    }

    pub(crate) fn retries(&self) -> &Retries {
        &self.0.retries
    }
}
