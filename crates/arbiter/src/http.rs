//! One question over HTTP, as much of it as etcd's gateway needs: POST a text, read the answer to its end.
//!
//! Version 1.0 of the protocol, so that the answer comes whole and the connection ends behind it.
//! Deliberately absent: TLS, redirects, keeping connections, chunks. Arbiters are asked a few times a second at most.

use std::io::{ErrorKind, Read as _, Write as _};
use std::time::Duration;

use assent_world::Clock;
use assent_world::net::{Address, Stream};

/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Whether the question may have arrived.
    pub(crate) sent: bool,
    pub(crate) why: String,
}

/// The status and the body of the answer, within this time.
pub(crate) fn post(
    at: &Address,
    path: &str,
    body: &str,
    clock: &dyn Clock,
    limit: Duration,
) -> Result<(u16, Vec<u8>), Lost> {
    let end = clock.now().after(limit);
    let unsent = |error: std::io::Error| Lost { sent: false, why: error.to_string() };
    let stream = Stream::connect(at, limit).map_err(unsent)?;
    stream.set_timeouts(Some(limit), Some(limit)).map_err(unsent)?;
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {at}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    let lost = |why: String| Lost { sent: true, why };
    (&stream).write_all(format!("{head}{body}").as_bytes()).map_err(|error| lost(error.to_string()))?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(whole) = parse(&answer, false).map_err(lost)? {
            return Ok(whole);
        }
        // A server that talks a byte a second is as good as silent.
        let left = end.since(clock.now());
        if left.is_zero() || answer.len() > ANSWER_BYTES_MAX {
            return Err(lost(format!("{} bytes and no end after {} ms", answer.len(), limit.as_millis())));
        }
        stream.set_read_timeout(Some(left)).map_err(|error| lost(error.to_string()))?;
        match (&stream).read(&mut buffer) {
            Ok(0) => return parse(&answer, true).map_err(lost)?.ok_or_else(|| lost("half an answer".to_owned())),
            Ok(read) => answer.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(lost(error.to_string())),
        }
    }
}

/// Status and body, once they are whole.
pub(crate) fn parse(answer: &[u8], ended: bool) -> Result<Option<(u16, Vec<u8>)>, String> {
    let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(answer.get(..end).unwrap_or_default()).map_err(|_| "a head that is no text")?;
    let body = answer.get(end + 4..).unwrap_or_default();
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status =
        first.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)).and_then(|text| text.parse().ok());
    let status = status.ok_or_else(|| format!("no HTTP: {:?}", first.chars().take(80).collect::<String>()))?;
    let mut length = None;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or("a head line without a colon")?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = Some(value.trim().parse::<usize>().map_err(|_| "a length that is no number")?),
            "transfer-encoding" => return Err(format!("an answer in pieces ({})", value.trim())),
            _ => {}
        }
    }
    match length {
        Some(length) if length > ANSWER_BYTES_MAX => Err(format!("an answer of {length} bytes")),
        Some(length) => Ok(body.get(..length).map(|body| (status, body.to_vec()))),
        None => Ok(ended.then(|| (status, body.to_vec()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_by_its_length_or_by_its_end() {
        let with = b"HTTP/1.0 200 OK\r\ncontent-LENGTH: 2\r\nX: y\r\n\r\n{}more";
        assert_eq!(parse(with, false), Ok(Some((200, b"{}".to_vec()))));
        assert_eq!(parse(&with[..with.len() - 5], false), Ok(None));
        assert_eq!(parse(&with[..20], true), Ok(None), "half a head");
        let without = b"HTTP/1.1 503 no\r\n\r\nabc";
        assert_eq!(parse(without, false), Ok(None));
        assert_eq!(parse(without, true), Ok(Some((503, b"abc".to_vec()))));
        for bad in [
            &b"SSH-2.0\r\n\r\n"[..],
            b"HTTP/1.0 ok\r\n\r\n",
            b"HTTP/1.0 200\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"HTTP/1.0 200\r\nContent-Length: 99999999\r\n\r\n",
            b"HTTP/1.0 200\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.0 200\r\nnothing\r\n\r\n",
            b"HTTP/1.0 200\r\n\xff\r\n\r\n",
        ] {
            assert!(parse(bad, true).is_err(), "{:?}", String::from_utf8_lossy(bad));
        }
    }
}
