//! Named places where a process can be frozen, so that a harness kills it exactly there. Compiled into every build,
//! off by default.
//!
//! `ASSENT_STOP=name[:nth]` freezes at the nth passing (1 if not said): the process prints `stopped NAME WHAT` on stderr and
//! raises SIGSTOP; whoever watches kills or continues it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Clock, RealClock};

macro_rules! stops {
    ($($(#[$doc:meta])* $stop:ident = $name:literal;)*) => {
        /// The places.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Stop { $($(#[$doc])* $stop),* }

        impl Stop {
            /// All of them, in the order of a commit.
            pub const ALL: &'static [Stop] = &[$(Stop::$stop),*];

            /// Its name in `ASSENT_STOP`.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Stop::$stop => $name),* } }
        }
    };
}

stops! {
    /// A client, work done, before the first prepare is sent.
    ClientBeforePrepare = "client-before-prepare";
    /// A client, after one branch has voted and before the others are read.
    ClientBetweenPrepares = "client-between-prepares";
    /// A client, all branches voted yes, before the decision is asked for.
    ClientBeforeDecision = "client-before-decision";
    /// A client whose last resource was told to decide, before its answer is read.
    ClientAwaitsRow = "client-awaits-row";
    /// A client that knows the decision, before the first commit is sent.
    ClientAfterDecision = "client-after-decision";
    /// A client, after one branch has committed.
    ClientBetweenCommits = "client-between-commits";
    /// A client, all branches finished, before `finished` is sent.
    ClientBeforeFinished = "client-before-finished";
    /// The coordinator, before the decision is appended.
    CoordinatorBeforeDecision = "coordinator-before-decision";
    /// The coordinator, decision durable, before it is answered.
    CoordinatorAfterDecision = "coordinator-after-decision";
    /// The coordinator, after the decision was answered.
    CoordinatorAfterAnswer = "coordinator-after-answer";
    /// A store, before a prepare is appended.
    StoreBeforePrepare = "store-before-prepare";
    /// A store, vote durable, before it is answered.
    StoreAfterPrepare = "store-after-prepare";
    /// A store, before a branch's commit is appended.
    StoreBeforeCommit = "store-before-commit";
    /// A store, branch committed and durable, before it is answered.
    StoreAfterCommit = "store-after-commit";
    /// The recovery agent, before it decides that a transaction nobody decided is rolled back.
    AgentBeforeDecision = "agent-before-decision";
    /// The recovery agent, that decision durable, before any branch is told.
    AgentAfterDecision = "agent-after-decision";
    /// The recovery agent, after it has told one branch its outcome, and before the next.
    AgentBetweenBranches = "agent-between-branches";
}

impl std::str::FromStr for Stop {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Stop::ALL.iter().copied().find(|stop| stop.name() == name).ok_or_else(|| {
            let names: Vec<_> = Stop::ALL.iter().map(|stop| stop.name()).collect();
            format!("stop point {name:?}; there are {}", names.join(", "))
        })
    }
}

/// Which passing of which place freezes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The place.
    pub stop: Stop,
    /// Which passing, from 1.
    pub nth: u64,
}

impl std::str::FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, nth) = text.split_once(':').unwrap_or((text, "1"));
        match nth.parse() {
            Ok(nth @ 1..) => Ok(Order { stop: name.parse()?, nth }),
            _ => Err(format!("passing {nth:?} of stop point {name:?}; write a number from 1")),
        }
    }
}

static ORDER: OnceLock<Option<Order>> = OnceLock::new();
static PASSED: AtomicU64 = AtomicU64::new(0);

/// Reads `ASSENT_STOP`; a binary calls it first, so that a wrong name is an error and not a silence.
///
/// # Errors
/// One sentence with the wrong value.
pub fn arm_from_environment() -> Result<(), String> {
    let order = match std::env::var("ASSENT_STOP") {
        Ok(text) if !text.is_empty() => Some(text.parse()?),
        _ => None,
    };
    _ = ORDER.set(order);
    Ok(())
}

/// Passes a place; freezes there if it was ordered. Costs one load when nothing was.
pub fn at(stop: Stop) {
    about(stop, || "");
}

/// Passes a place on behalf of something (a transaction, a branch), which is named in the line.
pub fn about<T: std::fmt::Display>(stop: Stop, what: impl FnOnce() -> T) {
    if let Some(Some(order)) = ORDER.get()
        && order.stop == stop
        && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == order.nth
    {
        freeze(stop, &what());
    }
}

/// Far longer than a stop takes to reach every thread of a process.
const STOP_REACHES_ALL: Duration = Duration::from_millis(200);

#[expect(clippy::print_stderr, reason = "the harness waits for this line")]
fn freeze(stop: Stop, what: &dyn std::fmt::Display) {
    eprintln!("stopped {} {what}", stop.name());
    _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
    // Any thread may take the signal, and until the stop has reached this one it would run on, as far as a decision and
    // its sync. Asleep it does nothing, and the sleep ends after whoever watches has continued the process.
    RealClock.sleep(STOP_REACHES_ALL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_names_a_place_and_a_passing() {
        assert_eq!("client-before-decision:3".parse(), Ok(Order { stop: Stop::ClientBeforeDecision, nth: 3 }));
        assert_eq!("store-after-prepare".parse(), Ok(Order { stop: Stop::StoreAfterPrepare, nth: 1 }));
        for wrong in ["", "nowhere", "store-after-prepare:0", "store-after-prepare:x"] {
            assert!(wrong.parse::<Order>().is_err(), "{wrong}");
        }
    }
}
