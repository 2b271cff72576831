//! A network that can be harmed: each connection between two ends goes through a proxy of ours, and each direction has its weather.
//!
//! ```text
//!   one end ── carrier there ──[ weather of one -> other ]── other end          and the same back
//! ```
//! Walk: [`Net::link`] listens for those who want to reach an end from another · [`Net::set`] says how a direction is from now on ·
//! a carrier takes what it reads through the weather that it finds. Cut: nothing arrives and nobody is told, what was said waits, as
//! TCP sends it again; a new connection is not made. Lost: what is carried stalls, as until it is sent again, and now and then the
//! connection ends. What was there before a cut may be ended when it is mended ([`Net::end_all`]): both are seen in real networks.
//! Deliberately absent: any knowledge of what the bytes mean.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use assent_sim::Rng;
use assent_world::net::{Address, Stream, tcp_listener};
use assent_world::{Clock as _, RealClock};

use crate::failure::Failure;

const CHUNK_BYTES: usize = 64 << 10;
/// How long a connection may take to be made, on one machine.
const CONNECT: Duration = Duration::from_secs(5);
/// How long what was lost takes to be sent again.
const AGAIN: Duration = Duration::from_millis(60);

/// Who talks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// A member.
    Node(u8),
    /// Witness or etcd.
    Arbiter,
    /// All clients.
    Clients,
}

/// How a direction is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weather {
    pub(crate) is_cut: bool,
    pub(crate) delay: Duration,
    /// Of a hundred chunks, so many stall until they are sent again; of a thousand, so many end the connection.
    pub(crate) lost_of_100: u64,
}

#[derive(Debug)]
struct Sky {
    weather: Mutex<BTreeMap<(End, End), Weather>>,
    changed: Condvar,
    stop: AtomicBool,
    streams: Mutex<Vec<(End, End, TcpStream)>>,
    carried: AtomicU64,
    seed: u64,
}

/// The network. Dropped, it ends all its connections.
#[derive(Debug)]
pub(crate) struct Net {
    sky: Arc<Sky>,
    links: Vec<(Address, JoinHandle<()>)>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        let sky = Sky {
            weather: Mutex::default(),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            streams: Mutex::default(),
            carried: AtomicU64::new(0),
            seed,
        };
        Self { sky: Arc::new(sky), links: Vec::new() }
    }

    /// Where `from` reaches `to`, which listens at `server`.
    pub(crate) fn link(&mut self, from: End, to: End, server: &Address) -> Result<Address, Failure> {
        let failed = |error: std::io::Error| Failure::io("make", "a link", &error);
        let here = Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
        let listener = tcp_listener(&here).map_err(failed)?;
        listener.set_nonblocking(false).map_err(failed)?;
        let address = Address::from(listener.local_addr().map_err(failed)?);
        let (sky, server) = (Arc::clone(&self.sky), server.clone());
        let accept = move || accept(&listener, &server, (from, to), &sky);
        let acceptor = std::thread::Builder::new().name("link".to_owned()).spawn(accept).map_err(failed)?;
        self.links.push((address.clone(), acceptor));
        Ok(address)
    }

    /// How it is from now on, from one end to the other; not back.
    pub(crate) fn set(&self, from: End, to: End, weather: Weather) {
        locked(&self.sky.weather).insert((from, to), weather);
        self.sky.changed.notify_all();
    }

    /// Everything is well again.
    pub(crate) fn clear(&self) {
        locked(&self.sky.weather).clear();
        self.sky.changed.notify_all();
    }

    /// Ends what is connected between two ends.
    pub(crate) fn end_all(&self, one: End, other: End) {
        locked(&self.sky.streams).retain(|(from, to, stream)| {
            let is_between = (*from, *to) == (one, other) || (*from, *to) == (other, one);
            if is_between {
                _ = stream.shutdown(Shutdown::Both);
            }
            !is_between
        });
    }

    /// Chunks that were carried so far, and directions that began.
    #[cfg(test)]
    fn carried(&self) -> u64 {
        self.sky.carried.load(Ordering::Relaxed)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.sky.stop.store(true, Ordering::Relaxed);
        self.clear();
        for (_, _, stream) in locked(&self.sky.streams).drain(..) {
            _ = stream.shutdown(Shutdown::Both);
        }
        for (address, acceptor) in self.links.drain(..) {
            // Wakes the acceptor.
            _ = Stream::connect(&address, CONNECT);
            // It panicked: the panic was printed where it happened.
            _ = acceptor.join();
        }
    }
}

