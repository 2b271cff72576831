//! Pairing the values of an array with those of its new version.
//!
//! Walk: [`values`] pairs equal ones in order, equal ones elsewhere, then in each gap what is probably the same one.
//! Deliberately absent: pairs of different sorts. An object never becomes a number by being set.

use std::collections::{HashMap, VecDeque};

use crate::DocsError;
use crate::align::common;
use crate::edit::Edit;
use crate::import::content::{self, Memory};
use crate::import::sketch::Sketch;
use crate::look::{Look, Text};
use crate::node::{Kind, Node, NodeKey};

/// A child of the new version, and who it was: its place among the old ones and its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) old: Option<(usize, NodeKey)>,
    pub(super) new: usize,
    /// It need not be moved among its siblings.
    pub(super) stays: bool,
}

/// Whether one can become the other with its key.
pub(super) fn are_alike(old: Kind, new: Kind) -> bool {
    old == new || !(old.is_container() || new.is_container())
}

/// For each new value, in order, who it was.
pub(super) fn values(
    edit: &Edit,
    sketch: &Sketch,
    memory: &mut Memory,
    olds: &[Node],
    news: &[usize],
) -> Result<Vec<Pair>, DocsError> {
    let old_hashes = olds.iter().map(|node| memory.of(edit, node.key)).collect::<Result<Vec<_>, _>>()?;
    let new_hashes: Vec<u64> = news.iter().map(|new| sketch.hash(*new)).collect();
    let mut pairing = Pairing {
        edit,
        sketch,
        olds,
        pairs: news.iter().map(|new| Pair { old: None, new: *new, stays: false }).collect(),
        is_free: vec![true; olds.len()],
    };
    let mut anchors = common(&old_hashes, &new_hashes);
    // Hashes pair, kinds decide: a collision must not make a number of an object.
    anchors.retain(|(old, new)| pairing.fit(*old, *new));
    anchors.iter().for_each(|(old, new)| pairing.join(*old, *new, true));
    pairing.elsewhere(&old_hashes, &new_hashes);
    let end = (olds.len(), news.len());
    let mut from = (0, 0);
    for (old, new) in anchors.into_iter().chain([end]) {
        pairing.gap(from, (old, new))?;
        from = (old + 1, new + 1);
    }
    Ok(pairing.pairs)
}

struct Pairing<'a> {
    edit: &'a Edit,
    sketch: &'a Sketch,
    olds: &'a [Node],
    pairs: Vec<Pair>,
    /// Of each old one, whether it is nobody's.
    is_free: Vec<bool>,
}

impl Pairing<'_> {
    fn join(&mut self, old: usize, new: usize, stays: bool) {
        let Some(node) = self.olds.get(old) else { return };
        if let (Some(pair), Some(is_free)) = (self.pairs.get_mut(new), self.is_free.get_mut(old)) {
            (pair.old, pair.stays, *is_free) = (Some((old, node.key)), stays, false);
        }
    }

    /// Equal values out of their order.
    fn elsewhere(&mut self, olds: &[u64], news: &[u64]) {
        let mut free: HashMap<u64, VecDeque<usize>> = HashMap::new();
        for (old, hash) in olds.iter().enumerate() {
            if self.is_free.get(old).copied().unwrap_or_default() {
                free.entry(*hash).or_default().push_back(old);
            }
        }
        for (new, hash) in news.iter().enumerate() {
            let is_open = self.pairs.get(new).is_some_and(|pair| pair.old.is_none());
            let old = free.get_mut(hash).filter(|_| is_open).and_then(VecDeque::pop_front);
            if let Some(old) = old.filter(|old| self.fit(*old, new)) {
                self.join(old, new, false);
            }
        }
    }

    fn fit(&self, old: usize, new: usize) -> bool {
        let kinds = self.olds.get(old).zip(self.pairs.get(new));
        kinds.is_some_and(|(node, pair)| are_alike(node.kind, self.sketch.kind(pair.new)))
    }

    /// Pairs what is between two pairs that stay.
    fn gap(&mut self, from: (usize, usize), to: (usize, usize)) -> Result<(), DocsError> {
        let olds: Vec<usize> = (from.0..to.0).filter(|old| self.is_free.get(*old) == Some(&true)).collect();
        let is_open = |new: &usize| self.pairs.get(*new).is_some_and(|pair| pair.old.is_none());
        let news: Vec<usize> = (from.1..to.1).filter(is_open).collect();
        let mut known = Vec::new();
        for old in &olds {
            if let Some(hash) = self.first_of_old(*old)? {
                known.push((*old, hash));
            }
        }
        let (old_places, old_hashes): (Vec<usize>, Vec<u64>) = known.into_iter().unzip();
        let (new_places, new_hashes): (Vec<usize>, Vec<u64>) =
            news.iter().filter_map(|new| Some((*new, self.first_of_new(*new)?))).unzip();
        let mut inner: Vec<(usize, usize)> = common(&old_hashes, &new_hashes)
            .into_iter()
            .filter_map(|(old, new)| Some((*old_places.get(old)?, *new_places.get(new)?)))
            .collect();
        inner.push(to);
        let mut start = from;
        for (old, new) in inner {
            self.one_by_one(between(&olds, start.0, old), between(&news, start.1, new));
            if (old, new) != to {
                self.join(old, new, true);
            }
            start = (old + 1, new + 1);
        }
        Ok(())
    }

    /// Pairs what is of one sort, in order.
    fn one_by_one(&mut self, olds: &[usize], news: &[usize]) {
        let sort = |kind: Kind| u64::from(if kind.is_container() { kind.number() } else { 0 });
        let kind_of = |old: &usize| self.olds.get(*old).map_or(Kind::Null, |node| node.kind);
        let old_sorts: Vec<u64> = olds.iter().map(|old| sort(kind_of(old))).collect();
        let new_kind = |new: &usize| self.pairs.get(*new).map_or(Kind::Null, |pair| self.sketch.kind(pair.new));
        let new_sorts: Vec<u64> = news.iter().map(|new| sort(new_kind(new))).collect();
        for (old, new) in common(&old_sorts, &new_sorts) {
            if let (Some(old), Some(new)) = (olds.get(old), news.get(new)) {
                self.join(*old, *new, true);
            }
        }
    }

    /// What the first member of an object says, if it is no container.
    fn first_of_old(&self, old: usize) -> Result<Option<u64>, DocsError> {
        let node = self.olds.get(old).filter(|node| node.kind == Kind::Object);
        let Some(first) = node.and_then(|node| node.first) else { return Ok(None) };
        let item = self.edit.item(first)?;
        let name = self.edit.name(&item.node)?;
        let hash = content::leaf(item.node.kind, item.text());
        let told = content::member(0, name.as_ref().map_or("", Text::as_str), hash);
        Ok((!item.node.kind.is_container()).then_some(told))
    }

    fn first_of_new(&self, new: usize) -> Option<u64> {
        let value = self.pairs.get(new)?.new;
        let first = *self.sketch.children(value).first().filter(|_| self.sketch.kind(value) == Kind::Object)?;
        let is_leaf = !self.sketch.kind(first).is_container();
        is_leaf.then(|| content::member(0, self.sketch.name(first).unwrap_or_default(), self.sketch.hash(first)))
    }
}

/// Those of rising places that are in a range.
fn between(places: &[usize], from: usize, to: usize) -> &[usize] {
    let (start, end) = (places.partition_point(|at| *at < from), places.partition_point(|at| *at < to));
    places.get(start..end).unwrap_or_default()
}
