//! Answers of HTTP/1.1, as far as a race needs them: a status, a length, and where the body begins.
//!
//! Walk: [`Answer::of`] reads a head once it is whole.
//! Deliberately absent: chunks. An answer of the race has a length, or no body by its status.

use xxhash_rust::xxh3::xxh3_64;

use super::wrong;
use crate::BenchError;

/// The longest head.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// A head that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 200 and so on.
    pub status: u16,
    /// Bytes of the head, its empty line included.
    pub head_bytes: usize,
    /// Bytes behind it.
    pub body_bytes: usize,
}

impl Answer {
    /// The head at the beginning of these bytes; none while it is not whole.
    ///
    /// # Errors
    /// [`assent_kind::Kind::Corrupt`] for what is no head, or one without a length.
    pub fn of(bytes: &[u8]) -> Result<Option<Self>, BenchError> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return if bytes.len() > HEAD_BYTES_MAX { Err(wrong("a head without an end")) } else { Ok(None) };
        };
        let head = std::str::from_utf8(bytes.get(..end).unwrap_or_default()).map_err(|_| wrong("a head of no text"))?;
        let mut lines = head.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| wrong(format!("{first:?}")))?;
        let mut length = None;
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok();
            }
        }
        let none = matches!(status, 204 | 304).then_some(0);
        let body_bytes = none.or(length).ok_or_else(|| wrong(format!("{first:?} without a length")))?;
        Ok(Some(Self { status, head_bytes: end + 4, body_bytes }))
    }

    /// Of the whole answer.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.head_bytes + self.body_bytes
    }
}

/// What bodies are compared by.
#[must_use]
pub fn body_hash(body: &[u8]) -> u64 {
    xxh3_64(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_whole_and_must_say_how_long_its_body_is() {
        let text = b"HTTP/1.1 200 OK\r\nEtag: \"1\"\r\ncontent-LENGTH: 12\r\n\r\n{}";
        let head = text.len() - 2;
        assert_eq!(
            Answer::of(text).unwrap(),
            Some(Answer { status: 200, head_bytes: head, body_bytes: 12 }),
            "the body may come later"
        );
        for cut in 0..head {
            assert_eq!(Answer::of(&text[..cut]).unwrap(), None);
        }
        let none = Answer::of(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n").unwrap().unwrap();
        assert_eq!((none.status, none.body_bytes), (304, 0));
        for bad in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"] {
            assert!(Answer::of(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(Answer::of(&vec![b'a'; HEAD_BYTES_MAX + 1]).is_err());
    }
}
