//! A store of a few lines that loses answers, refuses, and hangs up.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use assent_ids::{Epoch, Lsn, NodeId};
use assent_wire::{Decoder, Heuristic, Limits, PAYLOAD_BYTES_MAX, VERSIONS, Welcome};

use super::*;

type Part = Box<dyn FnOnce(&mut Peer) + Send>;

struct Peer {
    stream: TcpStream,
    decoder: Decoder,
}

impl Peer {
    /// Takes the next message, looks at it, and gives this answer, if any. False when the caller has gone.
    fn turn(&mut self, answer: impl FnOnce(Request<'_>) -> Option<Answer<'static>>) -> bool {
        loop {
            if let Some(frame) = self.decoder.frame().unwrap() {
                let answer = match Hello::parse(&frame, VERSIONS) {
                    Ok((_, version)) => Some(Answer::Welcome(Welcome {
                        version,
                        node: NodeId(1),
                        epoch: Epoch(1),
                        session: None,
                        limits: Limits::default(),
                    })),
                    Err(_) => answer(Request::parse(&frame).unwrap()),
                };
                let mut bytes = Vec::new();
                if let Some(answer) = answer {
                    answer.lay(&mut bytes, frame.mark, PAYLOAD_BYTES_MAX).unwrap();
                }
                _ = self.stream.write_all(&bytes);
                return true;
            }
            match self.stream.read(self.decoder.space()) {
                Ok(read @ 1..) => self.decoder.filled(read),
                _ => return false,
            }
        }
    }

    fn says(&mut self, expected: &Request<'_>, answer: Answer<'static>) {
        assert!(self.turn(|request| {
            assert_eq!(request, *expected);
            Some(answer)
        }));
    }

    /// Reads this and hangs up.
    fn loses(&mut self, expected: &Request<'_>) {
        assert!(self.turn(|request| {
            assert_eq!(request, *expected);
            None
        }));
    }
}

struct Store {
    remote: Remote,
    thread: JoinHandle<()>,
}

/// A store that takes one connection for each part.
fn store(parts: Vec<Part>) -> Store {
    #[expect(clippy::disallowed_methods, reason = "a store of a test blocks")]
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    let thread = std::thread::spawn(move || {
        for part in parts {
            let (stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut peer = Peer { stream, decoder: Decoder::new(PAYLOAD_BYTES_MAX) };
            assert!(peer.turn(|request| panic!("{request:?} before a greeting")));
            part(&mut peer);
        }
    });
    let config = LinkConfig { connect_ms: 5_000, answer_ms: 20_000, ..LinkConfig::default() };
    Store { remote: Remote::new("store", address, config), thread }
}

fn xid() -> Xid {
    Xid::new(1, b"g", b"b").unwrap()
}

fn write() -> Request<'static> {
    let ops = vec![Op::Put { keyspace: 0, key: b"k", value: b"v" }];
    Request::Write(Write { xid: Some(xid()), durable: true, ops })
}

const DONE: Answer<'static> = Answer::Branch(assent_wire::Reply::Done);
const WRITTEN: Answer<'static> = Answer::Written(Lsn::ZERO);

fn refused() -> Answer<'static> {
    let native = assent_wire::Native { code: "busy", message: "full house" };
    Answer::Branch(assent_wire::Reply::Refused(Kind::Busy, native))
}

#[test]
fn a_lost_vote_is_lost_and_the_rollback_finds_another_way() {
    let Store { mut remote, thread } = store(vec![
        Box::new(|peer| {
            peer.says(&Request::Start(xid()), DONE);
            peer.says(&write(), WRITTEN);
            peer.says(&Request::End { xid: xid(), success: true }, DONE);
            peer.loses(&Request::Prepare(xid()));
        }),
        Box::new(|peer| peer.says(&Request::Rollback(xid()), DONE)),
    ]);
    assert_eq!(remote.call(Verb::Start(xid())), Reply::Done);
    remote.put(0, b"k", b"v").unwrap();
    assert_eq!(remote.call(Verb::End { xid: xid(), success: true }), Reply::Done);
    assert!(matches!(remote.call(Verb::Prepare(xid())), Reply::Lost(_)));
    assert_eq!(remote.call(Verb::Rollback(xid())), Reply::Done);
    thread.join().unwrap();
}

