//! What happened to a disk, one state after every operation that changed something.

use std::fmt;
use std::sync::Arc;

use assent_world::Barrier;

use crate::fault::Operation;
use crate::state::State;

/// One operation of a recorded run.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) operation: Operation,
    pub(crate) barrier: Option<Barrier>,
    pub(crate) path: Arc<str>,
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The machine stopped in the middle of it.
    pub(crate) half: bool,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { operation, path, at, bytes, .. } = self;
        write!(f, "{}{operation} {path}", if self.half { "the middle of " } else { "" })?;
        if *bytes > 0 {
            write!(f, " at {at}, {bytes} bytes")?;
        }
        self.barrier.map_or(Ok(()), |barrier| write!(f, " [{}]", barrier.label()))
    }
}

/// A moment at which the power may go.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) state: State,
    /// Nothing before the first operation.
    pub(crate) after: Option<Step>,
    /// How many facts had been told before the next operation began.
    pub(crate) acknowledged: usize,
    pub(crate) attempted: usize,
}

/// All moments of one run.
#[derive(Debug)]
pub(crate) struct Recording {
    cuts: Vec<Cut>,
}

impl Recording {
    pub(crate) fn begin(state: &State, acknowledged: usize, attempted: usize) -> Self {
        Recording { cuts: vec![Cut { state: state.clone(), after: None, acknowledged, attempted }] }
    }

    pub(crate) fn step(&mut self, state: &State, step: Step) {
        let (acknowledged, attempted) = self.cuts.last().map_or((0, 0), |cut| (cut.acknowledged, cut.attempted));
        self.cuts.push(Cut { state: state.clone(), after: Some(step), acknowledged, attempted });
    }

    /// What is told between two operations belongs to the moment before the later one.
    pub(crate) fn tell(&mut self, acknowledged: usize, attempted: usize) {
        if let Some(cut) = self.cuts.last_mut() {
            (cut.acknowledged, cut.attempted) = (acknowledged, attempted);
        }
    }

    pub(crate) fn finish(self) -> Vec<Cut> {
        self.cuts
    }
}
