//! Any text gets an answer from the XID parsers, and what they take they give back.

use assent_ids::{TxId, Xid};

#[test]
fn fuzz_xid_text() {
    let xid = Xid::new(1, b"global", b"branch").unwrap();
    let (text, gid) = (xid.to_string(), xid.to_gid());
    let runs = assent_sim::fuzz(2, &[text.as_bytes(), gid.as_bytes(), b"3.1.42"], target);
    assert!(runs > 1_000, "{runs}");
}

/// What `make fuzz` runs too.
fn target(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(xid) = text.parse::<Xid>() {
        assert_eq!(xid.to_string().parse(), Ok(xid));
    }
    if let Ok(xid) = Xid::from_gid(&text) {
        assert_eq!(Xid::from_gid(&xid.to_gid()), Ok(xid));
    }
    if let Ok(tx) = text.parse::<TxId>() {
        assert_eq!(tx.to_string().parse(), Ok(tx));
    }
    _ = branch_of(&text);
}

fn branch_of(text: &str) -> Option<assent_ids::Branch> {
    text.parse::<Xid>().ok()?.branch()
}
