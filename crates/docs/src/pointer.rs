//! JSON Pointer (RFC 6901): the way to a value by names and places.
//!
//! Walk: [`Pointer::parse`] · [`Pointer::find`] goes it · [`crate::Look::at_pointer`] does both.
//! Deliberately absent: URI fragments.

use crate::DocsError;
use crate::look::Look;
use crate::node::{Kind, NodeKey};

/// The steps of a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer(pub(crate) Vec<String>);

impl Pointer {
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(steps) = text.strip_prefix('/') else {
            return if text.is_empty() {
                Ok(Self(Vec::new()))
            } else {
                Err("a pointer is empty or begins with a slash")
            };
        };
        steps.split('/').map(unescaped).collect::<Result<_, _>>().map(Self)
    }

    /// The value that it leads to.
    pub(crate) fn find<L: Look + ?Sized>(&self, look: &L) -> Result<Option<NodeKey>, DocsError> {
        let Some(mut key) = look.value() else { return Ok(None) };
        for step in &self.0 {
            let found = child(look, key, step)?;
            let Some(found) = found else { return Ok(None) };
            key = found;
        }
        Ok(Some(key))
    }

    /// The way but for its last step, and that.
    pub(crate) fn split(mut self) -> Option<(Self, String)> {
        let last = self.0.pop()?;
        Some((self, last))
    }

    /// Whether it leads to something within what another leads to.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.0.len() > other.0.len() && self.0.starts_with(&other.0)
    }
}

/// The child of a value that one step leads to.
fn child<L: Look + ?Sized>(look: &L, key: NodeKey, step: &str) -> Result<Option<NodeKey>, DocsError> {
    let node = look.item(key)?.node;
    match node.kind {
        Kind::Object => look.member(key, step),
        Kind::Array => match index(step).filter(|index| *index < node.children) {
            Some(index) => nth(look, key, index),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// A place in an array, from 0. Digits only, without leading zeros.
pub(crate) fn index(step: &str) -> Option<u64> {
    let is_one =
        step == "0" || (!step.starts_with('0') && !step.is_empty() && step.bytes().all(|b| b.is_ascii_digit()));
    is_one.then(|| step.parse().ok()).flatten()
}

/// The child with so many before it, from whichever end is nearer.
fn nth<L: Look + ?Sized>(look: &L, container: NodeKey, index: u64) -> Result<Option<NodeKey>, DocsError> {
    let node = look.item(container)?.node;
    let from_end = node.children.saturating_sub(1).saturating_sub(index);
    let (mut key, steps) = if index <= from_end { (node.first, index) } else { (node.last, from_end) };
    for _ in 0..steps {
        let Some(at) = key else { break };
        let node = look.item(at)?.node;
        key = if index <= from_end { node.right } else { node.left };
    }
    Ok(key)
}

fn unescaped(step: &str) -> Result<String, &'static str> {
    let mut out = String::with_capacity(step.len());
    let mut rest = step.split('~');
    out.push_str(rest.next().unwrap_or_default());
    for part in rest {
        match part.as_bytes().first() {
            Some(b'0') => out.push('~'),
            Some(b'1') => out.push('/'),
            _ => return Err("a tilde in a pointer is ~0, a slash ~1"),
        }
        out.push_str(part.get(1..).unwrap_or_default());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_those_of_the_rfc() {
        let steps = |text: &str| Pointer::parse(text).map(|pointer| pointer.0.join("|"));
        let fine = [
            ("", ""),
            ("/foo", "foo"),
            ("/foo/0", "foo|0"),
            ("/", ""),
            ("/a~1b", "a/b"),
            ("/m~0n", "m~n"),
            ("/~01", "~1"),
        ];
        for (text, expected) in fine {
            assert_eq!(steps(text).as_deref(), Ok(expected), "{text}");
        }
        for wrong in ["a", "#/a", "/~", "/~2", "/a~"] {
            assert!(steps(wrong).is_err(), "{wrong}");
        }
        let indexes =
            [("0", Some(0)), ("10", Some(10)), ("01", None), ("-", None), ("-1", None), ("", None), ("1e0", None)];
        for (text, expected) in indexes {
            assert_eq!(index(text), expected, "{text}");
        }
        assert_eq!(index("99999999999999999999999"), None);
    }
}
