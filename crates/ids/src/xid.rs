//! The transaction branch identifier of X/Open XA (C193, section 4.2) and its two text forms.
//!
//! Walk: [`Xid::new`] checks the limits · [`Branch`] is what Assent writes into one of its own ·
//! `Display`/`FromStr` is the hexadecimal form `format.gtrid.bqual` · [`Xid::to_gid`] the form that pgjdbc uses
//! in PostgreSQL, so that foreign tools read it.
//! A branch whose transaction may be decided by a row of a database says so itself ([`Mark`]), so that no changed configuration
//! and no forgotten one has anybody presume an abort.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::{Epoch, Incarnation, NodeId, ResourceId, TxId};

/// The most bytes of a global transaction identifier (XA, MAXGTRIDSIZE).
pub const GTRID_BYTES_MAX: usize = 64;
/// The most bytes of a branch qualifier (XA, MAXBQUALSIZE).
pub const BQUAL_BYTES_MAX: usize = 64;
/// Assent's own format identifier, "ASNT".
pub const FORMAT_ID: i32 = 0x4153_4E54;

/// Of 2147483647.
const FORMAT_DIGITS_MAX: usize = 10;
const GTRID_BYTES: usize = 24;
const BQUAL_BYTES: usize = 12;
/// With a [`Mark`] behind it.
const MARKED_BQUAL_BYTES: usize = BQUAL_BYTES + 20;
/// The bit of the flags that says that a [`Mark`] follows.
const MARKED: u16 = 1 << 1;

/// Why bytes or a text are no XID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XidError {
    /// A format identifier that resource managers refuse.
    #[error("XID format {format}; resource managers take 0 to 2147483647")]
    Format {
        /// The refused number.
        format: i64,
    },
    /// An empty or oversized global transaction identifier.
    #[error("XID gtrid of {bytes} bytes; 1 to {GTRID_BYTES_MAX} are allowed")]
    Gtrid {
        /// How many there were.
        bytes: usize,
    },
    /// An oversized branch qualifier.
    #[error("XID bqual of {bytes} bytes; at most {BQUAL_BYTES_MAX} are allowed")]
    Bqual {
        /// How many there were.
        bytes: usize,
    },
    /// A text of neither form.
    #[error("XID text {text:?}; write format.gtrid.bqual with the last two in hexadecimal, as 1095978580.0a1b.01")]
    Text {
        /// The beginning of the refused text.
        text: String,
    },
}

/// A transaction branch as resource managers name it. Any XID that XA allows, not only ours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid {
    format: i32,
    gtrid_bytes: u8,
    bqual_bytes: u8,
    gtrid: [u8; GTRID_BYTES_MAX],
    bqual: [u8; BQUAL_BYTES_MAX],
}

/// Where the decision of a transaction may be a row: nobody presumes its abort who has not asked there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The registered resource that has the table.
    pub resource: ResourceId,
    /// The table, by the number that it was given when it was made: another database under the same name has another.
    pub table: u64,
    /// The timeline of the server when the client wrote there, from 1: one that is behind it is an old primary, and knows nothing of what
    /// was decided since.
    pub timeline: u32,
}

/// What an XID of Assent says: node, transaction, resource, branch number, flags, and where its decision may be a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Branch {
    /// The coordinator's data folder.
    pub node: NodeId,
    /// The transaction.
    pub tx: TxId,
    /// The registered resource manager.
    pub resource: ResourceId,
    /// Which branch of the transaction, from 0.
    pub number: u16,
    /// Reserved. Bit 1 belongs to the mark and is not seen here.
    pub flags: u16,
    /// Where its decision may be a row.
    pub mark: Option<Mark>,
}

impl Mark {
    /// Of flags as they are written, whether a mark follows; and the flags without that bit.
    #[must_use]
    pub const fn follows(flags: u16) -> (bool, u16) {
        (flags & MARKED != 0, flags & !MARKED)
    }

