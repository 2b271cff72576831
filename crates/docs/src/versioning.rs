//! How a document's pages are versioned: what a writer writes, and so what a reader combines.
//!
//! | strategy | a commit writes of a changed page | a reader combines |
//! |---|---|---|
//! | full | all of it | 1 fragment |
//! | incremental, window N | what changed; every N-th time all of it | at most N |
//! | differential | what changed since the last time that all was written | at most 2 |
//! | sliding snapshot, window N | what changed, with what younger and smaller fragments say | at most N |
//!
//! A sliding snapshot folds a fragment into the new one when the new one is as large, or when there would be more than N. So
//! sizes grow from the newest to the oldest: a field that changes again and again stays one record, and all of a page is
//! written only when its changes have become as large as the page.
//! Walk: [`Versioning::plan`].
//! Deliberately absent: the bytes.

use crate::DocsError;

/// The most fragments that a reader ever combines.
pub const WINDOW_MAX: u8 = 16;

/// How the pages of a document are versioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Versioning {
    /// All of a changed page, each time.
    Full,
    /// What changed; all of it when there are `window` fragments.
    Incremental {
        /// The most fragments, 1 to [`WINDOW_MAX`].
        window: u8,
    },
    /// What changed since all was written.
    Differential,
    /// What changed, folded into what is no larger.
    SlidingSnapshot {
        /// The most fragments, 1 to [`WINDOW_MAX`].
        window: u8,
    },
}

impl Default for Versioning {
    fn default() -> Self {
        Self::SlidingSnapshot { window: 3 }
    }
}

/// What a writer writes of a changed page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// All of it. A reader needs nothing older.
    Whole,
    /// What changed, and what the newest so many fragments say. A reader needs those behind them.
    Changes {
        /// How many fragments are folded in.
        fold: usize,
    },
}

impl Versioning {
    /// What to write of a page with these fragments (their bytes, the newest first; the last one has all of it), when what
    /// changed takes so many bytes.
    pub(crate) fn plan(self, fragments: &[u64], changes: u64) -> Plan {
        let Some(deltas) = fragments.len().checked_sub(1) else { return Plan::Whole };
        match self {
            Self::Full => Plan::Whole,
            Self::Incremental { window } if fragments.len() < window.into() => Plan::Changes { fold: 0 },
            Self::Incremental { .. } => Plan::Whole,
            Self::Differential => {
                let written = fragments.iter().take(deltas).sum::<u64>().saturating_add(changes);
                let whole = fragments.last().is_some_and(|base| written >= *base);
                if whole { Plan::Whole } else { Plan::Changes { fold: deltas } }
            }
            Self::SlidingSnapshot { window } => {
                let (mut fold, mut written) = (0, changes);
                for bytes in fragments {
                    if written < *bytes && 1 + fragments.len() - fold <= window.into() {
                        break;
                    }
                    fold += 1;
                    written = written.saturating_add(*bytes);
                }
                if fold > deltas { Plan::Whole } else { Plan::Changes { fold } }
            }
        }
    }

    /// The most fragments that a reader combines.
    #[must_use]
    pub const fn fragments_max(self) -> u8 {
        match self {
            Self::Full => 1,
            Self::Differential => 2,
            Self::Incremental { window } | Self::SlidingSnapshot { window } => window,
        }
    }

    /// Whether its window is one that can be kept.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        matches!(self.fragments_max(), 1..=WINDOW_MAX)
    }

    /// # Errors
    /// [`DocsError::Config`] where it is not.
    pub(crate) fn check(self) -> Result<(), DocsError> {
        let (is_valid, value) = (self.is_valid(), self.fragments_max().into());
        if is_valid { Ok(()) } else { Err(DocsError::Config { name: "window", value, rule: "1 to 16" }) }
    }

    /// As two bytes on the disk.
    pub(crate) const fn laid(self) -> [u8; 2] {
        match self {
            Self::Full => [0, 1],
            Self::Incremental { window } => [1, window],
            Self::Differential => [2, 2],
            Self::SlidingSnapshot { window } => [3, window],
        }
    }

    pub(crate) fn of(laid: [u8; 2]) -> Option<Self> {
        let versioning = match laid {
            [0, 1] => Self::Full,
            [1, window] => Self::Incremental { window },
            [2, 2] => Self::Differential,
            [3, window] => Self::SlidingSnapshot { window },
            _ => return None,
        };
        versioning.is_valid().then_some(versioning)
    }
}

#[cfg(test)]
mod tests {
    use super::Plan::{Changes, Whole};
    use super::*;

    const INCREMENTAL: Versioning = Versioning::Incremental { window: 3 };
    const SLIDING: Versioning = Versioning::SlidingSnapshot { window: 3 };

    #[test]
    fn each_strategy_writes_what_its_table_says() {
        let table: [(Versioning, &[u64], u64, Plan); 18] = [
            (Versioning::Full, &[], 10, Whole),
            (Versioning::Full, &[500], 10, Whole),
            (INCREMENTAL, &[], 10, Whole),
            (INCREMENTAL, &[500], 10, Changes { fold: 0 }),
            (INCREMENTAL, &[10, 500], 10, Changes { fold: 0 }),
            (INCREMENTAL, &[10, 10, 500], 10, Whole),
            (Versioning::Differential, &[500], 10, Changes { fold: 0 }),
            (Versioning::Differential, &[10, 500], 10, Changes { fold: 1 }),
            (Versioning::Differential, &[490, 500], 10, Whole),
            (Versioning::Differential, &[489, 500], 10, Changes { fold: 1 }),
            (SLIDING, &[], 10, Whole),
            (SLIDING, &[500], 10, Changes { fold: 0 }),
            // As large: one fragment instead of two.
            (SLIDING, &[10, 500], 10, Changes { fold: 1 }),
            (SLIDING, &[40, 500], 10, Changes { fold: 0 }),
            // There would be four.
            (SLIDING, &[20, 40, 500], 10, Changes { fold: 1 }),
            (SLIDING, &[20, 30, 500], 10, Changes { fold: 2 }),
            (SLIDING, &[240, 250, 500], 10, Whole),
            (Versioning::SlidingSnapshot { window: 1 }, &[500], 10, Whole),
        ];
        for (versioning, fragments, changes, plan) in table {
            assert_eq!(versioning.plan(fragments, changes), plan, "{versioning:?} {fragments:?}");
        }
    }

    #[test]
    fn a_strategy_comes_back_from_the_disk_and_a_window_beyond_its_limit_does_not() {
        for versioning in [Versioning::Full, INCREMENTAL, Versioning::Differential, SLIDING] {
            assert_eq!(Versioning::of(versioning.laid()), Some(versioning));
        }
        for laid in [[0, 2], [1, 0], [3, 17], [4, 1]] {
            assert_eq!(Versioning::of(laid), None, "{laid:?}");
        }
        assert!(Versioning::SlidingSnapshot { window: WINDOW_MAX }.is_valid());
    }
}
