//! What can go wrong in the store, and what the caller must do.

use std::sync::Arc;

use assent_ids::{Lsn, NodeId, Xid};
use assent_journal::JournalError;
use assent_kind::Kind;
use assent_runs::RunsError;

use crate::{NodeKey, PageName};

/// Why the store refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocsError {
    /// A part beyond its limit. Nothing has been written.
    #[error("{part} of {size}; at most {limit} is taken")]
    Size {
        /// Which part.
        part: &'static str,
        /// How much it is.
        size: u64,
        /// How much is taken.
        limit: u64,
    },
    /// A configured value that cannot work.
    #[error("{name} = {value}; it must be {rule}")]
    Config {
        /// The key.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        rule: &'static str,
    },
    /// A name that no document can have.
    #[error("a document cannot be called {name:?}: a name has 1 to 255 bytes and no control characters")]
    Name {
        /// The name.
        name: String,
    },
    /// No such document.
    #[error("there is no document {name:?}")]
    NoDocument {
        /// The name.
        name: String,
    },
    /// A document of that name is there already.
    #[error("there is a document {name:?} already")]
    Exists {
        /// The name.
        name: String,
    },
    /// No such revision.
    #[error("document {name:?} has no revision {revision}; its newest is {newest}")]
    NoRevision {
        /// The document.
        name: String,
        /// What was asked for.
        revision: u64,
        /// What there is.
        newest: u32,
    },
    /// No such node in this revision.
    #[error("there is no node {key} in revision {revision}")]
    NoNode {
        /// The node.
        key: NodeKey,
        /// The revision that was looked at, or is changed.
        revision: u32,
    },
    /// A change that does not fit the node. Nothing has changed.
    #[error("node {key}: {why}")]
    Unfit {
        /// The node.
        key: NodeKey,
        /// Why.
        why: &'static str,
    },
    /// What a form of JSON has no word for. Nothing was written.
    #[error("{form} cannot say it: node {key}: {why}")]
    Inexpressible {
        /// The form.
        form: &'static str,
        /// The node.
        key: NodeKey,
        /// Why.
        why: &'static str,
    },
    /// An object has a member of that name already.
    #[error("object {key} has a member {name:?} already")]
    Duplicate {
        /// The object.
        key: NodeKey,
        /// The name.
        name: String,
    },
    /// Text that is no JSON.
    #[error("no JSON: {what}")]
    Json {
        /// Where and why.
        what: String,
    },
    /// Text that is no JSONPath.
    #[error("the query, character {at}: {what}")]
    Query {
        /// Which character, from 1.
        at: usize,
        /// What is wrong there.
        what: String,
    },
    /// What JSON is written to did not take it, or what it is read from did not give it.
    #[error("{doing}: {error}")]
    Stream {
        /// Reading or writing.
        doing: &'static str,
        /// As the system says.
        error: String,
    },
    /// A text that is no JSON Pointer.
    #[error("{pointer:?} is no JSON Pointer: {why}")]
    Pointer {
        /// The text.
        pointer: String,
        /// Why.
        why: &'static str,
    },
    /// JSON that is no patch. Nothing has changed.
    #[error("operation {operation} of the patch: {what}")]
    Patch {
        /// Which operation, from 0.
        operation: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A patch that cannot be made to this document. Nothing has changed.
    #[error("operation {operation} of the patch, {op} {pointer:?}: {why}")]
    Unpatched {
        /// Which operation, from 0.
        operation: usize,
        /// What it does.
        op: String,
        /// Where.
        pointer: String,
        /// Why not.
        why: String,
        /// What the caller must do: another document would take it (`Conflict`), or none would (`Invalid`).
        kind: Kind,
    },
    /// A name that no tag can have.
    #[error("a tag cannot be called {tag:?}: a name has 1 to 255 bytes and no control characters")]
    TagName {
        /// The name.
        tag: String,
    },
    /// No such tag.
    #[error("document {name:?} has no tag {tag:?}")]
    NoTag {
        /// The document.
        name: String,
        /// The tag.
        tag: String,
    },
    /// A revision that was seen and is not there any more.
    #[error("revision {revision} of document {name:?} was dropped after it had been seen; the newest is {newest}")]
    Truncated {
        /// The document.
        name: String,
        /// The revision that was seen.
        revision: u32,
        /// What there is.
        newest: u32,
    },
    /// A line of a load that was not taken. What was committed before it stays.
    #[error("line {line}: {error}; {committed} values before it are committed")]
    Line {
        /// Which line, from 1.
        line: u64,
        /// How many values stay.
        committed: u64,
        /// Why.
        error: Box<DocsError>,
    },
    /// Somebody else writes this document.
    #[error("document {name:?} has a writer; another waited {waited_ms} ms for it: try again")]
    Busy {
        /// The document.
        name: String,
        /// How long.
        waited_ms: u64,
    },
    /// What is asked for is not in memory, and who asks does not wait for the disk.
    #[error("a page is not in memory: ask again where the disk may be waited for")]
    NotHeld,
    /// Nobody waits for what was being read ([`crate::Revision::while_wanted`]).
    #[error("given up: it took longer than anybody waits for it")]
    Unwanted,
    /// No branch of that name is known here.
    #[error("branch {xid} is not known here")]
    Unknown {
        /// The branch.
        xid: Box<Xid>,
    },
    /// A branch of that name is known already.
    #[error("branch {xid} is known here already")]
    Known {
        /// The branch.
        xid: Box<Xid>,
    },
    /// Another connection resolves this coordinator's branches.
    #[error("another connection resolves the branches of node {node}")]
    Claimed {
        /// The coordinator's node.
        node: NodeId,
    },
    /// Work on a connection that no branch has started.
    #[error("no branch is started on this connection")]
    NoBranch,
    /// What is asked for waits for the outcome of a branch, or for the disk.
    #[error("whether it is done is not decided yet: ask again")]
    OnItsWay,
    /// The work of a branch had failed; it is rolled back and gone.
    #[error("branch {xid} is rolled back: its work had failed")]
    RolledBack {
        /// The branch.
        xid: Box<Xid>,
    },
    /// What is asked of a branch does not fit its state. Nothing has changed.
    #[error("branch {xid} is {state}: no {verb}")]
    State {
        /// The branch.
        xid: Box<Xid>,
        /// Its state.
        state: &'static str,
        /// What was asked.
        verb: &'static str,
    },
    /// The journal refused; nothing was committed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// It was appended, and whether it is durable is not known until the database is reopened.
    #[error("whether it was committed is not known until the database is reopened: {0}")]
    InDoubt(JournalError),
    /// A branch waits for its outcome, and what it has prepared cannot be read.
    #[error(
        "branch {xid} is prepared at LSN {lsn}, which cannot be read: {what}; nobody knows which documents it holds, so none is written"
    )]
    Unreadable {
        /// The branch.
        xid: Box<Xid>,
        /// Where.
        lsn: Lsn,
        /// What is wrong there.
        what: String,
    },
    /// The index has no room for an entry that the journal has: it becomes visible later.
    #[error("it is committed, and not visible before the index could be written out: {0}")]
    Late(RunsError),
    /// A branch whose only phase could not be told its outcome: it stays prepared until a coordinator does.
    #[error("branch {xid} is prepared and has no outcome: {error}")]
    Left {
        /// The branch.
        xid: Box<Xid>,
        /// Why.
        error: Box<DocsError>,
    },
    /// The index took an entry no more that the journal has.
    #[error("nothing more becomes visible until the database is reopened: {0}")]
    Unpublished(RunsError),
    /// The index refused or failed; it can be built anew from the journal.
    #[error("the index: {0}")]
    Index(#[from] RunsError),
    /// Bytes of a revision are not those that were written. Others may well be read.
    #[error("document {document:?}, revision {revision}{}, LSN {lsn}: {what}", of(page.as_ref()))]
    Damaged {
        /// The document.
        document: Arc<str>,
        /// The revision that was read.
        revision: u32,
        /// The page, if it is one that is damaged.
        page: Option<PageName>,
        /// The journal entry.
        lsn: Lsn,
        /// What is wrong.
        what: String,
    },
    /// A member's path is not there, or has no name: the revision is damaged.
    #[error("revision {revision}: path {path} is a member's, and is not there or has no name")]
    NoPath {
        /// The path's number.
        path: u64,
        /// The revision.
        revision: u32,
    },
    /// A journal entry that this version cannot have written there.
    #[error("the journal entry at LSN {lsn} is no document record of this version: {what}")]
    Record {
        /// The entry.
        lsn: Lsn,
        /// What is wrong.
        what: String,
    },
}

