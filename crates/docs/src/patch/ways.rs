//! Ways that a patch has gone: so that many operations on one container do not each walk over all of it.
//!
//! Walk: [`Ways::find`] goes a pointer · a container that is looked into twice is remembered: an object by its members' names, an
//! array by the place that was found last, from where the next one is near · [`Ways::came`] and [`Ways::went`] keep that true.
//! What is walked over is counted, and so is what is copied: a patch holds the writer's seat, and its costs need not be as small as it is.
//! Deliberately absent: memory beyond one patch.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::DocsError;
use crate::edit::Edit;
use crate::error::within;
use crate::flat::{BYTES_MAX, VALUE_BYTES};
use crate::look::{Item, Look, Text};
use crate::node::{Kind, Node, NodeKey};
use crate::pointer::{Pointer, index};

/// A patch looks at so many nodes on its ways, as a query may.
const STEPS_MAX: u64 = 100_000_000;
/// So many names are remembered; then it begins anew.
const NAMES_MAX: usize = 1 << 20;

/// What is known of an object.
#[derive(Debug)]
enum Members {
    /// It was looked into.
    Seen,
    Known(HashMap<Box<str>, NodeKey>),
}

#[derive(Debug)]
pub(crate) struct Ways {
    objects: HashMap<NodeKey, Members>,
    /// Names in them.
    names: usize,
    /// A place of an array, and who is there.
    arrays: HashMap<NodeKey, (u64, NodeKey)>,
    steps: u64,
    steps_max: u64,
    /// Bytes that were copied, and that may be.
    copied: u64,
    copied_max: u64,
}

impl Ways {
    pub(crate) fn new() -> Self {
        Self::within(STEPS_MAX, BYTES_MAX)
    }

    fn within(steps_max: u64, copied_max: u64) -> Self {
        let (objects, arrays) = (HashMap::new(), HashMap::new());
        Self { objects, names: 0, arrays, steps: 0, steps_max, copied: 0, copied_max }
    }

    /// Counts nodes that are looked at.
    pub(crate) fn step(&mut self, steps: u64) -> Result<(), DocsError> {
        self.steps = self.steps.saturating_add(steps);
        within("steps of a patch", self.steps, self.steps_max)
    }

    /// The value that a pointer leads to.
    pub(crate) fn find(&mut self, edit: &Edit, pointer: &Pointer) -> Result<Option<Item>, DocsError> {
        let Some(value) = edit.value() else { return Ok(None) };
        let mut item = edit.item(value)?;
        for step in &pointer.0 {
            let Some(found) = self.child(edit, &item.node, step)? else { return Ok(None) };
            item = found;
        }
        Ok(Some(item))
    }

