//! What else a database appends to its journal: what is done to documents as a whole, to tags, and by branches.
//!
//! ```text
//!   create   version 1 · document (varint) · versioning 2 · name (all that is left)
//!   drop     version 1 · document (varint) · name (all that is left; behind a 0, if it was done once: `once`)
//!   truncate version 1 · document (varint) · revision 4 · newest entry 6, its hash 8 · next node key (varint)
//!   tag      version 1 · document (varint) · 1 put, 2 taken away · revision 4 (0: taken away) · tag (all that is left)
//!   prepare  version 1 · xid · how many, of each its document's name, how long it is (varint), and the commit
//!   outcome  version 1 · 1 commit, 2 rollback · time 6 · the entry of the prepare 6 · xid
//!            (xid: format 4, how long gtrid and bqual are 1 each, gtrid, bqual)
//!   replace  version 1 · the document that goes (varint) · versioning 2 · name · the commit of the one that comes
//! ```
//! Walk: each is laid by `lay_` and read by `read_`.
//! Deliberately absent: commits and pages, which are entries of their own kind.

use assent_frame::{Malformed, Reader};
use assent_ids::Xid;

use crate::entry::{VERSION, count, lay_text, opened, read_count, start};
use crate::once::Once;
use crate::place::{Entry, lay_lsn, read_lsn};
use crate::record::length;
use crate::varint;
use crate::versioning::Versioning;

/// A document is made.
pub const KIND_CREATE: u16 = 1;
/// A document is dropped.
pub const KIND_DROP: u16 = 2;
/// Revisions are dropped, from the newest back to another.
pub const KIND_TRUNCATE: u16 = 5;
/// Revisions of a branch that waits for its outcome.
pub const KIND_PREPARE: u16 = 6;
/// The outcome of a branch.
pub const KIND_OUTCOME: u16 = 7;
/// A tag is put to a revision, or taken away.
pub const KIND_TAG: u16 = 8;
/// A document is dropped, and another one is made under its name with a revision.
pub const KIND_REPLACE: u16 = 9;

pub(crate) fn lay_create(document: u64, versioning: Versioning, name: &str) -> Vec<u8> {
    let mut out = start(document, name.len());
    out.extend_from_slice(&versioning.laid());
    out.extend_from_slice(name.as_bytes());
    out
}

pub(crate) fn read_create(payload: &[u8]) -> Result<(u64, Versioning, &str), Malformed> {
    let (document, mut reader) = opened(payload)?;
    let laid = [reader.u8("versioning")?, reader.u8("versioning")?];
    let versioning = Versioning::of(laid).ok_or(Malformed { field: "versioning" })?;
    let name = std::str::from_utf8(reader.rest()).map_err(|_| Malformed { field: "name" })?;
    Ok((document, versioning, name))
}

pub(crate) fn lay_drop(document: u64, name: &str, once: Option<&Once>) -> Vec<u8> {
    let mut out = start(document, name.len());
    out.extend_from_slice(name.as_bytes());
    if let Some(once) = once {
        // No name has control characters.
        out.push(0);
        out.extend_from_slice(once.text().as_bytes());
    }
    out
}

pub(crate) fn read_drop(payload: &[u8]) -> Result<(u64, &str, Option<Once>), Malformed> {
    let (document, reader) = opened(payload)?;
    let text = std::str::from_utf8(reader.rest()).map_err(|_| Malformed { field: "name" })?;
    match text.split_once('\0') {
        None => Ok((document, text, None)),
        Some((name, text)) => Ok((document, name, Some(Once::of_text(text).ok_or(Malformed { field: "once" })?))),
    }
}

/// A document in the place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replacing<'a> {
    /// The one that goes.
    pub(crate) gone: u64,
    pub(crate) versioning: Versioning,
    pub(crate) name: &'a str,
    /// The first revision of the one that comes. It has that one's number.
    pub(crate) commit: &'a [u8],
}

pub(crate) fn lay_replace(replacing: &Replacing<'_>) -> Vec<u8> {
    let mut out = start(replacing.gone, 8 + replacing.name.len() + replacing.commit.len());
    out.extend_from_slice(&replacing.versioning.laid());
    lay_text(&mut out, replacing.name);
    out.extend_from_slice(replacing.commit);
    out
}

