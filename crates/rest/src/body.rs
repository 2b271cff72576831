//! A request's body, gathered up to a limit, and the JSON in it.

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
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
    match Limited::new(request.into_body(), bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_long()),
        Err(error) => Err(Problem::invalid(format!("the body could not be read to its end: {error}"))),
    }
}

/// A longer one is taken apart where that holds nobody up.
const SHORT_BYTES: usize = 16 << 10;

/// The JSON of a body that may be long.
pub(crate) async fn parsed<T: DeserializeOwned + Send + 'static>(bytes: Bytes, pool: &Pool) -> Result<T, Problem> {
    if bytes.len() <= SHORT_BYTES {
        return json(&bytes);
    }
    pool.run(move || json(&bytes)).await
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
