//! One command at work: every change is noted before it is made, so that all of them can be taken back.
//!
//! Walk: [`Work`] is what operations and business logic see · [`Undo`] what stood there before · [`Undo::back`] puts it back
//! in reverse.

use std::collections::BTreeMap;

use assent_ids::Xid;

use crate::asset::{Asset, AssetId};
use crate::command::{OPS_MAX, Op};
use crate::notes::{Note, Notes};
use crate::refusal::Refusal;
use crate::table::Table;

/// What a command can change.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) assets: Table,
    pub(crate) notes: Notes,
}

/// Assets that prepared branches hold.
pub(crate) type Held = BTreeMap<AssetId, Xid>;

/// Changes of business logic, at most: a call is short, as everybody waits for it.
const CHANGES_MAX: usize = 16 * OPS_MAX;

/// What an asset was, and what it is since.
#[derive(Clone, Copy, Debug)]
struct Changed {
    id: AssetId,
    before: Option<Asset>,
    after: Option<Asset>,
}

/// What stood where something was changed, in the order of the changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Undo {
    assets: Vec<Changed>,
    notes: Vec<((u64, u64), Option<Note>)>,
}

impl Undo {
    pub(crate) fn clear(&mut self) {
        self.assets.clear();
        self.notes.clear();
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.assets.is_empty() && self.notes.is_empty()
    }

    /// Everything as it was.
    pub(crate) fn back(&mut self, state: &mut State) {
        while let Some(Changed { id, before, .. }) = self.assets.pop() {
            state.assets.put(id, before);
        }
        while let Some(((book, key), before)) = self.notes.pop() {
            state.notes.put(book, key, before);
        }
    }

    /// The assets that were changed, each once, in the order of their first change; and what they are.
    pub(crate) fn changed(&self) -> Vec<(AssetId, Option<Asset>)> {
        let mut last = BTreeMap::new();
        for Changed { id, after, .. } in &self.assets {
            last.insert(*id, *after);
        }
        self.assets.iter().filter_map(|changed| last.remove_entry(&changed.id)).collect()
    }

    /// The asset that was changed, if it is one, and once: what it is.
    pub(crate) fn only(&self) -> Option<(AssetId, Option<Asset>)> {
        if let [Changed { id, after, .. }] = self.assets.as_slice() { Some((*id, *after)) } else { None }
    }

    /// The writes of a branch, as they were promised.
    pub(crate) fn lay(&mut self, state: &mut State, writes: &[(AssetId, Option<Asset>)]) {
        for (id, asset) in writes {
            self.assets.push(Changed { id: *id, before: state.assets.get(*id), after: *asset });
            state.assets.put(*id, *asset);
        }
    }

    const fn len(&self) -> usize {
        self.assets.len() + self.notes.len()
    }
}

/// The state, as one command may see and change it.
#[derive(Debug)]
pub struct Work<'a> {
    state: &'a mut State,
    undo: &'a mut Undo,
    held: &'a Held,
    time_ms: u64,
}

impl<'a> Work<'a> {
    pub(crate) const fn new(state: &'a mut State, undo: &'a mut Undo, held: &'a Held, time_ms: u64) -> Self {
        Self { state, undo, held, time_ms }
    }

    /// When the command was ordered, in milliseconds since 1970; never less than for the one before.
    #[must_use]
    pub const fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Does one operation; its asset behind it.
    ///
    /// # Errors
    /// Why not. Nothing was changed by it.
    pub fn op(&mut self, op: &Op) -> Result<Asset, Refusal> {
        match *op {
            Op::Get { id } => self.get(id),
            Op::Create { id, value } => self.create(id, value),
            Op::Remove { id } => self.remove(id),
            Op::Set { id, value } => self.change(id, |_| Ok(value)),
            Op::Add { id, by } => self.add(id, by),
            Op::AddWithin { id, by, min, max } => self.add_within(id, by, min, max),
            Op::CompareAndSet { id, expected, value } => self.change(id, |asset| match asset.value == expected {
                true => Ok(value),
                false => Err(Refusal::Differs { id, value: asset.value, expected }),
            }),
        }
    }

    /// What an asset is.
    ///
    /// # Errors
    /// [`Refusal::Unknown`].
    pub fn get(&self, id: AssetId) -> Result<Asset, Refusal> {
        self.state.assets.get(id).ok_or(Refusal::Unknown { id })
    }

