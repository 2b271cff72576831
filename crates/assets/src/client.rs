//! A blocking client that pipelines, and whose session is executed once: also when a connection is lost in the middle, or a primary.
//!
//! Walk: [`Client::send`] lays a command and gives its number · [`Client::receive`] gives the oldest answer that is missing; what was laid
//! goes out first, no more of it than a server can take without being read · a lost connection is opened again at the next server
//! that answers, and everything of the session that has no answer is sent again, as it was · a server of a group that does not lead
//! says so, and has done nothing: then everything goes to the one that does. Without a session what was sent on a lost connection
//! is in doubt.
//! Deliberately absent: threads, a pool. News of a subscription come on a connection of their own ([`crate::Feed`]).

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use assent_frame::{Head, Malformed, Writer, lay};
use assent_ids::Xid;
use assent_kind::Kind;
use assent_world::{Clock, Moment};

use crate::answer::Answer;
use crate::command::{Command, INPUT_BYTES_MAX, OPS_MAX, Op, Request, SessionName};
use crate::line::{ClientError, Line, in_doubt, lost, malformed};
use crate::message::{self, Ask, KIND_ANSWER, KIND_COMMAND, KIND_ELSEWHERE, KIND_REFUSED, Status, Word};
use crate::options::{Event, Options};
use crate::sessions::WINDOW_MAX;

mod roads;

/// Between two rounds over all servers.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// Where there are others, one that takes no connection for so long is passed by.
const CONNECT_AT_MOST: Duration = Duration::from_secs(1);
/// Bytes of commands without an answer that are on the way, or one command. They fit the buffers of a socket, so a write never waits
/// for a server that waits for its answers to be read.
const FLYING_BYTES_MAX: usize = 1 << 16;
/// Events that nobody asked for; the oldest go.
const EVENTS_MAX: usize = 256;

/// A command without an answer.
#[derive(Debug)]
struct Sent {
    mark: u64,
    frame: Vec<u8>,
    /// Its number in the session.
    number: Option<u64>,
    /// Whether doing it twice is the same as once: it belongs to the session, or only reads, or opens a session.
    may_repeat: bool,
    /// Its connection is lost, and it was not sent again.
    is_lost: bool,
    /// It was sent on a connection that is lost: a server may have it.
    may_be_kept: bool,
}

/// Whose command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Session,
    /// Nobody's: it may be sent as often as one likes.
    Anyone,
    Nobody,
}

/// Why the session takes no more commands until all that it has are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// This number was refused and nothing was done: it is free again, and what came behind it is not executed.
    Refused(u64),
    /// Commands of it that were answered are gone: none behind them is executed.
    Behind,
    /// Nothing more is known of it.
    Over,
}

/// One connection, opened again where it is lost.
#[derive(Debug)]
pub struct Client {
    options: Options,
    clock: Arc<dyn Clock>,
    line: Option<Line>,
    sent: VecDeque<Sent>,
    /// So many of the oldest are written.
    written: usize,
    /// Their bytes.
    flying: usize,
    /// Answers that were read to make room.
    answered: VecDeque<(u64, Result<Answer, ClientError>)>,
    next: u64,
    session: Option<SessionName>,
    number: u64,
    in_session: usize,
    trouble: Option<Trouble>,
    /// The server that is tried, or has the connection.
    at: usize,
    /// Where another server says that the lead is.
    hint: Option<usize>,
    /// Attempts since the last answer, and why the last one came to nothing.
    tries: usize,
    /// Servers that were left since then because they said nothing.
    silences: u32,
    why: Option<ClientError>,
    /// When the wait for an answer began.
    since: Moment,
    /// When the last answer came, and who gave it.
    served_at: Moment,
    served_by: Option<usize>,
    /// Connected anew since then, with so many commands without an answer.
    again: Option<usize>,
    events: VecDeque<Event>,
    scratch: Vec<u8>,
}

impl Client {
    /// Connects, and opens a session if one is wanted.
    ///
    /// # Errors
    /// `Unavailable` if none of the servers answers in time; `Invalid` for a window that cannot be.
    pub fn connect(options: Options, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        if !(1..=WINDOW_MAX).contains(&options.window) || options.servers.is_empty() {
            let (window, servers) = (options.window, options.servers.len());
            let message = format!("a window of {window} and {servers} servers; 1 to {WINDOW_MAX}, and one at least");
            return Err(ClientError::new(Kind::Invalid, message));
        }
        let mut client = Self {
            since: clock.now(),
            served_at: clock.now(),
            options,
            clock,
            line: None,
            sent: VecDeque::new(),
            written: 0,
            flying: 0,
            answered: VecDeque::new(),
            next: 1,
            session: None,
            number: 0,
            in_session: 0,
            trouble: None,
            at: 0,
            hint: Some(0),
            tries: 0,
            silences: 0,
            why: None,
            served_by: None,
            again: None,
            events: VecDeque::new(),
            scratch: Vec::new(),
        };
        client.reconnect()?;
        if client.options.session {
            client.open_session()?;
        }
        Ok(client)
    }

