//! Two-phase commit as a value, and what a resource manager is to it.
//!
//! Walk: [`Resource`] a branch's door: send a [`Verb`], receive a [`Reply`] · [`Commit`] what comes next: an [`Event`]
//! in, [`Command`]s out, a [`Report`] at the end, also in the words
//! of the TX interface ([`TxReturn`]) · [`Decider`] where a decision becomes durable.
//! Deliberately absent: I/O, clocks, threads.
#![forbid(unsafe_code)]

mod answer;
mod commit;
mod decider;
mod event;
mod report;
mod resource;
mod tx;

pub use answer::Task;
pub use commit::Commit;
pub use decider::{
    BRANCHES_MAX, BranchRecord, DecideError, Decider, Decision, Deviation, Outcome, Voted, lay_votes, read_votes,
    take_votes,
};
pub use event::{Command, Event, Pace, Phase, StepError, Trust};
pub use report::{Ballot, Cause, HeuristicBranch, Report, UnfinishedBranch, Verdict, Voice};
pub use resource::{Connector, Heuristic, Native, Past, ROWS_MAX, Reply, Resource, Stay, Verb, Vote};
pub use tx::TxReturn;
