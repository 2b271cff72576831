//! A walk over one run, both ways: a place in the top block, in an index block below it, and in a data block below that.
//!
//! Walk: [`RunCursor`] moves in its data block, and at the end of that to the neighbour that the index names · a
//! [`Reading::Ahead`] reads the data far ahead in pieces of its own, past the cache.
//! Deliberately absent: other runs; see `level` and `merged`.

use std::sync::Arc;

use assent_frame::Malformed;

use crate::block::{Block, BlockCursor};
use crate::entry::Cursor;
use crate::run_reader::{Reading, Run, length};
use crate::seal::Place;
use crate::{Entry, RunsError};

/// Bytes read at once by whoever reads everything.
const AHEAD_BYTES: u64 = 128 << 10;

/// A walk over one run.
#[derive(Debug)]
pub(crate) struct RunCursor {
    run: Arc<Run>,
    reading: Reading,
    ahead: Ahead,
    top: Standing,
    index: Standing,
    data: Standing,
}

/// A place in one block.
#[derive(Debug)]
struct Standing {
    cursor: BlockCursor,
    at: Place,
}

/// A stretch of the file, in memory.
#[derive(Debug, Default)]
struct Ahead {
    from: u64,
    bytes: Vec<u8>,
}

impl Standing {
    fn nowhere() -> Self {
        Standing { cursor: BlockCursor::default(), at: Place { offset: 0, length: 0 } }
    }

    fn before(block: Arc<Block>, at: Place) -> Self {
        Standing { cursor: BlockCursor::new(block), at }
    }
}

impl Ahead {
    fn piece(&mut self, run: &Run, place: Place) -> Result<&[u8], RunsError> {
        if self.part(place).is_none() {
            let ahead = AHEAD_BYTES.max(u64::from(place.length));
            // What fails leaves nothing behind.
            let memory = std::mem::take(&mut self.bytes);
            (self.from, self.bytes) = (place.offset, run.read_at(place.offset, ahead, memory)?);
        }
        // A piece that the file's end cuts off has no checksum either.
        Ok(self.part(place).unwrap_or_default())
    }

    fn part(&self, place: Place) -> Option<&[u8]> {
        let from = usize::try_from(place.offset.checked_sub(self.from)?).ok()?;
        self.bytes.get(from..)?.get(..length(place))
    }
}

impl RunCursor {
    pub(crate) fn new(run: Arc<Run>, reading: Reading) -> Self {
        let [top, index, data] = [Standing::nowhere(), Standing::nowhere(), Standing::nowhere()];
        RunCursor { run, reading, ahead: Ahead::default(), top, index, data }
    }

    /// To the first entry.
    pub(crate) fn first(&mut self) -> Result<(), RunsError> {
        self.moving(|walk| {
            walk.begin()?;
            walk.step(Level::Top, BlockCursor::first)?;
            walk.enter_first()
        })
    }

    /// Does something that ends at an entry, or nowhere; certainly nowhere after an error.
    fn moving(&mut self, walk: impl FnOnce(&mut Self) -> Result<(), RunsError>) -> Result<(), RunsError> {
        let moved = walk(self);
        if moved.is_err() {
            self.data = Standing::nowhere();
        }
        moved
    }

    /// To the top block.
    fn begin(&mut self) -> Result<(), RunsError> {
        let (top, at) = self.run.top()?;
        self.top = Standing::before(top, at);
        Ok(())
    }

    /// Moves in the block of a level.
    fn step(
        &mut self,
        level: Level,
        step: impl FnOnce(&mut BlockCursor) -> Result<(), Malformed>,
    ) -> Result<(), RunsError> {
        let standing = match level {
            Level::Top => &mut self.top,
            Level::Index => &mut self.index,
            Level::Data => &mut self.data,
        };
        step(&mut standing.cursor).map_err(|malformed| self.run.malformed(standing.at, malformed))
    }

    /// Into the index block that the top block names. Whether there is one.
    fn enter_index(&mut self) -> Result<bool, RunsError> {
        self.index = Standing::nowhere();
        self.data = Standing::nowhere();
        let Some(place) = self.run.pointed(&self.top.cursor, self.top.at)? else { return Ok(false) };
        let block = match self.reading {
            Reading::Cached => self.run.block(place)?,
            Reading::Ahead => self.run.block_past_cache(place)?,
        };
        self.index = Standing::before(block, place);
        Ok(true)
    }

