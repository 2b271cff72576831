//! What is kept in memory of what the journal has, within bytes.
//!
//! Walk: [`Kept::get`], or [`Kept::at_hand`] for who must not wait · [`Kept::keep`], unless somebody stays in that part of it: whoever waited
//! there would wait for a reader that has lost its core, for a whole turn of all the others, and they behind it. What finds no place there
//! stands aside for the next who asks, most likely the next commit; what has no place there either is read again.
//! Deliberately absent: what a missing page is made of (`store.rs`).

use std::collections::VecDeque;
use std::hash::Hash;
use std::hint::spin_loop;
use std::sync::{Arc, Mutex, PoisonError};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::Told;
use crate::entry::Root;
use crate::page::Page;
use crate::path::PathIds;
use crate::place::Place;

/// What a kept page or revision costs beside its bytes.
const ITEM_BYTES: usize = 96;
/// Parts of it, each behind its own lock.
const PARTS: usize = 16;
/// Who is in a part is out of it in a moment, or has lost its core and stays.
const TRIES: u32 = 64;
/// So many stand aside at most: what a few commits leave. Who looks for one looks at all.
const ASIDE_MAX: usize = 32;
/// And this part of all bytes.
const ASIDE_PART: u64 = 16;

/// Document of a page, and its newest fragment. An entry may have those of several documents.
pub(crate) type PageKey = (u64, Place);
/// Document, epoch and number of a revision.
pub(crate) type RootKey = (u64, u32, u32);

/// Its bytes in memory, about.
pub(crate) trait Weighed {
    fn bytes(&self) -> usize;
}

impl Weighed for Page {
    fn bytes(&self) -> usize {
        self.held_bytes() + ITEM_BYTES
    }
}

impl Weighed for Root {
    fn bytes(&self) -> usize {
        let texts: usize = self.meta.fields.iter().map(|(name, value)| name.len() + value.len() + 48).sum();
        self.meta.author.len() + self.meta.message.len() + texts + self.changes.len() * 16 + 512
    }
}

impl Weighed for [Told] {
    fn bytes(&self) -> usize {
        let texts: usize = self.iter().map(|told| told.author.capacity() + told.message.capacity()).sum();
        size_of_val(self) + texts + ITEM_BYTES
    }
}

#[derive(Clone, Debug)]
struct Bytes;

impl<K, V: Weighed + ?Sized> Weighter<K, Arc<V>> for Bytes {
    fn weight(&self, _: &K, value: &Arc<V>) -> u64 {
        weight(value)
    }
}

fn weight<V: Weighed + ?Sized>(value: &Arc<V>) -> u64 {
    u64::try_from(value.bytes()).unwrap_or(u64::MAX)
}

/// Values by key; those that nobody looks at go when there is no room.
pub(crate) struct Kept<K, V: Weighed + ?Sized> {
    cache: Cache<K, Arc<V>, Bytes, PathIds>,
    aside: Mutex<Aside<K, V>>,
    aside_bytes_max: u64,
}

/// What found no place, the newest last, with its bytes as they were then: a page that is read again has more.
struct Aside<K, V: ?Sized> {
    items: VecDeque<(K, Arc<V>, u64)>,
    bytes: u64,
}

impl<K: Eq + Hash, V: Weighed + ?Sized> Kept<K, V> {
    /// Of so many bytes in all, and about so many each.
    pub(crate) fn new(bytes: u64, about: u64) -> Self {
        // Room for so many is taken at once; it grows.
        let items = usize::try_from((bytes / about).clamp(16, 1 << 14)).unwrap_or(usize::MAX);
        let aside_bytes_max = bytes / ASIDE_PART;
        let bytes = bytes - aside_bytes_max;
        let options =
            OptionsBuilder::new().estimated_items_capacity(items).weight_capacity(bytes).shards(PARTS).build();
        let cache = match options {
            Ok(options) => Cache::with_options(options, Bytes, PathIds::default(), DefaultLifecycle::default()),
            Err(_) => Cache::with(items, bytes, Bytes, PathIds::default(), DefaultLifecycle::default()),
        };
        Self { cache, aside: Mutex::new(Aside { items: VecDeque::new(), bytes: 0 }), aside_bytes_max }
    }

    pub(crate) fn get(&self, key: &K) -> Option<Arc<V>> {
        self.cache.get(key).or_else(|| self.aside(key))
    }

    /// The same, for who must not wait: nothing also where somebody stays in that part.
    pub(crate) fn at_hand(&self, key: &K) -> Option<Arc<V>> {
        let looked = (0..TRIES).find_map(|_| self.cache.try_get(key).map_err(|_| spin_loop()).ok());
        looked.flatten().or_else(|| self.aside(key))
    }

    /// Keeps it; aside, if somebody stays in that part. Never sleeps.
    pub(crate) fn keep(&self, key: K, value: Arc<V>) {
        let mut item = (key, value);
        for _ in 0..TRIES {
            match self.cache.try_insert(item.0, item.1) {
                Ok(()) => return,
                Err(back) => item = back,
            }
            spin_loop();
        }
        self.put_aside(item);
    }

