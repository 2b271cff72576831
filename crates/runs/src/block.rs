//! A block: entries in the order of their keys, each key without what it shares with the one before.
//!
//! ```text
//!   entry ... | restarts: place 4 each | their number 4          (sealed behind, see `seal`)
//!   entry: shared bytes · other bytes · 0, or value bytes + 1 · seq (all varints) | other bytes of the key | value
//! ```
//! At a restart a key stands whole, so that a search can begin there; every 16th entry is one, and in an index every 4th.
//!
//! Walk: [`BlockBuilder`] lays · [`Block::parse`] takes the bytes in · [`Block::get`] finds one entry and copies nothing ·
//! [`BlockCursor`] walks both ways.
//! Deliberately absent: I/O, checksums, and whether a value is a user's or a place in an index.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use assent_frame::Malformed;

use crate::Entry;

const RESTART_ENTRIES: usize = 16;
/// In an index, where each look-up goes through what stands behind a restart, and keys are short.
const RESTART_ENTRIES_INDEX: usize = 4;
const NUMBER_BYTES: usize = 4;
/// A varint is no longer.
const NUMBER_BYTES_MAX: usize = 10;

/// Lays entries, which come in the order of their keys.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    restart_entries: usize,
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    last: Vec<u8>,
    since_restart: usize,
}

impl Default for BlockBuilder {
    fn default() -> Self {
        Self {
            restart_entries: RESTART_ENTRIES,
            bytes: Vec::new(),
            restarts: Vec::new(),
            last: Vec::new(),
            since_restart: 0,
        }
    }
}

impl BlockBuilder {
    /// Of an index.
    pub(crate) fn index() -> Self {
        Self { restart_entries: RESTART_ENTRIES_INDEX, ..Self::default() }
    }

    /// Lays the next entry.
    pub(crate) fn push(&mut self, entry: &Entry<'_>) {
        let shared = if self.restarts.is_empty() || self.since_restart == self.restart_entries {
            self.restarts.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
            self.since_restart = 0;
            0
        } else {
            shared(&self.last, entry.key)
        };
        self.since_restart += 1;
        let rest = entry.key.get(shared..).unwrap_or_default();
        let value = entry.value.unwrap_or_default();
        // Asked for once, and not with each piece.
        self.bytes.reserve(4 * NUMBER_BYTES_MAX + rest.len() + value.len());
        match (short(shared), short(rest.len()), short(entry.value.map_or(0, |value| value.len() + 1))) {
            // Most are so short.
            (Some(shared), Some(rest), Some(value)) => self.bytes.extend_from_slice(&[shared, rest, value]),
            _ => {
                lay(&mut self.bytes, number(shared));
                lay(&mut self.bytes, number(rest.len()));
                lay(&mut self.bytes, entry.value.map_or(0, |value| number(value.len()) + 1));
            }
        }
        lay(&mut self.bytes, entry.seq);
        self.bytes.extend_from_slice(rest);
        self.bytes.extend_from_slice(value);
        self.last.truncate(shared);
        self.last.extend_from_slice(rest);
    }

    /// Whether nothing was laid.
    pub(crate) const fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// How long the block would be now.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len() + NUMBER_BYTES * (self.restarts.len() + 1)
    }

    /// The key that was laid last.
    pub(crate) fn last(&self) -> &[u8] {
        &self.last
    }

    /// The block; the next entry begins another one.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        // About as long as the next one: it would be moved nine times while it grows.
        let next = Vec::with_capacity(self.bytes.capacity().min(self.bytes.len() * 2));
        let mut bytes = std::mem::replace(&mut self.bytes, next);
        for restart in &self.restarts {
            bytes.extend_from_slice(&restart.to_le_bytes());
        }
        bytes.extend_from_slice(&u32::try_from(self.restarts.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.restarts.clear();
        self.last.clear();
        bytes
    }
}

