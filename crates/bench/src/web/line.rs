//! One connection, for what is asked beside a race: documents are made by it, and tokens fetched.

use std::io::{Read as _, Write as _};

use assent_world::net::{Address, Stream};

use super::answer::Answer;
use super::{PATIENCE, network, wrong};
use crate::BenchError;

/// A connection that stays open.
#[derive(Debug)]
pub struct Line {
    stream: Stream,
    at: Address,
    inbox: Vec<u8>,
}

impl Line {
    /// To that server.
    ///
    /// # Errors
    /// As the network says.
    pub fn to(at: &Address) -> Result<Self, BenchError> {
        let stream = Stream::connect(at, PATIENCE).and_then(|stream| {
            stream.set_timeouts(Some(PATIENCE), Some(PATIENCE))?;
            Ok(stream)
        });
        Ok(Self { stream: stream.map_err(|error| network(&error))?, at: at.clone(), inbox: Vec::new() })
    }

    /// Asks, and waits for the answer: its body. `headers` have a line end each.
    ///
    /// # Errors
    /// As the network says; [`assent_kind::Kind::Corrupt`] for an answer with another status than this.
    pub fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
        status: u16,
    ) -> Result<Vec<u8>, BenchError> {
        self.whole(method, path, headers, body, status).map(|(_, body)| body)
    }

    /// The tag of what stands there.
    ///
    /// # Errors
    /// As [`Line::ask`], also where it has none.
    pub fn tag(&mut self, path: &str, headers: &str) -> Result<String, BenchError> {
        let (head, _) = self.whole("GET", path, headers, b"", 200)?;
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        let tag = lines.find(|(name, _)| name.eq_ignore_ascii_case("etag"));
        tag.map(|(_, value)| value.trim().to_owned()).ok_or_else(|| wrong("without a tag"))
    }

    fn whole(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
        status: u16,
    ) -> Result<(String, Vec<u8>), BenchError> {
        let (at, length) = (&self.at, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {at}\r\n{headers}Content-Length: {length}\r\n\r\n");
        let mut stream = &self.stream;
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        sent.map_err(|error| network(&error))?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(answer) = Answer::of(&self.inbox)?
                && self.inbox.len() >= answer.bytes()
            {
                let rest = self.inbox.split_off(answer.bytes());
                let whole = std::mem::replace(&mut self.inbox, rest);
                let (head, body) = whole.split_at_checked(answer.head_bytes).unwrap_or_default();
                if answer.status != status {
                    let said: String = String::from_utf8_lossy(body).chars().take(200).collect();
                    return Err(wrong(format!("{} to {method} {path}, not {status}: {said}", answer.status)));
                }
                return Ok((String::from_utf8_lossy(head).into_owned(), body.to_vec()));
            }
            match stream.read(&mut buffer).map_err(|error| network(&error))? {
                0 => return Err(wrong("nothing and closed")),
                count => self.inbox.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            }
        }
    }
}
