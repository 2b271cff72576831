//! What a database appends to its journal when a document changes: commits, and pages of large ones.
//!
//! ```text
//!   page    version 1 · document (varint) · page · fragment (all that is left)
//!   commit  version 1 · document (varint) · revision 4 · the entry of the revision before 6, its hash 8 · time 6
//!           author · message · fields: how many, name and value of each            (texts: length as a varint, bytes)
//!           the document's value, next node key, next path (varints) · trees: of nodes, of paths
//!           changes: whether they are all 1, how many, of each what 1 and the node's key
//!           fragments: how many, of each its page, its length, its bytes
//! ```
//! Walk: [`Root`] is a revision as its commit says it · [`lay_commit`], [`read_commit`] · [`fragment`] takes one out.
//! Deliberately absent: what pages say.

use assent_frame::{Malformed, Reader};

use crate::act::{KIND_PREPARE, KIND_REPLACE, read_prepare, read_replace};
use crate::place::{Entry, lay_lsn, read_lsn};
use crate::record::length;
use crate::trie::{PageName, Tree};
use crate::varint;

/// A fragment that a later commit leads to.
pub const KIND_PAGE: u16 = 3;
/// A revision.
pub const KIND_COMMIT: u16 = 4;

pub(crate) const VERSION: u8 = 1;
/// More changes than this are not listed: whoever wants them compares the revisions.
pub(crate) const CHANGES_MAX: usize = 1024;

/// What became of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// It is new, with all that is below it.
    Inserted,
    /// It is gone, with all that was below it.
    Removed,
    /// It has another value.
    Set,
    /// It has another name.
    Renamed,
    /// It is elsewhere.
    Moved,
}

impl What {
    const ALL: [What; 5] = [What::Inserted, What::Removed, What::Set, What::Renamed, What::Moved];

    const fn number(self) -> u8 {
        match self {
            Self::Inserted => 1,
            Self::Removed => 2,
            Self::Set => 3,
            Self::Renamed => 4,
            Self::Moved => 5,
        }
    }
}

/// One change of a commit: what became of which node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Change {
    /// What became of it.
    pub what: What,
    /// The node's key.
    pub node: u64,
}

/// What a committer says of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Who.
    pub author: String,
    /// Why.
    pub message: String,
    /// What else.
    pub fields: Vec<(String, String)>,
}

/// A revision, as its commit says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) document: u64,
    pub(crate) revision: u32,
    /// The entry of the revision before, and the XXH3-64 of its payload.
    pub(crate) previous: Entry,
    pub(crate) previous_hash: u64,
    /// Milliseconds since 1970. Never before that of the revision before.
    pub(crate) time_ms: u64,
    pub(crate) meta: Meta,
    /// The document's value; 0: there is none.
    pub(crate) value: u64,
    pub(crate) next_node: u64,
    pub(crate) next_path: u64,
    pub(crate) nodes: Tree,
    pub(crate) paths: Tree,
    pub(crate) changes: Vec<Change>,
    /// Whether the changes are all listed.
    pub(crate) is_listed: bool,
    /// Its own entry, and the hash of that: known once it is appended.
    pub(crate) entry: Entry,
    pub(crate) hash: u64,
    /// How often the document was cut back since the open. Before and after that a number may be another revision's.
    pub(crate) epoch: u32,
}

impl Root {
    /// A document without a revision.
    pub(crate) fn empty(document: u64) -> Self {
        Self { document, next_node: 1, next_path: 1, is_listed: true, ..Self::default() }
    }
}

pub(crate) fn lay_text(out: &mut Vec<u8>, text: &str) {
    varint::lay(out, length(text.as_bytes()));
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn read_text(reader: &mut Reader<'_>, field: &'static str) -> Result<String, Malformed> {
    let wrong = Malformed { field };
    let length = usize::try_from(varint::read(reader, field)?).map_err(|_| wrong)?;
    std::str::from_utf8(reader.raw(length, field)?).map(str::to_owned).map_err(|_| wrong)
}

pub(crate) fn read_count(reader: &mut Reader<'_>, field: &'static str) -> Result<usize, Malformed> {
    usize::try_from(varint::read(reader, field)?).map_err(|_| Malformed { field })
}

/// The first bytes of every payload.
pub(crate) fn start(document: u64, room: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + room);
    out.push(VERSION);
    varint::lay(&mut out, document);
    out
}

pub(crate) fn opened(payload: &[u8]) -> Result<(u64, Reader<'_>), Malformed> {
    let mut reader = Reader::new(payload);
    if reader.u8("version")? != VERSION {
        return Err(Malformed { field: "version" });
    }
    Ok((varint::read(&mut reader, "document")?, reader))
}

