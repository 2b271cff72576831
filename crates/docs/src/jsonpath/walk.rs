//! Walking a document as a query says: nodes come one by one, in the order of the list that the query stands for.
//!
//! ```text
//!   stack: what is still to be selected, the nearest last · taken off: a node, that the next segment selects from ·
//!   selectors, one after the other · siblings, one after the other · whatever has passed all segments is a result
//! ```
//! Walk: [`Walk::next`] takes off and puts on until there is a result · [`Spot`] is a node with the way to it.
//! Deliberately absent: recursion over the document, lists of nodes. The memory is that of the way down.

use std::sync::Arc;

use crate::DocsError;
use crate::error::within;
use crate::jsonpath::Running;
use crate::jsonpath::syntax::{Logic, Query, Segment, Selector};
use crate::look::{Item, Look};
use crate::node::{Kind, NodeKey};
use crate::path::PathId;

/// One step down, with those above it.
#[derive(Debug)]
pub(super) struct Step {
    above: Option<Arc<Step>>,
    pub(super) place: Place,
}

/// Where a node is in its parent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// The member whose name this path ends with.
    Member(PathId),
    Index(u64),
}

impl Drop for Step {
    /// One after the other: a long way down is not a deep recursion.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(step) = above {
            above = Arc::into_inner(step).and_then(|mut step| step.above.take());
        }
    }
}

/// A node with the way to it.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) item: Item,
    way: Option<Arc<Step>>,
    depth: u32,
}

impl Spot {
    pub(super) const fn new(item: Item) -> Self {
        Self { item, way: None, depth: 1 }
    }

    /// The steps to it, the first one first.
    pub(super) fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        let mut next = self.way.as_ref();
        while let Some(step) = next {
            places.push(step.place);
            next = step.above.as_ref();
        }
        places.reverse();
        places
    }
}

/// Which of a node's children are taken.
#[derive(Clone, Copy, Debug)]
enum How<'q> {
    All,
    /// Those of which it holds.
    Filter(&'q Logic),
    /// All, and the same segment selects from each again.
    Descend,
    /// So many more, this far apart, perhaps backwards.
    Every {
        left: u64,
        stride: u64,
        is_backward: bool,
    },
}

#[derive(Debug)]
enum Task<'q> {
    /// The segment selects from this node; behind the last one it is a result.
    Take { spot: Spot, segment: usize },
    /// The selectors of the segment from this one on select children of the node.
    Select { spot: Spot, segment: usize, selector: usize },
    /// Children of the node from this one on.
    Children { of: Spot, next: Option<NodeKey>, index: u64, segment: usize, how: How<'q> },
}

/// A query under way.
#[derive(Debug)]
pub(super) struct Walk<'q> {
    segments: &'q [Segment],
    stack: Vec<Task<'q>>,
    /// The way to each node is kept.
    is_traced: bool,
}

impl<'q> Walk<'q> {
    /// From this node on; from none there is nothing.
    pub(super) fn new(query: &'q Query, from: Option<Item>, is_traced: bool) -> Self {
        let stack = from.map(|item| Task::Take { spot: Spot::new(item), segment: 0 }).into_iter().collect();
        Self { segments: &query.segments, stack, is_traced }
    }

    /// The next node that the query selects.
    pub(super) fn next<L: Look>(&mut self, running: &Running<'q, L>) -> Result<Option<Spot>, DocsError> {
        while let Some(task) = self.stack.pop() {
            match task {
                Task::Take { spot, segment } => {
                    let Some(Segment { descends, .. }) = self.segments.get(segment) else { return Ok(Some(spot)) };
                    if !spot.item.node.kind.is_container() {
                        continue;
                    }
                    if *descends {
                        let next = spot.item.node.first;
                        self.stack.push(Task::Children {
                            of: spot.clone(),
                            next,
                            index: 0,
                            segment,
                            how: How::Descend,
                        });
                    }
                    self.stack.push(Task::Select { spot, segment, selector: 0 });
                }
                Task::Select { spot, segment, selector } => self.select(running, spot, segment, selector)?,
                Task::Children { of, next: Some(key), index, segment, how } => {
                    self.child(running, &of, key, (index, segment, how))?;
                }
                Task::Children { next: None, .. } => {}
            }
        }
        Ok(None)
    }

