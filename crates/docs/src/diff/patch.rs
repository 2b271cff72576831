//! A diff as a JSON Patch (RFC 6902): few operations, and of an array only what changed in it.
//!
//! ```text
//!   1  what is gone is removed; what something else stands in the place of is replaced
//!   2  what is elsewhere, or has another name, is moved, containers before what they contain; then values are replaced
//!   3  what is new is added, of neighbours the left one first
//! ```
//! Each pointer is that of the moment ([`Work`]). A node cannot be moved if it was in what is removed, is in what is new, or goes
//! where somebody still is: it is removed in 1 and added in 3, with all that is below it then.
//!
//! Walk: [`Diff::patch`] · [`Patching::settle`] finds who cannot be moved · [`DiffPatch::write`].
//! Deliberately absent: the order of the members of objects, which JSON Patch has no word for, and tests of values.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;

use crate::diff::judge::same_name;
use crate::diff::work::Work;
use crate::diff::{Diff, Difference, level};
use crate::look::{Look, Text};
use crate::node::{Kind, NodeKey};
use crate::revision::Revision;
use crate::serialise::quoted;
use crate::{DocsError, Form};

/// So many rounds find who cannot be moved; after that nobody is.
const ROUNDS_MAX: u32 = 16;

/// One operation. Its value is a node of the new revision, with all that is below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffOp {
    /// `remove`
    Remove {
        /// A JSON Pointer, as all here.
        path: String,
    },
    /// `add`
    Add {
        /// Where.
        path: String,
        /// What.
        value: NodeKey,
    },
    /// `replace`
    Replace {
        /// Where.
        path: String,
        /// With what.
        value: NodeKey,
    },
    /// `move`
    Move {
        /// From where.
        from: String,
        /// To where, once it is not there any more.
        path: String,
    },
}

/// A JSON Patch: applied to the old revision it gives the new one.
#[derive(Clone, Debug)]
pub struct DiffPatch {
    ops: Vec<DiffOp>,
    new: Revision,
}

impl DiffPatch {
    /// The operations, in their order.
    #[must_use]
    pub fn ops(&self) -> &[DiffOp] {
        &self.ops
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// [`DocsError::Stream`]; as [`Look::find`].
    pub fn write(&self, out: &mut impl Write) -> Result<(), DocsError> {
        let stream = |error: std::io::Error| DocsError::Stream { doing: "writing a patch", error: error.to_string() };
        for (at, op) in self.ops.iter().enumerate() {
            let (name, from, path, value) = match op {
                DiffOp::Remove { path } => ("remove", None, path, None),
                DiffOp::Add { path, value } => ("add", None, path, Some(*value)),
                DiffOp::Replace { path, value } => ("replace", None, path, Some(*value)),
                DiffOp::Move { from, path } => ("move", Some(from), path, None),
            };
            let start = if at == 0 { "[" } else { "," };
            let from = from.map_or_else(String::new, |from| format!(",\"from\":{}", quoted(from)));
            let path = quoted(path);
            write!(out, "{start}{{\"op\":\"{name}\"{from},\"path\":{path}").map_err(stream)?;
            if let Some(value) = value {
                out.write_all(b",\"value\":").map_err(stream)?;
                Form { start: Some(value), ..Form::default() }.write(&self.new, out)?;
            }
            out.write_all(b"}").map_err(stream)?;
        }
        out.write_all(if self.ops.is_empty() { b"[]" } else { b"]" }).map_err(stream)
    }

    /// As a text.
    ///
    /// # Errors
    /// As [`DiffPatch::write`].
    pub fn text(&self) -> Result<String, DocsError> {
        let mut out = Vec::new();
        self.write(&mut out)?;
        // Every part of it was one.
        Ok(String::from_utf8(out).unwrap_or_default())
    }
}

impl Diff {
    /// As a JSON Patch (RFC 6902).
    ///
    /// # Errors
    /// [`DocsError::Inexpressible`] if the new revision has no value, or only a part was compared; as [`Look::find`].
    pub fn patch(&self) -> Result<DiffPatch, DocsError> {
        const FORM: &str = "a JSON patch";
        self.whole(FORM)?;
        if let (Some(key), None) = (self.old.value(), self.new.value()) {
            let why = "the new revision has no value, and a document of JSON has one";
            return Err(DocsError::Inexpressible { form: FORM, key, why });
        }
        let mut patching = Patching::of(self)?;
        patching.settle()?;
        patching.remove()?;
        patching.shift()?;
        patching.update()?;
        patching.add()?;
        Ok(DiffPatch { ops: patching.ops, new: self.new.clone() })
    }
}

/// A patch that is being made.
struct Patching<'d> {
    diff: &'d Diff,
    work: Work<'d>,
    ops: Vec<DiffOp>,
    /// Who has another pointer for what became of itself: the containers that it was and is in.
    shifts: BTreeMap<NodeKey, (NodeKey, NodeKey)>,
    /// Who of them is removed and added.
    afresh: BTreeSet<NodeKey>,
    /// Who is where it will be, beside those who never left.
    placed: BTreeSet<NodeKey>,
}

