//! An edit: changes of a document's newest revision that become the next one, all or none.
//!
//! Walk: drafts of nodes and paths lie over the revision · [`Edit::insert`], [`Edit::set`], [`Edit::remove`] change them, and what
//! is linked and counted above them (`link`); whole subtrees are built apart and hung in one go (`build`) · [`Edit::commit_begin`]
//! lays what has changed, [`Pending::wait`] makes it durable and visible · dropped, it never was.
//! Deliberately absent: parsing.

mod drafts;
mod way;

use std::sync::Arc;

use assent_journal::ENTRY_BYTES_MAX;
use assent_kind::Kind as Class;

pub(crate) use self::drafts::Drafts;
pub(crate) use self::way::Way;
use crate::config::MESSAGE_BYTES_MAX;
use crate::database::drop_under;
use crate::document::{Doc, Seat};
use crate::entry::{CHANGES_MAX, Change, Root, What};
use crate::error::within;
use crate::link::{Hook, rehashed};
use crate::look::{Item, Look, Named, Text};
use crate::node::{Kind, Node, NodeKey, field};
use crate::once::Once;
use crate::page::{Page, SLOTS};
use crate::path::PathId;
use crate::paths::Paths;
use crate::record::length;
use crate::store::{Reading, Store};
use crate::trie::{Last, Tree, Which};
use crate::{DocsError, Versioning};

#[cfg(doc)]
use crate::Pending;

/// A text of so many bytes is the last one of its page.
pub(crate) const TEXT_BYTES_LONG: usize = 64 << 10;
/// The texts of a page's nodes when a long one comes: a strategy writes all of a page in one entry of the journal. Short ones may come later.
const PAGE_TEXTS_BYTES_MAX: u64 = 240 << 20;
/// What a record has beside its text, at most.
const RECORD_BYTES: u64 = 128;
const _: () = assert!(
    PAGE_TEXTS_BYTES_MAX + SLOTS * (TEXT_BYTES_LONG as u64 + RECORD_BYTES) < ENTRY_BYTES_MAX,
    "all of a page fits an entry, whatever short texts come behind the long ones"
);

/// Where something is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Before all children of this one.
    First(NodeKey),
    /// Behind all children of this one; [`NodeKey::DOCUMENT`] for the value of an empty document.
    Last(NodeKey),
    /// As the left sibling of this one.
    Before(NodeKey),
    /// As the right sibling of this one.
    After(NodeKey),
}

/// One value; a container is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// `{}`
    Object,
    /// `[]`
    Array,
    /// A text.
    String(&'a str),
    /// A number, by its digits as JSON writes them. They are kept exactly.
    Number(&'a str),
    /// True or false.
    Bool(bool),
    /// Null.
    Null,
}

impl<'a> Value<'a> {
    pub(crate) const fn parts(self) -> (Kind, &'a str) {
        match self {
            Self::Object => (Kind::Object, ""),
            Self::Array => (Kind::Array, ""),
            Self::String(text) => (Kind::String, text),
            Self::Number(digits) => (Kind::Number, digits),
            Self::Bool(true) => (Kind::True, ""),
            Self::Bool(false) => (Kind::False, ""),
            Self::Null => (Kind::Null, ""),
        }
    }
}

/// A node as it will be, and which of its fields have changed since the tree below.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) item: Item,
    pub(crate) mask: u16,
    pub(crate) is_gone: bool,
}

/// A change of a document under way. It holds the writer's seat. Dropped, it has changed nothing.
#[derive(Debug)]
pub struct Edit {
    pub(crate) store: Arc<Store>,
    pub(crate) seat: Seat,
    /// That of the document that goes when this one is committed.
    pub(crate) gone: Option<Seat>,
    pub(crate) base: Arc<Root>,
    pub(crate) value: u64,
    pub(crate) next_node: u64,
    /// Nodes from here on are only in memory.
    pub(crate) unlaid_from: u64,
    pub(crate) nodes: Tree,
    pub(crate) drafts: Drafts,
    /// Bytes of texts and names that came into the drafts.
    pub(crate) text_bytes: u64,
    pub(crate) paths: Paths,
    pub(crate) changes: Vec<Change>,
    pub(crate) is_listed: bool,
    /// Why a change was left half made: then nothing of it can be committed.
    pub(crate) failed: Option<DocsError>,
    /// Pages of nodes and of paths, as the trees below the drafts have them.
    looked: [Last; 2],
}