/// How many bytes two keys have in common.
pub(crate) fn shared(a: &[u8], b: &[u8]) -> usize {
    // By words: keys of one keyspace share a dozen bytes and more.
    let (words_a, rest_a) = a.as_chunks::<8>();
    let (words_b, rest_b) = b.as_chunks::<8>();
    let mut bytes = 0;
    for (a, b) in words_a.iter().zip(words_b) {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return bytes + usize::try_from(differing.trailing_zeros() / u8::BITS).unwrap_or(0);
        }
        bytes += 8;
    }
    let (rest_a, rest_b) = match words_a.len().cmp(&words_b.len()) {
        Ordering::Equal => (rest_a, rest_b),
        _ => (a.get(bytes..).unwrap_or_default(), b.get(bytes..).unwrap_or_default()),
    };
    bytes + rest_a.iter().zip(rest_b).take_while(|(a, b)| a == b).count()
}

fn number(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// A number that is a varint of one byte.
fn short(length: usize) -> Option<u8> {
    u8::try_from(length).ok().filter(|length| *length < 0x80)
}

fn lay(bytes: &mut Vec<u8>, mut value: u64) {
    if value < 1 << 56 {
        // Seven bits to a byte, all bytes at once, and those behind the last one are taken back.
        let halves = (value & 0x0fff_ffff) | (value & 0x00ff_ffff_f000_0000) << 4;
        let quarters = (halves & 0x0000_3fff_0000_3fff) | (halves & 0x0fff_c000_0fff_c000) << 2;
        let spread = (quarters & 0x007f_007f_007f_007f) | (quarters & 0x3f80_3f80_3f80_3f80) << 1;
        let last = (u64::BITS - 1 - (spread | 1).leading_zeros()) / u8::BITS;
        let goes_on = 0x0080_8080_8080_8080 & !(u64::MAX << (last * u8::BITS));
        let end = bytes.len() + usize::try_from(last).unwrap_or(0) + 1;
        bytes.extend_from_slice(&(spread | goes_on).to_le_bytes());
        return bytes.truncate(end);
    }
    loop {
        let [low, ..] = (value & 0x7f).to_le_bytes();
        value >>= 7;
        if value == 0 {
            return bytes.push(low);
        }
        bytes.push(low | 0x80);
    }
}

/// How many bytes the varint takes that begins there.
#[inline]
fn number_bytes(bytes: &[u8]) -> Option<usize> {
    let ends = bytes.first_chunk().map_or(0, |word| !u64::from_le_bytes(*word) & 0x8080_8080_8080_8080);
    if ends != 0 {
        return usize::try_from(ends.trailing_zeros() / u8::BITS + 1).ok();
    }
    bytes.iter().take(NUMBER_BYTES_MAX).position(|byte| *byte < 0x80).map(|last| last + 1)
}

#[inline]
fn take(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let from = bytes.get(*at..)?;
    if let Some(word) = from.first_chunk() {
        let word = u64::from_le_bytes(*word);
        let ends = !word & 0x8080_8080_8080_8080;
        if ends != 0 {
            // What is up to the first byte that ends, seven bits of each, all bytes at once.
            let last = ends.trailing_zeros() / u8::BITS;
            *at += usize::try_from(last + 1).unwrap_or(0);
            let spread = word & 0x7f7f_7f7f_7f7f_7f7f & u64::MAX >> (u64::BITS - u8::BITS * (last + 1));
            let quarters = (spread & 0x007f_007f_007f_007f) | (spread & 0x7f00_7f00_7f00_7f00) >> 1;
            let halves = (quarters & 0x0000_3fff_0000_3fff) | (quarters & 0x3fff_0000_3fff_0000) >> 2;
            return Some((halves & 0x0fff_ffff) | (halves & 0x0fff_ffff_0000_0000) >> 4);
        }
    }
    take_slowly(from, at)
}

/// One that is long, or near the end.
fn take_slowly(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let (mut value, mut shift) = (0, 0);
    for byte in bytes.iter().take(NUMBER_BYTES_MAX) {
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
        shift += 7;
    }
    None
}

/// A block in memory. The empty one has no entries.
#[derive(Debug, Default)]
pub(crate) struct Block {
    bytes: Box<[u8]>,
    entries_end: usize,
    restarts: usize,
}

/// An entry as it stands in a block.
#[derive(Clone, Debug)]
struct Laid {
    start: usize,
    shared: usize,
    rest: Range<usize>,
    /// Where its seq stands: most are passed by, and nobody asks for it.
    seq: usize,
    value: Option<Range<usize>>,
    end: usize,
}

/// What a key became: the place in the order, and the value or none.
pub(crate) type Became<'a> = (u64, Option<&'a [u8]>);