    /// Flags as they are written.
    #[must_use]
    pub const fn flags(mark: Option<Self>, flags: u16) -> u16 {
        let bit = if mark.is_some() { MARKED } else { 0 };
        (flags & !MARKED) | bit
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (resource, rest) = bytes.split_first_chunk::<8>()?;
        let (table, timeline) = rest.split_first_chunk::<8>()?;
        let (resource, table) = (ResourceId(u64::from_be_bytes(*resource)), u64::from_be_bytes(*table));
        Some(Self { resource, table, timeline: u32::from_be_bytes(timeline.try_into().ok()?) })
    }
}

impl Branch {
    /// The first eight bytes of every gtrid of this node.
    #[must_use]
    pub const fn prefix(node: NodeId) -> [u8; 8] {
        node.0.to_be_bytes()
    }

    /// The XID: gtrid = node 8, epoch 4, incarnation 4, counter 8; bqual = resource 8, branch 2, flags 2, and of a marked
    /// branch resource 8, table 8 and timeline 4 of the row. Big endian.
    #[must_use]
    pub fn xid(&self) -> Xid {
        let mut gtrid = [0; GTRID_BYTES_MAX];
        let mut bqual = [0; BQUAL_BYTES_MAX];
        let words = self
            .node
            .0
            .to_be_bytes()
            .into_iter()
            .chain(self.tx.incarnation.epoch.0.to_be_bytes())
            .chain(self.tx.incarnation.number.to_be_bytes())
            .chain(self.tx.counter.to_be_bytes());
        gtrid.iter_mut().zip(words).for_each(|(to, from)| *to = from);
        let flags = Mark::flags(self.mark, self.flags);
        let words =
            self.resource.0.to_be_bytes().into_iter().chain(self.number.to_be_bytes()).chain(flags.to_be_bytes());
        bqual.iter_mut().zip(words).for_each(|(to, from)| *to = from);
        let mut bqual_bytes = 12;
        if let Some(Mark { resource, table, timeline }) = self.mark {
            let words = resource.0.to_be_bytes().into_iter().chain(table.to_be_bytes()).chain(timeline.to_be_bytes());
            bqual.iter_mut().skip(BQUAL_BYTES).zip(words).for_each(|(to, from)| *to = from);
            bqual_bytes = 32;
        }
        Xid { format: FORMAT_ID, gtrid_bytes: 24, bqual_bytes, gtrid, bqual }
    }
}

const _: () = assert!(GTRID_BYTES == 24 && BQUAL_BYTES == 12, "the lengths that Branch::xid writes");
const _: () = assert!(MARKED_BQUAL_BYTES == 32, "the length that Branch::xid writes with a mark");

impl Xid {
    /// Takes the parts in, or says which limit they break.
    ///
    /// # Errors
    /// [`XidError`] names the part, its size and the limit.
    pub fn new(format: i32, gtrid: &[u8], bqual: &[u8]) -> Result<Self, XidError> {
        if format < 0 {
            return Err(XidError::Format { format: i64::from(format) });
        }
        let gtrid_bytes = match u8::try_from(gtrid.len()) {
            Ok(bytes @ 1..=64) => bytes,
            _ => return Err(XidError::Gtrid { bytes: gtrid.len() }),
        };
        let bqual_bytes = match u8::try_from(bqual.len()) {
            Ok(bytes @ 0..=64) => bytes,
            _ => return Err(XidError::Bqual { bytes: bqual.len() }),
        };
        let mut xid =
            Self { format, gtrid_bytes, bqual_bytes, gtrid: [0; GTRID_BYTES_MAX], bqual: [0; BQUAL_BYTES_MAX] };
        xid.gtrid.iter_mut().zip(gtrid).for_each(|(to, from)| *to = *from);
        xid.bqual.iter_mut().zip(bqual).for_each(|(to, from)| *to = *from);
        Ok(xid)
    }

