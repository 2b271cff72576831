//! Answers that are there and not read: their bytes are counted, of all and of each caller, until they have left.
//!
//! Whoever asks for much and reads nothing keeps what he asked for in our memory; over HTTP/2 hundreds of times with one connection.
//!
//! Walk: [`counted`] before it is compressed · each piece of a long body carries its [`Place`] to wherever it waits.
//! Deliberately absent: answers that are made while they are read. `answer` counts those.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use assent_kind::Kind;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse as _, Response};
use http_body::{Body as _, Frame, SizeHint};

use crate::places::{Full, Place, Places};
use crate::prefer::{self, Done};
use crate::problem::Problem;
use crate::shape::COMPRESSED_BYTES_MIN;

/// Shorter ones are not counted: a connection has no more of them than it may have requests.
const SHORT_BYTES: u64 = 32 << 10;
/// What compresses an answer keeps about so much.
const COMPRESSOR_BYTES: u64 = 256 << 10;
/// Bytes of all, and of one caller.
const BYTES_MAX: usize = 256 << 20;
const BYTES_OF_ONE_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(crate) struct Unread(Places);

impl Default for Unread {
    fn default() -> Self {
        Self(Places::new(BYTES_MAX, BYTES_OF_ONE_MAX))
    }
}

impl Unread {
    fn take(&self, whose: &Arc<str>, bytes: u64) -> Result<Place, Problem> {
        self.0.take_many(whose, usize::try_from(bytes).unwrap_or(usize::MAX)).map_err(|full| {
            let (most, whose) = match full {
                Full::All(most) => (most, ""),
                Full::Own(most) => (most, " of this caller"),
            };
            let detail = format!("{most} bytes of answers{whose} are not read yet; read them, or ask for less");
            Problem::of(Kind::Unavailable, detail)
        })
    }
}

/// Counts the bytes of an answer, if it is long; it may be compressed.
pub(crate) fn counted(unread: &Unread, response: Response, whose: &Arc<str>, may_compress: bool) -> Response {
    let Some(bytes) = response.body().size_hint().exact() else { return response };
    let kept = if may_compress && bytes >= COMPRESSED_BYTES_MIN { bytes + COMPRESSOR_BYTES } else { bytes };
    if kept <= SHORT_BYTES {
        return response;
    }
    match unread.take(whose, kept) {
        Ok(place) => response.map(|inside| Body::new(Counted { inside, place: Arc::new(place) })),
        // Who is told to ask again does it again.
        Err(_) if response.extensions().get::<Done>().is_some() => prefer::bare(response),
        Err(problem) => problem.into_response(),
    }
}

struct Counted {
    inside: Body,
    place: Arc<Place>,
}

/// A piece, and the place that its bytes have.
struct Piece {
    bytes: Bytes,
    _place: Arc<Place>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let place = Arc::clone(&self.place);
        let counted = |bytes| Bytes::from_owner(Piece { bytes, _place: place });
        Pin::new(&mut self.inside).poll_frame(context).map_ok(|frame| frame.map_data(counted))
    }

    fn is_end_stream(&self) -> bool {
        self.inside.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inside.size_hint()
    }
}
