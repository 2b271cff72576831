//! A request's body, gathered up to a limit, and the JSON in it.

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

use crate::pool::Pool;
use crate::problem::Problem;

/// All of a body, if it is not longer.
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
    let mut body = request.into_body();
    // As long as it has come, not as long as it says: whoever sends little keeps little, in however many pieces.
    let mut all: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Problem::invalid(format!("the body could not be read to its end: {error}")))?;
        let Ok(piece) = frame.into_data() else { continue };
        if all.len() + piece.len() > bytes_max {
            return Err(too_long());
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.into())
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
}
