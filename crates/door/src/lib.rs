//! What every listener shares: limits, roles, the loopback rule, a graceful stop, numbers and health.
//!
//! Walk: [`listen_address`] and [`shielded_address`] refuse to listen beyond this machine unasked · [`Limits`], [`Slots`]
//! and [`Rates`] bound what a peer may take · [`Grants`] say what a caller may do · [`Drain`] ends the service without
//! dropping what is under way · [`Metrics`] counts, [`Health`] says in a sentence how it stands.
//! Deliberately absent: sockets (`world::net`), protocols, TLS, and how a caller proves who he is (`rest`).
#![forbid(unsafe_code)]

mod drain;
mod health;
mod limits;
mod listen;
mod metrics;
mod rates;
mod roles;

pub use drain::Drain;
pub use health::{Check, Health, Report, State};
pub use limits::{Limits, Slot, Slots};
pub use listen::{Shield, listen_address, shielded_address};
pub use metrics::{Counter, Gauge, Histogram, Label, Metrics, Spread};
pub use rates::Rates;
pub use roles::{Grants, Role};

use assent_kind::Kind;

/// Why a listener does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DoorError {
    /// A text that names no address.
    #[error("{key} = {text:?}: {why}")]
    Address {
        /// The configuration key.
        key: String,
        /// The text.
        text: String,
        /// As the resolver says.
        why: String,
    },
    /// An address that others can reach.
    #[error(
        "{key} = {text:?} can be reached from other machines and there is no authentication yet; listen on loopback or say --insecure"
    )]
    NotLoopback {
        /// The configuration key.
        key: String,
        /// The text.
        text: String,
    },
    /// An address that others can reach, for a listener that would not stand there safely.
    #[error(
        "{key} = {text:?} can be reached from other machines, without {missing}; or listen on loopback, or say --insecure"
    )]
    Unshielded {
        /// The configuration key.
        key: String,
        /// The text.
        text: String,
        /// What it has not, and what to write.
        missing: &'static str,
    },
    /// A limit that cannot work.
    #[error("{name} = {value}; {rule}")]
    Limit {
        /// Which.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        rule: &'static str,
    },
}

impl DoorError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Address { .. } | Self::Limit { .. } => Kind::Invalid,
            Self::NotLoopback { .. } | Self::Unshielded { .. } => Kind::Denied,
        }
    }
}
