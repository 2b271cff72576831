//! The contract again, over a state table: what the coordinator restarts from are rows. The same files as for a log.

mod stand {
    pub(crate) use crate::stand::*;
    pub(crate) type Stand = StandOver<Table>;
}

#[path = "agent.rs"]
mod agent;
#[path = "agent_lost.rs"]
mod agent_lost;
#[path = "agent_many.rs"]
mod agent_many;
#[path = "agent_truth.rs"]
mod agent_truth;
#[path = "counted.rs"]
mod counted;
#[path = "decisions.rs"]
mod decisions;
#[path = "fencing.rs"]
mod fencing;
