//! A diff as a JSON merge patch (RFC 7396): objects member by member, everything else as a whole.
//!
//! Walk: [`Diff::merge_patch`] goes down where something differs, once to see whether all of it can be said and once to say it.
//! Deliberately absent: a null that is a member's value, and a document without a value. A merge patch has no word for them:
//! its null says that a member is gone.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use crate::diff::judge::children;
use crate::diff::{Diff, Difference};
use crate::look::{Look, Text};
use crate::node::{Kind, NodeKey};
use crate::revision::Revision;
use crate::serialise::quoted;
use crate::{DocsError, Form};

const FORM: &str = "a JSON merge patch";

impl Diff {
    /// Writes it as a JSON merge patch (RFC 7396): merged into the old revision it gives the new one, but for the order of members.
    ///
    /// # Errors
    /// [`DocsError::Inexpressible`], naming the node: a member that is null, a document without a value, a part of a document.
    /// Nothing is written then. [`DocsError::Stream`]; as [`Look::find`].
    pub fn merge_patch(&self, out: &mut impl Write) -> Result<(), DocsError> {
        self.whole(FORM)?;
        let touched = touched(self)?;
        Merging { diff: self, touched: &touched, out: None::<&mut Vec<u8>>, open: Vec::new() }.run()?;
        Merging { diff: self, touched: &touched, out: Some(out), open: Vec::new() }.run()
    }
}

/// What differs in itself or below itself.
fn touched(diff: &Diff) -> Result<HashSet<NodeKey>, DocsError> {
    let mut touched = HashSet::new();
    let mut above = |look: &Revision, key: NodeKey| -> Result<(), DocsError> {
        let mut at = look.item(key)?.node.parent;
        while at != NodeKey::DOCUMENT && touched.insert(at) {
            at = look.item(at)?.node.parent;
        }
        Ok(())
    };
    let mut updated = Vec::new();
    for difference in &diff.differences {
        let (old, new) = difference.keys();
        old.map_or(Ok(()), |key| above(&diff.old, key))?;
        new.map_or(Ok(()), |key| above(&diff.new, key))?;
        if let Difference::Updated { key } = difference {
            updated.push(*key);
        }
    }
    touched.extend(updated);
    Ok(touched)
}

/// A member of either object.
struct Member {
    name: String,
    old: Option<NodeKey>,
    new: Option<NodeKey>,
}

/// Two objects that are merged.
struct Open {
    name: Option<String>,
    members: std::vec::IntoIter<Member>,
    /// Its brace is written.
    is_begun: bool,
    /// Nothing in it is written.
    is_first: bool,
    /// The name of the object in it that is open is written.
    next_has_begun: bool,
}

struct Merging<'a, W> {
    diff: &'a Diff,
    touched: &'a HashSet<NodeKey>,
    /// None: it is only looked at.
    out: Option<&'a mut W>,
    open: Vec<Open>,
}

