//! A walk over many sources as if they were one: equal keys show once, as the newest of them.
//!
//! Walk: the sources stand in a heap, the nearest key on top, each with the front of its key, by which most are told apart · [`Merged::advance`] moves all that stand on the shown key and
//! tells of those that did not show · a source that is on top twice moves alone, up to where the next one stands · a turn round looks
//! up every source at the shown key once.
//! The newest has the greatest `seq`; of equal ones it is that of the source that was named first.
//! Deliberately absent: tombstones and erased ranges. They are entries like others here; who looks decides what they hide.

use std::cmp::Ordering;
use std::fmt;

use crate::entry::Cursor;
use crate::{Entry, RunsError};

/// Where a walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Onward,
    Back,
}

/// A walk over many sources.
pub(crate) struct Merged {
    sources: Vec<Box<dyn Cursor>>,
    /// The sources that stand on an entry; none stands before the one that it was moved up by.
    heap: Vec<Standing>,
    way: Way,
    /// The key that is being left.
    leaving: Vec<u8>,
    /// Up to where the source on top moves alone, if it does.
    alone: Option<Fence>,
    /// The key where the next source stands.
    fence: Vec<u8>,
}

/// A source in the heap.
#[derive(Clone, Copy, Debug)]
struct Standing {
    source: usize,
    /// Of its key, turned round for a walk back: what is less shows first.
    front: u128,
}

/// The first bytes of a key. Of two that differ the lower one's key comes first: what is shorter is padded with zeroes, and a key stands before
/// all that it begins.
fn front(key: &[u8]) -> u128 {
    let padded = || {
        let mut padded = [0; size_of::<u128>()];
        padded.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        padded
    };
    u128::from_be_bytes(key.first_chunk().copied().unwrap_or_else(padded))
}

/// The same, as it stands in the heap.
fn standing(way: Way, key: &[u8]) -> u128 {
    match way {
        Way::Onward => front(key),
        Way::Back => !front(key),
    }
}

/// What a source that moves alone has before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    /// The key in `fence`.
    Key,
    /// Nothing: no other source stands anywhere.
    None,
}

impl fmt::Debug for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merged").field("sources", &self.sources.len()).field("way", &self.way).finish_non_exhaustive()
    }
}

impl Merged {
    /// Nowhere in these, the newest named first.
    pub(crate) fn new(sources: Vec<Box<dyn Cursor>>) -> Self {
        let (heap, alone) = (Vec::with_capacity(sources.len()), None);
        Merged { heap, sources, way: Way::Onward, leaving: Vec::new(), alone, fence: Vec::new() }
    }

