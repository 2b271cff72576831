//! One connection, its writing and its reading.

use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assent_frame::Frame;
use assent_wire::{Answer, Decoder, Hello, PAYLOAD_BYTES_MAX, Request, Welcome};
use assent_world::net::{Address, Stream};
use assent_world::{Clock, Moment};

use crate::handshake::{self, is_glance};
use crate::state::{Counts, Sizes, State};
use crate::{LinkConfig, LinkError};

/// One-way messages wait for company until they are so many bytes.
const LINGERING_BYTES_MAX: usize = 16 << 10;

/// A connection to a server. All methods may be called from many threads at once.
#[derive(Debug)]
pub struct Link {
    stream: Stream,
    address: Address,
    welcome: Welcome,
    sizes: Sizes,
    in_flight_max: usize,
    patience: Duration,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Held by whoever reads.
    decoder: Mutex<Decoder>,
}

/// The right to receive one answer.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an answer that nobody receives is kept until the link is dropped"]
pub struct Ticket(u64);

/// An answer, taken off the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    pub(crate) kind: u16,
    pub(crate) payload: Vec<u8>,
}

impl Arrived {
    pub(crate) fn new(frame: &Frame<'_>) -> Self {
        Self { kind: frame.kind, payload: frame.payload.to_vec() }
    }

    /// Reads it in place.
    ///
    /// # Errors
    /// [`LinkError::Refused`] if it is an error's; [`LinkError::InDoubt`] if it cannot be read, for then it says nothing.
    pub fn answer(&self) -> Result<Answer<'_>, LinkError> {
        let frame = Frame { mark: 0, kind: self.kind, flags: 0, chain: 0, payload: &self.payload };
        match Answer::parse(&frame) {
            Ok(Answer::Error { kind, message }) => Err(LinkError::Refused { kind, message: message.to_owned() }),
            Ok(answer) => Ok(answer),
            Err(error) => Err(LinkError::InDoubt { message: format!("an answer that cannot be read: {error}") }),
        }
    }
}