const fn malformed<T>(field: &'static str) -> Result<T, Malformed> {
    Err(Malformed { field })
}

impl Block {
    /// Takes the bytes of a block in.
    ///
    /// # Errors
    /// [`Malformed`]: no builder laid them. So for all below.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let field = "restarts";
        let (rest, restarts) = bytes.split_last_chunk::<NUMBER_BYTES>().ok_or(Malformed { field })?;
        let restarts = usize::try_from(u32::from_le_bytes(*restarts)).map_err(|_| Malformed { field })?;
        let laid = restarts.checked_mul(NUMBER_BYTES).ok_or(Malformed { field })?;
        let entries_end = rest.len().checked_sub(laid).ok_or(Malformed { field })?;
        let block = Block { bytes: bytes.into(), entries_end, restarts };
        match block.restart(0) {
            Some(0) if entries_end > 0 => Ok(block),
            None if entries_end == 0 => Ok(block),
            _ => malformed(field),
        }
    }

    /// The memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }

    fn restart(&self, nth: usize) -> Option<usize> {
        if nth >= self.restarts {
            return None;
        }
        let place = self.bytes.get(self.entries_end + nth * NUMBER_BYTES..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*place)).ok().filter(|place| *place < self.entries_end)
    }

    fn slice(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    #[inline]
    fn laid(&self, start: usize) -> Result<Laid, Malformed> {
        self.try_laid(start).ok_or(Malformed { field: "entry" })
    }

    #[inline]
    fn try_laid(&self, start: usize) -> Option<Laid> {
        let entries = self.bytes.get(..self.entries_end)?;
        let mut at = start;
        let (shared, rest, value) = match entries.get(start..)?.first_chunk() {
            // Most are so short.
            Some([shared @ 0..0x80, rest @ 0..0x80, value @ 0..0x80]) => {
                at += 3;
                (usize::from(*shared), usize::from(*rest), usize::from(*value))
            }
            _ => {
                let mut length = || usize::try_from(take(entries, &mut at)?).ok();
                (length()?, length()?, length()?)
            }
        };
        let seq = at;
        at += number_bytes(entries.get(at..)?)?;
        let rest = at..at.checked_add(rest)?;
        let end = rest.end.checked_add(value.saturating_sub(1)).filter(|end| *end <= entries.len())?;
        let value = (value > 0).then_some(rest.end..end);
        Some(Laid { start, shared, rest, seq, value, end })
    }

    fn seq(&self, laid: &Laid) -> u64 {
        take(&self.bytes, &mut laid.seq.clone()).unwrap_or(0)
    }

    /// The whole key at a restart.
    fn restart_key(&self, nth: usize) -> Result<&[u8], Malformed> {
        let start = self.restart(nth).ok_or(Malformed { field: "restart" })?;
        let laid = self.laid(start)?;
        if laid.shared == 0 { Ok(self.slice(&laid.rest)) } else { malformed("restart") }
    }

    /// The last restart whose key is at this one or before it.
    fn restart_before(&self, key: &[u8]) -> Result<Option<usize>, Malformed> {
        let (mut from, mut to) = (0, self.restarts);
        while from < to {
            let middle = from.midpoint(to);
            if self.restart_key(middle)? <= key {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        Ok(from.checked_sub(1))
    }

    /// What this key became, as this block says.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Became<'_>>, Malformed> {
        let found = self.floor(key)?.filter(|(_, is_it)| *is_it);
        Ok(found.map(|(laid, _)| (self.seq(&laid), laid.value.as_ref().map(|value| self.slice(value)))))
    }

    /// The value of the last entry at this key or before it: in an index, the place where the key would be.
    pub(crate) fn value_before(&self, key: &[u8]) -> Result<Option<&[u8]>, Malformed> {
        let found = self.floor(key)?;
        Ok(found.map(|(laid, _)| laid.value.as_ref().map(|value| self.slice(value)).unwrap_or_default()))
    }

    /// The last entry at this key or before it, and whether it is at it. Copies no key.
    fn floor(&self, key: &[u8]) -> Result<Option<(Laid, bool)>, Malformed> {
        let Some(nth) = self.restart_before(key)? else { return Ok(None) };
        let Some(mut at) = self.restart(nth) else { return malformed("restart") };
        let end = self.restart(nth + 1).unwrap_or(self.entries_end);
        let mut floor = None;
        // How far the entry before, which is less than the key, agrees with it.
        let mut agreed = 0;
        while at < end {
            let laid = self.laid(at)?;
            at = laid.end;
            match laid.shared.cmp(&agreed) {
                // It differs from the key where the one before did.
                Ordering::Greater => {}
                // It is greater than the one before at a byte where that agreed with the key.
                Ordering::Less => break,
                Ordering::Equal => {
                    let (rest, wanted) = (self.slice(&laid.rest), key.get(agreed..).unwrap_or_default());
                    let more = shared(rest, wanted);
                    match (rest.get(more), wanted.get(more)) {
                        (None, None) => return Ok(Some((laid, true))),
                        (here, there) if here < there => agreed += more,
                        _ => break,
                    }
                }
            }
            floor = Some((laid, false));
        }
        Ok(floor)
    }
}

/// Stands on an entry of a block, or nowhere.
#[derive(Debug, Default)]
pub(crate) struct BlockCursor {
    block: Arc<Block>,
    key: Vec<u8>,
    at: Option<Laid>,
}

impl BlockCursor {
    /// Nowhere in a block.
    pub(crate) const fn new(block: Arc<Block>) -> Self {
        Self { block, key: Vec::new(), at: None }
    }

    /// Whether it stands on an entry.
    pub(crate) const fn stands(&self) -> bool {
        self.at.is_some()
    }

    /// Where it stands.
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        let at = self.at.as_ref()?;
        Some(Entry {
            key: &self.key,
            seq: self.block.seq(at),
            value: at.value.as_ref().map(|value| self.block.slice(value)),
        })
    }

    /// The key where it stands.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.stands().then_some(self.key.as_slice())
    }

    /// The place in the owner's order of the entry where it stands.
    pub(crate) fn seq(&self) -> Option<u64> {
        self.at.as_ref().map(|at| self.block.seq(at))
    }

    /// To the first entry.
    pub(crate) fn first(&mut self) -> Result<(), Malformed> {
        self.restart(0)
    }

    /// To the last entry.
    pub(crate) fn last(&mut self) -> Result<(), Malformed> {
        match self.block.restarts.checked_sub(1) {
            Some(nth) => self.scan(nth, |_, _, _| true),
            None => self.nowhere(),
        }
    }

    /// To the first entry at this key or behind it.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<(), Malformed> {
        self.seek_back(key)?;
        match &self.at {
            Some(_) if self.key == key => Ok(()),
            Some(_) => self.next(),
            None => self.first(),
        }
    }

    /// To the last entry at this key or before it.
    pub(crate) fn seek_back(&mut self, key: &[u8]) -> Result<(), Malformed> {
        match self.block.restart_before(key)? {
            Some(nth) => self.scan(nth, |head, rest, _| compare(head, rest, key).is_le()),
            None => self.nowhere(),
        }
    }

    /// To the next entry.
    pub(crate) fn next(&mut self) -> Result<(), Malformed> {
        match self.at.take() {
            Some(at) if at.end < self.block.entries_end => {
                let laid = self.block.laid(at.end)?;
                self.stand(laid)
            }
            _ => Ok(()),
        }
    }

    /// To the entry before.
    pub(crate) fn prev(&mut self) -> Result<(), Malformed> {
        let Some(here) = self.at.take().map(|at| at.start) else { return Ok(()) };
        let (mut from, mut to) = (0, self.block.restarts);
        while from < to {
            let middle = from.midpoint(to);
            if self.block.restart(middle).is_some_and(|place| place < here) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        match from.checked_sub(1) {
            Some(nth) => self.scan(nth, |_, _, start| start < here),
            None => Ok(()),
        }
    }

    fn nowhere(&mut self) -> Result<(), Malformed> {
        self.at = None;
        Ok(())
    }

    fn restart(&mut self, nth: usize) -> Result<(), Malformed> {
        self.key.clear();
        self.at = None;
        match self.block.restart(nth) {
            Some(place) => self.block.laid(place).and_then(|laid| self.stand(laid)),
            None if self.block.restarts == 0 => Ok(()),
            None => malformed("restart"),
        }
    }

    /// From a restart to the last entry for which this holds: shared part and rest of its key, and where it starts.
    fn scan(&mut self, nth: usize, holds: impl Fn(&[u8], &[u8], usize) -> bool) -> Result<(), Malformed> {
        self.restart(nth)?;
        while let Some(end) = self.at.as_ref().map(|at| at.end).filter(|end| *end < self.block.entries_end) {
            let laid = self.block.laid(end)?;
            let Some(head) = self.key.get(..laid.shared) else { return malformed("shared") };
            if !holds(head, self.block.slice(&laid.rest), end) {
                break;
            }
            self.stand(laid)?;
        }
        Ok(())
    }

    fn stand(&mut self, laid: Laid) -> Result<(), Malformed> {
        if laid.shared > self.key.len() {
            return malformed("shared");
        }
        self.key.truncate(laid.shared);
        self.key.extend_from_slice(self.block.slice(&laid.rest));
        self.at = Some(laid);
        Ok(())
    }
}