fn of(page: Option<&PageName>) -> String {
    page.map_or_else(String::new, |page| format!(", {page}"))
}

impl DocsError {
    /// What the caller must do.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Size { .. }
            | Self::Config { .. }
            | Self::Name { .. }
            | Self::Unfit { .. }
            | Self::Inexpressible { .. }
            | Self::Duplicate { .. }
            | Self::Json { .. }
            | Self::Query { .. }
            | Self::Patch { .. }
            | Self::TagName { .. }
            | Self::Pointer { .. }
            | Self::NoBranch
            | Self::State { .. } => Kind::Invalid,
            Self::RolledBack { .. } => Kind::RolledBack,
            Self::Unpatched { kind, .. } => *kind,
            Self::Line { error, .. } => error.kind(),
            Self::NoDocument { .. }
            | Self::NoRevision { .. }
            | Self::NoNode { .. }
            | Self::NoTag { .. }
            | Self::Unknown { .. } => Kind::NotFound,
            Self::Exists { .. } | Self::Known { .. } | Self::Claimed { .. } | Self::Truncated { .. } => Kind::Conflict,
            Self::Busy { .. } | Self::NotHeld => Kind::Busy,
            Self::Stream { .. } | Self::OnItsWay | Self::Unwanted => Kind::Unavailable,
            Self::Journal(error) => error.kind(),
            Self::Index(error) => error.kind(),
            Self::InDoubt(_) | Self::Unpublished(_) | Self::Late(_) | Self::Left { .. } => Kind::InDoubt,
            Self::Damaged { .. } | Self::Record { .. } | Self::Unreadable { .. } | Self::NoPath { .. } => Kind::Corrupt,
        }
    }
}

/// One sentence for a size beyond its limit.
pub(crate) const fn within(part: &'static str, size: u64, limit: u64) -> Result<(), DocsError> {
    if size <= limit { Ok(()) } else { Err(DocsError::Size { part, size, limit }) }
}
