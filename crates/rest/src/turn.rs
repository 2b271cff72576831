//! Whose silence a connection's is: ours while we work on a request, the peer's while we wait for the rest of its body.
//!
//! Walk: [`Turn::of`] is ours · [`Turn::watch`] puts a body between that gives the turn away whenever it has nothing to read, and
//! takes it back with the next piece, the last one, or when nobody reads on · [`Turn::end`] once it is answered · [`Turn::owe`] is the
//! same for an answer that is made while it is read: as long as its next piece is not there, the silence is ours.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};

use crate::listener::{Peer, Working};

#[derive(Debug)]
pub(crate) struct Turn {
    peer: Peer,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Ours(#[expect(dead_code, reason = "held for its drop")] Working),
    Theirs,
    Over,
}

impl Turn {
    pub(crate) fn of(peer: Peer) -> Arc<Self> {
        let state = Mutex::new(State::Ours(peer.works()));
        Arc::new(Self { peer, state })
    }

    /// A body that says whose turn it is.
    pub(crate) fn watch(self: &Arc<Self>, inside: Body) -> Body {
        Body::new(Watched { inside, turn: Arc::clone(self) })
    }

    /// An answer whose pieces are still to be made.
    pub(crate) fn owe(&self, inside: Body) -> Body {
        Body::new(Owed { inside, peer: self.peer.clone(), working: None })
    }

    /// The answer goes; reading it takes the peer's time.
    pub(crate) fn end(&self) {
        self.set(|_| State::Over);
        self.peer.is_answered();
    }

    fn give(&self) {
        self.set(|state| if matches!(state, State::Over) { State::Over } else { State::Theirs });
    }

    fn take(&self) {
        self.set(|state| match state {
            State::Theirs => State::Ours(self.peer.works()),
            other => other,
        });
    }

    fn set(&self, next: impl FnOnce(State) -> State) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = std::mem::replace(&mut *state, State::Over);
        *state = next(now);
    }
}

struct Owed {
    inside: Body,
    peer: Peer,
    working: Option<Working>,
}

impl http_body::Body for Owed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inside).poll_frame(context);
        self.working = match self.working.take() {
            working if polled.is_pending() => working.or_else(|| Some(self.peer.works())),
            _ => None,
        };
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inside.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inside.size_hint()
    }
}

struct Watched {
    inside: Body,
    turn: Arc<Turn>,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inside).poll_frame(context);
        if polled.is_pending() {
            self.turn.give()
        } else {
            self.turn.take()
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inside.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inside.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.turn.take();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use http_body_util::channel::Channel;

    use super::*;

    #[test]
    fn the_silence_of_an_answer_is_ours_until_its_next_piece_is_there() {
        let peer = Peer::alone();
        let turn = Turn::of(peer.clone());
        turn.end();
        assert!(!peer.is_worked_for());
        let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(1);
        let mut body = turn.owe(Body::new(body));
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = || http_body::Body::poll_frame(Pin::new(&mut body), &mut context).is_ready();
        assert!(!poll() && peer.is_worked_for());
        sender.try_send(Frame::data(Bytes::from_static(b"a piece"))).unwrap();
        assert!(poll() && !peer.is_worked_for(), "who does not read it is waited for as anybody is");
        assert!(!poll() && peer.is_worked_for());
        drop(body);
        assert!(!peer.is_worked_for());
    }
}