impl Edit {
    /// Drops the document instead, history and all: nobody's commit comes between what was read here and the drop.
    ///
    /// # Errors
    /// As [`Database::drop_document`](crate::Database::drop_document).
    pub fn drop_document(self) -> Result<(), DocsError> {
        let Self { store, seat, gone, .. } = self;
        drop_under(&store, gone.unwrap_or(seat), None)
    }

    /// The same for a request that is done with it.
    ///
    /// # Errors
    /// [`DocsError::Size`] for a note that a commit could not carry either. As [`Edit::drop_document`].
    pub fn drop_once(self, once: Once) -> Result<(), DocsError> {
        // Before it is durable: a row of the index that is too long would be refused at each open.
        within("the note of a request", length(once.note.as_bytes()), MESSAGE_BYTES_MAX)?;
        let Self { store, seat, gone, .. } = self;
        drop_under(&store, gone.unwrap_or(seat), Some(once))
    }

    /// Begins a document in the place of this one, under its name: its first revision is what is put into what this gives. What is there
    /// goes at that commit and in its one entry, history, tags and all; until then it is as it was, and nobody else writes it.
    ///
    /// # Errors
    /// [`DocsError::Config`] for a window beyond its limit.
    pub fn anew(self, versioning: Versioning) -> Result<Self, DocsError> {
        versioning.check()?;
        let Self { store, seat, gone, .. } = self;
        let gone = gone.unwrap_or(seat);
        let document = store.index.next_document();
        let root = Root { epoch: store.next_epoch(), ..Root::empty(document) };
        // Nobody else knows it before it is visible, so its seat is free.
        let seat = Seat::take(&store, &Arc::new(Doc::new(document, Arc::clone(&gone.0.name), versioning, root)))?;
        Ok(Self { gone: Some(gone), ..Self::begin(store, seat) })
    }

