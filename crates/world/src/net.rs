//! Sockets as a door. The front doors and links open no socket but here.
//!
//! Walk: [`Address`] says where · [`Stream`] is a blocking connection with time limits, for links · [`Listener`] and
//! [`Peer`] never block and tell a [`Poll`] when they are ready, for servers; a [`Waker`] wakes it from another thread.
//! Deliberately absent: TLS, buffering, reconnecting, any knowledge of what the bytes mean.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt;

mod address;
mod read_limit;

pub use address::{Address, AddressError};
pub use mio::{Events, Interest, Poll, Registry, Token, Waker, event::Event, event::Source};
pub use read_limit::{ReadLimit, has_ended};

fn nowhere(host: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("host {host:?} has no address"))
}

/// A blocking connection. Reading and writing take a shared reference, so two threads can do one each.
#[derive(Debug)]
pub struct Stream(Blocking);

/// How the kernel proves an idle connection; what is not said stays as the machine has it.
#[derive(Clone, Copy, Debug)]
pub struct Proofs {
    /// After how much silence.
    pub idle: Duration,
    /// How far apart.
    pub interval: Option<Duration>,
    /// How many may stay without an answer.
    pub count: Option<u32>,
}

impl Proofs {
    /// A machine that vanished is given up within 40 seconds of silence. By themselves connections that nobody writes to stand for ever.
    pub const SOON: Self =
        Self { idle: Duration::from_secs(20), interval: Some(Duration::from_secs(5)), count: Some(4) };
}

#[derive(Debug)]
enum Blocking {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects within this time (each address of a host name has it once; resolving the name and connecting to a Unix
    /// socket are not bounded by it). Small writes go out at once (TCP_NODELAY).
    ///
    /// # Errors
    /// As the operating system says; `TimedOut` after the time.
    pub fn connect(to: &Address, at_most: Duration) -> io::Result<Self> {
        let (host, port) = match to {
            Address::Unix(path) => return Ok(Self(Blocking::Unix(UnixStream::connect(path)?))),
            Address::Tcp { host, port } => (host.as_str(), *port),
        };
        let mut failed = nowhere(host);
        for at in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&at, at_most) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Self(Blocking::Tcp(stream)));
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The most that one read and one write may block; then they are `WouldBlock` or `TimedOut`.
    ///
    /// # Errors
    /// As the operating system says; `InvalidInput` for zero.
    pub fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        match &self.0 {
            Blocking::Tcp(stream) => stream.set_read_timeout(read).and_then(|()| stream.set_write_timeout(write)),
            Blocking::Unix(stream) => stream.set_read_timeout(read).and_then(|()| stream.set_write_timeout(write)),
        }
    }

    /// The most that one read may block.
    ///
    /// # Errors
    /// As the operating system says; `InvalidInput` for zero.
    pub fn set_read_timeout(&self, longest: Option<Duration>) -> io::Result<()> {
        match &self.0 {
            Blocking::Tcp(stream) => stream.set_read_timeout(longest),
            Blocking::Unix(stream) => stream.set_read_timeout(longest),
        }
    }

    /// Has the kernel give up a machine that vanished: an idle connection is proved, and what was sent may stay without a
    /// sign of life for `unanswered`. Nothing where both ends are on one machine.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn give_up_after(&self, proofs: Option<Proofs>, unanswered: Option<Duration>) -> io::Result<()> {
        match &self.0 {
            Blocking::Tcp(stream) => give_up(stream, proofs, unanswered),
            Blocking::Unix(_) => Ok(()),
        }
    }

    /// Ends both directions; whoever blocks in a read on it wakes.
    ///
    /// # Errors
    /// `NotConnected` if it had ended already.
    pub fn shutdown(&self) -> io::Result<()> {
        match &self.0 {
            Blocking::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Blocking::Unix(stream) => stream.shutdown(Shutdown::Both),
        }
    }

    /// Whether a read would not block: bytes have arrived, or the other end has closed.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        match &self.0 {
            Blocking::Tcp(stream) => shows(stream, PollFlags::IN),
            Blocking::Unix(stream) => shows(stream, PollFlags::IN),
        }
    }

    /// Whether the other end has closed or is known to be gone, as far as the kernel has heard; bytes may be left to read.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match &self.0 {
            Blocking::Tcp(stream) => shows(stream, PollFlags::RDHUP),
            Blocking::Unix(stream) => shows(stream, PollFlags::RDHUP),
        }
    }

    /// The same connection for a loop that never blocks.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn into_peer(self) -> io::Result<Peer> {
        let socket = match self.0 {
            Blocking::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                Socket::Tcp(mio::net::TcpStream::from_std(stream))
            }
            Blocking::Unix(stream) => {
                stream.set_nonblocking(true)?;
                Socket::Unix(mio::net::UnixStream::from_std(stream))
            }
        };
        Ok(Peer { socket, from: None })
    }

    /// A second handle of a socket that a library keeps to itself. As long as it lives, closing the first one does not end
    /// the connection.
    ///
    /// # Errors
    /// As the operating system says; `Unsupported` where it does not hand out descriptors.
    pub fn second(socket: &impl AsRawFd) -> io::Result<Self> {
        // Of whatever family: it is read and written the same way.
        Ok(Self(Blocking::Tcp(read_limit::second(socket)?.into())))
    }

    /// A second handle of the same connection.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(match &self.0 {
            Blocking::Tcp(stream) => Blocking::Tcp(stream.try_clone()?),
            Blocking::Unix(stream) => Blocking::Unix(stream.try_clone()?),
        }))
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            Blocking::Tcp(stream) => (&mut &*stream).read(buffer),
            Blocking::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Blocking::Tcp(stream) => (&mut &*stream).write(bytes),
            Blocking::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn give_up(socket: &impl AsFd, proofs: Option<Proofs>, unanswered: Option<Duration>) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, proofs.is_some())?;
    if let Some(Proofs { idle, interval, count }) = proofs {
        sockopt::set_tcp_keepidle(socket, idle)?;
        interval.map_or(Ok(()), |interval| sockopt::set_tcp_keepintvl(socket, interval))?;
        count.map_or(Ok(()), |count| sockopt::set_tcp_keepcnt(socket, count))?;
    }
    if let Some(unanswered) = unanswered {
        let ms = u32::try_from(unanswered.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(socket, ms)?;
    }
    Ok(())
}

