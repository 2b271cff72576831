//! So many places, and so many of them for one: a caller, or an address.
//!
//! Walk: [`Places::take`] one, [`Places::take_many`] several, as bytes are · [`Place`] gives them back when dropped.
//! Deliberately absent: a queue. Who finds no place is told so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Debug)]
pub(crate) struct Places {
    all_max: usize,
    own_max: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: BTreeMap<Arc<str>, usize>,
}

/// There is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// So many have all together.
    All(usize),
    /// So many has this one.
    Own(usize),
}

/// A place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    taken: Arc<Mutex<Taken>>,
    whose: Arc<str>,
    many: usize,
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Places {
    pub(crate) fn new(all_max: usize, own_max: usize) -> Self {
        Self { all_max, own_max, taken: Arc::default() }
    }

    pub(crate) fn take(&self, whose: &Arc<str>) -> Result<Place, Full> {
        self.take_many(whose, 1)
    }

    /// Several at once. Who has none is given more than there are, if nobody else has any: what is that large is not refused for ever.
    pub(crate) fn take_many(&self, whose: &Arc<str>, many: usize) -> Result<Place, Full> {
        let mut taken = lock(&self.taken);
        if taken.all > 0 && taken.all.saturating_add(many) > self.all_max {
            return Err(Full::All(self.all_max));
        }
        let own = taken.of.get(whose).copied().unwrap_or(0);
        if own > 0 && own.saturating_add(many) > self.own_max {
            return Err(Full::Own(self.own_max));
        }
        taken.of.insert(Arc::clone(whose), own.saturating_add(many));
        taken.all = taken.all.saturating_add(many);
        drop(taken);
        Ok(Place { taken: Arc::clone(&self.taken), whose: Arc::clone(whose), many })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        taken.all = taken.all.saturating_sub(self.many);
        match taken.of.get_mut(&self.whose) {
            Some(own) if *own > self.many => *own -= self.many,
            // Whoever has none takes no memory.
            _ => _ = taken.of.remove(&self.whose),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_his_places_and_not_those_of_others_and_gives_them_back() {
        let places = Places::new(5, 2);
        let take = |whose: &str| places.take(&whose.into());
        let mut held = vec![take("anna").unwrap(), take("anna").unwrap()];
        assert_eq!(take("anna").unwrap_err(), Full::Own(2));
        held.extend(["ben", "ben", "cleo"].map(|whose| take(whose).unwrap()));
        assert_eq!(take("dora").unwrap_err(), Full::All(5));
        held.remove(0);
        held.push(take("anna").unwrap());
        assert_eq!(take("anna").unwrap_err(), Full::All(5));
        drop(held);
        let large = places.take_many(&"anna".into(), 9).unwrap();
        assert_eq!(take("anna").unwrap_err(), Full::All(5));
        drop(large);
        let some = places.take_many(&"anna".into(), 2).unwrap();
        assert_eq!(places.take_many(&"bert".into(), 4).unwrap_err(), Full::All(5));
        drop((some, places.take_many(&"bert".into(), 3).unwrap()));
        assert!(lock(&places.taken).of.is_empty() && lock(&places.taken).all == 0);
    }
}