pub(crate) fn read_replace(payload: &[u8]) -> Result<Replacing<'_>, Malformed> {
    let (gone, mut reader) = opened(payload)?;
    let laid = [reader.u8("versioning")?, reader.u8("versioning")?];
    let versioning = Versioning::of(laid).ok_or(Malformed { field: "versioning" })?;
    let length = read_count(&mut reader, "name")?;
    let name = std::str::from_utf8(reader.raw(length, "name")?).map_err(|_| Malformed { field: "name" })?;
    Ok(Replacing { gone, versioning, name, commit: reader.rest() })
}

/// Revisions that are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truncation {
    pub(crate) document: u64,
    /// The newest revision from then on; 0: there is none.
    pub(crate) to: u32,
    /// The newest revision until then, and the XXH3-64 of its payload.
    pub(crate) newest: Entry,
    pub(crate) newest_hash: u64,
    /// No node that is dropped gives its key to another.
    pub(crate) next_node: u64,
}

pub(crate) fn lay_truncate(truncation: &Truncation) -> Vec<u8> {
    let mut out = start(truncation.document, 32);
    out.extend_from_slice(&truncation.to.to_le_bytes());
    lay_lsn(&mut out, truncation.newest.laid());
    out.extend_from_slice(&truncation.newest_hash.to_le_bytes());
    varint::lay(&mut out, truncation.next_node);
    out
}

pub(crate) fn read_truncate(payload: &[u8]) -> Result<Truncation, Malformed> {
    let (document, mut reader) = opened(payload)?;
    let r = &mut reader;
    let (to, newest) = (r.u32("revision")?, Entry::of(read_lsn(r, "newest entry")?));
    let (newest_hash, next_node) = (r.u64("newest hash")?, varint::read(r, "next node")?);
    reader.end()?;
    Ok(Truncation { document, to, newest, newest_hash, next_node })
}

/// A tag that is put to a revision, or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tagging<'a> {
    pub(crate) document: u64,
    pub(crate) revision: Option<u32>,
    pub(crate) tag: &'a str,
}

pub(crate) fn lay_tag(tagging: &Tagging<'_>) -> Vec<u8> {
    let mut out = start(tagging.document, tagging.tag.len());
    out.push(if tagging.revision.is_some() { 1 } else { 2 });
    out.extend_from_slice(&tagging.revision.unwrap_or_default().to_le_bytes());
    out.extend_from_slice(tagging.tag.as_bytes());
    out
}

pub(crate) fn read_tag(payload: &[u8]) -> Result<Tagging<'_>, Malformed> {
    let (document, mut reader) = opened(payload)?;
    let what = reader.u8("what of a tag")?;
    let revision = reader.u32("revision")?;
    let revision = match (what, revision) {
        (1, revision) => Some(revision),
        (2, 0) => None,
        _ => return Err(Malformed { field: "what of a tag" }),
    };
    let tag = std::str::from_utf8(reader.rest()).map_err(|_| Malformed { field: "tag" })?;
    Ok(Tagging { document, revision, tag })
}

/// A document's name and its commit.
pub(crate) type Part<'a> = (&'a str, &'a [u8]);

pub(crate) fn lay_prepare(xid: &Xid, parts: &[Part<'_>]) -> Vec<u8> {
    let mut out = vec![VERSION];
    lay_xid(&mut out, xid);
    varint::lay(&mut out, count(parts.len()));
    for (name, commit) in parts {
        lay_text(&mut out, name);
        varint::lay(&mut out, length(commit));
        out.extend_from_slice(commit);
    }
    out
}

pub(crate) fn read_prepare(payload: &[u8]) -> Result<(Xid, Vec<Part<'_>>), Malformed> {
    let mut reader = Reader::new(payload);
    if reader.u8("version")? != VERSION {
        return Err(Malformed { field: "version" });
    }
    let r = &mut reader;
    let xid = read_xid(r)?;
    let parts = read_count(r, "parts")?;
    let part = |_| {
        let length = read_count(r, "name")?;
        let name = std::str::from_utf8(r.raw(length, "name")?).map_err(|_| Malformed { field: "name" })?;
        let length = read_count(r, "commit")?;
        Ok((name, r.raw(length, "commit")?))
    };
    let parts = (0..parts).map(part).collect::<Result<Vec<_>, Malformed>>()?;
    reader.end()?;
    Ok((xid, parts))
}

/// How a prepared branch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) is_commit: bool,
    /// That of its revisions: readers see them from then on.
    pub(crate) time_ms: u64,
    pub(crate) prepare: Entry,
    pub(crate) xid: Xid,
}