/// Whether a socket shows this now, or that it is over.
fn shows(socket: &impl AsFd, what: PollFlags) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), what)];
    rustix::event::poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Takes connections in, without blocking. A Unix socket's file is removed when it is dropped.
#[derive(Debug)]
pub struct Listener(Listening);

#[derive(Debug)]
enum Listening {
    Tcp(mio::net::TcpListener),
    Unix { listener: mio::net::UnixListener, path: PathBuf },
}

impl Listener {
    /// Listens there. A socket file that nobody answers at any more is replaced.
    ///
    /// # Errors
    /// `AddrInUse` and others, as the operating system says.
    pub fn bind(at: &Address) -> io::Result<Self> {
        Ok(Self(match at {
            Address::Tcp { .. } => Listening::Tcp(mio::net::TcpListener::from_std(tcp_listener(at)?)),
            Address::Unix(path) => Listening::Unix { listener: unix_listener(path)?, path: path.clone() },
        }))
    }

    /// Where it really listens: port 0 became a real one.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn address(&self) -> io::Result<Address> {
        match &self.0 {
            Listening::Tcp(listener) => listener.local_addr().map(Address::from),
            Listening::Unix { path, .. } => Ok(Address::Unix(path.clone())),
        }
    }

    /// The next connection that waits; `None` if none does. Whoever vanishes is given up ([`Proofs::SOON`]), and his place is free.
    ///
    /// # Errors
    /// As the operating system says: with `EMFILE` and its like go on later, the listener is well.
    pub fn accept(&self) -> io::Result<Option<Peer>> {
        let accepted = match &self.0 {
            Listening::Tcp(listener) => listener.accept().and_then(|(stream, at)| {
                stream.set_nodelay(true)?;
                give_up(&stream, Some(Proofs::SOON), None)?;
                Ok(Peer { socket: Socket::Tcp(stream), from: Some(at.into()) })
            }),
            Listening::Unix { listener, .. } => {
                listener.accept().map(|(stream, _)| Peer { socket: Socket::Unix(stream), from: None })
            }
        };
        match accepted {
            Ok(peer) => Ok(Some(peer)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
impl Drop for Listener {
    fn drop(&mut self) {
        if let Listening::Unix { path, .. } = &self.0 {
            // If it stays, the next bind finds nobody answering there and replaces it.
            _ = std::fs::remove_file(path);
        }
    }
}

/// A listening TCP socket of the standard library, set not to block: for a door that brings its own loop.
///
/// # Errors
/// `AddrInUse` and others, as the operating system says; `Unsupported` for a Unix socket.
#[expect(clippy::disallowed_methods, reason = "this is the door")]
pub fn tcp_listener(at: &Address) -> io::Result<TcpListener> {
    let Address::Tcp { host, port } = at else {
        return Err(io::Error::new(io::ErrorKind::Unsupported, format!("{at} is not a TCP address")));
    };
    let places: Vec<SocketAddr> = (host.as_str(), *port).to_socket_addrs()?.collect();
    if places.is_empty() {
        return Err(nowhere(host));
    }
    let listener = TcpListener::bind(places.as_slice())?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
fn unix_listener(path: &Path) -> io::Result<mio::net::UnixListener> {
    match mio::net::UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            // Left by a process that was killed: nobody answers. One that lives answers, and keeps its address.
            let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            // What is no socket refuses as a dead one does, and is somebody's file.
            let is_socket = || std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
            if !UnixStream::connect(path).as_ref().is_err_and(refused) || !is_socket() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            mio::net::UnixListener::bind(path)
        }
        bound => bound,
    }
}

/// A connection as a server has it: nothing blocks, `WouldBlock` says to wait for the [`Poll`].
#[derive(Debug)]
pub struct Peer {
    socket: Socket,
    from: Option<Address>,
}

#[derive(Debug)]
enum Socket {
    Tcp(mio::net::TcpStream),
    Unix(mio::net::UnixStream),
}

impl Peer {
    /// Where it comes from; `None` over a Unix socket, whose other end has no name.
    #[must_use]
    pub const fn from(&self) -> Option<&Address> {
        self.from.as_ref()
    }

    /// Ends both directions.
    ///
    /// # Errors
    /// `NotConnected` if it had ended already.
    pub fn shutdown(&self) -> io::Result<()> {
        match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        }
    }

    /// Ends the direction out: the other side reads to the end of what was written, and may still be read. Closing with
    /// unread bytes instead would reset the connection, and a last answer could be lost with it.
    ///
    /// # Errors
    /// `NotConnected` if it had ended already.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

impl Read for Peer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.socket {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.socket {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

macro_rules! source {
    ($of:ty, $self:ident => $inner:expr, $tcp:pat => $t:ident, $unix:pat => $u:ident) => {
        impl Source for $of {
            fn register(&mut $self, registry: &Registry, token: Token, interest: Interest) -> io::Result<()> {
                match $inner {
                    $tcp => $t.register(registry, token, interest),
                    $unix => $u.register(registry, token, interest),
                }
            }

            fn reregister(&mut $self, registry: &Registry, token: Token, interest: Interest) -> io::Result<()> {
                match $inner {
                    $tcp => $t.reregister(registry, token, interest),
                    $unix => $u.reregister(registry, token, interest),
                }
            }

            fn deregister(&mut $self, registry: &Registry) -> io::Result<()> {
                match $inner {
                    $tcp => $t.deregister(registry),
                    $unix => $u.deregister(registry),
                }
            }
        }
    };
}

source!(Listener, self => &mut self.0, Listening::Tcp(it) => it, Listening::Unix { listener, .. } => listener);
source!(Peer, self => &mut self.socket, Socket::Tcp(it) => it, Socket::Unix(it) => it);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Disk as _, Open, RealDisk};

    #[test]
    fn a_machine_that_vanishes_is_given_up_by_whoever_took_it_in_and_by_who_said_so() {
        let mut listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let mut poll = Poll::new().unwrap();
        poll.registry().register(&mut listener, Token(0), Interest::READABLE).unwrap();
        let stream = Stream::connect(&listener.address().unwrap(), Duration::from_secs(5)).unwrap();
        poll.poll(&mut Events::with_capacity(8), Some(Duration::from_secs(5))).unwrap();
        let peer = listener.accept().unwrap().unwrap();
        let Socket::Tcp(accepted) = &peer.socket else { panic!("{peer:?}") };
        let Blocking::Tcp(made) = &stream.0 else { panic!("{stream:?}") };
        let told = |socket: std::os::fd::BorrowedFd<'_>| {
            let is_proved = sockopt::socket_keepalive(socket).unwrap();
            (is_proved, sockopt::tcp_keepidle(socket).unwrap(), sockopt::tcp_user_timeout(socket).unwrap())
        };
        let soon = Proofs::SOON.idle;
        assert_eq!(told(accepted.as_fd()), (true, soon, 0));
        assert!(!told(made.as_fd()).0, "who connects says so himself");
        stream.give_up_after(Some(Proofs::SOON), Some(Duration::from_secs(5))).unwrap();
        assert_eq!(told(made.as_fd()), (true, soon, 5_000));
    }

    fn echo_once(address: &Address) {
        let mut listener = Listener::bind(address).unwrap();
        let mut poll = Poll::new().unwrap();
        poll.registry().register(&mut listener, Token(0), Interest::READABLE).unwrap();
        let to = listener.address().unwrap();
        let talk = std::thread::spawn(move || {
            let stream = Stream::connect(&to, Duration::from_secs(5)).unwrap();
            stream.set_timeouts(Some(Duration::from_secs(5)), Some(Duration::from_secs(5))).unwrap();
            (&stream).write_all(b"hello").unwrap();
            let mut back = [0; 5];
            (&stream).read_exact(&mut back).unwrap();
            assert!(!stream.is_readable(), "everything has been read");
            assert!(!stream.has_ended());
            stream.shutdown().unwrap();
            assert!(stream.is_readable(), "the end can be read");
            assert!(stream.has_ended());
            back
        });
        let mut events = Events::with_capacity(8);
        let mut peer: Option<Peer> = None;
        while !talk.is_finished() {
            poll.poll(&mut events, Some(Duration::from_millis(50))).unwrap();
            if peer.is_none()
                && let Some(mut accepted) = listener.accept().unwrap()
            {
                poll.registry().register(&mut accepted, Token(1), Interest::READABLE).unwrap();
                assert_eq!(accepted.from().is_none(), matches!(address, Address::Unix(_)));
                peer = Some(accepted);
            }
            let mut bytes = [0; 16];
            if let Some(peer) = &mut peer
                && let Ok(read @ 1..) = peer.read(&mut bytes)
            {
                peer.write_all(&bytes[..read]).unwrap();
            }
        }
        assert_eq!(&talk.join().unwrap(), b"hello");
    }

    #[test]
    fn bytes_come_back_over_tcp_and_over_a_unix_socket() {
        echo_once(&"127.0.0.1:0".parse().unwrap());
        let folder = tempfile::tempdir().unwrap();
        echo_once(&Address::Unix(folder.path().join("s")));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a server of the test's own")]
    fn a_second_handle_reads_and_writes_what_the_first_one_does() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut first = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = server.accept().unwrap();
        let second = Stream::second(&first).unwrap();
        (&second).write_all(b"ab").unwrap();
        let mut heard = [0; 2];
        theirs.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"ab");
        theirs.write_all(b"cd").unwrap();
        let mut one = [0];
        first.read_exact(&mut one).unwrap();
        (&second).read_exact(&mut heard[..1]).unwrap();
        assert_eq!((one, heard[0]), (*b"c", b'd'));
        second.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        assert!(first.read_timeout().unwrap().is_some(), "it is the same socket");
    }

    #[test]
    fn a_dead_socket_file_is_replaced_and_a_living_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let address = Address::Unix(path.clone());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let living = Listener::bind(&address).unwrap();
        assert_eq!(Listener::bind(&address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(living);
        assert!(!path.exists());
        // Somebody's file refuses as a dead socket does.
        let file = RealDisk.open(&path, Open { access: Access::Create, direct: false }).unwrap();
        file.write_at(0, b"text").unwrap();
        assert_eq!(Listener::bind(&address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(RealDisk.open(&path, Open { access: Access::Read, direct: false }).unwrap().size().unwrap(), 4);
    }

    #[test]
    fn nobody_listening_is_refused_and_a_waker_wakes() {
        let free = tcp_listener(&"127.0.0.1:0".parse().unwrap()).unwrap().local_addr().unwrap();
        let error = Stream::connect(&free.into(), Duration::from_secs(5)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);

        let mut poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(9)).unwrap();
        let mut events = Events::with_capacity(1);
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake().unwrap());
            while events.is_empty() {
                poll.poll(&mut events, None).unwrap();
            }
        });
        assert_eq!(events.iter().next().map(Event::token), Some(Token(9)));
    }
}
