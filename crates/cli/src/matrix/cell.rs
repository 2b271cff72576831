//! The cells of the matrix: who dies, while who stands at which stop point, with how much going on. No I/O.
//!
//! Walk: [`Cell::all`] lists what makes sense · [`order`] spreads it, so that a short run has seen every stop point, every
//! victim and every mode before any of them for a second time.

use std::collections::BTreeMap;
use std::fmt;

use assent_world::stop::Stop;

use crate::demo::kill::who_passes;
use crate::demo::plan::Chance;

/// How much goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    /// One transaction; its client lives on if it is not the victim.
    Single,
    /// One transaction; its client dies together with the victim, so that no application runs.
    Dark,
    /// Several clients without a pause; in the end all of them die at once.
    Load,
    /// One client with 200 transactions in flight dies.
    Crowd,
    /// A client is not killed but sleeps for longer than it may be lost, and wakes.
    Asleep,
}

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Victim {
    Client,
    Coordinator,
    Postgres,
    Mariadb,
    Kv,
}

/// One place of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) stop: Stop,
    pub(super) mode: Mode,
    pub(super) victim: Victim,
}

impl Mode {
    pub(super) const ALL: [Self; 5] = [Self::Single, Self::Dark, Self::Load, Self::Crowd, Self::Asleep];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Dark => "dark",
            Self::Load => "load",
            Self::Crowd => "crowd",
            Self::Asleep => "asleep",
        }
    }
}

impl Victim {
    pub(super) const ALL: [Self; 5] = [Self::Client, Self::Coordinator, Self::Postgres, Self::Mariadb, Self::Kv];

    /// The name of its process, and of its resource if it is a store.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Coordinator => "coordinator",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
            Self::Kv => "kv",
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.stop.name(), self.mode.name(), self.victim.name())
    }
}

impl Cell {
    /// All that make sense, in the order of the table. By a last resource no commit is decided at the coordinator.
    pub(super) fn all(by_row: bool) -> Vec<Self> {
        let is_passed = |stop: &&Stop| match who_passes(**stop) {
            "coordinator" => !by_row || stop.name().starts_with("agent"),
            _ => by_row || **stop != Stop::ClientAwaitsRow,
        };
        let stops = Stop::ALL.iter().filter(is_passed);
        let rows = stops.flat_map(|stop| Mode::ALL.map(|mode| (*stop, mode)));
        let cells = rows.flat_map(|(stop, mode)| Victim::ALL.map(|victim| Self { stop, mode, victim }));
        cells.filter(Self::makes_sense).collect()
    }

    fn makes_sense(&self) -> bool {
        match self.mode {
            // Somebody has died before recovery stops anywhere: the client.
            Mode::Single | Mode::Load if self.is_recovery() => self.victim != Victim::Client,
            Mode::Single | Mode::Load => true,
            // The client is the victim, or dead already: that is single.
            Mode::Dark => !self.is_recovery() && self.victim != Victim::Client,
            Mode::Crowd | Mode::Asleep => self.victim == Victim::Client && who_passes(self.stop) == "client",
        }
    }

    /// Whether it is the agent that stands there.
    pub(super) const fn is_recovery(&self) -> bool {
        matches!(self.stop, Stop::AgentBeforeDecision | Stop::AgentAfterDecision | Stop::AgentBetweenBranches)
    }

    /// Whether its client was fenced before it asked for a decision.
    pub(super) const fn must_be_refused(&self) -> bool {
        matches!(self.mode, Mode::Asleep)
            && matches!(self.stop, Stop::ClientBeforePrepare | Stop::ClientBetweenPrepares | Stop::ClientBeforeDecision)
    }

    /// The process that freezes.
    pub(super) fn frozen(&self) -> &'static str {
        match who_passes(self.stop) {
            "client" => "client-0",
            "store" => "kv",
            other => other,
        }
    }

    /// Which passing of its stop point it is.
    pub(super) fn nth(&self, chance: &mut Chance) -> u64 {
        match self.mode {
            Mode::Single | Mode::Dark | Mode::Asleep => 1,
            // The agent passes when its client is dead, which is arranged once.
            Mode::Load if self.is_recovery() => 1,
            Mode::Load if self.frozen() == "client-0" => 3 + chance.below(10),
            Mode::Load => 10 + chance.below(30),
            Mode::Crowd => 200 + chance.below(200),
        }
    }
}

/// The cells as a seed shuffles them, those first whose stop point, mode and victim were seen least so far.
pub(super) fn order(mut cells: Vec<Cell>, seed: u64) -> Vec<Cell> {
    let mut chance = Chance::new(seed, 0, 0);
    let mut seen: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut ordered = Vec::with_capacity(cells.len());
    while !cells.is_empty() {
        let weight = |cell: &Cell| {
            let names = [cell.stop.name(), cell.mode.name(), cell.victim.name()];
            names.map(|name| seen.get(name).copied().unwrap_or_default()).iter().sum::<u64>()
        };
        let least = cells.iter().map(weight).min().unwrap_or_default();
        let lightest: Vec<usize> = (0..).zip(&cells).filter(|(_, it)| weight(it) == least).map(|(at, _)| at).collect();
        let one = chance.below(u64::try_from(lightest.len()).unwrap_or(1));
        let at = usize::try_from(one).ok().and_then(|one| lightest.get(one)).copied().unwrap_or_default();
        let cell = cells.swap_remove(at);
        for name in [cell.stop.name(), cell.mode.name(), cell.victim.name()] {
            *seen.entry(name).or_default() += 1;
        }
        ordered.push(cell);
    }
    ordered
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_stop_point_meets_every_victim_alone_and_under_load() {
        let [by_log, by_row] = [Cell::all(false), Cell::all(true)];
        let of_log = |stop: &Stop| stop.name().starts_with("coordinator");
        assert!(by_row.iter().all(|it| !of_log(&it.stop)) && by_row.len() > 100, "nobody passes those");
        assert!(by_log.iter().all(|it| it.stop != Stop::ClientAwaitsRow));
        let others = by_row.into_iter().filter(|it| !by_log.contains(it));
        let cells: Vec<Cell> = by_log.iter().copied().chain(others).collect();
        for stop in Stop::ALL {
            for mode in [Mode::Single, Mode::Load] {
                let victims: Vec<Victim> =
                    cells.iter().filter(|it| it.stop == *stop && it.mode == mode).map(|it| it.victim).collect();
                let all = if stop.name().starts_with("agent") { &Victim::ALL[1..] } else { &Victim::ALL[..] };
                assert_eq!(victims, all, "{} {}", stop.name(), mode.name());
            }
        }
    }

    #[test]
    fn a_short_run_sees_everything_once_and_a_seed_repeats() {
        let ordered = order(Cell::all(false), 7);
        assert_eq!(ordered, order(Cell::all(false), 7));
        assert_ne!(ordered, order(Cell::all(false), 8));
        let first = &ordered[..24];
        let stops: BTreeSet<&str> = first.iter().map(|it| it.stop.name()).collect();
        let rest: BTreeSet<&str> = first.iter().flat_map(|it| [it.mode.name(), it.victim.name()]).collect();
        assert_eq!((stops.len(), rest.len()), (Stop::ALL.len() - 1, Mode::ALL.len() + Victim::ALL.len()));
    }
}
