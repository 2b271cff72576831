//! The HTTP listener: its thread, its start and its stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use assent_door::{Health, Limits, Metrics, Slots};
use assent_kind::Kind;
use assent_world::net::{Address, tcp_listener};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::{listener, routes};

/// Why the listener does not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// Nobody can listen there.
    #[error("cannot listen on {address} for HTTP: {error}")]
    Listen {
        /// Where.
        address: Address,
        /// As the operating system says.
        error: std::io::Error,
    },
    /// The operating system gave no thread or no event queue.
    #[error("cannot start the HTTP thread: {0}")]
    Start(std::io::Error),
}

impl RestError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        Kind::Unavailable
    }
}

/// The HTTP listener, serving until it is stopped or dropped.
#[derive(Debug)]
pub struct Rest {
    address: SocketAddr,
    // Sent with the time that is left; dropped unsent, it stops at once.
    stop: Option<oneshot::Sender<Duration>>,
    thread: Option<JoinHandle<()>>,
}

impl Rest {
    /// Serves `/health` and `/metrics` there, on a thread of its own. The address has passed
    /// `assent_door::listen_address`; of the limits, the connections and the time to send a request are used.
    ///
    /// # Errors
    /// [`RestError`] if the address is taken or no thread can be had.
    pub fn start(
        address: &Address,
        limits: Limits,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
    ) -> Result<Self, RestError> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(RestError::Start)?;
        let refused = |error| RestError::Listen { address: address.clone(), error };
        let socket = tcp_listener(address).map_err(refused)?;
        let inside = runtime.enter();
        let socket = TcpListener::from_std(socket).map_err(refused)?;
        drop(inside);
        let address = socket.local_addr().map_err(RestError::Start)?;
        let connections = metrics.gauge("http_connections", None, "Open HTTP connections");
        let listener = listener::Bounded::new(
            socket,
            Slots::new(limits.connections_max),
            Duration::from_millis(u64::from(limits.partial_frame_ms)),
            connections,
        );
        let (stop, stopped) = oneshot::channel();
        let router = routes::router(metrics, health);
        let thread = std::thread::Builder::new()
            .name("rest".to_owned())
            .spawn(move || serve(&runtime, listener, router, stopped))
            .map_err(RestError::Start)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens; tells the port if 0 was asked for.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no new connection, finishes the requests under way, but not for longer than this.
    pub fn stop(mut self, within: Duration) {
        self.end(Some(within));
    }

    fn end(&mut self, within: Option<Duration>) {
        if let (Some(stop), Some(within)) = (self.stop.take(), within) {
            _ = stop.send(within);
        }
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.end(None);
    }
}

fn serve(runtime: &Runtime, listener: listener::Bounded, router: axum::Router, stopped: oneshot::Receiver<Duration>) {
    let (ending, ended) = oneshot::channel::<()>();
    runtime.block_on(async move {
        let graceful = axum::serve(listener, router).with_graceful_shutdown(async move { _ = ended.await });
        let serving = tokio::spawn(async move { graceful.await });
        let within = stopped.await.unwrap_or(Duration::ZERO);
        _ = ending.send(());
        if tokio::time::timeout(within, serving).await.is_err() {
            tracing::debug!(?within, "HTTP connections were still open and are closed now");
        }
    });
    // What is left on the runtime ends with it.
}
