//! What a client says to a server of the race, and how an answer looks: ours, the floor's, and the peers'.
//!
//! Walk: [`Speech::request`] for one asset · [`Speech::closing`] behind each write's requests · [`Speech::answer`] takes the first one of what has
//! arrived. Deliberately absent: what a connection has under way.

use assent_assets::{AssetId, Command, Op};
use assent_frame::{Head, Writer, lay, parse};

const KIND_COMMAND: u16 = 0x51;
const KIND_ANSWER: u16 = 0x52;
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// What an answer begins with where the command was done.
const DONE: u8 = 0;
/// How long Redis waits for its replica.
const WAIT_MS: u32 = 30_000;

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// The floor: frames of ours, given back.
    Echo,
    /// Assets: one add a command.
    Assets,
    /// RESP: INCRBY, and behind each write of them a WAIT for so many replicas, if there are any.
    Redis {
        /// How many must have it.
        replicas: u32,
    },
    /// The JSON gateway of etcd: one put a request.
    Etcd,
}

/// An answer that has arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Its bytes.
    pub bytes: usize,
}

impl Speech {
    /// The bytes that change one asset.
    #[must_use]
    pub fn request(self, asset: u64) -> Vec<u8> {
        match self {
            Self::Echo | Self::Assets => {
                let (mut command, mut frame) = (Writer::new(), Vec::new());
                Command::lay_batch(&mut command, None, &[Op::Add { id: AssetId(1 + asset), by: 1 }]);
                lay(&mut frame, Head { mark: asset, kind: KIND_COMMAND, ..Head::default() }, &[command.as_slice()]);
                frame
            }
            Self::Redis { .. } => resp(&["INCRBY", &key(asset), "1"]),
            Self::Etcd => {
                let body = format!(r#"{{"key":"{}","value":"MQ=="}}"#, base64(&key(asset)));
                post("/v3/kv/put", &body)
            }
        }
    }

    /// What follows the requests of one write: an answer to it is the answer to all of them.
    #[must_use]
    pub fn closing(self) -> Option<Vec<u8>> {
        match self {
            Self::Redis { replicas } if replicas > 0 => {
                Some(resp(&["WAIT", &replicas.to_string(), &WAIT_MS.to_string()]))
            }
            _ => None,
        }
    }

    /// The first answer of these bytes, if it is there as a whole. `closes`: it answers what closed a write.
    ///
    /// # Errors
    /// What came in its place.
    pub fn answer(self, bytes: &[u8], closes: bool) -> Result<Option<Answered>, String> {
        match self {
            Self::Echo | Self::Assets => {
                let Some((frame, laid)) = parse(bytes, ANSWER_BYTES_MAX).map_err(|error| error.to_string())? else {
                    return Ok(None);
                };
                let is_done = frame.kind == KIND_ANSWER && frame.payload.first() == Some(&DONE);
                if self == Self::Assets && !is_done {
                    return Err(format!("kind {:#x}: {:?}", frame.kind, assent_assets::Answer::read(frame.payload)));
                }
                Ok(Some(Answered { bytes: laid }))
            }
            Self::Redis { replicas } => redis(bytes, if closes { replicas } else { 0 }),
            Self::Etcd => Ok(body(bytes)?.map(|(_, bytes)| Answered { bytes })),
        }
    }
}

/// The name of an asset at the peers.
#[must_use]
pub fn key(asset: u64) -> String {
    format!("asset:{asset:06}")
}

/// A command of RESP.
#[must_use]
pub fn resp(words: &[&str]) -> Vec<u8> {
    let words_laid = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    std::iter::once(format!("*{}\r\n", words.len())).chain(words_laid).collect::<String>().into_bytes()
}

/// A request to the gateway.
#[must_use]
pub fn post(path: &str, body: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// For the gateway's keys.
#[must_use]
pub fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// A number that is at least this.
fn redis(bytes: &[u8], least: u32) -> Result<Option<Answered>, String> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
    let line = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default());
    let number = line.strip_prefix(':').and_then(|number| number.parse::<u64>().ok());
    match number {
        Some(number) if number >= u64::from(least) => Ok(Some(Answered { bytes: end + 2 })),
        _ => Err(format!("{line:?}")),
    }
}

