//! Requests and answers that find each other.

use assent_ids::Lsn;
use assent_kind::Kind;
use assent_link::LinkError;
use assent_wire::{Answer, Limits, Op, Request, Write};

use super::peer::{Peer, Server};

const LONG_MS: u64 = 20_000;

fn put(key: &[u8]) -> Request<'_> {
    Request::Write(Write { xid: None, durable: false, ops: vec![Op::Put { keyspace: 0, key, value: b"v" }] })
}

/// Answers each write with the number in its key; whatever has arrived together, last first.
fn numbers(mut peer: Peer, together: usize) {
    let mut waiting = Vec::new();
    while let Some(asked) = peer.next() {
        let Ok(Request::Write(write)) = Request::parse(&asked.frame()) else {
            assert_eq!(asked.mark, 0, "only one-way messages are no writes here");
            continue;
        };
        let [Op::Put { key, .. }] = write.ops[..] else { panic!("one put a write") };
        waiting.push((asked.mark, u64::from_le_bytes(key.try_into().unwrap())));
        if waiting.len() >= together {
            for (mark, number) in waiting.drain(..).rev() {
                peer.answer(mark, &Answer::Written(Lsn(number)));
            }
        }
    }
}

#[test]
fn pipelined_requests_get_their_own_answers_in_whatever_order_they_come() {
    let server = Server::welcoming(Limits::default(), |peer| numbers(peer, 10));
    let link = server.link(LONG_MS).unwrap();
    let tickets: Vec<_> = (0..100_u64).map(|number| link.send(&put(&number.to_le_bytes())).unwrap()).collect();
    for (number, ticket) in (0..).zip(tickets) {
        assert_eq!(link.receive(ticket).unwrap().answer(), Ok(Answer::Written(Lsn(number))));
    }
    drop(link);
    server.end();
}

#[test]
fn what_was_laid_travels_in_one_write() {
    let server = Server::welcoming(Limits::default(), |peer| numbers(peer, 1));
    let link = server.link(LONG_MS).unwrap();
    let first = link.lay(&put(&1_u64.to_le_bytes())).unwrap();
    link.one_way(&Request::Finished(vec![])).unwrap();
    let second = link.send(&put(&2_u64.to_le_bytes())).unwrap();
    assert_eq!(link.receive(second).unwrap().answer(), Ok(Answer::Written(Lsn(2))));
    assert_eq!(link.receive(first).unwrap().answer(), Ok(Answer::Written(Lsn(1))));
    let counts = link.counts();
    assert_eq!((counts.requests, counts.one_way, counts.writes, counts.answers), (2, 1, 1, 2));
    drop(link);
    server.end();
}

#[test]
fn eight_threads_share_a_connection_and_nobody_gets_another_s_answer() {
    const EACH: u64 = 500;
    let server = Server::welcoming(Limits::default(), |peer| numbers(peer, 1));
    let link = server.link(LONG_MS).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let link = &link;
            scope.spawn(move || {
                for number in thread * EACH..(thread + 1) * EACH {
                    let arrived = link.request(&put(&number.to_le_bytes())).unwrap();
                    assert_eq!(arrived.answer(), Ok(Answer::Written(Lsn(number))));
                }
            });
        }
    });
    let counts = link.counts();
    assert_eq!((counts.requests, counts.answers), (8 * EACH, 8 * EACH));
    assert!(counts.writes <= counts.requests);
    drop(link);
    server.end();
}

#[test]
fn threads_that_need_each_other_s_requests_to_be_written_do_not_wait_for_ever() {
    // The server answers only when eight requests are there: every thread must get its request out while another reads.
    let server = Server::welcoming(Limits::default(), |peer| numbers(peer, 8));
    let link = server.link(LONG_MS).unwrap();
    std::thread::scope(|scope| {
        for number in 0..8_u64 {
            let link = &link;
            scope.spawn(move || {
                for _ in 0..200 {
                    let arrived = link.request(&put(&number.to_le_bytes())).unwrap();
                    assert_eq!(arrived.answer(), Ok(Answer::Written(Lsn(number))));
                }
            });
        }
    });
    drop(link);
    server.end();
}

#[test]
fn a_refusal_keeps_its_kind_and_the_link_is_well() {
    let server = Server::welcoming(Limits::default(), |mut peer| {
        let asked = peer.next().unwrap();
        peer.answer(asked.mark, &Answer::Error { kind: Kind::Full, message: "no room" });
        let asked = peer.next().unwrap();
        peer.answer(asked.mark, &Answer::Pong);
    });
    let link = server.link(LONG_MS).unwrap();
    let refused = link.request(&Request::Ping).unwrap();
    let error = refused.answer().unwrap_err();
    assert_eq!(error, LinkError::Refused { kind: Kind::Full, message: "no room".to_owned() });
    assert_eq!((error.kind(), error.to_string()), (Kind::Full, "no room".to_owned()));
    assert_eq!(link.request(&Request::Ping).unwrap().answer(), Ok(Answer::Pong));
    server.end();
}

#[test]
fn the_limits_of_the_welcome_hold_before_anything_is_sent() {
    let limits = Limits { in_flight_max: 2, payload_bytes_max: 64, message_bytes_max: 64, ..Limits::default() };
    let server = Server::welcoming(limits, |peer| numbers(peer, 2));
    let link = server.link(LONG_MS).unwrap();
    let large = Request::Get { xid: None, keyspace: 0, key: &[1; 64] };
    assert_eq!(link.send(&large).unwrap_err().kind(), Kind::Invalid);
    let first = link.send(&put(&1_u64.to_le_bytes())).unwrap();
    let second = link.send(&put(&2_u64.to_le_bytes())).unwrap();
    assert_eq!(link.send(&Request::Ping), Err(LinkError::Busy { in_flight: 2 }));
    assert!(link.receive(first).is_ok() && link.receive(second).is_ok());
    let third = link.lay(&Request::Ping);
    assert!(third.is_ok(), "there is room again");
    drop(link);
    server.end();
}
