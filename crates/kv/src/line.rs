//! Who waits for keys that prepared branches hold, in the order in which they came.
//!
//! Walk: who meets a held key stands at it ([`Line::stand`]), as one of those who wait for that key · a branch that is told its outcome
//! lets go, and wakes those who stand at its keys ([`Line::freed`]) · each tries again, and where several stand at one key, the first
//! of them goes · a [`Place`] that is dropped is left, and whoever stood behind it tries again.
//! Nobody who would hold a key, and nobody who stands in the line, overtakes who stands at that key; a plain write that has never met a
//! held key holds up nobody and stands nowhere. Who needs several keys stands at one after the other and keeps his age.
//! No wake-up is lost: standing and letting go happen under the desk's lock, who leaves wakes whoever stands there by then, and who waits has
//! looked at the gate before he tried.
//! Deliberately absent: time. Who waits knows for how long.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assent_world::Gate;

use crate::KvError;
use crate::keyed::{Key, Keyed};
use crate::record::Effect;

/// So many may wait at a time; beyond, a writer who would is told to come back.
pub const WAITING_MAX: u32 = 1024;

#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: Mutex<Waiting>,
    many: AtomicUsize,
    gate: Gate,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// Where each of them stands.
    at: BTreeMap<u64, (u32, Key)>,
    /// The same by key.
    keys: Keyed<BTreeSet<u64>>,
}

impl Line {
    /// What changes whenever somebody who waits should try again.
    pub(crate) fn seen(&self) -> u32 {
        self.gate.value()
    }

    /// Sleeps until that has changed, or for so long.
    pub(crate) fn wait(&self, seen: u32, at_most: Duration) {
        self.gate.wait(seen, Some(at_most));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.many.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.many.load(Ordering::Relaxed)
    }

    /// Whether somebody who came before stands at this key; none is behind all.
    fn is_behind(&self, id: Option<u64>, keyspace: u32, key: &[u8]) -> bool {
        self.waiting().is_behind(id, keyspace, key)
    }

    /// Stands at this key, and no more at another one; with the age that he has, if he stood before.
    fn stand(&self, id: Option<u64>, keyspace: u32, key: &[u8]) -> Result<u64, KvError> {
        self.stand_in(self.waiting(), id, keyspace, key)
    }

    /// The same if somebody who came before stands there. In one step: the last of those leaves without the desk's lock, and would wake
    /// nobody who does not stand there yet.
    fn stand_behind(&self, id: Option<u64>, keyspace: u32, key: &[u8]) -> Result<Option<u64>, KvError> {
        let waiting = self.waiting();
        if !waiting.is_behind(id, keyspace, key) {
            return Ok(None);
        }
        self.stand_in(waiting, id, keyspace, key).map(Some)
    }

    fn stand_in(
        &self,
        mut waiting: MutexGuard<'_, Waiting>,
        id: Option<u64>,
        keyspace: u32,
        key: &[u8],
    ) -> Result<u64, KvError> {
        let limit = WAITING_MAX;
        if id.is_none() && u32::try_from(waiting.at.len()).map_or(true, |many| many >= limit) {
            return Err(KvError::Busy { what: "writers that wait for keys of prepared branches", limit: limit.into() });
        }
        let id = id.unwrap_or(waiting.next);
        waiting.next = waiting.next.max(id + 1);
        if waiting.at.get(&id).is_some_and(|(space, at)| *space == keyspace && **at == *key) {
            return Ok(id);
        }
        let left = waiting.remove(id);
        let key: Key = key.into();
        let mut ids = waiting.keys.remove(keyspace, &key).unwrap_or_default();
        ids.insert(id);
        waiting.keys.insert(keyspace, Key::clone(&key), ids);
        waiting.at.insert(id, (keyspace, key));
        self.many.store(waiting.at.len(), Ordering::Relaxed);
        drop(waiting);
        self.wake(left);
        Ok(id)
    }

    fn leave(&self, id: u64) {
        let mut waiting = self.waiting();
        let left = waiting.remove(id);
        self.many.store(waiting.at.len(), Ordering::Relaxed);
        drop(waiting);
        self.wake(left);
    }

    /// A branch holds these keys no more.
    pub(crate) fn freed(&self, effects: &[Effect]) {
        if self.is_empty() {
            return;
        }
        let is_awaited = {
            let waiting = self.waiting();
            effects.iter().any(|effect| waiting.keys.get(effect.keyspace, &effect.key).is_some())
        };
        self.wake(is_awaited);
    }

