//! The binary protocol: handshake, messages, versions. What travels between a program that links the client and
//! `assent serve`.
//!
//! ```text
//!   client ── Hello{versions, role} ─▶ server        every message is one frame: kind = which message, mark = request id
//!          ◀─ Welcome{version, session} ──           the answer carries the request's id; answers come in any order
//!          ── Decide 7, Finished, Decide 8 ─▶        one-way messages have id 0 and no answer
//!          ◀─ Decided 8, Decided 7 ──
//! ```
//! A frame is at most [`PAYLOAD_BYTES_MAX`] (1 MiB) of payload. Since version 2 a longer message travels in parts, up to
//! [`MESSAGE_BYTES_MAX`]; what would be larger is refused as `Invalid` where it is laid.
//!
//! Walk: [`Hello`] and [`Welcome`] agree on a version ([`Versions`]) · [`Request`]s go one way, [`Answer`]s the other,
//! each laid straight into a frame and parsed in place · [`Decoder`] makes frames of a stream's bytes · [`Assembly`] and
//! [`Long`] messages of parts.
//! Deliberately absent: I/O, threads, and any engine: its types are mirrored here, so that this room stays low.
#![forbid(unsafe_code)]

mod admin;
mod answer;
mod chores;
mod conditions;
mod decoder;
mod error;
mod field;
#[doc(hidden)]
pub mod fuzzing;
mod hello;
mod history;
mod keyspaces;
mod long;
mod objects;
mod request;
mod work;

pub use admin::{BranchView, By, Fate, OperatorWord, Resolved, RoundView, Standing, TransactionView};
pub use answer::{Answer, Found, Heuristic, Known, Native, Past, Reply};
pub use assent_frame::PAYLOAD_BYTES_MAX;
pub use chores::{Checked, Compacted};
pub use conditions::{Condition, Expect, Expected, WriteIf};
pub use decoder::Decoder;
pub use error::WireError;
pub use hello::{Hello, LONG, Limits, Role, Secret, Session, VERSIONS, Versions, Welcome};
pub use history::{Action, Detail, LogQuery, LogState, PastBranch, PastView, PastWord, Seal, Verified, Vote, Voted};
pub use keyspaces::{KeyspaceQuery, KeyspaceView};
pub use long::{Assembly, Long, MESSAGE_BYTES_MAX};
pub use objects::{Look, Object, Row, Rows};
pub use request::{BranchRecord, Decide, Deviation, Outcome, Request};
pub use work::{Bound, OPS_MAX, Op, Scan, Write};
