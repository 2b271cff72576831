//! What all threads of a link share, under its one lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar};

use assent_frame::Frame;
use assent_wire::{Assembly, MESSAGE_BYTES_MAX, Request, WireError};
use assent_world::Moment;

use crate::{Arrived, LinkError};

/// What one connection takes, as its server said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) version: u16,
    /// Payload bytes of a frame.
    pub(crate) frame: usize,
    /// Bytes of a message.
    pub(crate) message: usize,
}

/// What a link has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests laid that are answered.
    pub requests: u64,
    /// Messages laid that are not.
    pub one_way: u64,
    /// Rounds of writing: system calls, unless the kernel's buffer was full.
    pub writes: u64,
    /// Answers that arrived.
    pub answers: u64,
}

/// A request that waits for its answer.
#[derive(Debug, Default)]
struct Slot {
    /// Where its frame ends among all bytes laid on this link.
    end: u64,
    answer: Option<Arrived>,
    /// The parts of it that have come.
    parts: Option<Assembly>,
    /// Who sleeps for it, if somebody does.
    sleeper: Option<Arc<Condvar>>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Laid and not yet taken by a writer.
    pub(crate) pending: Vec<u8>,
    pub(crate) is_writing: bool,
    pub(crate) is_reading: bool,
    pub(crate) counts: Counts,
    pub(crate) last_write: Moment,
    /// Threads that sleep for an answer.
    sleepers: usize,
    /// Bytes laid since the link began; those given to a writer; those the kernel took.
    laid: u64,
    leaving: u64,
    written: u64,
    last_id: u64,
    slots: BTreeMap<u64, Slot>,
    broken: Option<String>,
}

impl State {
    pub(crate) fn new(now: Moment) -> Self {
        Self { last_write: now, ..Self::default() }
    }

    /// Lays a request; its id.
    pub(crate) fn lay(&mut self, request: &Request<'_>, sizes: &Sizes, most: usize) -> Result<u64, LinkError> {
        self.whole()?;
        let in_flight = self.slots.len();
        if in_flight >= most {
            return Err(LinkError::Busy { in_flight });
        }
        // Id 0 marks one-way messages; 2^64 requests do not happen.
        let id = self.last_id + 1;
        let end = self.put(request, id, sizes)?;
        self.last_id = id;
        self.slots.insert(id, Slot { end, ..Slot::default() });
        self.counts.requests += 1;
        Ok(id)
    }

    pub(crate) fn one_way(&mut self, message: &Request<'_>, sizes: &Sizes) -> Result<(), LinkError> {
        self.whole()?;
        self.put(message, 0, sizes)?;
        self.counts.one_way += 1;
        Ok(())
    }

    fn put(&mut self, request: &Request<'_>, id: u64, sizes: &Sizes) -> Result<u64, WireError> {
        let (since, version) = (request.since(), sizes.version);
        if since > version {
            return Err(WireError::Since { since, version });
        }
        let before = self.pending.len();
        match request.lay(&mut self.pending, id, sizes.frame) {
            Err(WireError::TooLarge { .. }) if sizes.message > sizes.frame => {
                request.lay_long(&mut self.pending, id, sizes.frame, sizes.message)?;
            }
            laid => laid?,
        }
        self.laid += u64::try_from(self.pending.len() - before).unwrap_or(0);
        Ok(self.laid)
    }

    /// The connection still works, as far as anyone knows.
    pub(crate) fn whole(&self) -> Result<(), LinkError> {
        match &self.broken {
            Some(message) => Err(LinkError::Unavailable { message: message.clone() }),
            None => Ok(()),
        }
    }

    /// What is pending, for a writer. Until it says how far it came, all of it may have left.
    pub(crate) fn leave(&mut self, batch: &mut Vec<u8>) {
        batch.clear();
        std::mem::swap(batch, &mut self.pending);
        self.leaving = self.laid;
    }

