//! Our own verbs past the driver, which writes and reads in one call: here a message is sent, and its answers are read
//! later, by the same thread. So two servers work at the same time for one thread, and the answers to several statements
//! are there before anybody waits for the first.
//!
//! Walk: [`Wire::of`] a second handle of the driver's socket, between two questions of its own · [`Wire::send`] ·
//! [`Wire::receive`] one answer for each statement, as far as the first that fails, each with what the server tells of the
//! transaction.
//! Source: MariaDB's manual, "Client/Server Protocol": COM_QUERY, OK_Packet, ERR_Packet.
//! Trap: the handle keeps the socket open, so it goes when the connection does, and before a caller may change it.
//! Deliberately absent: rows, which none of these verbs has for an answer; the driver's packets are read by its own crate.

use std::io::{self, Read as _, Write as _};
use std::time::Duration;

use assent_world::net::Stream;
use assent_world::{Clock as _, Moment, RealClock};
use mysql::Conn;
use mysql::consts::{CapabilityFlags, StatusFlags};
use mysql_common::io::ParseBuf;
use mysql_common::packets::{CommonOkPacket, ErrPacket, OkPacketDeserializer};

use super::failure::Failure;
use super::known::{Known, State, state_in};
use crate::kept::said;

/// The command that a text is.
const QUERY: u8 = 3;
/// A packet's length and its number.
const HEAD_BYTES: usize = 4;
/// An answer of ours is far shorter.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const MESSAGE_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 1 << 10;

/// What the answers are written by, on a connection that has told of its transactions.
const AGREED: CapabilityFlags = CapabilityFlags::CLIENT_PROTOCOL_41.union(CapabilityFlags::CLIENT_SESSION_TRACK);

#[derive(Debug)]
pub(super) struct Wire {
    stream: Stream,
    /// Statements without an answer.
    awaited: usize,
    /// The number of the next packet.
    number: u8,
    /// What has come and is not read.
    bytes: Vec<u8>,
    limit: Option<Duration>,
    /// When the answers have to be there, however much comes in between; nothing until somebody waits for them.
    deadline: Option<Moment>,
}

impl Wire {
    /// Nothing where the system gives no second handle.
    pub(super) fn of(connection: &Conn) -> Option<Self> {
        Stream::second(connection).ok().map(Self::over)
    }

    const fn over(stream: Stream) -> Self {
        Self { stream, awaited: 0, number: 0, bytes: Vec::new(), limit: None, deadline: None }
    }

    /// Whether a message is on its way.
    pub(super) const fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// How long a read may block, where it may not for ever.
    pub(super) const fn longest(&self) -> Option<Duration> {
        self.limit
    }

    /// How long a read may block; the driver's reads on the same socket too.
    pub(super) fn limit(&mut self, longest: Option<Duration>) -> bool {
        if self.limit == longest {
            return true;
        }
        let is_set = self.stream.set_read_timeout(longest).is_ok();
        // Else nobody knows.
        self.limit = longest.filter(|_| is_set);
        is_set
    }

    /// Puts these on their way, in one message. Whoever then waits for the answers does so for no longer than this.
    pub(super) fn send(&mut self, statements: &[String], longest: Duration) -> Result<(), Failure> {
        if !self.limit(Some(longest)) {
            return Err(lost("the time limit of its socket cannot be set".to_owned()));
        }
        let text = statements.join("; ");
        let length = u32::try_from(text.len() + 1).ok().filter(|_| text.len() < MESSAGE_BYTES_MAX);
        let Some([first, second, third, _]) = length.map(u32::to_le_bytes) else {
            return Err(lost(format!("a message of {} bytes; at most {MESSAGE_BYTES_MAX}", text.len())));
        };
        let mut packet = vec![first, second, third, 0, QUERY];
        packet.extend_from_slice(text.as_bytes());
        (&self.stream).write_all(&packet).map_err(|error| broken(&error))?;
        (self.awaited, self.number, self.deadline) = (statements.len(), 1, None);
        Ok(())
    }