    fn select<L: Look>(
        &mut self,
        running: &Running<'q, L>,
        spot: Spot,
        segment: usize,
        selector: usize,
    ) -> Result<(), DocsError> {
        let segments = self.segments;
        let selectors = segments.get(segment).map_or(&[][..], |segment| segment.selectors.as_slice());
        let Some(selected) = selectors.get(selector) else { return Ok(()) };
        if selector + 1 < selectors.len() {
            self.stack.push(Task::Select { spot: spot.clone(), segment, selector: selector + 1 });
        }
        let node = spot.item.node;
        let is_array = node.kind == Kind::Array;
        let all = |how| Task::Children { next: node.first, of: spot.clone(), index: 0, segment: segment + 1, how };
        match selected {
            Selector::Wildcard => self.stack.push(all(How::All)),
            Selector::Filter(logic) => self.stack.push(all(How::Filter(logic))),
            Selector::Name(name) if !is_array => {
                // Each may have to be looked at.
                running.step(node.children)?;
                if let Some(key) = running.look.member(node.key, name)? {
                    let spot = self.spot(running, &spot, running.item(key)?, 0)?;
                    self.stack.push(Task::Take { spot, segment: segment + 1 });
                }
            }
            Selector::Index(index) if is_array => {
                let from_end = || node.children.checked_sub(index.unsigned_abs());
                let index = u64::try_from(*index).ok().or_else(from_end).filter(|index| *index < node.children);
                if let Some(index) = index {
                    self.every(running, spot, (index, 1), 1, segment)?;
                }
            }
            Selector::Slice(slice) if is_array => {
                self.every(running, spot, slice.of(node.children), slice.step, segment)?;
            }
            Selector::Name(_) | Selector::Index(_) | Selector::Slice(_) => {}
        }
        Ok(())
    }

    /// Leaves children of an array for later: the index of the first one and how many, this far apart.
    fn every<L: Look>(
        &mut self,
        running: &Running<'q, L>,
        of: Spot,
        (index, left): (u64, u64),
        step: i64,
        segment: usize,
    ) -> Result<(), DocsError> {
        if left > 0 {
            let next = nth(running, &of.item, index)?;
            let how = How::Every { left, stride: step.unsigned_abs(), is_backward: step < 0 };
            self.stack.push(Task::Children { of, next, index, segment: segment + 1, how });
        }
        Ok(())
    }

    /// Takes one child, and leaves those behind it for later.
    fn child<L: Look>(
        &mut self,
        running: &Running<'q, L>,
        of: &Spot,
        key: NodeKey,
        (index, segment, how): (u64, usize, How<'q>),
    ) -> Result<(), DocsError> {
        let item = running.item(key)?;
        let (next, further, behind) = match how {
            How::All | How::Filter(_) | How::Descend => (item.node.right, index.saturating_add(1), how),
            How::Every { left, .. } if left <= 1 => (None, index, how),
            How::Every { left, stride, is_backward } => {
                let next = hop(running, &item, stride, is_backward)?;
                let further = if is_backward { index.checked_sub(stride) } else { index.checked_add(stride) };
                (next, further.unwrap_or(index), How::Every { left: left - 1, stride, is_backward })
            }
        };
        if next.is_some() {
            self.stack.push(Task::Children { of: of.clone(), next, index: further, segment, how: behind });
        }
        let is_taken = match how {
            How::Descend => item.node.kind.is_container(),
            How::Filter(logic) => running.holds(logic, &item)?,
            How::All | How::Every { .. } => true,
        };
        if is_taken {
            let spot = self.spot(running, of, item, index)?;
            self.stack.push(Task::Take { spot, segment });
        }
        Ok(())
    }

    /// A child with the way to it.
    fn spot<L: Look>(&self, running: &Running<'q, L>, of: &Spot, item: Item, index: u64) -> Result<Spot, DocsError> {
        let depth = of.depth.saturating_add(1);
        within("the depth that a query goes to", depth.into(), running.limits.depth_max.into())?;
        let way = self.is_traced.then(|| {
            let place = match of.item.node.kind {
                Kind::Array => Place::Index(index),
                _ => Place::Member(item.node.path),
            };
            Arc::new(Step { above: of.way.clone(), place })
        });
        Ok(Spot { item, way, depth })
    }
}

/// The child of an array at this index, from whichever end is nearer.
fn nth<L: Look>(running: &Running<'_, L>, of: &Item, index: u64) -> Result<Option<NodeKey>, DocsError> {
    let from_end = of.node.children.saturating_sub(1).saturating_sub(index);
    let (end, steps, is_backward) =
        if index <= from_end { (of.node.first, index, false) } else { (of.node.last, from_end, true) };
    match end {
        Some(key) if steps > 0 => hop(running, &running.item(key)?, steps, is_backward),
        end => Ok(end),
    }
}

/// So many siblings on.
fn hop<L: Look>(
    running: &Running<'_, L>,
    from: &Item,
    steps: u64,
    is_backward: bool,
) -> Result<Option<NodeKey>, DocsError> {
    let mut key = if is_backward { from.node.left } else { from.node.right };
    for _ in 1..steps {
        let Some(at) = key else { break };
        let node = running.item(at)?.node;
        key = if is_backward { node.left } else { node.right };
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_of_a_million_steps_is_dropped_without_recursion() {
        let mut above = None;
        for index in 0..1_000_000 {
            above = Some(Arc::new(Step { above, place: Place::Index(index) }));
        }
        let other = above.as_ref().and_then(|step| step.above.clone());
        drop(above);
        assert!(other.is_some_and(|step| matches!(step.place, Place::Index(999_998))));
    }
}
