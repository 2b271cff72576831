//! A plain function over arbitrary bytes; it must return. Run for seconds by the tests, for hours by a fuzzer.

use crate::{TxId, Xid};

/// The bytes as a text of every form: what is taken is given back the same.
pub fn xid_text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(xid) = text.parse::<Xid>() {
        assert_eq!(xid.to_string().parse(), Ok(xid), "the hexadecimal form");
        assert!(xid.branch().is_none_or(|branch| branch.xid() == xid), "what an XID of ours says");
    }
    if let Ok(xid) = Xid::from_gid(&text) {
        assert_eq!(Xid::from_gid(&xid.to_gid()), Ok(xid), "the gid");
    }
    if let Ok(tx) = text.parse::<TxId>() {
        assert_eq!(tx.to_string().parse(), Ok(tx), "a transaction");
    }
}
