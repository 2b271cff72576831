//! The floor of the race: servers that do nothing. One gives every byte back; another hands them to a next one, and what comes back from there
//! to whoever they came from. One thread each, one write for each connection and turn.
//!
//! ```text
//!   solo   client ──▶ echo          pair   client ──▶ relay ──▶ echo
//! ```
//! Walk: [`serve`] listens, and never ends · a turn reads all that has arrived, hands it on, and writes.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::time::Duration;

use assent_world::net::{Address, Events, Interest, Listener, Peer, Poll, Stream, Token};

use super::failed;
use crate::BenchError;

const READ_BYTES: usize = 1 << 16;
const LISTENER: usize = 0;
const NEXT: usize = 1;
const FIRST: usize = 2;

/// Serves until it is killed. `ready` is told where.
///
/// # Errors
/// What the network says.
pub fn serve(next: Option<&Address>, ready: impl FnOnce(&Address)) -> Result<(), BenchError> {
    let here = Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
    let mut server = Server::open(&here, next).map_err(|error| failed("the floor", &error))?;
    let at = server.listener.address().map_err(|error| failed("the floor", &error))?;
    ready(&at);
    server.work().map_err(|error| failed("the floor", &error))
}

/// One connection.
struct Line {
    peer: Peer,
    unsent: Vec<u8>,
}

/// The process behind this one.
struct Next {
    line: Line,
    /// Whose bytes are under way there, and how many.
    owed: VecDeque<(usize, usize)>,
}

struct Server {
    poll: Poll,
    listener: Listener,
    lines: Vec<Option<Line>>,
    next: Option<Next>,
    said: BTreeSet<usize>,
    buffer: Vec<u8>,
}

impl Server {
    fn open(here: &Address, next: Option<&Address>) -> io::Result<Self> {
        let (poll, mut listener) = (Poll::new()?, Listener::bind(here)?);
        poll.registry().register(&mut listener, Token(LISTENER), Interest::READABLE)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        let connect = |to: &Address| {
            let mut peer = Stream::connect(to, Duration::from_secs(30))?.into_peer()?;
            poll.registry().register(&mut peer, Token(NEXT), both)?;
            Ok::<_, io::Error>(Next { line: Line { peer, unsent: Vec::new() }, owed: VecDeque::new() })
        };
        let next = next.map(connect).transpose()?;
        let (lines, said, buffer) = (Vec::new(), BTreeSet::new(), vec![0; READ_BYTES]);
        Ok(Self { poll, listener, lines, next, said, buffer })
    }

    fn work(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1_024);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                match event.token().0 {
                    LISTENER => self.accept()?,
                    NEXT => self.hear_next(event.is_read_closed())?,
                    token => self.hear(token - FIRST, event.is_read_closed()),
                }
            }
            if let Some(next) = &mut self.next
                && !next.line.say()
            {
                return Err(ErrorKind::BrokenPipe.into());
            }
            for at in std::mem::take(&mut self.said) {
                if let Some(place) = self.lines.get_mut(at)
                    && place.as_mut().is_some_and(|line| !line.say())
                {
                    *place = None;
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Some(mut peer) = self.listener.accept()? {
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut peer, Token(FIRST + self.lines.len()), both)?;
            self.lines.push(Some(Line { peer, unsent: Vec::new() }));
        }
        Ok(())
    }

    fn hear(&mut self, at: usize, to_the_end: bool) {
        let Some(Some(line)) = self.lines.get_mut(at) else { return };
        // A place to write may have come.
        self.said.insert(at);
        let (next, buffer) = (&mut self.next, &mut self.buffer);
        let mut own = Vec::new();
        let open = read(&mut line.peer, buffer, to_the_end, |bytes| match next {
            Some(next) => {
                next.line.unsent.extend_from_slice(bytes);
                next.owed.push_back((at, bytes.len()));
            }
            None => own.extend_from_slice(bytes),
        });
        line.unsent.append(&mut own);
        if !open && let Some(place) = self.lines.get_mut(at) {
            *place = None;
        }
    }

    /// What came back goes to whoever it came from, in the order in which it went out.
    fn hear_next(&mut self, to_the_end: bool) -> io::Result<()> {
        let Some(next) = &mut self.next else { return Ok(()) };
        let (owed, lines, said) = (&mut next.owed, &mut self.lines, &mut self.said);
        let open = read(&mut next.line.peer, &mut self.buffer, to_the_end, |mut bytes| {
            while let Some((at, left)) = owed.front_mut().filter(|_| !bytes.is_empty()) {
                let (own, rest) = bytes.split_at(bytes.len().min(*left));
                bytes = rest;
                // It may have gone.
                if let Some(Some(line)) = lines.get_mut(*at) {
                    line.unsent.extend_from_slice(own);
                    said.insert(*at);
                }
                *left -= own.len();
                if *left == 0 {
                    owed.pop_front();
                }
            }
        });
        if open { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }
}

/// Reads what has arrived; false when the other end has gone.
fn read(peer: &mut Peer, buffer: &mut [u8], to_the_end: bool, mut take: impl FnMut(&[u8])) -> bool {
    loop {
        match peer.read(buffer) {
            Ok(0) => return false,
            Ok(read) => {
                take(buffer.get(..read).unwrap_or_default());
                // Less than there was room for: that was all, and more is a new event.
                if read < buffer.len() && !to_the_end {
                    return true;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

impl Line {
    /// Writes what can be written; false when the other end has gone.
    fn say(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.peer.write(&self.unsent) {
                Ok(written) => _ = self.unsent.drain(..written.min(self.unsent.len())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}
