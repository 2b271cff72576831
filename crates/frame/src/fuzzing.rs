//! A plain function over arbitrary bytes; it must return. Run for seconds by the tests, for hours by a fuzzer.

use crate::{PAYLOAD_BYTES_MAX, Reader, parse};

/// The bytes as packed frames, each payload as a list of byte strings.
pub fn frame(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((frame, used))) = parse(rest, PAYLOAD_BYTES_MAX) {
        assert!(used <= rest.len() && frame.payload.len() < used, "a frame lies within its bytes");
        let mut reader = Reader::new(frame.payload);
        while reader.bytes("field").is_ok() && !reader.rest().is_empty() {}
        rest = rest.get(used..).unwrap_or_default();
    }
}
