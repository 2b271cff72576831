//! A store that reads its journal back says how far it is: a bar where somebody looks at it, else lines of the log.
//!
//! Walk: [`ReadBack::tell`] is told by [`assent_kv::Kv::open_telling`] · [`ReadBack::end`] says that it is over.
//! Where the ledger is there, little is read behind it, nothing is told, and nothing is said.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use assent_kv::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use tracing::{info, warn};

/// What is over before anybody has read a line is not told by lines.
const SAID_BYTES: u64 = 16 << 20;

/// What somebody is shown of one opening.
pub(crate) struct ReadBack<'a> {
    ledger: &'a Path,
    /// Since the first that was told.
    bar: Option<ProgressBar>,
    is_watched: bool,
    /// Tenths that were said.
    tenths: u64,
}

impl<'a> ReadBack<'a> {
    pub(crate) fn of(ledger: &'a Path) -> Self {
        Self { ledger, bar: None, is_watched: io::stderr().is_terminal(), tenths: 0 }
    }

    pub(crate) fn tell(&mut self, progress: Progress) {
        let Progress { read, total } = progress;
        let ledger = self.ledger.display();
        let bar = self.bar.get_or_insert_with(|| if self.is_watched { bar(total) } else { ProgressBar::hidden() });
        bar.set_position(read);
        if let Some(tenths) = news(self.tenths, progress).filter(|_| !self.is_watched) {
            self.tenths = tenths;
            info!("{ledger}: built from values and journal, {tenths}0 % of {total} bytes read");
        }
    }

    /// `is_rebuilt`: there was one, and it was not believed; or what was left of it was not.
    pub(crate) fn end(self, is_rebuilt: bool) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        if is_rebuilt {
            warn!("{}: was lost, damaged or another journal's, and has been built anew", self.ledger.display());
        }
    }
}

/// How many tenths are to be said now, if that is more than were said.
fn news(said: u64, Progress { read, total }: Progress) -> Option<u64> {
    let tenths = read.saturating_mul(10).checked_div(total)?;
    (total >= SAID_BYTES && tenths > said).then_some(tenths)
}

fn bar(total: u64) -> ProgressBar {
    let template = "the ledger is built {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} (left {eta})";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenth_of_a_long_way_is_said_once_and_a_short_one_is_not() {
        let said = |total: u64| {
            let mut said = Vec::new();
            for read in (0..=total).step_by(usize::try_from(total / 64).unwrap().max(1)) {
                said.extend(news(said.last().copied().unwrap_or(0), Progress { read, total }));
            }
            said
        };
        assert_eq!(said(SAID_BYTES), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert!(said(SAID_BYTES - 64).is_empty());
        assert_eq!(news(3, Progress { read: SAID_BYTES, total: SAID_BYTES }), Some(10), "of large pieces");
        assert_eq!(news(0, Progress { read: 0, total: 0 }), None);
    }
}