/// A key in two parts against a whole one.
fn compare(head: &[u8], rest: &[u8], key: &[u8]) -> Ordering {
    match key.split_at_checked(head.len()) {
        Some((front, back)) => head.cmp(front).then_with(|| rest.cmp(back)),
        None => head.cmp(key),
    }
}

#[cfg(test)]
mod numbers {
    use super::*;

    #[test]
    fn a_look_up_in_an_index_goes_through_four_entries_at_most_and_in_data_through_sixteen() {
        for (mut builder, restarts) in [(BlockBuilder::default(), 3), (BlockBuilder::index(), 9)] {
            for _ in 0..2 {
                for key in 0..33_u8 {
                    builder.push(&Entry { key: &[7, key], seq: 0, value: Some(&[key; 12]) });
                }
                let block = Block::parse(&builder.finish()).unwrap();
                assert_eq!(block.restarts, restarts);
                for key in 0..33_u8 {
                    assert_eq!(block.value_before(&[7, key, 1]).unwrap(), Some(&[key; 12][..]));
                }
            }
        }
    }

    #[test]
    fn a_number_of_any_length_comes_back_wherever_it_stands() {
        for bits in 0..u64::BITS {
            for value in [0, (1 << bits) - 1, 1 << bits, 1 << bits | 1, u64::MAX >> bits] {
                let (mut plain, mut rest) = (Vec::new(), value);
                while rest > 0x7f {
                    plain.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
                    rest >>= 7;
                }
                plain.push(u8::try_from(rest).unwrap());
                let mut laid = vec![9];
                lay(&mut laid, value);
                assert_eq!(laid.get(1..), Some(plain.as_slice()), "{value:#x}");
                // At the very end, and with other numbers behind it.
                for behind in [0, 1, 6, 7, 8] {
                    laid.truncate(1 + plain.len());
                    laid.resize(1 + plain.len() + behind, 0xff);
                    let mut at = 1;
                    assert_eq!((take(&laid, &mut at), at), (Some(value), 1 + plain.len()), "{value:#x}, {behind}");
                    assert_eq!(laid.get(1..).and_then(number_bytes), Some(plain.len()), "{value:#x}, {behind}");
                }
            }
        }
        assert_eq!([&[][..], &[0x80], &[0xff; 10]].map(|bytes| take(bytes, &mut 0)), [None; 3]);
    }
}
