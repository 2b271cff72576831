//! A blocking client that pipelines, and whose session is executed once: also when a connection is lost in the middle.
//!
//! Walk: [`Client::send`] lays a command and gives its number · [`Client::receive`] gives the oldest answer that is missing; what was laid
//! goes out first · a lost connection is opened again, at whichever of the addresses answers, and everything of the session that has no
//! answer is sent again, as it was. Without a session what has no answer is in doubt.
//! Deliberately absent: threads, a pool. News of a subscription come on a connection of their own ([`Feed`]).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use assent_frame::{Head, Malformed, Writer, lay};
use assent_ids::Xid;
use assent_kind::Kind;
use assent_membership::Sequence;
use assent_world::Clock;
use assent_world::net::{Address, Stream};

use crate::answer::Answer;
use crate::asset::AssetId;
use crate::command::{Command, Op, Request};
use crate::message::{self, Ask, KIND_ANSWER, KIND_COMMAND, KIND_NEWS, KIND_REFUSED, KIND_STATUS, Status};
use crate::sessions::WINDOW_MAX;
use crate::subscribe::News;

/// The longest message of a server.
const SAID_BYTES_MAX: usize = 1 << 20;
const READ_BYTES: usize = 1 << 16;
/// Between two attempts to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Why a client has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClientError {
    /// What the caller must do.
    pub kind: Kind,
    /// One sentence.
    pub message: String,
}

/// How a client connects.
#[derive(Clone, Debug)]
pub struct Options {
    /// Servers, tried in this order.
    pub servers: Vec<Address>,
    /// How long a lost connection, or one that says nothing while answers are missing, is tried again.
    pub patience: Duration,
    /// Commands that may have no answer at the same time; 1 to 1,024.
    pub window: u32,
    /// Whether commands that change something belong to a session, and so are executed once.
    pub session: bool,
}

impl Options {
    /// One server, five seconds, a window of 256, with a session.
    #[must_use]
    pub fn to(server: Address) -> Self {
        Self { servers: vec![server], patience: Duration::from_secs(5), window: 256, session: true }
    }
}

/// What happened on the way, beside answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection was lost and is open again, there; so many commands were sent again.
    Reconnected {
        /// The server.
        server: String,
        /// Commands of the session without an answer.
        again: usize,
    },
}

/// A command without an answer.
#[derive(Debug)]
struct Sent {
    mark: u64,
    /// As it is sent again: it belongs to the session, or only reads. Nothing where that could do it twice.
    again: Option<Vec<u8>>,
    /// Its connection is lost, and it was not sent again.
    is_lost: bool,
}

/// Whose command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Session,
    /// Nobody's: it only reads, and may be sent as often as one likes.
    Read,
    Nobody,
}

/// One connection, opened again where it is lost.
#[derive(Debug)]
pub struct Client {
    options: Options,
    clock: Arc<dyn Clock>,
    line: Option<Line>,
    outbox: Vec<u8>,
    sent: VecDeque<Sent>,
    next: u64,
    session: Option<Sequence>,
    number: u64,
    events: Vec<Event>,
}

#[derive(Debug)]
struct Line {
    stream: Stream,
    inbox: Vec<u8>,
    taken: usize,
    buffer: Vec<u8>,
}

fn lost(doing: &str, error: &io::Error) -> ClientError {
    let kind = if error.kind() == ErrorKind::PermissionDenied { Kind::Denied } else { Kind::Unavailable };
    ClientError { kind, message: format!("{doing}: {error}") }
}

fn malformed(error: Malformed) -> ClientError {
    ClientError { kind: Kind::Internal, message: format!("the server says what nobody understands: {error}") }
}

