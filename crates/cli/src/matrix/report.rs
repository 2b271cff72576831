//! What the matrix found, as a table for people and as one JSON object for programs.

use assent_world::stop::Stop;
use serde::{Serialize, Serializer};

use super::cell::{Cell, Mode, Victim};
use crate::bench::table;
use crate::failure::Failure;

/// What became of the transaction at which somebody stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Committed,
    RolledBack,
    /// Nobody came to the stop point.
    Missed,
}

/// One cell, played once.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Played {
    pub(super) name: String,
    #[serde(skip)]
    pub(super) cell: Option<Cell>,
    #[serde(serialize_with = "fate")]
    pub(super) fate: Fate,
    /// From the last death, or from the return of a foreign database, until no store listed anything as prepared.
    pub(super) resolved_ms: Option<u64>,
    pub(super) took_ms: u64,
    pub(super) begun: u64,
    pub(super) committed: u64,
    pub(super) rolled_back: u64,
    pub(super) faults: Vec<String>,
    /// What the processes said last; only with faults.
    pub(super) said: Vec<String>,
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) seed: u64,
    pub(super) elapsed_ms: u64,
    /// Cells of the matrix, and how many of them were not reached in time.
    pub(super) cells: usize,
    pub(super) unplayed: usize,
    pub(super) plays: Vec<Played>,
}

fn fate<S: Serializer>(fate: &Fate, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(fate.name())
}

impl Fate {
    const fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::RolledBack => "rolled back",
            Self::Missed => "missed",
        }
    }
}

impl Report {
    pub(super) fn is_good(&self) -> bool {
        self.plays.iter().all(|play| play.faults.is_empty())
    }

    /// The longest that anything stayed prepared.
    fn longest_ms(&self) -> u64 {
        self.plays.iter().filter_map(|play| play.resolved_ms).max().unwrap_or_default()
    }

    /// For people.
    pub(super) fn print(&self) -> Result<(), Failure> {
        let mut rows = table(&["stop point", "mode", "client", "coordinator", "postgres", "mariadb", "kv"]);
        for stop in Stop::ALL {
            for mode in Mode::ALL {
                let cells = Victim::ALL.map(|victim| self.text(Cell { stop: *stop, mode, victim }));
                if cells.iter().any(|cell| !cell.is_empty()) {
                    rows.add_row([stop.name().to_owned(), mode.name().to_owned()].into_iter().chain(cells));
                }
            }
        }
        say!("{rows}")?;
        say!(
            "Each cell: times played, fate of the transaction at the stop point (c committed, r rolled back), the longest \
             that anything stayed prepared after the last death."
        )?;
        for play in self.plays.iter().filter(|play| play.cell.is_none()) {
            let Played { name, committed, begun, .. } = play;
            let left = play.resolved_ms.map_or("NOT FINISHED".to_owned(), |ms| format!("{ms} ms"));
            say!("{name}: {committed} of {begun} transactions acknowledged as committed; finished in {left}")?;
        }
        let sum = |of: fn(&Played) -> u64| self.plays.iter().map(of).sum::<u64>();
        say!(
            "seed {}: {} plays in {} s, {} of {} cells not reached; {} transactions, {} acknowledged as committed, {} as \
             rolled back; the longest time until nothing was prepared: {} ms",
            self.seed,
            self.plays.len(),
            self.elapsed_ms / 1_000,
            self.unplayed,
            self.cells,
            sum(|play| play.begun),
            sum(|play| play.committed),
            sum(|play| play.rolled_back),
            self.longest_ms()
        )?;
        for play in self.plays.iter().filter(|play| !play.faults.is_empty()) {
            say!("FAULT in {}:", play.name)?;
            play.faults.iter().try_for_each(|fault| say!("  {fault}"))?;
        }
        if self.is_good() {
            say!("All or nothing everywhere; every acknowledgement holds; nothing is left prepared.")?;
        }
        Ok(())
    }

    fn text(&self, cell: Cell) -> String {
        let plays: Vec<&Played> = self.plays.iter().filter(|play| play.cell == Some(cell)).collect();
        if plays.is_empty() {
            return String::new();
        }
        let count = |fate: Fate, letter: &str| match plays.iter().filter(|play| play.fate == fate).count() {
            0 => String::new(),
            many => format!(" {many}{letter}"),
        };
        let longest = plays.iter().filter_map(|play| play.resolved_ms).max();
        let is_bad = plays.iter().any(|play| !play.faults.is_empty());
        format!(
            "{}:{}{}{} {}{}",
            plays.len(),
            count(Fate::Committed, "c"),
            count(Fate::RolledBack, "r"),
            count(Fate::Missed, "?"),
            longest.map_or("-".to_owned(), |ms| format!("{ms} ms")),
            if is_bad { " FAULT" } else { "" }
        )
    }
}
