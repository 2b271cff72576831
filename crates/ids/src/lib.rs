//! The nouns everyone shares, and their limits.
//!
//! Walk: [`lsn`] places and epochs of a log · [`tx`] who began a transaction · [`xid`] its name in the outside
//! world, with both text forms.
//! Deliberately absent: anything that does something.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod fuzzing;
mod lsn;
mod tx;
mod xid;

pub use lsn::{Epoch, Lsn};
pub use tx::{Incarnation, NodeId, ResourceId, TxId};
pub use xid::{BQUAL_BYTES_MAX, Branch, FORMAT_ID, GTRID_BYTES_MAX, Mark, Xid, XidError};
