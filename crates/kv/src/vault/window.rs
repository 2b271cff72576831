//! Items that wait until the ledger is asked of all of them together, in the order of their keys: of keys that stand near each other it reads a
//! block once. They come and go in the order of their addresses.
//!
//! Walk: [`Window::push`] copies an item that is short · [`Window::items`] gives them back.
//! Deliberately absent: long items. Beside what they are a look-up costs little, and a window would hold few of them.

use assent_frame::Writer;
use assent_ids::Lsn;

use crate::vault::VaultError;
use crate::vault::item::{Address, Body, Item};

/// An item is short whose keys, metadata and value take so many bytes, or fewer.
pub(crate) const SHORT_BYTES: usize = 1 << 10;
/// What an item takes in memory beside its bytes, with what is asked of it.
const ITEM_BYTES: usize = 160;
/// What one takes at most, with its fields and the name of its branch.
const ITEM_BYTES_MAX: usize = SHORT_BYTES + ITEM_BYTES + 256;

/// Short items, within a budget of bytes.
#[derive(Debug, Default)]
pub(crate) struct Window {
    bytes_max: usize,
    laid: Writer,
    items: Vec<Place>,
}

/// Where an item ends: it begins behind the one before.
#[derive(Clone, Copy, Debug)]
struct Place {
    address: Address,
    kind: u16,
    fields_end: usize,
    end: usize,
}

impl Window {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// Takes an item in.
    pub(crate) fn push(&mut self, item: &Item<'_>) {
        let Item { address, body } = item;
        body.lay(&mut self.laid);
        let fields_end = self.laid.as_slice().len();
        self.laid.raw(body.value());
        self.items.push(Place { address: *address, kind: body.kind(), fields_end, end: self.laid.as_slice().len() });
    }

    /// Whether it has no room for one more.
    pub(crate) fn is_full(&self) -> bool {
        self.laid.as_slice().len() + self.items.len() * ITEM_BYTES + ITEM_BYTES_MAX > self.bytes_max
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) const fn len(&self) -> usize {
        self.items.len()
    }

    /// All of them, as they came.
    ///
    /// # Errors
    /// `Record`, which no item is that was laid here.
    pub(crate) fn items(&self) -> impl Iterator<Item = Result<Item<'_>, VaultError>> {
        let mut begin = 0;
        self.items.iter().map(move |place| {
            let part = |from, to| self.laid.as_slice().get(from..to).unwrap_or_default();
            let body = Body::read(place.kind, part(begin, place.fields_end), part(place.fields_end, place.end));
            begin = place.end;
            let lsn = Lsn(place.address.lsn);
            let body = body.map_err(|malformed| VaultError::Record { lsn, malformed })?;
            Ok(Item { address: place.address, body })
        })
    }

    /// Lets all of them go, and keeps the memory for the next.
    pub(crate) fn clear(&mut self) {
        self.laid.clear();
        self.items.clear();
    }
}

#[cfg(test)]
mod tests {
    use assent_ids::Xid;

    use super::*;
    use crate::vault::Value;

    #[test]
    fn items_come_back_as_they_were() {
        let xid = Xid::new(3, b"global", b"branch").unwrap();
        let value = |key, value| Value { keyspace: 7, key, modified: 1, expiry: 2, metadata: b"m", value, hash: 9 };
        let bodies = [
            Body::Value { seq: 1, value: value(b"", b"") },
            Body::Deleted { seq: 2, keyspace: 0, key: b"" },
            Body::Erased { seq: 3, keyspace: 1, from: b"a", to: None },
            Body::Erased { seq: 3, keyspace: 1, from: b"", to: Some(b"b") },
            Body::Outcome { seq: 4, xid, prepare: 3, committed: true },
            Body::Prepared { xid, value: value(b"key", b"a longer value") },
            Body::PreparedDelete { xid, keyspace: 5, key: b"key" },
        ];
        let items = (0..).zip(bodies).map(|(at, body)| Item { address: Address::new(64, at), body });
        let items: Vec<Item<'_>> = items.collect();
        let mut window = Window::new(1 << 20);
        for _ in 0..2 {
            items.iter().for_each(|item| window.push(item));
            assert_eq!(window.items().collect::<Result<Vec<_>, _>>(), Ok(items.clone()));
            assert_eq!((window.len(), window.is_full()), (items.len(), false));
            window.clear();
            assert_eq!((window.len(), window.items().count()), (0, 0));
        }
    }

    #[test]
    fn it_is_full_before_it_takes_more_than_it_may() {
        let xid = Xid::new(3, &[7; 64], &[9; 64]).unwrap();
        let bytes = [7; SHORT_BYTES - 8];
        let value =
            Value { keyspace: 7, key: b"8 bytes.", modified: 1, expiry: 2, metadata: b"", value: &bytes, hash: 9 };
        for bytes_max in (0..20_000).step_by(61) {
            for body in [Body::Value { seq: 1, value }, Body::Prepared { xid, value }] {
                let item = Item { address: Address::new(1, 0), body };
                let mut window = Window::new(bytes_max);
                while !window.is_full() {
                    window.push(&item);
                }
                let bytes = window.laid.as_slice().len() + window.items.len() * ITEM_BYTES;
                assert!(bytes <= bytes_max && (bytes > 0) == (bytes_max >= ITEM_BYTES_MAX), "{bytes} of {bytes_max}");
                assert!(bytes_max - bytes < ITEM_BYTES_MAX, "{bytes} of {bytes_max}");
            }
        }
    }
}