    pub(crate) fn begin(store: Arc<Store>, seat: Seat) -> Self {
        let base = seat.0.head.get();
        Self {
            value: base.value,
            next_node: base.next_node,
            unlaid_from: base.next_node,
            nodes: base.nodes.clone(),
            drafts: Drafts::default(),
            text_bytes: 0,
            paths: Paths::over(&base),
            changes: Vec::new(),
            is_listed: true,
            failed: None,
            looked: Default::default(),
            store,
            seat,
            gone: None,
            base,
        }
    }

    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading { store: &self.store, doc: &self.seat.0, revision: self.base.revision }
    }

    /// Makes a change. One that fails for what is stored, and not for what was asked, may be half made.
    pub(crate) fn whole<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T, DocsError>) -> Result<T, DocsError> {
        let changed = change(self);
        if let Err(error) = &changed
            && !matches!(error, DocsError::Stream { .. })
            && matches!(error.kind(), Class::Corrupt | Class::Unavailable | Class::Closed | Class::Denied)
        {
            self.failed.get_or_insert_with(|| error.clone());
        }
        changed
    }

    /// Makes several changes, all or none: what fails has changed nothing.
    pub(crate) fn all_or_nothing<T>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<T, DocsError>,
    ) -> Result<T, DocsError> {
        let (drafts, paths) = (self.drafts.clone(), self.paths.clone());
        let (nodes, changes, failed) = (self.nodes.clone(), self.changes.clone(), self.failed.clone());
        let Self { value, next_node, unlaid_from, is_listed, text_bytes, .. } = *self;
        let changed = change(self);
        if changed.is_err() {
            (self.drafts, self.paths, self.nodes, self.changes, self.failed) = (drafts, paths, nodes, changes, failed);
            (self.value, self.next_node, self.unlaid_from, self.is_listed) = (value, next_node, unlaid_from, is_listed);
            self.text_bytes = text_bytes;
        }
        changed
    }

    /// Puts a new value somewhere, and gives its key. In an object it needs a name, elsewhere it has none.
    ///
    /// # Errors
    /// [`DocsError::NoNode`], [`DocsError::Unfit`], [`DocsError::Duplicate`], [`DocsError::Size`]: nothing has changed then.
    pub fn insert(&mut self, at: At, name: Option<&str>, value: Value<'_>) -> Result<NodeKey, DocsError> {
        self.insert_built(at, name, |build| match value {
            Value::Object | Value::Array => {
                build.open(value, name)?;
                build.close()
            }
            value => build.leaf(value, name),
        })
    }

    /// Gives a node that is no container another value that is none. Its key stays, and so does its page: beside many long texts it
    /// has no room for one more.
    ///
    /// # Errors
    /// As [`Edit::insert`]; [`DocsError::Size`] also where the texts of neighbouring nodes leave no room.
    pub fn set(&mut self, key: NodeKey, value: Value<'_>) -> Result<(), DocsError> {
        self.whole(|edit| {
            edit.make_room()?;
            let item = edit.item(key)?;
            let name = edit.name(&item.node)?;
            edit.set_value(item, name.as_ref(), value)
        })
    }

    /// The same of a node that was just looked at, with its name.
    pub(crate) fn set_item(&mut self, item: Item, name: Option<&Text>, value: Value<'_>) -> Result<(), DocsError> {
        self.whole(|edit| {
            edit.make_room()?;
            edit.set_value(item, name, value)
        })
    }

    fn set_value(&mut self, before: Item, name: Option<&Text>, value: Value<'_>) -> Result<(), DocsError> {
        let (key, (kind, text)) = (before.node.key, value.parts());
        if before.node.kind.is_container() || kind.is_container() {
            return Err(DocsError::Unfit { key, why: "a container is not set, it is replaced" });
        }
        self.check_text(kind, text, None)?;
        if before.node.kind == kind && before.text() == text {
            return Ok(());
        }
        self.check_room(&before, text)?;
        let old = before.hash(name);
        let draft = self.draft_of(before)?;
        draft.mask |= field::TEXT;
        if draft.item.node.kind != kind {
            // A patch cannot take a text away.
            draft.mask |= field::WHOLE;
        }
        draft.item.node.kind = kind;
        draft.item.text = Text::own(text);
        let (node, new) = (draft.item.node, draft.item.hash(name));
        self.text_bytes = self.text_bytes.saturating_add(length(text.as_bytes()));
        self.bubble(node.parent, rehashed(&node, old, new))?;
        self.note(What::Set, key);
        Ok(())
    }

    /// Takes a node away, with all that is below it. Their keys are never used again.
    ///
    /// # Errors
    /// [`DocsError::NoNode`].
    pub fn remove(&mut self, key: NodeKey) -> Result<(), DocsError> {
        self.whole(|edit| {
            edit.make_room()?;
            let item = edit.item(key)?;
            edit.unlink(&item)?;
            edit.forget(key)?;
            edit.note(What::Removed, key);
            Ok(())
        })
    }

    /// Drafts that a node and all below it are gone, one after the other, and lays that if it is much.
    pub(crate) fn forget(&mut self, key: NodeKey) -> Result<(), DocsError> {
        let (mut next, mut way) = (Some(key), Way::of(key));
        while let Some(at) = next {
            let item = self.item(at)?;
            let node = item.node;
            next = way.next(node);
            self.count_path(node.path, -1)?;
            // What was never laid needs no word that it is gone.
            let mask = if at.0 >= self.unlaid_from { 0 } else { field::WHOLE };
            let draft = self.draft_of(item)?;
            (draft.is_gone, draft.mask) = (true, mask);
            // Nobody reads it again, and it may hold a page.
            draft.item.text = Text::own("");
            self.make_room_amid()?;
        }
        Ok(())
    }

    /// Lays what is in memory, if it is much, in the middle of a change: where that is refused, nothing of the edit can be committed.
    pub(crate) fn make_room_amid(&mut self) -> Result<(), DocsError> {
        let made = self.make_room();
        self.amid(made)
    }

    /// What was made in the middle of a change: where it was refused, the change is left half made.
    pub(crate) fn amid<T>(&mut self, made: Result<T, DocsError>) -> Result<T, DocsError> {
        if let Err(error) = &made {
            self.failed.get_or_insert_with(|| error.clone());
        }
        made
    }

    /// The next node in document order, within the subtree of `top`.
    pub(crate) fn after(&self, node: &Node, top: NodeKey) -> Result<Option<NodeKey>, DocsError> {
        if node.first.is_some() {
            return Ok(node.first);
        }
        let mut node = *node;
        while node.key != top {
            if let Some(right) = node.right {
                return Ok(Some(right));
            }
            node = self.item(node.parent)?.node;
        }
        Ok(None)
    }

    /// Where a new node would hang; refuses what does not fit.
    pub(crate) fn hook(&self, at: At, name: Option<&str>) -> Result<Hook, DocsError> {
        let hook = self.place(at)?;
        self.fits(hook, name, None)?;
        Ok(hook)
    }

    /// The same, whatever it is.
    pub(crate) fn place(&self, at: At) -> Result<Hook, DocsError> {
        Ok(match at {
            At::First(NodeKey::DOCUMENT) | At::Last(NodeKey::DOCUMENT) => {
                if self.value != 0 {
                    return Err(DocsError::Unfit { key: NodeKey::DOCUMENT, why: "the document has a value already" });
                }
                Hook { parent: NodeKey::DOCUMENT, left: None, right: None }
            }
            At::First(parent) => Hook { parent, left: None, right: self.item(parent)?.node.first },
            At::Last(parent) => Hook { parent, left: self.item(parent)?.node.last, right: None },
            At::Before(sibling) => {
                let node = self.item(sibling)?.node;
                Hook { parent: node.parent, left: node.left, right: Some(sibling) }
            }
            At::After(sibling) => {
                let node = self.item(sibling)?.node;
                Hook { parent: node.parent, left: Some(sibling), right: node.right }
            }
        })
    }

    /// Refuses what cannot hang there. A member may have the name of the one that it is itself.
    pub(crate) fn fits(&self, hook: Hook, name: Option<&str>, itself: Option<NodeKey>) -> Result<(), DocsError> {
        let Hook { parent: key, left, right } = hook;
        let unfit = |why| Err(DocsError::Unfit { key, why });
        if key == NodeKey::DOCUMENT {
            return match (left.or(right), name) {
                (Some(_), _) => unfit("the document has one value, and that has no siblings"),
                (None, Some(_)) => unfit("the document's value has no name"),
                (None, None) => Ok(()),
            };
        }
        match (self.item(key)?.node.kind, name) {
            (Kind::Object, Some(name)) => match self.member(key, name)? {
                Some(member) if Some(member) != itself => Err(DocsError::Duplicate { key, name: name.to_owned() }),
                _ => Ok(()),
            },
            (Kind::Object, None) => unfit("what is put into an object needs a name"),
            (Kind::Array, None) => Ok(()),
            (Kind::Array, Some(_)) => unfit("what is put into an array has no name"),
            _ => unfit("it is no container"),
        }
    }

    pub(crate) fn check_text(&self, kind: Kind, text: &str, name: Option<&str>) -> Result<(), DocsError> {
        let limit = self.store.config.text_bytes_max.into();
        let size = |text: &str| u64::try_from(text.len()).unwrap_or(u64::MAX);
        within("a text", size(text), limit)?;
        within("a member's name", name.map_or(0, size), limit)?;
        if kind == Kind::Number && !is_number(text) {
            return Err(DocsError::Json { what: format!("{:?} is no number", text.get(..40).unwrap_or(text)) });
        }
        Ok(())
    }

    /// Refuses a long text that is set where texts are long already: the node's page would be more than an entry of the journal takes, and
    /// could not be written any more. A shorter one is always taken.
    fn check_room(&self, before: &Item, text: &str) -> Result<(), DocsError> {
        let more = length(text.as_bytes()).saturating_sub(length(before.text.bytes()));
        if text.len() < TEXT_BYTES_LONG || more == 0 {
            return Ok(());
        }
        let (page, _) = before.node.key.page();
        within("the texts of neighbouring nodes", self.page_texts(page, more)?, PAGE_TEXTS_BYTES_MAX)
    }

    /// The texts of a page of nodes when so many bytes come; where there cannot be too many, at most.
    fn page_texts(&self, number: u64, more: u64) -> Result<u64, DocsError> {
        let laid = self.page(number)?.map_or(0, |page| page.bytes_max());
        // Few pages are so large that their nodes are looked at.
        let most = laid.saturating_add(self.text_bytes).saturating_add(more);
        if most <= PAGE_TEXTS_BYTES_MAX {
            return Ok(most);
        }
        let mut texts = more;
        for key in number * SLOTS..(number + 1) * SLOTS {
            let item = self.find(NodeKey(key))?;
            texts = texts.saturating_add(item.map_or(0, |item| length(item.text.bytes())));
        }
        Ok(texts)
    }

    /// The page of nodes with this number, as it is below the drafts.
    fn page(&self, number: u64) -> Result<Option<Arc<Page>>, DocsError> {
        let [looked, _] = &self.looked;
        looked.page(&self.nodes, number, || self.reading().leaf(&self.nodes, Which::Nodes, number))
    }

    /// The path one step behind another.
    pub(crate) fn step(&mut self, before: PathId, name: Option<&str>) -> Result<PathId, DocsError> {
        let Self { store, seat, base, paths, text_bytes, .. } = self;
        let next = paths.next;
        let path = paths.step(&Reading { store, doc: &seat.0, revision: base.revision }, before, name)?;
        if path == next {
            *text_bytes = text_bytes.saturating_add(length(name.unwrap_or_default().as_bytes()));
        }
        Ok(path)
    }

    pub(crate) fn count_path(&mut self, path: PathId, delta: i64) -> Result<(), DocsError> {
        let Self { store, seat, base, paths, .. } = self;
        paths.count(&Reading { store, doc: &seat.0, revision: base.revision }, path, delta)
    }

    /// The key of a new node. Behind a long text a new page begins: a page is read and written as a whole, and many of them in
    /// one would be more than an entry of the journal takes. It begins before the text where others were set to long ones.
    pub(crate) fn new_key(&mut self, text: &str) -> Result<NodeKey, DocsError> {
        let (mut key, is_long) = (self.next_node, text.len() >= TEXT_BYTES_LONG);
        let behind = |key: u64| (key / SLOTS).saturating_add(1).saturating_mul(SLOTS);
        if is_long && self.page_texts(key / SLOTS, length(text.as_bytes()))? > PAGE_TEXTS_BYTES_MAX {
            key = behind(key);
        }
        within("nodes", key, NodeKey::END - SLOTS)?;
        self.next_node = if is_long { behind(key) } else { key + 1 };
        Ok(NodeKey(key))
    }

    /// The draft of a node, made of what is there.
    pub(crate) fn draft(&mut self, key: NodeKey) -> Result<&mut Draft, DocsError> {
        let item = if self.drafts.get(key.0).is_none() { Some(self.item(key)?) } else { None };
        self.drafted(key, item)
    }

    /// The same of what was just looked at.
    pub(crate) fn draft_of(&mut self, item: Item) -> Result<&mut Draft, DocsError> {
        let key = item.node.key;
        let item = self.drafts.get(key.0).is_none().then_some(item);
        self.drafted(key, item)
    }

    fn drafted(&mut self, key: NodeKey, new: Option<Item>) -> Result<&mut Draft, DocsError> {
        if let Some(item) = new {
            self.drafts.insert(Draft { item, mask: 0, is_gone: false });
        }
        self.drafts.get_mut(key.0).ok_or(DocsError::NoNode { key, revision: self.base.revision })
    }

    pub(crate) fn change(&mut self, key: NodeKey, mask: u16, change: impl FnOnce(&mut Node)) -> Result<(), DocsError> {
        let draft = self.draft(key)?;
        change(&mut draft.item.node);
        draft.mask |= mask;
        Ok(())
    }

    pub(crate) fn note(&mut self, what: What, key: NodeKey) {
        let change = Change { what, node: key.0 };
        if self.changes.len() >= CHANGES_MAX {
            (self.is_listed, self.changes) = (false, Vec::new());
        } else if self.is_listed && self.changes.last() != Some(&change) {
            self.changes.push(change);
        }
    }
}

