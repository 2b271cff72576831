//! A limit on how long reads wait, and a look whether the other end has gone, for a socket that a library keeps to itself.
//!
//! SO_RCVTIMEO belongs to the open socket and not to the descriptor that names it: set through a second descriptor, it
//! holds for the library's. The second one comes from the kernel (pidfd_getfd, Linux 5.6), which needs no `unsafe`; where
//! that is forbidden, as in some containers, there is no limit to be had, and the look is one into the kernel's tables.
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
/// operating system neither hands out descriptors nor shows its tables.
#[must_use]
pub fn has_ended(socket: &impl AsRawFd) -> bool {
    match second(socket) {
        Ok(socket) => shows(&socket, PollFlags::RDHUP),
        Err(_) => is_listed_as_over(socket).unwrap_or(false),
    }
}

/// The same by the tables of this process's network, which are read whole: for where nothing better is allowed. A TCP
/// connection whose other end has closed waits there for us to close; one that was reset is there no more.
fn is_listed_as_over(socket: &impl AsRawFd) -> io::Result<bool> {
    let name = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd()))?;
    let name = name.to_string_lossy();
    let number = name.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
    let number = number.ok_or(io::ErrorKind::InvalidInput)?;
    let mut tables = 0;
    for table in ["tcp", "tcp6", "unix"] {
        let lines = match std::fs::read_to_string(format!("/proc/self/net/{table}")) {
            Ok(lines) => lines,
            // No such family here.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        tables += 1;
        // proc_pid_net(5): the tenth column is the inode, the fourth the state; of a local socket the seventh is the inode.
        let inode_at = if table == "unix" { 6 } else { 9 };
        let mut columns = lines.lines().map(|line| line.split_ascii_whitespace());
        if let Some(mut ours) = columns.find(|columns| columns.clone().nth(inode_at) == Some(number)) {
            return Ok(table != "unix" && ours.nth(3) == Some(CLOSE_WAIT));
        }
    }
    if tables == 0 { Err(io::ErrorKind::NotFound.into()) } else { Ok(true) }
}

/// The other end has closed, and we have not.
const CLOSE_WAIT: &str = "08";

/// A second descriptor of it.
pub(super) fn second(socket: &impl AsRawFd) -> io::Result<OwnedFd> {
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
        assert!(!is_listed_as_over(&ours).unwrap());
        drop(theirs);
        while !has_ended(&ours) {
            std::thread::yield_now();
        }
        assert!(is_listed_as_over(&ours).unwrap());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a server of the test's own")]
    fn a_socket_that_was_reset_is_listed_no_more_and_a_file_is_none() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let (theirs, _) = server.accept().unwrap();
        (&ours).write_all(b"never read").unwrap();
        theirs.peek(&mut [0]).unwrap();
        assert!(!is_listed_as_over(&ours).unwrap());
        // Closed with bytes unread: the kernel resets it.
        drop(theirs);
        while !is_listed_as_over(&ours).unwrap() {
            std::thread::yield_now();
        }
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(is_listed_as_over(&file).is_err());
        let (local, other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(!is_listed_as_over(&local).unwrap());
        drop(other);
    }
}