/// What stands before a fragment that is an entry of its own.
pub(crate) fn lay_page(document: u64, page: PageName) -> Vec<u8> {
    let mut out = start(document, 16);
    page.lay(&mut out);
    out
}

/// Lays a commit with the fragments that are in it.
pub(crate) fn lay_commit<'a>(root: &Root, fragments: impl ExactSizeIterator<Item = (PageName, &'a [u8])>) -> Vec<u8> {
    let mut out = start(root.document, 256);
    out.extend_from_slice(&root.revision.to_le_bytes());
    lay_lsn(&mut out, root.previous.laid());
    out.extend_from_slice(&root.previous_hash.to_le_bytes());
    lay_lsn(&mut out, root.time_ms);
    lay_text(&mut out, &root.meta.author);
    lay_text(&mut out, &root.meta.message);
    varint::lay(&mut out, count(root.meta.fields.len()));
    for (name, value) in &root.meta.fields {
        lay_text(&mut out, name);
        lay_text(&mut out, value);
    }
    for number in [root.value, root.next_node, root.next_path] {
        varint::lay(&mut out, number);
    }
    root.nodes.lay(&mut out);
    root.paths.lay(&mut out);
    out.push(u8::from(root.is_listed));
    varint::lay(&mut out, count(root.changes.len()));
    for change in &root.changes {
        out.push(change.what.number());
        varint::lay(&mut out, change.node);
    }
    varint::lay(&mut out, count(fragments.len()));
    for (page, fragment) in fragments {
        page.lay(&mut out);
        varint::lay(&mut out, length(fragment));
        out.extend_from_slice(fragment);
    }
    out
}

pub(crate) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The revision of a commit, and where its fragments begin.
pub(crate) fn read_commit(payload: &[u8]) -> Result<(Root, Reader<'_>), Malformed> {
    let (document, mut reader) = opened(payload)?;
    let r = &mut reader;
    let revision = r.u32("revision")?;
    let previous = Entry::of(read_lsn(r, "previous entry")?);
    let previous_hash = r.u64("previous hash")?;
    let time_ms = read_lsn(r, "time")?;
    let (author, message) = (read_text(r, "author")?, read_text(r, "message")?);
    let fields = (0..read_count(r, "fields")?).map(|_| Ok((read_text(r, "field")?, read_text(r, "field")?)));
    let fields = fields.collect::<Result<Vec<_>, Malformed>>()?;
    let value = varint::read(r, "value")?;
    let (next_node, next_path) = (varint::read(r, "next node")?, varint::read(r, "next path")?);
    let (nodes, paths) = (Tree::read(r)?, Tree::read(r)?);
    let is_listed = r.u8("changes")? == 1;
    let changes = (0..read_count(r, "changes")?).map(|_| read_change(r)).collect::<Result<Vec<_>, Malformed>>()?;
    let root = Root {
        document,
        revision,
        previous,
        previous_hash,
        time_ms,
        meta: Meta { author, message, fields },
        value,
        next_node,
        next_path,
        nodes,
        paths,
        changes,
        is_listed,
        ..Root::default()
    };
    Ok((root, reader))
}

fn read_change(reader: &mut Reader<'_>) -> Result<Change, Malformed> {
    let number = reader.u8("change")?;
    let what = What::ALL.into_iter().find(|what| what.number() == number).ok_or(Malformed { field: "change" })?;
    Ok(Change { what, node: varint::read(reader, "change")? })
}

/// The commit of a document: the whole payload, one of those that were prepared, or that of a document in the place of another.
pub(crate) fn commit_of(kind: u16, payload: &[u8], document: u64) -> Result<&[u8], Malformed> {
    match kind {
        KIND_COMMIT => Ok(payload),
        KIND_PREPARE => {
            let (_, parts) = read_prepare(payload)?;
            let is_of = |commit: &&[u8]| opened(commit).is_ok_and(|(of, _)| of == document);
            parts.into_iter().map(|(_, commit)| commit).find(is_of).ok_or(Malformed { field: "document" })
        }
        KIND_REPLACE => Ok(read_replace(payload)?.commit),
        _ => Err(Malformed { field: "kind" }),
    }
}