/// Whether these are a number as RFC 8259 writes them.
pub(crate) fn is_number(text: &str) -> bool {
    let digits = |text: &str| -> usize { text.bytes().take_while(u8::is_ascii_digit).count() };
    let rest = text.strip_prefix('-').unwrap_or(text);
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest.starts_with('0')) {
        return false;
    }
    let mut rest = rest.get(whole..).unwrap_or_default();
    if let Some(fraction) = rest.strip_prefix('.') {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = fraction.get(count..).unwrap_or_default();
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        return !exponent.is_empty() && digits(exponent) == exponent.len();
    }
    rest.is_empty()
}

impl Look for Edit {
    fn value(&self) -> Option<NodeKey> {
        (self.value != 0).then_some(NodeKey(self.value))
    }

    fn revision(&self) -> u32 {
        self.base.revision
    }

    fn find(&self, key: NodeKey) -> Result<Option<Item>, DocsError> {
        match self.drafts.get(key.0) {
            Some(draft) => Ok((!draft.is_gone).then(|| draft.item.clone())),
            None => self.reading().item_of(self.page(key.0 / SLOTS)?, key),
        }
    }

    fn path(&self, path: PathId) -> Result<Option<Named>, DocsError> {
        if let Some(draft) = self.paths.drafts.get(&path) {
            return Ok(Some(draft.named.clone()));
        }
        let ([_, looked], tree, number) = (&self.looked, &self.paths.tree, path / SLOTS);
        let page = looked.page(tree, number, || self.reading().leaf(tree, Which::Paths, number))?;
        self.reading().path_of(page, path)
    }
}

#[cfg(test)]
mod tests {
    use super::is_number;

    #[test]
    fn numbers_are_those_of_json() {
        for fine in ["0", "-0", "1", "-12", "1.0", "0.10", "1e5", "1E+5", "1.5e-300", "123456789012345678901234567890"]
        {
            assert!(is_number(fine), "{fine}");
        }
        for wrong in ["", "-", "01", "1.", ".5", "1e", "1e+", "+1", "NaN", "Infinity", "1 ", "0x1", "1_0", "--1"] {
            assert!(!is_number(wrong), "{wrong}");
        }
    }
}
