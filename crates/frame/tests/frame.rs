//! Any bytes get an answer from the frame parser.

use assent_frame::{Head, PAYLOAD_BYTES_MAX, Reader, lay, parse};

#[test]
fn fuzz_frame() {
    let mut good = Vec::new();
    lay(&mut good, Head { mark: 1, kind: 2, flags: 3, chain: 4 }, &[b"payload of a frame"]);
    lay(&mut good, Head::default(), &[]);
    let runs = assent_sim::fuzz(1, &[&good, b""], target);
    assert!(runs > 1_000, "{runs}");
}

/// What `make fuzz` runs too.
fn target(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((frame, used))) = parse(rest, PAYLOAD_BYTES_MAX) {
        assert!(used <= rest.len() && frame.payload.len() < used);
        let mut reader = Reader::new(frame.payload);
        while reader.bytes("field").is_ok() && !reader.rest().is_empty() {}
        rest = rest.get(used..).unwrap_or_default();
    }
}