#[test]
fn a_refused_end_does_not_hide_behind_the_vote() {
    let Store { mut remote, thread } = store(vec![Box::new(|peer| {
        peer.says(&Request::Start(xid()), DONE);
        peer.says(&write(), WRITTEN);
        peer.says(&Request::End { xid: xid(), success: true }, refused());
        peer.says(&Request::Prepare(xid()), refused());
    })]);
    assert_eq!(remote.call(Verb::Start(xid())), Reply::Done);
    remote.put(0, b"k", b"v").unwrap();
    assert_eq!(remote.call(Verb::End { xid: xid(), success: true }), Reply::Done);
    assert!(matches!(remote.call(Verb::Prepare(xid())), Reply::Refused(Kind::Busy, _)));
    thread.join().unwrap();
}

#[test]
fn a_refused_start_is_told_with_the_first_work_and_leaves_nothing_behind_however_often() {
    // More than may wait for answers on a connection.
    let times = Limits::default().in_flight_max + 3;
    let Store { mut remote, thread } = store(vec![Box::new(move |peer| {
        for _ in 0..times {
            peer.says(&Request::Start(xid()), refused());
            peer.says(&write(), Answer::Error { kind: Kind::NotFound, message: "no such branch" });
            assert!(peer.turn(|_| Some(DONE)), "it may end");
            assert!(peer.turn(|_| Some(DONE)), "and be rolled back");
        }
        peer.says(&Request::Start(xid()), DONE);
        peer.says(&write(), WRITTEN);
    })]);
    for time in 0..times {
        assert_eq!(remote.call(Verb::Start(xid())), Reply::Done);
        let error = remote.put(0, b"k", b"v").unwrap_err();
        assert_eq!(error.kind(), Kind::Busy);
        assert!(error.to_string().contains("full house"), "{time}: {error}");
        assert_eq!(remote.call(Verb::End { xid: xid(), success: false }), Reply::Done);
        assert_eq!(remote.call(Verb::Rollback(xid())), Reply::Done);
    }
    assert_eq!(remote.call(Verb::Start(xid())), Reply::Done);
    remote.put(0, b"k", b"v").unwrap();
    thread.join().unwrap();
}

#[test]
fn a_connection_that_ends_before_the_vote_takes_the_branch_with_it() {
    let Store { mut remote, thread } = store(vec![Box::new(|peer| {
        peer.says(&Request::Start(xid()), DONE);
        peer.loses(&write());
    })]);
    assert_eq!(remote.call(Verb::Start(xid())), Reply::Done);
    assert_eq!(remote.put(0, b"k", b"v").unwrap_err().kind(), Kind::InDoubt);
    thread.join().unwrap();
    assert_eq!(remote.get(0, b"k").unwrap_err().kind(), Kind::RolledBack);
    assert!(matches!(remote.call(Verb::End { xid: xid(), success: true }), Reply::RolledBack(_)));
    assert_eq!(remote.call(Verb::Rollback(xid())), Reply::Done, "without the store, which is gone");
    assert!(matches!(remote.call(Verb::Commit(xid())), Reply::Refused(Kind::Unavailable, _)), "surely not done");
    assert!(matches!(remote.call(Verb::Start(xid())), Reply::Refused(Kind::Unavailable, _)));
}

#[test]
fn an_idle_connection_that_ended_is_replaced_before_a_branch_begins() {
    let Store { mut remote, thread } = store(vec![
        Box::new(|peer| peer.says(&Request::Commit(xid()), DONE)),
        Box::new(|peer| {
            peer.says(&Request::Recover(NodeId(1)), Answer::Branch(assent_wire::Reply::Listed(vec![xid()])));
        }),
    ]);
    assert_eq!(remote.call(Verb::Commit(xid())), Reply::Done);
    // Seen at once if it was quiet for a while, else by the verb: that one is lost, the next goes another way.
    let listed = match remote.call(Verb::Recover(NodeId(1))) {
        Reply::Lost(_) => remote.call(Verb::Recover(NodeId(1))),
        listed => listed,
    };
    assert_eq!(listed, Reply::Listed(vec![xid()]));
    thread.join().unwrap();
}