impl Client {
    /// Connects, and opens a session if one is wanted.
    ///
    /// # Errors
    /// `Unavailable` if none of the servers answers in time; `Invalid` for a window that cannot be.
    pub fn connect(options: Options, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        if !(1..=WINDOW_MAX).contains(&options.window) || options.servers.is_empty() {
            let message = format!(
                "a window of {} and {} servers; 1 to {WINDOW_MAX}, and one at least",
                options.window,
                options.servers.len()
            );
            return Err(ClientError { kind: Kind::Invalid, message });
        }
        let mut client = Self {
            options,
            clock,
            line: None,
            outbox: Vec::new(),
            sent: VecDeque::new(),
            next: 1,
            session: None,
            number: 0,
            events: Vec::new(),
        };
        client.line = Some(client.dial()?.0);
        if client.options.session {
            client.open_session()?;
        }
        Ok(client)
    }

    /// The session of its commands.
    #[must_use]
    pub const fn session(&self) -> Option<Sequence> {
        self.session
    }

    /// What happened since this was asked last.
    pub fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Commands without an answer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.sent.len()
    }

    /// Lays a batch of operations to be sent; its number. It goes out with [`Client::flush`] or [`Client::receive`].
    ///
    /// # Errors
    /// `Busy` with a full window: receive first.
    pub fn send(&mut self, ops: &[Op]) -> Result<u64, ClientError> {
        let whose = if ops.iter().all(Op::is_read) { Whose::Read } else { Whose::Session };
        self.put(whose, |out, request| Command::lay_batch(out, request, ops))
    }

    /// Lays a call of business logic to be sent.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn send_call(&mut self, logic: u16, input: &[u8]) -> Result<u64, ClientError> {
        self.put(Whose::Session, |out, request| Command::lay_call(out, request, logic, input))
    }

    /// Executes a batch: sends it and gives its answer.
    ///
    /// # Errors
    /// As [`Client::send`] and [`Client::receive`]; `Invalid` while other commands have no answer.
    pub fn execute(&mut self, ops: &[Op]) -> Result<Answer, ClientError> {
        self.alone()?;
        self.send(ops)?;
        self.receive().map(|(_, answer)| answer)
    }

    /// The vote of a branch, which is named by whoever decides.
    ///
    /// # Errors
    /// As [`Client::execute`]; a lost answer is in doubt, and sending it again says whether it is prepared.
    pub fn prepare(&mut self, xid: &Xid, ops: &[Op]) -> Result<Answer, ClientError> {
        self.alone()?;
        self.plain(|out| Command::lay_prepare(out, xid, ops))
    }

    /// Tells a prepared branch its outcome. Telling it again is the same.
    ///
    /// # Errors
    /// As [`Client::execute`].
    pub fn outcome(&mut self, xid: &Xid, committed: bool) -> Result<Answer, ClientError> {
        self.alone()?;
        self.plain(|out| Command::lay_outcome(out, xid, committed))
    }

    /// Sends what was laid.
    ///
    /// # Errors
    /// Only where reconnecting did not help: as [`Client::receive`].
    pub fn flush(&mut self) -> Result<(), ClientError> {
        while !self.outbox.is_empty() {
            let Some(line) = &self.line else {
                self.reconnect()?;
                continue;
            };
            match (&line.stream).write_all(&self.outbox) {
                Ok(()) => self.outbox.clear(),
                Err(_) => self.lose()?,
            }
        }
        Ok(())
    }

    /// The oldest command without an answer, and its answer.
    ///
    /// # Errors
    /// What the server refused, by its kind; `InDoubt` for a command without a session whose connection was lost; `Unavailable` where no
    /// server answers for longer than the patience: then the command is kept, and may be received again.
    pub fn receive(&mut self) -> Result<(u64, Answer), ClientError> {
        loop {
            self.flush()?;
            let Some(first) = self.sent.front() else {
                return Err(ClientError { kind: Kind::Invalid, message: "no command waits for an answer".to_owned() });
            };
            let mark = first.mark;
            if first.is_lost {
                self.sent.pop_front();
                let message = "the connection was lost before the answer came: it was done or not".to_owned();
                return Err(ClientError { kind: Kind::InDoubt, message });
            }
            let Some(line) = &mut self.line else {
                self.reconnect()?;
                continue;
            };
            let read = line.next(|frame| (frame.mark, frame.kind, frame.payload.to_vec()));
            let (found, kind, payload) = match read {
                Ok(read) => read,
                Err(_) => {
                    self.lose()?;
                    continue;
                }
            };
            if found != mark {
                let message = format!("the answer to request {found} came where that to {mark} was due");
                return Err(ClientError { kind: Kind::Internal, message });
            }
            self.sent.pop_front();
            return match kind {
                KIND_ANSWER => Answer::read(&payload).map(|answer| (mark, answer)).map_err(malformed),
                KIND_REFUSED => {
                    let (kind, message) = message::read_refused(&payload).map_err(malformed)?;
                    Err(ClientError { kind, message })
                }
                _ => Err(malformed(Malformed { field: "kind" })),
            };
        }
    }

    /// How the server is.
    ///
    /// # Errors
    /// As [`Client::execute`].
    pub fn status(&mut self) -> Result<Status, ClientError> {
        self.asked(&Ask::Status)
    }

    /// Has the server write a snapshot soon; how it is now.
    ///
    /// # Errors
    /// As [`Client::execute`].
    pub fn snapshot(&mut self) -> Result<Status, ClientError> {
        self.asked(&Ask::Snapshot)
    }

    fn asked(&mut self, ask: &Ask) -> Result<Status, ClientError> {
        self.alone()?;
        let mark = self.mark();
        let Some(line) = &mut self.line else {
            self.reconnect()?;
            return self.asked(ask);
        };
        line.ask(ask, mark)
    }

    fn alone(&self) -> Result<(), ClientError> {
        if self.sent.is_empty() {
            return Ok(());
        }
        let message = format!("{} commands have no answer yet: receive them first", self.sent.len());
        Err(ClientError { kind: Kind::Invalid, message })
    }

    const fn mark(&mut self) -> u64 {
        let mark = self.next;
        self.next += 1;
        mark
    }

    fn open_session(&mut self) -> Result<(), ClientError> {
        match self.plain(Command::lay_open)? {
            Answer::Opened(session) => {
                (self.session, self.number) = (Some(session), 0);
                Ok(())
            }
            _ => Err(malformed(Malformed { field: "session" })),
        }
    }

    /// One command without a session, and its answer.
    fn plain(&mut self, lay: impl FnOnce(&mut Writer)) -> Result<Answer, ClientError> {
        self.put(Whose::Nobody, |out, _| lay(out))?;
        self.receive().map(|(_, answer)| answer)
    }

    fn put(
        &mut self,
        whose: Whose,
        lay_command: impl FnOnce(&mut Writer, Option<Request>),
    ) -> Result<u64, ClientError> {
        if self.sent.len() >= usize::try_from(self.options.window).unwrap_or(usize::MAX) {
            let message = format!("{} commands have no answer: receive some first", self.sent.len());
            return Err(ClientError { kind: Kind::Busy, message });
        }
        let request = self.session.filter(|_| whose == Whose::Session).map(|session| {
            self.number += 1;
            Request { session, number: self.number, window: self.options.window }
        });
        let mut command = Writer::new();
        lay_command(&mut command, request);
        let (mark, mut frame) = (self.mark(), Vec::new());
        lay(&mut frame, Head { mark, kind: KIND_COMMAND, ..Head::default() }, &[command.as_slice()]);
        self.outbox.extend_from_slice(&frame);
        let again = (request.is_some() || whose == Whose::Read).then_some(frame);
        self.sent.push_back(Sent { mark, again, is_lost: false });
        Ok(mark)
    }

    /// The connection is lost. What may be sent again will be; the rest is in doubt when its turn comes.
    fn lose(&mut self) -> Result<(), ClientError> {
        self.line = None;
        self.sent.iter_mut().for_each(|sent| sent.is_lost = sent.again.is_none());
        self.reconnect()
    }

    /// Connects again and sends again what has no answer.
    fn reconnect(&mut self) -> Result<(), ClientError> {
        let (line, server) = self.dial()?;
        self.line = Some(line);
        self.outbox.clear();
        let frames = self.sent.iter().filter_map(|sent| sent.again.as_ref());
        let again = frames.inspect(|frame| self.outbox.extend_from_slice(frame)).count();
        self.events.push(Event::Reconnected { server: server.to_string(), again });
        Ok(())
    }

    /// The first server that answers.
    fn dial(&self) -> Result<(Line, Address), ClientError> {
        let until = self.clock.now().after(self.options.patience);
        loop {
            let mut failed = None;
            for server in &self.options.servers {
                let left = until.since(self.clock.now()).max(Duration::from_millis(1));
                match Line::open(server, left) {
                    Ok(line) => return Ok((line, server.clone())),
                    Err(error) => failed = Some(lost(&format!("connecting to {server}"), &error)),
                }
            }
            if self.clock.now() >= until
                && let Some(failed) = failed
            {
                return Err(failed);
            }
            self.clock.sleep(RETRY_PAUSE);
        }
    }
}

