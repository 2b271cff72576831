//! Requests that wait for keys that prepared branches hold, while the desk goes on.
//!
//! Walk: [`Visit::waits_for`] is the place of a write or a vote of a patient connection · it meets a held key: [`Visit::defer`] keeps
//! its bytes · the desk steps those again that came in, in their order, once keys have become free, or their time is over; then for the
//! last time.
//! Deliberately absent: an order among requests of one connection. Whoever needs one waits for the answer.

use std::sync::Arc;
use std::time::Duration;

use assent_frame::Frame;
use assent_kv::{Kv, Place};
use assent_world::Moment;

use crate::long::Share;
use crate::role::{Role, Visit};
use crate::shared::Timed;

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) token: usize,
    pub(crate) timed: Option<Timed>,
    pub(crate) waits: Waits,
    pub(crate) kept: Arc<Kept>,
    /// The room of a long request.
    pub(crate) long: Option<Share>,
}

/// Where somebody waits, and until when.
#[derive(Debug)]
pub(crate) struct Waits {
    pub(crate) place: Place,
    pub(crate) until: Moment,
    /// His request, once he has waited.
    pub(crate) kept: Option<Arc<Kept>>,
}

/// A request as it came, and the room of its bytes.
#[derive(Debug)]
pub(crate) struct Kept {
    mark: u64,
    kind: u16,
    payload: Vec<u8>,
    _share: Share,
}

impl Waits {
    pub(crate) const fn never() -> Self {
        Self { place: Place::nowhere(), until: Moment(0), kept: None }
    }
}

impl Kept {
    pub(crate) fn frame(&self) -> Frame<'_> {
        Frame { mark: self.mark, kind: self.kind, flags: 0, chain: 0, payload: &self.payload }
    }
}

impl Visit<'_> {
    /// Where a write or a vote of this connection waits, if it may.
    pub(crate) fn waits_for(&mut self, kv: &Kv) -> Waits {
        if let Some(waits) = self.waits.take() {
            return waits;
        }
        let patience = match &self.connection.role {
            Role::Store(seat) => seat.patience,
            _ => Duration::ZERO,
        };
        if patience.is_zero() || self.shared.drain.until().is_some() {
            return Waits::never();
        }
        Waits { place: kv.place(), until: self.shared.clock.now().after(patience), kept: None }
    }

    /// Keeps it until it is tried again.
    pub(crate) fn defer(&mut self, mut waits: Waits) {
        let kept = match waits.kept.take() {
            Some(kept) => kept,
            None => match self.shared.budget.take(self.frame.payload.len()) {
                Ok(share) => {
                    let (kind, payload) = (self.frame.kind, self.frame.payload.to_vec());
                    Arc::new(Kept { mark: self.mark, kind, payload, _share: share })
                }
                Err((kind, message)) => return self.error(kind, &message),
            },
        };
        self.connection.pending += 1;
        let (token, timed) = (self.token, self.timed.take());
        self.deferred.push(Deferred { token, timed, waits, kept, long: None });
    }
}
