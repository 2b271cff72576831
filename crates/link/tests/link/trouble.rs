//! Connections that end: what surely was not done, and what may have been.

use std::sync::mpsc;

use assent_kind::Kind;
use assent_link::{Link, LinkConfig, LinkError};
use assent_wire::{Answer, Hello, Limits, Request, Role};
use assent_world::net::tcp_listener;

use super::peer::Server;

const LONG_MS: u64 = 20_000;

#[test]
fn nobody_listening_is_unavailable() {
    let nobody = tcp_listener(&"127.0.0.1:0".parse().unwrap()).unwrap().local_addr().unwrap();
    let error = Link::connect(&nobody.into(), &Hello::new(Role::Admin), &LinkConfig::default()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains(&nobody.to_string()), "{error}");
}

#[test]
fn a_refused_greeting_keeps_the_server_s_reason() {
    let server = Server::plays(|mut peer| {
        let hello = peer.next().unwrap();
        peer.answer(hello.mark, &Answer::Error { kind: Kind::Denied, message: "who are you?" });
    });
    let error = server.link(LONG_MS).unwrap_err();
    assert_eq!(error, LinkError::Refused { kind: Kind::Denied, message: "who are you?".to_owned() });
    server.end();
}

#[test]
fn another_protocol_or_a_close_in_the_greeting_is_unavailable() {
    let server = Server::plays(|mut peer| peer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    assert_eq!(server.link(LONG_MS).unwrap_err().kind(), Kind::Unavailable);
    server.end();
    let server = Server::plays(|mut peer| _ = peer.next());
    assert_eq!(server.link(LONG_MS).unwrap_err().kind(), Kind::Unavailable);
    server.end();
}

#[test]
fn a_request_that_was_read_and_not_answered_is_in_doubt_and_the_next_one_is_not_sent() {
    let server = Server::welcoming(Limits::default(), |mut peer| _ = peer.next());
    let link = server.link(LONG_MS).unwrap();
    let error = link.request(&Request::Ping).unwrap_err();
    assert_eq!(error.kind(), Kind::InDoubt);
    assert!(error.to_string().contains("closed the connection"), "{error}");
    assert!(!link.is_whole());
    assert_eq!(link.request(&Request::Ping).unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(link.one_way(&Request::Finished(vec![])).unwrap_err().kind(), Kind::Unavailable);
    server.end();
}

#[test]
fn a_request_that_never_left_is_unavailable() {
    let server = Server::welcoming(Limits::default(), |_| ());
    let link = server.link(LONG_MS).unwrap();
    let queued = link.lay(&Request::Ping).unwrap();
    server.end();
    link.close("over");
    assert_eq!(link.receive(queued), Err(LinkError::Unavailable { message: "over".to_owned() }));
}

#[test]
fn all_who_wait_are_told_when_the_connection_ends() {
    let server = Server::welcoming(Limits::default(), |mut peer| {
        for _ in 0..8 {
            _ = peer.next();
        }
    });
    let link = server.link(LONG_MS).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(link.request(&Request::Ping).unwrap_err().kind(), Kind::InDoubt));
        }
    });
    server.end();
}

#[test]
fn silence_is_in_doubt_after_its_time_and_a_late_answer_is_nobody_s() {
    let (go, wait) = mpsc::channel();
    let server = Server::welcoming(Limits::default(), move |mut peer| {
        let late = peer.next().unwrap();
        wait.recv().unwrap();
        peer.answer(late.mark, &Answer::Stats(vec![("late", 1)]));
        while let Some(next) = peer.next() {
            peer.answer(next.mark, &Answer::Pong);
        }
    });
    let link = server.link(60).unwrap();
    let error = link.request(&Request::Stats).unwrap_err();
    assert_eq!(error.kind(), Kind::InDoubt);
    assert!(error.to_string().contains("silent for 60 ms"), "{error}");
    go.send(()).unwrap();
    assert!(link.is_whole());
    // On a slow machine a good answer may take longer than this link waits: it is asked again.
    let next = loop {
        match link.request(&Request::Ping) {
            Err(error) if error.to_string().contains("silent") => {}
            answered => break answered.unwrap(),
        }
    };
    assert_eq!(next.answer(), Ok(Answer::Pong));
    drop(link);
    server.end();
}

#[test]
fn a_damaged_stream_is_ended_and_what_waited_is_in_doubt() {
    let server = Server::welcoming(Limits::default(), |mut peer| {
        _ = peer.next();
        peer.write(&[0xa5; 64]);
        assert!(peer.next().is_none(), "the link hangs up");
    });
    let link = server.link(LONG_MS).unwrap();
    assert_eq!(link.request(&Request::Ping).unwrap_err().kind(), Kind::InDoubt);
    drop(link);
    server.end();
}

#[test]
fn an_answer_that_says_nothing_is_in_doubt() {
    let server = Server::welcoming(Limits::default(), |mut peer| {
        let asked = peer.next().unwrap();
        let mut bytes = Vec::new();
        assent_frame::lay(&mut bytes, assent_frame::Head { mark: asked.mark, kind: 0x9999, ..Default::default() }, &[]);
        peer.write(&bytes);
    });
    let link = server.link(LONG_MS).unwrap();
    let arrived = link.request(&Request::Ping).unwrap();
    assert_eq!(arrived.answer().unwrap_err().kind(), Kind::InDoubt);
    server.end();
}

#[test]
fn a_connection_that_ended_while_it_was_quiet_is_seen_before_it_is_used() {
    let (go, wait) = mpsc::channel();
    let server = Server::welcoming(Limits::default(), move |mut peer| {
        wait.recv().unwrap();
        peer.answer(0, &Answer::Error { kind: Kind::Busy, message: "you were silent" });
    });
    let link = server.link(LONG_MS).unwrap();
    assert!(link.look());
    go.send(()).unwrap();
    server.end();
    while link.look() {
        std::thread::yield_now();
    }
    let error = link.request(&Request::Ping).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "surely not sent");
    assert!(error.to_string().contains("you were silent"), "{error}");
}

#[test]
fn a_farewell_tells_why() {
    let server = Server::welcoming(Limits::default(), |mut peer| {
        _ = peer.next();
        peer.answer(0, &Answer::Error { kind: Kind::Unavailable, message: "draining" });
    });
    let link = server.link(LONG_MS).unwrap();
    let error = link.request(&Request::Ping).unwrap_err();
    assert!(error.to_string().contains("draining"), "{error}");
    server.end();
}