impl Line {
    fn open(server: &Address, patience: Duration) -> io::Result<Self> {
        let stream = Stream::connect(server, patience)?;
        stream.set_timeouts(Some(patience), Some(patience))?;
        Ok(Self { stream, inbox: Vec::new(), taken: 0, buffer: vec![0; READ_BYTES] })
    }

    /// The next frame, as soon as it is there.
    fn next<T>(&mut self, take: impl FnOnce(&assent_frame::Frame<'_>) -> T) -> io::Result<T> {
        loop {
            let rest = self.inbox.get(self.taken..).unwrap_or_default();
            match assent_frame::parse(rest, SAID_BYTES_MAX) {
                Ok(Some((frame, laid))) => {
                    let taken = take(&frame);
                    self.taken += laid;
                    return Ok(taken);
                }
                Ok(None) => {}
                Err(error) => return Err(io::Error::new(ErrorKind::InvalidData, error.to_string())),
            }
            self.inbox.drain(..self.taken.min(self.inbox.len()));
            self.taken = 0;
            match (&self.stream).read(&mut self.buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.inbox.extend_from_slice(self.buffer.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn ask(&mut self, ask: &Ask, mark: u64) -> Result<Status, ClientError> {
        let mut frame = Vec::new();
        ask.lay(&mut frame, mark);
        (&self.stream).write_all(&frame).map_err(|error| lost("asking", &error))?;
        let answer = self.next(|frame| match frame.kind {
            KIND_STATUS => Status::read(frame.payload).map_err(malformed),
            KIND_REFUSED => match message::read_refused(frame.payload) {
                Ok((kind, message)) => Err(ClientError { kind, message }),
                Err(error) => Err(malformed(error)),
            },
            _ => Err(malformed(Malformed { field: "kind" })),
        });
        answer.map_err(|error| lost("asking", &error))?
    }
}

/// News of a subscription, on a connection of their own. A lost connection ends it: subscribe again, and look again.
#[derive(Debug)]
pub struct Feed {
    line: Line,
}

impl Feed {
    /// Subscribes to these assets, or to all; the server keeps up to `most` changes for a slow reader.
    ///
    /// # Errors
    /// `Unavailable`, and what the server refuses.
    pub fn open(server: &Address, wanted: &[AssetId], most: u32, patience: Duration) -> Result<Self, ClientError> {
        let mut line =
            Line::open(server, patience).map_err(|error| lost(&format!("connecting to {server}"), &error))?;
        line.ask(&Ask::Subscribe { wanted: wanted.to_vec(), most }, 1)?;
        Ok(Self { line })
    }

    /// The next news; `None` if none came for this long.
    ///
    /// # Errors
    /// `Unavailable` when the connection is lost.
    pub fn next(&mut self, at_most: Duration) -> Result<Option<Vec<News>>, ClientError> {
        self.line.stream.set_read_timeout(Some(at_most)).map_err(|error| lost("waiting for news", &error))?;
        let news = self.line.next(|frame| match frame.kind {
            KIND_NEWS => message::read_news(frame.payload).map_err(malformed),
            _ => Err(malformed(Malformed { field: "kind" })),
        });
        match news {
            Ok(news) => news.map(Some),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            Err(error) => Err(lost("waiting for news", &error)),
        }
    }
}
