//! Importing: a document becomes what a new version of it says, by a small edit; what stays keeps its keys.
//!
//! ```text
//!   object   members by their names
//!   array    equal values in order · equal values elsewhere: moved · in the gaps objects whose first member is the same, then
//!            whatever is of one sort, one by one
//!   value    set where it differs; a container and a value, or an object and an array: one goes, the other comes
//! ```
//! Everything that is paired is looked at again, text by text: a hash pairs, it never says that nothing has changed.
//! It costs a walk over both versions, and for each array a sort of what is between its equal ends.
//!
//! Walk: [`Edit::import`] reads the new version (`sketch`), pairs containers from the top down, and changes what differs.
//! Deliberately absent: a new version that does not fit in memory.

mod content;
mod pair;
mod sketch;

use std::collections::{HashMap, HashSet};
use std::io::Read;

use crate::DocsError;
use crate::align::rising;
use crate::diff::children;
use crate::edit::{At, Edit};
use crate::entry::What;
use crate::link::Hook;
use crate::look::{Look, Text};
use crate::node::{Kind, Node, NodeKey};

use content::Memory;
use pair::{Pair, are_alike};
use sketch::Sketch;

/// What an import did, in nodes; what was inserted or removed counts with all that is below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Found in both versions.
    pub kept: u64,
    /// Of those: strings, numbers, booleans and nulls that are other ones now.
    pub updated: u64,
    /// Of those: in another place among their siblings.
    pub moved: u64,
    /// New.
    pub inserted: u64,
    /// Gone.
    pub removed: u64,
}

impl Edit {
    /// Makes the document what this JSON says, with as few changes as are found.
    ///
    /// # Errors
    /// [`DocsError::Json`], [`DocsError::Size`], also for more memory than [`crate::Config::import_bytes_max`], [`DocsError::Stream`]; as
    /// the journal says where it has no room; as [`Look::find`]. Nothing has changed then.
    pub fn import(&mut self, json: impl Read) -> Result<Imported, DocsError> {
        let sketch = Sketch::read(self, json)?;
        // The sketch cannot know that paths are too many, or that the disk is full: then half of it would be made.
        self.all_or_nothing(|edit| {
            let mut importing =
                Importing { edit, sketch: &sketch, memory: Memory::default(), told: Imported::default() };
            importing.run()?;
            Ok(importing.told)
        })
    }

    /// Puts a node elsewhere among its siblings, behind this one: no path changes.
    fn shift(&mut self, key: NodeKey, parent: NodeKey, left: Option<NodeKey>) -> Result<(), DocsError> {
        let item = self.item(key)?;
        if item.node.left == left {
            return Ok(());
        }
        self.unlink(&item)?;
        let hook = self.behind(parent, left)?;
        self.link(key, hook)?;
        self.note(What::Moved, key);
        Ok(())
    }

    fn behind(&self, parent: NodeKey, left: Option<NodeKey>) -> Result<Hook, DocsError> {
        let right = match left {
            Some(left) => self.item(left)?.node.right,
            None => self.item(parent)?.node.first,
        };
        Ok(Hook { parent, left, right })
    }
}

struct Importing<'a> {
    edit: &'a mut Edit,
    sketch: &'a Sketch,
    memory: Memory,
    told: Imported,
}

