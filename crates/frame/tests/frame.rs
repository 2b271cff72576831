//! Any bytes get an answer from the frame parser.

use assent_frame::{Head, fuzzing, lay};

#[test]
fn fuzz_frame() {
    let mut good = Vec::new();
    lay(&mut good, Head { mark: 1, kind: 2, flags: 3, chain: 4 }, &[b"payload of a frame"]);
    lay(&mut good, Head::default(), &[]);
    let runs = assent_sim::fuzz(1, &[&good, b""], fuzzing::frame);
    assert!(runs > 1_000, "{runs}");
}
