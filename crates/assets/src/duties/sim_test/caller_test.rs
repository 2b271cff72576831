//! One connection after the other of one who asks a group of assets: what it sends and waits for, wherever the primary is.
//!
//! Walk: [`Caller::ask`] is sent at once if there is a connection, and again with each new one · [`Caller::hear`] gives what came, answers in
//! the order of what was asked · [`Caller::lose`] where it is told to go elsewhere, waits too long, or is cut off.
//! Deliberately absent: what answers mean.

use std::collections::VecDeque;

use assent_frame::{Head, lay, parse};
use assent_membership::Sequence;
use assent_replica::Ready;
use assent_replica::simulation_test::Stage;
use assent_sim::register::Call;

use super::market_test::Market;
use super::pipe_test::Pipe;
use crate::guest::Guest;
use crate::message::{self, KIND_ANSWER, KIND_COMMAND, KIND_ELSEWHERE, KIND_NEWS, KIND_REFUSED, KIND_STATUS, Status};
use crate::{Answer, News, SessionName};

/// Without an answer for so long it asks another member.
const PATIENCE_MS: u64 = 200;

/// A command without an answer.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) mark: u64,
    /// As it is sent: a whole frame.
    frame: Vec<u8>,
    /// What it does to which asset, one after the other.
    pub(super) calls: Vec<(u64, Call)>,
    pub(super) since: u64,
    /// Whose request it is, if it is a session's.
    pub(super) request: Option<(SessionName, u64)>,
    /// It was sent before.
    pub(super) is_again: bool,
}

/// What came.
pub(super) enum Heard {
    Answer(Asked, Answer),
    /// Nothing of this was done.
    Refused,
    News(Vec<News>),
    /// It is subscribed: all that changes behind this is told.
    Since(Sequence),
}

#[derive(Debug)]
struct Connection {
    member: usize,
    token: usize,
    pipe: Pipe,
    inbox: Vec<u8>,
    unsent: VecDeque<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Caller {
    pub(super) waiting: VecDeque<Asked>,
    connection: Option<Connection>,
    /// Whom it asks next.
    pub(super) member: usize,
    marks: u64,
    since_ms: u64,
}

impl Caller {
    pub(super) fn ask(
        &mut self,
        command: &[u8],
        calls: Vec<(u64, Call)>,
        since: u64,
        request: Option<(SessionName, u64)>,
    ) {
        self.marks += 1;
        let mut frame = Vec::new();
        lay(&mut frame, Head { mark: self.marks, kind: KIND_COMMAND, ..Head::default() }, &[command]);
        if let Some(connection) = &mut self.connection {
            connection.unsent.extend(&frame);
        }
        self.waiting.push_back(Asked { mark: self.marks, frame, calls, since, request, is_again: false });
    }

    /// Something that is no command, and is asked once for each connection.
    pub(super) fn say(&mut self, frame: &[u8]) {
        if let Some(connection) = &mut self.connection {
            connection.unsent.extend(frame);
        }
    }

    /// The connection ends here. What was asked, and is not to be asked again, comes back.
    pub(super) fn lose(&mut self, stage: &mut Stage<'_, Market>, is_again: bool) -> Vec<Asked> {
        // A member that came back counts connections anew: this may be another's there.
        if let Some(gone) = self.connection.take().filter(|gone| !gone.pipe.is_over())
            && let Some(up) = &mut stage.seats[gone.member].up
        {
            up.ready.push(Ready { token: gone.token, is_closing: true });
        }
        if !is_again {
            return self.waiting.drain(..).collect();
        }
        self.waiting.iter_mut().for_each(|asked| asked.is_again = true);
        Vec::new()
    }

    /// Whether there was none, and is one now.
    pub(super) fn connect(&mut self, stage: &mut Stage<'_, Market>) -> bool {
        if self.connection.is_some() {
            return false;
        }
        let member = self.member % stage.seats.len();
        let Some(up) = &mut stage.seats[member].up else {
            self.member = member + 1;
            return false;
        };
        let (pipe, (token, only_asks)) = (Pipe::default(), up.front.place().unwrap());
        up.front.enter(token, only_asks, Guest::new(pipe.door_end()));
        let unsent = self.waiting.iter().flat_map(|asked| asked.frame.iter().copied()).collect();
        self.connection = Some(Connection { member, token, pipe, inbox: Vec::new(), unsent });
        self.since_ms = stage.now_ms;
        true
    }

    /// What was asked goes out, or a part of it. Who has something to read then.
    pub(super) fn send(&mut self, stage: &mut Stage<'_, Market>) -> Option<usize> {
        let connection = self.connection.as_mut();
        let connection = connection.filter(|one| !one.unsent.is_empty() && !one.pipe.is_over())?;
        let all = connection.unsent.len();
        let bytes = if stage.rng.below(5) == 0 { stage.rng.index(all) + 1 } else { all };
        connection.pipe.write(connection.unsent.drain(..bytes));
        let up = stage.seats[connection.member].up.as_mut()?;
        up.ready.push(Ready { token: connection.token, is_closing: false });
        // It may have its turn later, with what others send.
        (stage.rng.below(2) == 0).then_some(connection.member)
    }

    /// What came, and whether the connection is to be given up.
    pub(super) fn hear(&mut self, now_ms: u64) -> Result<(Vec<Heard>, bool), String> {
        let Some(connection) = &mut self.connection else { return Ok((Vec::new(), false)) };
        let is_over = connection.pipe.read(&mut connection.inbox);
        let (mut heard, mut taken, mut is_lost) = (Vec::new(), 0, is_over);
        while let Some((frame, laid)) = parse(&connection.inbox[taken..], 1 << 20).map_err(|error| error.to_string())? {
            taken += laid;
            self.since_ms = now_ms;
            match frame.kind {
                KIND_STATUS => {
                    let status = Status::read(frame.payload).map_err(|error| error.to_string())?;
                    heard.push(Heard::Since(status.stats.sequence));
                    continue;
                }
                KIND_NEWS => {
                    heard.push(Heard::News(message::read_news(frame.payload).map_err(|error| error.to_string())?));
                    continue;
                }
                _ => {}
            }
            let first = self.waiting.front();
            if first.is_none_or(|asked| asked.mark != frame.mark) {
                return Err(format!("{} is answered before {first:?}", frame.mark));
            }
            match frame.kind {
                KIND_ANSWER => {
                    let answer = Answer::read(frame.payload).map_err(|error| error.to_string())?;
                    heard.extend(self.waiting.pop_front().map(|asked| Heard::Answer(asked, answer)));
                }
                KIND_REFUSED | KIND_ELSEWHERE => {
                    if frame.kind == KIND_ELSEWHERE {
                        let (primary, _) = message::read_elsewhere(frame.payload).map_err(|error| error.to_string())?;
                        let primary = primary.bytes().last().map(|digit| usize::from(digit - b'0'));
                        self.member = primary.unwrap_or(self.member + 1);
                    }
                    heard.push(Heard::Refused);
                    is_lost = true;
                    break;
                }
                other => return Err(format!("a frame of kind {other:#x}")),
            }
        }
        connection.inbox.drain(..taken);
        if self.waiting.is_empty() {
            self.since_ms = now_ms;
        } else if now_ms.saturating_sub(self.since_ms) > PATIENCE_MS {
            self.member += 1;
            is_lost = true;
        }
        Ok((heard, is_lost))
    }
}
