//! What a round trip costs without us: a server of a few lines that reads, perhaps makes durable, and answers.
//!
//! The durable one is what a coordinator is at its barest: it takes what all clients have sent, writes it once, syncs once and
//! answers all. Server and clients are threads of this process.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use assent_kind::Kind;
use assent_world::{Clock as _, RealClock};
use rustix::event::{PollFd, PollFlags, poll};

use super::{Track, Way};
use crate::BenchError;
use crate::pace::{Think, Thinker};
use crate::stats::Samples;

/// Of a message and of its answer: about what a decision with two branches takes on the wire.
const MESSAGE_BYTES: usize = 64;
/// A longer think time is cut into naps, so that a stop is heard.
const NAP_MAX: Duration = Duration::from_millis(100);
/// A server that answers later than this is dead.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the server does before it answers.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'f> {
    /// Nothing.
    AtOnce,
    /// One durable write for all messages that wait.
    Durable {
        /// Where its file is made.
        folder: &'f Path,
        /// How.
        way: Way,
        /// Of each message.
        bytes: usize,
    },
}

/// What the clients do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Threads, each with a connection.
    pub clients: u32,
    /// Of each client.
    pub messages: u32,
    /// Before each message, one after the other.
    pub think: Vec<Think>,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.clients == 1 { "" } else { "s" };
        write!(f, "{} client{plural}", self.clients)?;
        if self.think.is_empty() {
            return f.write_str(" without think time");
        }
        f.write_str(", think time ")?;
        for (number, think) in self.think.iter().enumerate() {
            let (shortest, longest) =
                (think.median_us.saturating_sub(think.delta_us / 2), think.median_us + think.delta_us / 2);
            let plus = if number == 0 { "" } else { " + " };
            write!(f, "{plus}{shortest}")?;
            if longest > shortest {
                write!(f, "-{longest}")?;
            }
        }
        f.write_str(" us")
    }
}

/// What each message took from its writing to its answer; those until `stop` is set.
///
/// # Errors
/// What the disk or the network says.
pub fn run(answer: &Answer<'_>, load: &Load, stop: &AtomicBool) -> Result<Samples, BenchError> {
    let mut track = match answer {
        Answer::AtOnce => None,
        Answer::Durable { folder, way, bytes } => Some((Track::new(folder, *way)?, *bytes)),
    };
    let pairs = connect(load.clients).map_err(|error| BenchError::new(Kind::Unavailable, said(&error)))?;
    let (clients, served): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || serve(served, track.as_mut().map(|(track, bytes)| (track, *bytes))));
        let clients: Vec<_> = (0_u64..)
            .zip(clients)
            .map(|(number, socket)| scope.spawn(move || ask(socket, load, Thinker::new(number), stop)))
            .collect();
        let mut all = Samples::default();
        let mut failed = None;
        for client in clients {
            match client.join().unwrap_or_else(|_| Err(std::io::Error::other("a client panicked"))) {
                Ok(samples) => all.extend(&samples),
                Err(error) => failed = Some(BenchError::new(Kind::Unavailable, said(&error))),
            }
        }
        // The server's own words first: a client only saw its connection end.
        server.join().unwrap_or_else(|_| Err(BenchError::new(Kind::Internal, "the echo panicked")))?;
        failed.map_or(Ok(all), Err)
    })
}

fn said(error: &std::io::Error) -> String {
    format!("the echo over loopback: {error}")
}

/// Pairs of a client's and the server's end.
#[expect(clippy::disallowed_methods, reason = "a floor is what the machine does without our doors")]
fn connect(clients: u32) -> std::io::Result<Vec<(TcpStream, TcpStream)>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let pair = |_| {
        let client = TcpStream::connect(address)?;
        let (served, _) = listener.accept()?;
        for end in [&client, &served] {
            end.set_nodelay(true)?;
            end.set_read_timeout(Some(PATIENCE))?;
        }
        Ok((client, served))
    };
    (0..clients).map(pair).collect()
}

/// Until every client has gone.
fn serve(mut sockets: Vec<TcpStream>, mut track: Option<(&mut Track, usize)>) -> Result<(), BenchError> {
    let failed = |error: &std::io::Error| BenchError::new(Kind::Unavailable, said(error));
    let mut message = [0_u8; MESSAGE_BYTES];
    while !sockets.is_empty() {
        let mut waiting = Vec::new();
        for number in ready(&sockets).map_err(|error| failed(&error))? {
            let Some(socket) = sockets.get_mut(number) else { continue };
            // A message is far smaller than a segment: who has its beginning has it whole.
            waiting.push((number, socket.read_exact(&mut message).is_ok()));
        }
        let messages = waiting.iter().filter(|(_, alive)| *alive).count();
        if let Some((track, bytes)) = &mut track
            && messages > 0
        {
            track.write(messages * *bytes)?;
        }
        for (number, alive) in waiting.into_iter().rev() {
            let answered = sockets.get_mut(number).is_some_and(|socket| alive && socket.write_all(&message).is_ok());
            if !answered {
                sockets.swap_remove(number);
            }
        }
    }
    Ok(())
}

/// Whom to read from. One client alone is read from without asking, as the barest server does.
fn ready(sockets: &[TcpStream]) -> std::io::Result<Vec<usize>> {
    if sockets.len() == 1 {
        return Ok(vec![0]);
    }
    let mut polled: Vec<_> = sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
    loop {
        match poll(&mut polled, None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(polled.iter().enumerate().filter(|(_, one)| !one.revents().is_empty()).map(|(number, _)| number).collect())
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
fn ask(mut socket: TcpStream, load: &Load, mut thinker: Thinker, stop: &AtomicBool) -> std::io::Result<Samples> {
    let mut samples = Samples::default();
    let mut message = [0xa5_u8; MESSAGE_BYTES];
    for _ in 0..load.messages {
        for think in &load.think {
            let mut left = thinker.draw(*think);
            while !left.is_zero() && !stop.load(Ordering::Relaxed) {
                let nap = left.min(NAP_MAX);
                RealClock.sleep(nap);
                left -= nap;
            }
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let before = Instant::now();
        socket.write_all(&message)?;
        socket.read_exact(&mut message)?;
        samples.push(before.elapsed());
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_of_every_client_is_answered_with_and_without_a_durable_write() {
        let folder = tempfile::tempdir().unwrap();
        let think = vec![Think { median_us: 50, delta_us: 100 }, Think::default()];
        for clients in [1, 7] {
            let load = Load { clients, messages: 20, think: think.clone() };
            let durable = Answer::Durable { folder: folder.path(), way: Way::BufferedDataSync, bytes: 256 };
            for answer in [Answer::AtOnce, durable] {
                assert_eq!(run(&answer, &load, &AtomicBool::new(false)).unwrap().len(), 20 * clients as usize);
                // Stopped before its first message, however long it would think.
                let long = Load { think: vec![Think { median_us: 1 << 40, delta_us: 0 }], ..load.clone() };
                assert!(run(&answer, &long, &AtomicBool::new(true)).unwrap().is_empty());
            }
        }
        let load = Load { clients: 7, messages: 1, think };
        assert_eq!(load.to_string(), "7 clients, think time 0-100 + 0 us");
    }

    #[test]
    fn a_disk_that_cannot_be_written_is_said_and_nobody_waits() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent");
        let answer = Answer::Durable { folder: &absent, way: Way::BufferedDataSync, bytes: 256 };
        let refused =
            run(&answer, &Load { clients: 2, messages: 1, think: Vec::new() }, &AtomicBool::new(false)).unwrap_err();
        assert!(refused.message.starts_with("making the floor's file"), "{refused}");
    }
}
