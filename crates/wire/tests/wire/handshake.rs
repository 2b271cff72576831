//! Old and new meet at the highest version both know; whoever has nothing in common is told so.

use assent_frame::Frame;
use assent_wire::{Hello, PAYLOAD_BYTES_MAX, Role, Secret, Session, VERSIONS, Versions, WireError};

use super::messages::tx;

fn hellos() -> Vec<Hello<'static>> {
    let resume = Session { incarnation: tx().incarnation, secret: Secret(5) };
    vec![
        Hello::new(Role::Client { label: "", resume: None, resources: vec![] }),
        Hello {
            token: "t",
            ..Hello::new(Role::Client { label: "shop", resume: Some(resume), resources: vec!["a", "b"] })
        },
        Hello::new(Role::Store { label: "shop" }),
        Hello::new(Role::Admin),
    ]
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    assent_frame::parse(bytes, PAYLOAD_BYTES_MAX).unwrap().unwrap().0
}

#[test]
fn every_greeting_survives_the_wire_and_every_cut_of_it_is_refused() {
    for hello in hellos() {
        let mut bytes = Vec::new();
        hello.lay(&mut bytes, 1).unwrap();
        let whole = frame(&bytes);
        assert_eq!(Hello::parse(&whole, VERSIONS), Ok((hello.clone(), VERSIONS.max)));
        for end in 0..whole.payload.len() {
            assert!(Hello::parse(&Frame { payload: &whole.payload[..end], ..whole }, VERSIONS).is_err(), "{end}");
        }
        let longer = [whole.payload, &[0]].concat();
        assert!(Hello::parse(&Frame { payload: &longer, ..whole }, VERSIONS).is_err());
    }
}

#[test]
fn versions_meet_at_the_highest_common_one() {
    let table = [
        ((1, 1), (1, 1), Some(1)),
        ((1, 3), (2, 5), Some(3)),
        ((2, 5), (1, 3), Some(3)),
        ((1, 2), (3, 4), None),
        ((3, 4), (1, 2), None),
        ((1, 9), (4, 4), Some(4)),
        ((2, 1), (1, 9), None),
    ];
    for ((min, max), (low, high), met) in table {
        assert_eq!(Versions { min, max }.meet(Versions { min: low, max: high }), met);
    }
}

#[test]
fn a_greeting_of_another_age_is_told_the_versions_whatever_its_layout() {
    let mut bytes = Vec::new();
    let theirs = Versions { min: 7, max: 8 };
    Hello { versions: theirs, ..Hello::new(Role::Admin) }.lay(&mut bytes, 1).unwrap();
    let whole = frame(&bytes);
    let strange = [&whole.payload[..8], b"a layout of the future"].concat();
    let error = Hello::parse(&Frame { payload: &strange, ..whole }, VERSIONS).unwrap_err();
    assert_eq!(error, WireError::Version { theirs, ours: VERSIONS });
    assert_eq!(error.to_string(), "the other side speaks versions 7 to 8, this one 1 to 6; upgrade the older one");
}

#[test]
fn another_protocol_is_no_hello() {
    for payload in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"", b"ASN"] {
        let frame = Frame { mark: 0, kind: 1, flags: 0, chain: 0, payload };
        assert_eq!(Hello::parse(&frame, VERSIONS), Err(WireError::NoHello));
    }
}

#[test]
fn secrets_are_not_printed() {
    let [_, hello, ..] = &hellos()[..] else { panic!("four greetings") };
    let text = format!("{:?}", Hello { token: "hush", ..hello.clone() });
    assert!(text.contains("Secret(..)") && !text.contains("hush"), "{text}");
}
