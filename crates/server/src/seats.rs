//! Which connection of a client is the present one. A client that resumes has a new connection; whatever the old one
//! still carries is late: a decision read from it after the new one's `finished` would be made anew.
//!
//! A question from a connection that is not the present one gets no answer and the connection ends: the client asks
//! again, over its present one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use assent_ids::Incarnation;

/// One connection's claim to speak for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) client: Incarnation,
    number: u64,
}

/// The present connection of every client.
#[derive(Debug, Default)]
pub(crate) struct Seats(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: u64,
    present: BTreeMap<Incarnation, u64>,
}

/// While it lives, nobody else becomes the present connection of any client.
#[derive(Debug)]
pub(crate) struct Held<'a>(#[expect(dead_code, reason = "held, not read")] MutexGuard<'a, State>);

impl Seats {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection becomes the client's present one, in place of any other.
    pub(crate) fn take(&self, client: Incarnation) -> Seat {
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        state.present.insert(client, number);
        Seat { client, number }
    }

    /// Holds the seat if it is still the present one: a decision laid while it is held was laid before any resumption.
    pub(crate) fn hold(&self, seat: Seat) -> Option<Held<'_>> {
        let state = self.state();
        (state.present.get(&seat.client) == Some(&seat.number)).then_some(Held(state))
    }

    /// The connection has ended.
    pub(crate) fn leave(&self, seat: Seat) {
        let mut state = self.state();
        if state.present.get(&seat.client) == Some(&seat.number) {
            state.present.remove(&seat.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use assent_ids::Epoch;

    use super::*;

    #[test]
    fn only_the_last_connection_of_a_client_speaks_for_it() {
        let seats = Seats::default();
        let client = |number| Incarnation { epoch: Epoch(1), number };
        let (old, other) = (seats.take(client(1)), seats.take(client(2)));
        assert!(seats.hold(old).is_some());
        let new = seats.take(client(1));
        assert!(seats.hold(old).is_none() && seats.hold(new).is_some() && seats.hold(other).is_some());
        // The old connection ends late: that says nothing about the new one.
        seats.leave(old);
        assert!(seats.hold(new).is_some());
        seats.leave(new);
        assert!(seats.hold(new).is_none());
    }
}
