//! A JSON value in memory, laid flat in document order: what a patch brings along. No depth of it costs stack.
//!
//! Walk: [`Flat::of`] · [`Flat::children`] of a value · [`Flat::fill`] builds a subtree of it · [`Flat::is_same`] holds it against
//! a stored one.
//! Deliberately absent: large values. Those are streamed into an edit and never stand in memory.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use json_event_parser::{JsonEvent, SliceJsonParser};

use crate::DocsError;
use crate::build::Build;
use crate::edit::Value;
use crate::error::within;
use crate::jsonpath::number;
use crate::look::{Look, Text};
use crate::node::{Kind, NodeKey};
use crate::parse::told;
use crate::record::length;

/// The most bytes of texts in one value, and a value counts as some too.
pub(crate) const BYTES_MAX: u64 = 64 << 20;
pub(crate) const VALUE_BYTES: u64 = 64;
const PATCH: &str = "a patch";
/// So many names are few.
const NAMES_FEW: usize = 8;

#[derive(Debug)]
struct Node {
    name: Option<Box<str>>,
    kind: Kind,
    text: Box<str>,
    /// Where the next value that is not below this one stands.
    end: usize,
}

/// A value with all that is below it.
#[derive(Debug)]
pub(crate) struct Flat {
    nodes: Vec<Node>,
}

/// When two numbers are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    ByDigits,
    ByValue,
}

impl Flat {
    /// The outermost value.
    pub(crate) const TOP: usize = 0;

    /// One value, of a text.
    ///
    /// # Errors
    /// [`DocsError::Json`] with line and column, also for a name that an object has twice; [`DocsError::Size`], also for more text than
    /// one value may have.
    pub(crate) fn of(json: &[u8], depth_max: u32) -> Result<Self, DocsError> {
        within(PATCH, length(json), BYTES_MAX)?;
        let mut parser = SliceJsonParser::new(json);
        let (mut flat, mut open, mut name, mut bytes) = (Self { nodes: Vec::new() }, Vec::new(), None, 0_u64);
        loop {
            let event = parser.parse_next().map_err(|error| told(&error.into()))?;
            let (kind, text) = match event {
                JsonEvent::Eof => break,
                JsonEvent::EndObject | JsonEvent::EndArray => {
                    if let Some(at) = open.pop() {
                        flat.end_here(at)?;
                    }
                    continue;
                }
                JsonEvent::ObjectKey(key) => {
                    name = Some(Box::from(&*key));
                    continue;
                }
                JsonEvent::StartObject => (Kind::Object, Box::default()),
                JsonEvent::StartArray => (Kind::Array, Box::default()),
                JsonEvent::String(text) => (Kind::String, Box::from(&*text)),
                JsonEvent::Number(digits) => (Kind::Number, Box::from(&*digits)),
                JsonEvent::Boolean(true) => (Kind::True, Box::default()),
                JsonEvent::Boolean(false) => (Kind::False, Box::default()),
                JsonEvent::Null => (Kind::Null, Box::default()),
            };
            let at = flat.nodes.len();
            let node = Node { name: name.take(), kind, text, end: at + 1 };
            let texts = node.text.len() + node.name.as_ref().map_or(0, |name| name.len());
            bytes = bytes.saturating_add(VALUE_BYTES).saturating_add(u64::try_from(texts).unwrap_or(u64::MAX));
            within(PATCH, bytes, BYTES_MAX)?;
            flat.nodes.push(node);
            if kind.is_container() {
                open.push(at);
                within("nesting", u64::try_from(open.len()).unwrap_or(u64::MAX), depth_max.into())?;
            }
        }
        Ok(flat)
    }

    /// The container there has no more children.
    fn end_here(&mut self, at: usize) -> Result<(), DocsError> {
        let end = self.nodes.len();
        if let Some(node) = self.nodes.get_mut(at) {
            node.end = end;
        }
        let twice = if self.kind(at) == Kind::Object { self.twice(at) } else { None };
        match twice {
            Some(name) => Err(DocsError::Json { what: format!("an object has a member {name:?} twice") }),
            None => Ok(()),
        }
    }