    fn put_aside(&self, (key, value): (K, Arc<V>)) {
        let bytes = weight(&value);
        if bytes > self.aside_bytes_max {
            return;
        }
        // Nobody waits for that either.
        let Ok(mut aside) = self.aside.try_lock() else { return };
        aside.bytes += bytes;
        aside.items.push_back((key, value, bytes));
        while aside.items.len() > ASIDE_MAX || aside.bytes > self.aside_bytes_max {
            let Some((_, _, bytes)) = aside.items.pop_front() else { return };
            aside.bytes -= bytes;
        }
    }

    fn aside(&self, key: &K) -> Option<Arc<V>> {
        let aside = self.aside.try_lock().ok()?;
        aside.items.iter().rev().find(|(other, ..)| other == key).map(|(_, value, _)| Arc::clone(value))
    }

    pub(crate) fn len(&self) -> usize {
        self.cache.len() + self.aside.lock().unwrap_or_else(PoisonError::into_inner).items.len()
    }

    /// Bytes of all that is kept.
    pub(crate) fn weight(&self) -> u64 {
        self.cache.weight() + self.aside.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, mpsc};
    use std::time::Duration;

    use super::*;

    impl Weighed for u64 {
        fn bytes(&self) -> usize {
            8
        }
    }

    /// A key that is met in the middle of a look-up, where the part's lock is held.
    #[derive(Clone)]
    struct Slow<'b>(u64, Option<&'b [Barrier; 2]>);

    impl Hash for Slow<'_> {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    impl PartialEq for Slow<'_> {
        fn eq(&self, other: &Self) -> bool {
            if let Some([reached, released]) = self.1.or(other.1) {
                reached.wait();
                released.wait();
            }
            self.0 == other.0
        }
    }

    impl Eq for Slow<'_> {}

    #[test]
    fn whoever_keeps_waits_for_no_reader_that_was_stopped_in_there() {
        let barriers = [Barrier::new(2), Barrier::new(2)];
        let kept: Kept<Slow<'_>, u64> = Kept::new(1 << 20, 64);
        kept.keep(Slow(7, None), Arc::new(1));
        let (says, hears) = mpsc::channel();
        let went_on = std::thread::scope(|scope| {
            let reader = scope.spawn(|| kept.get(&Slow(7, Some(&barriers))));
            let [reached, released] = &barriers;
            reached.wait();
            // The same part: the reader is in it, and no turn of it is waited for.
            scope.spawn(|| {
                kept.keep(Slow(7, None), Arc::new(2));
                says.send(kept.at_hand(&Slow(7, None)).as_deref().copied())
            });
            let went_on = hears.recv_timeout(Duration::from_secs(30));
            released.wait();
            assert_eq!(reader.join().unwrap().as_deref(), Some(&1));
            went_on
        });
        assert_eq!(went_on, Ok(Some(1)), "it was not kept, and one more reader is in nobody's way");
        kept.keep(Slow(7, None), Arc::new(3));
        assert_eq!(kept.get(&Slow(7, None)).as_deref(), Some(&3));
        assert_eq!((kept.len(), kept.weight()), (2, 16), "and the one that stood aside");
    }

    #[test]
    fn what_finds_no_place_because_of_a_reader_is_there_for_the_next_who_asks_within_bytes() {
        // A commit beside readers kept nothing, and the next one read from the disk what it had just written.
        let barriers = [Barrier::new(2), Barrier::new(2)];
        let kept: Kept<Slow<'_>, u64> = Kept::new(1 << 20, 64);
        kept.keep(Slow(7, None), Arc::new(7));
        let found = |number: u64| kept.at_hand(&Slow(number, None)).as_deref() == Some(&number);
        let (mut at_once, mut later, mut aside) = (0, 0, 0);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| kept.get(&Slow(7, Some(&barriers))));
            let [reached, released] = &barriers;
            reached.wait();
            for number in 100..20_000 {
                kept.keep(Slow(number, None), Arc::new(number));
                at_once += u64::from(found(number));
            }
            later = (100..20_000).filter(|number| found(*number)).count();
            aside = kept.aside.lock().unwrap().items.len();
            released.wait();
            assert_eq!(reader.join().unwrap().as_deref(), Some(&7));
        });
        assert_eq!(at_once, 19_900, "by the commit behind it");
        // One part of sixteen was closed.
        assert!((18_000..19_000).contains(&later), "{later} of 19,900");
        assert_eq!(aside, ASIDE_MAX);
        let small: Kept<u64, u64> = Kept::new(ASIDE_PART * 24, 8);
        (0..10).for_each(|number| small.put_aside((number, Arc::new(number))));
        assert_eq!(
            (small.weight(), small.get(&6), small.get(&7)),
            (24, None, Some(Arc::new(7))),
            "three of eight bytes"
        );
    }
}
