//! All assets: millions of rows of 24 bytes, found by a hash, and copied without a stop.
//!
//! ```text
//!   groups   one Arc for each 256 pages: a snapshot clones these, a few thousand for ten million assets
//!   pages    one Arc for each, some 32 rows sorted by id; linear hashing splits one page at a time
//! ```
//! Walk: [`Table::find`] gives a [`Found`] place · [`Table::replace`], [`Table::insert`] and [`Table::remove`] change one row, and
//! copy its group and page first if a snapshot still has them · `digest` is the sum of all rows' hashes, kept by each change.
//! Deliberately absent: pages that are joined again. Memory of removed rows is used by the next ones of the same page.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::asset::{Asset, AssetId, Row};

const ROWS_PER_PAGE: usize = 32;
const PAGES_PER_GROUP: usize = 256;
/// A page grows by so many rows, so that few stand empty.
const ROWS_SPARE: usize = 4;

type Page = Vec<Row>;
type Group = Vec<Arc<Page>>;

#[derive(Clone, Debug)]
pub(crate) struct Table {
    groups: Vec<Arc<Group>>,
    pages: usize,
    rows: usize,
    /// Rows that the pages have room for.
    room: usize,
    digest: u64,
}

/// Where a row stands, until the next change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    page: usize,
    row: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self { groups: vec![Arc::new(vec![Arc::default()])], pages: 1, rows: 0, room: 0, digest: 0 }
    }
}

impl Table {
    pub(crate) const fn len(&self) -> usize {
        self.rows
    }

    /// The sum of the hashes of all rows: two tables with the same rows have the same, in whatever order they came.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    /// Where the row is, or would be.
    pub(crate) fn find(&self, id: AssetId) -> Result<(Found, Asset), Found> {
        let page = page_of(id, self.pages);
        let rows = self.page(page);
        match rows.binary_search_by_key(&id, |row| row.id) {
            Ok(at) => match rows.get(at) {
                Some(row) => Ok((Found { page, row: at }, row.asset)),
                None => Err(Found { page, row: at }),
            },
            Err(at) => Err(Found { page, row: at }),
        }
    }

    pub(crate) fn get(&self, id: AssetId) -> Option<Asset> {
        self.find(id).ok().map(|(_, asset)| asset)
    }

    /// Changes a row that was found.
    pub(crate) fn replace(&mut self, found: Found, asset: Asset) {
        let changed = self.change(found.page, |rows| {
            let row = rows.get_mut(found.row)?;
            let before = *row;
            row.asset = asset;
            Some((before, *row))
        });
        let Some((before, after)) = changed.flatten() else { return };
        self.digest = self.digest.wrapping_sub(hash(&before)).wrapping_add(hash(&after));
    }

    /// A new row where it was not found.
    pub(crate) fn insert(&mut self, found: Found, id: AssetId, asset: Asset) {
        let row = Row { id, asset };
        let inserted = self.change(found.page, |rows| {
            if rows.len() == rows.capacity() {
                rows.reserve_exact(ROWS_SPARE);
            }
            rows.insert(found.row.min(rows.len()), row);
        });
        if inserted.is_none() {
            return;
        }
        self.digest = self.digest.wrapping_add(hash(&row));
        self.rows += 1;
        if self.rows > self.pages * ROWS_PER_PAGE {
            self.split();
        }
    }

    /// Removes a row that was found.
    pub(crate) fn remove(&mut self, found: Found) {
        let removed = self.change(found.page, |rows| (found.row < rows.len()).then(|| rows.remove(found.row)));
        let Some(row) = removed.flatten() else { return };
        self.digest = self.digest.wrapping_sub(hash(&row));
        self.rows -= 1;
    }

    /// The row is this one, or none, whatever it was.
    pub(crate) fn put(&mut self, id: AssetId, asset: Option<Asset>) {
        match (self.find(id), asset) {
            (Ok((found, _)), Some(asset)) => self.replace(found, asset),
            (Ok((found, _)), None) => self.remove(found),
            (Err(found), Some(asset)) => self.insert(found, id, asset),
            (Err(_), None) => {}
        }
    }