    /// To the next key. Tells of each entry of the one that is left that did not show.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    pub(crate) fn advance(&mut self, hidden: &mut dyn FnMut(&Entry<'_>)) -> Result<(), RunsError> {
        self.go(Way::Onward, hidden)
    }

    /// To the next key of a way.
    fn go(&mut self, way: Way, hidden: &mut dyn FnMut(&Entry<'_>)) -> Result<(), RunsError> {
        self.moving(|walk| {
            if walk.way == way && walk.alone.is_some() {
                return walk.pass_alone();
            }
            if !walk.leave() {
                return Ok(());
            }
            if walk.way != way {
                walk.turn(way)?;
            }
            walk.pass(hidden)
        })
    }

    /// Moves the source on top, which no other one stands beside. At the fence the heap decides again.
    fn pass_alone(&mut self) -> Result<(), RunsError> {
        let Some(top) = self.heap.first_mut() else { return Ok(()) };
        let Some(source) = self.sources.get_mut(top.source) else { return Ok(()) };
        match self.way {
            Way::Onward => source.next()?,
            Way::Back => source.prev()?,
        }
        // Not kept while it moves alone, for nobody asks; what has come to the fence is asked for.
        let is_before = |key: &[u8]| match (self.alone, self.way) {
            (Some(Fence::Key), Way::Onward) => key < self.fence.as_slice(),
            (Some(Fence::Key), Way::Back) => key > self.fence.as_slice(),
            _ => true,
        };
        match source.key().map(is_before) {
            Some(true) => return Ok(()),
            Some(false) => top.front = source.key().map_or(0, |key| standing(self.way, key)),
            None => _ = self.heap.swap_remove(0),
        }
        self.alone = None;
        self.sink(0);
        Ok(())
    }

    /// The source on top moves alone from here on, if no other one stands on the key that it shows.
    fn stand_alone(&mut self) {
        let next = match self.heap.get(1..).unwrap_or_default() {
            [one, other, ..] if self.is_before(*other, *one) => Some(other),
            others => others.first(),
        };
        let next = next.and_then(|next| self.sources.get(next.source));
        self.alone = match next.and_then(|next| next.key()) {
            None => Some(Fence::None),
            Some(next) => {
                self.fence.clear();
                self.fence.extend_from_slice(next);
                let shown = self.top().and_then(|source| source.key());
                shown.is_some_and(|shown| shown != self.fence).then_some(Fence::Key)
            }
        };
    }

    /// Does something that ends at an entry, or nowhere; certainly nowhere after an error.
    fn moving(&mut self, walk: impl FnOnce(&mut Self) -> Result<(), RunsError>) -> Result<(), RunsError> {
        let moved = walk(self);
        if moved.is_err() {
            self.heap.clear();
            self.alone = None;
        }
        moved
    }

    /// Remembers the key that is shown. Whether there is one.
    fn leave(&mut self) -> bool {
        self.leaving.clear();
        let top = self.heap.first().and_then(|top| self.sources.get(top.source));
        top.and_then(|source| source.key()).is_some_and(|shown| {
            self.leaving.extend_from_slice(shown);
            true
        })
    }

    /// Looks every source up at the key that is left, for a walk the other way.
    fn turn(&mut self, way: Way) -> Result<(), RunsError> {
        for source in &mut self.sources {
            match way {
                Way::Onward => source.seek(&self.leaving)?,
                Way::Back => source.seek_back(Some(self.leaving.as_slice()))?,
            }
        }
        self.pile(way);
        Ok(())
    }

    /// Moves every source behind the key that is left.
    fn pass(&mut self, hidden: &mut dyn FnMut(&Entry<'_>)) -> Result<(), RunsError> {
        let mut is_shown = true;
        let top = self.heap.first().map(|top| top.source);
        let (way, left) = (self.way, standing(self.way, &self.leaving));
        while let Some(top) = self.heap.first_mut().filter(|top| top.front == left) {
            let Some(source) = self.sources.get_mut(top.source) else { break };
            if source.key() != Some(self.leaving.as_slice()) {
                break;
            }
            if !is_shown && let Some(entry) = source.entry() {
                hidden(&entry);
            }
            is_shown = false;
            match self.way {
                Way::Onward => source.next()?,
                Way::Back => source.prev()?,
            }
            match source.key() {
                Some(key) => top.front = standing(way, key),
                None => _ = self.heap.swap_remove(0),
            }
            self.sink(0);
        }
        // Once may be chance: sources that take turns would pay for a fence with each key.
        if self.heap.first().map(|top| top.source) == top {
            self.stand_alone();
        }
        Ok(())
    }

    /// The heap of all sources that stand somewhere.
    fn pile(&mut self, way: Way) {
        (self.way, self.alone) = (way, None);
        self.heap.clear();
        let keys = self.sources.iter().map(|source| source.key()).enumerate();
        let stands =
            |(source, key): (usize, Option<&[u8]>)| key.map(|key| Standing { source, front: standing(way, key) });
        self.heap.extend(keys.filter_map(stands));
        (0..self.heap.len() / 2).rev().for_each(|place| self.sink(place));
    }

    /// Moves what stands at a place of the heap down to where it belongs.
    fn sink(&mut self, mut place: usize) {
        let Some(moved) = self.heap.get(place).copied() else { return };
        loop {
            let mut below = 2 * place + 1;
            let Some(mut nearest) = self.heap.get(below).copied() else { break };
            if let Some(other) = self.heap.get(below + 1).copied()
                && self.is_before(other, nearest)
            {
                (below, nearest) = (below + 1, other);
            }
            if !self.is_before(nearest, moved) {
                break;
            }
            self.heap.get_mut(place).into_iter().for_each(|here| *here = nearest);
            place = below;
        }
        self.heap.get_mut(place).into_iter().for_each(|here| *here = moved);
    }

    /// Which of two shows first.
    #[inline]
    fn is_before(&self, a: Standing, b: Standing) -> bool {
        a.front < b.front || (a.front == b.front && self.order_alike(a.source, b.source).is_lt())
    }

    /// The order of two whose keys have the same front: not laid into the other, which is asked for each step.
    #[inline(never)]
    fn order_alike(&self, a: usize, b: usize) -> Ordering {
        let (Some(here), Some(there)) = (self.sources.get(a), self.sources.get(b)) else { return Ordering::Equal };
        let by_key = match self.way {
            Way::Onward => here.key().cmp(&there.key()),
            Way::Back => there.key().cmp(&here.key()),
        };
        by_key.then_with(|| there.seq().cmp(&here.seq())).then_with(|| a.cmp(&b))
    }

    fn top(&self) -> Option<&dyn Cursor> {
        self.heap.first().and_then(|top| self.sources.get(top.source)).map(|source| &**source)
    }
}

impl Cursor for Merged {
    fn seek(&mut self, key: &[u8]) -> Result<(), RunsError> {
        self.moving(|walk| {
            for source in &mut walk.sources {
                source.seek(key)?;
            }
            walk.pile(Way::Onward);
            Ok(())
        })
    }

    fn seek_back(&mut self, key: Option<&[u8]>) -> Result<(), RunsError> {
        self.moving(|walk| {
            for source in &mut walk.sources {
                source.seek_back(key)?;
            }
            walk.pile(Way::Back);
            Ok(())
        })
    }

    fn next(&mut self) -> Result<(), RunsError> {
        self.go(Way::Onward, &mut |_| {})
    }

    fn prev(&mut self) -> Result<(), RunsError> {
        self.go(Way::Back, &mut |_| {})
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.top()?.entry()
    }

    fn key(&self) -> Option<&[u8]> {
        self.top()?.key()
    }

    fn seq(&self) -> Option<u64> {
        self.top()?.seq()
    }
}
