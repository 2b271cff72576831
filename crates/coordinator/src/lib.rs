//! Decisions of distributed transactions, durable and remembered, and the recovery that finishes what was left.
//!
//! Walk: [`Coordinator`] decides over a [`assent_journal::Log`] · [`Identity`] whose branches they are · [`Embedded`] the
//! form without a wire · [`Agent`] looks at every registered resource and finishes what its decisions say, judged by
//! `judge` · [`Caretaker`] a thread that does the upkeep where nobody owns a loop · `clients`, `table`, `bygone`, `record`,
//! `lay`, `replay` the state and its bytes · `upkeep` fences, checkpoints, trims · `note`, [`Operator`], `lost` what
//! branches, people and power cuts did to decisions · [`engine`] the state table, a log that keeps only what matters · [`history`] the log read back, and its `chain` of seals checked.
//! Deliberately absent: sockets, drivers of resources, the driving of a healthy client's commit.
#![forbid(unsafe_code)]

mod agent;
mod attendance;
mod attendant;
mod attended;
mod bygone;
mod caretaker;
mod chain;
mod clients;
mod coordinator;
mod embedded;
pub mod engine;
mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod history;
mod identity;
mod inspect;
mod judge;
mod late;
mod lay;
mod lost;
mod note;
mod operator;
mod orphans;
mod record;
mod recovery;
mod replay;
mod resolve;
mod round;
mod rows;
mod siblings;
mod station;
mod table;
mod upkeep;
mod verify;
mod view;

pub use agent::Agent;
pub use assent_xa::BRANCHES_MAX;
pub use attendance::{Attendance, Bell, Listener};
pub use attendant::Attendant;
pub use caretaker::Caretaker;
pub use chain::{Digest, Seal};
pub use clients::Standing;
pub use coordinator::{Config, Coordinator, TABLE_BYTES_MAX, WITNESS_BYTES_MAX};
pub use embedded::Embedded;
pub use error::CoordinatorError;
pub use identity::Identity;
pub use lost::LostDecision;
pub use operator::{Action, Operator, REASON_BYTES_MAX, WHO_BYTES_MAX};
pub use round::{BranchReport, Resolution, ResourceReport, Round, Stopped};
pub use table::{By, Fate, Finish};
pub use view::{BranchView, Gauges, Known, Pending, Session, TransactionView};

/// Every barrier of this room: what must be durable before what.
pub const BARRIERS: &[assent_world::Barrier] =
    &[identity::FOLDER_BEFORE_BYTES, identity::BYTES_BEFORE_NAME, identity::NAME_BEFORE_USE];
