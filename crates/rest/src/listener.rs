//! A listener that gives only so many places, hands connections to the threads that serve them, shakes hands for TLS, and closes a
//! connection that stays silent for too long.
//!
//! A connection beyond the limit waits in the operating system's queue until a place is free; silence bounds that.
//!
//! ```text
//!   Bounded ── a place, a socket ──▶ the Lane with the fewest connections ── its thread's accept ──▶ Connection, for ever there
//! ```
//! Walk: [`Bounded::run`] · [`Lane::accept`] · [`Connection`] the first read or write shakes hands, so nobody waits for
//! a slow newcomer · one clock for both directions, wound up by each answer and each [`PROGRESS_BYTES`] of either, and
//! stopped while a request is being worked on ([`Peer::works`]). What is said beside answers, as HTTP/2 does, winds nothing up.
//! Deliberately absent: work that is taken from another thread. Connections live long and their requests are short.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use assent_door::{Gauge, Slot, Slots};
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::lookout::Lookout;
use crate::tls::Certificates;

/// A request that is being sent, and an answer that is being read, has its time anew with each so many bytes: a byte now and then does
/// not keep a place.
const PROGRESS_BYTES: usize = 16 << 10;

/// Connections on their way to a thread. Each has its place already.
const ARRIVING_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Bounded {
    socket: TcpListener,
    slots: Slots,
    connections: Gauge,
    freed: Arc<Notify>,
    lanes: Vec<(Sender<Arrived>, Arc<AtomicU32>)>,
}

/// What a thread that serves takes its connections from.
#[derive(Debug)]
pub(crate) struct Lane {
    arriving: Receiver<Arrived>,
    address: SocketAddr,
    silence: Duration,
    certificates: Option<Arc<Certificates>>,
    pub(crate) lookout: Arc<Lookout>,
}

#[derive(Debug)]
struct Arrived {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    place: Place,
}

impl Bounded {
    /// With so many lanes. A peer may be silent for so long, and its next request is looked out for for so long.
    pub(crate) fn new(
        socket: TcpListener,
        lanes: usize,
        slots: Slots,
        (silence, look): (Duration, Duration),
        connections: Gauge,
        certificates: Option<&Arc<Certificates>>,
    ) -> io::Result<(Self, Vec<Lane>)> {
        let address = socket.local_addr()?;
        let lane = |_| {
            let (sender, arriving) = channel(ARRIVING_MAX);
            let (certificates, lookout) = (certificates.cloned(), Arc::new(Lookout::new(look)));
            let lane = Lane { arriving, address, silence, certificates, lookout };
            ((sender, Arc::default()), lane)
        };
        let (senders, lanes) = (0..lanes).map(lane).unzip();
        Ok((Self { socket, slots, connections, freed: Arc::default(), lanes: senders }, lanes))
    }

    /// Takes connections in until the lanes are gone.
    pub(crate) async fn run(mut self) {
        loop {
            let slot = self.slot().await;
            // The trait's own accept waits and tries again when the process has no descriptor left.
            let (stream, peer) = Listener::accept(&mut self.socket).await;
            _ = stream.set_nodelay(true);
            // One whose thread is held up and that takes no more is passed over, as long as another one takes it.
            let few =
                |(lane, own): &&(Sender<Arrived>, Arc<AtomicU32>)| (lane.capacity() == 0, own.load(Ordering::Relaxed));
            let Some((lane, own)) = self.lanes.iter().min_by_key(few) else { return };
            own.fetch_add(1, Ordering::Relaxed);
            self.connections.inc();
            let freed = Arc::clone(&self.freed);
            let place = Place { slot: Some(slot), connections: self.connections.clone(), own: Arc::clone(own), freed };
            let Ok(stream) = stream.into_std() else { continue };
            if lane.send(Arrived { stream, peer, place }).await.is_err() {
                return;
            }
        }
    }

    /// One waits here, and no more: a place that is given back wakes one.
    async fn slot(&self) -> Slot {
        loop {
            if let Some(slot) = self.slots.take() {
                return slot;
            }
            self.freed.notified().await;
        }
    }
}

