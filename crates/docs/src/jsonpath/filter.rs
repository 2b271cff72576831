//! What holds of a node: filters of a query, over the stored form.
//!
//! Walk: [`Running::holds`] is a filter's truth · values are compared without being copied, containers node by node.
//! Deliberately absent: recursion over the document.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use regex::Regex;

use crate::DocsError;
use crate::error::within;
use crate::jsonpath::Running;
use crate::jsonpath::number;
use crate::jsonpath::regexp::{Refused, compile};
use crate::jsonpath::syntax::{Logic, Operand, Query, Relation};
use crate::jsonpath::walk::Walk;
use crate::look::{Item, Look, Text};
use crate::node::{Kind, Node, NodeKey};
use crate::record::length;

/// Programs of patterns that are kept.
const PATTERNS_KEPT: usize = 32;
/// So many bytes of a text cost as much to walk over as a node costs to look at.
const TEXT_BYTES_STEP: u64 = 1024;
/// So many bytes of a program cost as much to make.
const PROGRAM_BYTES_STEP: u64 = 16;
/// A program that is no larger is tried first; each further try may be four times as large.
const PROGRAM_BYTES_FIRST: u64 = 16 << 10;

/// A value of an operand.
enum Value<'q> {
    Nothing,
    Null,
    Bool(bool),
    Number(Cow<'q, str>),
    Text(&'q str),
    Node(Item),
}

/// The same, wherever it is.
enum View<'v> {
    Nothing,
    Null,
    Bool(bool),
    Number(&'v str),
    Text(&'v str),
    Container(&'v Node),
}

impl Value<'_> {
    fn view(&self) -> View<'_> {
        match self {
            Self::Nothing => View::Nothing,
            Self::Null => View::Null,
            Self::Bool(value) => View::Bool(*value),
            Self::Number(digits) => View::Number(digits),
            Self::Text(text) => View::Text(text),
            Self::Node(item) => View::of(item),
        }
    }
}

impl<'v> View<'v> {
    fn of(item: &'v Item) -> Self {
        match item.node.kind {
            Kind::Object | Kind::Array => View::Container(&item.node),
            Kind::String => View::Text(item.text()),
            Kind::Number => View::Number(item.text()),
            Kind::True => View::Bool(true),
            Kind::False => View::Bool(false),
            Kind::Null => View::Null,
        }
    }

    /// What comparing it walks over.
    const fn text(&self) -> &'v str {
        match self {
            Self::Number(text) | Self::Text(text) => text,
            _ => "",
        }
    }

    /// Neither is a container.
    fn is_equal(&self, other: &Self) -> bool {
        match (self, other) {
            (View::Nothing, View::Nothing) | (View::Null, View::Null) => true,
            (View::Bool(left), View::Bool(right)) => left == right,
            (View::Number(left), View::Number(right)) => number::compare(left, right) == Ordering::Equal,
            (View::Text(left), View::Text(right)) => left == right,
            _ => false,
        }
    }

    fn is_less(&self, other: &Self) -> bool {
        match (self, other) {
            (View::Number(left), View::Number(right)) => number::compare(left, right) == Ordering::Less,
            // UTF-8 keeps the order of code points.
            (View::Text(left), View::Text(right)) => left < right,
            _ => false,
        }
    }
}

/// Programs of patterns, the newest last; none for what is no pattern.
#[derive(Debug, Default)]
pub(super) struct Patterns(Vec<(bool, String, Option<Regex>)>);

impl Patterns {
    fn find(&self, pattern: &str, is_whole: bool) -> Option<Option<Regex>> {
        let known = self.0.iter().find(|(of, text, _)| *of == is_whole && text == pattern);
        known.map(|(_, _, program)| program.clone())
    }

    fn keep(&mut self, pattern: &str, is_whole: bool, program: Option<Regex>) {
        if self.0.len() >= PATTERNS_KEPT {
            self.0.remove(0);
        }
        self.0.push((is_whole, pattern.to_owned(), program));
    }
}

