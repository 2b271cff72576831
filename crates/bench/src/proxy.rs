//! A network in between: bytes go through as they are, in order, later.
//!
//! ```text
//!   client ── reader ──[ due, bytes ]── writer ── server        and the same back
//! ```
//! Walk: [`Proxy::start`] listens and connects on for each newcomer · a reader stamps what it reads with the time it is due ·
//! a writer waits for that time · half of a round trip each way. A queue that is full stops its reader, and so the sender.
//! Deliberately absent: loss, bandwidth, and any knowledge of what the bytes mean.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use assent_kind::Kind;
use assent_world::net::{Address, tcp_listener};
use assent_world::{Clock, Moment, RealClock};

use crate::BenchError;
use crate::pace::{Think, Thinker};

/// Chunks on their way in one direction.
const QUEUE_MAX: usize = 4_096;
const CHUNK_BYTES: usize = 16 << 10;

/// A network's round trip, uniform in [`rtt_us` - `jitter_us`/2, `rtt_us` + `jitter_us`/2].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// There and back, in the middle.
    pub rtt_us: u64,
    /// From the shortest to the longest.
    pub jitter_us: u64,
}

/// One direction's times.
#[derive(Debug)]
struct Lane {
    round_trip: Think,
    thinker: Thinker,
    last: Moment,
}

impl Lane {
    const fn new(delay: Delay, seed: u64) -> Self {
        let round_trip = Think { median_us: delay.rtt_us, delta_us: delay.jitter_us };
        Self { round_trip, thinker: Thinker::new(seed), last: Moment(0) }
    }

    /// When bytes that are read now are due: half of a round trip later, and never before those that came earlier.
    fn due(&mut self, now: Moment) -> Moment {
        self.last = now.after(self.thinker.draw(self.round_trip) / 2).max(self.last);
        self.last
    }
}

/// Bytes on their way; none is the sender's end.
type Chunk = (Moment, Vec<u8>);

#[derive(Debug, Default)]
struct Inner {
    stop: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
    /// Processor time of each thread, in nanoseconds.
    cpu: Mutex<Vec<Arc<AtomicU64>>>,
    /// What has come from clients at once.
    messages: Arc<AtomicU64>,
}

/// A proxy before one server. Dropped, it cuts all its connections.
#[derive(Debug)]
pub struct Proxy {
    address: Address,
    inner: Arc<Inner>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on loopback; whoever comes reaches `server`, later.
    ///
    /// # Errors
    /// What the operating system says; `Invalid` for a server that is not reached by TCP.
    pub fn start(server: &Address, delay: Delay) -> Result<Self, BenchError> {
        let Address::Tcp { host, port } = server.clone() else {
            return Err(BenchError::new(Kind::Invalid, format!("{server}: a delay needs a TCP address")));
        };
        let failed = |error: std::io::Error| BenchError::new(Kind::Unavailable, format!("the proxy: {error}"));
        let here = Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
        let listener = tcp_listener(&here).map_err(failed)?;
        listener.set_nonblocking(false).map_err(failed)?;
        let address = Address::from(listener.local_addr().map_err(failed)?);
        let inner = Arc::new(Inner::default());
        let shared = Arc::clone(&inner);
        let accept = move || accept(&listener, (&host, port), delay, &shared);
        let acceptor = std::thread::Builder::new().name("proxy".to_owned()).spawn(accept).map_err(failed)?;
        Ok(Self { address, inner, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Messages of clients so far: what came at once, which is one where the client waits for an answer.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.inner.messages.load(Ordering::Relaxed)
    }

    /// Processor time that it took so far: it is part of this process's, and none of the client's.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        let threads = self.inner.cpu.lock().unwrap_or_else(PoisonError::into_inner);
        Duration::from_nanos(threads.iter().map(|thread| thread.load(Ordering::Relaxed)).sum())
    }
}

#[expect(clippy::disallowed_methods, reason = "the bench brings its own network")]
impl Drop for Proxy {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Relaxed);
        for stream in self.inner.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the acceptor.
        if let Address::Tcp { host, port } = &self.address {
            _ = TcpStream::connect((host.as_str(), *port));
        }
        if let Some(acceptor) = self.acceptor.take() {
            // It panicked: the panic was printed where it happened.
            _ = acceptor.join();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the bench brings its own network")]
fn accept(listener: &TcpListener, server: (&str, u16), delay: Delay, inner: &Arc<Inner>) {
    let mut seed = 0;
    for client in listener.incoming() {
        if inner.stop.load(Ordering::Relaxed) {
            return;
        }
        // A server that is not there: the client's connection ends, which is what it would see.
        let Ok(client) = client else { continue };
        let Ok(server) = TcpStream::connect(server) else { continue };
        seed += 2;
        _ = join(client, server, delay, seed, inner);
    }
}

/// Both directions of one connection, each a reader and a writer.
fn join(client: TcpStream, server: TcpStream, delay: Delay, seed: u64, inner: &Arc<Inner>) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ways = [(client.try_clone()?, server.try_clone()?, seed), (server.try_clone()?, client.try_clone()?, seed + 1)];
    for (from, to, seed) in ways {
        let (send, take) = sync_channel(QUEUE_MAX);
        let lane = Lane::new(delay, seed);
        let (reading, writing) = (meter(inner), meter(inner));
        let messages = seed.is_multiple_of(2).then(|| Arc::clone(&inner.messages));
        std::thread::Builder::new().name("proxy-read".to_owned()).spawn(move || {
            read(&from, &send, lane, &reading, messages.as_deref());
        })?;
        std::thread::Builder::new().name("proxy-write".to_owned()).spawn(move || write(&to, &take, &writing))?;
    }
    inner.streams.lock().unwrap_or_else(PoisonError::into_inner).extend([client, server]);
    Ok(())
}

fn meter(inner: &Inner) -> Arc<AtomicU64> {
    let meter = Arc::<AtomicU64>::default();
    inner.cpu.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&meter));
    meter
}