impl Listener for Lane {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let Some(Arrived { stream, peer, place }) = self.arriving.recv().await else {
                // The listener is gone, and this thread will be told.
                return std::future::pending().await;
            };
            let Ok(stream) = TcpStream::from_std(stream) else { continue };
            let patience = Box::pin(tokio::time::sleep(self.silence));
            let stream = match &self.certificates {
                None => Stream::Plain(stream),
                Some(certificates) => Stream::Shaking(Box::new(TlsAcceptor::from(certificates.now()).accept(stream))),
            };
            let (silence, work) = (self.silence, Arc::new(Work::of(&self.lookout)));
            return (Connection { stream, patience, silence, progress: 0, answered: 0, work, _place: place }, peer);
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

#[derive(Debug)]
struct Place {
    slot: Option<Slot>,
    connections: Gauge,
    /// Those of its lane.
    own: Arc<AtomicU32>,
    freed: Arc<Notify>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.dec();
        self.own.fetch_sub(1, Ordering::Relaxed);
        // Given back before the waiter is told.
        drop(self.slot.take());
        self.freed.notify_one();
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    work: Arc<Work>,
}

/// Requests of a connection.
#[derive(Debug)]
struct Work {
    /// That are being worked on.
    now: AtomicU32,
    /// That are answered. It goes round.
    answered: AtomicU32,
    /// Of its thread.
    lookout: Arc<Lookout>,
}

impl Work {
    fn of(lookout: &Arc<Lookout>) -> Self {
        Self { now: AtomicU32::new(0), answered: AtomicU32::new(0), lookout: Arc::clone(lookout) }
    }
}

impl Peer {
    #[cfg(test)]
    pub(crate) fn alone() -> Self {
        let lookout = Arc::new(Lookout::new(Duration::ZERO));
        Self { address: ([127, 0, 0, 1], 1).into(), work: Arc::new(Work::of(&lookout)) }
    }

    /// Whether a request of its is being worked on.
    #[cfg(test)]
    pub(crate) fn is_worked_for(&self) -> bool {
        self.work.now.load(Ordering::Acquire) > 0
    }

    /// From now on until the value is dropped, its silence is ours.
    pub(crate) fn works(&self) -> Working {
        self.work.now.fetch_add(1, Ordering::AcqRel);
        self.work.lookout.under_way.fetch_add(1, Ordering::Relaxed);
        Working(Arc::clone(&self.work))
    }

    /// An answer goes to it: it has its time for that, and for the next request.
    pub(crate) fn is_answered(&self) {
        self.work.answered.fetch_add(1, Ordering::AcqRel);
        self.work.lookout.answered();
    }
}

impl Peer {
    pub(crate) fn of(stream: &IncomingStream<'_, Lane>) -> Self {
        Self { address: *stream.remote_addr(), work: Arc::clone(&stream.io().work) }
    }
}

#[derive(Debug)]
pub(crate) struct Working(Arc<Work>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::AcqRel);
        self.0.lookout.under_way.fetch_sub(1, Ordering::Relaxed);
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
    /// Bytes read and written since the clock was wound up.
    progress: usize,
    /// Answers that were known then.
    answered: u32,
    work: Arc<Work>,
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
            if self.work.now.load(Ordering::Acquire) == 0 {
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

    /// So many bytes went either way.
    fn moved(&mut self, bytes: usize) {
        self.progress += bytes;
        if self.progress >= PROGRESS_BYTES {
            self.wind_up();
        }
    }

    /// So many were written: of an answer, or of what is said beside them.
    fn wrote(&mut self, bytes: usize) {
        let answered = self.work.answered.load(Ordering::Acquire);
        if std::mem::replace(&mut self.answered, answered) == answered {
            self.moved(bytes);
        } else {
            self.wind_up();
        }
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
        self.moved(buffer.filled().len().saturating_sub(before));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(ready!(self.poll(context))?.poll_write(context, bytes))?;
        self.wrote(written);
        Poll::Ready(Ok(written))
    }

    /// A head and its body leave together, where they are.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(ready!(self.poll(context))?.poll_write_vectored(context, pieces))?;
        self.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self.stream, Stream::Plain(_))
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

#[cfg(test)]
mod tests {
    use assent_door::Metrics;

    use super::*;

    #[test]
    fn each_connection_goes_to_the_lane_with_the_fewest_and_one_that_ends_is_counted_no_more() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (address, second) = (socket.local_addr().unwrap(), Duration::from_secs(1));
            let open = Metrics::default().gauge("open", None, "Open");
            let (bounded, mut lanes) =
                Bounded::new(socket, 2, Slots::new(8), (second, Duration::ZERO), open.clone(), None).unwrap();
            let accepting = tokio::spawn(bounded.run());
            let mut clients = Vec::new();
            let mut served = Vec::new();
            for lane in [0, 1, 0, 1] {
                clients.push(TcpStream::connect(address).await.unwrap());
                served.push(lanes[lane].accept().await.0);
            }
            // Both of the second lane end: the next two are its.
            served.remove(3);
            served.remove(1);
            for lane in [1, 1, 0] {
                clients.push(TcpStream::connect(address).await.unwrap());
                served.push(lanes[lane].accept().await.0);
            }
            assert_eq!(open.get(), 5);
            accepting.abort();
        });
    }
}
