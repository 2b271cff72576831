//! Differences as JSON.
//!
//! ```text
//!   {"database", "resource", "old-revision", "new-revision", "diffs": [..]}, each one of
//!   {"delete":  {"nodeKey", "path", "depth", "type", "name", "data"}}
//!   {"rename":  {"nodeKey", "path", "depth", "type", "oldName", "name"}}
//!   {"update":  {"nodeKey", "path", "depth", "type", "name", "oldType", "oldValue", "value"}}
//!   {"insert":  {"nodeKey", "insertPositionNodeKey", "insertPosition", "path", "depth", "type", "name", "data"}}
//!   {"replace": {"oldNodeKey", "newNodeKey", "insertPositionNodeKey", "insertPosition", "path", "depth", "type", "name",
//!                "oldType", "oldData", "data"}}
//!   {"move":    {"nodeKey", "oldPath", "insertPositionNodeKey", "insertPosition", "path", "depth", "type", "oldName", "name"}}
//! ```
//! Names are those of members; who is none has none. `data` and values only if they are asked for. A position is `asFirstChild` of a
//! container or `asRightSibling` of a node. A path is one of the summary's, `$["a"][*]`: it costs nothing but the way up, and the
//! place in an array is what the position says. What is gone is told as it was, all else as it is.
//!
//! Walk: [`Diff::write`].
//! Deliberately absent: a text of all of it: values are as large as documents.

use std::io::Write;

use crate::diff::{Diff, Difference, Spot, level};
use crate::look::{Look, Text};
use crate::node::NodeKey;
use crate::path::PathId;
use crate::revision::Revision;
use crate::serialise::quoted;
use crate::{DocsError, Form};

impl Diff {
    /// Writes it as JSON; with `data`, old and new values too.
    ///
    /// # Errors
    /// [`DocsError::Stream`]; as [`Look::find`].
    pub fn write(&self, database: &str, data: bool, out: &mut impl Write) -> Result<(), DocsError> {
        let (old, new) = (self.old.number(), self.new.number());
        let (database, resource) = (quoted(database), quoted(&self.new.doc.name));
        let mut telling = Telling { diff: self, data, out };
        telling.put(&format!(
            "{{\"database\":{database},\"resource\":{resource},\"old-revision\":{old},\"new-revision\":{new},\"diffs\":["
        ))?;
        for (at, difference) in self.differences.iter().enumerate() {
            telling.put(if at == 0 { "" } else { "," })?;
            telling.tell(difference)?;
        }
        telling.put("]}")
    }
}

struct Telling<'a, W> {
    diff: &'a Diff,
    data: bool,
    out: &'a mut W,
}

impl<W: Write> Telling<'_, W> {
    fn put(&mut self, text: &str) -> Result<(), DocsError> {
        let stream = |error: std::io::Error| DocsError::Stream { doing: "writing a diff", error: error.to_string() };
        self.out.write_all(text.as_bytes()).map_err(stream)
    }

    fn tell(&mut self, difference: &Difference) -> Result<(), DocsError> {
        let Diff { old, new, .. } = self.diff;
        match *difference {
            Difference::Removed { key, .. } => {
                self.put(&format!("{{\"delete\":{{\"nodeKey\":{key}"))?;
                self.node(old, key)?;
                self.value(old, key, "data")?;
            }
            Difference::Renamed { key } => {
                self.put(&format!("{{\"rename\":{{\"nodeKey\":{key}"))?;
                self.name(old, key, "oldName")?;
                self.node(new, key)?;
            }
            Difference::Updated { key } => {
                self.put(&format!("{{\"update\":{{\"nodeKey\":{key}"))?;
                self.kind(old, key, "oldType")?;
                self.node(new, key)?;
                self.value(old, key, "oldValue")?;
                self.value(new, key, "value")?;
            }
            Difference::Inserted { key, to } => {
                self.put(&format!("{{\"insert\":{{\"nodeKey\":{key}"))?;
                self.place(to)?;
                self.node(new, key)?;
                self.value(new, key, "data")?;
            }
            Difference::Replaced { old: before, new: after, to, .. } => {
                self.put(&format!("{{\"replace\":{{\"oldNodeKey\":{before},\"newNodeKey\":{after}"))?;
                self.kind(old, before, "oldType")?;
                self.place(to)?;
                self.node(new, after)?;
                self.value(old, before, "oldData")?;
                self.value(new, after, "data")?;
            }
            Difference::Moved { key, to, .. } => {
                self.put(&format!("{{\"move\":{{\"nodeKey\":{key},\"oldPath\":{}", quoted(&path(old, key)?)))?;
                self.name(old, key, "oldName")?;
                self.place(to)?;
                self.node(new, key)?;
            }
        }
        self.put("}}")
    }

    fn place(&mut self, Spot { parent, left }: Spot) -> Result<(), DocsError> {
        let (position, key) = left.map_or(("asFirstChild", parent), |left| ("asRightSibling", left));
        self.put(&format!(",\"insertPositionNodeKey\":{key},\"insertPosition\":\"{position}\""))
    }

    /// What is told of every node.
    fn node(&mut self, look: &Revision, key: NodeKey) -> Result<(), DocsError> {
        let (path, depth) = (quoted(&path(look, key)?), level(look, key, None)?.unwrap_or_default());
        self.put(&format!(",\"path\":{path},\"depth\":{depth}"))?;
        self.kind(look, key, "type")?;
        self.name(look, key, "name")
    }

    fn kind(&mut self, look: &Revision, key: NodeKey, field: &str) -> Result<(), DocsError> {
        let kind = look.item(key)?.node.kind.name();
        self.put(&format!(",\"{field}\":\"{kind}\""))
    }

    fn name(&mut self, look: &Revision, key: NodeKey, field: &str) -> Result<(), DocsError> {
        match look.name(&look.item(key)?.node)?.as_ref().map(Text::as_str) {
            Some(name) => self.put(&format!(",\"{field}\":{}", quoted(name))),
            None => Ok(()),
        }
    }

    fn value(&mut self, look: &Revision, key: NodeKey, field: &str) -> Result<(), DocsError> {
        if !self.data {
            return Ok(());
        }
        self.put(&format!(",\"{field}\":"))?;
        Form { start: Some(key), ..Form::default() }.write(look, self.out)
    }
}

/// The path of a node, as the summary says it.
fn path(look: &Revision, key: NodeKey) -> Result<String, DocsError> {
    let mut steps = Vec::new();
    let mut id: PathId = look.item(key)?.node.path;
    while let Some(named) = look.path(id)? {
        steps.push(named.step().to_string());
        // A path is made after the one before it. Damage must not lead in a circle.
        if named.before >= id {
            break;
        }
        id = named.before;
    }
    Ok(steps.iter().rev().map(String::as_str).collect())
}
