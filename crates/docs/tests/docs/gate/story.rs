//! What is done to a document, what it may be then, and what it is as an outsider sees it.

use std::collections::BTreeMap;

use assent_docs::{Database, Look, Value};
use assent_ids::Xid;

use crate::tree::{Tree, read};

/// A document has this much: its items' numbers, each with how often its digits are repeated. So a red state can be read.
pub(super) type Content = BTreeMap<u64, (u64, usize)>;

/// What is done to a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Commit(Content),
    /// Another document comes in its place, with this.
    Replace(Content),
    /// Revisions behind this one are dropped.
    Truncate(usize),
    /// By a branch.
    Prepare(u64, Content),
    /// The branch's outcome.
    End(bool),
    /// A tag is put to a revision, or taken away.
    Tag(u64, Option<usize>),
}

/// A document: its revisions, and the one that a branch has prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) revisions: Vec<Content>,
    pub(super) prepared: Option<(u64, Content)>,
    pub(super) tags: BTreeMap<u64, usize>,
}

impl State {
    pub(super) fn after(mut self, op: &Op) -> State {
        match op {
            Op::Commit(content) => self.revisions.push(content.clone()),
            Op::Replace(content) => self = State { revisions: vec![content.clone()], ..State::default() },
            Op::Truncate(to) => {
                self.revisions.truncate(*to);
                self.tags.retain(|_, revision| *revision <= *to);
            }
            Op::Tag(tag, Some(revision)) => _ = self.tags.insert(*tag, *revision),
            Op::Tag(tag, None) => _ = self.tags.remove(tag),
            Op::Prepare(branch, content) => self.prepared = Some((*branch, content.clone())),
            Op::End(is_commit) => {
                let prepared = self.prepared.take();
                self.revisions.extend(prepared.filter(|_| *is_commit).map(|(_, content)| content));
            }
        }
        self
    }

    /// All that an outsider sees of it.
    pub(super) fn seen(&self) -> Found {
        let holder = self.prepared.as_ref().map(|(branch, _)| *branch);
        Found { revisions: self.revisions.clone(), holder, tags: self.tags.clone() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fact {
    Made(u64),
    Dropped(u64),
    /// A document as an open found it: what was done before does not count any more.
    Found(u64, State),
    /// What is done to a document, with a number that grows.
    Did(u64, u64, Op),
    /// It did nothing: nothing had changed.
    Void(u64, u64),
    /// Everything up to that number is done. A reader that saw it acknowledges it as much as its writer does.
    Done(u64, u64),
    /// A checkpoint at a place of the journal.
    Checkpoint(u64),
}

pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

pub(super) fn name(document: u64) -> String {
    format!("doc {document}")
}

pub(super) fn number(name: &str) -> Result<u64, String> {
    Ok(name.strip_prefix("doc ").and_then(|number| number.parse().ok()).ok_or("a name of nobody")?)
}

pub(super) fn xid(branch: u64) -> Xid {
    Xid::new(1, &branch.to_be_bytes(), b"docs").unwrap()
}

pub(super) fn branch(xid: &Xid) -> u64 {
    u64::from_be_bytes(xid.gtrid().try_into().unwrap())
}

/// What a revision has; it is held against itself.
pub(super) fn content(look: &impl Look) -> Result<Content, String> {
    let Some(tree) = read(look) else { return Ok(Content::new()) };
    let item = |item: &Tree| {
        let Value::Number(digits) = item.value() else { return Err("an item that nobody wrote".to_owned()) };
        let (word, times) = (&digits[..3], digits.len() / 3);
        if word.repeat(times) != digits {
            return Err(format!("a number that nobody wrote: {digits}"));
        }
        Ok((item.key.0, (word.parse().map_err(text)?, times)))
    };
    tree.children().iter().map(item).collect()
}

/// A document as an outsider sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) revisions: Vec<Content>,
    /// The branch that holds it.
    pub(super) holder: Option<u64>,
    pub(super) tags: BTreeMap<u64, usize>,
}

/// The documents as they are.
pub(super) fn found(db: &Database) -> Result<BTreeMap<u64, Found>, String> {
    let mut all = BTreeMap::new();
    for name in db.names(None, usize::MAX).map_err(text)? {
        let doc = db.document(&name).map_err(text)?;
        let revisions = 1..=doc.latest().number();
        let read = |revision| {
            let revision = doc.at(revision).map_err(text)?;
            revision.verify().map_err(text)?;
            content(&revision)
        };
        let told = doc.history(0..=u32::MAX, usize::MAX).map_err(text)?;
        if told.len() != revisions.clone().count() {
            return Err(format!("{} revisions in the history of {name}", told.len()));
        }
        doc.verify().map_err(text)?;
        let revisions = revisions.map(read).collect::<Result<Vec<_>, String>>()?;
        let mut tags = BTreeMap::new();
        for (tag, revision) in doc.tags(None, usize::MAX).map_err(text)? {
            tags.insert(tag.parse().map_err(text)?, revision as usize);
        }
        all.insert(number(&name)?, Found { revisions, holder: None, tags });
    }
    for in_doubt in db.in_doubt() {
        for (name, revision) in &in_doubt.documents {
            let Found { revisions, holder, .. } =
                all.get_mut(&number(name)?).ok_or("a branch holds what is not there")?;
            if holder.is_some() || revisions.len() + 1 != *revision as usize {
                return Err(format!("{in_doubt:?} holds a document of {} revisions", revisions.len()));
            }
            *holder = Some(branch(&in_doubt.xid));
        }
    }
    Ok(all)
}

/// A document as it was found, and all that was done to it since.
pub(super) fn story(attempted: &[Fact], document: u64) -> (State, Vec<(u64, &Op)>) {
    let (mut state, mut ops) = (State::default(), Vec::new());
    for fact in attempted {
        match fact {
            Fact::Found(of, found) if *of == document => (state, ops) = (found.clone(), Vec::new()),
            Fact::Did(of, serial, op) if *of == document => ops.push((*serial, op)),
            Fact::Void(of, serial) if *of == document => ops.retain(|(of, _)| of != serial),
            _ => {}
        }
    }
    (state, ops)
}
