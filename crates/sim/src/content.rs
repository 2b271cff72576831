//! The bytes of one file: sparse pages, shared until written.
//!
//! Walk: [`Content`] maps page numbers to shared pages; an absent page reads as zeroes. A page keeps its hash, so that
//! hashing an image again costs only the pages that changed.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// What a power cut leaves whole or not at all.
pub const SECTOR_BYTES: usize = 512;
pub(crate) const SECTOR: u64 = 512;
const PAGE_BYTES: usize = 4096;
const PAGE: u64 = 4096;
const SECTORS_A_PAGE: u64 = PAGE / SECTOR;

pub(crate) type Sector = [u8; SECTOR_BYTES];

static ZEROES: Sector = [0; SECTOR_BYTES];

#[derive(Debug)]
struct Page {
    bytes: [u8; PAGE_BYTES],
    hash: OnceLock<u64>,
}

impl Clone for Page {
    fn clone(&self) -> Self {
        // A clone is about to be written.
        Page { bytes: self.bytes, hash: OnceLock::new() }
    }
}

impl Page {
    fn hash(&self) -> u64 {
        *self.hash.get_or_init(|| if self.bytes.iter().all(|byte| *byte == 0) { 0 } else { xxh3_64(&self.bytes) })
    }
}

/// Sparse bytes. Places in `zeroed_pages` and in pages that are there have blocks of their own; others are holes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pages: BTreeMap<u64, Arc<Page>>,
    zeroed_pages: u64,
}

impl Content {
    pub(crate) fn read(&self, at: u64, buffer: &mut [u8]) {
        let mut at = at;
        let mut rest = buffer;
        while !rest.is_empty() {
            let within = size(at % PAGE);
            let (part, more) = rest.split_at_mut(rest.len().min(PAGE_BYTES - within));
            match self.pages.get(&(at / PAGE)).and_then(|page| page.bytes.get(within..within + part.len())) {
                Some(bytes) => part.copy_from_slice(bytes),
                None => part.fill(0),
            }
            at += long(part.len());
            rest = more;
        }
    }

    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        let mut at = at;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = size(at % PAGE);
            let (part, more) = rest.split_at(rest.len().min(PAGE_BYTES - within));
            let page = self.pages.entry(at / PAGE).or_insert_with(|| Arc::new(zero_page()));
            let page = Arc::make_mut(page);
            page.hash = OnceLock::new();
            if let Some(place) = page.bytes.get_mut(within..within + part.len()) {
                place.copy_from_slice(part);
            }
            at += long(part.len());
            rest = more;
        }
    }

    pub(crate) fn sector(&self, sector: u64) -> &Sector {
        let within = size(sector % SECTORS_A_PAGE);
        self.pages
            .get(&(sector / SECTORS_A_PAGE))
            .and_then(|page| page.bytes.as_chunks::<SECTOR_BYTES>().0.get(within))
            .unwrap_or(&ZEROES)
    }

    pub(crate) fn write_sector(&mut self, sector: u64, bytes: &Sector) {
        self.write(sector * SECTOR, bytes);
    }

    /// Drops what lies behind that length.
    pub(crate) fn truncate(&mut self, bytes: u64) {
        let pages = bytes.div_ceil(PAGE);
        self.zeroed_pages = self.zeroed_pages.min(pages);
        _ = self.pages.split_off(&pages);
        let tail = size(bytes % PAGE);
        if tail > 0
            && let Some(page) = self.pages.get_mut(&(bytes / PAGE))
            && page.bytes.get(tail..).is_some_and(|tail| tail.iter().any(|byte| *byte != 0))
        {
            let page = Arc::make_mut(page);
            page.hash = OnceLock::new();
            page.bytes.get_mut(tail..).unwrap_or_default().fill(0);
        }
    }

    /// Writes zeroes from the beginning to that length, at the price of one number.
    pub(crate) fn zero(&mut self, bytes: u64) {
        let pages = bytes.div_ceil(PAGE);
        self.pages = self.pages.split_off(&pages);
        self.zeroed_pages = self.zeroed_pages.max(pages);
    }

    /// Gives the zeroed places blocks of their own.
    pub(crate) fn own(&mut self, bytes: u64) {
        self.zeroed_pages = self.zeroed_pages.max(bytes.div_ceil(PAGE));
    }

    /// Takes the pages of content that is equal.
    pub(crate) fn share(&mut self, equal: &Content) {
        self.pages.clone_from(&equal.pages);
    }

    /// True if the sector lies in a block that was written once, so that nothing older can show there.
    pub(crate) fn owns(&self, sector: u64) -> bool {
        let page = sector / SECTORS_A_PAGE;
        page < self.zeroed_pages || self.pages.contains_key(&page)
    }

    /// The sectors of the pages that are there, in order.
    pub(crate) fn sectors(&self) -> impl Iterator<Item = u64> {
        self.pages.keys().flat_map(|page| page * SECTORS_A_PAGE..(page + 1) * SECTORS_A_PAGE)
    }

    pub(crate) fn owned_bytes(&self) -> u64 {
        // Each of a large store's looks at what is used would else count all pages.
        let apart =
            if self.zeroed_pages == 0 { self.pages.len() } else { self.pages.range(self.zeroed_pages..).count() };
        (self.zeroed_pages + long(apart)) * PAGE
    }

    /// Where a write of this range ends if no more than `room` further bytes can be owned.
    pub(crate) fn end_within(&self, range: std::ops::Range<u64>, room: u64) -> u64 {
        let mut room = room / PAGE;
        for page in range.start / PAGE..range.end.div_ceil(PAGE) {
            if !self.owns(page * SECTORS_A_PAGE) {
                if room == 0 {
                    return (page * PAGE).max(range.start);
                }
                room -= 1;
            }
        }
        range.end
    }

    pub(crate) fn ends_behind(&self, bytes: u64) -> bool {
        self.pages.last_key_value().is_some_and(|(page, _)| (page + 1) * PAGE > bytes.next_multiple_of(PAGE))
            || !self.is_zero_behind(bytes)
    }

    fn is_zero_behind(&self, bytes: u64) -> bool {
        let tail = self.pages.get(&(bytes / PAGE)).and_then(|page| page.bytes.get(size(bytes % PAGE)..));
        tail.is_none_or(|tail| tail.iter().all(|byte| *byte == 0))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Equal bytes hash equally, whether zeroes are there or absent.
    pub(crate) fn hash(&self) -> u64 {
        self.pages.iter().fold(0, |sum, (number, page)| match page.hash() {
            0 => sum,
            hash => sum.wrapping_add(mix(*number, hash)),
        })
    }
}

