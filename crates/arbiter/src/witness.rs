//! The member's side of `assent witness`: one connection for questions and one for the watch, made when they are needed.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use assent_kind::Kind;
use assent_membership::Configuration;
use assent_world::net::{Address, Stream};

use crate::arbiter::{Arbiter, ArbiterError, GroupName};
use crate::message::{self, KIND_ANSWER, Question, Refusal};

/// A group's configuration at a witness.
#[derive(Debug)]
pub struct Witness {
    at: Address,
    group: GroupName,
    limit: Duration,
    questions: Mutex<Line>,
    /// A watch lasts; nobody waits behind it.
    watches: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    stream: Option<Stream>,
    asked: u64,
}

/// A question without an answer.
struct Lost {
    /// Whether it may have arrived.
    sent: bool,
    error: io::Error,
}

impl Witness {
    /// Asks there. Connecting, and the answer to a question, take at most `limit` each.
    #[must_use]
    pub fn new(at: Address, group: GroupName, limit: Duration) -> Self {
        Self { at, group, limit, questions: Mutex::default(), watches: Mutex::default() }
    }

    fn question(&self, expect: u64, to: Option<&Configuration>) -> Question {
        Question { group: self.group.clone(), expect, wait_ms: 0, to: to.cloned() }
    }

    fn ask(&self, line: &Mutex<Line>, question: &Question) -> Result<Configuration, ArbiterError> {
        let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = self.limit.saturating_add(Duration::from_millis(u64::from(question.wait_ms)));
        let answer = line.ask(&self.at, question, (self.limit, limit)).map_err(|lost| {
            line.stream = None;
            if lost.sent && question.to.is_some() {
                ArbiterError::InDoubt { at: self.at.to_string(), why: lost.error.to_string() }
            } else {
                ArbiterError::unavailable(&self.at, &lost.error)
            }
        })?;
        answer.map_err(|refusal| self.refused(refusal, question))
    }

    fn refused(&self, refusal: Refusal, question: &Question) -> ArbiterError {
        let (at, why) = (self.at.to_string(), refusal.why);
        match (&question.to, refusal.kind) {
            (Some(to), Kind::Invalid) if to.version <= question.expect => {
                ArbiterError::Version { expect: question.expect, to: to.version }
            }
            (Some(_), Kind::Full) => ArbiterError::Refused { at, why },
            // Its disk failed under the change, and what is on it is not known.
            (Some(_), Kind::Internal | Kind::InDoubt) => ArbiterError::InDoubt { at, why },
            _ => ArbiterError::Unavailable { at, why },
        }
    }
}

impl Line {
    fn ask(
        &mut self,
        at: &Address,
        question: &Question,
        (connecting, answering): (Duration, Duration),
    ) -> Result<Result<Configuration, Refusal>, Lost> {
        // One that ended while nobody spoke has heard nothing.
        if self.stream.as_ref().is_some_and(Stream::has_ended) {
            self.stream = None;
        }
        let unsent = |error| Lost { sent: false, error };
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => Stream::connect(at, connecting).map_err(unsent)?,
        };
        stream.set_timeouts(Some(answering), Some(connecting)).map_err(unsent)?;
        self.asked = self.asked.wrapping_add(1);
        let mut bytes = Vec::new();
        message::lay_question(&mut bytes, self.asked, question);
        let lost = |error| Lost { sent: true, error };
        (&stream).write_all(&bytes).map_err(lost)?;
        let answer = answer(&stream, self.asked).map_err(lost)?;
        self.stream = Some(stream);
        Ok(answer)
    }
}

fn answer(stream: &Stream, mark: u64) -> io::Result<Result<Configuration, Refusal>> {
    let broken = |why: String| io::Error::new(ErrorKind::InvalidData, why);
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        match assent_frame::parse(&bytes, message::BYTES_MAX) {
            Ok(Some((frame, _))) if frame.kind == KIND_ANSWER && frame.mark == mark => {
                return message::read_answer(frame.payload).map_err(broken);
            }
            Ok(Some((frame, _))) => return Err(broken(format!("message {} of kind {}", frame.mark, frame.kind))),
            Ok(None) => {}
            Err(error) => return Err(broken(error.to_string())),
        }
        match (&mut &*stream).read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => bytes.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Arbiter for Witness {
    fn read(&self) -> Result<Configuration, ArbiterError> {
        self.ask(&self.questions, &self.question(0, None))
    }

    fn change(&self, expect: u64, to: &Configuration) -> Result<Configuration, ArbiterError> {
        if to.version <= expect {
            return Err(ArbiterError::Version { expect, to: to.version });
        }
        self.ask(&self.questions, &self.question(expect, Some(to)))
    }

    fn watch(&self, seen: u64, at_most: Duration) -> Result<Configuration, ArbiterError> {
        let wait_ms = u32::try_from(at_most.as_millis()).unwrap_or(u32::MAX);
        self.ask(&self.watches, &Question { wait_ms, ..self.question(seen, None) })
    }
}