    /// A name that two children have.
    fn twice(&self, at: usize) -> Option<&str> {
        let names = || self.children(at).map(|child| self.name(child));
        if names().nth(NAMES_FEW).is_none() {
            // To hold each of few against those before it takes less than to hash one.
            return names().enumerate().find_map(|(many, name)| names().take(many).find(|before| *before == name));
        }
        let mut known = HashSet::new();
        names().find(|name| !known.insert(*name))
    }

    pub(crate) fn kind(&self, at: usize) -> Kind {
        self.nodes.get(at).map_or(Kind::Null, |node| node.kind)
    }

    /// A string, or the digits of a number.
    pub(crate) fn text(&self, at: usize) -> &str {
        self.nodes.get(at).map_or("", |node| &node.text)
    }

    /// The name that it has as a member.
    pub(crate) fn name(&self, at: usize) -> &str {
        self.nodes.get(at).and_then(|node| node.name.as_deref()).unwrap_or_default()
    }

    /// The member of that name.
    pub(crate) fn member(&self, at: usize, name: &str) -> Option<usize> {
        self.children(at).find(|child| self.name(*child) == name)
    }

    /// The children of a value, in order.
    pub(crate) fn children(&self, at: usize) -> impl Iterator<Item = usize> {
        let end = self.end(at);
        let next = move |at: &usize| Some(self.end(*at));
        std::iter::successors(Some(at + 1), next).take_while(move |at| *at < end)
    }

    fn end(&self, at: usize) -> usize {
        self.nodes.get(at).map_or(usize::MAX, |node| node.end)
    }

    pub(crate) fn value(&self, at: usize) -> Value<'_> {
        match self.kind(at) {
            Kind::Object => Value::Object,
            Kind::Array => Value::Array,
            Kind::String => Value::String(self.text(at)),
            Kind::Number => Value::Number(self.text(at)),
            Kind::True => Value::Bool(true),
            Kind::False => Value::Bool(false),
            Kind::Null => Value::Null,
        }
    }

    /// Builds this value.
    pub(crate) fn fill(&self, build: &mut Build<'_>, name: Option<&str>, top: usize) -> Result<(), DocsError> {
        let mut ends = Vec::new();
        for at in top..self.end(top) {
            self.close(build, &mut ends, at)?;
            let name = if at == top { name } else { self.nodes.get(at).and_then(|node| node.name.as_deref()) };
            if self.kind(at).is_container() {
                build.open(self.value(at), name)?;
                ends.push(self.end(at));
            } else {
                build.leaf(self.value(at), name)?;
            }
        }
        self.close(build, &mut ends, self.end(top))
    }

    /// Ends the containers that end here.
    fn close(&self, build: &mut Build<'_>, ends: &mut Vec<usize>, at: usize) -> Result<(), DocsError> {
        while ends.pop_if(|end| *end <= at).is_some() {
            build.close()?;
        }
        Ok(())
    }

    /// Whether a stored value says the same, members in any order; numbers by their digits, or only by their value.
    pub(crate) fn is_same<L: Look>(
        &self,
        at: usize,
        look: &L,
        key: NodeKey,
        numbers: Numbers,
    ) -> Result<bool, DocsError> {
        let mut pairs = vec![(at, key)];
        while let Some((at, key)) = pairs.pop() {
            let item = look.item(key)?;
            if item.node.kind != self.kind(at) {
                return Ok(false);
            }
            let is_same = match item.node.kind {
                Kind::Number if numbers == Numbers::ByValue => same_number(item.text(), self.text(at)),
                _ => item.text() == self.text(at),
            };
            let count = u64::try_from(self.children(at).take(self.nodes.len()).count()).unwrap_or(u64::MAX);
            if !is_same || item.node.children != count {
                return Ok(false);
            }
            let mut next = item.node.first;
            let is_object = item.node.kind == Kind::Object;
            let named = self.children(at).filter(|_| is_object).map(|child| (self.name(child), child));
            let named: HashMap<&str, usize> = named.collect();
            let mut values = self.children(at);
            while let Some(child) = next {
                let node = look.item(child)?.node;
                let name = if is_object { look.name(&node)? } else { None };
                let value = match &name {
                    Some(name) => named.get(Text::as_str(name)).copied(),
                    None => values.next(),
                };
                let Some(value) = value else { return Ok(false) };
                pairs.push((value, child));
                next = node.right;
            }
        }
        Ok(true)
    }
}