impl<'q, L: Look> Running<'q, L> {
    /// Whether a filter holds of this node.
    pub(super) fn holds(&self, logic: &'q Logic, node: &Item) -> Result<bool, DocsError> {
        match logic {
            Logic::Any(any) => {
                for logic in any {
                    if self.holds(logic, node)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Logic::All(all) => {
                for logic in all {
                    if !self.holds(logic, node)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Logic::Not(logic) => Ok(!self.holds(logic, node)?),
            Logic::Exists(query) => Ok(self.within(query, node).next(self)?.is_some()),
            Logic::Compare(left, relation, right) => {
                self.compare(&self.value(left, node)?, *relation, &self.value(right, node)?)
            }
            Logic::Match { text, pattern, is_whole } => {
                self.matches(&self.value(text, node)?, &self.value(pattern, node)?, *is_whole)
            }
        }
    }

    /// A query within a filter.
    fn within(&self, query: &'q Query, node: &Item) -> Walk<'q> {
        let from = if query.is_absolute { self.root.clone() } else { Some(node.clone()) };
        Walk::new(query, from, false)
    }

    fn value(&self, operand: &'q Operand, node: &Item) -> Result<Value<'q>, DocsError> {
        let number = |number: u64| Value::Number(Cow::Owned(number.to_string()));
        Ok(match operand {
            Operand::Null => Value::Null,
            Operand::Bool(value) => Value::Bool(*value),
            Operand::Number(digits) => Value::Number(Cow::Borrowed(digits)),
            Operand::Text(text) => Value::Text(text),
            Operand::Node(query) => {
                self.within(query, node).next(self)?.map_or(Value::Nothing, |spot| Value::Node(spot.item))
            }
            Operand::Length(operand) => match self.value(operand, node)?.view() {
                View::Text(text) => {
                    self.walk_over(text)?;
                    number(u64::try_from(text.chars().count()).unwrap_or(u64::MAX))
                }
                View::Container(node) => number(node.children),
                _ => Value::Nothing,
            },
            Operand::Count(query) => {
                let mut walk = self.within(query, node);
                let mut count = 0;
                while walk.next(self)?.is_some() {
                    count += 1;
                }
                number(count)
            }
            Operand::Value(query) => {
                let mut walk = self.within(query, node);
                match (walk.next(self)?, walk.next(self)?) {
                    (Some(spot), None) => Value::Node(spot.item),
                    _ => Value::Nothing,
                }
            }
        })
    }

    fn compare(&self, left: &Value<'q>, relation: Relation, right: &Value<'q>) -> Result<bool, DocsError> {
        let (a, b) = (left.view(), right.view());
        self.walk_over(a.text())?;
        self.walk_over(b.text())?;
        let is_equal = || match (&a, &b) {
            (View::Container(left), View::Container(right)) => self.is_same(left, right),
            (left, right) => Ok(left.is_equal(right)),
        };
        Ok(match relation {
            Relation::Equal => is_equal()?,
            Relation::NotEqual => !is_equal()?,
            Relation::Less => a.is_less(&b),
            Relation::Greater => b.is_less(&a),
            Relation::LessOrEqual => a.is_less(&b) || is_equal()?,
            Relation::GreaterOrEqual => b.is_less(&a) || is_equal()?,
        })
    }

    fn matches(&self, text: &Value<'q>, pattern: &Value<'q>, is_whole: bool) -> Result<bool, DocsError> {
        let (View::Text(text), View::Text(pattern)) = (text.view(), pattern.view()) else { return Ok(false) };
        self.walk_over(text)?;
        let program = self.program(pattern, is_whole)?;
        Ok(program.is_some_and(|program| program.is_match(text)))
    }

    /// What looking at all of a text costs.
    fn walk_over(&self, text: &str) -> Result<(), DocsError> {
        self.step(length(text.as_bytes()) / TEXT_BYTES_STEP)
    }

    /// The program of a pattern. Making it costs what it may become: a document can bring a new pattern with each node.
    fn program(&self, pattern: &str, is_whole: bool) -> Result<Option<Regex>, DocsError> {
        if let Some(known) = self.patterns.borrow().find(pattern, is_whole) {
            return Ok(known);
        }
        let limit = u64::from(self.limits.regex_bytes_max);
        let mut bytes = PROGRAM_BYTES_FIRST.min(limit);
        let program = loop {
            self.step((length(pattern.as_bytes()) + bytes) / PROGRAM_BYTES_STEP)?;
            match compile(pattern, is_whole, usize::try_from(bytes).unwrap_or(usize::MAX)) {
                Ok(program) => break Some(program),
                Err(Refused::NotOne) => break None,
                Err(Refused::TooLarge) if bytes < limit => bytes = (4 * bytes).min(limit),
                Err(Refused::TooLarge) => {
                    within("a regular expression of a query, with its program,", limit + 1, limit)?;
                }
            }
        };
        self.patterns.borrow_mut().keep(pattern, is_whole, program.clone());
        Ok(program)
    }

    /// Whether two containers have the same values; the order of members means nothing.
    fn is_same(&self, left: &Node, right: &Node) -> Result<bool, DocsError> {
        let mut open = vec![(*left, *right)];
        while let Some((left, right)) = open.pop() {
            if left.key == right.key {
                continue;
            }
            if (left.kind, left.children) != (right.kind, right.children) {
                return Ok(false);
            }
            let names = if right.kind == Kind::Object { self.members(&right)? } else { BTreeMap::new() };
            let (mut next, mut beside) = (left.first, right.first);
            while let Some(key) = next {
                let child = self.item(key)?;
                let other = if left.kind == Kind::Object {
                    let name = self.look.name(&child.node)?;
                    name.and_then(|name| names.get(name.as_str()).copied())
                } else {
                    beside
                };
                let Some(other) = other else { return Ok(false) };
                let other = self.item(other)?;
                self.walk_over(child.text())?;
                self.walk_over(other.text())?;
                (next, beside) = (child.node.right, other.node.right);
                match (View::of(&child), View::of(&other)) {
                    (View::Container(left), View::Container(right)) => open.push((*left, *right)),
                    (left, right) if left.is_equal(&right) => {}
                    _ => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    /// The members of an object by their names.
    fn members(&self, object: &Node) -> Result<BTreeMap<String, NodeKey>, DocsError> {
        let mut members = BTreeMap::new();
        let mut next = object.first;
        while let Some(key) = next {
            let node = self.item(key)?.node;
            let name = self.look.name(&node)?;
            members.insert(name.as_ref().map_or("", Text::as_str).to_owned(), key);
            next = node.right;
        }
        Ok(members)
    }
}