impl<W: Write> Merging<'_, W> {
    fn run(mut self) -> Result<(), DocsError> {
        let Diff { old, new, .. } = self.diff;
        let Some(value) = new.value() else {
            let (key, why) = (NodeKey::DOCUMENT, "the new revision has no value, and a document of JSON has one");
            return Err(DocsError::Inexpressible { form: FORM, key, why });
        };
        match old.value() {
            Some(before) if is_object(old, before)? && is_object(new, value)? => self.push(None, before, value)?,
            _ => return self.value(value),
        }
        while let Some(open) = self.open.last_mut() {
            match open.members.next() {
                Some(member) => self.member(member)?,
                None => self.close()?,
            }
        }
        Ok(())
    }

    fn put(&mut self, text: &str) -> Result<(), DocsError> {
        let stream = |error: std::io::Error| DocsError::Stream { doing: "writing a patch", error: error.to_string() };
        self.out.as_mut().map_or(Ok(()), |out| out.write_all(text.as_bytes()).map_err(stream))
    }

    fn push(&mut self, name: Option<String>, before: NodeKey, after: NodeKey) -> Result<(), DocsError> {
        let Diff { old, new, .. } = self.diff;
        let named = |look: &Revision, object| -> Result<Vec<(String, NodeKey)>, DocsError> {
            let name = |node| -> Result<String, DocsError> {
                Ok(look.name(node)?.as_ref().map_or("", Text::as_str).to_owned())
            };
            children(look, object)?.iter().map(|node| Ok((name(node)?, node.key))).collect()
        };
        let olds = named(old, before)?;
        let mut by_name: HashMap<&str, NodeKey> = olds.iter().map(|(name, key)| (name.as_str(), *key)).collect();
        let mut members = Vec::new();
        for (name, key) in named(new, after)? {
            members.push(Member { old: by_name.remove(name.as_str()), new: Some(key), name });
        }
        let gone: HashSet<NodeKey> = by_name.into_values().collect();
        for (name, key) in olds {
            if gone.contains(&key) {
                members.push(Member { name, old: Some(key), new: None });
            }
        }
        self.open.push(Open {
            name,
            members: members.into_iter(),
            is_begun: false,
            is_first: true,
            next_has_begun: false,
        });
        Ok(())
    }

    fn member(&mut self, Member { name, old, new }: Member) -> Result<(), DocsError> {
        let Some(after) = new else {
            self.begin(&name)?;
            return self.put("null");
        };
        if let Some(before) = old {
            if before == after && !self.touched.contains(&after) {
                return Ok(());
            }
            let (a, b) = (self.diff.old.item(before)?, self.diff.new.item(after)?);
            if (a.node.kind, b.node.kind) == (Kind::Object, Kind::Object) {
                return self.push(Some(name), before, after);
            }
            if a.node.kind == b.node.kind && !a.node.kind.is_container() && a.text() == b.text() {
                return Ok(());
            }
        }
        if self.diff.new.item(after)?.node.kind == Kind::Null {
            return Err(null(after));
        }
        self.begin(&name)?;
        self.value(after)
    }

    /// The name of a member in the innermost object; whatever it is in has begun then.
    fn begin(&mut self, name: &str) -> Result<(), DocsError> {
        let mut text = String::new();
        let begun = self.open.iter().rposition(|open| open.is_begun).unwrap_or(0);
        let mut names = self.open.iter().skip(begun + 1).filter_map(|open| open.name.clone()).collect::<Vec<_>>();
        names.push(name.to_owned());
        // Each object says the name of the next one, the innermost that of the member.
        for (open, name) in self.open.iter_mut().skip(begun).zip(names) {
            let has_said = open.next_has_begun;
            text.push_str(if open.is_begun { "" } else { "{" });
            if !has_said {
                text.push_str(if open.is_first { "" } else { "," });
                text.push_str(&format!("{}:", quoted(&name)));
                open.is_first = false;
            }
            (open.is_begun, open.next_has_begun) = (true, true);
        }
        if let Some(innermost) = self.open.last_mut() {
            innermost.next_has_begun = false;
        }
        self.put(&text)
    }

    fn close(&mut self) -> Result<(), DocsError> {
        let closed = self.open.pop();
        if let Some(above) = self.open.last_mut() {
            above.next_has_begun = false;
        }
        match closed {
            Some(open) if open.is_begun => self.put("}"),
            // Nothing differs.
            _ if self.open.is_empty() => self.put("{}"),
            _ => Ok(()),
        }
    }

    /// A value that is taken as a whole. Where it is an object, no member of it may be null.
    fn value(&mut self, top: NodeKey) -> Result<(), DocsError> {
        let diff = self.diff;
        match &mut self.out {
            Some(out) => Form { start: Some(top), ..Form::default() }.write(&diff.new, *out),
            None => without_nulls(&diff.new, top),
        }
    }
}

fn null(key: NodeKey) -> DocsError {
    DocsError::Inexpressible { form: FORM, key, why: "null as a member's value says there that the member is gone" }
}

fn is_object(look: &Revision, key: NodeKey) -> Result<bool, DocsError> {
    Ok(look.item(key)?.node.kind == Kind::Object)
}

/// Refuses a member that is null, in an object or in one that is a member of it. Arrays are taken as they are.
fn without_nulls(look: &Revision, top: NodeKey) -> Result<(), DocsError> {
    let mut node = look.item(top)?.node;
    loop {
        if node.kind == Kind::Null && node.key != top {
            return Err(null(node.key));
        }
        let down = node.first.filter(|_| node.kind == Kind::Object);
        let next = match down {
            Some(first) => first,
            None => loop {
                if node.key == top {
                    return Ok(());
                }
                if let Some(right) = node.right {
                    break right;
                }
                node = look.item(node.parent)?.node;
            },
        };
        node = look.item(next)?.node;
    }
}
