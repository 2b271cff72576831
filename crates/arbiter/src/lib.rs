//! Where the configuration of a group of replicas lives: something outside of the group that says yes once.
//!
//! Walk: [`Arbiter`] what any of them does: read, compare-and-set, watch · [`Ledger`] the built-in one, in one small synced
//! file · [`Door`] serves it to other machines (`assent witness`), and [`Witness`] asks it there · [`Etcd`] asks etcd
//! through its JSON gateway · [`open`] makes one of them from an address.
//! Deliberately absent: consensus. One witness is one machine; who needs more has etcd. TLS and accounts: loopback and
//! private networks only, until the doors have them.
#![forbid(unsafe_code)]

mod arbiter;
mod barrier;
mod door;
mod etcd;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod ledger;
mod message;
mod text;
mod witness;

pub use arbiter::{Arbiter, ArbiterError, GROUP_BYTES_MAX, GroupName, open};
#[doc(hidden)]
pub use barrier::BARRIERS;
pub use door::{CONNECTIONS_MAX, Door};
pub use etcd::Etcd;
pub use ledger::{GROUPS_MAX, Ledger};
pub use witness::Witness;