/// Whether two numbers are one, to the last digit and whatever their exponents.
pub(crate) fn same_number(left: &str, right: &str) -> bool {
    left == right || number::compare(left, right) == Ordering::Equal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_walked_without_a_stack() {
        let flat = Flat::of(r#"{"a":[1,[2],{}],"b":"x"}"#.as_bytes(), 3).unwrap();
        let children = |at| flat.children(at).collect::<Vec<_>>();
        assert_eq!(
            (children(0), children(1), children(3), children(5), children(6)),
            (vec![1, 6], vec![2, 3, 5], vec![4], vec![], vec![])
        );
        assert_eq!((flat.member(0, "b"), flat.member(0, "c"), flat.text(6)), (Some(6), None, "x"));
        for wrong in ["", "[1,]", "{\"a\":1,\"a\":2}", "[[[[1]]]]", "1 2"] {
            assert!(Flat::of(wrong.as_bytes(), 3).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_that_an_object_has_twice_is_found_among_few_and_among_many() {
        let object = |names: &[usize]| {
            let members: Vec<_> = names.iter().map(|name| format!(r#""n{name}":{{"n0":[],"x":"n1"}}"#)).collect();
            Flat::of(format!("[{{{}}}]", members.join(",")).as_bytes(), 9).map(drop)
        };
        for many in 1..4 * NAMES_FEW {
            let names: Vec<usize> = (0..many).collect();
            assert_eq!(object(&names), Ok(()), "those within its members are not its own");
            for twice in [0, many / 2, many - 1] {
                let error = object(&[&names[..], &[twice]].concat()).unwrap_err().to_string();
                assert!(error.contains(&format!("a member \"n{twice}\" twice")), "{error}");
            }
        }
        assert!(Flat::of(r#"["a","a",{"a":"a"}]"#.as_bytes(), 9).is_ok());
    }

    #[test]
    fn a_text_that_is_longer_than_a_value_may_be_is_refused() {
        let blanks = vec![b' '; usize::try_from(BYTES_MAX).unwrap() + 1];
        let error = Flat::of(&blanks, 9).unwrap_err();
        assert!(matches!(error, DocsError::Size { part: PATCH, limit: BYTES_MAX, .. }), "{error}");
    }

    #[test]
    fn numbers_are_the_same_by_their_value_to_the_last_digit() {
        for (left, right) in
            [("1", "1.0"), ("10", "1e1"), ("0.10", "1E-1"), ("-0", "0"), ("0e7", "0.0"), ("120e-1", "12")]
        {
            assert!(same_number(left, right), "{left} {right}");
        }
        let long = "123456789012345678901234567890";
        // Exponents that no integer holds.
        let (far, farther) = (format!("1e1{}", "0".repeat(39)), format!("1e-1{}", "0".repeat(40)));
        for (left, right) in [
            ("1", "-1"),
            ("1", "10"),
            (long, "123456789012345678901234567891"),
            ("1e400", "1e401"),
            (far.as_str(), farther.as_str()),
        ] {
            assert!(!same_number(left, right), "{left} {right}");
        }
        assert!(same_number(&far, &format!("10e0{}", "9".repeat(39))), "{far}");
    }
}