    /// The answers. `done` counts them as far as the first that is an error; what they tell of the transaction goes into
    /// `known`, and what the last one tells is given.
    pub(super) fn receive(&mut self, done: &mut usize, known: &mut Known) -> Result<Option<State>, Failure> {
        let mut last = None;
        while self.awaited > 0 {
            let packet = self.packet()?;
            match packet.first() {
                Some(0) => {
                    let ok = ParseBuf(&packet).parse::<OkPacketDeserializer<'_, CommonOkPacket>>(AGREED);
                    let ok = ok.map_err(|error| broken(&error))?.into_inner();
                    let goes_on = ok.status_flags().contains(StatusFlags::SERVER_MORE_RESULTS_EXISTS);
                    self.awaited -= 1;
                    if goes_on != self.is_awaited() {
                        return Err(lost("another number of answers than of statements".to_owned()));
                    }
                    last = ok.session_state_info().ok().and_then(|changes| state_in(&changes));
                    known.take(last);
                    *done += 1;
                }
                Some(0xff) => {
                    let parsed = ParseBuf(&packet).parse::<ErrPacket<'_>>(AGREED).map_err(|error| broken(&error))?;
                    // A report of progress was not asked for, and would not be the answer.
                    if let ErrPacket::Error(error) = parsed {
                        self.awaited = 0;
                        self.is_all_read()?;
                        return Err(Failure::Server(error.error_code(), error.message_str().into_owned()));
                    }
                }
                _ => return Err(lost("an answer that is none to a verb".to_owned())),
            }
        }
        self.is_all_read()?;
        Ok(last)
    }

    fn is_all_read(&self) -> Result<(), Failure> {
        if self.bytes.is_empty() { Ok(()) } else { Err(lost("more than was asked for".to_owned())) }
    }

    /// The next packet, without its head.
    fn packet(&mut self) -> Result<Vec<u8>, Failure> {
        loop {
            if let Some([first, second, third, number]) = self.bytes.first_chunk::<HEAD_BYTES>() {
                let length = usize::from(*first) | usize::from(*second) << 8 | usize::from(*third) << 16;
                if length > ANSWER_BYTES_MAX || *number != self.number {
                    return Err(lost(format!("an answer of {length} bytes with number {number}, not {}", self.number)));
                }
                if self.bytes.len() >= HEAD_BYTES + length {
                    self.number = self.number.wrapping_add(1);
                    let mut packet = self.bytes.drain(..HEAD_BYTES + length);
                    // The head.
                    _ = packet.by_ref().take(HEAD_BYTES).count();
                    return Ok(packet.collect());
                }
            }
            self.read()?;
        }
    }

    fn read(&mut self) -> Result<(), Failure> {
        // A server that says something now and then, but not the answer, has no more time by it than one read.
        let now = RealClock.now();
        if now > *self.deadline.get_or_insert_with(|| now.after(self.limit.unwrap_or(Duration::MAX))) {
            return Err(lost("no answer within the time limit".to_owned()));
        }
        let mut some = [0; READ_BYTES];
        let read = loop {
            match (&self.stream).read(&mut some) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| broken(&error))?,
            }
        };
        if read == 0 {
            return Err(lost("the server closed the connection".to_owned()));
        }
        self.bytes.extend_from_slice(some.get(..read).unwrap_or_default());
        Ok(())
    }
}

fn lost(message: String) -> Failure {
    Failure::Lost(said(message))
}

