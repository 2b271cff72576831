//! `Prefer: return=minimal` (RFC 7240): a write that is told without its body. What it made is in the headers.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;

const PREFER: HeaderName = HeaderName::from_static("prefer");
const APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Whether the first word about what is to be returned is `minimal`.
pub(crate) fn is_minimal(headers: &HeaderMap) -> bool {
    let all = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut words = all.flat_map(|value| value.split(',')).filter_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("return").then(|| value.trim().trim_matches('"').to_ascii_lowercase())
    });
    words.next().as_deref() == Some("minimal")
}

/// Whether a write is to be told without its body.
pub(crate) fn is_asked(request: &Request) -> bool {
    !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) && is_minimal(request.headers())
}

/// Of an answer: what it tells of was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done;

/// Leaves the body out of what was done.
pub(crate) fn left_out(response: Response) -> Response {
    if !response.status().is_success() {
        return response;
    }
    let mut response = bare(response);
    response.headers_mut().insert(APPLIED, HeaderValue::from_static("return=minimal"));
    response
}

/// The same, where there is no room for one.
pub(crate) fn bare(mut response: Response) -> Response {
    if response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    *response.body_mut() = Body::empty();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    headers.remove(header::CONTENT_LENGTH);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preference_is_one_of_a_list_and_the_first_word_counts() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            values.iter().for_each(|value| _ = headers.append(PREFER, value.parse().unwrap()));
            is_minimal(&headers)
        };
        for yes in
            [&["return=minimal"][..], &["respond-async, Return = \"minimal\"; x=1"], &["wait=5", "return=minimal"]]
        {
            assert!(of(yes), "{yes:?}");
        }
        for no in
            [&[][..], &["return"], &["return=representation, return=minimal"], &["minimal"], &["return=minimally"]]
        {
            assert!(!of(no), "{no:?}");
        }
    }
}
