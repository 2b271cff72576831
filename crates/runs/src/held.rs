//! What a run holds of its file: the filter and the blocks of its index, which every look-up asks. No look-up waits for another one
//! there: nothing is locked and nothing is counted.
//!
//! Walk: [`Held::of`] reads them once, with one call since they stand one behind the other, if the cache's budget has the room; else, and for
//! a block that is damaged, look-ups go through the cache as for all other blocks · what was taken out of the budget goes back with the run.
//! Deliberately absent: blocks of entries. They are many, and the cache knows which are worth their room.

use std::borrow::Cow;
use std::sync::Arc;

use crate::RunsError;
use crate::block::{Block, BlockCursor};
use crate::cache::Cache;
use crate::filter::Filter;
use crate::run_reader::{Run, length};
use crate::seal::Place;

/// Nothing, or all that could be read.
#[derive(Debug, Default)]
pub(crate) struct Held {
    filter: Option<Filter>,
    /// Blocks of the index by their places.
    index: Vec<(u64, Arc<Block>)>,
    taken: Option<(Arc<Cache>, u64)>,
}

impl Held {
    /// What this run may hold, read.
    ///
    /// # Errors
    /// As the disk says of the filter; a damaged one answers "perhaps" to everything.
    pub(crate) fn of(run: &Run) -> Result<Self, RunsError> {
        let places = run.index_places()?;
        let filter = run.opened()?.footer.filter;
        let bytes = places.iter().chain([&filter]).map(|place| u64::from(place.length)).sum();
        let cache = run.cache();
        if !cache.take_out(bytes) {
            return Ok(Self::default());
        }
        let mut held = Self { filter: None, index: Vec::new(), taken: Some((Arc::clone(cache), bytes)) };
        let stretch = Stretch::of(run, places.iter().chain([&filter]), bytes);
        held.filter = Some(run.filter_or_none(filter, stretch.piece(run, filter))?);
        // One that cannot be read is told to whoever needs it.
        let parsed = |place: Place| run.parse_block(place, &stretch.piece(run, place)?);
        let block = |place: Place| parsed(place).ok().map(|block| (place.offset, block));
        held.index = places.into_iter().filter_map(block).collect();
        held.index.sort_unstable_by_key(|(offset, _)| *offset);
        Ok(held)
    }

    pub(crate) const fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// The block of the index that stands there.
    pub(crate) fn index(&self, place: Place) -> Option<&Arc<Block>> {
        let at = self.index.binary_search_by_key(&place.offset, |(offset, _)| *offset).ok()?;
        self.index.get(at).map(|(_, block)| block)
    }
}

/// Pieces of a file that stand one behind the other, read at once. Until all are parsed they are in memory twice, and the budget
/// counts them once: what it does not count is at most half of it, of all runs together ([`Cache::take_out`]).
struct Stretch {
    at: u64,
    bytes: Vec<u8>,
}

impl Stretch {
    /// These pieces, of so many bytes together. It is empty where others stand between them, and where one cannot be read: the others can.
    fn of<'p>(run: &Run, places: impl Iterator<Item = &'p Place> + Clone, bytes: u64) -> Self {
        let at = places.clone().map(|place| place.offset).min().unwrap_or_default();
        let end = places.map(|place| place.offset.saturating_add(place.length.into())).max().unwrap_or_default();
        let read = if end.saturating_sub(at) == bytes { run.read_at(at, bytes, Vec::new()).ok() } else { None };
        Self { at, bytes: read.unwrap_or_default() }
    }

    /// One of them; read by itself if it is not here.
    fn piece(&self, run: &Run, place: Place) -> Result<Cow<'_, [u8]>, RunsError> {
        let from = place.offset.checked_sub(self.at).and_then(|from| usize::try_from(from).ok());
        let piece = from.and_then(|from| self.bytes.get(from..)?.get(..length(place)));
        piece.map_or_else(|| run.read(place).map(Cow::Owned), |piece| Ok(Cow::Borrowed(piece)))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((cache, bytes)) = self.taken.take() {
            cache.put_back(bytes);
        }
    }
}

impl Run {
    /// Where the blocks of its index stand, as its top block says.
    fn index_places(&self) -> Result<Vec<Place>, RunsError> {
        let (top, at) = self.top()?;
        let (mut cursor, mut places) = (BlockCursor::new(top), Vec::new());
        let malformed = |malformed| self.malformed(at, malformed);
        cursor.first().map_err(malformed)?;
        while let Some(place) = self.pointed(&cursor, at)? {
            places.push(place);
            cursor.next().map_err(malformed)?;
        }
        Ok(places)
    }
}