/// What the calling thread has taken so far.
fn note(meter: &AtomicU64) {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let nanos = Duration::try_from(time).unwrap_or_default().as_nanos();
    meter.store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
}

fn read(
    mut from: &TcpStream,
    send: &SyncSender<Chunk>,
    mut lane: Lane,
    meter: &AtomicU64,
    messages: Option<&AtomicU64>,
) {
    let mut bytes = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut bytes).unwrap_or(0);
        let chunk = bytes.get(..read).unwrap_or_default().to_vec();
        if send.send((lane.due(RealClock.now()), chunk)).is_err() {
            // The writer has ended, as the other side takes nothing.
            _ = from.shutdown(Shutdown::Read);
            return;
        }
        if read == 0 {
            return;
        }
        messages.map(|messages| messages.fetch_add(1, Ordering::Relaxed));
        note(meter);
    }
}

fn write(mut to: &TcpStream, take: &Receiver<Chunk>, meter: &AtomicU64) {
    // A thread's timers may be 50 us late, which would be a part of the round trip; without this right they are.
    _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    while let Ok((due, chunk)) = take.recv() {
        let left = due.since(RealClock.now());
        if !left.is_zero() {
            RealClock.sleep(left);
        }
        if chunk.is_empty() || to.write_all(&chunk).is_err() {
            break;
        }
        note(meter);
    }
    // The end, passed on; the other direction may still have something to say.
    _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_due_half_a_round_trip_later_and_never_before_an_earlier_one() {
        for delay in [
            Delay { rtt_us: 1_000, jitter_us: 0 },
            Delay { rtt_us: 1_000, jitter_us: 600 },
            Delay { rtt_us: 923, jitter_us: 1 },
            Delay { rtt_us: 10, jitter_us: 100 },
            Delay::default(),
        ] {
            let mut lane = Lane::new(delay, 7);
            let (mut last, mut sum) = (Moment(0), 0);
            for step in 0..10_000_u64 {
                // Far apart, so that order never holds one back.
                let now = Moment(step * 10_000);
                let due = lane.due(now);
                let took = due.0 - now.0;
                let (least, most) =
                    (delay.rtt_us.saturating_sub(delay.jitter_us / 2), delay.rtt_us + delay.jitter_us / 2 + 1);
                let most = most.max(least + delay.jitter_us);
                assert!(least / 2 <= took && took <= most / 2, "{delay:?}: {took}");
                assert!(due >= last);
                (last, sum) = (due, sum + took);
            }
            if delay.rtt_us > delay.jitter_us {
                let mean = sum / 10_000;
                assert!(mean.abs_diff(delay.rtt_us / 2) <= delay.jitter_us / 40 + 1, "{delay:?}: {mean}");
            }
        }
    }

    #[test]
    fn what_comes_close_together_keeps_its_order() {
        let mut lane = Lane::new(Delay { rtt_us: 1_000, jitter_us: 2_000 }, 3);
        let dues: Vec<Moment> = (0..1_000).map(|now| lane.due(Moment(now))).collect();
        assert!(dues.is_sorted());
        assert!(dues.windows(2).any(|pair| pair[0] == pair[1]), "somebody was held back for the order's sake");
    }
}
