//! One connection, spoken on by the thread that holds it: no helper, no runtime. The driver's state machines are turned by
//! hand over a blocking socket.
//!
//! Walk: [`Line::connect`] · [`Line::text`] the caller's words, [`Line::batch`] where their rows are not wanted: past the driver as long as the
//! server answers without an error · [`Line::run`] a question of the driver's: polled, what it asks for written, then a read that
//! blocks, until it has its answer · [`Line::send`] writes one message of ours past the driver and does not wait,
//! [`Line::answer`] waits for it: so two servers work at the same time for one thread · [`Line::limit`] how long a read may
//! block.
//! A read is let through one at a time: the driver asks for bytes whenever it has none, also when nothing is to come.
//! Every answer ends with whether a transaction is open (ReadyForQuery), which the driver keeps to itself; so what passes
//! is looked at (`pace.rs`). Where it says that none is, BEGIN waits for the caller's first words and goes with them; only
//! the server's answer to it lets more words through ([`Begin`]).
//! Trap: the driver hands an error on before the end of its answer. So words of ours wait until it has read all ends.
//! Trap: of a statement that is dropped the driver has still something to say, and says it with its next question. Words of
//! ours may go before that: what the driver has not said yet has no answer that ours could be taken for.
//! Trap: what the driver has not handed on yet (its channels are short) is no reason to read. So a read is let through
//! only after two turns in which nothing moved.
//! Trap: what the driver hands out to be read or written later (rows one by one, COPY) would keep the line busy between two
//! questions, and a COPY that is refused has the driver one answer behind from then on (rust-postgres issue 789). So
//! nobody gets at the driver's client itself.
//! Deliberately absent: TLS, what is said (`session.rs`), COPY and streams (`Postgres::over` a connection of one's own),
//! `load_balance_hosts`: hosts are tried in their order.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use assent_world::net::{Address, Proofs, Stream};
use assent_xa::Native;
use bytes::BytesMut;
use postgres_protocol::message::frontend;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, NoTls, SimpleQueryMessage};

use super::answer::{self, Row, Unwanted};
use super::failure::Failure;
use super::pace::Pace;
use super::prepared::Prepared;
use super::socket::{Again, Socket, Wire, write_all};
use crate::kept::said;

pub(super) const BEGIN: &str = "BEGIN";
/// Fails in every state of the server's, and says why.
const NOT_BEGUN: &str = "BEGIN; ROLLBACK TO SAVEPOINT \"the start of the branch was refused\"";

/// Where PostgreSQL listens unless told otherwise.
const PORT: u16 = 5432;
/// Of an answer to words of ours, at once.
const READ_BYTES: usize = 1 << 10;
/// What a message of ours mostly takes.
const MESSAGE_BYTES: usize = 256;

type Answer = Result<Vec<SimpleQueryMessage>, Error>;

/// Takes the codes of what the server says without being asked.
pub(super) type Notices = Box<dyn Fn(&str) + Send>;

/// The driver's half that reads and writes; nothing once it is over.
struct Driven(Option<Connection<Wire, NoTlsStream>>);

impl Drop for Driven {
    fn drop(&mut self) {
        // Nobody is left who could ask, so the driver takes leave of the server, which need not find out by itself.
        if let Some(connection) = &mut self.0 {
            _ = connection.poll_message(&mut Context::from_waker(Waker::noop()));
        }
    }
}

/// How far the server has heard of BEGIN. Only its answer makes it `Said`: nothing of the caller's is said before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// A transaction is open; or no branch is worked on.
    Said,
    /// It goes with the caller's first words.
    Owed,
    /// No transaction is open, or nobody knows: none of the caller's words are said until a verb ends the branch.
    Refused(Native),
}

/// What the answer to a message of ours has to be.
#[derive(Clone, Copy, Debug, Default)]
struct Awaited {
    /// How the server calls what its last statement has done.
    tag: Option<&'static str>,
    /// It begins with a question whose failure has the server skip the rest, up to a Sync that is not sent yet.
    is_asked: bool,
}

/// A connection.
pub(super) struct Line {
    /// A message of ours on its way, or why it could not be written.
    sent: Option<Result<Awaited, Failure>>,
    begin: Begin,
    /// What a branch begins with.
    opening: &'static str,
    // In the order in which they are dropped: who asks before who is asked.
    client: Arc<Client>,
    driven: Driven,
    socket: Arc<Socket>,
    notices: Notices,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}