    /// A new asset.
    ///
    /// # Errors
    /// [`Refusal::Exists`], [`Refusal::Held`].
    pub fn create(&mut self, id: AssetId, value: i64) -> Result<Asset, Refusal> {
        self.may_change(id)?;
        let Err(place) = self.state.assets.find(id) else { return Err(Refusal::Exists { id }) };
        let asset = Asset { value, updates: 0 };
        self.undo.assets.push(Changed { id, before: None, after: Some(asset) });
        self.state.assets.insert(place, id, asset);
        Ok(asset)
    }

    /// Removes an asset; it was this.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], [`Refusal::Held`].
    pub fn remove(&mut self, id: AssetId) -> Result<Asset, Refusal> {
        self.may_change(id)?;
        let Ok((found, before)) = self.state.assets.find(id) else { return Err(Refusal::Unknown { id }) };
        self.undo.assets.push(Changed { id, before: Some(before), after: None });
        self.state.assets.remove(found);
        Ok(before)
    }

    /// Adds to an asset.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], [`Refusal::Overflow`], [`Refusal::Held`].
    pub fn add(&mut self, id: AssetId, by: i64) -> Result<Asset, Refusal> {
        self.change(id, |asset| sum(id, asset.value, by))
    }

    /// Adds to an asset, if the sum is within bounds.
    ///
    /// # Errors
    /// As [`Work::add`], and [`Refusal::Bounds`].
    pub fn add_within(&mut self, id: AssetId, by: i64, min: i64, max: i64) -> Result<Asset, Refusal> {
        self.change(id, |asset| {
            let value = sum(id, asset.value, by)?;
            if value < min {
                return Err(Refusal::Bounds { id, value, bound: min });
            }
            if value > max {
                return Err(Refusal::Bounds { id, value, bound: max });
            }
            Ok(value)
        })
    }

    fn change(&mut self, id: AssetId, to: impl FnOnce(Asset) -> Result<i64, Refusal>) -> Result<Asset, Refusal> {
        self.may_change(id)?;
        let Ok((found, before)) = self.state.assets.find(id) else { return Err(Refusal::Unknown { id }) };
        let asset = Asset { value: to(before)?, updates: before.updates.saturating_add(1) };
        self.undo.assets.push(Changed { id, before: Some(before), after: Some(asset) });
        self.state.assets.replace(found, asset);
        Ok(asset)
    }

    /// A note of a book.
    #[must_use]
    pub fn note(&self, book: u64, key: u64) -> Option<&[u8]> {
        self.state.notes.get(book, key).map(|note| &**note)
    }

    /// The note with the smallest key of a book.
    #[must_use]
    pub fn first_note(&self, book: u64) -> Option<(u64, &[u8])> {
        self.state.notes.first(book).map(|(key, note)| (key, &**note))
    }

    /// The note is this one, or none.
    ///
    /// # Errors
    /// [`Refusal::Limit`]: [`NOTES_PER_BOOK_MAX`](crate::NOTES_PER_BOOK_MAX), [`NOTE_BYTES_MAX`](crate::NOTE_BYTES_MAX).
    pub fn put_note(&mut self, book: u64, key: u64, note: Option<&[u8]>) -> Result<(), Refusal> {
        self.has_room()?;
        if let Some(note) = note {
            self.state.notes.refuse_more(book, key, note.len())?;
        }
        let before = self.state.notes.put(book, key, note.map(Note::from));
        self.undo.notes.push(((book, key), before));
        Ok(())
    }

    fn may_change(&self, id: AssetId) -> Result<(), Refusal> {
        if !self.held.is_empty() && self.held.contains_key(&id) {
            return Err(Refusal::Held { id });
        }
        self.has_room()
    }

    fn has_room(&self) -> Result<(), Refusal> {
        if self.undo.len() < CHANGES_MAX {
            return Ok(());
        }
        Err(Refusal::Limit { limit: u64::try_from(CHANGES_MAX).unwrap_or(u64::MAX) })
    }
}

const fn sum(id: AssetId, value: i64, by: i64) -> Result<i64, Refusal> {
    match value.checked_add(by) {
        Some(sum) => Ok(sum),
        None => Err(Refusal::Overflow { id, value, by }),
    }
}
