//! What has been written and not synced (RPO > 0), and when it must be.
//!
//! Walk: [`Backlog::wrote`] after each write · [`Backlog::begin`] takes all of it for one sync · [`Backlog::due`] says when
//! the next one is · [`Backlog::left`] when who sees to it looks again.

use std::sync::Arc;
use std::time::Duration;

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
    /// The keeper looks again by itself then, at the latest. Before its first look nobody knows.
    looks: Moment,
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
            looks: Moment(u64::MAX),
            last_sync: now,
            syncing: false,
            gate: Arc::default(),
        }
    }

    /// Bytes up to `end` have been written, the last of them into this segment. Says whether the keeper must be called: it would look
    /// too late for the next sync. Once is enough: then it looks when that is due.
    pub(crate) fn wrote(
        &mut self,
        (segment, file): (&Arc<Segment>, &Option<Arc<dyn File>>),
        (bytes, end): (u64, u64),
        now: impl FnOnce() -> Moment,
        config: &Config,
    ) -> bool {
        if self.segments.last().is_none_or(|last| last.segment.first() != segment.first()) {
            self.segments.push(Unsynced { segment: Arc::clone(segment), file: file.clone() });
        }
        self.end = end;
        self.bytes += bytes;
        self.since.get_or_insert_with(now);
        let due = self.due(config).filter(|due| *due < self.looks);
        self.looks = due.unwrap_or(self.looks);
        due.is_some()
    }

    /// The keeper has looked now, and looks again when the next sync is due, or after this pause. After which one that is.
    pub(crate) fn left(&mut self, now: Moment, pause: Duration, config: &Config) -> Duration {
        let pause = self.due(config).map_or(pause, |due| due.since(now).min(pause));
        self.looks = now.after(pause);
        pause
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
        let config = Config { min_elapsed_sync_time: 8, max_elapsed_sync_time: 10, ..Config::default() };
        let mut backlog = Backlog::new(Moment(0));
        assert_eq!(backlog.due(&config), None);
        wrote(&mut backlog, (100, 100), Moment(1000), &config);
        wrote(&mut backlog, (100, 200), Moment(2000), &config);
        // Written at 1 ms: half of 10 ms later would be 6 ms, but 8 ms must lie between two syncs.
        assert_eq!(backlog.due(&config), Some(Moment(8000)));
        assert_eq!(backlog.begin().0, 200);
        assert_eq!(backlog.due(&config), None);
        backlog.end(Moment(9000));
        backlog.left(Moment(9000), Duration::from_millis(100), &config);
        assert!(wrote(&mut backlog, (100, 300), Moment(30_000), &config));
        assert_eq!(backlog.due(&config), Some(Moment(35_000)));
        assert!(!wrote(&mut backlog, (UNSYNCED_BYTES - 101, 400), Moment(30_001), &config));
        assert_eq!(backlog.due(&config), Some(Moment(35_000)));
        assert!(wrote(&mut backlog, (1, 401), Moment(30_002), &config), "the keeper must hear of it");
        assert_eq!(backlog.due(&config), Some(Moment(30_000)));
    }

    #[test]
    fn the_keeper_is_called_only_where_it_would_look_too_late() {
        const PAUSE: Duration = Duration::from_millis(100);
        let config = Config { max_elapsed_sync_time: 10, ..Config::default() };
        let mut backlog = Backlog::new(Moment(0));
        let wrote_at = |backlog: &mut Backlog, ms: u64| wrote(backlog, (1, ms), Moment(ms * 1_000), &config);
        assert!(wrote_at(&mut backlog, 1), "nobody knows when it looks");
        assert!(!wrote_at(&mut backlog, 2), "it was called");
        // It comes, and finds nothing due: it knows when that will be.
        assert_eq!(backlog.left(Moment(2_000), PAUSE, &config), Duration::from_millis(4));
        let calls = (3..=6)
            .filter(|ms| {
                // Somebody waits for each write, and syncs it.
                let called = wrote_at(&mut backlog, *ms);
                backlog.begin();
                backlog.end(Moment(ms * 1_000));
                called
            })
            .count();
        assert_eq!(calls, 0, "it looks at 6 ms, and nothing of that is due before 8");
        assert!(!wrote_at(&mut backlog, 6));
        assert_eq!(backlog.left(Moment(6_000), PAUSE, &config), Duration::from_millis(5));
        backlog.begin();
        backlog.end(Moment(11_000));
        // Nothing waits: it looks in a while, which is too late for what is written then.
        assert_eq!(backlog.left(Moment(11_000), PAUSE, &config), PAUSE);
        assert!(wrote_at(&mut backlog, 12) && !wrote_at(&mut backlog, 13));
        // But for what is due behind its next look anyway.
        let seldom = Config { max_elapsed_sync_time: 1_000, ..config.clone() };
        backlog.begin();
        backlog.end(Moment(20_000));
        backlog.left(Moment(20_000), PAUSE, &seldom);
        assert!(!wrote(&mut backlog, (1, 21), Moment(21_000), &seldom));
    }

    fn wrote(backlog: &mut Backlog, bytes: (u64, u64), now: Moment, config: &Config) -> bool {
        use crate::layout::SegmentHead;
        let head = SegmentHead { first: 0, size: 20480, epoch: 1, salt: 1, recycled: false };
        backlog.wrote((&Arc::new(Segment::new(head, "x".into(), None)), &None), bytes, || now, config)
    }
}
