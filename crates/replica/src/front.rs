//! What sits on a member's desk: a protocol for clients, with sockets of its own in the same poll, on the same thread.
//!
//! ```text
//!   a turn: poll · members' messages · calls · Front::round: Port::order ... · one step: log, one message to each standby ·
//!           one write to each member · apply what is confirmed: Front::applied ... · Front::readable ... · Front::flush
//! ```
//! Walk: a [`Front`] is told what happened · it orders and asks through its [`Port`] · `()` is the front of a member without one.
//! An answer is there when it may be told: a command is executed when it is confirmed, never before.
//! Deliberately absent: a queue between front and log, and anything that could keep the desk waiting.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use assent_ids::Epoch;
use assent_membership::{Member, Sequence, Standing, Word, WordError};
use assent_world::Clock;
use assent_world::net::{Registry, Waker};

use crate::event::{Output, Refused};
use crate::machine::Machine;
use crate::replica::Replica;
use crate::status::Status;
use crate::wires::Wires;

/// A front's tokens in the poll are this and above; all others are the member's.
pub const FRONT_TOKEN: usize = 1 << 32;

/// A connection that can be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Under which token it was registered.
    pub token: usize,
    /// Its other end has closed, and nobody says it again: it is to be read to its end. Where it has not, a read of less than there was room
    /// for was all.
    pub is_closing: bool,
}

/// A protocol for clients. All of it runs on the desk: what takes long keeps the whole member waiting.
pub trait Front<M: Machine>: Send + 'static {
    /// Once, before the first turn: registers what it listens at. The waker ends a poll, from any thread.
    ///
    /// # Errors
    /// As the operating system says: then the member does not start.
    fn open(&mut self, registry: &Registry, waker: &Arc<Waker>) -> io::Result<()>;

    /// Each turn, also with nothing ready: takes what has arrived, orders and asks.
    fn round(&mut self, ready: &[Ready], port: &mut Port<'_, M>);

    /// The command that the log holds there was executed, on this member; whoever ordered it may be told. In order, on standbys too.
    fn applied(&mut self, at: Sequence, kind: u16, answer: &[u8], machine: &M) {
        _ = (at, kind, answer, machine);
    }

    /// A read that was asked with this tag may be answered, now.
    fn readable(&mut self, tag: u64, machine: &M) {
        _ = (tag, machine);
    }

    /// It leads from now on. What is ordered here comes before any client's.
    fn leads(&mut self, epoch: Epoch, port: &mut Port<'_, M>) {
        _ = (epoch, port);
    }

    /// It leads no longer: what was ordered and not executed is in doubt, whatever comes of it; what was asked is not answered.
    fn yields(&mut self) {}

    /// The machine is another one: a snapshot came from elsewhere, or a diverged tail was cut.
    fn replaced(&mut self, machine: &M) {
        _ = machine;
    }

    /// The end of a turn: says what there is to say, one write to each connection.
    fn flush(&mut self, port: &mut Port<'_, M>) {
        _ = port;
    }

    /// How long the next turn may keep waiting; none: as long as nothing happens.
    fn pause(&self) -> Option<Duration> {
        None
    }

    /// The member can go on no longer: rounds come as before, and nothing is ordered any more.
    fn halts(&mut self, why: &str) {
        _ = why;
    }
}

impl<M: Machine> Front<M> for () {
    fn open(&mut self, _: &Registry, _: &Arc<Waker>) -> io::Result<()> {
        Ok(())
    }

    fn round(&mut self, _: &[Ready], _: &mut Port<'_, M>) {}
}

/// What a front wanted in one turn, beside commands.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) reads: Vec<u64>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) out: Option<bool>,
    pub(crate) snapshot: bool,
}

/// What the desk knows and the value does not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) now_ms: u64,
    pub(crate) applied: Sequence,
    pub(crate) durable: Sequence,
    pub(crate) snapshot: Sequence,
    pub(crate) replay_bytes: u64,
}

/// What a front may ask of its desk.
#[derive(Debug)]
pub struct Port<'a, M: Machine> {
    pub(crate) replica: &'a mut Replica,
    pub(crate) machine: &'a M,
    /// None where there are none: in a simulation.
    pub(crate) wires: Option<&'a Wires>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) wanted: &'a mut Wanted,
    pub(crate) facts: Facts,
    pub(crate) halted: Option<&'a str>,
}

