//! A listener that gives only so many places, and closes a connection that stays silent for too long.
//!
//! A connection beyond the limit waits in the operating system's queue until a place is free; silence bounds that.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use assent_door::{Gauge, Slot, Slots};
use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

#[derive(Debug)]
pub(crate) struct Bounded {
    socket: TcpListener,
    slots: Slots,
    silence: Duration,
    connections: Gauge,
    freed: Arc<Notify>,
}

impl Bounded {
    pub(crate) fn new(socket: TcpListener, slots: Slots, silence: Duration, connections: Gauge) -> Self {
        Self { socket, slots, silence, connections, freed: Arc::default() }
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
        (Connection { stream, patience, silence: self.silence, _place: place }, peer)
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

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    patience: Pin<Box<Sleep>>,
    silence: Duration,
    _place: Place,
}

impl Connection {
    /// Whether a pending operation has waited too long. Both directions share one clock, wound up by each request
    /// (see `poll_write`): a byte now and then does not keep a place.
    fn timed_out(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        ready!(self.patience.as_mut().poll(context));
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(error) = self.timed_out(context) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Poll::Ready(error) = self.timed_out(context) {
            return Poll::Ready(Err(error));
        }
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        // An answer was taken: the next request has its own time.
        let until = Instant::now() + self.silence;
        self.patience.as_mut().reset(until);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
