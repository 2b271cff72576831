//! A new version of a document as it was read: values without keys.
//!
//! Walk: [`Sketch::read`] · [`Sketch::children`] · [`Sketch::plant`] makes nodes of a value.
//! Deliberately absent: changes.

use std::collections::HashSet;
use std::io::Read;
use std::ops::Range;

use crate::DocsError;
use crate::build::Build;
use crate::edit::{Edit, Value};
use crate::error::within;
use crate::import::content;
use crate::node::Kind;
use crate::parse::{Takes, fill};
use crate::record::length;

/// What a value takes in memory beside its texts, about: itself, and of a member its name once more.
const VALUE_BYTES: u64 = 128;

/// One value.
#[derive(Debug)]
struct Sketched {
    kind: Kind,
    name: Option<Range<usize>>,
    text: Range<usize>,
    first: Option<usize>,
    next: Option<usize>,
    hash: u64,
}

/// All values, in document order.
#[derive(Debug, Default)]
pub(super) struct Sketch {
    values: Vec<Sketched>,
    texts: String,
}

impl Sketch {
    /// Reads one value as JSON. What an edit would refuse is refused.
    pub(super) fn read(edit: &Edit, json: impl Read) -> Result<Self, DocsError> {
        let mut sketching = Sketching { edit, sketch: Sketch::default(), open: Vec::new(), bytes: 0, is_done: false };
        fill(&mut sketching, None, json, edit.store.config.text_bytes_max)?;
        if !sketching.is_done {
            return Err(DocsError::Json { what: "a value was expected".to_owned() });
        }
        Ok(sketching.sketch)
    }

    fn get(&self, at: usize) -> Option<&Sketched> {
        self.values.get(at)
    }

    fn string(&self, range: &Range<usize>) -> &str {
        self.texts.get(range.clone()).unwrap_or_default()
    }

    pub(super) fn kind(&self, at: usize) -> Kind {
        self.get(at).map_or(Kind::Null, |value| value.kind)
    }

    pub(super) fn hash(&self, at: usize) -> u64 {
        self.get(at).map_or(0, |value| value.hash)
    }

    pub(super) fn name(&self, at: usize) -> Option<&str> {
        self.get(at)?.name.as_ref().map(|name| self.string(name))
    }

    pub(super) fn text(&self, at: usize) -> &str {
        self.get(at).map_or("", |value| self.string(&value.text))
    }

    pub(super) fn children(&self, at: usize) -> Vec<usize> {
        std::iter::successors(self.get(at).and_then(|value| value.first), |at| self.get(*at)?.next).collect()
    }

    pub(super) fn value(&self, at: usize) -> Value<'_> {
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

    /// Makes nodes of a value with all that is in it.
    pub(super) fn plant(&self, build: &mut Build<'_>, top: usize) -> Result<(), DocsError> {
        let mut open = Vec::new();
        let mut next = Some(top);
        loop {
            let Some(at) = next else {
                let Some(done) = open.pop() else { return Ok(()) };
                build.close()?;
                next = if done == top { None } else { self.get(done).and_then(|value| value.next) };
                continue;
            };
            if self.kind(at).is_container() {
                build.open(self.value(at), self.name(at))?;
                open.push(at);
                next = self.get(at).and_then(|value| value.first);
            } else {
                build.leaf(self.value(at), self.name(at))?;
                next = if at == top { None } else { self.get(at).and_then(|value| value.next) };
            }
        }
    }
}

/// A container that is being read.
struct Open {
    at: usize,
    last: Option<usize>,
    names: HashSet<String>,
    sum: u64,
}

struct Sketching<'e> {
    edit: &'e Edit,
    sketch: Sketch,
    open: Vec<Open>,
    bytes: u64,
    is_done: bool,
}

impl Sketching<'_> {
    fn add(&mut self, value: Value<'_>, name: Option<&str>) -> Result<usize, DocsError> {
        let (kind, text) = value.parts();
        let levels = u64::try_from(self.open.len() + 1).unwrap_or(u64::MAX);
        within("nesting", levels, self.edit.store.config.depth_max.into())?;
        self.edit.check_text(kind, text, name)?;
        if self.is_done {
            return Err(DocsError::Json { what: "one value was expected, another one follows".to_owned() });
        }
        let of_texts = length(text.as_bytes()).saturating_add(2 * name.map_or(0, |name| length(name.as_bytes())));
        self.bytes = self.bytes.saturating_add(VALUE_BYTES).saturating_add(of_texts);
        within("an import's memory", self.bytes, self.edit.store.config.import_bytes_max)?;
        let Sketch { values, texts } = &mut self.sketch;
        let at = values.len();
        let mut keep = |text: &str| {
            texts.push_str(text);
            texts.len() - text.len()..texts.len()
        };
        let (name_at, text_at) = (name.map(&mut keep), keep(text));
        let hash = content::leaf(kind, text);
        values.push(Sketched { kind, name: name_at, text: text_at, first: None, next: None, hash });
        if let Some(open) = self.open.last_mut() {
            if let Some(name) = name
                && !open.names.insert(name.to_owned())
            {
                return Err(DocsError::Json { what: format!("an object has two members {name:?}") });
            }
            let before = open.last.replace(at);
            if let Some(above) = values.get_mut(open.at).filter(|_| before.is_none()) {
                above.first = Some(at);
            }
            if let Some(before) = before.and_then(|before| values.get_mut(before)) {
                before.next = Some(at);
            }
        }
        Ok(at)
    }

    /// A value is whole: the container that it is in counts it.
    fn done(&mut self, at: usize) {
        let hash = self.sketch.hash(at);
        let Some(open) = self.open.last_mut() else {
            self.is_done = true;
            return;
        };
        open.sum = match self.sketch.name(at) {
            Some(name) => content::member(open.sum, name, hash),
            None => content::item(open.sum, hash),
        };
    }
}

impl Takes for Sketching<'_> {
    fn open(&mut self, value: Value<'_>, name: Option<&str>) -> Result<(), DocsError> {
        let at = self.add(value, name)?;
        self.open.push(Open { at, last: None, names: HashSet::new(), sum: 0 });
        Ok(())
    }

    fn leaf(&mut self, value: Value<'_>, name: Option<&str>) -> Result<(), DocsError> {
        let at = self.add(value, name)?;
        self.done(at);
        Ok(())
    }

    fn close(&mut self) -> Result<(), DocsError> {
        let Some(Open { at, sum, .. }) = self.open.pop() else { return Ok(()) };
        if let Some(value) = self.sketch.values.get_mut(at) {
            value.hash = content::container(value.kind, sum);
        }
        self.done(at);
        Ok(())
    }
}
