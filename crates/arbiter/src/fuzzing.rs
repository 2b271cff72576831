//! Plain functions over arbitrary bytes; they must return. Run for seconds by the tests, for hours by a fuzzer.

use crate::{http, ledger, message, text};

/// The bytes as everything that an arbiter reads.
pub fn arbiter(bytes: &[u8]) {
    if let Ok(configuration) = text::read(bytes) {
        assert_eq!(text::read(text::write(&configuration).as_bytes()), Ok(configuration), "what was read is written");
    }
    _ = message::read_question(bytes);
    _ = message::read_answer(bytes);
    _ = ledger::parse(bytes);
    _ = http::parse(bytes, true);
}

/// A ledger's bytes with a good checksum around any payload.
pub fn ledger(payload: &[u8]) {
    let mut bytes = Vec::new();
    assent_frame::lay(&mut bytes, assent_frame::Head { kind: 1, ..assent_frame::Head::default() }, &[payload]);
    _ = ledger::parse(&bytes);
}