impl Link {
    /// Connects and greets.
    ///
    /// # Errors
    /// [`LinkError::Unavailable`] if nobody answers in time, [`LinkError::Refused`] with the server's reason.
    pub fn connect(to: &Address, hello: &Hello<'_>, config: &LinkConfig) -> Result<Self, LinkError> {
        let (stream, welcome) = handshake::connect(to, hello, config)?;
        let whole = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Self {
            stream,
            address: to.clone(),
            welcome,
            sizes: Sizes {
                version: welcome.version,
                frame: whole(welcome.limits.payload_bytes_max).min(PAYLOAD_BYTES_MAX),
                message: whole(welcome.limits.message_bytes_max),
            },
            in_flight_max: whole(welcome.limits.in_flight_max).max(1),
            patience: Duration::from_millis(config.answer_ms),
            clock: Arc::clone(&config.clock),
            state: Mutex::new(State::new(config.clock.now())),
            decoder: Mutex::new(Decoder::new(PAYLOAD_BYTES_MAX)),
        })
    }

    /// What the server said to the greeting.
    #[must_use]
    pub const fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Whom it reaches.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// What it has done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Whether it can still be used, as far as anyone knows.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.state().whole().is_ok()
    }

    /// As [`Link::is_whole`], after a look at what has arrived: a connection that was quiet may have ended unseen.
    #[must_use]
    pub fn look(&self) -> bool {
        let mut state = self.state();
        if state.is_reading || !self.stream.is_readable() {
            return state.whole().is_ok();
        }
        state.is_reading = true;
        drop(state);
        let mut decoder = self.decoder();
        let mut state = self.read_some(&mut decoder);
        drop(decoder);
        state.is_reading = false;
        state.promote();
        state.whole().is_ok()
    }

    /// For how long nothing was written: a heartbeat is due before `heartbeat_ms`.
    #[must_use]
    pub fn idle(&self) -> Duration {
        let last = self.state().last_write;
        self.clock.now().since(last)
    }

    /// Queues a request; it travels with the next [`Link::send`], [`Link::flush`] or [`Link::receive`].
    ///
    /// # Errors
    /// [`LinkError`]; nothing was queued then.
    pub fn lay(&self, request: &Request<'_>) -> Result<Ticket, LinkError> {
        self.state().lay(request, &self.sizes, self.in_flight_max).map(Ticket)
    }

    /// Queues a request and puts everything queued on its way, in one write.
    ///
    /// # Errors
    /// [`LinkError`] if nothing was queued. Trouble with the writing is told by `receive`.
    pub fn send(&self, request: &Request<'_>) -> Result<Ticket, LinkError> {
        let mut state = self.state();
        let ticket = state.lay(request, &self.sizes, self.in_flight_max).map(Ticket)?;
        self.write(state);
        Ok(ticket)
    }

    /// Queues a message that has no answer; it travels with whatever goes next, or with enough of its kind.
    ///
    /// # Errors
    /// [`LinkError`]; nothing was queued then.
    pub fn one_way(&self, message: &Request<'_>) -> Result<(), LinkError> {
        let mut state = self.state();
        state.one_way(message, &self.sizes)?;
        if state.pending.len() >= LINGERING_BYTES_MAX {
            self.write(state);
        }
        Ok(())
    }

    /// Puts everything queued on its way.
    pub fn flush(&self) {
        self.write(self.state());
    }

    /// Sends and receives.
    ///
    /// # Errors
    /// As [`Link::receive`].
    pub fn request(&self, request: &Request<'_>) -> Result<Arrived, LinkError> {
        self.receive(self.send(request)?)
    }

    /// Waits for an answer. Answers of one link may be received in any order, by any threads.
    ///
    /// # Errors
    /// [`LinkError::Unavailable`] if the request surely was not done, [`LinkError::InDoubt`] if it may have been: the
    /// connection ended, or the time is over.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is good for one answer")]
    pub fn receive(&self, ticket: Ticket) -> Result<Arrived, LinkError> {
        let Ticket(id) = ticket;
        let deadline = self.clock.now().after(self.patience);
        let mut state = self.state();
        if !state.pending.is_empty() {
            self.write(state);
            state = self.state();
        }
        loop {
            if let Some(taken) = state.take(id) {
                state.promote();
                return taken;
            }
            let left = deadline.since(self.clock.now());
            if left.is_zero() {
                state.give_up(id);
                state.promote();
                let ms = self.patience.as_millis();
                return Err(LinkError::InDoubt { message: format!("server {} is silent for {ms} ms", self.address) });
            }
            if state.is_reading {
                let sleeper = state.sleeps(id);
                (state, _) = sleeper.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
                state.woke(id);
            } else {
                state = self.read_for_all(state, id, deadline);
            }
        }
    }

    /// Ends the connection; whoever waits on it is told.
    pub fn close(&self, why: &str) {
        self.state().break_off(why.to_owned());
        // It may have ended already.
        _ = self.stream.shutdown();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic half-way through a change that matters.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until nothing is queued, unless somebody else is doing that already.
    fn write<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        if state.is_writing || state.pending.is_empty() {
            return;
        }
        state.is_writing = true;
        let mut batch = Vec::new();
        while !state.pending.is_empty() {
            state.leave(&mut batch);
            drop(state);
            let (written, outcome) = write_counted(&self.stream, &batch);
            state = self.state();
            state.wrote(written, self.clock.now());
            if let Err(error) = outcome {
                state.break_off(format!("server {}: {error}", self.address));
                // Half a frame may have left: nothing that follows would be understood.
                _ = self.stream.shutdown();
            }
        }
        state.is_writing = false;
    }

    /// Reads and hands out until this request has its answer, the connection ends or the time is over.
    fn read_for_all<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        id: u64,
        deadline: Moment,
    ) -> MutexGuard<'a, State> {
        state.is_reading = true;
        drop(state);
        let mut decoder = self.decoder();
        let mut state = loop {
            let state = self.read_some(&mut decoder);
            if state.is_settled(id) || self.clock.now() >= deadline {
                break state;
            }
        };
        // Before the lock is given up: whoever takes the reading over must find the decoder free.
        drop(decoder);
        state.is_reading = false;
        state
    }

    fn decoder(&self) -> MutexGuard<'_, Decoder> {
        self.decoder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One read, and everything that it brought.
    fn read_some(&self, decoder: &mut Decoder) -> MutexGuard<'_, State> {
        let read = (&self.stream).read(decoder.space());
        let mut state = self.state();
        match read {
            Ok(0) => state.break_off(format!("server {} closed the connection", self.address)),
            Ok(read) => {
                decoder.filled(read);
                let sleepers = self.hand_out(decoder, &mut state);
                if !sleepers.is_empty() {
                    // Without the lock: who is woken under it runs into it on another core, and sleeps once more.
                    drop(state);
                    sleepers.iter().for_each(|sleeper| sleeper.notify_one());
                    state = self.state();
                }
            }
            Err(error) if is_glance(&error) => {}
            Err(error) => state.break_off(format!("server {}: {error}", self.address)),
        }
        state
    }

    /// Everything that has arrived; who is to be woken for it.
    fn hand_out(&self, decoder: &mut Decoder, state: &mut State) -> Vec<Arc<Condvar>> {
        let mut sleepers = Vec::new();
        loop {
            match decoder.frame() {
                Ok(Some(frame)) if frame.mark == 0 => {
                    if let Ok(Answer::Error { message, .. }) = Answer::parse(&frame) {
                        state.break_off(format!("server {}: {message}", self.address));
                    }
                }
                Ok(Some(frame)) => match state.arrived(&frame) {
                    Ok(sleeper) => sleepers.extend(sleeper),
                    Err(error) => {
                        state.break_off(format!("server {}: {error}", self.address));
                        return sleepers;
                    }
                },
                Ok(None) => return sleepers,
                Err(error) => {
                    state.break_off(format!("server {}: {error}", self.address));
                    return sleepers;
                }
            }
        }
    }
}

/// Writes all of it; with how many bytes left even if not all did.
pub(crate) fn write_counted(mut stream: &Stream, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..)
        && !rest.is_empty()
    {
        match stream.write(rest) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}