    /// The child of a value that one step leads to.
    fn child(&mut self, edit: &Edit, node: &Node, step: &str) -> Result<Option<Item>, DocsError> {
        self.step(1)?;
        match node.kind {
            Kind::Object => self.member(edit, node, step),
            Kind::Array => match index(step).filter(|index| *index < node.children) {
                Some(index) => self.nth(edit, node, index),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The member of an object with this name.
    pub(crate) fn member(&mut self, edit: &Edit, object: &Node, name: &str) -> Result<Option<Item>, DocsError> {
        if let Some(Members::Known(known)) = self.objects.get(&object.key) {
            return known.get(name).map(|key| edit.item(*key)).transpose();
        }
        // Who is asked once is not remembered: that would cost more than it is worth.
        let mut all = self.objects.contains_key(&object.key).then(HashMap::new);
        let (mut found, mut next) = (None, object.first);
        while let Some(key) = next {
            self.step(1)?;
            let item = edit.item(key)?;
            let own = edit.name(&item.node)?;
            let own = own.as_ref().map_or("", Text::as_str);
            next = item.node.right;
            if found.is_none() && own == name {
                found = Some(item);
            }
            match &mut all {
                Some(all) => _ = all.insert(own.into(), key),
                None if found.is_some() => break,
                None => {}
            }
        }
        let count = all.as_ref().map_or(1, HashMap::len);
        if self.names.saturating_add(count) > NAMES_MAX {
            (self.objects, self.names) = (HashMap::new(), 0);
        }
        self.names += count;
        self.objects.insert(object.key, all.map_or(Members::Seen, Members::Known));
        Ok(found)
    }

    /// The value with so many before it, from whatever place is nearest.
    pub(crate) fn nth(&mut self, edit: &Edit, array: &Node, index: u64) -> Result<Option<Item>, DocsError> {
        let ends =
            [array.first.map(|first| (0, first)), array.last.map(|last| (array.children.saturating_sub(1), last))];
        let known = self.arrays.get(&array.key).copied();
        let places = ends.into_iter().flatten().chain(known);
        let Some((mut at, key)) = places.min_by_key(|(at, _)| at.abs_diff(index)) else { return Ok(None) };
        let mut item = edit.item(key)?;
        while at != index {
            self.step(1)?;
            let (next, beside) = if at < index { (at + 1, item.node.right) } else { (at - 1, item.node.left) };
            let Some(beside) = beside else { return Ok(None) };
            (at, item) = (next, edit.item(beside)?);
        }
        self.stand(array.key, at, item.node.key);
        Ok(Some(item))
    }

    /// Remembers a place of an array.
    fn stand(&mut self, array: NodeKey, at: u64, key: NodeKey) {
        if self.arrays.len() >= NAMES_MAX {
            self.arrays.clear();
        }
        self.arrays.insert(array, (at, key));
    }

    /// A value has come: as a member, or to a place of an array.
    pub(crate) fn came(&mut self, parent: NodeKey, name: Option<&str>, at: u64, key: NodeKey) {
        match (self.objects.get_mut(&parent), name) {
            (Some(Members::Known(known)), Some(name)) => {
                self.names += usize::from(known.insert(name.into(), key).is_none());
            }
            (_, Some(_)) => {}
            (_, None) => self.stand(parent, at, key),
        }
    }

    /// A node has gone from where it was, and this was its name there.
    pub(crate) fn went(&mut self, node: &Node, name: Option<&str>) {
        if let (Some(Members::Known(known)), Some(name)) = (self.objects.get_mut(&node.parent), name) {
            self.names -= usize::from(known.remove(name).is_some());
        }
        // The place that was found last is its own, or it is not known any more which one that is.
        let Some((at, key)) = self.arrays.remove(&node.parent) else { return };
        let beside = node.right.map(|right| (at, right)).or(node.left.map(|left| (at.saturating_sub(1), left)));
        if let Some((at, beside)) = beside.filter(|_| key == node.key) {
            self.arrays.insert(node.parent, (at, beside));
        }
    }

    /// Another node stands where one was.
    pub(crate) fn became(&mut self, old: &Node, name: Option<&str>, new: NodeKey) {
        if let (Some(Members::Known(known)), Some(name)) = (self.objects.get_mut(&old.parent), name) {
            known.insert(name.into(), new);
        }
        if let Some((_, key)) = self.arrays.get_mut(&old.parent).filter(|(_, key)| *key == old.key) {
            *key = new;
        }
    }

    /// Has something written that is to be copied, if that is not too much with all that was copied before.
    pub(crate) fn copy(
        &mut self,
        nodes: u64,
        write: impl FnOnce(&mut Copied) -> Result<(), DocsError>,
    ) -> Result<Vec<u8>, DocsError> {
        const COPIES: &str = "the copies of a patch";
        self.copied = self.copied.saturating_add(nodes.saturating_mul(VALUE_BYTES));
        within(COPIES, self.copied, self.copied_max)?;
        let left = usize::try_from(self.copied_max - self.copied).unwrap_or(usize::MAX);
        let mut copied = Copied { bytes: Vec::new(), left, is_full: false };
        let written = write(&mut copied);
        if copied.is_full {
            within(COPIES, self.copied_max.saturating_add(1), self.copied_max)?;
        }
        written?;
        self.copied = self.copied.saturating_add(u64::try_from(copied.bytes.len()).unwrap_or(u64::MAX));
        Ok(copied.bytes)
    }
}

/// What is being copied: it takes no more than it may.
#[derive(Debug)]
pub(crate) struct Copied {
    bytes: Vec<u8>,
    left: usize,
    is_full: bool,
}

impl Write for Copied {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_full |= bytes.len() > self.left;
        if self.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.left -= bytes.len();
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use assent_journal::Journal;
    use assent_kind::Kind as Class;
    use assent_sim::{SimClock, SimDice, SimDisk};

    use super::*;
    use crate::{At, Config, Database, Document, Form, Meta, Versioning};

    fn document(json: &str) -> Document {
        let (disk, clock) = (Arc::new(SimDisk::new()), Arc::new(SimClock::new()));
        let kept = assent_journal::Config { kept_until_released: true, ..Default::default() };
        let dice = Arc::new(SimDice::new(1));
        let (log, _) = Journal::open(disk.clone(), clock.clone(), dice, Path::new("log"), kept).unwrap();
        let db = Database::open(log, disk, clock, Path::new("index"), Config::default()).unwrap();
        let doc = db.create("orders", Versioning::default()).unwrap();
        let mut edit = doc.edit().unwrap();
        edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).unwrap();
        edit.commit(&Meta::default()).unwrap();
        doc
    }

    fn patched(doc: &Document, ops: &[String], mut ways: Ways) -> Result<(String, u64), DocsError> {
        let mut edit = doc.edit().unwrap();
        edit.patch_within(format!("[{}]", ops.join(",")).as_bytes(), &mut ways)?;
        Ok((Form::default().text(&edit).unwrap(), ways.steps))
    }

    #[test]
    fn many_operations_on_one_container_do_not_each_walk_over_all_of_it() {
        // Each walked over all siblings: two million looks for either of these.
        let members: Vec<String> = (0..2000).map(|n| format!(r#"{{"op":"add","path":"/m{n}","value":{n}}}"#)).collect();
        let (text, steps) = patched(&document("{}"), &members, Ways::new()).unwrap();
        assert!(text.ends_with(r#""m1999":1999}"#) && steps < 10_000, "{steps} steps");
        let list = format!("[{}]", vec!["0"; 2000].join(","));
        let values: Vec<String> =
            (0..2000).map(|n| format!(r#"{{"op":"replace","path":"/{n}","value":{n}}}"#)).collect();
        let (text, steps) = patched(&document(&list), &values, Ways::new()).unwrap();
        assert!(text.ends_with(",1998,1999]") && steps < 10_000, "{steps} steps");
        let removed: Vec<String> = (0..1000).map(|_| r#"{"op":"remove","path":"/1000"}"#.to_owned()).collect();
        let (text, steps) = patched(&document(&list), &removed, Ways::new()).unwrap();
        assert!(text.len() == 2001 && steps < 10_000, "{steps} steps");
    }

    #[test]
    fn what_a_patch_looks_at_and_copies_is_bounded() {
        let list = format!("[{}]", vec!["0"; 2000].join(","));
        let far =
            |n: u64| format!(r#"{{"op":"test","path":"/{}","value":0}}"#, if n.is_multiple_of(2) { 500 } else { 1500 });
        let ops: Vec<String> = (0..100).map(far).collect();
        let (_, steps) = patched(&document(&list), &ops, Ways::new()).unwrap();
        assert!(steps > 40_000, "{steps} steps");
        let error = patched(&document(&list), &ops, Ways::within(40_000, 0)).unwrap_err();
        assert_eq!(error.kind(), Class::Invalid);
        assert!(error.to_string().contains("steps of a patch of 40001; at most 40000 is taken"), "{error}");
        // A text of 1000 bytes, in its quotes, and what a value takes.
        let doc = document(&format!(r#"{{"a":"{}"}}"#, "x".repeat(998)));
        let copy = |n: u64| format!(r#"{{"op":"copy","from":"/a","path":"/b{n}"}}"#);
        let copies =
            |count: u64, most: u64| patched(&doc, &(0..count).map(copy).collect::<Vec<_>>(), Ways::within(1000, most));
        copies(3, 3192).unwrap();
        for most in [3191, 2128 + VALUE_BYTES - 1] {
            let error = copies(3, most).unwrap_err();
            assert!(
                error.to_string().contains("operation 2 of the patch, copy \"/b2\": the copies of a patch"),
                "{error}"
            );
        }
    }
}
