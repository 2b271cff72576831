//! What has been written and not synced (RPO > 0), and when it must be.
//!
//! Walk: [`Backlog::wrote`] after each write · [`Backlog::begin`] takes all of it for one sync · [`Backlog::due`] says when
//! the next one is.

use std::sync::Arc;

use assent_world::{File, Gate, Moment};

use crate::config::Config;
use crate::segment::Segment;

/// More unsynced bytes than these are synced at once: a disk that gets all of a second in one piece serves no read meanwhile.
const UNSYNCED_BYTES: u64 = 2 << 20;

/// A segment with bytes that only the kernel has, and its file.
#[derive(Debug)]
pub(crate) struct Unsynced {
    pub(crate) segment: Arc<Segment>,
    pub(crate) file: Option<Arc<dyn File>>,
}

/// Segments with bytes that only the kernel has.
#[derive(Debug)]
pub(crate) struct Backlog {
    segments: Vec<Unsynced>,
    end: u64,
    bytes: u64,
    since: Option<Moment>,
    pub(crate) last_sync: Moment,
    pub(crate) syncing: bool,
    pub(crate) gate: Arc<Gate>,
}

impl Backlog {
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            segments: Vec::new(),
            end: 0,
            bytes: 0,
            since: None,
            last_sync: now,
            syncing: false,
            gate: Arc::default(),
        }
    }

    /// Bytes up to `end` have been written, the last of them into this segment. Says whether that changes when the next
    /// sync is due.
    pub(crate) fn wrote(&mut self, unsynced: Unsynced, bytes: u64, end: u64, now: Moment) -> bool {
        if self.segments.last().is_none_or(|last| last.segment.first() != unsynced.segment.first()) {
            self.segments.push(unsynced);
        }
        let (first, few) = (self.since.is_none(), self.bytes < UNSYNCED_BYTES);
        self.end = end;
        self.bytes += bytes;
        self.since.get_or_insert(now);
        first || (few && self.bytes >= UNSYNCED_BYTES)
    }

    /// Takes everything for one sync: how far it reaches, and the segments in order.
    pub(crate) fn begin(&mut self) -> (u64, Vec<Unsynced>) {
        self.syncing = true;
        self.since = None;
        self.bytes = 0;
        (self.end, std::mem::take(&mut self.segments))
    }

    /// A sync has ended, well or not; whoever waits must look.
    pub(crate) fn end(&mut self, now: Moment) -> Arc<Gate> {
        self.syncing = false;
        self.last_sync = now;
        Arc::clone(&self.gate)
    }

    /// When the next sync is due; never if nothing waits for one.
    ///
    /// At half of the longest time, so that a sync that takes its time still ends within it, or at once where much is
    /// unsynced; not before the shortest.
    pub(crate) fn due(&self, config: &Config) -> Option<Moment> {
        let since = self.since?;
        let longest = if self.bytes >= UNSYNCED_BYTES { since } else { since.after(config.sync_max() / 2) };
        Some(longest.max(self.last_sync.after(config.sync_min())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_due_within_the_longest_time_and_not_before_the_shortest() {
        use crate::layout::SegmentHead;
        let head = SegmentHead { first: 0, size: 20480, epoch: 1, salt: 1, recycled: false };
        let segment = Arc::new(Segment::new(head, "x".into(), None));
        let unsynced = || Unsynced { segment: Arc::clone(&segment), file: None };
        let config = Config { min_elapsed_sync_time: 8, max_elapsed_sync_time: 10, ..Config::default() };
        let mut backlog = Backlog::new(Moment(0));
        assert_eq!(backlog.due(&config), None);
        backlog.wrote(unsynced(), 100, 100, Moment(1000));
        backlog.wrote(unsynced(), 100, 200, Moment(2000));
        // Written at 1 ms: half of 10 ms later would be 6 ms, but 8 ms must lie between two syncs.
        assert_eq!(backlog.due(&config), Some(Moment(8000)));
        assert_eq!(backlog.begin().0, 200);
        assert_eq!(backlog.due(&config), None);
        backlog.end(Moment(9000));
        backlog.wrote(unsynced(), 100, 300, Moment(30_000));
        assert_eq!(backlog.due(&config), Some(Moment(35_000)));
        assert!(!backlog.wrote(unsynced(), UNSYNCED_BYTES - 101, 400, Moment(30_001)));
        assert_eq!(backlog.due(&config), Some(Moment(35_000)));
        assert!(backlog.wrote(unsynced(), 1, 401, Moment(30_002)), "the keeper must hear of it");
        assert_eq!(backlog.due(&config), Some(Moment(30_000)));
    }
}
