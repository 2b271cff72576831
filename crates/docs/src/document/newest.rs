//! The newest revision of a document: shown by one at a time, looked at by many, of whom none waits for a writer.
//!
//! Several places, and the number of the one that holds. Who shows another revision lays it into a place that nobody looks at, and then
//! says its number: so a thread that is stopped in the middle of it stops nobody else.
//! Not `arc_swap`: it asks every thread that ever looked at anything whether it still looks, nine exchanges each. With 64 threads that was
//! half of what a commit costs, and more than a read does.
//!
//! Walk: [`Newest::show`] · [`Newest::get`].
//! Deliberately absent: several that show at once: the desk's lock sees to that.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Who looks has a place for as long as it takes to count itself in; more than one of them stopped there at once is rare.
const PLACES: usize = 4;

/// What was shown last.
#[derive(Debug)]
pub(crate) struct Newest<T> {
    places: [RwLock<Arc<T>>; PLACES],
    at: AtomicUsize,
}

impl<T> Newest<T> {
    pub(crate) fn new(first: T) -> Self {
        let first = Arc::new(first);
        Self { places: std::array::from_fn(|_| RwLock::new(Arc::clone(&first))), at: AtomicUsize::new(0) }
    }

    /// What was shown last.
    pub(crate) fn get(&self) -> Arc<T> {
        loop {
            let at = self.at.load(Ordering::Acquire);
            let found = self.places.get(at).and_then(|place| place.try_read().ok().map(|shown| Arc::clone(&shown)));
            // Still, or again: what was laid there and is not yet shown is not told.
            if let Some(found) = found
                && self.at.load(Ordering::Acquire) == at
            {
                return found;
            }
            spin_loop();
        }
    }

    /// Shows another one. One caller at a time.
    pub(crate) fn show(&self, next: Arc<T>) {
        let at = self.at.load(Ordering::Acquire);
        let others = || (1..PLACES).map(|step| (at + step) % PLACES).filter_map(|at| Some((at, self.places.get(at)?)));
        let free = others().find_map(|(at, place)| Some((at, place.try_write().ok()?)));
        let taken = || others().next().map(|(at, place)| (at, place.write().unwrap_or_else(PoisonError::into_inner)));
        if let Some((at, mut place)) = free.or_else(taken) {
            *place = next;
            drop(place);
            self.at.store(at, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn whoever_looks_sees_what_was_shown_last_and_never_an_older_one_again() {
        let newest = Newest::new(0_u64);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let seen = *newest.get();
                        assert!(seen >= last, "{seen} after {last}");
                        last = seen;
                    }
                });
            }
            for number in 1..=100_000 {
                newest.show(Arc::new(number));
                assert_eq!(*newest.get(), number);
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn who_is_stopped_while_looking_stops_neither_side() {
        let newest = Newest::new(0);
        let held: Vec<_> = newest.places.iter().take(2).map(|place| place.read().unwrap()).collect();
        for number in 1..10 {
            newest.show(Arc::new(number));
            assert_eq!(*newest.get(), number);
        }
        drop(held);
        let at = newest.at.load(Ordering::Relaxed);
        let writing: Vec<_> = newest
            .places
            .iter()
            .enumerate()
            .filter(|(place, _)| *place != at)
            .map(|(_, place)| place.write().unwrap())
            .collect();
        assert_eq!(*newest.get(), 9);
        drop(writing);
    }
}
