//! Answers whose length nobody knows before they are written: made piece by piece, as fast as they are read.
//!
//! ```text
//!   pieces ──work──▶ the first batch ── all of it? ──▶ an answer with its length
//!                         └─ more ──▶ a place (or 503) ──▶ sent; the next batch is made when there is room for it
//! ```
//! Walk: [`Begun::of`] is called where work may block · [`Answers::of`] makes the response. Between two batches no thread is
//! held, and a caller that leaves ends the work with the batch that is being made. An answer that fails behind its first
//! batch is cut off: its connection ends before the answer does, and the log says why.
//! Deliberately absent: a total length. A batch is bounded, so are the answers that are under way.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use assent_kind::Kind;
use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use http_body::Frame;

use crate::identity::Caller;
use crate::places::{Full, Place, Places};
use crate::pool::Pool;
use crate::problem::Problem;

/// A batch is sent when it is that long; what is shorter is answered at once.
const BATCH_BYTES: usize = 256 << 10;
/// Long answers under way at a time.
const LONG_MAX: usize = 64;
/// Of one caller.
const LONG_OF_ONE_MAX: usize = 16;
/// What cannot be made in pieces may be so long.
const WHOLE_BYTES_MAX: usize = 16 << 20;

/// What comes, piece by piece; the first error is the last.
pub(crate) type Pieces = Box<dyn Iterator<Item = Result<Vec<u8>, Problem>> + Send>;

/// An answer of which the first batch is there.
pub(crate) struct Begun {
    first: Vec<u8>,
    rest: Option<Pieces>,
}

impl Begun {
    /// Makes the first batch. What fails here is told with its status.
    pub(crate) fn of(mut pieces: Pieces) -> Result<Self, Problem> {
        let (first, is_more) = batch(&mut pieces)?;
        Ok(Self { first, rest: is_more.then_some(pieces) })
    }
}

/// The next batch, and whether there may be more.
fn batch(pieces: &mut Pieces) -> Result<(Vec<u8>, bool), Problem> {
    let mut bytes = Vec::new();
    while bytes.len() < BATCH_BYTES {
        match pieces.next() {
            // The first one is taken as it is: most answers have no other.
            Some(piece) if bytes.is_empty() => bytes = piece?,
            Some(piece) => bytes.extend_from_slice(&piece?),
            None => return Ok((bytes, false)),
        }
    }
    Ok((bytes, true))
}

/// The long answers of a listener.
#[derive(Debug)]
pub(crate) struct Answers(Places);

impl Default for Answers {
    fn default() -> Self {
        Self(Places::new(LONG_MAX, LONG_OF_ONE_MAX))
    }
}

impl Answers {
    /// The response: whole, or as long as it takes.
    pub(crate) fn of(&self, told: HeaderMap, begun: Begun, pool: &Pool, caller: &Caller) -> Result<Response, Problem> {
        let Begun { first, rest } = begun;
        let Some(rest) = rest else { return Ok((told, first).into_response()) };
        let full = |full| {
            let (most, whose) = match full {
                Full::All(most) => (most, ""),
                Full::Own(most) => (most, " of this caller"),
            };
            let detail = format!("{most} long answers{whose} are being read; read them, or ask for less");
            Problem::of(Kind::Unavailable, detail)
        };
        let place = self.0.take(&caller.name).map_err(full)?;
        let body = Long { first: Some(first), next: Next::Idle(rest), pool: pool.clone(), _place: place };
        Ok((told, Body::new(body)).into_response())
    }
}

type Made = Result<(Vec<u8>, Option<Pieces>), Problem>;

enum Next {
    Idle(Pieces),
    Made(Pin<Box<dyn Future<Output = Made> + Send>>),
    Over,
}

struct Long {
    first: Option<Vec<u8>>,
    next: Next,
    pool: Pool,
    _place: Place,
}

impl Long {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first.into()))));
        }
        loop {
            match std::mem::replace(&mut self.next, Next::Over) {
                Next::Over => return Poll::Ready(None),
                Next::Idle(mut pieces) => {
                    let pool = self.pool.clone();
                    let make = async move {
                        let work = move || batch(&mut pieces).map(|(bytes, more)| (bytes, more.then_some(pieces)));
                        pool.run(work).await
                    };
                    self.next = Next::Made(Box::pin(make));
                }
                Next::Made(mut making) => {
                    let Poll::Ready(made) = making.as_mut().poll(context) else {
                        self.next = Next::Made(making);
                        return Poll::Pending;
                    };
                    return Poll::Ready(self.made(made));
                }
            }
        }
    }

    fn made(&mut self, made: Made) -> Option<Result<Frame<Bytes>, io::Error>> {
        match made {
            Ok((bytes, rest)) => {
                self.next = rest.map_or(Next::Over, Next::Idle);
                (!bytes.is_empty()).then(|| Ok(Frame::data(bytes.into())))
            }
            Err(problem) => {
                tracing::warn!(kind = problem.kind, why = %problem.detail, "a long answer is cut off");
                Some(Err(io::Error::other(problem.detail)))
            }
        }
    }
}

impl http_body::Body for Long {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.poll(context)
    }
}

/// Takes bytes up to a limit, for what is written at once.
pub(crate) struct Whole {
    bytes: Vec<u8>,
    most: usize,
    is_full: bool,
}

impl Whole {
    pub(crate) const fn new() -> Self {
        Self::of(WHOLE_BYTES_MAX)
    }

    /// Up to that many.
    pub(crate) const fn of(most: usize) -> Self {
        Self { bytes: Vec::new(), most, is_full: false }
    }

    /// Adds these, or says that it is too long.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        if self.takes(bytes) { Ok(()) } else { Err(self.too_long()) }
    }

    /// What was written, or that it was too long: then whoever wrote has failed.
    pub(crate) fn taken<E: Into<Problem>>(self, written: Result<(), E>) -> Result<Vec<u8>, Problem> {
        match written {
            Ok(()) => Ok(self.bytes),
            Err(_) if self.is_full => Err(self.too_long()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether there is room for these, and for all before them.
    fn takes(&mut self, bytes: &[u8]) -> bool {
        self.is_full |= bytes.len() > self.most - self.bytes.len();
        if !self.is_full {
            self.bytes.extend_from_slice(bytes);
        }
        !self.is_full
    }

    fn too_long(&self) -> Problem {
        Problem::invalid(format!("the answer is longer than {} bytes; ask for less", self.most))
    }
}

impl io::Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.takes(bytes) { Ok(bytes.len()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
