//! The socket under the driver and our own messages: one read is let through at a time, within a limit, and what passes is
//! looked at.
//!
//! Walk: [`Socket::read`] and [`Socket::write`] for whoever speaks · [`Wire`] is what the driver has of it: with [`Again`] its next
//! words go nowhere, as they have been said, and it reads the answer that has come.
//! Deliberately absent: what is said (`line.rs`).

use std::io::{self, Read as _, Write as _};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use assent_world::net::Stream;
use assent_world::{Clock as _, RealClock};
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::pace::Pace;

/// What the driver reads from and writes to.
pub(super) struct Wire(pub(super) Arc<Socket>);

pub(super) struct Socket {
    pub(super) stream: Stream,
    /// The next read may block.
    pub(super) may_read: AtomicBool,
    /// The driver has no bytes left.
    pub(super) is_hungry: AtomicBool,
    pub(super) has_written: AtomicBool,
    /// Milliseconds that the socket lets a read block.
    pub(super) limit_ms: AtomicU64,
    /// Whether reading is then given up.
    pub(super) is_limited: AtomicBool,
    /// Microseconds of the clock at which it is, however much comes in between; 0 until something is waited for.
    pub(super) deadline_us: AtomicU64,
    pub(super) pace: Mutex<Pace>,
    /// What was said and heard already, and the driver is to take for its own.
    pub(super) again: Mutex<Again>,
}

/// A message that was said past the driver, and is the driver's after all.
#[derive(Default)]
pub(super) struct Again {
    /// Its next words, which have gone out already.
    pub(super) said: BytesMut,
    /// What has come of the answer, to be read first.
    pub(super) heard: BytesMut,
}

impl Again {
    /// How many of the driver's bytes have gone out already.
    fn swallow(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let swallowed = self.said.len();
        // A statement that another thread drops just now has its leave taken in front of them: then the answer would be taken for that
        // to the leave.
        if !bytes.starts_with(&self.said) {
            return Err(io::Error::other("a statement was dropped by another thread while an error was read"));
        }
        self.said = BytesMut::new();
        Ok(swallowed)
    }

    fn hear(&mut self, buffer: &mut ReadBuf<'_>) {
        let part = self.heard.split_to(buffer.remaining().min(self.heard.len()));
        buffer.put_slice(&part);
        if self.heard.is_empty() {
            self.heard = BytesMut::new();
        }
    }
}

impl Socket {
    pub(super) fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn again(&self) -> MutexGuard<'_, Again> {
        self.again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match (&self.stream).write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => {
                    self.pace()
                        .asks(written.as_ref().ok().and_then(|written| bytes.get(..*written)).unwrap_or_default());
                    return written;
                }
            }
        }
    }

    pub(super) fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_over() {
                return Err(self.too_late());
            }
            match (&self.stream).read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The caller's own work may take its time; so the socket need not be set for every turn of it.
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if self.is_limited.load(Ordering::Relaxed) {
                        return Err(self.too_late());
                    }
                }
                read => {
                    self.pace().answers(read.as_ref().ok().and_then(|read| bytes.get(..*read)).unwrap_or_default());
                    return read;
                }
            }
        }
    }

    /// A server that says something now and then, but not the answer, does not get more time by it than one read more.
    fn is_over(&self) -> bool {
        if !self.is_limited.load(Ordering::Relaxed) {
            return false;
        }
        let now = RealClock.now().0;
        let deadline = self.deadline_us.load(Ordering::Relaxed);
        if deadline == 0 {
            let limit_us = self.limit_ms.load(Ordering::Relaxed).saturating_mul(1_000);
            self.deadline_us.store(now.saturating_add(limit_us).max(1), Ordering::Relaxed);
        }
        deadline != 0 && now >= deadline
    }

    fn too_late(&self) -> io::Error {
        let limit_ms = self.limit_ms.load(Ordering::Relaxed);
        io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit_ms} ms"))
    }
}

impl Socket {
    pub(super) fn set_limit(&self, longest: Duration) -> io::Result<()> {
        let ms = millis(longest);
        if self.limit_ms.swap(ms, Ordering::Relaxed) == ms {
            return Ok(());
        }
        self.stream.set_read_timeout(Some(Duration::from_millis(ms)))
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut again = self.0.again();
        // An answer before its question would be nobody's.
        if again.said.is_empty() && !again.heard.is_empty() {
            again.hear(buffer);
            return Poll::Ready(Ok(()));
        }
        drop(again);
        if !self.0.may_read.swap(false, Ordering::Relaxed) {
            self.0.is_hungry.store(true, Ordering::Relaxed);
            return Poll::Pending;
        }
        Poll::Ready(self.0.read(buffer.initialize_unfilled()).map(|read| buffer.advance(read)))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.has_written.store(true, Ordering::Relaxed);
        let mut again = self.0.again();
        if !again.said.is_empty() {
            return Poll::Ready(again.swallow(bytes));
        }
        drop(again);
        Poll::Ready(self.0.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // It may be closed already.
        _ = self.0.stream.shutdown();
        Poll::Ready(Ok(()))
    }
}

/// To the last byte. A writer that takes none would be asked for ever.
pub(super) fn write_all(bytes: &[u8], mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match write(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => rest = rest.get(written..).unwrap_or_default(),
        }
    }
    Ok(())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_not_said_again_and_what_was_heard_is_read() {
        let mut again = Again { said: b"Q12".as_slice().into(), heard: BytesMut::with_capacity(64) };
        again.heard.extend_from_slice(b"abcd");
        let mut some = [0; 3];
        let mut heard = Vec::new();
        while !again.heard.is_empty() {
            let mut buffer = ReadBuf::new(&mut some);
            again.hear(&mut buffer);
            heard.push(buffer.filled().to_vec());
        }
        assert_eq!(heard, [&b"abc"[..], b"d"]);
        assert!(again.swallow(b"C9Q12").is_err() && again.swallow(b"Q1").is_err(), "somebody else's come first");
        assert_eq!(again.swallow(b"Q12C9").unwrap(), 3);
        assert!(again.said.is_empty());
        assert_eq!((again.said.capacity(), again.heard.capacity()), (0, 0), "a long text is not kept");
    }

    #[test]
    fn a_writer_that_takes_nothing_is_an_error_and_one_that_takes_a_little_is_asked_again() {
        let mut taken = Vec::new();
        write_all(b"abcde", |rest| {
            taken.extend_from_slice(&rest[..rest.len().min(2)]);
            Ok(rest.len().min(2))
        })
        .unwrap();
        assert_eq!(taken, b"abcde");
        assert_eq!(write_all(b"a", |_| Ok(0)).unwrap_err().kind(), io::ErrorKind::WriteZero);
    }
}
