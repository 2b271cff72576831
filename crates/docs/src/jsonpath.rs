//! JSONPath (RFC 9535) over the stored form of any revision: results come one by one, each with its node's key.
//!
//! ```text
//!   text -> syntax tree, well-typed by construction -> a stack of what is still to be selected -> nodes      (parse, syntax, walk)
//!   filters: numbers by their digits, I-Regexp in linear time, containers node by node              (filter, number, regexp)
//! ```
//! Walk: [`JsonPath::parse`] · [`JsonPath::query`] gives [`Matches`], an iterator · [`Match::path`] is the way to a result.
//! Deliberately absent: lists of nodes, changes, extensions of the language. Nothing is read that the query does not ask for.

mod filter;
pub(crate) mod number;
mod parse;
mod regexp;
mod syntax;
mod walk;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::iter::FusedIterator;
use std::str::FromStr;

use self::filter::Patterns;
use self::syntax::Query;
use self::walk::{Place, Spot, Walk};
use crate::DocsError;
use crate::config::DEPTH_MAX;
use crate::error::within;
use crate::look::{Item, Look, Text};
use crate::node::NodeKey;

/// What a query may cost. Beyond it the query fails, so that nobody takes a part of the results for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// So deep into the document; its value is at depth 1.
    pub depth_max: u32,
    /// So many results.
    pub results_max: u64,
    /// So many nodes looked at, by filters too.
    pub steps_max: u64,
    /// Bytes of a regular expression and of the program that it becomes.
    pub regex_bytes_max: u32,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self { depth_max: DEPTH_MAX, results_max: 1 << 20, steps_max: 100_000_000, regex_bytes_max: 1 << 20 }
    }
}

/// A query that has been read. It is of no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath {
    text: String,
    query: Query,
}

impl JsonPath {
    /// Reads a query.
    ///
    /// # Errors
    /// [`DocsError::Query`] with the character where it is wrong; [`DocsError::Size`] for one of more than 64 KiB, or with more than
    /// 64 filters, parentheses and calls within each other.
    pub fn parse(text: &str) -> Result<Self, DocsError> {
        Ok(Self { query: parse::parse(text)?, text: text.to_owned() })
    }

    /// What it selects from a revision, or from an edit under way. Nothing is selected before it is asked for.
    ///
    /// # Errors
    /// As [`Look::find`], for the document's value.
    pub fn query<'q, L: Look>(&'q self, look: &'q L, limits: QueryLimits) -> Result<Matches<'q, L>, DocsError> {
        let root = look.value().map(|value| look.item(value)).transpose()?;
        let walk = Some(Walk::new(&self.query, root.clone(), true));
        let running = Running { look, root, limits, steps: Cell::new(0), patterns: RefCell::default() };
        Ok(Matches { running, walk, results: 0 })
    }
}

impl FromStr for JsonPath {
    type Err = DocsError;

    fn from_str(text: &str) -> Result<Self, DocsError> {
        Self::parse(text)
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What a query under way shares with those in its filters.
#[derive(Debug)]
struct Running<'q, L> {
    look: &'q L,
    root: Option<Item>,
    limits: QueryLimits,
    steps: Cell<u64>,
    patterns: RefCell<Patterns>,
}

impl<L: Look> Running<'_, L> {
    fn step(&self, steps: u64) -> Result<(), DocsError> {
        self.steps.set(self.steps.get().saturating_add(steps));
        within("steps of a query", self.steps.get(), self.limits.steps_max)
    }

    fn item(&self, key: NodeKey) -> Result<Item, DocsError> {
        self.step(1)?;
        self.look.item(key)
    }
}

/// A node that a query has selected.
#[derive(Clone, Debug)]
pub struct Match {
    spot: Spot,
}

impl Match {
    /// The node, with its text if it has one.
    #[must_use]
    pub const fn item(&self) -> &Item {
        &self.spot.item
    }

    /// Its key; a [`Form`](crate::Form) that starts there writes its value.
    #[must_use]
    pub const fn key(&self) -> NodeKey {
        self.spot.item.node.key
    }

    /// The one normalized path to it (RFC 9535, 2.7): `$['name'][0]`. Of the revision that was queried.
    ///
    /// # Errors
    /// As [`Look::find`].
    pub fn path<L: Look>(&self, look: &L) -> Result<String, DocsError> {
        let mut path = "$".to_owned();
        for place in self.spot.places() {
            match place {
                Place::Index(index) => path.extend(["[", &index.to_string(), "]"]),
                Place::Member(of) => {
                    let named = look.path(of)?;
                    let name = named.as_ref().map_or("", |named| Text::as_str(&named.name));
                    path.push_str("['");
                    name.chars().for_each(|character| lay(&mut path, character));
                    path.push_str("']");
                }
            }
        }
        Ok(path)
    }
}

/// A character of a name within a normalized path.
fn lay(path: &mut String, character: char) {
    match character {
        '\u{8}' => path.push_str("\\b"),
        '\t' => path.push_str("\\t"),
        '\n' => path.push_str("\\n"),
        '\u{c}' => path.push_str("\\f"),
        '\r' => path.push_str("\\r"),
        '\'' => path.push_str("\\'"),
        '\\' => path.push_str("\\\\"),
        control if control < ' ' => path.push_str(&format!("\\u{:04x}", u32::from(control))),
        other => path.push(other),
    }
}

/// The results of a query, one by one, in the order of the list that the query stands for. An error is the last of them.
#[derive(Debug)]
pub struct Matches<'q, L> {
    running: Running<'q, L>,
    walk: Option<Walk<'q>>,
    results: u64,
}

impl<L: Look> Matches<'_, L> {
    /// How many nodes have been looked at so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.running.steps.get()
    }

    fn step(&mut self) -> Result<Option<Match>, DocsError> {
        let Self { running, walk, results } = self;
        let Some(walk) = walk else { return Ok(None) };
        let Some(spot) = walk.next(running)? else { return Ok(None) };
        *results = results.saturating_add(1);
        within("results of a query", *results, running.limits.results_max)?;
        Ok(Some(Match { spot }))
    }
}

impl<L: Look> Iterator for Matches<'_, L> {
    type Item = Result<Match, DocsError>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.step().transpose();
        if !matches!(found, Some(Ok(_))) {
            self.walk = None;
        }
        found
    }
}

impl<L: Look> FusedIterator for Matches<'_, L> {}

/// Any text for a query, a pattern and two numbers: an answer, in bounded time.
pub(crate) fn fuzz(text: &str) {
    if let Ok(path) = JsonPath::parse(text) {
        assert_eq!(JsonPath::parse(&path.to_string()), Ok(path));
    }
    for is_whole in [true, false] {
        _ = regexp::compile(text, is_whole, 1 << 16).map(|program| program.is_match(text));
    }
    if let Some((left, right)) = text.split_once(' ')
        && crate::edit::is_number(left)
        && crate::edit::is_number(right)
    {
        assert_eq!(number::compare(left, right), number::compare(right, left).reverse());
    }
}