    /// All rows, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.groups.iter().flat_map(|group| group.iter()).flat_map(|page| page.iter())
    }

    /// Bytes of memory, as far as capacities tell them. Kept by each change: asking walks nothing.
    pub(crate) const fn memory_bytes(&self) -> usize {
        const ARC: usize = 16;
        let page = ARC + size_of::<Page>() + size_of::<Arc<Page>>();
        let group = ARC + size_of::<Group>() + size_of::<Arc<Group>>();
        self.room * size_of::<Row>() + self.pages * page + self.groups.capacity() * group
    }

    fn page(&self, page: usize) -> &[Row] {
        let group = self.groups.get(page / PAGES_PER_GROUP);
        group.and_then(|group| group.get(page % PAGES_PER_GROUP)).map(|rows| rows.as_slice()).unwrap_or_default()
    }

    /// Changes a page, and keeps the count of its room: a page that a snapshot shares is copied, and the copy has none to spare.
    fn change<T>(&mut self, page: usize, change: impl FnOnce(&mut Page) -> T) -> Option<T> {
        let group = Arc::make_mut(self.groups.get_mut(page / PAGES_PER_GROUP)?);
        let page = group.get_mut(page % PAGES_PER_GROUP)?;
        let before = page.capacity();
        let rows = Arc::make_mut(page);
        let changed = change(rows);
        self.room = self.room.saturating_sub(before) + rows.capacity();
        Some(changed)
    }

    /// One more page: it takes its rows from the one that has had them so far.
    fn split(&mut self) {
        let new = self.pages;
        let old = new - below(new);
        let exact = |mut page: Page| {
            page.shrink_to_fit();
            page
        };
        let moved = self.change(old, |rows| {
            let (moved, kept): (Page, Page) = rows.iter().partition(|row| page_of(row.id, new + 1) == new);
            *rows = exact(kept);
            exact(moved)
        });
        let Some(moved) = moved else { return };
        self.room += moved.capacity();
        match self.groups.last_mut() {
            Some(group) if group.len() < PAGES_PER_GROUP => Arc::make_mut(group).push(Arc::new(moved)),
            _ => self.groups.push(Arc::new(vec![Arc::new(moved)])),
        }
        self.pages += 1;
    }
}

/// The largest power of two that is not above `pages`.
const fn below(pages: usize) -> usize {
    1 << (usize::BITS - 1 - pages.leading_zeros())
}

fn page_of(id: AssetId, pages: usize) -> usize {
    let power = below(pages);
    let hash = usize::try_from(scatter(id.0) & u64::from(u32::MAX)).unwrap_or(0);
    match hash & (2 * power - 1) {
        page if page < pages => page,
        page => page - power,
    }
}

/// Ids that follow each other go to pages far apart.
const fn scatter(id: u64) -> u64 {
    let word = (id ^ (id >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let word = (word ^ (word >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}

fn hash(row: &Row) -> u64 {
    let mut bytes = [0; 24];
    let (words, _) = bytes.as_chunks_mut::<8>();
    if let [id, value, updates] = words {
        *id = row.id.0.to_le_bytes();
        *value = row.asset.value.to_le_bytes();
        *updates = row.asset.updates.to_le_bytes();
    }
    xxh3_64(&bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// What the running count says, counted.
    fn room_of(table: &Table) -> usize {
        table.groups.iter().flat_map(|group| group.iter()).map(|page| page.capacity()).sum()
    }

    fn asset(value: i64) -> Asset {
        Asset { value, updates: 1 }
    }

    #[test]
    fn a_table_is_a_map_and_its_digest_knows_only_the_rows() {
        let (mut table, mut model) = (Table::default(), BTreeMap::new());
        let mut word = 1_u64;
        for step in 0..60_000_i64 {
            word = scatter(word.wrapping_add(1));
            let id = AssetId(word % 5_000);
            let asset = (word >> 60 > 2).then_some(asset(step));
            table.put(id, asset);
            match asset {
                Some(asset) => _ = model.insert(id, asset),
                None => _ = model.remove(&id),
            }
        }
        let rows: BTreeMap<AssetId, Asset> = table.iter().map(|row| (row.id, row.asset)).collect();
        assert_eq!((table.len(), rows), (model.len(), model.clone()));
        assert!(model.iter().all(|(id, asset)| table.get(*id) == Some(*asset)));
        let mut again = Table::default();
        model.iter().rev().for_each(|(id, asset)| again.put(*id, Some(*asset)));
        assert_eq!(again.digest(), table.digest());
        again.put(AssetId(77_777), Some(asset(0)));
        assert_ne!(again.digest(), table.digest());
        assert_eq!((table.room, again.room), (room_of(&table), room_of(&again)));
        again.put(AssetId(77_777), None);
        assert_eq!(again.digest(), table.digest());
    }

    #[test]
    fn a_copy_stays_as_it_was_and_only_changed_pages_are_copied() {
        let mut table = Table::default();
        (0..100_000).for_each(|id| table.put(AssetId(id), Some(asset(0))));
        let copy = table.clone();
        table.put(AssetId(5), Some(asset(9)));
        table.put(AssetId(200_000), Some(asset(9)));
        assert_eq!((copy.get(AssetId(5)), copy.get(AssetId(200_000))), (Some(asset(0)), None));
        assert_eq!((copy.len(), table.len()), (100_000, 100_001));
        assert_eq!((copy.room, table.room), (room_of(&copy), room_of(&table)), "a copied page has another capacity");
        let shared = |one: &Table, other: &Table| {
            let pages = |table: &Table| table.groups.iter().flat_map(|group| group.to_vec()).collect::<Vec<_>>();
            pages(one).iter().zip(&pages(other)).filter(|(one, other)| !Arc::ptr_eq(one, other)).count()
        };
        assert!((1..=3).contains(&shared(&copy, &table)), "{}", shared(&copy, &table));
    }
}
