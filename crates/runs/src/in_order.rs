//! Look-ups of many keys in their order: the block that one of them read is at hand for the next.
//!
//! Walk: [`InOrder`] keeps a [`Hand`] for each run that may be asked · [`Run::get_at_hand`] looks into the block that its hand holds, and walks the
//! index only for a key that does not stand there · [`Hand::read`] reads on from one block to those behind it, where keys are as near as that.
//! Keys may come in any order, and are found; out of order a look costs what one by itself does, a copy of two keys, and where it reads past the
//! cache, a block once more.
//! Deliberately absent: sorting, which is the caller's; and rows kept from looks before, as for all who walk over much that nobody else asks for.

use std::sync::Arc;

use crate::RunsError;
use crate::block::{Block, BlockCursor};
use crate::cache::Cached;
use crate::filter;
use crate::run::RunId;
use crate::run_reader::{OwnedEntry, Reading, Run, length};
use crate::seal::Place;
use crate::version::Version;
use crate::view::{Newest, newest};

/// Who reads ahead reads so much at once.
const AHEAD_BYTES: u64 = 64 << 10;
/// A block is near one that stands no more than so far before it.
const NEAR_BYTES: u64 = 16 << 10;

/// The map at one moment, for whoever asks for many keys in their order. It pins what it sees, as a view does.
#[derive(Debug)]
pub struct InOrder {
    version: Arc<Version>,
    seq: u64,
    reading: Reading,
    /// Of each run of level 0, and behind them of each level below.
    hands: Vec<Hand>,
}

/// A block of a run, and which keys stand in it if the run has them.
#[derive(Debug, Default)]
struct Hand {
    of: Option<(RunId, Place)>,
    block: Arc<Block>,
    /// The first such key, and the first behind it: none where another block of the index has that.
    from: Vec<u8>,
    until: Option<Vec<u8>>,
    ahead: Ahead,
}

/// What was read of a run last, for who reads ahead, and where.
#[derive(Debug, Default)]
struct Ahead {
    of: Option<RunId>,
    at: u64,
    bytes: Vec<u8>,
}

impl Ahead {
    fn piece(&self, run: RunId, place: Place) -> Option<&[u8]> {
        let from = usize::try_from(place.offset.checked_sub(self.at)?).ok()?;
        self.bytes.get(from..)?.get(..length(place)).filter(|_| self.of == Some(run))
    }

    fn read(&mut self, run: &Run, at: u64) -> Result<(), RunsError> {
        // Nothing is there where this fails.
        self.of = None;
        self.bytes = run.read_at(at, AHEAD_BYTES, std::mem::take(&mut self.bytes))?;
        (self.of, self.at) = (Some(run.id()), at);
        Ok(())
    }
}

impl Hand {
    /// Where the block at hand stands, if this key would be in it.
    fn has(&self, run: RunId, key: &[u8]) -> Option<Place> {
        let (of, place) = self.of?;
        let until = self.until.as_deref()?;
        (of == run && *self.from <= *key && key < until).then_some(place)
    }

    /// Takes the block of a run where this key would be, if it has one.
    fn take(&mut self, run: &Run, key: &[u8], reading: Reading) -> Result<Option<Place>, RunsError> {
        // Nothing is at hand where this fails.
        let before = self.of.take().filter(|(of, _)| *of == run.id()).map(|(_, place)| place);
        let Some((index, at)) = run.index_for(key)? else { return Ok(None) };
        let malformed = |malformed| run.malformed(at, malformed);
        let mut cursor = BlockCursor::new(index);
        cursor.seek_back(key).map_err(malformed)?;
        let Some(place) = run.pointed(&cursor, at)? else { return Ok(None) };
        self.from.clear();
        self.from.extend_from_slice(cursor.key().unwrap_or_default());
        cursor.next().map_err(malformed)?;
        self.until = cursor.key().map(<[u8]>::to_vec);
        // Of the last of an index it is not known where it ends.
        if before != Some(place) {
            self.block = match reading {
                Reading::Cached => run.block(place)?,
                Reading::Ahead => self.read(run, place, before)?,
            };
        }
        self.of = Some((run.id(), place));
        Ok(Some(place))
    }

    /// A block of a run, of which another one was at hand before. What is not in the cache does not come into it: the next who asks in order asks
    /// for other keys.
    fn read(&mut self, run: &Run, place: Place, before: Option<Place>) -> Result<Arc<Block>, RunsError> {
        if let Ok(Some(Cached::Block(block))) = run.cache().get(run.id(), place.offset) {
            return Ok(block);
        }
        let end = before.map(|before| before.offset.saturating_add(before.length.into()));
        let is_near = end.is_some_and(|end| place.offset.checked_sub(end).is_some_and(|from| from <= NEAR_BYTES));
        if is_near && self.ahead.piece(run.id(), place).is_none() {
            // Where that fails the block may well be read by itself.
            _ = self.ahead.read(run, place.offset);
        }
        match self.ahead.piece(run.id(), place) {
            Some(piece) => run.parse_block(place, piece),
            None => run.block_past_cache(place),
        }
    }
}

impl InOrder {
    pub(crate) fn of(version: Arc<Version>, seq: u64, reading: Reading) -> Self {
        let hands = std::iter::repeat_with(Hand::default).take(version.slots()).collect();
        Self { version, seq, reading, hands }
    }

    /// As [`crate::Runs::newest`], of that moment.
    ///
    /// # Errors
    /// As [`crate::View::get`].
    pub fn newest<R>(
        &mut self,
        key: &[u8],
        then: impl FnOnce(u64, Option<&[u8]>) -> R,
    ) -> Result<Option<R>, RunsError> {
        let Self { version, seq, reading, hands } = self;
        let newest = version.newest_by(key, *seq, |hash| find(version, (hands, *reading), key, hash))?;
        Ok(newest.map(|OwnedEntry { seq, value }| then(seq, value.as_deref())))
    }

    /// As [`crate::View::last_written`].
    ///
    /// # Errors
    /// As [`crate::View::get`].
    pub fn last_written(&mut self, key: &[u8]) -> Result<Option<Newest>, RunsError> {
        let hands = (&mut *self.hands, self.reading);
        Ok(find(&self.version, hands, key, filter::hash(key))?.map(newest))
    }
}

fn find(
    version: &Version,
    (hands, reading): (&mut [Hand], Reading),
    key: &[u8],
    hash: u64,
) -> Result<Option<OwnedEntry>, RunsError> {
    for (slot, run) in version.slots_of(key) {
        let found = match hands.get_mut(slot) {
            Some(hand) => run.get_at_hand((hand, reading), key, hash)?,
            None => run.get(key, hash)?,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

impl Run {
    /// As [`Run::get`], from the block at hand if that is the one.
    fn get_at_hand(
        &self,
        (hand, reading): (&mut Hand, Reading),
        key: &[u8],
        hash: u64,
    ) -> Result<Option<OwnedEntry>, RunsError> {
        if !self.facts().spans(key) || !self.may_hold(hash)? {
            return Ok(None);
        }
        let place = match hand.has(self.id(), key) {
            None => hand.take(self, key, reading)?,
            place => place,
        };
        let Some(place) = place else { return Ok(None) };
        self.entry_in(&hand.block, place, key)
    }
}