impl<M: Machine> Port<'_, M> {
    /// Puts a command behind the log: the parts, one after the other. [`Front::applied`] tells when it is executed.
    ///
    /// # Errors
    /// [`Refused`]: nothing has happened then.
    pub fn order(&mut self, kind: u16, parts: &[&[u8]]) -> Result<Sequence, Refused> {
        let ordered = self.refuse_halted().and_then(|()| self.replica.submit_parts(kind, parts));
        let commands = M::commands(kind, parts.first().copied().unwrap_or_default());
        match ordered {
            Ok(_) => self.replica.counts.ordered += commands.saturating_sub(1),
            Err(_) => self.replica.counts.refused += commands,
        }
        ordered
    }

    /// The number of what is ordered next.
    #[must_use]
    pub const fn next(&self) -> Sequence {
        Sequence(self.replica.end().sequence.0.saturating_add(1))
    }

    /// Asks for a read: [`Front::readable`] tells when the machine surely shows all that was acknowledged before, by anybody, and
    /// all that was ordered here before. One round of messages serves all reads of a turn.
    ///
    /// # Errors
    /// [`Refused::NotLeading`].
    pub fn read(&mut self, tag: u64) -> Result<(), Refused> {
        let leads = self.refuse_halted().is_ok() && self.replica.membership().leads().is_some();
        if !leads {
            self.replica.counts.refused += 1;
            return Err(Refused::NotLeading { primary: self.leader() });
        }
        self.wanted.reads.push(tag);
        Ok(())
    }

    /// An answer waits until everything up to here is on the disk of every member in the set, whatever `ack` asks for.
    pub fn keep(&mut self, at: Sequence) {
        self.replica.keep(at);
    }

    /// Everything up to here that was to be kept is, and stays whoever leads.
    #[must_use]
    pub fn kept(&self) -> Sequence {
        self.replica.kept()
    }

    /// Whether it leads and takes commands.
    #[must_use]
    pub fn takes(&self) -> bool {
        self.halted.is_none() && self.replica.membership().takes_commands()
    }

    /// Who leads, as far as known here.
    #[must_use]
    pub fn leader(&self) -> Option<Member> {
        let me = self.replica.me();
        // One that does not lead knows better than to name itself.
        self.replica
            .configuration()
            .primary
            .filter(|member| *member != me || self.replica.membership().leads().is_some())
    }

    /// Where it stands, and if nothing goes on, why.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.replica.standing()
    }

    /// The machine as it is: for displays, never for an answer.
    #[must_use]
    pub const fn machine(&self) -> &M {
        self.machine
    }

    /// Everything about where it stands.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut status = self.replica.status(self.facts, self.wires);
        status.hash = self.machine.hash();
        status.halted = self.halted.map(str::to_owned);
        status
    }

    /// Follows a person's word. What of it must be durable is, before this turn's [`Front::flush`].
    ///
    /// # Errors
    /// [`WordError`] where that cannot be; nothing has changed then.
    pub fn word(&mut self, word: Word) -> Result<(), WordError> {
        if self.halted.is_some() {
            return Err(WordError::Stopped);
        }
        let outputs = self.replica.word(word, self.facts.now_ms)?;
        if let Word::Out(out) = word {
            self.wanted.out = Some(out);
        }
        self.wanted.outputs.extend(outputs);
        Ok(())
    }

    /// Asks for a snapshot soon, however little there is to it.
    pub const fn snapshot(&mut self) {
        self.wanted.snapshot = true;
    }

    /// Why it can go on no longer, if so.
    #[must_use]
    pub const fn halted(&self) -> Option<&str> {
        self.halted
    }

    /// Which member this is.
    #[must_use]
    pub const fn me(&self) -> Member {
        self.replica.me()
    }

    /// The member's clock.
    #[must_use]
    pub const fn clock(&self) -> &dyn Clock {
        self.clock
    }

    const fn refuse_halted(&self) -> Result<(), Refused> {
        if self.halted.is_some() { Err(Refused::NotLeading { primary: None }) } else { Ok(()) }
    }
}
