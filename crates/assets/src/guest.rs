//! One connection of a client, as a server has it: what arrived, what is to be said, and how much of either it may leave lying.
//!
//! Walk: [`Guest::hear`] takes in what has arrived · [`Guest::say`] writes what may be told · [`Guest::has_gone`] when nothing is left of either.
//! Deliberately absent: what any of it means.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use assent_frame::laid_bytes;

use crate::message::ASKED_BYTES_MAX;

/// As many connections at once; one more is closed at once.
pub const CLIENTS_MAX: usize = 4_096;
/// As much is read at once.
pub(crate) const READ_BYTES: usize = 1 << 16;
/// What one connection may have answered in one round before the others have their turn.
pub(crate) const ROUND_BYTES_MAX: usize = 1 << 18;
/// Answers that a client does not read; beyond this nothing more is taken from it.
pub(crate) const UNREAD_BYTES_MAX: usize = 1 << 20;
/// News that go out in one frame.
pub(crate) const NEWS_MAX: usize = 1_024;
/// Changes that are kept for one subscription, at most.
pub(crate) const NEWS_KEPT_MAX: u32 = 65_536;
/// How soon an accept that failed for want of descriptors is tried again.
pub(crate) const AGAIN: Duration = Duration::from_millis(200);

/// What bytes come and go by: the operating system's, or a simulated one.
pub(crate) trait Wire: Read + Write + Send {}

impl<W: Read + Write + Send> Wire for W {}

/// One connection.
pub(crate) struct Guest {
    wire: Box<dyn Wire>,
    pub(crate) inbox: Vec<u8>,
    pub(crate) outbox: Vec<u8>,
    /// The other end has closed, or said what nobody understands: what is answered still goes out.
    pub(crate) is_over: bool,
    /// Its turn ended before everything was taken that has arrived.
    pub(crate) has_more: bool,
    /// What was asked of the state beside commands in this round: that costs more than a command.
    pub(crate) has_asked: bool,
}

impl Guest {
    pub(crate) fn new(wire: impl Wire + 'static) -> Self {
        let wire = Box::new(wire);
        Self { wire, inbox: Vec::new(), outbox: Vec::new(), is_over: false, has_more: false, has_asked: false }
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.outbox.len() >= UNREAD_BYTES_MAX
    }

    /// It says nothing more, all of it was taken, and what was answered has gone out.
    pub(crate) const fn has_gone(&self) -> bool {
        // Who only ends its own direction waits for the answers to what still lies here.
        self.is_over && !self.has_more && self.outbox.is_empty()
    }

    /// The connection is broken: nobody hears an answer. What was not taken yet is not done, and keeps nobody here.
    fn lose(&mut self) {
        self.is_over = true;
        self.has_more = false;
        self.inbox.clear();
        self.outbox.clear();
    }

    /// Takes in what has arrived, as long as it reads its answers. `to_the_end`: nobody says again that the other end has closed.
    pub(crate) fn hear(&mut self, buffer: &mut [u8], to_the_end: bool) {
        let before = self.inbox.len();
        (self.has_more, self.has_asked) = (false, false);
        while !self.is_over {
            // The longest message that is not whole yet leaves room for the rest of it.
            let is_full = self.is_full() || self.inbox.len() > laid_bytes(ASKED_BYTES_MAX);
            if is_full || self.inbox.len() - before >= ROUND_BYTES_MAX {
                self.has_more = true;
                return;
            }
            match self.wire.read(buffer) {
                Ok(0) => self.is_over = true,
                Ok(read) => {
                    self.inbox.extend_from_slice(buffer.get(..read).unwrap_or_default());
                    // Less than there was room for: that was all. A readiness that comes now is a new event. An end that came with it
                    // is none: one event told of both.
                    if read < buffer.len() && !to_the_end {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.lose(),
            }
        }
    }

    /// Writes what may be told and can be written.
    pub(crate) fn say(&mut self) {
        let mut written = 0;
        while written < self.outbox.len() {
            match self.wire.write(self.outbox.get(written..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.lose(),
            }
        }
        self.outbox.drain(..written.min(self.outbox.len()));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use assent_world::net::{Address, Listener};

    use super::*;

    /// The last bytes of the longest message were never read: one core was busy as long as that connection lived.
    #[test]
    fn the_rest_of_the_longest_message_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
        let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let peer = loop {
            if let Some(peer) = listener.accept().unwrap() {
                break peer;
            }
        };
        client.write_all(b"the end").unwrap();
        let (mut guest, mut buffer) = (Guest::new(peer), vec![0; READ_BYTES]);
        guest.inbox = vec![0; laid_bytes(ASKED_BYTES_MAX) - 7];
        guest.hear(&mut buffer, true);
        assert!(guest.inbox.ends_with(b"the end") && !guest.has_more, "{}", guest.inbox.len());
        // Beyond the longest nothing is taken in.
        guest.inbox.push(0);
        client.write_all(b"more").unwrap();
        guest.hear(&mut buffer, true);
        assert!(guest.has_more && guest.inbox.len() == laid_bytes(ASKED_BYTES_MAX) + 1);
    }

    /// The other end is gone: what is written comes back as an error, or what is read.
    struct Broken {
        reads: bool,
    }

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(if self.reads { ErrorKind::WouldBlock } else { ErrorKind::ConnectionReset }.into())
        }
    }

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(if self.reads { ErrorKind::BrokenPipe } else { ErrorKind::WouldBlock }.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_ends_its_own_direction_stays_for_what_lies_here_and_who_is_gone_does_not() {
        for reads in [true, false] {
            let mut guest = Guest::new(Broken { reads });
            (guest.inbox, guest.outbox) = (vec![1; 9], vec![2; 9]);
            (guest.is_over, guest.has_more) = (reads, true);
            assert!(!guest.has_gone());
            guest.say();
            guest.hear(&mut [0; 64], false);
            assert!(guest.has_gone() && guest.inbox.is_empty(), "{reads}");
        }
        let mut guest = Guest::new(std::io::empty());
        (guest.is_over, guest.has_more) = (true, true);
        assert!(!guest.has_gone(), "its turn was over before what it said");
        guest.hear(&mut [0; 64], true);
        assert!(guest.has_gone(), "and it has another one");
    }
}
