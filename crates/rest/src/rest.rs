//! The HTTP listener: its threads, its start and its stop.
//!
//! ```text
//!   rest-accept    takes connections in ──▶ rest, rest-1…    serve their share of them ──▶ rest-work    what may block
//! ```
//! Each that serves has a runtime of its own. None of them takes connections in: one that is busy would keep newcomers from the others.
//! Walk: [`Rest::start`] a thread for each core · [`serve`] until it is told how long the rest may take.
//! Deliberately absent: a runtime that moves tasks between threads. A lone request would wake two of them.

use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use assent_door::{Limits, Metrics, Slots};
use assent_kind::Kind;
use assent_world::net::{Address, tcp_listener};
use assent_world::{Clock, wake_soon};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch as flag;

use crate::crew::Crew;
use crate::front::Front;
use crate::guard::Guard;
use crate::identity::Identity;
use crate::listener::{Bounded, Lane};
use crate::service::{Served, Service};
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

/// What callers may take of a listener: `[http]` of a configuration, with the limits beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Of these, the connections and the time to send a request are used.
    #[serde(skip)]
    pub limits: Limits,
    /// Requests that are under way at a time; one more is answered 503.
    pub requests_max: u32,
    /// How long one may take, in milliseconds, its body included.
    pub request_ms: u32,
    /// Bytes of a body.
    pub body_bytes_max: u32,
    /// Requests of one caller in a second; 0: as many as he likes.
    pub requests_per_second: u32,
    /// Threads that may block, each in one request at a time: half of them for who changes something, so that readers never wait for those.
    /// Ends of transactions have as many as that half, beside them.
    pub threads: u32,
    /// It may stand beyond loopback without identity or TLS. For whoever gives it an address, who has to look: a [`Rest`] stands where it is
    /// told to. Says nothing of the binary protocol's.
    pub insecure: bool,
    /// For how long a request with an `Idempotency-Key` is told again what it was told.
    pub idempotency_seconds: u32,
    /// For how long a thread looks for the next request before it sleeps, in microseconds; 0: not at all.
    pub look_us: u32,
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
            insecure: false,
            idempotency_seconds: 86_400,
            look_us: 0,
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
        within("http.idempotency_seconds", seconds, 60..=31_536_000, rule)?;
        within("http.look_us", self.look_us, 0..=10_000, "it must be at most 10000 us")
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
    // Told the time that is left; dropped untold, it stops at once.
    stop: Option<flag::Sender<Option<Duration>>>,
    thread: Option<JoinHandle<()>>,
}

