//! One file: what its readers see, what the platter holds, and what is on its way between them.
//!
//! Walk: writes lay [`Version`]s of sectors and [`Length`]s · [`Inode::settle`] is a sync · [`Inode::fail`] is a sync
//! that failed · `survive` chooses among what is left.
//! A sector is written whole: its version is what the page cache held after the write.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::content::{Content, SECTOR, Sector, long};

/// One state of one sector on its way to the platter.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// The operation that wrote it; they grow.
    pub(crate) operation: u64,
    pub(crate) bytes: Arc<Sector>,
    /// Where that operation's bytes end: the length a reader of them needs.
    end: u64,
    /// Clean after a failed sync: it may be on the platter or not, and no later sync changes that.
    dirty: bool,
    /// The zeroes behind a cut length: they are there if and only if the length is.
    pub(crate) tied: bool,
}

/// One change of the file's length on its way to the platter. Lengths become durable in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    pub(crate) operation: u64,
    pub(crate) bytes: u64,
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inode {
    /// What a reader sees: the page cache.
    pub(crate) seen: Content,
    pub(crate) seen_bytes: u64,
    /// What a power cut cannot take.
    pub(crate) durable: Content,
    pub(crate) durable_bytes: u64,
    pub(crate) sectors: BTreeMap<u64, Arc<Vec<Version>>>,
    pub(crate) lengths: Vec<Length>,
    /// Zeroes written from the beginning to here, not durable yet.
    pub(crate) zeroing_bytes: Option<u64>,
    /// No name leads here any more, for good.
    pub(crate) freed: bool,
}

impl Inode {
    /// A file that holds this durably.
    pub(crate) fn settled(content: Content, bytes: u64) -> Self {
        Inode { seen: content.clone(), seen_bytes: bytes, durable: content, durable_bytes: bytes, ..Inode::default() }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.sectors.is_empty() && self.lengths.is_empty() && self.zeroing_bytes.is_none()
    }

    pub(crate) fn write(&mut self, operation: u64, at: u64, bytes: &[u8]) {
        let end = at.saturating_add(long(bytes.len()));
        if bytes.is_empty() {
            return;
        }
        self.seen.write(at, bytes);
        for sector in at / SECTOR..end.div_ceil(SECTOR) {
            self.lay(operation, sector, end, false);
        }
        if end > self.seen_bytes {
            self.seen_bytes = end;
            self.lengths.push(Length { operation, bytes: end });
        }
    }

    pub(crate) fn set_bytes(&mut self, operation: u64, bytes: u64) {
        if bytes == self.seen_bytes {
            return;
        }
        let shrinks = bytes < self.seen_bytes;
        self.seen.truncate(bytes);
        self.seen_bytes = bytes;
        self.lengths.push(Length { operation, bytes });
        if shrinks && !bytes.is_multiple_of(SECTOR) {
            self.lay(operation, bytes / SECTOR, bytes, true);
        }
        self.zeroing_bytes = self.zeroing_bytes.map(|zeroing| zeroing.min(bytes));
    }

    pub(crate) fn zero(&mut self, operation: u64, bytes: u64) {
        self.set_bytes(operation, bytes);
        let mut old: Vec<u64> = self.seen.sectors().chain(self.durable.sectors()).collect();
        old.extend(self.sectors.keys());
        old.sort_unstable();
        old.dedup();
        self.seen.zero(bytes);
        for sector in old.into_iter().take_while(|sector| sector * SECTOR < bytes) {
            self.lay(operation, sector, bytes.min((sector + 1) * SECTOR), false);
        }
        self.zeroing_bytes = Some(bytes);
    }

    fn lay(&mut self, operation: u64, sector: u64, mut end: u64, tied: bool) {
        let bytes = Arc::new(*self.seen.sector(sector));
        let versions = self.sectors.entry(sector).or_default();
        if let Some(before) = versions.last().filter(|_| !tied) {
            // The bytes of earlier writes are in this version too.
            end = end.max(before.end.min(self.seen_bytes));
        }
        Arc::make_mut(versions).push(Version { operation, bytes, end, dirty: true, tied });
    }

