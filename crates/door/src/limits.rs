//! What a peer may take: connections, bytes, time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::DoorError;

/// What a listener gives to its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time. One more is answered `Busy` and closed.
    pub connections_max: u32,
    /// Payload bytes of one frame. A longer one is refused by its header, and the connection closed.
    pub frame_bytes_max: u32,
    /// Bytes of long messages, those of more than a frame, that all connections have under way together: what is gathered of
    /// requests, and what is not yet sent of answers. One more is answered `Busy`; one that is longer than this, `Invalid`.
    pub long_bytes_max: u64,
    /// How long a connection without any request may stay, in milliseconds; 0 is for ever. A client whose process
    /// lives keeps an idle connection on purpose.
    pub idle_ms: u32,
    /// How long a begun frame or handshake may take to arrive, in milliseconds. A message of several frames, and an answer in parts, have to
    /// move by 16 KiB a second, in each such time; whoever takes nothing of his answers for so long is closed.
    pub partial_frame_ms: u32,
    /// Requests of one connection that are under way at a time. One more is answered `Busy`.
    pub pending_max: u32,
    /// Bytes of answers that a slow reader may leave unread: beyond a quarter of it nothing further is looked at that it asks. What it had asked
    /// before is answered, up to `pending_max` frames more.
    pub unread_bytes_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            frame_bytes_max: 1 << 20,
            long_bytes_max: 514 << 20,
            idle_ms: 0,
            partial_frame_ms: 10_000,
            pending_max: 256,
            unread_bytes_max: 16 << 20,
        }
    }
}

/// The smallest largest frame: a handshake that enlists a few dozen resources fits.
const FRAME_BYTES_LEAST: u32 = 4096;
/// The most that long messages may be allowed together.
const LONG_BYTES_MOST: u64 = 1 << 40;
/// The longest time a limit can say: a day.
const TIME_MS_MOST: u32 = 86_400_000;

impl Limits {
    /// Refuses what cannot work.
    ///
    /// # Errors
    /// [`DoorError::Limit`] names the limit, its value and the rule.
    pub fn check(&self) -> Result<(), DoorError> {
        let within = |name, value: u32, range: std::ops::RangeInclusive<u32>, rule| {
            let value_said = u64::from(value);
            if range.contains(&value) { Ok(()) } else { Err(DoorError::Limit { name, value: value_said, rule }) }
        };
        within("connections_max", self.connections_max, 1..=1_000_000, "it must be 1 to 1000000")?;
        let frame = FRAME_BYTES_LEAST..=1 << 20;
        within("frame_bytes_max", self.frame_bytes_max, frame, "it must be 4096 to 1048576 bytes")?;
        let (name, value, least) = ("long_bytes_max", self.long_bytes_max, u64::from(self.frame_bytes_max));
        if !(least..=LONG_BYTES_MOST).contains(&value) {
            return Err(DoorError::Limit { name, value, rule: "it must hold a frame and at most 1 TiB" });
        }
        within("idle_ms", self.idle_ms, 0..=TIME_MS_MOST, "it must be at most 86400000 ms; 0 is for ever")?;
        within("partial_frame_ms", self.partial_frame_ms, 1..=TIME_MS_MOST, "it must be 1 to 86400000 ms")?;
        within("pending_max", self.pending_max, 1..=65_536, "it must be 1 to 65536 requests")?;
        let unread = self.frame_bytes_max..=1 << 30;
        within("unread_bytes_max", self.unread_bytes_max, unread, "it must hold a frame and at most 1 GiB")
    }
}

/// The places for connections of one listener, shared by its threads.
#[derive(Clone, Debug)]
pub struct Slots {
    taken: Arc<AtomicU32>,
    most: u32,
}

/// One place, given back when dropped.
#[derive(Debug)]
pub struct Slot {
    taken: Arc<AtomicU32>,
}

impl Slots {
    /// That many places.
    #[must_use]
    pub fn new(most: u32) -> Self {
        Self { taken: Arc::new(AtomicU32::new(0)), most }
    }

    /// A place, if one is free.
    #[must_use]
    pub fn take(&self) -> Option<Slot> {
        let next = |taken: u32| (taken < self.most).then(|| taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()?;
        Some(Slot { taken: Arc::clone(&self.taken) })
    }

    /// How many are taken.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }

    /// How many there are.
    #[must_use]
    pub const fn most(&self) -> u32 {
        self.most
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_place_is_given_once_and_again_when_it_is_back() {
        let slots = Slots::new(2);
        let first = slots.take().unwrap();
        let _second = slots.take().unwrap();
        assert!(slots.take().is_none());
        assert_eq!(slots.taken(), 2);
        drop(first);
        assert!(slots.take().is_some());
    }

    #[test]
    fn the_defaults_hold_and_a_wrong_limit_is_named_with_its_rule() {
        assert_eq!(Limits::default().check(), Ok(()));
        let wrong = Limits { frame_bytes_max: 4095, ..Limits::default() };
        assert_eq!(wrong.check().unwrap_err().to_string(), "frame_bytes_max = 4095; it must be 4096 to 1048576 bytes");
        assert!(Limits { frame_bytes_max: 4096, ..Limits::default() }.check().is_ok());
        for wrong in [
            Limits { connections_max: 0, ..Limits::default() },
            Limits { partial_frame_ms: 0, ..Limits::default() },
            Limits { pending_max: 0, ..Limits::default() },
            Limits { unread_bytes_max: 1000, ..Limits::default() },
            Limits { idle_ms: TIME_MS_MOST + 1, ..Limits::default() },
            Limits { long_bytes_max: (1 << 20) - 1, ..Limits::default() },
            Limits { long_bytes_max: LONG_BYTES_MOST + 1, ..Limits::default() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