impl Rest {
    /// Serves there, on a thread for each core with others beside them for what may block. The address has passed
    /// `assent_door::shielded_address`.
    ///
    /// # Errors
    /// [`RestError`] names a setting that cannot work, or says that the address is taken or no thread can be had.
    pub fn start(address: &Address, entrance: Entrance, service: Service) -> Result<Self, RestError> {
        let Entrance { settings, identity, certificates, clock, metrics } = entrance;
        settings.check()?;
        let serving = std::thread::available_parallelism().map_or(1, NonZero::get).min(SERVING_MAX);
        let (entry, first) = (runtime()?, runtime()?);
        let others = (1..serving).map(|_| runtime()).collect::<Result<Vec<_>, _>>()?;
        let refused = |error| RestError::Listen { address: address.clone(), error };
        let socket = tcp_listener(address).map_err(refused)?;
        let inside = entry.enter();
        let socket = TcpListener::from_std(socket).map_err(refused)?;
        drop(inside);
        let address = socket.local_addr().map_err(RestError::Start)?;
        let label = Some(("listener", service.name()));
        let connections = metrics.gauge("http_connections", label, "Open HTTP connections");
        let (slots, silence) = (Slots::new(settings.limits.connections_max), settings.limits.partial_frame_ms);
        let waits = (Duration::from_millis(silence.into()), Duration::from_micros(settings.look_us.into()));
        let bounded = Bounded::new(socket, serving, slots, waits, connections, certificates.as_ref());
        let (bounded, mut lanes) = bounded.map_err(RestError::Start)?;
        let is_loopback = address.ip().is_loopback();
        let crew = Crew::default();
        let guard = Guard::new(&settings, identity, clock, &metrics, &service, (is_loopback, &crew));
        let served = service.under(Arc::new(guard), &settings);
        let (stop, stopped) = flag::channel(None);
        let own = lanes.pop();
        let told = stopped.clone();
        let mut threads = vec![thread("rest-accept".to_owned(), move || take_in(&entry, bounded, told))?];
        for (number, (runtime, lane)) in others.into_iter().zip(lanes).enumerate() {
            let (front, stopped) = (served.front.clone(), stopped.clone());
            let work = move || {
                runtime.block_on(serve(lane, front, stopped));
                runtime.shutdown_background();
            };
            threads.push(thread(format!("rest-{}", number + 1), work)?);
        }
        let thread = thread("rest".to_owned(), move || lead((first, &crew), own, served, stopped, threads))?;
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
            _ = stop.send(Some(within));
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

/// Threads that serve, at most.
const SERVING_MAX: usize = 8;
/// What work that cannot be cut short is given at the end.
const GRACE: Duration = Duration::from_millis(500);

/// Of one thread that serves.
fn runtime() -> Result<Runtime, RestError> {
    let mut builder = Builder::new_current_thread();
    builder.enable_io().enable_time().max_blocking_threads(1);
    // What others have done for it has every second turn: else an answer that is ready waits behind all that was asked for meanwhile. Not
    // every turn: what its own connections ask for would wait as long as others are busy.
    builder.global_queue_interval(2);
    builder.build().map_err(RestError::Start)
}

fn thread(name: String, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, RestError> {
    std::thread::Builder::new().name(name).spawn(work).map_err(RestError::Start)
}

type Stopped = flag::Receiver<Option<Duration>>;

/// Takes connections in until it is told to stop.
fn take_in(runtime: &Runtime, bounded: Bounded, mut stopped: Stopped) {
    // Those that serve may keep all cores busy.
    wake_soon();
    runtime.block_on(async {
        let accepting = tokio::spawn(bounded.run());
        _ = stopped.wait_for(Option::is_some).await;
        accepting.abort();
    });
}

/// The first thread that serves: it ends when all have.
fn lead(
    (runtime, crew): (Runtime, &Crew),
    lane: Option<Lane>,
    served: Served,
    stopped: Stopped,
    others: Vec<JoinHandle<()>>,
) {
    let Served { front, upkeep, closing } = served;
    runtime.block_on(async {
        let upkeep = upkeep.map(tokio::spawn);
        let (mut told, mut over, closes) = (stopped.clone(), stopped.clone(), Arc::new(closing));
        let closing = Arc::clone(&closes);
        tokio::spawn(async move {
            _ = told.wait_for(Option::is_some).await;
            _ = closing.send(true);
        });
        if let Some(lane) = lane {
            serve(lane, front, stopped).await;
        }
        // Where nothing was left to serve here, that task may not have had its turn: streams on other threads wait for it.
        _ = over.wait_for(Option::is_some).await;
        _ = closes.send(true);
        upkeep.inspect(tokio::task::JoinHandle::abort);
    });
    // Before the threads end on which their requests may still be at work.
    for other in others {
        _ = other.join();
    }
    // What is left on the runtime ends with it; a thread that is inside an engine is left to it.
    runtime.shutdown_background();
    crew.end(GRACE);
}

/// Serves a lane until it is told to stop, and then for as long as it is told.
async fn serve(lane: Lane, front: Front, mut stopped: Stopped) {
    let mut told = stopped.clone();
    let lookout = Arc::clone(&lane.lookout);
    tokio::spawn(async move { lookout.keep().await });
    let stop = async move { _ = told.wait_for(Option::is_some).await };
    let graceful = axum::serve(lane, front).with_graceful_shutdown(stop);
    let serving = tokio::spawn(async move { graceful.await });
    let within = stopped.wait_for(Option::is_some).await.map_or(None, |within| *within).unwrap_or(Duration::ZERO);
    if tokio::time::timeout(within, serving).await.is_err() {
        tracing::debug!(?within, "HTTP connections were still open and are closed now");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn settings_have_their_defaults_their_names_and_no_others() {
        let read = serde_json::from_str::<Settings>;
        assert_eq!(read("{}").unwrap(), Settings::default());
        let told = Settings { threads: 4, insecure: true, ..Settings::default() };
        assert_eq!(read(r#"{"threads":4,"insecure":true}"#).unwrap(), told);
        for wrong in [r#"{"thread":4}"#, r#"{"limits":{}}"#, r#"{"look_us":-1}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_another_thread_has_done_is_told_before_what_was_asked_for_meanwhile() {
        // A commit's answer stood behind as many as 30 pages.
        runtime().unwrap().block_on(async {
            let (done, told) = oneshot::channel();
            let pages = Arc::new(AtomicU32::new(0));
            let seen = Arc::clone(&pages);
            let answer = tokio::spawn(async move { told.await.map(|()| seen.load(Ordering::Relaxed)) });
            tokio::task::yield_now().await;
            let mut done = Some(done);
            for _ in 0..100 {
                let (pages, done) = (Arc::clone(&pages), done.take());
                tokio::spawn(async move {
                    if let Some(done) = done {
                        std::thread::spawn(move || done.send(())).join().unwrap().unwrap();
                    }
                    pages.fetch_add(1, Ordering::Relaxed);
                });
            }
            assert!(answer.await.unwrap().unwrap() <= 2);
        });
    }
}