impl Sky {
    fn weather(&self, way: (End, End)) -> Weather {
        locked(&self.weather).get(&way).copied().unwrap_or_default()
    }

    /// Waits until none of these ways is cut; false when the net ends.
    fn await_open(&self, ways: &[(End, End)]) -> bool {
        let mut weather = locked(&self.weather);
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            if !ways.iter().any(|way| weather.get(way).is_some_and(|found| found.is_cut)) {
                return true;
            }
            weather = self.changed.wait(weather).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn accept(listener: &TcpListener, server: &Address, (from, to): (End, End), sky: &Arc<Sky>) {
    for client in listener.incoming() {
        if sky.stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok(client) = client else { continue };
        let (server, sky) = (server.clone(), Arc::clone(sky));
        // Each waits for itself: who is cut off does not hold up who comes next.
        let made = std::thread::Builder::new().name("link-made".to_owned());
        _ = made.spawn(move || join(client, &server, (from, to), &sky));
    }
}

/// Makes the second half of a connection and carries both directions until it ends.
fn join(client: TcpStream, server: &Address, (from, to): (End, End), sky: &Arc<Sky>) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    if !sky.await_open(&[(from, to), (to, from)]) {
        return Ok(());
    }
    // Nobody listens there: the client's connection ends.
    let server = Stream::connect(server, CONNECT)?;
    locked(&sky.streams).push((from, to, client.try_clone()?));
    if sky.stop.load(Ordering::Relaxed) {
        return Ok(());
    }
    let ends = (client.try_clone()?, server.try_clone()?);
    let (there, back) = (Arc::clone(sky), Arc::clone(sky));
    let answers = std::thread::Builder::new().name("link-back".to_owned()).spawn(move || {
        carry(&ends.1, &ends.0, (to, from), &back);
        _ = ends.1.shutdown();
        _ = ends.0.shutdown(Shutdown::Both);
    })?;
    carry(&client, &server, (from, to), &there);
    // The other direction is ended with it: who speaks our protocols does not half close.
    _ = server.shutdown();
    _ = client.shutdown(Shutdown::Both);
    _ = answers.join();
    Ok(())
}

/// Carries one direction until one end has gone.
fn carry<F, T>(mut from: &F, mut to: &T, way: (End, End), sky: &Sky)
where
    for<'a> &'a F: Read,
    for<'a> &'a T: Write,
{
    let mut bytes = vec![0; CHUNK_BYTES];
    let mut rng = Rng::new(sky.seed ^ sky.carried.fetch_add(1, Ordering::Relaxed));
    loop {
        let read = match from.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap_or(0),
        };
        // Also the news that an end has gone does not pass a cut.
        if !sky.await_open(&[way]) || read == 0 {
            return;
        }
        let weather = sky.weather(way);
        if !weather.delay.is_zero() {
            RealClock.sleep(weather.delay);
        }
        if rng.below(100) < weather.lost_of_100 {
            RealClock.sleep(AGAIN);
        }
        if rng.below(1_000) < weather.lost_of_100 {
            return;
        }
        // Ahead of it: who has read a chunk finds it counted.
        sky.carried.fetch_add(1, Ordering::Relaxed);
        if to.write_all(bytes.get(..read).unwrap_or_default()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    const ONE: End = End::Node(1);
    const TWO: End = End::Node(2);
    const LONG: Duration = Duration::from_secs(60);
    const CUT: Weather = Weather { is_cut: true, delay: Duration::ZERO, lost_of_100: 0 };

    /// A server that gives bytes back, and says what it has read.
    fn echo() -> (Address, Receiver<Vec<u8>>) {
        let listener = tcp_listener(&"127.0.0.1:0".parse().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let address = Address::from(listener.local_addr().unwrap());
        let (send, heard) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, send) = (stream.unwrap(), send.clone());
                std::thread::spawn(move || {
                    let mut bytes = [0; 64];
                    while let Ok(read @ 1..) = stream.read(&mut bytes) {
                        _ = send.send(bytes[..read].to_vec());
                        _ = stream.write_all(&bytes[..read]);
                    }
                    _ = send.send(Vec::new());
                });
            }
        });
        (address, heard)
    }

    fn connect(at: &Address) -> Stream {
        let stream = Stream::connect(at, LONG).unwrap();
        stream.set_timeouts(Some(LONG), Some(LONG)).unwrap();
        stream
    }

    fn read(stream: &Stream) -> Vec<u8> {
        let mut bytes = [0; 64];
        let mut from = stream;
        // An end may also be told as an error.
        let read = from.read(&mut bytes).unwrap_or(0);
        bytes[..read].to_vec()
    }

    fn say(stream: &Stream, what: &[u8]) {
        let mut to = stream;
        to.write_all(what).unwrap();
    }

    #[test]
    fn a_cut_is_of_one_direction_and_what_was_said_arrives_when_it_is_mended() {
        let (server, heard) = echo();
        let mut net = Net::new(1);
        let at = net.link(ONE, TWO, &server).unwrap();
        let line = connect(&at);
        say(&line, b"a");
        assert_eq!((heard.recv_timeout(LONG).unwrap(), read(&line)), (b"a".to_vec(), b"a".to_vec()));
        // Answers are cut: the question arrives, the answer waits.
        net.set(TWO, ONE, CUT);
        say(&line, b"b");
        assert_eq!(heard.recv_timeout(LONG).unwrap(), b"b");
        assert!(!line.is_readable());
        // The other way is cut, and this one is mended: the answer comes, and the next question waits.
        net.set(ONE, TWO, CUT);
        net.set(TWO, ONE, Weather::default());
        assert_eq!(read(&line), b"b");
        let before = net.carried();
        say(&line, b"c");
        // Another way is as it was: a line of two others makes its round, and what was cut has not moved meanwhile.
        let other = connect(&net.link(End::Clients, TWO, &server).unwrap());
        say(&other, b"d");
        assert_eq!((heard.recv_timeout(LONG).unwrap(), read(&other)), (b"d".to_vec(), b"d".to_vec()));
        assert_eq!(net.carried() - before, 4, "two directions that began, and a chunk in each");
        net.clear();
        assert_eq!((heard.recv_timeout(LONG).unwrap(), read(&line)), (b"c".to_vec(), b"c".to_vec()));
    }

    #[test]
    fn behind_a_cut_nobody_hears_of_an_end_and_nobody_connects() {
        let (server, heard) = echo();
        let mut net = Net::new(1);
        let at = net.link(ONE, TWO, &server).unwrap();
        let line = connect(&at);
        say(&line, b"a");
        assert_eq!((heard.recv_timeout(LONG).unwrap(), read(&line)), (b"a".to_vec(), b"a".to_vec()));
        net.set(ONE, TWO, CUT);
        drop(line);
        let second = connect(&at);
        say(&second, b"b");
        assert!(heard.try_recv().is_err(), "neither the end nor the second connection is known there");
        net.clear();
        let mut all = [heard.recv_timeout(LONG).unwrap(), heard.recv_timeout(LONG).unwrap()];
        all.sort();
        assert_eq!(all, [b"".to_vec(), b"b".to_vec()]);
        assert_eq!(read(&second), b"b");
        net.end_all(TWO, ONE);
        assert_eq!((heard.recv_timeout(LONG).unwrap(), read(&second)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn whoever_is_not_there_is_an_end_and_loss_ends_a_connection_now_and_then() {
        let mut net = Net::new(7);
        let gone = tcp_listener(&"127.0.0.1:0".parse().unwrap()).unwrap().local_addr().unwrap();
        let at = net.link(ONE, TWO, &Address::from(gone)).unwrap();
        assert_eq!(read(&connect(&at)), b"");
        let (server, _heard) = echo();
        let at = net.link(TWO, ONE, &server).unwrap();
        net.set(ONE, TWO, Weather { delay: Duration::from_millis(1), ..Weather::default() });
        net.set(TWO, ONE, Weather { lost_of_100: 40, ..Weather::default() });
        let line = connect(&at);
        let mut rounds = 0;
        loop {
            let mut to = &line;
            if to.write_all(b"x").is_err() || read(&line).is_empty() {
                break;
            }
            rounds += 1;
        }
        assert!(rounds < 5_000, "four of a hundred chunks end it");
    }
}
