//! Any bytes get an answer or a close, and harm only their own connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use assent_door::Limits;
use assent_frame::{Head, lay};
use assent_kind::Kind;
use assent_wire::{Answer, Decoder, Hello, PAYLOAD_BYTES_MAX, Request, Role};
use assent_world::net::Address;
use assent_world::{Dice, RealDice};

use crate::house::{House, LONG, Rules, eventually, get, put, store};

pub(crate) fn raw(house: &House) -> TcpStream {
    let Address::Tcp { host, port } = house.address() else { panic!("not a TCP address") };
    let stream = TcpStream::connect((host.as_str(), *port)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub(crate) fn hello(role: Role<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Hello::new(role).lay(&mut bytes, 1).unwrap();
    bytes
}

/// Reads to the end; a reset is an end too. Fails if the server neither answers nor closes.
fn drain(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return all,
            Ok(read) => all.extend_from_slice(&piece[..read]),
            Err(error) => {
                let waited = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                assert!(!waited, "the server neither answered nor closed");
                return all;
            }
        }
    }
}

/// The kinds of the errors, or nothing for other answers.
fn answers(bytes: &[u8]) -> Vec<Option<Kind>> {
    let mut decoder = Decoder::new(PAYLOAD_BYTES_MAX);
    let (mut rest, mut all) = (bytes, Vec::new());
    loop {
        while let Some(frame) = decoder.frame().unwrap() {
            all.push(match Answer::parse(&frame).unwrap() {
                Answer::Error { kind, .. } => Some(kind),
                _ => None,
            });
        }
        if rest.is_empty() {
            return all;
        }
        let space = decoder.space();
        let take = space.len().min(rest.len());
        space[..take].copy_from_slice(&rest[..take]);
        decoder.filled(take);
        rest = &rest[take..];
    }
}

/// Reads so many answers.
fn read_answers(stream: &mut TcpStream, many: usize) -> Vec<Option<Kind>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    while answers(&bytes).len() < many {
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "closed after {} of {many} answers", answers(&bytes).len());
        bytes.extend_from_slice(&piece[..read]);
    }
    answers(&bytes)
}

/// A store with impatient limits, a neighbour connected to it, and the proof at the end that the neighbour is unharmed.
fn beside_a_neighbour(limits: Limits, attack: impl FnOnce(&House)) {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::limited(limits));
    let neighbour = house.store_link();
    neighbour.request(&put(None, b"neighbour", b"before")).unwrap().answer().unwrap();
    attack(&house);
    assert_eq!(get(&neighbour, b"neighbour"), Some(b"before".to_vec()));
    neighbour.request(&put(None, b"neighbour", b"after")).unwrap().answer().unwrap();
    // One is the neighbour, the other asks.
    eventually("all attackers are gone", || house.stat("server.connections") == 2);
    assert_eq!(house.health.report().checks["server"].state, assent_door::State::Ok);
}

fn impatient() -> Limits {
    Limits { partial_frame_ms: 1_000, ..Limits::default() }
}

#[test]
fn random_bytes_before_and_after_the_handshake_are_answered_or_closed() {
    beside_a_neighbour(impatient(), |house| {
        for round in 0..60_u64 {
            let mut stream = raw(house);
            let words = 1 + RealDice.roll() % 200;
            let mut bytes: Vec<u8> = (0..words).flat_map(|_| RealDice.roll().to_le_bytes()).collect();
            if round % 2 == 0 {
                bytes = [hello(Role::Store { label: "x" }), bytes].concat();
            }
            // It may be closed before all is written.
            _ = stream.write_all(&bytes);
            let said = drain(&mut stream);
            assert!(round % 2 == 1 || answers(&said).first() == Some(&None), "the handshake was answered");
        }
    });
}

#[test]
fn frames_of_every_kind_with_random_payloads_are_answered_and_the_connection_stays() {
    beside_a_neighbour(impatient(), |house| {
        for role in [Role::Store { label: "x" }, Role::Admin] {
            let mut stream = raw(house);
            stream.write_all(&hello(role)).unwrap();
            assert_eq!(read_answers(&mut stream, 1), [None]);
            let mut sent = 0;
            for kind in (0..0x60).chain([0x8001, 0xffff]) {
                for length in [0, 1, 9, 40, 200] {
                    let payload: Vec<u8> =
                        std::iter::repeat_with(|| RealDice.roll().to_le_bytes()[0]).take(length).collect();
                    let mut frame = Vec::new();
                    lay(&mut frame, Head { mark: 7, kind, ..Head::default() }, &[&payload]);
                    stream.write_all(&frame).unwrap();
                    // Those that are one-way by nature are refused in these roles, so answered all the same.
                    sent += 1;
                }
            }
            assert_eq!(read_answers(&mut stream, sent).len(), sent);
        }
    });
}

