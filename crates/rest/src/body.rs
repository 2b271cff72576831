//! A request's body, gathered up to a limit, and the JSON in it. The memory of long ones is counted, of all and of each caller, from where
//! it comes to where it was used.
//!
//! Walk: the guard says whose it is ([`Bodies::of`]) · [`whole`] gathers it, and takes its places as it grows.

use std::sync::Arc;

use assent_kind::Kind;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

use crate::places::{Full, Place, Places};
use crate::pool::Pool;
use crate::problem::Problem;

/// Shorter ones are not counted: there are no more of them than requests.
const UNCOUNTED_BYTES: usize = 32 << 10;
/// Bytes of all, or as many as a few of the longest have.
const BYTES_MAX: usize = 256 << 20;
const LONGEST: usize = 4;

/// Bytes of bodies that are kept.
#[derive(Clone, Debug)]
pub(crate) struct Bodies(Places);

impl Bodies {
    /// Where no body is longer than that. Where callers are known, one alone does not get a quarter.
    pub(crate) fn new(longest: u32, is_known: bool) -> Self {
        let all = usize::try_from(longest).map_or(usize::MAX, |longest| longest.saturating_mul(LONGEST)).max(BYTES_MAX);
        Self(Places::new(all, if is_known { all - all / 4 } else { all }))
    }

    /// This caller's.
    pub(crate) fn of(&self, whose: &Arc<str>) -> Owner {
        Owner { bodies: self.clone(), whose: Arc::clone(whose) }
    }
}

/// Whose body it is: goes with the request.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    bodies: Bodies,
    whose: Arc<str>,
}

impl Owner {
    fn take(&self, bytes: usize) -> Result<Place, Problem> {
        self.bodies.0.take_many(&self.whose, bytes).map_err(|full| {
            let (most, whose) = match full {
                Full::All(most) => (most, ""),
                Full::Own(most) => (most, " of this caller"),
            };
            Problem::of(Kind::Unavailable, format!("{most} bytes of bodies{whose} are under way; send it again"))
        })
    }
}

/// All of a body, if it is not longer, and there is room for it.
pub(crate) async fn whole(request: Request, bytes_max: usize) -> Result<Bytes, Problem> {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let too_long = || {
        let detail = format!("the body is longer than {bytes_max} bytes");
        Problem::invalid(detail).status(StatusCode::PAYLOAD_TOO_LARGE)
    };
    if length
        .and_then(|text| text.parse::<u64>().ok())
        .is_some_and(|told| told > u64::try_from(bytes_max).unwrap_or(u64::MAX))
    {
        return Err(too_long());
    }
    let owner = request.extensions().get::<Owner>().cloned();
    let mut body = request.into_body();
    // As long as it has come, not as long as it says: whoever sends little keeps little, in however many pieces.
    let mut all = Gathered::default();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Problem::invalid(format!("the body could not be read to its end: {error}")))?;
        let Ok(piece) = frame.into_data() else { continue };
        if all.bytes.len() + piece.len() > bytes_max {
            return Err(too_long());
        }
        all.push(&piece, bytes_max, owner.as_ref())?;
    }
    Ok(if all.places.is_empty() { all.bytes.into() } else { Bytes::from_owner(all) })
}

/// What has come, and the places that it has.
#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl Gathered {
    fn push(&mut self, piece: &[u8], bytes_max: usize, owner: Option<&Owner>) -> Result<(), Problem> {
        let (had, needs) = (self.bytes.capacity(), self.bytes.len() + piece.len());
        if needs > had {
            let has = needs.max(had.saturating_mul(2).min(bytes_max));
            if let Some(owner) = owner.filter(|_| has > UNCOUNTED_BYTES) {
                let counted = if self.places.is_empty() { 0 } else { had };
                self.places.push(owner.take(has - counted)?);
            }
            self.bytes.reserve_exact(has - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

impl AsRef<[u8]> for Gathered {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A longer one is taken apart where that holds nobody up.
const SHORT_BYTES: usize = 16 << 10;

/// What is found in a body that may be long.
pub(crate) async fn taken<T: Send + 'static>(
    bytes: Bytes,
    pool: &Pool,
    take: impl FnOnce(&[u8]) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    if bytes.len() <= SHORT_BYTES {
        return take(&bytes);
    }
    pool.run(move || take(&bytes)).await
}

/// An object from JSON, whatever the body says of its own type.
pub(crate) fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // A list would be taken for the fields in their order.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::invalid("the body is not what is expected: a JSON object"));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Problem::invalid(format!("the body is not what is expected: {error}")))
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use axum::body::Body;
    use http_body::Frame;

    use super::*;

    /// Pieces of one byte, of which it is seen how many are kept.
    struct Crumbs(usize, Arc<()>);

    struct Crumb(#[expect(dead_code, reason = "counted by its drop")] Arc<()>);

    impl AsRef<[u8]> for Crumb {
        fn as_ref(&self) -> &[u8] {
            b"x"
        }
    }

    impl http_body::Body for Crumbs {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            assert!(Arc::strong_count(&self.1) <= 3, "{} pieces are kept", Arc::strong_count(&self.1));
            let Some(left) = self.0.checked_sub(1) else { return Poll::Ready(None) };
            self.0 = left;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(Crumb(Arc::clone(&self.1)))))))
        }
    }

    #[test]
    fn a_body_in_however_small_pieces_takes_the_memory_of_its_bytes() {
        let read = |bytes: usize, bytes_max: usize| {
            let request = Request::new(Body::new(Crumbs(bytes, Arc::default())));
            let mut whole = Box::pin(whole(request, bytes_max));
            match whole.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(read) => read.map(|bytes| bytes.len()).map_err(|problem| problem.status),
                Poll::Pending => panic!("all of it is there"),
            }
        };
        assert_eq!(read(100_000, 100_000), Ok(100_000));
        assert_eq!(read(100_001, 100_000), Err(StatusCode::PAYLOAD_TOO_LARGE));
    }

    #[test]
    fn long_bodies_are_counted_of_all_and_of_each_caller_until_they_were_used() {
        const LONG: usize = 64 << 20;
        let bodies = Bodies::new(16 << 20, true);
        let read = |whose: &str, bytes: usize| {
            let mut request = Request::new(Body::from(vec![0; bytes]));
            request.extensions_mut().insert(bodies.of(&whose.into()));
            let mut whole = Box::pin(whole(request, LONG));
            match whole.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(read) => read,
                Poll::Pending => panic!("all of it is there"),
            }
        };
        let refused = |read: Result<Bytes, Problem>| read.map(|bytes| bytes.len()).unwrap_err();
        let mut kept: Vec<Bytes> = (0..3).map(|_| read("anna", LONG).unwrap()).collect();
        let own = refused(read("anna", 100_000));
        assert_eq!((own.status, own.detail.contains("of this caller")), (StatusCode::SERVICE_UNAVAILABLE, true));
        assert_eq!(read("anna", UNCOUNTED_BYTES).unwrap().len(), UNCOUNTED_BYTES, "a short one is");
        // What is cut from a body keeps all of it.
        let part = read("ben", LONG).unwrap().slice(5..6);
        let all = refused(read("cleo", 100_000));
        assert_eq!((all.status, all.detail.contains("of this caller")), (StatusCode::SERVICE_UNAVAILABLE, false));
        drop(part);
        kept.push(read("cleo", 100_000).unwrap());
        kept.clear();
        assert_eq!(read("anna", LONG).unwrap().len(), LONG);
    }
}