    /// The format identifier, 0 to 2^31 - 1.
    #[must_use]
    pub const fn format(&self) -> i32 {
        self.format
    }

    /// The global transaction identifier, 1 to 64 bytes.
    #[must_use]
    pub fn gtrid(&self) -> &[u8] {
        self.gtrid.get(..usize::from(self.gtrid_bytes)).unwrap_or_default()
    }

    /// The branch qualifier, 0 to 64 bytes.
    #[must_use]
    pub fn bqual(&self) -> &[u8] {
        self.bqual.get(..usize::from(self.bqual_bytes)).unwrap_or_default()
    }

    /// What it says, if it is one of Assent's.
    #[must_use]
    pub fn branch(&self) -> Option<Branch> {
        let gtrid: &[u8; GTRID_BYTES] = self.gtrid().try_into().ok()?;
        let bqual = self.bqual();
        if self.format != FORMAT_ID {
            return None;
        }
        let (node, rest) = gtrid.split_first_chunk::<8>()?;
        let (epoch, rest) = rest.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk::<4>()?;
        let (counter, _) = rest.split_first_chunk::<8>()?;
        let (resource, rest) = bqual.split_first_chunk::<8>()?;
        let (branch, rest) = rest.split_first_chunk::<2>()?;
        let (flags, rest) = rest.split_first_chunk::<2>()?;
        let (is_marked, flags) = Mark::follows(u16::from_be_bytes(*flags));
        let mark = match (is_marked, rest) {
            (false, []) => None,
            (true, rest) => Some(Mark::read(rest)?),
            (false, _) => return None,
        };
        Some(Branch {
            node: NodeId(u64::from_be_bytes(*node)),
            tx: TxId {
                incarnation: Incarnation {
                    epoch: Epoch(u32::from_be_bytes(*epoch)),
                    number: u32::from_be_bytes(*number),
                },
                counter: u64::from_be_bytes(*counter),
            },
            resource: ResourceId(u64::from_be_bytes(*resource)),
            number: u16::from_be_bytes(*branch),
            flags,
            mark,
        })
    }

    /// PostgreSQL's gid as pgjdbc writes it: `format_base64(gtrid)_base64(bqual)`. At most 189 of the 199 bytes there.
    #[must_use]
    pub fn to_gid(&self) -> String {
        let parts = [self.gtrid(), self.bqual()];
        let bytes = parts.iter().map(|part| 1 + part.len().div_ceil(3) * 4).sum::<usize>();
        // All of it at once: this is done for each verb.
        let mut gid = String::with_capacity(FORMAT_DIGITS_MAX + bytes);
        gid.push_str(&self.format.to_string());
        for part in parts {
            gid.push('_');
            BASE64.encode_string(part, &mut gid);
        }
        gid
    }

    /// Reads a gid of that form. Any other gid belongs to somebody else.
    ///
    /// # Errors
    /// [`XidError`] if the text is not of the form or breaks a limit.
    pub fn from_gid(gid: &str) -> Result<Self, XidError> {
        let wrong = || XidError::Text { text: gid.chars().take(80).collect() };
        let mut parts = gid.splitn(3, '_');
        let (Some(format), Some(gtrid), Some(bqual)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong());
        };
        let format: i64 = format.parse().map_err(|_| wrong())?;
        let format = i32::try_from(format).map_err(|_| XidError::Format { format })?;
        let decode = |part: &str| BASE64.decode(part).map_err(|_| wrong());
        Self::new(format, &decode(gtrid)?, &decode(bqual)?)
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.format)?;
        self.gtrid().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(".")?;
        self.bqual().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Xid({self})")
    }
}

impl FromStr for Xid {
    type Err = XidError;