/// The body of a response that is there as a whole, and the bytes of all of it.
///
/// # Errors
/// Another status than 200, or a length that nobody said.
pub fn body(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).to_ascii_lowercase();
    if !head.starts_with("http/1.1 200") {
        return Err(format!("{:?}", head.lines().next().unwrap_or_default()));
    }
    let rest = bytes.get(end + 4..).unwrap_or_default();
    if head.lines().any(|line| line == "transfer-encoding: chunked") {
        return Ok(chunks(rest)?.map(|(body, taken)| (body, end + 4 + taken)));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.and_then(|length| length.trim().parse().ok()).ok_or("a body without a length")?;
    Ok(rest.get(..length).map(|body| (body.to_vec(), end + 4 + length)))
}

/// A body in chunks, each behind its length in hexadecimal digits; one of length 0 ends it. Source: RFC 9112, 7.1.
fn chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
        let line = String::from_utf8_lossy(rest.get(..end).unwrap_or_default());
        let length = usize::from_str_radix(&line, 16).map_err(|_| format!("a chunk of {line:?} bytes"))?;
        let (from, to) = (end + 2, end + 2 + length);
        let Some(chunk) = rest.get(from..to).filter(|_| rest.len() >= to + 2) else { return Ok(None) };
        body.extend_from_slice(chunk);
        at += to + 2;
        if length == 0 {
            return Ok(Some((body, at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use assent_assets::{Answer, Results};

    use super::*;

    fn laid(answer: &Answer) -> Vec<u8> {
        let (mut out, mut frame) = (Writer::new(), Vec::new());
        answer.lay(&mut out);
        lay(&mut frame, Head { kind: KIND_ANSWER, ..Head::default() }, &[out.as_slice()]);
        frame
    }

    #[test]
    fn only_what_was_done_is_an_answer_and_only_as_a_whole() {
        let done = laid(&Answer::Done(Results::default()));
        assert_eq!(Speech::Assets.answer(&done, false), Ok(Some(Answered { bytes: done.len() })));
        assert_eq!(Speech::Assets.answer(&done[..done.len() - 1], false), Ok(None));
        assert!(Speech::Assets.answer(&laid(&Answer::InDoubt), false).unwrap_err().contains("InDoubt"));
        let frame = Speech::Echo.request(7);
        assert_eq!(Speech::Echo.answer(&frame, false), Ok(Some(Answered { bytes: frame.len() })));
    }

    #[test]
    fn the_peers_are_understood_as_they_speak() {
        let redis = Speech::Redis { replicas: 1 };
        assert_eq!(redis.request(7), b"*3\r\n$6\r\nINCRBY\r\n$12\r\nasset:000007\r\n$1\r\n1\r\n");
        assert_eq!(redis.closing().unwrap(), b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$5\r\n30000\r\n");
        assert_eq!(Speech::Redis { replicas: 0 }.closing(), None);
        assert_eq!(redis.answer(b":42\r\n:1\r\n", false), Ok(Some(Answered { bytes: 5 })));
        assert_eq!(redis.answer(b":1\r", true), Ok(None));
        assert!(redis.answer(b":0\r\n", true).is_err(), "no replica has it");
        assert!(redis.answer(b"-READONLY no\r\n", false).unwrap_err().contains("READONLY"));
        let put = String::from_utf8(Speech::Etcd.request(7)).unwrap();
        assert!(put.ends_with("{\"key\":\"YXNzZXQ6MDAwMDA3\",\"value\":\"MQ==\"}"), "{put}");
        let said = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}more";
        assert_eq!(body(said), Ok(Some((b"{}".to_vec(), said.len() - 4))));
        let said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\nmore";
        assert_eq!(body(said), Ok(Some((b"{}".to_vec(), said.len() - 4))));
        assert_eq!(body(&said[..said.len() - 5]), Ok(None));
        assert!(body(b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n").is_err());
        let said = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}more";
        assert_eq!(Speech::Etcd.answer(&said[..said.len() - 5], false), Ok(None));
        assert!(
            Speech::Etcd.answer(b"HTTP/1.1 503 Bad\r\nContent-Length: 0\r\n\r\n", false).unwrap_err().contains("503")
        );
    }
}
