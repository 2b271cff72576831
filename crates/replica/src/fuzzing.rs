//! Plain functions over arbitrary bytes; they must return. Run for seconds by the tests, for hours by a fuzzer.

use crate::message::Message;
use crate::{own, snapshot};

/// The bytes as messages of another member: what was read is written again the same.
pub fn message(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((message, used))) = Message::read(rest) {
        let mut again = Vec::new();
        message.lay(&mut again);
        assert_eq!(
            Message::read(&again).map(|read| read.map(|(read, _)| read)),
            Ok(Some(message)),
            "what was read is written"
        );
        rest = rest.get(used..).unwrap_or_default();
    }
}

/// The bytes as the payload of each kind of message, behind a good checksum.
pub fn payload(bytes: &[u8]) {
    let (kind, payload) = bytes.split_first().unwrap_or((&0, &[]));
    let mut framed = Vec::new();
    let head = assent_frame::Head { kind: u16::from(kind % 24), ..assent_frame::Head::default() };
    assent_frame::lay(&mut framed, head, &[payload]);
    message(&framed);
}

/// The bytes as what a member keeps in its folder.
pub fn folder(bytes: &[u8]) {
    _ = own::parse(bytes);
    _ = snapshot::parse(bytes);
    for kind in 1..3 {
        let mut framed = Vec::new();
        let head = assent_frame::Head { kind, ..assent_frame::Head::default() };
        assent_frame::lay(&mut framed, head, &[bytes]);
        _ = own::parse(&framed);
        _ = snapshot::parse(&framed);
    }
}
