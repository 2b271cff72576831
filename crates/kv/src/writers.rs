//! What writers do at the desk: append, and show readers what is safe, in log order, whoever appended it.
//!
//! Walk: [`Kv::append_batch`] at the desk, or as an errand where that is taken · [`Kv::wait`] waits for the log and has shown what ends
//! there · [`Kv::serve`] runs the errands of others · [`Kv::writer`] and [`Kv::finisher`] are the desk of those who come to it themselves:
//! branches, conditions, who waits for a key.

use assent_journal::Ticket;
use assent_runs::RunsError;

use crate::config::ROWS_BYTES_MAX;
use crate::desk::{Desk, Staged, Turn};
use crate::errand::{Answer, Asked, AtDesk, Carried, PANICKED};
use crate::line::Place;
use crate::op::{Durability, Op};
use crate::record::{Effects, KIND_BATCH, Laid};
use crate::{Kv, KvError, Pending};

impl Kv {
    /// Appends a batch that the door has checked.
    pub(crate) fn append_batch(
        &self,
        ops: &[Op<'_>],
        durability: Durability,
        place: &mut Place,
    ) -> Result<Pending, KvError> {
        self.refuse_read_only()?;
        self.make_room()?;
        let laid = Laid::batch(ops, durability, self.shared.time.now_ms());
        let longs = self.shared.values.longs.as_ref();
        let renewals = longs.map(|longs| longs.renewals(ops, &laid.effects)).unwrap_or_default();
        let ticket = match self.counter.try_lock() {
            Some(desk) => self.append_at(desk, (ops, laid, durability), place)?,
            None => self.append_by_others((ops, laid, durability), place)?,
        };
        longs.into_iter().for_each(|longs| longs.renew(ops, &renewals, ticket.lsn));
        Ok(Pending { ticket: Some(ticket), durability })
    }

    /// The desk is taken: whoever has it appends this, too.
    fn append_by_others(
        &self,
        (ops, laid, durability): (&[Op<'_>], Laid, Durability),
        place: &mut Place,
    ) -> Result<Ticket, KvError> {
        // Who waits for a key has a place among others and comes himself, as does who brings much.
        let Some(carried) = Carried::of(ops).filter(|_| place.id().is_none()) else {
            return self.append_at(self.desk(), (ops, laid, durability), place);
        };
        match self.leave(Asked::Append { batch: Box::new((carried, laid)), durability }) {
            // Nothing was appended: who may wait for the key comes himself, and stands at it.
            Err(KvError::Held { .. }) if place.waits() => {
                let laid = Laid::batch(ops, durability, self.shared.time.now_ms());
                self.append_at(self.desk(), (ops, laid, durability), place)
            }
            // What was appended has a place.
            answer => answer?.ok_or_else(|| KvError::Unpublished(RunsError::Closed { reason: PANICKED.to_owned() })),
        }
    }

    fn append_at(
        &self,
        mut desk: AtDesk<'_>,
        batch: (&[Op<'_>], Laid, Durability),
        place: &mut Place,
    ) -> Result<Ticket, KvError> {
        self.serve(&mut desk);
        let ticket = self.lay(&mut desk, batch, place)?;
        self.serve(&mut desk);
        Ok(ticket)
    }

    fn lay(
        &self,
        desk: &mut Desk,
        (ops, laid, durability): (&[Op<'_>], Laid, Durability),
        place: &mut Place,
    ) -> Result<Ticket, KvError> {
        self.admit_entry(desk)?;
        desk.refuse_dropped(ops.iter().copied())?;
        desk.refuse_held(ops.iter().copied(), place, false)?;
        let leaves = self.leaves(desk, ops, 0);
        let ticket = self.appended(self.shared.log.append_leaving(KIND_BATCH, &laid.parts(ops), leaves))?;
        desk.stage(Staged { ticket, durability, effects: laid.placed(ticket.lsn), turn: Turn::Plain });
        Ok(ticket)
    }

    /// Waits until it is as durable as it must be and visible to readers. May be called in any order, from any thread.
    ///
    /// # Errors
    /// [`KvError::InDoubt`] if the log failed: whether it is durable is known once the store is reopened.
    pub fn wait(&self, pending: Pending) -> Result<(), KvError> {
        let Some(ticket) = pending.ticket else { return Ok(()) };
        match pending.durability {
            Durability::Durable => self.shared.log.wait_durable(ticket),
            Durability::Buffered => self.shared.log.wait(ticket),
        }
        .map_err(KvError::InDoubt)?;
        if self.shared.ledger.published() >= ticket.end {
            // Who waited for a later one, or came first, has published this one too.
            return Ok(());
        }
        while let Some(before) = self.show(ticket, pending.durability)? {
            // Log order: what must be durable stands before this and is not yet.
            self.shared.log.wait_durable(before).map_err(KvError::InDoubt)?;
        }
        Ok(())
    }

    /// Has readers see what ends there, or says what it stands behind.
    fn show(&self, ticket: Ticket, durability: Durability) -> Answer {
        let Some(mut desk) = self.counter.try_lock() else { return self.leave(Asked::Show { ticket, durability }) };
        let shown = self.show_at(&mut desk, ticket, durability);
        self.serve(&mut desk);
        shown
    }

    fn show_at(&self, desk: &mut Desk, ticket: Ticket, durability: Durability) -> Answer {
        // Sync before publish: a reader must not see what a crash could take back.
        if durability == Durability::Buffered {
            desk.acknowledge(ticket.end);
        }
        self.publish(desk)?;
        Ok(desk.blocker(ticket))
    }

    /// Publishes what is safe, in log order.
    pub(crate) fn publish(&self, desk: &mut Desk) -> Result<(), KvError> {
        desk.refuse_broken().map_err(KvError::Unpublished)?;
        let durable = self.shared.log.durable();
        while let Some(Staged { ticket, effects, turn, .. }) = desk.ready(durable) {
            // A vote moves the place that is visible, but no key.
            let effects = if matches!(turn, Turn::Prepared(_)) { Effects::new() } else { effects };
            // Everything refusable was refused before it was appended.
            self.shared.ledger.apply(ticket.lsn, ticket.end, &effects).map_err(|error| desk.broken(error))?;
        }
        Ok(())
    }

    fn leave(&self, asked: Asked) -> Answer {
        self.counter.leave(asked, |desk| self.serve(desk))
    }

    /// Runs what others have left.
    fn serve(&self, desk: &mut AtDesk<'_>) {
        for errand in desk.errands() {
            let Some(asked) = errand.asked() else { continue };
            errand.done(match asked {
                Asked::Append { batch, durability } => {
                    let (carried, laid) = *batch;
                    self.lay(desk, (&[carried.op()], laid, durability), &mut Place::nowhere()).map(Some)
                }
                Asked::Show { ticket, durability } => self.show_at(desk, ticket, durability),
            });
        }
    }

    pub(crate) fn desk(&self) -> AtDesk<'_> {
        self.counter.lock()
    }

    /// The desk of somebody who will append one entry.
    pub(crate) fn writer(&self) -> Result<AtDesk<'_>, KvError> {
        self.refuse_read_only()?;
        self.make_room()?;
        let mut desk = self.desk();
        self.serve(&mut desk);
        self.admit_entry(&mut desk)?;
        Ok(desk)
    }

    /// Whether the desk takes an entry.
    fn admit_entry(&self, desk: &mut Desk) -> Result<(), KvError> {
        self.refuse_closed(desk)?;
        // Many may have found room at once: what each of them can add is counted for this one only.
        if self.shared.ledger.memory_bytes() >= self.config.memory_bytes_max() + ROWS_BYTES_MAX {
            let limit = self.config.memory_bytes_max();
            return Err(KvError::Busy { what: "bytes of the ledger in memory", limit });
        }
        if desk.has_room(&self.config).is_err() {
            self.publish(desk)?;
            desk.has_room(&self.config)?;
        }
        Ok(())
    }

    /// The desk of somebody who will append the outcome of a prepared branch: decided elsewhere, so it is not refused for want of
    /// memory, nor does it wait for any. Its rows have room of their own ([`Desk::has_room_to_prepare`]).
    pub(crate) fn finisher(&self) -> Result<AtDesk<'_>, KvError> {
        self.refuse_read_only()?;
        let mut desk = self.desk();
        self.serve(&mut desk);
        self.refuse_closed(&desk)?;
        Ok(desk)
    }

    fn refuse_closed(&self, desk: &Desk) -> Result<(), KvError> {
        desk.refuse_broken()?;
        if self.shared.ledger.is_closed() {
            let reason = "an earlier write of the ledger failed".to_owned();
            return Err(KvError::Ledger(RunsError::Closed { reason }));
        }
        Ok(())
    }
}
