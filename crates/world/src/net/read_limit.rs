//! A limit on how long reads wait, and a look whether the other end has gone, for a socket that a library keeps to itself.
//!
//! SO_RCVTIMEO belongs to the open socket and not to the descriptor that names it: set through a second descriptor, it
//! holds for the library's. The second one comes from the kernel (pidfd_getfd, Linux 5.6), which needs no `unsafe`; where
//! that is forbidden, as in some containers, there is no limit to be had.
//! Trap: as long as the second descriptor lives, closing the first one does not end the connection.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::shows;

/// This process, to ask for its own descriptors.
static OURSELVES: OnceLock<Option<OwnedFd>> = OnceLock::new();

/// As long as it lives, a read that waits longer fails (`WouldBlock`). Drop it with the read: it keeps the socket open.
#[derive(Debug)]
pub struct ReadLimit(OwnedFd);

impl ReadLimit {
    /// Limits the reads of a blocking socket.
    ///
    /// # Errors
    /// As the operating system says; `Unsupported` where it does not hand out descriptors.
    pub fn new(socket: &impl AsRawFd, longest: Duration) -> io::Result<Self> {
        let limit = Self(second(socket)?);
        // Zero would mean for ever.
        set_socket_timeout(&limit.0, Timeout::Recv, Some(longest.max(Duration::from_millis(1))))?;
        Ok(limit)
    }
}

impl Drop for ReadLimit {
    fn drop(&mut self) {
        // It was set through this very descriptor, so it can be taken away again.
        _ = set_socket_timeout(&self.0, Timeout::Recv, None);
    }
}

/// Whether the other end has closed or is known to be gone, as far as the kernel has heard. Also `false` where the
/// operating system does not hand out descriptors.
#[must_use]
pub fn has_ended(socket: &impl AsRawFd) -> bool {
    second(socket).is_ok_and(|socket| shows(&socket, PollFlags::RDHUP))
}

/// A second descriptor of it.
fn second(socket: &impl AsRawFd) -> io::Result<OwnedFd> {
    let ourselves = OURSELVES.get_or_init(|| pidfd_open(getpid(), PidfdFlags::empty()).ok());
    let ourselves = ourselves.as_ref().ok_or(io::ErrorKind::Unsupported)?;
    Ok(pidfd_getfd(ourselves, socket.as_raw_fd(), PidfdGetfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a silent server of the test's own")]
    fn a_read_gives_up_as_long_as_the_limit_lives_and_the_socket_ends_with_its_owner() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(silent.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = silent.accept().unwrap();
        let limit = ReadLimit::new(&ours, Duration::from_millis(5)).unwrap();
        assert_eq!(ours.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(ours.read_timeout().unwrap().is_some());
        drop(limit);
        assert_eq!(ours.read_timeout().unwrap(), None, "as it was");
        drop(ours);
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "nothing keeps it open");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a server of the test's own")]
    fn a_socket_has_ended_when_the_other_end_has_closed_also_with_last_words_unread() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = server.accept().unwrap();
        theirs.write_all(b"by the way").unwrap();
        // They have arrived, and nothing has ended.
        ours.peek(&mut [0]).unwrap();
        assert!(!has_ended(&ours));
        drop(theirs);
        while !has_ended(&ours) {
            std::thread::yield_now();
        }
    }
}
