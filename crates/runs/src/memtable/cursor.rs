//! Walks over a memtable: one for readers, as of a seq and both ways, and one for whoever goes through all of it once.
//!
//! Walk: [`MemCursor::new`] puts the table in order first · [`Sorted::next`].
//! Deliberately absent: how entries are laid and linked; that is the table's.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Fronted, HEIGHT_MAX, Memtable, NOWHERE, Node, OLDER_MAX};
use crate::RunsError;
use crate::entry::{Cursor, Entry};

/// All of a table that takes no more entries, once.
#[derive(Debug)]
pub(crate) struct Sorted {
    table: Arc<Memtable>,
    nodes: Vec<Fronted>,
    at: usize,
    /// Nodes before are in the processor's cache; the last one that was shown had so many words.
    touched: usize,
    words: usize,
    /// The key that was shown last, and what it is padded with.
    key: Vec<u8>,
    key_bytes: usize,
    value: Vec<u8>,
}

/// So many nodes are fetched at once, and of each the first two lines and the one in which it ends if it is as long as the one before.
const TOUCHED: usize = 16;
const LINE_WORDS: usize = 8;

impl Sorted {
    /// Of nodes in order.
    pub(super) const fn new(table: Arc<Memtable>, nodes: Vec<Fronted>) -> Self {
        Self { table, nodes, at: 0, touched: 0, words: 0, key: Vec::new(), key_bytes: 0, value: Vec::new() }
    }

    /// The newest entry of the next key.
    pub(crate) fn next(&mut self) -> Option<Entry<'_>> {
        if self.at >= self.touched {
            self.touch();
        }
        // Of the key before, and older: its front is the same.
        while self.is_front_before() && self.here()?.key_order(self.key.get(..self.key_bytes)?) == Ordering::Equal {
            self.at += 1;
        }
        let Self { table, nodes, at, words, key, key_bytes, value, .. } = self;
        let node = nodes.get(*at).and_then(|(_, place)| table.node(*place))?;
        (*at, *words) = (*at + 1, node.sizes().words());
        *key_bytes = node.lay_key(key);
        let value_bytes = node.lay_value(value);
        let value = value_bytes.and_then(|bytes| value.get(..bytes));
        Some(Entry { key: key.get(..*key_bytes)?, seq: node.seq(), value })
    }

    /// Fetches what comes next into the processor's cache, all of it at once: one by one each would be waited for.
    fn touch(&mut self) {
        let ahead = self.nodes.get(self.at..).unwrap_or_default().iter().take(TOUCHED);
        let last = self.words.saturating_sub(1);
        let words = ahead
            .filter_map(|(_, place)| self.table.node(*place))
            .map(|node| node.word(0) ^ node.word(LINE_WORDS) ^ node.word(last));
        std::hint::black_box(words.fold(0, |all, word| all ^ word));
        self.touched = self.at + TOUCHED;
    }

    fn here(&self) -> Option<Node<'_>> {
        self.nodes.get(self.at).and_then(|(_, place)| self.table.node(*place))
    }

    /// Whether it stands on a key with the front of the one before.
    fn is_front_before(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|before| self.nodes.get(before..=self.at));
        matches!(before, Some([(before, _), (front, _)]) if before == front)
    }
}

/// A walk over a table as of a seq.
#[derive(Debug)]
pub(crate) struct MemCursor {
    table: Arc<Memtable>,
    as_of: u64,
    stands: Option<Stands>,
    key: Vec<u8>,
    value: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Stands {
    at: u64,
    seq: u64,
    is_value: bool,
}

impl MemCursor {
    /// Nowhere in a table. What is added later it does not see, so all that it sees is in order.
    pub(crate) fn new(table: Arc<Memtable>, as_of: u64) -> Self {
        table.order();
        Self { table, as_of, stands: None, key: Vec::new(), value: Vec::new() }
    }

    /// To the newest entry that can be seen, at this node's key or behind it.
    fn settle(&mut self, mut at: u64) {
        self.stands = None;
        while let Some(node) = self.table.node(at) {
            if node.seq() <= self.as_of {
                node.copy_key(&mut self.key);
                let is_value = node.copy_value(&mut self.value);
                self.stands = Some(Stands { at, seq: node.seq(), is_value });
                return;
            }
            at = self.table.behind(at, 0);
        }
    }

    /// To the newest entry that can be seen of the last key that has one, among those of which it is true that they come
    /// before.
    fn settle_back(&mut self, comes_before: impl Fn(Node<'_>) -> bool) {
        self.stands = None;
        let mut before = [NOWHERE; HEIGHT_MAX];
        self.table.seek_by(comes_before, &mut before);
        while let Some(node) = self.table.node(before[0]) {
            // The oldest one of its key; what can be seen of the key is at the seq or behind it.
            node.copy_key(&mut self.key);
            let at = self.table.seek(&self.key, self.as_of, &mut before);
            if let Some(seen) = self.table.node(at)
                && seen.key_order(&self.key) == Ordering::Equal
            {
                let is_value = seen.copy_value(&mut self.value);
                self.stands = Some(Stands { at, seq: seen.seq(), is_value });
                return;
            }
            // All of them are newer: on to the key before.
            self.table.seek(&self.key, u64::MAX, &mut before);
        }
    }
}

impl Cursor for MemCursor {
    fn seek(&mut self, key: &[u8]) -> Result<(), RunsError> {
        let at = self.table.seek(key, u64::MAX, &mut [NOWHERE; HEIGHT_MAX]);
        self.settle(at);
        Ok(())
    }

    fn seek_back(&mut self, key: Option<&[u8]>) -> Result<(), RunsError> {
        self.settle_back(|node| key.is_none_or(|key| node.key_order(key) != Ordering::Greater));
        Ok(())
    }

    fn next(&mut self) -> Result<(), RunsError> {
        let Some(Stands { mut at, .. }) = self.stands else { return Ok(()) };
        let is_older = |node: Node<'_>| node.key_order(&self.key) != Ordering::Greater;
        for _ in 0..OLDER_MAX {
            at = self.table.behind(at, 0);
            if !self.table.node(at).is_some_and(is_older) {
                self.settle(at);
                return Ok(());
            }
        }
        at = self.table.seek_by(is_older, &mut [NOWHERE; HEIGHT_MAX]);
        self.settle(at);
        Ok(())
    }

    fn prev(&mut self) -> Result<(), RunsError> {
        if self.stands.is_some() {
            let key = std::mem::take(&mut self.key);
            self.settle_back(|node| node.key_order(&key) == Ordering::Less);
        }
        Ok(())
    }

    fn entry(&self) -> Option<Entry<'_>> {
        let Stands { seq, is_value, .. } = self.stands?;
        Some(Entry { key: &self.key, seq, value: is_value.then_some(self.value.as_slice()) })
    }

    fn key(&self) -> Option<&[u8]> {
        self.stands.is_some().then_some(self.key.as_slice())
    }

    fn seq(&self) -> Option<u64> {
        self.stands.map(|stands| stands.seq)
    }
}