/// Stale bytes that look like nothing; the same for a sector every time.
pub(crate) fn garbage(sector: u64) -> Sector {
    let mut bytes = [0; SECTOR_BYTES];
    let mut word = mix(sector, 0x6761_7262_6167_6521);
    for chunk in bytes.as_chunks_mut::<8>().0 {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        *chunk = (word ^ (word >> 29)).to_le_bytes();
    }
    bytes
}

pub(crate) fn mix(a: u64, b: u64) -> u64 {
    xxh3_64_with_seed(&a.to_le_bytes(), b)
}

fn zero_page() -> Page {
    Page { bytes: [0; PAGE_BYTES], hash: OnceLock::new() }
}

/// A length as memory counts it. Files of a simulation fit in memory.
pub(crate) fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A length as files count it.
pub(crate) fn long(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_pages_read_as_zeroes_and_hash_as_zeroes() {
        let mut content = Content::default();
        let untouched = content.hash();
        content.write(4090, &[7; 20]);
        let mut seen = [1; 30];
        content.read(4085, &mut seen);
        assert_eq!(seen, [&[0; 5][..], &[7; 20], &[0; 5]].concat()[..]);
        assert_ne!(content.hash(), untouched);
        content.write(4090, &[0; 20]);
        assert_eq!(content.hash(), untouched);
        assert!(content.owns(15) && !content.owns(16));
    }

    #[test]
    fn zeroing_a_gigabyte_costs_one_number_and_truncating_gives_it_back() {
        let mut content = Content::default();
        content.write(100, &[7; 10]);
        content.zero(1 << 30);
        assert!(content.is_empty() && content.owned_bytes() == 1 << 30);
        content.write(1000, &[9; 10]);
        content.truncate(1005);
        let mut seen = [1; 10];
        content.read(1000, &mut seen);
        assert_eq!(seen, [9, 9, 9, 9, 9, 0, 0, 0, 0, 0]);
        assert_eq!(content.owned_bytes(), 4096);
    }
}
