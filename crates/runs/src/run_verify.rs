//! Whether a run is whole: every byte is read and every promise of its facts and its filter is checked.
//!
//! Walk: [`Run::verify`] reads the end, then each index block, then each data block below it, past the cache; it tells each
//! damage and goes on behind it.
//! Deliberately absent: repair.

use std::sync::Arc;

use assent_frame::Reader;

use crate::RunsError;
use crate::block::{Block, BlockCursor};
use crate::filter::{self, Filter};
use crate::run::{FOOTER_BYTES, Footer, RunFacts};
use crate::run_reader::{Opened, Run};
use crate::seal::Place;

/// What a run turned out to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VerifiedRun {
    /// Entries that could be read.
    pub(crate) entries: u64,
    /// Places that are damaged.
    pub(crate) damaged: u64,
}

impl Run {
    /// Reads all of it past the cache and tells each damage; what is behind it is read too, as far as it can be found.
    pub(crate) fn verify(&self, told: &mut dyn FnMut(&RunsError)) -> VerifiedRun {
        let mut found = VerifiedRun::default();
        let mut tell = |error: &RunsError| {
            found.damaged += 1;
            told(error);
        };
        let opened = match self.opened() {
            Ok(opened) => opened,
            Err(error) => {
                tell(&error);
                return found;
            }
        };
        if let Err(error) = self.verify_facts(opened.footer.facts) {
            tell(&error);
        }
        // What was read before may be whole in memory and rotten on the disk.
        if let Err(error) = self.block_past_cache(opened.footer.top) {
            tell(&error);
        }
        if let Err(error) = self.verify_footer(opened) {
            tell(&error);
        }
        let filter = self.read_filter(opened.footer.filter).unwrap_or_else(|error| {
            tell(&error);
            Filter::default()
        });
        let mut check = Check { filter, last: None, entries: 0, tombstones: 0 };
        let whole = self.verify_index(opened, &mut check, &mut tell);
        let said = (self.facts().entries, self.facts().tombstones);
        if whole && (check.entries, check.tombstones) != said {
            let what = format!(
                "{} entries with {} tombstones; {} and {} were written",
                check.entries, check.tombstones, said.0, said.1
            );
            tell(&self.damaged(0, what));
        }
        found.entries = check.entries;
        found
    }

    fn verify_footer(&self, opened: &Opened) -> Result<(), RunsError> {
        let length = u64::try_from(FOOTER_BYTES).unwrap_or(u64::MAX);
        let at = self.facts().bytes.saturating_sub(length);
        let bytes = self.read_at(at, length, Vec::new())?;
        let footer = bytes.first_chunk().ok_or_else(|| "too short for a run".to_owned());
        match footer.and_then(|footer| Footer::read(footer, self.id())) {
            Ok(footer) if footer == opened.footer => Ok(()),
            Ok(_) => Err(self.damaged(at, "the footer is another one than before")),
            Err(what) => Err(self.damaged(at, what)),
        }
    }

    fn verify_facts(&self, place: Place) -> Result<(), RunsError> {
        let piece = self.read(place)?;
        let mut reader = Reader::new(self.unseal(place, &piece)?);
        let facts = RunFacts::read(&mut reader).and_then(|facts| reader.end().map(|()| facts));
        match facts {
            Ok(facts) if facts == *self.facts() => Ok(()),
            Ok(_) => Err(self.damaged(place.offset, "the file's own facts are not those of the manifest")),
            Err(malformed) => Err(self.malformed(place, malformed)),
        }
    }

    /// Whether all could be read.
    fn verify_index(&self, opened: &Opened, check: &mut Check, tell: &mut dyn FnMut(&RunsError)) -> bool {
        let mut whole = true;
        self.each_place(&opened.top, opened.footer.top, &mut |index| {
            let index = match index.and_then(|place| Ok((self.block_past_cache(place)?, place))) {
                Ok(index) => index,
                Err(error) => {
                    whole = false;
                    return tell(&error);
                }
            };
            self.each_place(&index.0, index.1, &mut |data| {
                let read = data.and_then(|place| Ok((self.block_past_cache(place)?, place)));
                if let Err(error) = read.and_then(|(block, place)| self.verify_data(block, place, check)) {
                    whole = false;
                    tell(&error);
                }
            });
        });
        whole
    }

    fn each_place(&self, index: &Arc<Block>, at: Place, visit: &mut dyn FnMut(Result<Place, RunsError>)) {
        let mut cursor = BlockCursor::new(Arc::clone(index));
        let mut moved = cursor.first();
        loop {
            if let Err(malformed) = moved {
                return visit(Err(self.malformed(at, malformed)));
            }
            match self.pointed(&cursor, at) {
                Ok(Some(place)) => visit(Ok(place)),
                Ok(None) => return,
                Err(error) => visit(Err(error)),
            }
            moved = cursor.next();
        }
    }

    fn verify_data(&self, block: Arc<Block>, at: Place, check: &mut Check) -> Result<(), RunsError> {
        let mut cursor = BlockCursor::new(block);
        cursor.first().map_err(|malformed| self.malformed(at, malformed))?;
        while let Some(entry) = cursor.entry() {
            if check.last.as_deref().is_some_and(|last| last >= entry.key) || !self.facts().spans(entry.key) {
                return Err(self.damaged(at.offset, "a key is out of order"));
            }
            if !check.filter.may_hold(filter::hash(entry.key)) {
                return Err(self.damaged(at.offset, "the filter denies a key that is there"));
            }
            if entry.seq < self.facts().seq_min || entry.seq > self.facts().seq_max {
                return Err(self.damaged(at.offset, "an entry's place in the order is not one of this run"));
            }
            check.entries += 1;
            check.tombstones += u64::from(entry.value.is_none());
            let last = check.last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(entry.key);
            cursor.next().map_err(|malformed| self.malformed(at, malformed))?;
        }
        Ok(())
    }
}

/// What a verification has seen so far.
#[derive(Debug)]
struct Check {
    filter: Filter,
    last: Option<Vec<u8>>,
    entries: u64,
    tombstones: u64,
}
