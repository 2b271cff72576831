//! The journal: an append-only run of checksummed entries, durable in order.
//!
//! Walk: [`Log`] is the contract, [`Journal`] its local-disk form · an append: `append` lays the entry into the open
//! batch (`buffer`, `group`), `commit` makes the batch durable for all who wait · an open: `recovery` walks the batches
//! (`walk`), refuses damage, rescues what is in doubt; `epochs` makes the new opening known first · a read: `reader`, `pieces` ·
//! off the commit path: `upkeep`, called by the [`Keeper`] · a diverged tail goes: `cut` · bytes: `layout`, drawn in `docs/format.md`; files: `segment`.
//! Deliberately absent: knowledge of what a payload means, async, callbacks, repair.
#![forbid(unsafe_code)]

mod append;
mod archive;
mod backlog;
mod barrier;
mod buffer;
mod closed;
mod commit;
mod company;
mod config;
mod cut;
mod epochs;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod journal;
mod keeper;
mod layout;
mod listing;
mod local;
mod log;
mod pieces;
mod reader;
mod recovery;
mod restamp;
mod segment;
#[doc(hidden)]
pub mod stepping;
mod upkeep;
mod walk;

pub use archive::{Archive, BatchView};
pub use barrier::{BARRIERS, BARRIERS_OF_ARCHIVE, BARRIERS_OF_CUT};
pub use config::{Config, ENTRY_BYTES_MAX, LOG_SIZE_MAX, LOG_SIZE_MIN};
pub use error::JournalError;
pub use journal::{Counts, Journal};
pub use keeper::{Keeper, Kept};
pub use layout::KIND_RESERVED;
pub use log::{Entries, Entry, Fetched, Leaves, Log, Span, State, Ticket};
pub use pieces::Part;
pub use recovery::{Recovery, Torn};