pub(crate) fn lay_outcome(outcome: &Outcome) -> Vec<u8> {
    let mut out = vec![VERSION, if outcome.is_commit { 1 } else { 2 }];
    lay_lsn(&mut out, outcome.time_ms);
    lay_lsn(&mut out, outcome.prepare.laid());
    lay_xid(&mut out, &outcome.xid);
    out
}

pub(crate) fn read_outcome(payload: &[u8]) -> Result<Outcome, Malformed> {
    let mut reader = Reader::new(payload);
    if reader.u8("version")? != VERSION {
        return Err(Malformed { field: "version" });
    }
    let is_commit = match reader.u8("outcome")? {
        1 => true,
        2 => false,
        _ => return Err(Malformed { field: "outcome" }),
    };
    let (time_ms, prepare) = (read_lsn(&mut reader, "time")?, Entry::of(read_lsn(&mut reader, "prepare")?));
    let xid = read_xid(&mut reader)?;
    reader.end()?;
    Ok(Outcome { is_commit, time_ms, prepare, xid })
}

/// As it stands in entries and in the index: XIDs of one format are ordered by their parts there.
pub(crate) fn lay_xid(out: &mut Vec<u8>, xid: &Xid) {
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    out.extend_from_slice(&xid.format().unsigned_abs().to_le_bytes());
    out.extend_from_slice(&[length(xid.gtrid()), length(xid.bqual())]);
    out.extend_from_slice(xid.gtrid());
    out.extend_from_slice(xid.bqual());
}

pub(crate) fn read_xid(reader: &mut Reader<'_>) -> Result<Xid, Malformed> {
    let wrong = Malformed { field: "xid" };
    let format = i32::try_from(reader.u32("xid")?).map_err(|_| wrong)?;
    let (gtrid, bqual) = (reader.u8("xid")?, reader.u8("xid")?);
    let gtrid = reader.raw(gtrid.into(), "xid")?;
    let bqual = reader.raw(bqual.into(), "xid")?;
    Xid::new(format, gtrid, bqual).map_err(|_| wrong)
}

#[cfg(test)]
mod tests {
    use assent_ids::Lsn;

    use super::*;

    #[test]
    fn what_is_not_a_commit_comes_back_too() {
        let laid = lay_create(9, Versioning::Differential, "orders");
        assert_eq!(read_create(&laid), Ok((9, Versioning::Differential, "orders")));
        assert_eq!(read_drop(&lay_drop(9, "orders", None)), Ok((9, "orders", None)));
        let once = Once { name: [3; 32], until_ms: 5, note: "x".to_owned() };
        let laid = lay_drop(9, "orders", Some(&once));
        assert_eq!(read_drop(&laid), Ok((9, "orders", Some(once))));
        assert!(read_drop(&laid[..laid.len() - 3]).is_err());
        let replacing = Replacing { gone: 300, versioning: Versioning::Full, name: "orders", commit: b"bytes" };
        let laid = lay_replace(&replacing);
        assert_eq!(read_replace(&laid), Ok(replacing));
        for end in 0..laid.len() - replacing.commit.len() {
            assert!(read_replace(&laid[..end]).is_err(), "{end}");
        }
        let truncation =
            Truncation { document: 300, to: 7, newest: Entry::new(Lsn(800), 100), newest_hash: 5, next_node: 1 << 40 };
        let laid = lay_truncate(&truncation);
        assert_eq!(read_truncate(&laid), Ok(truncation));
        for end in 0..laid.len() {
            assert!(read_truncate(&laid[..end]).is_err(), "{end}");
        }
        for revision in [None, Some(0), Some(9)] {
            let tagging = Tagging { document: 300, revision, tag: "release" };
            assert_eq!(read_tag(&lay_tag(&tagging)), Ok(tagging));
        }
        let xid = Xid::new(7, b"transaction", b"").unwrap();
        let laid = lay_prepare(&xid, &[("orders", b"one"), ("", b"")]);
        assert_eq!(read_prepare(&laid), Ok((xid, vec![("orders", b"one".as_slice()), ("", b"")])));
        for end in 0..laid.len() {
            assert!(read_prepare(&laid[..end]).is_err(), "{end}");
        }
        for is_commit in [true, false] {
            let outcome = Outcome { is_commit, time_ms: 1 << 41, prepare: Entry::new(Lsn(800), 100), xid };
            let laid = lay_outcome(&outcome);
            assert_eq!(read_outcome(&laid), Ok(outcome));
            for end in 0..laid.len() {
                assert!(read_outcome(&laid[..end]).is_err(), "{end}");
            }
        }
    }
}