#[test]
fn a_message_cut_at_every_byte_is_taken_whole_or_given_up() {
    beside_a_neighbour(impatient(), |house| {
        let mut bytes = hello(Role::Store { label: "x" });
        put(None, b"cut", b"value").lay(&mut bytes, 2, PAYLOAD_BYTES_MAX).unwrap();
        for cut in 0..bytes.len() {
            // In two pieces: all of it is understood.
            let mut stream = raw(house);
            stream.write_all(&bytes[..cut]).unwrap();
            stream.write_all(&bytes[cut..]).unwrap();
            assert_eq!(read_answers(&mut stream, 2), [None, None], "cut at {cut}");
            // Only the first piece, and the end: nothing is waited for.
            let mut stream = raw(house);
            stream.write_all(&bytes[..cut]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            assert!(drain(&mut stream).len() < 200, "cut at {cut}");
        }
        // Byte by byte.
        let mut stream = raw(house);
        for byte in &bytes {
            stream.write_all(std::slice::from_ref(byte)).unwrap();
        }
        assert_eq!(read_answers(&mut stream, 2), [None, None]);
    });
}

#[test]
fn a_huge_length_is_refused_by_its_header_and_a_wrong_checksum_ends_the_connection() {
    let limits = Limits { frame_bytes_max: 4096, ..impatient() };
    beside_a_neighbour(limits, |house| {
        for (length, sum) in [(u32::MAX, 0), (4097, 0), (16, 0xdead_beef_u32)] {
            let mut stream = raw(house);
            let mut bytes = hello(Role::Store { label: "x" });
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&sum.to_le_bytes());
            bytes.resize(bytes.len() + 32, 0);
            stream.write_all(&bytes).unwrap();
            assert_eq!(answers(&drain(&mut stream)), [None, Some(Kind::Invalid)], "length {length}");
        }
        // Exactly at the limit it is taken, and answered.
        let link = house.store_link();
        let empty = {
            let mut bytes = Vec::new();
            put(None, b"k", b"").lay(&mut bytes, 1, 4096).unwrap();
            bytes
        };
        let room = 4096 - (assent_frame::parse(&empty, 4096).unwrap().unwrap().0.payload.len());
        link.request(&put(None, b"k", &vec![1; room])).unwrap().answer().unwrap();
    });
}

#[test]
fn half_handshakes_other_protocols_and_other_versions_are_told_or_closed() {
    beside_a_neighbour(impatient(), |house| {
        let mut stream = raw(house);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert_eq!(answers(&drain(&mut stream)), [Some(Kind::Invalid)]);
        // A request before the hello.
        let mut stream = raw(house);
        let mut bytes = Vec::new();
        Request::Ping.lay(&mut bytes, 1, PAYLOAD_BYTES_MAX).unwrap();
        stream.write_all(&bytes).unwrap();
        assert_eq!(answers(&drain(&mut stream)), [Some(Kind::Invalid)]);
        // From the future.
        let mut stream = raw(house);
        let mut future = Hello::new(Role::Admin);
        future.versions = assent_wire::Versions { min: 900, max: 901 };
        let mut bytes = Vec::new();
        future.lay(&mut bytes, 1).unwrap();
        stream.write_all(&bytes).unwrap();
        assert_eq!(answers(&drain(&mut stream)), [Some(Kind::Invalid)]);
        // Half a hello, and silence: patience ends.
        let mut stream = raw(house);
        stream.write_all(&hello(Role::Admin)[..10]).unwrap();
        assert!(drain(&mut stream).is_empty());
        // Nothing at all.
        assert!(drain(&mut raw(house)).is_empty());
    });
}

