//! The HTTP listener: its thread, its start and its stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use assent_door::{Limits, Metrics, Slots};
use assent_kind::Kind;
use assent_world::Clock;
use assent_world::net::{Address, tcp_listener};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::guard::Guard;
use crate::identity::Identity;
use crate::listener;
use crate::service::Service;
use crate::tls::Certificates;

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
    /// A setting that cannot work.
    #[error("{name} = {value}; {rule}")]
    Setting {
        /// The configuration key.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        rule: &'static str,
    },
}

impl RestError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Listen { .. } | Self::Start(_) => Kind::Unavailable,
            Self::Setting { .. } => Kind::Invalid,
        }
    }
}

/// What callers may take of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Of these, the connections and the time to send a request are used.
    pub limits: Limits,
    /// Requests that are under way at a time; one more is answered 503.
    pub requests_max: u32,
    /// How long one may take, in milliseconds, its body included.
    pub request_ms: u32,
    /// Bytes of a body.
    pub body_bytes_max: u32,
    /// Requests of one caller in a second; 0: as many as he likes.
    pub requests_per_second: u32,
    /// Threads that may block, each in one request at a time.
    pub threads: u32,
    /// For how long a request with an `Idempotency-Key` is told again what it was told.
    pub idempotency_seconds: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            requests_max: 256,
            request_ms: 30_000,
            body_bytes_max: 16 << 20,
            requests_per_second: 0,
            threads: 16,
            idempotency_seconds: 86_400,
        }
    }
}

impl Settings {
    /// Refuses what cannot work.
    ///
    /// # Errors
    /// [`RestError::Setting`] names the key, its value and the rule.
    pub fn check(&self) -> Result<(), RestError> {
        let within = |name, value: u32, range: std::ops::RangeInclusive<u32>, rule| {
            let told = u64::from(value);
            if range.contains(&value) { Ok(()) } else { Err(RestError::Setting { name, value: told, rule }) }
        };
        within("http.requests_max", self.requests_max, 1..=65_536, "it must be 1 to 65536")?;
        within("http.request_ms", self.request_ms, 1..=3_600_000, "it must be 1 to 3600000 ms")?;
        within("http.body_bytes_max", self.body_bytes_max, 1_024..=256 << 20, "it must be 1024 to 268435456 bytes")?;
        within("http.requests_per_second", self.requests_per_second, 0..=1_000_000, "it must be at most 1000000")?;
        within("http.threads", self.threads, 1..=512, "it must be 1 to 512")?;
        let (seconds, rule) = (self.idempotency_seconds, "it must be 60 to 31536000");
        within("http.idempotency_seconds", seconds, 60..=31_536_000, rule)
    }
}

/// What stands before every handler of a listener.
#[derive(Clone, Debug)]
pub struct Entrance {
    /// What callers may take.
    pub settings: Settings,
    /// How they are known.
    pub identity: Arc<Identity>,
    /// What is shown to them; without, nothing is encrypted.
    pub certificates: Option<Arc<Certificates>>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where requests are counted.
    pub metrics: Arc<Metrics>,
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
    /// Serves there, on a thread of its own with others beside it for what may block. The address has passed
    /// `assent_door::shielded_address`.
    ///
    /// # Errors
    /// [`RestError`] names a setting that cannot work, or says that the address is taken or no thread can be had.
    pub fn start(address: &Address, entrance: Entrance, service: Service) -> Result<Self, RestError> {
        let Entrance { settings, identity, certificates, clock, metrics } = entrance;
        settings.check()?;
        let threads = usize::try_from(settings.threads).unwrap_or(1) + 3;
        let mut builder = Builder::new_current_thread();
        builder.enable_io().enable_time().max_blocking_threads(threads).thread_name("rest-work");
        let runtime = builder.build().map_err(RestError::Start)?;
        let refused = |error| RestError::Listen { address: address.clone(), error };
        let socket = tcp_listener(address).map_err(refused)?;
        let inside = runtime.enter();
        let socket = TcpListener::from_std(socket).map_err(refused)?;
        drop(inside);
        let address = socket.local_addr().map_err(RestError::Start)?;
        let label = Some(("listener", service.name()));
        let connections = metrics.gauge("http_connections", label, "Open HTTP connections");
        let listener = listener::Bounded::new(
            socket,
            Slots::new(settings.limits.connections_max),
            Duration::from_millis(u64::from(settings.limits.partial_frame_ms)),
            connections,
            certificates,
        );
        let guard = Guard::new(&settings, identity, clock, &metrics, &service, address.ip().is_loopback());
        let served = service.under(Arc::new(guard), &settings);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("rest".to_owned())
            .spawn(move || serve(runtime, listener, served, stopped))
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

/// What work that cannot be cut short is given at the end.
const GRACE: Duration = Duration::from_millis(500);

fn serve(
    runtime: Runtime,
    listener: listener::Bounded,
    served: crate::service::Served,
    stopped: oneshot::Receiver<Duration>,
) {
    let (ending, ended) = oneshot::channel::<()>();
    runtime.block_on(async move {
        let crate::service::Served { router, upkeep, closing } = served;
        let upkeep = upkeep.map(tokio::spawn);
        let service = router.into_make_service_with_connect_info::<listener::Peer>();
        let graceful = axum::serve(listener, service).with_graceful_shutdown(async move { _ = ended.await });
        let serving = tokio::spawn(async move { graceful.await });
        let within = stopped.await.unwrap_or(Duration::ZERO);
        _ = ending.send(());
        _ = closing.send(true);
        if tokio::time::timeout(within, serving).await.is_err() {
            tracing::debug!(?within, "HTTP connections were still open and are closed now");
        }
        upkeep.inspect(tokio::task::JoinHandle::abort);
    });
    // What is left on the runtime ends with it; a thread that is inside an engine is left to it.
    runtime.shutdown_timeout(GRACE);
}
