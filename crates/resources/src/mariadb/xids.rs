//! XIDs as the server reads and lists them.
//!
//! Deliberately absent: asking for the list (`recovery.rs`).

use std::fmt::Write as _;

use assent_ids::{Branch, FORMAT_ID, NodeId, Xid};
use mysql::Row;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The XID as `X'gtrid',X'bqual',format`.
pub(crate) fn literal(xid: &Xid) -> String {
    // Two digits a byte: composed several times a branch, and `format!` takes its time.
    let hex = |text: &mut String, bytes: &[u8]| {
        let digit = |nibble: u8| char::from(DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0'));
        for byte in bytes {
            text.push(digit(byte >> 4));
            text.push(digit(byte & 0xf));
        }
    };
    let mut text = String::with_capacity(2 * (xid.gtrid().len() + xid.bqual().len()) + 32);
    text.push_str("X'");
    hex(&mut text, xid.gtrid());
    text.push_str("',X'");
    hex(&mut text, xid.bqual());
    // Writing into a String cannot fail.
    let _ok = write!(text, "',{}", xid.format());
    text
}

/// A row of XA RECOVER: formatID, gtrid_length, bqual_length, and the bytes of both, glued.
pub(crate) fn read_row(row: Row) -> Option<Xid> {
    let (format, gtrid_bytes, bqual_bytes, data): (i64, usize, usize, Vec<u8>) = mysql::from_row_opt(row).ok()?;
    glued(format, gtrid_bytes, bqual_bytes, &data)
}

/// Nothing for what can be no XID of ours.
fn glued(format: i64, gtrid_bytes: usize, bqual_bytes: usize, data: &[u8]) -> Option<Xid> {
    let (gtrid, bqual) = data.split_at_checked(gtrid_bytes)?;
    if bqual.len() != bqual_bytes {
        return None;
    }
    Xid::new(i32::try_from(format).ok()?, gtrid, bqual).ok()
}

/// Those of one node.
pub(crate) fn ours(node: NodeId, xids: Vec<Xid>) -> Vec<Xid> {
    let mine = |xid: &Xid| xid.format() == FORMAT_ID && xid.gtrid().starts_with(&Branch::prefix(node));
    xids.into_iter().filter(mine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glued_bytes_are_cut_by_their_lengths_or_ignored() {
        let xid = Xid::new(7, b"gt'\0rid", b"\xffb").unwrap();
        assert_eq!(literal(&xid), "X'6774270072696 4',X'ff62',7".replace(' ', ""));
        assert_eq!(glued(7, 7, 2, b"gt'\0rid\xffb"), Some(xid));
        assert_eq!(glued(7, 7, 0, b"gt'\0rid"), Xid::new(7, b"gt'\0rid", b"").ok());
        assert_eq!(glued(7, 8, 2, b"gt'\0rid\xffb"), None, "more bytes than lengths");
        assert_eq!(glued(7, 70, 2, b"short"), None);
        assert_eq!(glued(7, 0, 2, b"ab"), None, "no gtrid");
        assert_eq!(glued(1 << 31, 1, 1, b"ab"), None, "MySQL's formats go further");
    }
}
