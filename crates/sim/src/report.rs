//! What an exploration found, for a person.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::fault::Operation;

/// What was explored, and that all of it was right.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Different disks that were checked, each with what had been promised.
    pub states: u64,
    /// Those among them that were left by a power cut in the middle of a check.
    pub nested: u64,
    /// Workloads that were recorded.
    pub runs: u64,
    /// Moments at which the power was cut.
    pub cuts: u64,
    /// The first workload's seed; each further one has the next number.
    pub seed: u64,
    /// The time it took.
    pub took: Duration,
    /// States by the operation that the power cut came after, with its barrier's label.
    pub after: BTreeMap<(Operation, Option<&'static str>), u64>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { states, nested, runs, cuts, seed, took, .. } = self;
        let ms = took.as_millis();
        writeln!(
            f,
            "{states} distinct states ({nested} nested) of {cuts} cuts in {runs} runs from seed {seed}, {ms} ms"
        )?;
        for ((operation, label), count) in &self.after {
            writeln!(f, "{count:>9}  {operation:<18}  {}", label.unwrap_or_default())?;
        }
        Ok(())
    }
}

/// One power cut on the way to a red state.
#[derive(Clone, Debug)]
pub struct Blow {
    /// What was running: `life 1`, `check at level 2`.
    pub during: String,
    /// The operation that the cut came after; the number counts the operations of that run that changed something.
    pub cut: String,
    /// All that was on its way to the platter, and what became of it.
    pub fate: Vec<String>,
}

/// A red state, and the way there.
#[derive(Clone)]
pub struct Failure {
    /// The workload's seed: with it as the first seed the exploration comes here again.
    pub seed: u64,
    /// What the check said.
    pub message: String,
    /// The power cuts, the first one first.
    pub blows: Vec<Blow>,
    /// The facts that had been promised.
    pub acknowledged: String,
    /// The facts that had been attempted.
    pub attempted: String,
    /// What was green before.
    pub report: Report,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.message)?;
        writeln!(f, "seed {} (again: ASSENT_GATE_SEED={})", self.seed, self.seed)?;
        for Blow { during, cut, fate } in &self.blows {
            writeln!(f, "during {during}, power cut after {cut}")?;
            fate.iter().try_for_each(|fate| writeln!(f, "    {fate}"))?;
        }
        writeln!(f, "acknowledged: {}", self.acknowledged)?;
        writeln!(f, "attempted: {}", self.attempted)?;
        write!(f, "after {}", self.report)
    }
}

/// As for a person, so that an `unwrap` in a gate tells the story.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}