impl<'d> Patching<'d> {
    fn of(diff: &'d Diff) -> Result<Self, DocsError> {
        let mut shifts = BTreeMap::new();
        for difference in &diff.differences {
            match *difference {
                Difference::Renamed { key } => {
                    let parent = diff.new.item(key)?.node.parent;
                    shifts.insert(key, (parent, parent));
                }
                Difference::Moved { key, from, to } => {
                    let (a, b) = (diff.old.item(key)?.node, diff.new.item(key)?.node);
                    let is_member = diff.new.name(&b)?.is_some();
                    // Members of an object have no order that a pointer could tell.
                    if from.parent != to.parent || !is_member || !same_name(&diff.old, &a, &diff.new, &b)? {
                        shifts.insert(key, (from.parent, to.parent));
                    }
                }
                _ => {}
            }
        }
        let (afresh, placed) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { diff, work: Work::of(&diff.old), ops: Vec::new(), shifts, afresh, placed })
    }

    /// Finds who cannot be moved. Who cannot takes along what was or is below.
    fn settle(&mut self) -> Result<(), DocsError> {
        let mut left = HashMap::new();
        for (key, (parent, _)) in &self.shifts {
            if let Some(name) = self.diff.old.name(&self.diff.old.item(*key)?.node)? {
                left.insert((*parent, name.as_str().to_owned()), *key);
            }
        }
        for _ in 0..ROUNDS_MAX {
            let known = self.afresh.len();
            for (key, (_, to)) in &self.shifts {
                if self.afresh.contains(key) {
                    continue;
                }
                let name = self.name(*key)?;
                let there = name.and_then(|name| left.get(&(*to, name.as_str().to_owned())));
                // Of two that change places one can be moved once the other is gone.
                let is_taken = there.is_some_and(|there| there != key && !self.afresh.contains(there));
                if is_taken || self.was_within(*key)? || self.is_within(*key)? {
                    self.afresh.insert(*key);
                }
            }
            if self.afresh.len() == known {
                return Ok(());
            }
        }
        self.afresh = self.shifts.keys().copied().collect();
        Ok(())
    }

    /// Whether a node was in something that is removed.
    fn was_within(&self, key: NodeKey) -> Result<bool, DocsError> {
        self.is_below(&self.diff.old, &self.diff.new, key)
    }

    /// Whether a node is in something that is added.
    fn is_within(&self, key: NodeKey) -> Result<bool, DocsError> {
        self.is_below(&self.diff.new, &self.diff.old, key)
    }

    fn is_below(&self, look: &Revision, other: &Revision, key: NodeKey) -> Result<bool, DocsError> {
        let mut at = look.item(key)?.node.parent;
        while at != NodeKey::DOCUMENT {
            if self.afresh.contains(&at) || other.find(at)?.is_none() {
                return Ok(true);
            }
            at = look.item(at)?.node.parent;
        }
        Ok(false)
    }

    fn name(&self, key: NodeKey) -> Result<Option<Text>, DocsError> {
        self.diff.new.name(&self.diff.new.item(key)?.node)
    }

    fn remove(&mut self) -> Result<(), DocsError> {
        for difference in &self.diff.differences {
            match *difference {
                Difference::Removed { key, .. } if !self.was_within(key)? => self.remove_one(key)?,
                Difference::Replaced { old, new, .. } if !self.was_within(old)? => {
                    let path = self.work.pointer(old)?;
                    let name = self.name(new)?;
                    self.work.substitute(old, new, name.as_ref().map(Text::as_str))?;
                    self.placed.insert(new);
                    self.ops.push(DiffOp::Replace { path, value: new });
                }
                _ => {}
            }
        }
        for key in self.afresh.clone() {
            if !self.was_within(key)? {
                self.remove_one(key)?;
            }
        }
        Ok(())
    }

    fn remove_one(&mut self, key: NodeKey) -> Result<(), DocsError> {
        let path = self.work.pointer(key)?;
        self.work.take(key)?;
        self.ops.push(DiffOp::Remove { path });
        Ok(())
    }

    fn shift(&mut self) -> Result<(), DocsError> {
        let mut moves = Vec::new();
        for key in self.shifts.keys().filter(|key| !self.afresh.contains(*key)) {
            moves.push((level(&self.diff.new, *key, None)?, *key));
        }
        moves.sort_unstable();
        for (_, key) in moves {
            let mut from = self.work.pointer(key)?;
            self.work.take(key)?;
            let mut path = self.put(key)?;
            if path.strip_prefix(&from).is_some_and(|rest| rest.starts_with('/')) {
                // RFC 6902, 4.4: `from` must be no prefix of `path`, also where it means another value by then. So by way of the
                // end of its array, whose last place is nobody's above.
                self.work.take(key)?;
                let end = self.work.put_last(key, self.diff.old.item(key)?.node.parent)?;
                self.ops.push(DiffOp::Move { from, path: end.clone() });
                self.work.take(key)?;
                (from, path) = (end, self.put(key)?);
            }
            if from != path {
                self.ops.push(DiffOp::Move { from, path });
            }
        }
        Ok(())
    }

    fn update(&mut self) -> Result<(), DocsError> {
        for difference in &self.diff.differences {
            if let Difference::Updated { key } = *difference
                && !self.afresh.contains(&key)
                && !self.is_within(key)?
            {
                let path = self.work.pointer(key)?;
                self.ops.push(DiffOp::Replace { path, value: key });
            }
        }
        Ok(())
    }

    fn add(&mut self) -> Result<(), DocsError> {
        for difference in &self.diff.differences {
            let key = match *difference {
                Difference::Inserted { key, .. } => key,
                Difference::Moved { key, .. } | Difference::Renamed { key } if self.afresh.contains(&key) => key,
                _ => continue,
            };
            if !self.is_within(key)? {
                let path = self.put(key)?;
                self.ops.push(DiffOp::Add { path, value: key });
            }
        }
        Ok(())
    }

    /// Puts a node where it will be, among those that are there by now; its pointer.
    fn put(&mut self, key: NodeKey) -> Result<String, DocsError> {
        let node = self.diff.new.item(key)?.node;
        let mut left = node.left;
        let is_in_array = node.parent != NodeKey::DOCUMENT && self.diff.new.item(node.parent)?.node.kind == Kind::Array;
        while let Some(beside) = left.filter(|_| is_in_array) {
            if self.placed.contains(&beside) || self.never_left(beside, node.parent)? {
                break;
            }
            left = self.diff.new.item(beside)?.node.left;
        }
        let name = self.name(key)?;
        self.work.put(key, node.parent, left, name.as_ref().map(Text::as_str))?;
        self.placed.insert(key);
        self.work.pointer(key)
    }

    fn never_left(&self, key: NodeKey, parent: NodeKey) -> Result<bool, DocsError> {
        let before = self.diff.old.find(key)?;
        Ok(!self.shifts.contains_key(&key) && before.is_some_and(|item| item.node.parent == parent))
    }
}
