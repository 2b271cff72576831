//! How far an open is that reads everything back: told to whoever shows it.
//!
//! Walk: [`Teller::new`] knows how much there is · [`Teller::read`] counts, and tells at each hundredth, on a long way more often ·
//! [`Teller::end`] tells that nothing is left.
//! Deliberately absent: time. Whoever shows it knows when it began.

/// It is told about every so many bytes at least.
const TOLD_BYTES: u64 = 4 << 20;
/// And as often as that on any way.
const PARTS: u64 = 100;

/// How far an open is that builds a ledger anew, or reads a whole journal because there is none: told now and then. What is read only
/// grows, never beyond all of it, and the last that is told is all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of volumes and journal that were read.
    pub read: u64,
    /// Bytes that will have been read.
    pub total: u64,
}

/// Counts what was read, and tells.
pub(crate) struct Teller<'a> {
    progress: Progress,
    untold: u64,
    each: u64,
    told: &'a mut dyn FnMut(Progress),
}

impl<'a> Teller<'a> {
    /// Of nothing at all nothing is told.
    pub(crate) fn new(total: u64, told: &'a mut dyn FnMut(Progress)) -> Self {
        let each = (total / PARTS).clamp(1, TOLD_BYTES);
        Self { progress: Progress { read: 0, total }, untold: 0, each, told }
    }

    pub(crate) fn read(&mut self, bytes: u64) {
        let Progress { read, total } = &mut self.progress;
        // All of it is told once everything is done.
        *read = read.saturating_add(bytes).min(total.saturating_sub(1));
        self.untold = self.untold.saturating_add(bytes);
        if self.untold >= self.each && *total > 0 {
            self.untold = 0;
            (self.told)(self.progress);
        }
    }

    pub(crate) fn end(self) {
        let Progress { total, .. } = self.progress;
        if total > 0 {
            (self.told)(Progress { read: total, total });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(total: u64, pieces: &[u64]) -> Vec<u64> {
        let mut all = Vec::new();
        let mut tell = |progress: Progress| {
            assert_eq!(progress.total, total);
            all.push(progress.read);
        };
        let mut teller = Teller::new(total, &mut tell);
        pieces.iter().for_each(|bytes| teller.read(*bytes));
        teller.end();
        all
    }

    #[test]
    fn it_is_told_at_each_hundredth_or_four_mebibytes_and_all_of_it_at_the_end_alone() {
        assert_eq!(told(0, &[]), []);
        assert_eq!(told(0, &[5]), [], "nothing was said to come");
        assert_eq!(told(3, &[1, 1, 1]), [1, 2, 2, 3]);
        assert_eq!(told(1_000, &[4, 5, 1, 9, 1]), [10, 20, 1_000]);
        assert_eq!(told(100, &[60, 60]), [60, 99, 100], "more than was thought");
        let gigabyte = told(1 << 30, &[1 << 20; 1 << 10]);
        assert_eq!((gigabyte.len(), gigabyte[0]), (257, TOLD_BYTES));
    }
}