#[test]
fn a_claim_that_ended_with_its_connection_is_told_and_nothing_goes_over_another_one() {
    let claimed = |peer: &mut Peer| peer.says(&Request::Claim(NodeId(1)), DONE);
    let Store { mut remote, thread } = store(vec![Box::new(claimed), Box::new(claimed)]);
    assert_eq!(remote.call(Verb::Claim(NodeId(1))), Reply::Done);
    // Also before anyone has seen that it ended, and after.
    for verb in [Verb::Recover(NodeId(1)), Verb::Rollback(xid()), Verb::Commit(xid()), Verb::Claim(NodeId(1))] {
        let reply = remote.call(verb);
        assert!(matches!(reply, Reply::Lost(_)), "{reply:?}");
    }
    // The first that the store hears on a new connection is a claim.
    let mut again = Remote::new("store", remote.address.clone(), remote.config.clone());
    assert_eq!(again.call(Verb::Claim(NodeId(1))), Reply::Done);
    thread.join().unwrap();
}

#[test]
fn a_claimed_connection_that_rests_shows_that_its_store_has_hung_up() {
    let (stays, goes) = std::sync::mpsc::channel::<()>();
    let Store { mut remote, thread } = store(vec![Box::new(move |peer| {
        peer.says(&Request::Claim(NodeId(1)), DONE);
        _ = goes.recv();
    })]);
    assert!(!remote.has_ended(), "it connects when there is something to say");
    assert_eq!(remote.call(Verb::Claim(NodeId(1))), Reply::Done);
    assert!(!remote.has_ended());
    drop(stays);
    thread.join().unwrap();
    while !remote.has_ended() {
        std::thread::yield_now();
    }
    assert!(matches!(remote.call(Verb::Recover(NodeId(1))), Reply::Lost(_)));
    assert!(remote.has_ended(), "also when it has hung up itself");
}

#[test]
fn every_answer_keeps_its_meaning() {
    use assent_wire::Reply as W;
    let told = assent_wire::Native { code: "c", message: "m" };
    let own = || native("c", "m");
    let table = [
        (W::Done, Reply::Done),
        (W::Yes(b"w"), Reply::Vote(Vote::Yes)),
        (W::ReadOnly, Reply::Vote(Vote::ReadOnly)),
        (W::RolledBack(told), Reply::RolledBack(own())),
        (W::Unknown(told), Reply::Unknown(own())),
        (W::Refused(Kind::Full, told), Reply::Refused(Kind::Full, own())),
        (W::Refused(Kind::InDoubt, told), Reply::Lost(own())),
        (W::Heuristic(Heuristic::Committed, told), Reply::Heuristic(assent_xa::Heuristic::Committed, own())),
        (W::Heuristic(Heuristic::RolledBack, told), Reply::Heuristic(assent_xa::Heuristic::RolledBack, own())),
        (W::Heuristic(Heuristic::Mixed, told), Reply::Heuristic(assent_xa::Heuristic::Mixed, own())),
        (W::Heuristic(Heuristic::Hazard, told), Reply::Heuristic(assent_xa::Heuristic::Hazard, own())),
        (W::Listed(vec![xid()]), Reply::Listed(vec![xid()])),
    ];
    for (wire, xa) in table {
        assert_eq!(reply_of(wire), xa);
    }
}

#[test]
fn what_was_not_asked_is_not_answered_and_one_branch_at_a_time() {
    let Store { mut remote, thread } = store(vec![Box::new(|peer| assert!(!peer.turn(|it| panic!("{it:?}"))))]);
    assert!(matches!(remote.receive(), Reply::Refused(Kind::Internal, _)));
    assert_eq!(remote.call(Verb::Start(xid())), Reply::Done);
    assert!(matches!(remote.call(Verb::Start(xid())), Reply::Refused(Kind::Conflict, _)));
    assert_eq!(remote.call(Verb::End { xid: xid(), success: true }), Reply::Vote(Vote::ReadOnly));
    assert!(matches!(remote.call(Verb::End { xid: xid(), success: true }), Reply::Unknown(_)));
    drop(remote);
    thread.join().unwrap();
}
