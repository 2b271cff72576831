//! How an answer leaves: without a body where that is preferred, its bytes counted until they are read, compressed where that is asked for.
//!
//! Walk: [`pass`] stands before every handler but those of tokens and of the viewer · [`Wish::shape`] is also for what the guard answers at
//! once, before any handler · what nobody asked for costs nothing.
//! Deliberately absent: compression of tokens, whose length would tell of them, and of events, which must not be kept back.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use tower::{Service as _, service_fn};
use tower_http::CompressionLevel;
use tower_http::compression::Compression;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

use crate::guard::Guard;
use crate::identity::Caller;
use crate::prefer;
use crate::unread::{self, Unread};

/// Shorter answers fit a packet as they are.
pub(crate) const COMPRESSED_BYTES_MIN: u64 = 1_024;

/// Lets a request through, and shapes its answer.
pub(crate) async fn pass(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let whose = request.extensions().get::<Caller>().map(|caller| Arc::clone(&caller.name));
    let wish = Wish::of(&request);
    wish.shape(&guard.unread, next.run(request).await, whose.as_ref()).await
}

/// How a request's answer is to leave.
pub(crate) struct Wish {
    is_minimal: bool,
    encodings: Option<Request<()>>,
}

impl Wish {
    pub(crate) fn of(request: &Request) -> Self {
        Self { is_minimal: prefer::is_asked(request), encodings: encodings(request.headers()) }
    }

    pub(crate) async fn shape(self, unread: &Unread, mut response: Response, whose: Option<&Arc<str>>) -> Response {
        if self.is_minimal {
            response = prefer::left_out(response);
        }
        if let Some(whose) = whose {
            response = unread::counted(unread, response, whose, self.encodings.is_some());
        }
        match self.encodings {
            None => varied(response),
            Some(encodings) => Box::pin(compressed(encodings, response)).await,
        }
    }
}

/// Says that it would be another one for who takes it compressed.
fn varied(mut response: Response) -> Response {
    let is_whole =
        [header::CONTENT_ENCODING, header::CONTENT_RANGE].iter().all(|name| !response.headers().contains_key(name));
    if is_whole && worth_it().should_compress(&response) {
        response.headers_mut().append(header::VARY, HeaderValue::from_name(header::ACCEPT_ENCODING));
    }
    response
}

/// What is said of encodings, as a request of its own.
fn encodings(headers: &HeaderMap) -> Option<Request<()>> {
    let mut request = None;
    for value in headers.get_all(header::ACCEPT_ENCODING) {
        let request = request.get_or_insert_with(Request::default);
        request.headers_mut().append(header::ACCEPT_ENCODING, value.clone());
    }
    request
}

async fn compressed(encodings: Request<()>, response: Response) -> Response {
    let mut response = Some(response);
    let answer = service_fn(move |_: Request<()>| {
        let response = response.take().unwrap_or_default();
        async move { Ok::<_, Infallible>(response) }
    });
    let mut service = Compression::new(answer).quality(CompressionLevel::Fastest).compress_when(worth_it());
    match service.call(encodings).await {
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    }
}

fn worth_it() -> impl Predicate {
    let bytes = NotForContentType::const_new("application/octet-stream");
    SizeAbove::new(COMPRESSED_BYTES_MIN).and(NotForContentType::SSE).and(bytes)
}
