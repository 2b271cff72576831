//! Long messages, of more than a frame: how much of them may be under way, and those that are gathered.
//!
//! Walk: [`Budget::take`] gives a [`Share`] or none · [`gather`] takes a part; what is whole is stepped as any request. One that
//! finds no room is refused by its first part, and the others are counted away. One that has it and hardly moves ([`Progress`]) ends its
//! connection.
//! Deliberately absent: a limit for each connection of its own. One request at a time is gathered of each, and its answers are
//! bounded by the budget and by how many requests may be under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use assent_frame::Frame;
use assent_kind::Kind;
use assent_wire::{Assembly, LONG, MESSAGE_BYTES_MAX, WireError};
use assent_world::Moment;

use crate::connection::Connection;
use crate::role;
use crate::shared::Shared;

/// How fast a long message has to come, or to be taken.
const LEAST_BYTES_PER_S: u64 = 16 << 10;

/// What all connections together may have of long messages.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    taken: Arc<AtomicU64>,
    most: u64,
}

/// A part of it, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    taken: Arc<AtomicU64>,
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(most: u64) -> Self {
        Self { taken: Arc::default(), most }
    }

    /// The longest message that it takes at all.
    pub(crate) fn message_bytes_max(&self) -> usize {
        usize::try_from(self.most).unwrap_or(usize::MAX).min(MESSAGE_BYTES_MAX)
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Acquire)
    }

    /// Room for so many bytes, or the sentence why there is none.
    pub(crate) fn take(&self, bytes: usize) -> Result<Share, (Kind, String)> {
        let limit = self.message_bytes_max();
        if bytes > limit {
            let error = WireError::TooLarge { bytes, limit };
            return Err((error.kind(), error.to_string()));
        }
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let next = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.most);
        match self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) {
            Ok(_) => Ok(Share { taken: Arc::clone(&self.taken), bytes }),
            Err(taken) => {
                let most = self.most;
                let message = format!(
                    "{taken} bytes of long messages are under way, and {bytes} more do not fit long_bytes_max = {most}; ask again"
                );
                Err((Kind::Busy, message))
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// A request of which parts have come, and its room; without one its parts are only counted.
#[derive(Debug)]
pub(crate) struct Gathering {
    pub(crate) assembly: Assembly,
    pub(crate) share: Option<Share>,
    pub(crate) progress: Progress,
}

/// How a long message gets on that has its room. Whoever keeps that has to use it: two connections that do not would have all there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    since: Moment,
    bytes: u64,
}

impl Progress {
    pub(crate) const fn from(now: Moment) -> Self {
        Self { since: now, bytes: 0 }
    }

    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Whether it was slower than that for as long as a frame may take; once in each such time.
    pub(crate) fn is_too_slow(&mut self, now: Moment, patience: Duration) -> bool {
        let elapsed = now.since(self.since);
        if elapsed < patience {
            return false;
        }
        let least = LEAST_BYTES_PER_S.saturating_mul(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)) / 1000;
        std::mem::replace(self, Self::from(now)).bytes < least
    }
}

/// Whether this frame is a part of a request; in version 1 nobody sends any.
pub(crate) const fn is_part(connection: &Connection, frame: &Frame<'_>) -> bool {
    connection.version >= LONG && Assembly::is_part(frame)
}

/// Takes a part. The request, once it is whole and was not refused.
pub(crate) fn gather(
    shared: &Shared,
    connection: &mut Connection,
    frame: &Frame<'_>,
) -> Result<Option<Gathering>, WireError> {
    let gathering = match connection.gathering.take() {
        Some(mut begun) => {
            begun.assembly.add(frame)?;
            begun.progress.add(frame.payload.len());
            begun
        }
        None => {
            let share = shared.budget.take(Assembly::announced(frame));
            let assembly = Assembly::begin(frame, share.is_ok())?;
            if let Err((kind, message)) = &share {
                shared.numbers.refused(*kind);
                role::error(shared, connection, frame.mark, *kind, message);
            }
            Gathering { assembly, share: share.ok(), progress: Progress::from(connection.heard) }
        }
    };
    if gathering.assembly.is_whole() {
        return Ok(Some(gathering).filter(|it| it.assembly.is_kept()));
    }
    connection.gathering = Some(gathering);
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_is_given_once_and_again_when_it_is_back() {
        let budget = Budget::new(100);
        let first = budget.take(60).unwrap();
        assert_eq!(budget.take(41).unwrap_err().0, Kind::Busy);
        let second = budget.take(40).unwrap();
        assert_eq!(budget.take(1).unwrap_err().0, Kind::Busy);
        drop(first);
        assert_eq!(budget.taken(), 40);
        assert!(budget.take(60).is_ok());
        let (kind, message) = budget.take(101).unwrap_err();
        assert_eq!((kind, message.contains("at most 100")), (Kind::Invalid, true), "{message}");
        drop(second);
        assert_eq!((budget.taken(), Budget::new(u64::MAX).message_bytes_max()), (0, MESSAGE_BYTES_MAX));
    }
}