    /// Into the data block that the index block names. Whether there is one.
    fn enter_data(&mut self) -> Result<bool, RunsError> {
        self.data = Standing::nowhere();
        let Some(place) = self.run.pointed(&self.index.cursor, self.index.at)? else { return Ok(false) };
        let block = match self.reading {
            Reading::Cached => self.run.block(place)?,
            Reading::Ahead => self.run.parse_block(place, self.ahead.piece(&self.run, place)?)?,
        };
        self.data = Standing::before(block, place);
        Ok(true)
    }

    /// To the first entry below where the top block's cursor stands.
    fn enter_first(&mut self) -> Result<(), RunsError> {
        if self.enter_index()? {
            self.step(Level::Index, BlockCursor::first)?;
            if self.enter_data()? {
                self.step(Level::Data, BlockCursor::first)?;
            }
        }
        Ok(())
    }

    /// To the last entry below where the top block's cursor stands.
    fn enter_last(&mut self) -> Result<(), RunsError> {
        if self.enter_index()? {
            self.step(Level::Index, BlockCursor::last)?;
            if self.enter_data()? {
                self.step(Level::Data, BlockCursor::last)?;
            }
        }
        Ok(())
    }

    /// Into the block where a key is, if it is anywhere.
    fn enter_at(&mut self, key: &[u8]) -> Result<(), RunsError> {
        self.begin()?;
        self.step(Level::Top, |top| top.seek_back(key))?;
        if self.enter_index()? {
            self.step(Level::Index, |index| index.seek_back(key))?;
            self.enter_data()?;
        }
        Ok(())
    }

    /// From the end of a data block to the first entry of the next one.
    fn enter_next(&mut self) -> Result<(), RunsError> {
        self.step(Level::Index, BlockCursor::next)?;
        if self.enter_data()? {
            return self.step(Level::Data, BlockCursor::first);
        }
        self.step(Level::Top, BlockCursor::next)?;
        self.enter_first()
    }

    /// From the start of a data block to the last entry of the one before.
    fn enter_before(&mut self) -> Result<(), RunsError> {
        self.step(Level::Index, BlockCursor::prev)?;
        if self.enter_data()? {
            return self.step(Level::Data, BlockCursor::last);
        }
        self.step(Level::Top, BlockCursor::prev)?;
        self.enter_last()
    }

    const fn stands(&self) -> bool {
        self.data.cursor.stands()
    }
}

#[derive(Clone, Copy, Debug)]
enum Level {
    Top,
    Index,
    Data,
}

impl Cursor for RunCursor {
    fn seek(&mut self, key: &[u8]) -> Result<(), RunsError> {
        self.moving(|walk| {
            walk.enter_at(key)?;
            walk.step(Level::Data, |data| data.seek(key))?;
            // The key may lie between the last one of this block and the first one of the next.
            if walk.stands() { Ok(()) } else { walk.enter_next() }
        })
    }

    fn seek_back(&mut self, key: Option<&[u8]>) -> Result<(), RunsError> {
        self.moving(|walk| {
            let Some(key) = key else {
                walk.begin()?;
                walk.step(Level::Top, BlockCursor::last)?;
                return walk.enter_last();
            };
            walk.enter_at(key)?;
            walk.step(Level::Data, |data| data.seek_back(key))?;
            if walk.stands() { Ok(()) } else { walk.enter_before() }
        })
    }

    fn next(&mut self) -> Result<(), RunsError> {
        if !self.stands() {
            return Ok(());
        }
        self.moving(|walk| {
            walk.step(Level::Data, BlockCursor::next)?;
            if walk.stands() { Ok(()) } else { walk.enter_next() }
        })
    }

    fn prev(&mut self) -> Result<(), RunsError> {
        if !self.stands() {
            return Ok(());
        }
        self.moving(|walk| {
            walk.step(Level::Data, BlockCursor::prev)?;
            if walk.stands() { Ok(()) } else { walk.enter_before() }
        })
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.data.cursor.entry()
    }

    fn key(&self) -> Option<&[u8]> {
        self.data.cursor.key()
    }

    fn seq(&self) -> Option<u64> {
        self.data.cursor.seq()
    }
}