impl Importing<'_> {
    fn run(&mut self) -> Result<(), DocsError> {
        let sketch = self.sketch;
        let old = match self.edit.value() {
            Some(old) if are_alike(self.edit.item(old)?.node.kind, sketch.kind(0)) => old,
            old => {
                if let Some(old) = old {
                    self.remove(old)?;
                }
                let key = self.edit.insert_built(At::Last(NodeKey::DOCUMENT), None, |build| sketch.plant(build, 0))?;
                return self.count(key);
            }
        };
        let mut open = vec![(old, 0)];
        while let Some((key, at)) = open.pop() {
            self.told.kept += 1;
            // What is drafted may be much.
            self.edit.make_room()?;
            let kind = self.edit.item(key)?.node.kind;
            if kind.is_container() {
                let pairs = self.pairs(key, kind, at)?;
                self.change(key, &pairs, &mut open)?;
            } else {
                self.set(key, at)?;
            }
        }
        Ok(())
    }

    fn set(&mut self, key: NodeKey, at: usize) -> Result<(), DocsError> {
        let item = self.edit.item(key)?;
        if item.node.kind != self.sketch.kind(at) || item.text() != self.sketch.text(at) {
            self.told.updated += 1;
            self.edit.set(key, self.sketch.value(at))?;
        }
        Ok(())
    }

    /// For each child of the new version, in order, who it was.
    fn pairs(&mut self, key: NodeKey, kind: Kind, at: usize) -> Result<Vec<Pair>, DocsError> {
        let (olds, news) = (children(self.edit, key)?, self.sketch.children(at));
        if kind == Kind::Array {
            return pair::values(self.edit, self.sketch, &mut self.memory, &olds, &news);
        }
        let mut named: HashMap<String, (usize, &Node)> = HashMap::new();
        for (place, node) in olds.iter().enumerate() {
            let name = self.edit.name(node)?;
            named.insert(name.as_ref().map_or("", Text::as_str).to_owned(), (place, node));
        }
        let mut pairs = Vec::with_capacity(news.len());
        for new in news {
            let old = self.sketch.name(new).and_then(|name| named.get(name));
            let old = old.filter(|(_, node)| are_alike(node.kind, self.sketch.kind(new)));
            pairs.push(Pair { old: old.map(|(place, node)| (*place, node.key)), new, stays: false });
        }
        let paired: Vec<(usize, usize)> =
            pairs.iter().enumerate().filter_map(|(at, pair)| Some((at, pair.old?.0))).collect();
        let places: Vec<usize> = paired.iter().map(|(_, place)| *place).collect();
        for run in rising(&places) {
            if let Some(pair) = paired.get(run).and_then(|(at, _)| pairs.get_mut(*at)) {
                pair.stays = true;
            }
        }
        Ok(pairs)
    }

    /// Makes the children of a container those of the new version; what is paired is looked at later.
    fn change(&mut self, parent: NodeKey, pairs: &[Pair], open: &mut Vec<(NodeKey, usize)>) -> Result<(), DocsError> {
        let kept: HashSet<NodeKey> = pairs.iter().filter_map(|pair| pair.old.map(|(_, key)| key)).collect();
        for node in children(self.edit, parent)? {
            if !kept.contains(&node.key) {
                self.remove(node.key)?;
            }
        }
        let mut left = None;
        for Pair { old, new, stays } in pairs {
            let key = match old {
                Some((_, key)) => {
                    if !stays {
                        self.told.moved += 1;
                        self.edit.shift(*key, parent, left)?;
                    }
                    open.push((*key, *new));
                    *key
                }
                None => self.insert(parent, left, *new)?,
            };
            left = Some(key);
        }
        Ok(())
    }

    fn insert(&mut self, parent: NodeKey, left: Option<NodeKey>, new: usize) -> Result<NodeKey, DocsError> {
        let sketch = self.sketch;
        self.edit.make_room()?;
        // No member of that name is there: the sketch has each once, and who had it and is not it is removed.
        let key = self.edit.built(parent, |build| sketch.plant(build, new))?;
        let hook = self.edit.behind(parent, left)?;
        self.edit.link(key, hook)?;
        self.edit.note(What::Inserted, key);
        self.count(key)?;
        Ok(key)
    }

    fn count(&mut self, key: NodeKey) -> Result<(), DocsError> {
        self.told.inserted += 1 + self.edit.item(key)?.node.descendants;
        Ok(())
    }

    fn remove(&mut self, key: NodeKey) -> Result<(), DocsError> {
        self.told.removed += 1 + self.edit.item(key)?.node.descendants;
        self.edit.remove(key)
    }
}