    fn from_str(text: &str) -> Result<Self, XidError> {
        let wrong = || XidError::Text { text: text.chars().take(80).collect() };
        let mut parts = text.split('.');
        let (Some(format), Some(gtrid), Some(bqual), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let format: i64 = format.parse().map_err(|_| wrong())?;
        let format = i32::try_from(format).map_err(|_| XidError::Format { format })?;
        let gtrid = unhex(gtrid).ok_or_else(wrong)?;
        let bqual = unhex(bqual).ok_or_else(wrong)?;
        Self::new(format, &gtrid, &bqual)
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch() -> Branch {
        Branch {
            node: NodeId(0x0102_0304_0506_0708),
            tx: TxId { incarnation: Incarnation { epoch: Epoch(9), number: 2 }, counter: 77 },
            resource: ResourceId::of("bank-a"),
            number: 1,
            flags: 0,
            mark: None,
        }
    }

    #[test]
    fn a_mark_is_read_back_and_half_of_one_is_nobodys() {
        let mark = Some(Mark { resource: ResourceId::of("bank-b"), table: u64::MAX, timeline: 0x0a0b_0c0d });
        let (plain, marked) = (branch().xid(), Branch { mark, ..branch() }.xid());
        assert_eq!(marked.branch(), Some(Branch { mark, ..branch() }));
        assert_eq!(Xid::from_gid(&marked.to_gid()), Ok(marked));
        assert_eq!((plain.bqual().len(), marked.bqual().len(), marked.bqual()[11]), (12, 32, 2));
        // What an earlier program wrote means what it meant; one that does not know marks sees somebody else's branch.
        let of = |bqual: &[u8]| Xid::new(FORMAT_ID, marked.gtrid(), bqual).unwrap().branch();
        assert_eq!(of(plain.bqual()), Some(branch()));
        for cut in [0, 11, 12, 13, 28, 31] {
            assert_eq!(of(&marked.bqual()[..cut]), None, "{cut}");
        }
        assert_eq!(of(&[marked.bqual(), &[0]].concat()), None);
        assert_eq!(of(&[plain.bqual(), &[0; 20]].concat()), None, "a mark that the flags do not tell of");
    }

    #[test]
    fn a_branch_survives_its_xid_and_both_text_forms() {
        let xid = branch().xid();
        assert_eq!(xid.branch(), Some(branch()));
        assert_eq!(xid.to_string().parse::<Xid>(), Ok(xid));
        assert_eq!(Xid::from_gid(&xid.to_gid()), Ok(xid));
        assert_eq!(xid.gtrid().get(..8), Some(&Branch::prefix(branch().node)[..]));
    }

    #[test]
    fn the_longest_xid_fits_a_gid_and_one_byte_more_is_refused() {
        let xid = Xid::new(i32::MAX, &[0xff; 64], &[0xff; 64]).unwrap();
        assert_eq!(xid.to_gid().len(), 10 + 1 + 88 + 1 + 88);
        assert_eq!(Xid::new(1, &[0; 65], &[]), Err(XidError::Gtrid { bytes: 65 }));
        assert_eq!(Xid::new(1, &[], &[]), Err(XidError::Gtrid { bytes: 0 }));
        assert_eq!(Xid::new(1, &[0], &[0; 65]), Err(XidError::Bqual { bytes: 65 }));
        assert_eq!(Xid::new(-1, &[0], &[]), Err(XidError::Format { format: -1 }));
    }

    #[test]
    fn a_foreign_xid_is_carried_but_says_nothing() {
        let xid = Xid::new(1, b"somebody", b"").unwrap();
        assert_eq!(xid.branch(), None);
        assert_eq!(xid.to_string(), "1.736f6d65626f6479.");
        assert_eq!("1.736f6d65626f6479.".parse::<Xid>(), Ok(xid));
    }

    #[test]
    fn wrong_texts_are_named() {
        for text in ["", "1", "1.zz.", "1.0.", "1.00.00.00", "x.00.", "1_@_", "9999999999.00."] {
            assert!(text.parse::<Xid>().is_err(), "{text}");
            assert!(Xid::from_gid(text).is_err(), "{text}");
        }
    }
}
