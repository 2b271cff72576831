//! Any text gets an answer from the XID parsers, and what they take they give back.

use assent_ids::{Xid, fuzzing};

#[test]
fn fuzz_xid_text() {
    let xid = Xid::new(1, b"global", b"branch").unwrap();
    let (text, gid) = (xid.to_string(), xid.to_gid());
    let runs = assent_sim::fuzz(2, &[text.as_bytes(), gid.as_bytes(), b"3.1.42"], fuzzing::xid_text);
    assert!(runs > 1_000, "{runs}");
}