    fn wake(&self, is_for_somebody: bool) {
        if is_for_somebody {
            self.gate.bump();
            self.gate.wake_all();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A thread that died in the lock said so; what is there is whole between operations.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn is_behind(&self, id: Option<u64>, keyspace: u32, key: &[u8]) -> bool {
        let first = self.keys.get(keyspace, key).and_then(|ids| ids.first());
        first.is_some_and(|first| id.is_none_or(|own| *first < own))
    }

    /// Whether somebody else stands where he stood.
    fn remove(&mut self, id: u64) -> bool {
        let Some((keyspace, key)) = self.at.remove(&id) else { return false };
        let Some(mut ids) = self.keys.remove(keyspace, &key) else { return false };
        ids.remove(&id);
        let others = !ids.is_empty();
        if others {
            self.keys.insert(keyspace, key, ids);
        }
        others
    }
}

/// Whether, and where, a writer waits for keys that prepared branches hold. Dropped, it is left.
#[derive(Debug)]
pub struct Place {
    /// None: who has it does not wait.
    line: Option<Arc<Line>>,
    id: Option<u64>,
}

impl Place {
    /// Of somebody who does not wait: `Conflict` at once.
    #[must_use]
    pub const fn nowhere() -> Self {
        Self { line: None, id: None }
    }

    pub(crate) const fn new(line: Arc<Line>) -> Self {
        Self { line: Some(line), id: None }
    }

    /// Whether this is what he waits for: then nothing has happened, and he tries again once [`crate::Kv::freed`] has changed.
    #[must_use]
    pub const fn waits_for(&self, error: &KvError) -> bool {
        self.id.is_some() && matches!(error, KvError::Held { .. } | KvError::Awaited { .. })
    }

    /// He has waited for long enough: the next try is the last one.
    pub fn give_up(&mut self) {
        self.leave();
        self.line = None;
    }

    /// Whether he may wait at all.
    pub(crate) const fn waits(&self) -> bool {
        self.line.is_some()
    }

    pub(crate) const fn id(&self) -> Option<u64> {
        self.id
    }

    pub(crate) fn stand(&mut self, keyspace: u32, key: &[u8]) -> Result<(), KvError> {
        if let Some(line) = &self.line {
            self.id = Some(line.stand(self.id, keyspace, key)?);
        }
        Ok(())
    }

    /// Whether somebody who came before stands at this key of the line; who waits stands behind him then.
    pub(crate) fn stand_behind(&mut self, line: &Line, keyspace: u32, key: &[u8]) -> Result<bool, KvError> {
        if self.line.is_none() {
            return Ok(line.is_behind(self.id, keyspace, key));
        }
        let stands = line.stand_behind(self.id, keyspace, key)?;
        self.id = stands.or(self.id);
        Ok(stands.is_some())
    }

    fn leave(&mut self) {
        if let (Some(line), Some(id)) = (&self.line, self.id.take()) {
            line.leave(id);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: &Arc<Line>, key: &[u8]) -> Place {
        let mut place = Place::new(Arc::clone(line));
        place.stand(0, key).unwrap();
        place
    }

    #[test]
    fn at_each_key_the_first_who_came_goes_first_and_who_leaves_wakes_who_stood_behind_him() {
        let line = Arc::new(Line::default());
        let mut first = place(&line, b"a");
        let second = place(&line, b"a");
        assert!(!line.is_behind(first.id(), 0, b"a") && line.is_behind(second.id(), 0, b"a"));
        assert!(line.is_behind(None, 0, b"a") && !line.is_behind(None, 1, b"a") && !line.is_behind(None, 0, b"b"));
        // Older than who stands there already, though he comes later.
        let third = place(&line, b"b");
        let seen = line.seen();
        first.stand(0, b"b").unwrap();
        assert_ne!(line.seen(), seen, "the second is the first now");
        assert!(!line.is_behind(second.id(), 0, b"a") && line.is_behind(third.id(), 0, b"b"));
        let seen = line.seen();
        first.stand(0, b"b").unwrap();
        drop(second);
        assert_eq!(line.seen(), seen, "nobody stood behind him");
        first.give_up();
        assert_ne!(line.seen(), seen);
        assert!(!line.is_behind(third.id(), 0, b"b"));
        drop(third);
        assert!(line.is_empty() && line.waiting().keys.is_empty());
    }

    #[test]
    fn whoever_comes_while_the_last_before_him_leaves_is_woken_or_goes_on() {
        // A vote saw somebody before it, who then left, and stood behind him: alone, woken by nobody, until its patience was over.
        const ROUNDS: u32 = 50_000;
        let line = Arc::new(Line::default());
        let (leaves, leaver) = std::sync::mpsc::channel::<Place>();
        let left = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for place in leaver {
                    drop(place);
                    left.fetch_add(1, Ordering::Release);
                }
            });
            for round in 1..=usize::try_from(ROUNDS).unwrap() {
                leaves.send(place(&line, b"k")).unwrap();
                loop {
                    let (seen, mut comes) = (line.seen(), Place::new(Arc::clone(&line)));
                    if !comes.stand_behind(&line, 0, b"k").unwrap() {
                        break;
                    }
                    if line.len() == 1 {
                        while left.load(Ordering::Acquire) < round {
                            std::thread::yield_now();
                        }
                        assert_ne!(line.seen(), seen, "he stands alone, and nobody has woken him");
                    }
                }
            }
            drop(leaves);
        });
    }

    #[test]
    fn so_many_may_wait_and_one_more_is_told_to_come_back() {
        let line = Arc::new(Line::default());
        let mut places: Vec<_> = (0..WAITING_MAX).map(|_| place(&line, b"k")).collect();
        let refused = Place::new(Arc::clone(&line)).stand(0, b"k").unwrap_err();
        assert!(matches!(refused, KvError::Busy { limit, .. } if limit == u64::from(WAITING_MAX)), "{refused}");
        // Who stands already moves on.
        places[7].stand(0, b"l").unwrap();
        places.pop();
        place(&line, b"k");
    }
}