/// Why there is no line.
pub(super) enum NoLine {
    /// Nobody answered there.
    Nobody(io::Error),
    /// What the server said to the greeting, or how that broke off.
    Said(Error),
    /// What it said afterwards.
    Failed(Failure),
    /// It takes no writes: a standby, or one that was set so.
    ReadOnly,
}

impl Line {
    /// Connects to the first of the hosts that does as the configuration wishes (takes writes, or any). Each has its share of
    /// the time, so that a dead one does not hide the next; silence later is noticed by the kernel as the configuration
    /// says. The limit stays until it is set anew.
    pub(super) fn connect(config: &Config, at_most: Duration, notices: Notices) -> Result<Self, NoLine> {
        let mut refused = NoLine::Nobody(io::Error::new(io::ErrorKind::NotFound, "no host is named"));
        let hosts = config.get_hosts().len();
        for at in 0..hosts {
            // Of a name that stands for several machines each one.
            let places = match place(config, at).and_then(|place| place.each()) {
                Ok(places) => places,
                Err(error) => {
                    refused = NoLine::Nobody(error);
                    continue;
                }
            };
            let share = u32::try_from(hosts.saturating_mul(places.len())).unwrap_or(u32::MAX).max(1);
            for place in places {
                match Self::connect_to(&place, config, at_most / share) {
                    Ok(line) => return Ok(Self { notices, ..line }),
                    Err(why) => refused = why,
                }
            }
        }
        Err(refused)
    }

    fn connect_to(place: &Address, config: &Config, at_most: Duration) -> Result<Self, NoLine> {
        let stream = Stream::connect(place, at_most).map_err(NoLine::Nobody)?;
        let proofs = config.get_keepalives().then(|| Proofs {
            idle: config.get_keepalives_idle(),
            interval: config.get_keepalives_interval(),
            count: config.get_keepalives_retries(),
        });
        stream.give_up_after(proofs, config.get_tcp_user_timeout().copied()).map_err(NoLine::Nobody)?;
        let socket = Arc::new(Socket {
            stream,
            may_read: AtomicBool::new(false),
            is_hungry: AtomicBool::new(false),
            has_written: AtomicBool::new(false),
            limit_ms: AtomicU64::new(0),
            is_limited: AtomicBool::new(true),
            deadline_us: AtomicU64::new(0),
            pace: Mutex::default(),
            again: Mutex::default(),
        });
        socket.set_limit(at_most).map_err(NoLine::Nobody)?;
        let (client, connection) = {
            let mut connecting = pin!(config.connect_raw(Wire(Arc::clone(&socket)), NoTls));
            let mut context = Context::from_waker(Waker::noop());
            loop {
                // One question, one answer: a read never waits for nothing.
                socket.may_read.store(true, Ordering::Relaxed);
                if let Poll::Ready(connected) = connecting.as_mut().poll(&mut context) {
                    break connected.map_err(NoLine::Said)?;
                }
            }
        };
        socket.pace().begin();
        let mut line = Self {
            sent: None,
            begin: Begin::Said,
            opening: BEGIN,
            client: Arc::new(client),
            driven: Driven(Some(connection)),
            socket,
            notices: Box::new(|_| {}),
        };
        if config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite {
            let asked = line.ask("SHOW transaction_read_only").map_err(NoLine::Failed)?;
            if asked.iter().any(|row| row.word(0) == Some("on")) {
                return Err(NoLine::ReadOnly);
            }
        }
        Ok(line)
    }

    /// How long reading may take from its next beginning on; for ever for the caller's own work.
    pub(super) fn limit(&mut self, longest: Option<Duration>) {
        if longest.is_some_and(|longest| self.socket.set_limit(longest).is_err()) {
            // Nobody would ever come back from it.
            self.close();
        }
        self.socket.is_limited.store(longest.is_some(), Ordering::Relaxed);
        self.socket.deadline_us.store(0, Ordering::Relaxed);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.driven.0.is_none() || self.client.is_closed()
    }

    /// As [`Line::is_closed`], after a look at the socket.
    pub(super) fn has_ended(&self) -> bool {
        self.is_closed() || self.socket.stream.has_ended()
    }

    /// Whether the server said at last that no transaction is open.
    pub(super) fn is_idle(&self) -> bool {
        self.sent.is_none() && !self.is_closed() && self.socket.pace().is_idle()
    }

    /// Whether the server said at last that a transaction is open that has not failed. Nobody but this connection can end
    /// it, so that is still so.
    pub(super) fn is_open(&mut self) -> bool {
        self.sent.is_none() && !self.is_closed() && self.settle().is_ok() && self.socket.pace().is_open()
    }