fn broken(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => lost("no answer within the time limit".to_owned()),
        _ => lost(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const END: u16 = 0x0002;
    const MORE: u16 = 0x000a;
    /// The session's state has changed.
    const TOLD: u16 = 0x4000;

    fn packet(number: u8, body: &[u8]) -> Vec<u8> {
        let length = u8::try_from(body.len()).unwrap();
        [&[length, 0, 0, number], body].concat()
    }

    fn ok(number: u8, status: u16) -> Vec<u8> {
        packet(number, &[&[0, 0, 0][..], &status.to_le_bytes(), &[0, 0]].concat())
    }

    /// With the state of the transaction in these letters.
    fn tells(number: u8, status: u16, letters: &str) -> Vec<u8> {
        let length = u8::try_from(letters.len()).unwrap();
        let change = [&[5, length + 1, length][..], letters.as_bytes()].concat();
        let changes = [&[u8::try_from(change.len()).unwrap()][..], &change].concat();
        packet(number, &[&[0, 0, 0][..], &(status | TOLD).to_le_bytes(), &[0, 0], &[0], &changes].concat())
    }

    fn refused(number: u8) -> Vec<u8> {
        packet(number, &[&[0xff][..], &1399_u16.to_le_bytes(), b"#XAE07as told"].concat())
    }

    /// Sends two statements to a server that answers this; how many were done, and how it ended.
    fn answered(answer: &[u8], at_once: bool) -> (usize, Result<Option<State>, Failure>, Known, bool) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut wire = Wire::over(Stream::second(&ours).unwrap());
        drop(ours);
        wire.send(&["XA END 'a'".to_owned(), "XA PREPARE 'a'".to_owned()], LONG).unwrap();
        let mut asked = [0; 31];
        theirs.read_exact(&mut asked).unwrap();
        assert_eq!(&asked[..], b"\x1b\0\0\0\x03XA END 'a'; XA PREPARE 'a'");
        let talk = std::thread::spawn({
            let answer = answer.to_vec();
            move || {
                let step = if at_once { answer.len().max(1) } else { 1 };
                answer.chunks(step).for_each(|part| theirs.write_all(part).unwrap());
            }
        });
        let (mut done, mut known) = (0, Known::default());
        let told = wire.receive(&mut done, &mut known);
        talk.join().unwrap();
        (done, told, known, wire.is_awaited())
    }

    #[test]
    fn each_answer_is_heard_however_the_bytes_come() {
        for at_once in [true, false] {
            let both = [tells(1, MORE, "T__wW___"), tells(2, END, "________")].concat();
            let (done, told, known, awaited) = answered(&both, at_once);
            assert_eq!((done, awaited), (2, false));
            assert!(told.unwrap().is_some());
            assert!(known.wrote_plain && !known.may_be_read_only(), "told by the first and not by the last");

            let (done, told, ..) = answered(&[ok(1, MORE), ok(2, END)].concat(), at_once);
            assert_eq!(done, 2);
            assert_eq!(told.unwrap(), None);

            let (done, told, _, awaited) = answered(&[ok(1, MORE), refused(2)].concat(), at_once);
            assert!(matches!(told, Err(Failure::Server(1399, message)) if message == "as told"));
            assert_eq!((done, awaited), (1, false), "the second one failed");
        }
    }

    #[test]
    fn an_answer_that_is_none_to_what_was_asked_is_lost() {
        let cases = [
            ("none", Vec::new()),
            ("half of one", ok(1, MORE)[..5].to_vec()),
            ("one too few", ok(1, END)),
            ("one too many", [ok(1, MORE), ok(2, MORE)].concat()),
            ("more behind the last", [ok(1, MORE), ok(2, END), vec![0]].concat()),
            ("more behind an error", [refused(1), ok(2, END)].concat()),
            ("an old one", ok(7, MORE)),
            ("a row", packet(1, b"\x01row")),
            ("cut short", packet(1, &[0, 0])),
            ("cut short error", packet(1, &[0xff, 1])),
            ("nothing in it", packet(1, &[])),
            ("too long", vec![0xff, 0xff, 0xff, 1]),
        ];
        for (name, answer) in cases {
            let (_, told, ..) = answered(&answer, true);
            assert!(matches!(told, Err(Failure::Lost(_))), "{name}: {told:?}");
        }
    }

    #[test]
    fn an_answer_that_is_there_is_taken_however_late_somebody_asks() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut wire = Wire::over(Stream::second(&ours).unwrap());
        wire.send(&["XA COMMIT 'a'".to_owned()], Duration::from_millis(1)).unwrap();
        theirs.write_all(&ok(1, END)).unwrap();
        // Another server's answer was waited for.
        RealClock.sleep(Duration::from_millis(20));
        assert_eq!(wire.receive(&mut 0, &mut Known::default()).unwrap(), None);
    }

    #[test]
    fn a_server_that_only_drips_has_no_more_time() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut wire = Wire::over(Stream::second(&ours).unwrap());
        drop(ours);
        wire.send(&["XA COMMIT 'a'".to_owned()], Duration::from_millis(50)).unwrap();
        let drips = std::thread::spawn(move || {
            let head = [0xff, 0xff, 0, 1];
            // Far longer than the limit, and never silent for as long.
            head.iter().chain(std::iter::repeat(&0)).take(3_000).all(|byte| {
                RealClock.sleep(Duration::from_millis(2));
                theirs.write_all(&[*byte]).is_ok()
            })
        });
        let told = wire.receive(&mut 0, &mut Known::default());
        assert!(matches!(told, Err(Failure::Lost(why)) if why.message.contains("time limit")));
        drop(wire);
        assert!(!drips.join().unwrap(), "it was given up long before the end");
    }

    #[test]
    fn silence_ends_with_the_limit() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut wire = Wire::over(Stream::second(&ours).unwrap());
        wire.send(&["XA COMMIT 'a'".to_owned()], Duration::from_millis(5)).unwrap();
        let told = wire.receive(&mut 0, &mut Known::default());
        assert!(matches!(told, Err(Failure::Lost(why)) if why.message.contains("time limit")));
        assert!(wire.limit(None));
        assert_eq!(ours.read_timeout().unwrap(), None, "the driver's reads have none again");
        assert!(wire.send(&["x".repeat(MESSAGE_BYTES_MAX)], LONG).is_err());
    }
}
