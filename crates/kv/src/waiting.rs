//! Writes and votes that wait for keys that prepared branches hold, for as long as they are told, and then say `Conflict`.
//!
//! ```text
//!   patiently   try -> held -> stand in the line -> sleep at its gate -> try again ... -> done, or once more without waiting
//!   *_begin_at  one try of somebody who has a place, or none: for whoever must not sleep, and tries again once `freed` has changed
//! ```
//! Deliberately absent: a queue of writes. Nothing is laid before it may be done, and who waits does so on his own thread.

use std::sync::Arc;
use std::time::Duration;

use assent_ids::{Lsn, Xid};

use crate::line::Place;
use crate::{Condition, Durability, Kv, KvError, Op, Pending, Voted};

impl Kv {
    /// Does this, again and again while a prepared branch holds a key that it needs, for at most so long: in the order of those who
    /// wait, and each time such keys have become free. Then, and at once if the time is zero, once more without waiting: `Conflict`
    /// names the key.
    ///
    /// # Errors
    /// As `act` says; `Busy` if [`crate::WAITING_MAX`] wait already.
    pub fn patiently<T>(
        &self,
        at_most: Duration,
        mut act: impl FnMut(&mut Place) -> Result<T, KvError>,
    ) -> Result<T, KvError> {
        let clock = self.shared.time.clock();
        let until = clock.now().after(at_most);
        let mut place = if at_most.is_zero() { Place::nowhere() } else { self.place() };
        loop {
            let seen = self.freed();
            match act(&mut place) {
                Err(error) if place.waits_for(&error) => {}
                done => return done,
            }
            match until.since(clock.now()) {
                Duration::ZERO => place.give_up(),
                left => self.wait_freed(seen, left),
            }
        }
    }

    /// As [`Kv::batch`]; waits at most so long for keys that prepared branches hold.
    ///
    /// # Errors
    /// As [`Kv::batch`] and [`Kv::patiently`].
    pub fn batch_within(&self, at_most: Duration, ops: &[Op<'_>], durability: Durability) -> Result<Lsn, KvError> {
        self.pause(ops);
        let pending = self.patiently(at_most, |place| self.batch_begin_at(place, ops, durability))?;
        self.wait(pending)?;
        Ok(pending.lsn().unwrap_or_default())
    }

    /// As [`Kv::batch_if`]; waits at most so long for keys that prepared branches hold.
    ///
    /// # Errors
    /// As [`Kv::batch_if`] and [`Kv::patiently`].
    pub fn batch_if_within(
        &self,
        at_most: Duration,
        conditions: &[Condition<'_>],
        ops: &[Op<'_>],
        durability: Durability,
    ) -> Result<Lsn, KvError> {
        self.pause(ops);
        let judged = self.patiently(at_most, |place| self.batch_if_begin_at(place, conditions, ops, durability))?;
        self.wait_judged(judged)
    }

    /// As [`Kv::prepare_begin`]; waits at most so long for keys that prepared branches hold.
    ///
    /// # Errors
    /// As [`Kv::prepare_begin`] and [`Kv::patiently`].
    pub fn prepare_within(&self, at_most: Duration, xid: &Xid) -> Result<Voted, KvError> {
        self.patiently(at_most, |place| self.prepare_begin_at(place, xid))
    }

    /// As [`Kv::commit_one_phase_begin`]; waits at most so long for keys that prepared branches hold.
    ///
    /// # Errors
    /// As [`Kv::commit_one_phase_begin`] and [`Kv::patiently`].
    pub fn commit_one_phase_within(&self, at_most: Duration, xid: &Xid) -> Result<Pending, KvError> {
        self.patiently(at_most, |place| self.commit_one_phase_begin_at(place, xid))
    }

    /// As [`Kv::batch_begin`], of somebody who may wait for what prepared branches hold.
    ///
    /// # Errors
    /// As [`Kv::batch_begin`]. Where it waits ([`Place::waits_for`]) it is tried again once [`Kv::freed`] has changed.
    pub fn batch_begin_at(
        &self,
        place: &mut Place,
        ops: &[Op<'_>],
        durability: Durability,
    ) -> Result<Pending, KvError> {
        self.check_batch(ops)?;
        self.append_batch(ops, durability, place)
    }

    /// A place for somebody who may wait for what prepared branches hold. It takes room in the line once he does.
    #[must_use]
    pub fn place(&self) -> Place {
        Place::new(Arc::clone(&self.line))
    }

    /// Changes whenever somebody who waits for a key should try again. To be looked at before the try.
    #[must_use]
    pub fn freed(&self) -> u32 {
        self.line.seen()
    }

    /// Sleeps until that is another number, but not for longer than this. May wake for nothing.
    pub fn wait_freed(&self, seen: u32, at_most: Duration) {
        self.line.wait(seen, at_most);
    }
}