/// The fragment with this index, of this document and page.
///
/// # Errors
/// [`Malformed`] if there is none, or it is of another page.
pub(crate) fn fragment(
    kind: u16,
    payload: &[u8],
    document: u64,
    page: PageName,
    index: u32,
) -> Result<&[u8], Malformed> {
    let commit = if kind == KIND_PAGE { payload } else { commit_of(kind, payload, document)? };
    let (of, mut reader) = opened(commit)?;
    if of != document {
        return Err(Malformed { field: "document" });
    }
    let found = match kind {
        KIND_PAGE if index == 0 => (PageName::read(&mut reader)?, reader.rest()),
        KIND_COMMIT | KIND_PREPARE | KIND_REPLACE => {
            let (_, mut reader) = read_commit(commit)?;
            let count = varint::read(&mut reader, "fragments")?;
            if u64::from(index) >= count {
                return Err(Malformed { field: "fragments" });
            }
            (0..index).try_for_each(|_| read_fragment(&mut reader).map(drop))?;
            read_fragment(&mut reader)?
        }
        _ => return Err(Malformed { field: "kind" }),
    };
    if found.0 == page { Ok(found.1) } else { Err(Malformed { field: "page" }) }
}

fn read_fragment<'a>(reader: &mut Reader<'a>) -> Result<(PageName, &'a [u8]), Malformed> {
    let page = PageName::read(reader)?;
    let length = read_count(reader, "fragment")?;
    Ok((page, reader.raw(length, "fragment")?))
}

#[cfg(test)]
mod tests {
    use assent_ids::Lsn;

    use super::*;
    use crate::act::{KIND_DROP, Replacing, lay_prepare, lay_replace};
    use crate::place::{Chain, Place};
    use crate::trie::Which;
    use crate::versioning::Versioning;

    #[test]
    fn a_commit_comes_back_with_its_fragments_and_every_cut_is_refused() {
        let tree = Tree { height: 1, top: Chain::from_iter([Place::here(1)]) };
        let root = Root {
            document: 300,
            revision: 7,
            previous: Entry::new(Lsn(800), 100),
            previous_hash: 5,
            time_ms: 1_700_000_000_000,
            meta: Meta {
                author: "ann".to_owned(),
                message: "why".to_owned(),
                fields: vec![("ticket".to_owned(), "7".to_owned())],
            },
            value: 1,
            next_node: 400,
            next_path: 9,
            nodes: tree,
            paths: Tree::default(),
            changes: vec![Change { what: What::Set, node: 5 }, Change { what: What::Moved, node: 300 }],
            is_listed: true,
            ..Root::default()
        };
        let page = |number| PageName { which: Which::Nodes, level: 0, number };
        let fragments = [(page(0), b"first".as_slice()), (page(900), b"second")];
        let laid = lay_commit(&root, fragments.into_iter());
        assert_eq!(read_commit(&laid).unwrap().0, root);
        let take = |laid, number, index| fragment(KIND_COMMIT, laid, 300, page(number), index);
        assert_eq!(take(&laid, 0, 0), Ok(b"first".as_slice()));
        assert_eq!(take(&laid, 900, 1), Ok(b"second".as_slice()));
        assert!(take(&laid, 0, 1).is_err(), "another page");
        assert!(take(&laid, 900, 2).is_err(), "none");
        assert!(fragment(KIND_COMMIT, &laid, 301, page(0), 0).is_err(), "another document");
        for end in 0..laid.len() {
            assert!(take(&laid[..end], 900, 1).is_err(), "{end}");
        }
    }

    #[test]
    fn a_page_comes_back_and_one_of_many_prepared_commits_is_found() {
        let page = PageName { which: Which::Paths, level: 2, number: 70_000 };
        let laid = [lay_page(9, page), b"bytes".to_vec()].concat();
        assert_eq!(fragment(KIND_PAGE, &laid, 9, page, 0), Ok(b"bytes".as_slice()));
        assert!(fragment(KIND_PAGE, &laid, 9, page, 1).is_err());
        assert!(fragment(KIND_DROP, &laid, 9, page, 0).is_err());
        let commit = |document| {
            let root = Root { document, ..Root::default() };
            lay_commit(&root, [(page, document.to_string().as_bytes())].into_iter())
        };
        let xid = assent_ids::Xid::new(1, b"x", b"").unwrap();
        let laid = lay_prepare(&xid, &[("a", &commit(7)), ("b", &commit(300))]);
        assert_eq!(fragment(KIND_PREPARE, &laid, 300, page, 0), Ok(b"300".as_slice()));
        assert_eq!(commit_of(KIND_PREPARE, &laid, 7), Ok(commit(7).as_slice()));
        assert!(fragment(KIND_PREPARE, &laid, 8, page, 0).is_err(), "of another document");
        let (versioning, commit) = (Versioning::Full, commit(300));
        let laid = lay_replace(&Replacing { gone: 7, versioning, name: "a", commit: &commit });
        assert_eq!(fragment(KIND_REPLACE, &laid, 300, page, 0), Ok(b"300".as_slice()));
        assert!(fragment(KIND_REPLACE, &laid, 7, page, 0).is_err(), "of the document that goes");
    }
}