#[test]
fn resets_at_any_time_harm_nobody_else() {
    beside_a_neighbour(impatient(), |house| {
        let mut bytes = hello(Role::Store { label: "x" });
        for mark in 2..50 {
            put(None, b"reset", &[3; 3000]).lay(&mut bytes, mark, PAYLOAD_BYTES_MAX).unwrap();
        }
        for part in 0..40 {
            let mut stream = raw(house);
            stream.write_all(&bytes[..bytes.len() * part / 40]).unwrap();
            // A close with a linger of zero sends a reset.
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        }
    });
}

#[test]
fn a_slow_writer_is_closed_when_its_frame_does_not_come_to_an_end() {
    beside_a_neighbour(impatient(), |house| {
        let mut stream = raw(house);
        stream.write_all(&hello(Role::Store { label: "slow" })).unwrap();
        assert_eq!(read_answers(&mut stream, 1), [None]);
        let mut frame = Vec::new();
        put(None, b"k", &[1; 900_000]).lay(&mut frame, 2, PAYLOAD_BYTES_MAX).unwrap();
        // A byte at a time; every one is progress, the frame's end is not in sight.
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut piece = [0; 64];
        for byte in &frame {
            if stream.write_all(std::slice::from_ref(byte)).is_err() || matches!(stream.read(&mut piece), Ok(0)) {
                break;
            }
        }
        eventually("it is closed", || house.number("assent_connections_overdue_total") >= 1.0);
    });
}

#[test]
fn a_slow_reader_costs_bounded_memory_and_is_closed() {
    let limits = Limits { unread_bytes_max: 2 << 20, ..impatient() };
    beside_a_neighbour(limits, |house| {
        let link = house.store_link();
        link.request(&put(None, b"large", &vec![1; 500_000])).unwrap().answer().unwrap();
        link.close("done");
        let mut stream = raw(house);
        let mut bytes = hello(Role::Store { label: "deaf" });
        for mark in 2..2000 {
            Request::Get { xid: None, keyspace: 0, key: b"large" }.lay(&mut bytes, mark, PAYLOAD_BYTES_MAX).unwrap();
        }
        // A gigabyte of answers is asked for and none is read.
        stream.write_all(&bytes).unwrap();
        eventually("it is closed", || house.number("assent_connections_overdue_total") >= 1.0);
        assert!(
            house.number("assent_requests_total{kind=\"get\"}") < 100.0,
            "it was not served beyond its unread answers"
        );
    });
}

#[test]
fn a_reader_that_takes_its_time_but_reads_gets_everything() {
    let limits = Limits { unread_bytes_max: 1 << 20, partial_frame_ms: 10_000, ..Limits::default() };
    beside_a_neighbour(limits, |house| {
        let link = house.store_link();
        link.request(&put(None, b"large", &vec![1; 300_000])).unwrap().answer().unwrap();
        let tickets: Vec<_> =
            (0..200).map(|_| link.lay(&Request::Get { xid: None, keyspace: 0, key: b"large" }).unwrap()).collect();
        for ticket in tickets {
            let arrived = link.receive(ticket).unwrap();
            assert!(matches!(arrived.answer().unwrap(), Answer::Value(Some(value)) if value.len() == 300_000));
        }
        link.close("done");
    });
}

#[test]
fn who_ends_his_own_direction_still_gets_his_answers() {
    beside_a_neighbour(impatient(), |house| {
        let mut stream = raw(house);
        let mut bytes = hello(Role::Store { label: "x" });
        put(None, b"half", b"closed").lay(&mut bytes, 2, PAYLOAD_BYTES_MAX).unwrap();
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(answers(&drain(&mut stream)), [None, None]);
    });
}

/// Sends so many plain writes at once, heedless of any limit; tells how many were busy and how many done.
pub(crate) fn flood(house: &House, writes: u64) -> (usize, usize) {
    let mut bytes = hello(Role::Store { label: "flood" });
    for mark in 0..writes {
        put(None, b"flood", b"v").lay(&mut bytes, mark + 2, PAYLOAD_BYTES_MAX).unwrap();
    }
    let mut stream = raw(house);
    stream.write_all(&bytes).unwrap();
    let all = read_answers(&mut stream, usize::try_from(writes).unwrap() + 1);
    let busy = all.iter().filter(|kind| **kind == Some(Kind::Busy)).count();
    (busy, all.iter().skip(1).filter(|kind| kind.is_none()).count())
}