    /// The session of its commands.
    #[must_use]
    pub const fn session(&self) -> Option<SessionName> {
        self.session
    }

    /// What happened since this was asked last; of very many the newest.
    pub fn events(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }

    /// Commands whose answer was not received.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.sent.len() + self.answered.len()
    }

    /// Lays a batch of operations to be sent; its number. It goes out with [`Client::flush`] or [`Client::receive`].
    ///
    /// # Errors
    /// `Busy` with a full window, or behind a refused command: receive first. `Invalid` for none or too many operations.
    pub fn send(&mut self, ops: &[Op]) -> Result<u64, ClientError> {
        refuse_count(ops)?;
        let whose = if ops.iter().all(Op::is_read) { Whose::Anyone } else { Whose::Session };
        self.put(whose, |out, request| Command::lay_batch(out, request, ops))
    }

    /// The same for a whole branch, committed in one phase: its answer comes when it is durable, whatever the server's `--ack` says.
    pub(crate) fn send_one_phase(&mut self, ops: &[Op]) -> Result<u64, ClientError> {
        refuse_count(ops)?;
        self.put(Whose::Session, |out, request| Command::lay_one_phase(out, request, ops))
    }

    /// Lays a call of business logic to be sent.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn send_call(&mut self, logic: u16, input: &[u8]) -> Result<u64, ClientError> {
        if input.len() > INPUT_BYTES_MAX {
            let message = format!("an input of {} bytes; at most {INPUT_BYTES_MAX} are taken", input.len());
            return Err(ClientError::new(Kind::Invalid, message));
        }
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
        refuse_count(ops)?;
        self.alone()?;
        self.plain(Whose::Nobody, |out| Command::lay_prepare(out, xid, ops))
    }

    /// Tells a prepared branch its outcome. Telling it again is the same.
    ///
    /// # Errors
    /// As [`Client::execute`].
    pub fn outcome(&mut self, xid: &Xid, committed: bool) -> Result<Answer, ClientError> {
        self.alone()?;
        self.plain(Whose::Anyone, |out| Command::lay_outcome(out, xid, committed))
    }

    /// Which branches wait for their outcome.
    ///
    /// # Errors
    /// As [`Client::execute`].
    pub fn in_doubt(&mut self) -> Result<Vec<Xid>, ClientError> {
        self.alone()?;
        match self.plain(Whose::Anyone, Command::lay_in_doubt)? {
            Answer::Listed(names) => Ok(names),
            _ => Err(malformed(Malformed { field: "branches" })),
        }
    }

    /// Lays a vote, an outcome or a question of a branch, to be received in its turn.
    pub(crate) fn send_laid(&mut self, may_repeat: bool, lay: impl FnOnce(&mut Writer)) -> Result<u64, ClientError> {
        self.put(if may_repeat { Whose::Anyone } else { Whose::Nobody }, |out, _| lay(out))
    }

    /// Sends what was laid.
    ///
    /// # Errors
    /// `Unavailable` where no server is reached: what was laid is kept.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.since = self.clock.now();
        while self.written < self.sent.len() {
            if self.line.is_none() {
                self.reconnect()?;
            }
            self.write_some();
            if self.written < self.sent.len() && self.line.is_some() {
                let answered = self.one()?;
                self.answered.push_back(answered);
            }
        }
        Ok(())
    }

    /// The oldest command whose answer was not received, and its answer.
    ///
    /// # Errors
    /// What the server refused, by its kind; `InDoubt` for a command without a session whose connection was lost; `Unavailable` where no
    /// server answers for longer than the patience: then the command is kept, and may be received again.
    pub fn receive(&mut self) -> Result<(u64, Answer), ClientError> {
        let (mark, answer) = match self.answered.pop_front() {
            Some(answered) => answered,
            None => self.one()?,
        };
        answer.map(|answer| (mark, answer))
    }

    /// How the server is that it is connected to.
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

    /// A person's word to a node of a group; how it is then.
    ///
    /// # Errors
    /// As [`Client::execute`], and why it cannot be followed.
    pub fn word(&mut self, word: Word) -> Result<Status, ClientError> {
        self.asked(&Ask::Word(word))
    }

    fn asked(&mut self, ask: &Ask) -> Result<Status, ClientError> {
        self.alone()?;
        self.since = self.clock.now();
        let mark = self.mark();
        if self.line.is_none() {
            self.reconnect()?;
        }
        let Some(line) = &mut self.line else { return Err(nobody()) };
        let status = line.ask(ask, mark);
        if status.as_ref().is_err_and(|error| matches!(error.kind, Kind::Unavailable | Kind::Internal)) {
            // Its late answer would be taken for another one's.
            self.line = None;
        }
        status
    }

    fn alone(&self) -> Result<(), ClientError> {
        match self.waiting() {
            0 => Ok(()),
            waiting => {
                let message = format!("{waiting} commands have no answer yet: receive them first");
                Err(ClientError::new(Kind::Invalid, message))
            }
        }
    }

    const fn mark(&mut self) -> u64 {
        let mark = self.next;
        self.next += 1;
        mark
    }

    fn open_session(&mut self) -> Result<(), ClientError> {
        let name = SessionName(self.options.dice.roll());
        match self.plain(Whose::Anyone, |out| Command::lay_open(out, name))? {
            Answer::Opened(session) if session == name => {
                (self.session, self.number) = (Some(session), 0);
                Ok(())
            }
            _ => Err(malformed(Malformed { field: "session" })),
        }
    }

    /// One command without a session, and its answer. Nothing of it stays behind where there is none: its answer would be taken for
    /// another one's.
    fn plain(&mut self, whose: Whose, lay: impl FnOnce(&mut Writer)) -> Result<Answer, ClientError> {
        self.put(whose, |out, _| lay(out))?;
        let answer = self.receive().map(|(_, answer)| answer);
        if let Some(left) = self.take_first() {
            (self.line, self.written, self.flying) = (None, 0, 0);
            if !left.may_repeat && left.may_be_kept {
                return Err(in_doubt("no server answers"));
            }
        }
        answer
    }

    fn put(
        &mut self,
        whose: Whose,
        lay_command: impl FnOnce(&mut Writer, Option<Request>),
    ) -> Result<u64, ClientError> {
        let waiting = self.waiting();
        if waiting >= usize::try_from(self.options.window).unwrap_or(usize::MAX) {
            return Err(ClientError::new(Kind::Busy, format!("{waiting} commands have no answer: receive some first")));
        }
        let request = if whose == Whose::Session && self.options.session { Some(self.request()?) } else { None };
        let mut command = Writer::new();
        lay_command(&mut command, request);
        let (mark, mut frame) = (self.mark(), Vec::new());
        lay(&mut frame, Head { mark, kind: KIND_COMMAND, ..Head::default() }, &[command.as_slice()]);
        let number = request.map(|request| request.number);
        self.in_session += usize::from(number.is_some());
        let may_repeat = number.is_some() || whose == Whose::Anyone;
        self.sent.push_back(Sent { mark, frame, number, may_repeat, is_lost: false, may_be_kept: false });
        Ok(mark)
    }

    /// The next number of the session.
    fn request(&mut self) -> Result<Request, ClientError> {
        if let Some(trouble) = self.trouble {
            if self.in_session > 0 {
                let message = "a command before this one was refused: receive what has no answer first".to_owned();
                return Err(ClientError::new(Kind::Busy, message));
            }
            match trouble {
                Trouble::Refused(number) => self.number = number.saturating_sub(1),
                Trouble::Over | Trouble::Behind => self.session = None,
            }
            self.trouble = None;
        }
        if self.session.is_none() {
            if self.waiting() > 0 {
                let message = "another session must be opened first: receive what has no answer".to_owned();
                return Err(ClientError::new(Kind::Busy, message));
            }
            self.open_session()?;
        }
        let session = self.session.ok_or_else(nobody)?;
        self.number += 1;
        Ok(Request { session, number: self.number, window: self.options.window })
    }

    /// The answer to the oldest command that has none. The outer error is nobody's: nothing has changed.
    fn one(&mut self) -> Result<(u64, Result<Answer, ClientError>), ClientError> {
        self.since = self.clock.now();
        loop {
            let Some(first) = self.sent.front() else {
                return Err(ClientError::new(Kind::Invalid, "no command waits for an answer".to_owned()));
            };
            let mark = first.mark;
            if first.is_lost {
                self.take_first();
                return Ok((mark, Err(in_doubt("the connection was lost before the answer came"))));
            }
            if self.line.is_none() {
                self.reconnect()?;
            }
            self.write_some();
            let Some(line) = &mut self.line else { continue };
            let (found, kind, payload) = match line.next(|frame| (frame.mark, frame.kind, frame.payload.to_vec())) {
                Ok(read) => read,
                Err(error) => {
                    self.silences += u32::from(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
                    self.lose(lost("waiting for an answer", &error));
                    continue;
                }
            };
            if kind == KIND_ELSEWHERE {
                self.go_elsewhere(&payload);
                continue;
            }
            if found != mark {
                let message = format!("the answer to request {found} came where that to {mark} was due");
                self.lose(ClientError::new(Kind::Internal, message.clone()));
                return Err(ClientError::new(Kind::Internal, message));
            }
            self.was_served();
            let sent = self.take_first();
            return Ok((mark, self.answer(sent, kind, &payload)));
        }
    }

    fn take_first(&mut self) -> Option<Sent> {
        let sent = self.sent.pop_front()?;
        if self.written > 0 {
            self.written -= 1;
            let bytes = if sent.is_lost { 0 } else { sent.frame.len() };
            self.flying = self.flying.saturating_sub(bytes);
        }
        self.in_session -= usize::from(sent.number.is_some());
        Some(sent)
    }

    fn answer(&mut self, sent: Option<Sent>, kind: u16, payload: &[u8]) -> Result<Answer, ClientError> {
        let may_be_kept = sent.as_ref().is_some_and(|sent| sent.may_be_kept);
        let number = sent.and_then(|sent| sent.number);
        match kind {
            KIND_ANSWER => {
                let answer = Answer::read(payload).map_err(malformed)?;
                match (&answer, self.trouble) {
                    (Answer::InDoubt, _) if number.is_some() => self.session_is_over(),
                    (Answer::Gap { .. }, Some(Trouble::Refused(_))) => {
                        let message = "a command before it was refused, so this was not done: send it again".to_owned();
                        return Err(ClientError::new(Kind::Busy, message));
                    }
                    // The one before it may be done yet, and so may this one behind it.
                    (Answer::Gap { .. }, Some(Trouble::Over)) => return Err(in_doubt("its session is over")),
                    // The server knows fewer commands of it than were answered: what was lost is for the caller to look for.
                    (Answer::Gap { .. }, None | Some(Trouble::Behind)) if number.is_some() => {
                        self.session_is(Trouble::Behind);
                        let message =
                            "commands of its session that were answered are lost, so this was not done: send it again";
                        return Err(ClientError::new(Kind::Busy, message.to_owned()));
                    }
                    _ => {}
                }
                Ok(answer)
            }
            KIND_REFUSED => {
                let (kind, message) = message::read_refused(payload).map_err(malformed)?;
                match number {
                    Some(_) if kind == Kind::InDoubt => self.session_is_over(),
                    // What is refused now may be in the log since it was sent first: its number is not free.
                    Some(_) if may_be_kept => {
                        self.session_is_over();
                        return Err(in_doubt(&format!("sent on a lost connection, and refused now ({message})")));
                    }
                    Some(number) if self.trouble.is_none() => self.trouble = Some(Trouble::Refused(number)),
                    _ => {}
                }
                Err(ClientError { kind, message })
            }
            _ => Err(malformed(Malformed { field: "kind" })),
        }
    }

    fn session_is_over(&mut self) {
        self.session_is(Trouble::Over);
    }

    fn session_is(&mut self, trouble: Trouble) {
        if !matches!(self.trouble, Some(Trouble::Over | Trouble::Behind)) {
            self.tell(Event::SessionLost);
        }
        self.trouble = Some(trouble);
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Writes what may be on its way at once.
    fn write_some(&mut self) {
        let Some(line) = &self.line else { return };
        self.scratch.clear();
        for sent in self.sent.iter().skip(self.written) {
            let bytes = sent.frame.len();
            if self.flying > 0 && self.flying + bytes > FLYING_BYTES_MAX {
                break;
            }
            self.written += 1;
            if !sent.is_lost {
                self.flying += bytes;
                self.scratch.extend_from_slice(&sent.frame);
            }
        }
        if self.scratch.is_empty() {
            return;
        }
        if let Err(error) = line.write(&self.scratch) {
            self.lose(lost("sending", &error));
        }
    }
}

fn refuse_count(ops: &[Op]) -> Result<(), ClientError> {
    match ops.len() {
        1..=OPS_MAX => Ok(()),
        count => {
            let message = format!("{count} operations; a command has 1 to {OPS_MAX}");
            Err(ClientError::new(Kind::Invalid, message))
        }
    }
}

fn nobody() -> ClientError {
    ClientError::new(Kind::Unavailable, "no server answers".to_owned())
}
