//! The key-value store: values live in the journal once, the ledger moves only small rows.
//!
//! ```text
//!   put, batch   check at the door -> lay once -> journal: append -> wait: durable -> publish in log order -> answer
//!   branch       writes in memory -> prepare: one entry, keys held -> commit: one small entry -> publish -> answer
//!   get, scan    ledger: key -> place -> journal: read -> check the hash -> answer
//!   head         ledger alone
//! ```
//! Walk: [`Kv::open`] opens the ledger and replays the journal behind it · [`Kv::batch_begin`] and its like append and
//! never wait, [`Kv::wait`] makes durable and publishes · [`Kv::batch_if`] is a batch under conditions · [`Snapshot`] is the store as it was · a branch
//! ([`Kv::start`] to [`Kv::commit_begin`]) is snapshot-isolated: the first committer of a key wins, and keys that were
//! only read are not protected (write skew is possible; write what must not change under you) · [`KvResource`] makes
//! it a resource manager of a transaction.
//! Deliberately absent: threads (whoever owns loops calls [`Kv::tick`] and [`Kv::work`]), files of values, knowledge of any coordinator,
//! and trimming of the journal.
#![forbid(unsafe_code)]

mod branch;
mod claims;
mod compaction;
mod conditions;
mod config;
mod covers;
mod desk;
mod error;
mod facts;
mod finished;
mod fold;
#[doc(hidden)]
pub mod fuzzing;
mod keyed;
mod keyspaces;
mod kv;
mod lease;
mod ledger;
mod many;
mod note;
mod op;
mod pressure;
mod rebuild;
mod record;
mod recover;
mod resource;
mod snapshot;
mod tally;
mod throttle;
mod time;
mod transaction;
mod upkeep;
mod values;
mod vault;
mod verify;
mod view;

/// Every place of this room that makes something durable.
pub const BARRIERS: &[assent_world::Barrier] = &[compaction::FOLDER, vault::FILE, vault::NAME];

pub use assent_runs::{Debt as LedgerDebt, Facts as LedgerFacts, Go, LevelFacts, Pace};
pub use claims::{CLAIMS_MAX, Claim};
pub use conditions::{CONDITIONS_MAX, Condition, Expect, Judged};
pub use config::{Config, KEY_BYTES_MAX, METADATA_BYTES_MAX, VALUE_BYTES_MAX};
pub use error::{KvError, Shown};
pub use fold::{Fold, Order, Row, What};
pub use keyspaces::{Keyspace, NAME_BYTES_MAX, NAMED_FROM, Name};
pub use kv::{Kv, Pending, Stats};
pub use lease::Lease;
pub use op::{Durability, Op};
pub use rebuild::Progress;
pub use record::{KIND_BATCH, KIND_COMMIT, KIND_PREPARE, KIND_ROLLBACK};
pub use resource::{KvConnector, KvResource};
pub use snapshot::{Found, Head, Rows, Snapshot};
pub use throttle::Throttle;
pub use transaction::Voted;
pub use verify::Verified;