    /// A sync: fdatasync, or fsync with `lengths`, of all sectors or of some. The answer is what the platter gave up.
    pub(crate) fn settle(&mut self, range: Option<Range<u64>>, lengths: bool) -> Option<Content> {
        let freed = self.settle_lengths(if lengths { self.lengths.len() } else { self.lengths_needed(range.as_ref()) });
        let all = range.is_none();
        let Inode { sectors, durable, lengths, .. } = self;
        sectors.retain(|sector, versions| {
            let Some(last) = versions.last().filter(|last| last.dirty) else { return true };
            let wanted = range.as_ref().is_none_or(|range| range.contains(sector)) && !is_cut(lengths, *sector, last);
            if wanted {
                durable.write_sector(*sector, &last.bytes);
            }
            !wanted
        });
        if all && let Some(bytes) = self.zeroing_bytes.take() {
            self.durable.own(bytes);
        }
        if self.is_settled() {
            // The same pages from now on: they hash once.
            debug_assert_eq!(self.durable.hash(), self.seen.hash(), "nothing is on its way, so both are the same");
            debug_assert_eq!(self.durable_bytes, self.seen_bytes, "nor is a length");
            self.durable.share(&self.seen);
        }
        freed
    }

    /// How many of the lengths a reader needs to find the bytes that are about to be synced.
    fn lengths_needed(&self, range: Option<&Range<u64>>) -> usize {
        let mut end = if range.is_none() { self.zeroing_bytes.unwrap_or(0) } else { 0 };
        let mut tied = 0;
        for (sector, versions) in &self.sectors {
            let Some(last) = versions.last().filter(|last| last.dirty) else { continue };
            if range.is_some_and(|range| !range.contains(sector)) || is_cut(&self.lengths, *sector, last) {
                continue;
            }
            end = end.max(last.end.min(self.seen_bytes));
            if last.tied && self.lengths.iter().any(|length| length.operation == last.operation) {
                tied = tied.max(last.operation);
            }
        }
        let before = |length: &Length| length.bytes < end || length.operation < tied;
        match self.lengths.iter().rposition(before) {
            Some(last) => (last + 2).min(self.lengths.len()),
            None if self.durable_bytes < end || tied > 0 => self.lengths.len().min(1),
            None => 0,
        }
    }

    fn settle_lengths(&mut self, count: usize) -> Option<Content> {
        let mut freed = None;
        for length in self.lengths.drain(..count) {
            if length.bytes < self.durable_bytes {
                freed = Some(self.durable.clone());
                self.durable.truncate(length.bytes);
            }
            let whole = length.bytes.div_ceil(SECTOR);
            if self.sectors.range(whole..).next().is_some() {
                self.sectors.retain(|sector, versions| {
                    if *sector >= whole {
                        Arc::make_mut(versions).retain(|version| version.operation >= length.operation);
                    }
                    !versions.is_empty()
                });
            }
            self.durable_bytes = length.bytes;
        }
        freed.filter(|content| !content.is_empty())
    }

    /// A sync that failed: the dirty pages are clean now, whatever reached the platter.
    pub(crate) fn fail(&mut self, range: Option<&Range<u64>>) {
        for (sector, versions) in &mut self.sectors {
            if range.is_none_or(|range| range.contains(sector)) {
                for version in Arc::make_mut(versions) {
                    version.dirty = false;
                }
            }
        }
        if range.is_none() {
            self.zeroing_bytes = None;
        }
    }
}

/// True if a length that came later, and is not durable yet, cut this version off.
fn is_cut(lengths: &[Length], sector: u64, version: &Version) -> bool {
    lengths.iter().any(|length| length.operation > version.operation && length.bytes <= sector * SECTOR)
}
