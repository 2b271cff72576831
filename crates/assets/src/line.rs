//! One connection of a client: frames out, frames in.
//!
//! Walk: [`Line::open`] · [`Line::next`] gives the next frame as soon as it is there · [`Line::ask`] one question alone.
//! Deliberately absent: opening it again; that is the client's.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::time::Duration;

use assent_frame::{Frame, Malformed};
use assent_kind::Kind;
use assent_world::net::{Address, Proofs, Stream};

use crate::message::{self, Ask, KIND_REFUSED, KIND_STATUS, Status};

/// The longest message of a server.
const SAID_BYTES_MAX: usize = 1 << 20;
const READ_BYTES: usize = 1 << 16;

/// Why a client has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClientError {
    /// What the caller must do.
    pub kind: Kind,
    /// One sentence.
    pub message: String,
}

impl ClientError {
    pub(crate) const fn new(kind: Kind, message: String) -> Self {
        Self { kind, message }
    }
}

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) stream: Stream,
    inbox: Vec<u8>,
    taken: usize,
    buffer: Vec<u8>,
}

/// Nobody knows.
pub(crate) fn in_doubt(why: &str) -> ClientError {
    ClientError::new(Kind::InDoubt, format!("{why}: it was done or not"))
}

pub(crate) fn lost(doing: &str, error: &io::Error) -> ClientError {
    let kind = if error.kind() == ErrorKind::PermissionDenied { Kind::Denied } else { Kind::Unavailable };
    ClientError::new(kind, format!("{doing}: {error}"))
}

pub(crate) fn malformed(error: Malformed) -> ClientError {
    ClientError::new(Kind::Internal, format!("the server says what nobody understands: {error}"))
}

impl Line {
    /// `connecting` is for the connection alone; then reads and writes take at most `patience`.
    pub(crate) fn open(server: &Address, connecting: Duration, patience: Duration) -> io::Result<Self> {
        let stream = Stream::connect(server, connecting)?;
        stream.set_timeouts(Some(patience), Some(patience))?;
        // Who only waits for news would hear of no server that vanished.
        stream.give_up_after(Some(Proofs::SOON), None)?;
        Ok(Self { stream, inbox: Vec::new(), taken: 0, buffer: vec![0; READ_BYTES] })
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.stream).write_all(bytes)
    }

    /// The next frame, as soon as it is there.
    pub(crate) fn next<T>(&mut self, take: impl FnOnce(&Frame<'_>) -> T) -> io::Result<T> {
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

    pub(crate) fn ask(&mut self, ask: &Ask, mark: u64) -> Result<Status, ClientError> {
        let mut frame = Vec::new();
        ask.lay(&mut frame, mark);
        self.write(&frame).map_err(|error| lost("asking", &error))?;
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
