//! The key-value store: values live in the journal once, the ledger moves only small rows.
//!
//! ```text
//!   put, batch   check at the door -> lay once -> journal: append -> wait: durable -> publish in log order -> answer
//!   branch       writes in memory -> prepare: one entry, keys held -> commit: one small entry -> publish -> answer
//!   get, scan    ledger: key -> place -> journal: read -> check the hash -> answer
//!   head         ledger alone
//! ```
//! Walk: [`Kv::open`] opens the ledger and replays the journal behind it · [`Kv::batch_begin`] and its like append and
//! never wait, [`Kv::wait`] makes durable and publishes · [`Kv::batch_if`] is a batch under conditions · [`Snapshot`] is the store as it was,
//! [`Lease`] the same with a budget · [`Kv::patiently`] waits for keys that prepared branches hold · a branch
//! ([`Kv::start`] to [`Kv::commit_begin`]) is snapshot-isolated: the first committer of a key wins, and keys that were
//! only read are not protected (write skew is possible; write what must not change under you) · [`KvResource`] makes
//! it a resource manager of a transaction.
//!
//! ```
//! # use std::sync::Arc;
//! # use assent_journal::Journal;
//! # use assent_kv::{Condition, Config, Durability, Expect, Fold, Kv, KvError, Op, What};
//! # use assent_world::{RealClock, RealDice, RealDisk};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?; let folder = folder.path();
//! let (disk, clock, dice) = (Arc::new(RealDisk), Arc::new(RealClock), Arc::new(RealDice));
//! let config = assent_journal::Config { log_size: 1 << 20, kept_until_released: true, ..Default::default() };
//! let (log, _) = Journal::open(disk.clone(), clock.clone(), dice, &folder.join("log"), config)?;
//! let kv = Kv::open(log, disk, clock, &folder.join("kv"), Config::default())?;
//! let orders = kv.keyspace_create("orders")?;
//! let at = kv.put(orders, b"1", b"new", Durability::Durable)?;
//! let unchanged = [Condition::new(orders, b"1", Expect::At(at))];
//! let paid = [Op::put(orders, b"1", b"paid"), Op::put(orders, b"log/1", b"paid").expiring(4_102_444_800_000)];
//! kv.batch_if(&unchanged, &paid, Durability::Durable)?;
//! assert!(matches!(kv.batch_if(&unchanged, &paid, Durability::Durable), Err(KvError::Unmet { .. })));
//! let lease = kv.lease(std::time::Duration::from_secs(60));
//! kv.keyspace_drop("orders")?;
//! let mut keys = Vec::new();
//! _ = lease.fold(&Fold::new(What::Keys, orders), &mut |row| {
//!     keys.push(row.key().to_vec());
//!     std::ops::ControlFlow::Continue(())
//! })?;
//! assert_eq!((keys, kv.get(orders, b"1")?), (vec![b"1".to_vec(), b"log/1".to_vec()], None));
//! # Ok(()) }
//! ```
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
mod errand;
mod error;
mod facts;
mod finished;
mod fold;
mod full;
#[doc(hidden)]
pub mod fuzzing;
mod kept;
mod keyed;
mod keyspaces;
mod kv;
mod lease;
mod ledger;
mod line;
mod long;
mod looks;
mod many;
mod note;
mod op;
mod pacing;
mod pressure;
mod progress;
mod rebuild;
mod record;
mod recover;
mod resource;
mod room;
mod rows;
mod snapshot;
mod space;
mod tally;
mod throttle;
mod time;
mod transaction;
mod turnstile;
mod under_way;
mod upkeep;
mod values;
mod vault;
mod verify;
mod view;
mod waiting;
mod writers;

/// Every place of this room that makes something durable.
pub const BARRIERS: &[assent_world::Barrier] = &[compaction::FOLDER, vault::FILE, vault::NAME];

pub use assent_runs::{Debt as LedgerDebt, Facts as LedgerFacts, Go, LevelFacts, Pace};
pub use claims::{CLAIMS_MAX, Claim};
pub use conditions::{CONDITIONS_MAX, Condition, Expect, Judged};
pub use config::{Config, KEY_BYTES_MAX, METADATA_BYTES_MAX, VALUE_BYTES_MAX};
pub use error::{KvError, Shown};
pub use fold::{Fold, Order, Row, What};
pub use keyspaces::{Keyspace, NAME_BYTES_MAX, NAMED_FROM, Name};
pub use kv::{Kv, Pending, Stats, ValueCache};
pub use lease::Lease;
pub use line::{Place, WAITING_MAX};
pub use op::{Durability, Op};
pub use progress::Progress;
pub use record::{KIND_BATCH, KIND_COMMIT, KIND_PREPARE, KIND_ROLLBACK};
pub use resource::{KvConnector, KvResource};
pub use snapshot::{Found, Head, Most, Page, Rows, Snapshot, Within};
pub use throttle::Throttle;
pub use transaction::{InBranch, Voted};
pub use turnstile::stand_in_no_line;
pub use verify::Verified;