    /// Whether a message of ours is on its way.
    pub(super) const fn is_awaited(&self) -> bool {
        self.sent.is_some()
    }

    /// Where the conversation stands.
    pub(super) fn pace(&self) -> MutexGuard<'_, Pace> {
        self.socket.pace()
    }

    /// The server process, by the greeting.
    pub(super) fn process(&self) -> Option<u32> {
        self.socket.pace().process()
    }

    /// Whether the server has let prepared statements go since this was asked last.
    pub(super) fn has_let_go(&self) -> bool {
        self.socket.pace().take_let_go()
    }

    /// What a branch begins with.
    pub(super) const fn opening(&self) -> &'static str {
        self.opening
    }

    /// From now on with these words.
    pub(super) const fn open_with(&mut self, words: &'static str) {
        self.opening = words;
    }

    /// How far BEGIN has come.
    pub(super) const fn begun(&self) -> &Begin {
        &self.begin
    }

    /// BEGIN is due; or a verb has dealt with it.
    pub(super) fn set_begun(&mut self, begin: Begin) {
        self.begin = begin;
    }

    /// The caller's own statements, behind the BEGIN that is due, and with it where they cannot end its transaction.
    pub(super) fn text(&mut self, sql: &str) -> Answer {
        let (mut messages, is_led) = self.behind_begin(sql, Self::simple_query)?;
        if is_led && matches!(messages.first(), Some(SimpleQueryMessage::CommandComplete(_))) {
            messages.remove(0);
        }
        Ok(messages)
    }

    /// The same, and nobody wants to know what they answer.
    pub(super) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        self.behind_begin(sql, Self::tell).map(drop)
    }

    /// What they answer, and whether BEGIN's answer is in front of it.
    fn behind_begin<T>(
        &mut self,
        sql: &str,
        say: impl Fn(&mut Self, &str) -> Result<T, Error>,
    ) -> Result<(T, bool), Error> {
        if self.begin != Begin::Owed || may_end(sql) {
            self.pass()?;
            return say(self, sql).map(|answer| (answer, false));
        }
        self.begin = Begin::Refused(unanswered());
        match say(self, &[self.opening, "; ", sql].concat()) {
            Ok(answer) => {
                self.begin = Begin::Said;
                Ok((answer, true))
            }
            // A message that the server cannot read is not begun: there is no transaction that could have failed. What it
            // says to another BEGIN tells: in a failed transaction that fails too. The end of the answer would not, as the
            // driver hands an error on before it has come.
            Err(error) if error.as_db_error().is_some() => match self.simple_query(self.opening) {
                Ok(_) => {
                    self.begin = Begin::Said;
                    say(self, sql).map(|answer| (answer, false))
                }
                Err(probed) if probed.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) => {
                    self.begin = Begin::Said;
                    Err(error)
                }
                Err(_) => self.refused(error),
            },
            Err(error) => self.refused(error),
        }
    }

    /// Before anything of the caller's: a transaction is open, by the server's own word.
    fn pass(&mut self) -> Result<(), Error> {
        match &self.begin {
            Begin::Said => Ok(()),
            Begin::Owed => {
                self.begin = Begin::Refused(unanswered());
                match self.simple_query(self.opening) {
                    Ok(_) => {
                        self.begin = Begin::Said;
                        Ok(())
                    }
                    Err(error) => self.refused(error),
                }
            }
            // The driver's errors are made by servers only, so this one is asked for one.
            Begin::Refused(_) => match self.simple_query(NOT_BEGUN) {
                Err(error) => Err(error),
                Ok(_) => {
                    self.close();
                    self.simple_query(NOT_BEGUN).map(drop)
                }
            },
        }
    }

    fn refused<T>(&mut self, error: Error) -> Result<T, Error> {
        self.begin = Begin::Refused(Failure::of(&error).native);
        Err(error)
    }

    /// One message, its answer awaited.
    pub(super) fn simple_query(&mut self, sql: &str) -> Answer {
        let client = Arc::clone(&self.client);
        self.wait(client.simple_query(sql))
    }

    /// One message past the driver, to which it would be several times the work. Where its answer has an error in it, or wants to copy, the
    /// message is the driver's after all: what it says goes nowhere, and it reads the answer from there on.
    fn tell(&mut self, sql: &str) -> Result<(), Error> {
        let mut message = BytesMut::with_capacity(MESSAGE_BYTES);
        // Where the driver has still to say something of its own, or to hear it, these words are its too: they go behind that, and wait for
        // no answer before their own. What cannot be said, it says so itself.
        if self.is_closed()
            || self.turn(false).is_err()
            || !self.socket.pace().is_quiet()
            || frontend::query(sql, &mut message).is_err()
        {
            return self.simple_query(sql).map(drop);
        }
        let (mut unwanted, mut some) = (Unwanted::default(), [0; READ_BYTES]);
        let mut goes_on = write_all(&message, |rest| self.socket.write(rest)).is_ok();
        if !goes_on {
            // The server would wait for the rest of it, and the driver for an answer. What has come can still be read.
            _ = self.socket.stream.shutdown();
        }
        while goes_on {
            // What broke is not told: the driver finds the connection over, whatever it reads.
            let read = self.socket.read(&mut some).unwrap_or(0);
            let is_plain = unwanted.take(some.get(..read).unwrap_or_default(), &*self.notices);
            if is_plain && self.socket.pace().is_quiet() {
                return Ok(());
            }
            goes_on = is_plain && read > 0;
        }
        *self.socket.again() = Again { said: message, heard: unwanted.rest() };
        self.simple_query(sql).map(drop)
    }

    /// A question of the driver's that is over when it is answered: it hands out nothing that is read or written later.
    pub(super) fn run<T>(&mut self, work: impl AsyncFnOnce(&Client) -> Result<T, Error>) -> Result<T, Error> {
        self.pass()?;
        let client = Arc::clone(&self.client);
        self.wait(work(&client))
    }

    /// It is out of step: whatever comes next would be taken for the answer to something else.
    pub(super) fn close(&mut self) {
        self.sent = None;
        self.driven.0 = None;
        // It may be closed already.
        _ = self.socket.stream.shutdown();
    }

    /// One message of ours, its answer awaited.
    pub(super) fn ask(&mut self, sql: &str) -> Result<Vec<Row>, Failure> {
        self.send(sql);
        self.answer().unwrap_or_else(|| Err(answer::without_statement()))
    }

    /// Puts one message of ours on its way.
    pub(super) fn send(&mut self, sql: &str) {
        self.sent = Some(self.say(Awaited::default(), |message| frontend::query(sql, message)));
    }

    /// The same, for words that end a transaction: the answer has to call them so.
    pub(super) fn send_end(&mut self, sql: &str, tag: &'static str) {
        self.sent =
            Some(self.say(Awaited { tag: Some(tag), is_asked: false }, |message| frontend::query(sql, message)));
    }

    /// A question with its parameters, and words that end the transaction behind it, if there are any: in one message, with one answer.
    pub(super) fn send_asked(
        &mut self,
        asked: &Prepared,
        (question, bytes): (&str, &[&[u8]]),
        end: Option<(&str, &'static str)>,
    ) {
        let awaited = Awaited { tag: end.map(|(_, tag)| tag), is_asked: end.is_some() };
        self.sent = Some(self.say(awaited, |message| {
            asked.write(question, bytes, message)?;
            match end {
                // It ends its own answer. The question's failure would have it skipped: `Line::hear`.
                Some((sql, _)) => frontend::query(sql, message)?,
                None => frontend::sync(message),
            }
            Ok(())
        }));
    }

    fn say(
        &mut self,
        awaited: Awaited,
        compose: impl FnOnce(&mut BytesMut) -> io::Result<()>,
    ) -> Result<Awaited, Failure> {
        self.settle()?;
        let mut message = BytesMut::with_capacity(MESSAGE_BYTES);
        compose(&mut message)
            .and_then(|()| write_all(&message, |rest| self.socket.write(rest)))
            .map_err(|error| answer::lost(error.to_string()))?;
        Ok(awaited)
    }

    /// Has the driver read its answers to their ends.
    fn settle(&mut self) -> Result<(), Failure> {
        while !self.socket.pace().is_quiet() {
            self.turn(true).map_err(|error| Failure::of(&error))?;
            // It is over, or wants no more of it.
            if self.driven.0.is_none() || self.socket.may_read.swap(false, Ordering::Relaxed) {
                return Err(answer::lost("the end of an earlier answer did not come".to_owned()));
            }
        }
        Ok(())
    }

    /// The answer to what was sent, if anything was. A connection that loses it is over.
    pub(super) fn answer(&mut self) -> Option<Result<Vec<Row>, Failure>> {
        let answered = self.sent.take()?.and_then(|awaited| self.hear(awaited));
        if answered.as_ref().is_err_and(|failure| failure.lost) {
            self.close();
        }
        Some(answered)
    }

    fn hear(&self, Awaited { tag, mut is_asked }: Awaited) -> Result<Vec<Row>, Failure> {
        let mut answer = answer::Answer::default();
        let mut some = [0; READ_BYTES];
        let broken = |error: io::Error| answer::lost(error.to_string());
        loop {
            let read = self.socket.read(&mut some).map_err(broken)?;
            if read == 0 {
                return Err(answer::lost("the server closed the connection".to_owned()));
            }
            if answer.take(some.get(..read).unwrap_or_default(), &*self.notices)? {
                return answer.end(tag);
            }
            // Protocol, "Extended Query": behind an error the server discards everything up to a Sync.
            if is_asked && answer.has_failed_at_once() {
                is_asked = false;
                self.socket.pace().skipped();
                let mut message = BytesMut::new();
                frontend::sync(&mut message);
                write_all(&message, |rest| self.socket.write(rest)).map_err(broken)?;
            }
        }
    }

    fn wait<T>(&mut self, question: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let mut question = pin!(question);
        let mut context = Context::from_waker(Waker::noop());
        let mut quiet = 0;
        loop {
            if let Poll::Ready(answered) = question.as_mut().poll(&mut context) {
                return answered;
            }
            let may_read = quiet == 2;
            self.socket.is_hungry.store(false, Ordering::Relaxed);
            self.socket.has_written.store(false, Ordering::Relaxed);
            if let Err(broken) = self.turn(may_read) {
                // The answer may have come before the end.
                return match question.as_mut().poll(&mut context) {
                    Poll::Ready(Err(error)) if error.as_db_error().is_none() => Err(broken),
                    Poll::Ready(answered) => answered,
                    Poll::Pending => Err(broken),
                };
            }
            if may_read {
                quiet = 0;
                continue;
            }
            let moved = self.socket.has_written.load(Ordering::Relaxed);
            let is_hungry = self.socket.is_hungry.load(Ordering::Relaxed);
            quiet = if is_hungry && !moved { quiet + 1 } else { 0 };
        }
    }

    /// Writes what waits, hands on what has come; with a read, after one that may block.
    fn turn(&mut self, may_read: bool) -> Result<(), Error> {
        // Once it is over every question is answered so by the driver.
        let Some(connection) = &mut self.driven.0 else { return Ok(()) };
        self.socket.may_read.store(may_read, Ordering::Relaxed);
        let mut context = Context::from_waker(Waker::noop());
        let over = loop {
            match connection.poll_message(&mut context) {
                Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => (self.notices)(notice.code().code()),
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => break Err(error),
                Poll::Ready(None) => break Ok(()),
                Poll::Pending => return Ok(()),
            }
        };
        self.driven.0 = None;
        // Nobody reads what may come late, and the server lets go.
        _ = self.socket.stream.shutdown();
        over
    }
}

