//! Who is let into a cache of rows: everybody while there is room, and then what is asked for a second time before many others were. (The
//! doorkeeper of `TinyLFU`, arXiv 1512.00727, without its counts: the cache behind it has an order of its own.)
//!
//! ```text
//!   the places   2 bytes each: a part of the hash of who asked last of all whose place it is      0 is nobody
//! ```
//! What is asked for once would push out what is asked for often, and costs more to be kept than that will ever save. Nothing is ever cleared:
//! who asks later takes the place.
//!
//! Walk: [`Doorkeeper::admits`] · the cache tells by [`Full`] that somebody had to leave · [`Doorkeeper::there_is_room`] where it has grown.
//! Deliberately absent: what is kept.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use quick_cache::Lifecycle;

const PLACE_BYTES: u64 = 2;

/// Of one cache.
pub(crate) struct Doorkeeper {
    /// A power of two of them, or none.
    asked: Box<[AtomicU16]>,
    full: Full,
}

/// Whether somebody had to leave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Full(Arc<AtomicBool>);

impl Doorkeeper {
    /// With no more than so many places; with none nobody is let in.
    pub(crate) fn new(places_max: u64) -> Self {
        let places = places_max.checked_ilog2().map_or(0, |places| 1_u64 << places);
        Self { asked: (0..places).map(|_| AtomicU16::new(0)).collect(), full: Full::default() }
    }

    /// For the cache, that it tells who has to leave.
    pub(crate) fn full(&self) -> Full {
        self.full.clone()
    }

    /// Whether what is asked for is let in.
    pub(crate) fn admits(&self, hash: u64) -> bool {
        let place = usize::try_from(hash).unwrap_or(usize::MAX) & self.asked.len().wrapping_sub(1);
        let Some(place) = self.asked.get(place) else { return false };
        // The other end of the hash.
        let mark = u16::try_from(hash >> 48).unwrap_or(0) | 1;
        if place.load(Ordering::Relaxed) == mark {
            return true;
        }
        place.store(mark, Ordering::Relaxed);
        !self.full.0.load(Ordering::Relaxed)
    }

    /// The cache may hold more by now.
    pub(crate) fn there_is_room(&self) {
        self.full.0.store(false, Ordering::Relaxed);
    }

    /// Bytes that it takes itself.
    pub(crate) fn bytes(&self) -> u64 {
        u64::try_from(self.asked.len()).unwrap_or(u64::MAX).saturating_mul(PLACE_BYTES)
    }
}

impl<K, V> Lifecycle<K, V> for Full {
    /// Those that left, to be dropped when the cache is locked no more: mostly one or two.
    type RequestState = [Option<(K, V)>; 2];

    fn before_evict(&self, _: &mut Self::RequestState, _: &K, _: &mut V) {
        // Mostly it is known: the line stays everybody's.
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn on_evict(&self, left: &mut Self::RequestState, key: K, value: V) {
        if let Some(free) = left.iter_mut().find(|left| left.is_none()) {
            *free = Some((key, value));
        }
    }
}

impl fmt::Debug for Doorkeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorkeeper").field("places", &self.asked.len()).field("full", &self.full).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::mix;

    fn full(places: u64) -> Doorkeeper {
        let door = Doorkeeper::new(places);
        Lifecycle::<u8, u8>::before_evict(&door.full(), &mut [None, None], &0, &mut 0);
        door
    }

    #[test]
    fn who_asks_twice_before_another_has_its_place_is_let_in() {
        let door = full(9);
        assert_eq!(door.bytes(), 16, "eight places");
        let (one, same_place, other_place) = (5 | (2 << 48), 5 | (4 << 48), 6 | (2 << 48));
        assert_eq!([one, other_place, one].map(|hash| door.admits(hash)), [false, false, true]);
        assert_eq!([same_place, one].map(|hash| door.admits(hash)), [false, false]);
    }

    #[test]
    fn until_somebody_has_to_leave_everybody_is_let_in() {
        let door = Doorkeeper::new(1 << 10);
        assert!(door.admits(1) && door.admits(2));
        Lifecycle::<u8, u8>::before_evict(&door.full(), &mut [None, None], &0, &mut 0);
        assert!(!door.admits(3));
        door.there_is_room();
        assert!(door.admits(4));
    }

    #[test]
    fn without_places_nobody_is_let_in() {
        let door = Doorkeeper::new(0);
        assert_eq!((door.bytes(), door.admits(1), door.admits(1)), (0, false, false));
    }

    #[test]
    fn who_asks_again_soon_is_let_in_and_who_asks_once_hardly_ever() {
        let door = full(1 << 10);
        let strangers = (0..10_000).filter(|hash| door.admits(mix(*hash))).count();
        assert!(strangers < 10, "{strangers} of 10,000");
        let again = (0..1_000).filter(|hash| {
            let hash = mix(1_000_000 + *hash);
            _ = door.admits(hash);
            (0..100).for_each(|other| _ = door.admits(mix(hash ^ other)));
            door.admits(hash)
        });
        let again = again.count();
        assert!((850..950).contains(&again), "{again} of 1,000, of 1,024 places with 100 others between");
    }
}
