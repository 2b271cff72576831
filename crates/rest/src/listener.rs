//! A listener that gives only so many places, shakes hands for TLS, and closes a connection that stays silent for too long.
//!
//! A connection beyond the limit waits in the operating system's queue until a place is free; silence bounds that.
//!
//! Walk: [`Bounded::accept`] a place, a socket · [`Connection`] the first read or write shakes hands, so nobody waits for
//! a slow newcomer · one clock for both directions, wound up by each answer and each [`PROGRESS_BYTES`] of a request, and
//! stopped while a request is being worked on ([`Peer::works`]).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use assent_door::{Gauge, Slot, Slots};
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::tls::Certificates;

/// A request that is being sent has its time anew with each so many bytes: a byte now and then does not keep a place.
const PROGRESS_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct Bounded {
    socket: TcpListener,
    slots: Slots,
    silence: Duration,
    connections: Gauge,
    freed: Arc<Notify>,
    certificates: Option<Arc<Certificates>>,
}

impl Bounded {
    pub(crate) fn new(
        socket: TcpListener,
        slots: Slots,
        silence: Duration,
        connections: Gauge,
        certificates: Option<Arc<Certificates>>,
    ) -> Self {
        Self { socket, slots, silence, connections, freed: Arc::default(), certificates }
    }

    async fn place(&self) -> Place {
        loop {
            if let Some(slot) = self.slots.take() {
                self.connections.inc();
                let freed = Arc::clone(&self.freed);
                return Place { slot: Some(slot), connections: self.connections.clone(), freed };
            }
            self.freed.notified().await;
        }
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let place = self.place().await;
        // The trait's own accept waits and tries again when the process has no descriptor left.
        let (stream, peer) = Listener::accept(&mut self.socket).await;
        let patience = Box::pin(tokio::time::sleep(self.silence));
        let stream = match &self.certificates {
            None => Stream::Plain(stream),
            Some(certificates) => Stream::Shaking(Box::new(TlsAcceptor::from(certificates.now()).accept(stream))),
        };
        let working = Arc::default();
        (Connection { stream, patience, silence: self.silence, progress: 0, working, _place: place }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

#[derive(Debug)]
struct Place {
    slot: Option<Slot>,
    connections: Gauge,
    freed: Arc<Notify>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.dec();
        // Given back before the waiter is told.
        drop(self.slot.take());
        self.freed.notify_one();
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Its requests that are being worked on.
    working: Arc<AtomicU32>,
}

impl Peer {
    /// From now on until the value is dropped, its silence is ours.
    pub(crate) fn works(&self) -> Working {
        self.working.fetch_add(1, Ordering::AcqRel);
        Working(Arc::clone(&self.working))
    }
}

impl Connected<IncomingStream<'_, Bounded>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Bounded>) -> Self {
        Self { address: *stream.remote_addr(), working: Arc::clone(&stream.io().working) }
    }
}

#[derive(Debug)]
pub(crate) struct Working(Arc<AtomicU32>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

enum Stream {
    Plain(TcpStream),
    Shaking(Box<Accept<TcpStream>>),
    Tls(Box<TlsStream<TcpStream>>),
    Broken,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Shaking(_) => "Shaking",
            Self::Tls(_) => "Tls",
            Self::Broken => "Broken",
        })
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    patience: Pin<Box<Sleep>>,
    silence: Duration,
    /// Bytes read since the clock was wound up.
    progress: usize,
    working: Arc<AtomicU32>,
    _place: Place,
}

/// A stream that can be read and written.
trait Both: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Both for T {}

impl Connection {
    /// The stream, once hands are shaken; an error if a pending operation has waited too long. Both directions share one
    /// clock: a byte now and then does not keep a place.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Pin<&mut dyn Both>>> {
        while self.patience.as_mut().poll(context).is_ready() {
            if self.working.load(Ordering::Acquire) == 0 {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            // The peer waits for us: it has its time once it is answered.
            self.wind_up();
        }
        if let Stream::Shaking(accept) = &mut self.stream {
            match ready!(Pin::new(&mut **accept).poll(context)) {
                Ok(stream) => self.stream = Stream::Tls(Box::new(stream)),
                Err(error) => {
                    self.stream = Stream::Broken;
                    return Poll::Ready(Err(error));
                }
            }
        }
        match &mut self.stream {
            Stream::Plain(stream) => Poll::Ready(Ok(Pin::new(stream))),
            Stream::Tls(stream) => Poll::Ready(Ok(Pin::new(&mut **stream))),
            Stream::Shaking(_) | Stream::Broken => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn wind_up(&mut self) {
        self.progress = 0;
        let until = Instant::now() + self.silence;
        self.patience.as_mut().reset(until);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(ready!(self.poll(context))?.poll_read(context, buffer))?;
        self.progress += buffer.filled().len().saturating_sub(before);
        if self.progress >= PROGRESS_BYTES {
            self.wind_up();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(ready!(self.poll(context))?.poll_write(context, bytes))?;
        // An answer was taken: the next request has its own time.
        self.wind_up();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            // What TLS holds back leaves now, in the peer's time.
            Stream::Tls(_) => ready!(self.poll(context))?.poll_flush(context),
            Stream::Shaking(_) | Stream::Broken => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(_) => ready!(self.poll(context))?.poll_shutdown(context),
            Stream::Shaking(_) | Stream::Broken => Poll::Ready(Ok(())),
        }
    }
}