    pub(crate) fn wrote(&mut self, bytes: usize, now: Moment) {
        self.written += u64::try_from(bytes).unwrap_or(0);
        self.leaving = self.written;
        self.counts.writes += 1;
        self.last_write = now;
    }

    /// Hands an answer to its request; who is to be woken, once the lock is free. One that nobody waits for any more came
    /// too late.
    ///
    /// # Errors
    /// [`WireError::Part`]: what follows cannot be understood.
    pub(crate) fn arrived(&mut self, frame: &Frame<'_>) -> Result<Option<Arc<Condvar>>, WireError> {
        let Some(slot) = self.slots.get_mut(&frame.mark) else { return Ok(None) };
        let answer = if Assembly::is_part(frame) {
            let gathered = match slot.parts.take() {
                None if Assembly::announced(frame) > MESSAGE_BYTES_MAX => {
                    return Err(WireError::TooLarge { bytes: Assembly::announced(frame), limit: MESSAGE_BYTES_MAX });
                }
                None => Assembly::begin(frame, true)?,
                Some(mut begun) => {
                    begun.add(frame)?;
                    begun
                }
            };
            if !gathered.is_whole() {
                slot.parts = Some(gathered);
                return Ok(None);
            }
            let (kind, payload) = gathered.into_parts();
            Arrived { kind, payload }
        } else {
            Arrived::new(frame)
        };
        slot.answer = Some(answer);
        self.counts.answers += 1;
        Ok(slot.sleeper.clone())
    }

    /// The answer of this request, or that there will be none.
    pub(crate) fn take(&mut self, id: u64) -> Option<Result<Arrived, LinkError>> {
        let Some(slot) = self.slots.get_mut(&id) else {
            return Some(Err(LinkError::InDoubt { message: "this answer was taken before".to_owned() }));
        };
        let taken = match (slot.answer.take(), &self.broken) {
            (Some(arrived), _) => Ok(arrived),
            // A frame that did not leave whole is none to the server: surely nothing was done.
            (None, Some(message)) if slot.end > self.leaving => {
                Err(LinkError::Unavailable { message: message.clone() })
            }
            (None, Some(message)) => Err(LinkError::InDoubt { message: message.clone() }),
            (None, None) => return None,
        };
        self.slots.remove(&id);
        Some(taken)
    }

    /// Whether [`State::take`] would tell something.
    pub(crate) fn is_settled(&self, id: u64) -> bool {
        self.broken.is_some() || self.slots.get(&id).is_none_or(|slot| slot.answer.is_some())
    }

    /// Nobody waits for this answer any more.
    pub(crate) fn give_up(&mut self, id: u64) {
        self.slots.remove(&id);
    }

    /// What the thread of this request sleeps on; it says [`State::woke`] afterwards.
    pub(crate) fn sleeps(&mut self, id: u64) -> Arc<Condvar> {
        self.sleepers += 1;
        let slot = self.slots.entry(id).or_default();
        Arc::clone(slot.sleeper.get_or_insert_default())
    }

    pub(crate) fn woke(&mut self, id: u64) {
        self.sleepers = self.sleepers.saturating_sub(1);
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.sleeper = None;
        }
    }

    /// If nobody reads, somebody who sleeps for an answer must.
    pub(crate) fn promote(&self) {
        if self.is_reading || self.sleepers == 0 {
            return;
        }
        let waits = |slot: &&Slot| slot.answer.is_none() && slot.sleeper.is_some();
        if let Some(sleeper) = self.slots.values().find(waits).and_then(|slot| slot.sleeper.as_ref()) {
            sleeper.notify_one();
        }
    }

    /// The connection is over. The first reason stays.
    pub(crate) fn break_off(&mut self, why: String) {
        self.broken.get_or_insert(why);
        self.pending.clear();
        self.slots.values().filter_map(|slot| slot.sleeper.as_ref()).for_each(|sleeper| sleeper.notify_one());
    }
}