fn unanswered() -> Native {
    said("the start of the branch was cut short".to_owned())
}

/// Whether the transaction may be another one, or none, when this has been said. A text with such a word in it goes behind BEGIN, not
/// with it.
fn may_end(sql: &str) -> bool {
    let bytes = sql.as_bytes();
    bytes.iter().enumerate().any(|(at, byte)| {
        // By their first letters, as this is done for each text.
        let word: &[u8] = match byte | 0x20 {
            b'c' => b"commit",
            b'r' => b"rollback",
            b'a' => b"abort",
            b'e' => b"end",
            b'p' => b"prepare",
            _ => return false,
        };
        bytes.get(at..at + word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word))
    })
}

/// One of the hosts that the configuration names.
fn place(config: &Config, at: usize) -> io::Result<Address> {
    let (given, ports) = (config.get_hostaddrs(), config.get_ports());
    let port = ports.get(at).or_else(|| ports.first()).copied().unwrap_or(PORT);
    match (given.get(at), config.get_hosts().get(at)) {
        (Some(address), _) => Ok(Address::Tcp { host: address.to_string(), port }),
        (None, Some(Host::Tcp(host))) => Ok(Address::Tcp { host: host.clone(), port }),
        (None, Some(Host::Unix(folder))) => Ok(Address::Unix(folder.join(format!(".s.PGSQL.{port}")))),
        (None, None) => Err(io::ErrorKind::NotFound.into()),
    }
}

#[cfg(test)]
mod tests;
