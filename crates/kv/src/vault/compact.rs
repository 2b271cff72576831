//! Writes what is still needed of some volumes into a new one of the same range.
//!
//! Values that live are needed, prepared ones whose branch has no outcome, and what hides something elsewhere: a rebuild of
//! the ledger from journal and volumes alone must never find again what was deleted. So a delete, an erased range and an
//! outcome stay while another volume may hold what they hide. Of a compacted volume it is known that it holds nothing
//! that was dead as of its `as_of`: what hid at seq t <= `as_of` hides nothing there. Of the journal itself nothing is known.
//! An outcome also stays while the store remembers it by its branch's name, so that whoever asks hears the same after a rebuild.
//!
//! A write counts for what it superseded only if it is durable: else a power cut takes the one and the other is gone already.
//!
//! Walk: [`compact`] reads each [`Source`] in order, lets short items wait until all of a window are asked for together ([`Window`], [`Answers`]) but
//! those which the source knows to be dead ([`Source::is_dead`]), and keeps each or not by its [`Liveness`] ([`Judge::keep`]).
//! Deliberately absent: making the new volume known, and letting go of the old ones.

use std::path::Path;

use assent_runs::{Go, Pace};
use assent_world::Disk;

use crate::vault::VaultError;
use crate::vault::hides::Hides;
use crate::vault::item::{self, Address, Body, Item, Value};
use crate::vault::seal::Facts;
use crate::vault::window::{SHORT_BYTES, Window};
use crate::vault::writer::{PACE_BYTES, VolumeWriter};

/// Items in the order of their addresses: a compacted volume, or a part of the journal.
pub(crate) trait Source {
    /// Hands each item over.
    ///
    /// # Errors
    /// As `then` says; as the disk says; `Damaged` at the first damage: what cannot be read must not be left out.
    fn walk(&self, then: &mut dyn FnMut(Item<'_>) -> Result<(), VaultError>) -> Result<(), VaultError>;

    /// Whether the value at the address of the item that is handed over is known to be dead for good, as of something durable: the ledger need
    /// not be asked. Default: nothing is known.
    fn is_dead(&self, address: Address) -> bool {
        let _ = address;
        false
    }
}

/// What is asked of the ledger: what has become of the write of this key at this address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked<'a> {
    pub(crate) keyspace: u32,
    pub(crate) key: &'a [u8],
    pub(crate) address: Address,
    /// The end of the entry that committed it; none: it was prepared by a branch.
    pub(crate) seq: Option<u64>,
    /// It is a delete.
    pub(crate) deletes: bool,
}

/// What has become of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// It is what its key is: committed at `seq`, and nothing newer is known.
    Live { seq: u64 },
    /// Its branch has no outcome.
    Undecided,
    /// A write, a delete or an erased range at `since` superseded it, or its branch was rolled back then; 0: long ago.
    Dead { since: u64 },
    /// Nothing is known of the key, durably: it was deleted or erased, or its time was over, and the ledger has forgotten it.
    Absent,
}

/// Another volume, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Horizon {
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// It holds nothing that was dead as of this seq; 0 for the journal.
    pub(crate) as_of: u64,
    /// There may be a value in it.
    pub(crate) holds: bool,
}

/// What to compact, and what must be known for it.
pub(crate) struct Compaction<'a> {
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) generation: u32,
    /// In order; together they are the range.
    pub(crate) sources: Vec<&'a dyn Source>,
    /// All other volumes, and the journal from where it is not compacted: what may hold something that is hidden here.
    pub(crate) others: Vec<Horizon>,
    /// Everything up to here is durable, all that is read among it; the ledger's answers are of here or later.
    pub(crate) durable: u64,
    /// The ledger's files know of everything up to here.
    pub(crate) flushed: u64,
    /// Outcomes that stand here or behind are remembered by name, and a rebuild must find them.
    pub(crate) remembered_from: u64,
    /// In what the store counts its journal: the volume says so.
    pub(crate) cell_bytes: u64,
    /// Memory for short items that wait to be asked for together.
    pub(crate) window_bytes: usize,
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compacted {
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) generation: u32,
    /// Nothing in it was dead as of this seq; 0: nothing was compacted, and the journal of its range stays, up to `until`.
    pub(crate) as_of: u64,
    pub(crate) until: u64,
    /// The new volume. One without an item says that nothing of its range counts that an older file may still hold.
    pub(crate) facts: Facts,
    /// Bytes of values that live, as they stand in it.
    pub(crate) kept_bytes: u64,
    /// Bytes of values that do not live and whose rows the ledger's files still have: they are booked out when those are merged.
    /// Counted only where the account is not believed.
    pub(crate) leaving: u64,
    /// Bytes of values that do not live by what the ledger's files did not know when it began: of these a flush may have yet to find some.
    pub(crate) fresh_bytes: u64,
    /// Values kept, and items left out.
    pub(crate) kept: u64,
    pub(crate) dropped: u64,
    /// Deletes, erased ranges and outcomes that still hide something; and of the first two what it takes to remember them.
    pub(crate) remembered: u64,
    pub(crate) hides: Hides,
}

/// So many are asked for between two looks at the pace, and as of one moment: each may read a block.
const TOGETHER_MAX: usize = 1 << 10;
/// So few share no block.
const TOGETHER_MIN: usize = 16;

/// The ledger, as a compaction asks it: what has become of a write.
pub(crate) trait Answers {
    /// Of one.
    ///
    /// # Errors
    /// As the ledger says. So for the other.
    fn alone(&mut self, asked: &Asked<'_>) -> Result<Liveness, VaultError>;

    /// Of many, which come in the order of their keys.
    fn in_order(&mut self) -> Box<Answer<'_>>;
}

pub(crate) type Answer<'a> = dyn FnMut(&Asked<'_>) -> Result<Liveness, VaultError> + 'a;

impl<F: FnMut(&Asked<'_>) -> Result<Liveness, VaultError>> Answers for F {
    fn alone(&mut self, asked: &Asked<'_>) -> Result<Liveness, VaultError> {
        self(asked)
    }

    fn in_order(&mut self) -> Box<Answer<'_>> {
        Box::new(self)
    }
}

/// Compacts into a new volume, durable when it returns, and known to nobody.
///
/// # Errors
/// `Stopped` if the pace says so; `Compaction` if something read is not durable yet; as the sources, the ledger and the disk
/// say. Nothing is left behind.
pub(crate) fn compact(
    compaction: &Compaction<'_>,
    ledger: &mut dyn Answers,
    disk: &dyn Disk,
    folder: &Path,
    pace: &dyn Pace,
) -> Result<Compacted, VaultError> {
    let Compaction { first, end, generation, .. } = *compaction;
    let writer = VolumeWriter::create(disk, folder, (first, end), generation, pace)?;
    let mut work = Work { judge: Judge::new(compaction), ledger, writer, pace };
    let (mut window, mut unpaced) = (Window::new(compaction.window_bytes), 0);
    for source in &compaction.sources {
        source.walk(&mut |item| {
            let bytes = item_bytes(&item);
            unpaced += bytes;
            if unpaced >= PACE_BYTES {
                unpaced = 0;
                go_on(pace)?;
            }
            if matches!(item.body, Body::Value { .. } | Body::Prepared { .. }) && source.is_dead(item.address) {
                work.judge.dropped += 1;
                return Ok(());
            }
            let waits = bytes <= SHORT_BYTES && !window.is_full();
            if waits {
                window.push(&item);
            }
            if !waits || window.is_full() {
                work.settle(&mut window)?;
            }
            if waits { Ok(()) } else { work.alone(item) }
        })?;
    }
    work.settle(&mut window)?;
    let Work { judge: Judge { as_of, kept, kept_bytes, fresh_bytes, dropped, remembered, hides, .. }, writer, .. } =
        work;
    // No entry ends before its frame: as of 1 nothing was dead yet, and 0 says that nothing was compacted.
    let as_of = as_of.max(1);
    let facts = writer.finish(as_of, compaction.cell_bytes)?;
    let done = Compacted { first, end, generation, as_of, facts, ..<_>::default() };
    Ok(Compacted { kept_bytes, fresh_bytes, kept, dropped, remembered, hides, ..done })
}

/// A compaction under way.
struct Work<'a> {
    judge: Judge<'a>,
    ledger: &'a mut dyn Answers,
    writer: VolumeWriter<'a>,
    pace: &'a dyn Pace,
}

fn go_on(pace: &dyn Pace) -> Result<(), VaultError> {
    if pace.wrote(0) == Go::Stop { Err(VaultError::Stopped) } else { Ok(()) }
}

impl Work<'_> {
    /// Asks of all that wait, in the order of their keys, and lets them go in that of their addresses.
    fn settle(&mut self, window: &mut Window) -> Result<(), VaultError> {
        if window.is_empty() {
            return Ok(());
        }
        let mut asked = Vec::with_capacity(window.len());
        for item in window.items() {
            asked.extend(question(&item?));
        }
        asked.sort_unstable_by_key(|asked| (asked.keyspace, asked.key));
        let mut became = Vec::with_capacity(asked.len());
        for asked in asked.chunks(TOGETHER_MAX) {
            let is_few = asked.len() < TOGETHER_MIN;
            let mut answer: Box<Answer<'_>> =
                if is_few { Box::new(|asked| self.ledger.alone(asked)) } else { self.ledger.in_order() };
            for asked in asked {
                became.push((asked.address, answer(asked)?));
            }
            // Nothing is pinned while the pace lets others go first.
            drop(answer);
            if !is_few {
                go_on(self.pace)?;
            }
        }
        became.sort_unstable_by_key(|(address, _)| *address);
        let mut became = became.into_iter().peekable();
        for item in window.items() {
            let item = item?;
            let liveness = became.next_if(|(address, _)| *address == item.address).map(|(_, liveness)| liveness);
            self.keep(item, liveness)?;
        }
        window.clear();
        Ok(())
    }

    /// One that waits for no other.
    fn alone(&mut self, item: Item<'_>) -> Result<(), VaultError> {
        let liveness = question(&item).map(|question| self.ledger.alone(&question)).transpose()?;
        self.keep(item, liveness)
    }

    fn keep(&mut self, item: Item<'_>, liveness: Option<Liveness>) -> Result<(), VaultError> {
        self.judge.keep(item, liveness)?.map_or(Ok(()), |item| self.writer.push(&item))
    }
}

/// Says of a range of the journal that it stays as it is, up to `until`: a volume without an item, as of nothing. One that is readable of itself
/// says where its last entry ends. Durable when it returns, and known to nobody.
///
/// # Errors
/// `Stopped` if the pace says so; as the disk says. Nothing is left behind.
pub(crate) fn keep(
    (first, end, until): (u64, u64, u64),
    (generation, cell_bytes): (u32, u64),
    disk: &dyn Disk,
    folder: &Path,
    pace: &dyn Pace,
) -> Result<Compacted, VaultError> {
    let writer = VolumeWriter::create(disk, folder, (first, end), generation, pace)?;
    let facts = writer.finish_kept(until, cell_bytes)?;
    Ok(Compacted { first, end, generation, until, facts, ..Compacted::default() })
}

const fn seq_of(body: &Body<'_>) -> Option<u64> {
    match body {
        Body::Value { seq, .. } | Body::Deleted { seq, .. } | Body::Erased { seq, .. } | Body::Outcome { seq, .. } => {
            Some(*seq)
        }
        Body::Prepared { .. } | Body::PreparedDelete { .. } => None,
    }
}

const fn item_bytes(item: &Item<'_>) -> usize {
    match &item.body {
        Body::Value { value, .. } | Body::Prepared { value, .. } => {
            value.key.len() + value.metadata.len() + value.value.len()
        }
        Body::Deleted { key, .. } | Body::PreparedDelete { key, .. } => key.len(),
        Body::Erased { from, to: Some(to), .. } => from.len() + to.len(),
        Body::Erased { from, .. } => from.len(),
        Body::Outcome { .. } => 64,
    }
}

/// What is to be asked of an item, if anything is.
const fn question<'i>(item: &Item<'i>) -> Option<Asked<'i>> {
    let (keyspace, key, deletes) = match &item.body {
        Body::Value { value, .. } | Body::Prepared { value, .. } => (value.keyspace, value.key, false),
        Body::Deleted { keyspace, key, .. } | Body::PreparedDelete { keyspace, key, .. } => (*keyspace, *key, true),
        Body::Erased { .. } | Body::Outcome { .. } => return None,
    };
    Some(Asked { keyspace, key, address: item.address, seq: seq_of(&item.body), deletes })
}

fn bytes_of(value: &Value<'_>) -> u64 {
    item::value_bytes(value.key.len(), value.metadata.len(), value.value.len())
}

/// Decides of each item whether it is needed, and as what.
struct Judge<'a> {
    compaction: &'a Compaction<'a>,
    as_of: u64,
    kept: u64,
    kept_bytes: u64,
    fresh_bytes: u64,
    dropped: u64,
    remembered: u64,
    hides: Hides,
}

impl<'a> Judge<'a> {
    const fn new(compaction: &'a Compaction<'a>) -> Self {
        Self {
            compaction,
            as_of: compaction.durable,
            kept: 0,
            kept_bytes: 0,
            fresh_bytes: 0,
            dropped: 0,
            remembered: 0,
            hides: Hides::NONE,
        }
    }

    /// The item as it is to be kept, if it is, by what has become of it: known where there was a [`question`], else it is refused.
    fn keep<'i>(&mut self, item: Item<'i>, liveness: Option<Liveness>) -> Result<Option<Item<'i>>, VaultError> {
        let address = item.address;
        if seq_of(&item.body).is_some_and(|seq| !self.is_durable(seq)) {
            let Compaction { first, end, .. } = *self.compaction;
            return Err(VaultError::Compaction { first, end, what: "something in it is not durable yet" });
        }
        if liveness.is_some() != question(&item).is_some() {
            let Compaction { first, end, .. } = *self.compaction;
            return Err(VaultError::Compaction {
                first,
                end,
                what: "something in it is not in the order of addresses",
            });
        }
        let liveness = liveness.unwrap_or(Liveness::Undecided);
        let body = match item.body {
            Body::Value { seq, value } => self.value(seq, value, liveness),
            Body::Deleted { seq, keyspace, key } => {
                let superseded = matches!(liveness, Liveness::Dead { since } if self.is_durable(since));
                (!superseded && self.hides(seq)).then_some(Body::Deleted { seq, keyspace, key })
            }
            Body::Erased { seq, keyspace, from, to } => {
                self.hides(seq).then_some(Body::Erased { seq, keyspace, from, to })
            }
            Body::Outcome { seq, xid, prepare, committed } => {
                let is_remembered = address.lsn >= self.compaction.remembered_from && xid.branch().is_some();
                let is_needed = is_remembered || self.is_outcome_needed(seq, prepare);
                is_needed.then_some(Body::Outcome { seq, xid, prepare, committed })
            }
            Body::Prepared { xid, value } => match liveness {
                Liveness::Live { seq } if self.is_durable(seq) => Some(Body::Value { seq, value }),
                Liveness::Dead { since } if self.is_durable(since) => None,
                Liveness::Absent => self.expired(self.compaction.durable, value),
                // Its commit, or what superseded it, is not durable: it stays as it is.
                liveness => {
                    self.unresolved(address, liveness);
                    Some(Body::Prepared { xid, value })
                }
            },
            Body::PreparedDelete { xid, keyspace, key } => match liveness {
                Liveness::Live { seq } if self.is_durable(seq) => {
                    self.hides(seq).then_some(Body::Deleted { seq, keyspace, key })
                }
                Liveness::Dead { since } if self.is_durable(since) => None,
                // Committed before now; nothing newer is known of the key, and what comes is newer than now.
                Liveness::Absent => {
                    let seq = self.compaction.durable;
                    self.hides(seq).then_some(Body::Deleted { seq, keyspace, key })
                }
                liveness => {
                    self.unresolved(address, liveness);
                    Some(Body::PreparedDelete { xid, keyspace, key })
                }
            },
        };
        self.count(body.as_ref());
        Ok(body.map(|body| Item { address, body }))
    }

    fn value<'i>(&mut self, seq: u64, value: Value<'i>, liveness: Liveness) -> Option<Body<'i>> {
        match liveness {
            Liveness::Dead { since } if self.is_durable(since) => {
                if since > self.compaction.flushed {
                    self.fresh_bytes += bytes_of(&value);
                }
                None
            }
            Liveness::Absent => self.expired(seq, value),
            Liveness::Dead { .. } => {
                // Something durable may have superseded it too, which is told by nothing but this: it is not known to live.
                // A later write of the same batch has the same seq.
                self.as_of = self.as_of.min(seq.saturating_sub(1));
                Some(Body::Value { seq, value })
            }
            Liveness::Live { .. } | Liveness::Undecided => Some(Body::Value { seq, value }),
        }
    }

    /// A value whose time was over hides what it had superseded, and no delete does so in its place.
    fn expired<'i>(&self, seq: u64, value: Value<'i>) -> Option<Body<'i>> {
        let Value { keyspace, key, expiry, .. } = value;
        (expiry > 0 && self.hides(seq)).then_some(Body::Deleted { seq, keyspace, key })
    }

    const fn is_durable(&self, seq: u64) -> bool {
        seq <= self.compaction.durable
    }

    /// What is written now, as another volume would be seen: what may have to be hidden in it stands before what hides it, as a
    /// branch holds its keys from its prepared writes to its outcome.
    const fn here(&self) -> Horizon {
        Horizon { first: self.compaction.first, end: self.compaction.end, as_of: self.as_of, holds: true }
    }

    /// Whether something at this seq may hide what a volume still holds: what stands there was written before, and nothing
    /// there was dead as of a later seq. Where no value is nothing is hidden.
    fn hides(&self, seq: u64) -> bool {
        let hidden = |other: &Horizon| other.holds && other.first < seq && other.as_of < seq;
        hidden(&self.here()) || self.compaction.others.iter().any(hidden)
    }

    /// Whether writes of its branch may still stand as prepared: in another volume, or in what is written now.
    fn is_outcome_needed(&self, seq: u64, prepare: u64) -> bool {
        let stands = |other: &Horizon| (other.first..other.end).contains(&prepare) && other.as_of < seq;
        stands(&self.here()) || self.compaction.others.iter().any(stands)
    }

    /// It stays as prepared though its branch is decided: then its outcome is needed, as if nothing here were known since.
    fn unresolved(&mut self, address: Address, liveness: Liveness) {
        if liveness != Liveness::Undecided {
            self.as_of = self.as_of.min(address.lsn);
        }
    }

    fn count(&mut self, body: Option<&Body<'_>>) {
        match body {
            None => self.dropped += 1,
            Some(Body::Value { value, .. } | Body::Prepared { value, .. }) => {
                self.kept += 1;
                self.kept_bytes += bytes_of(value);
            }
            Some(body) => {
                self.remembered += 1;
                match body {
                    Body::Deleted { seq, key, .. } => self.hides.note(*seq, item::hides_bytes(key.len(), false)),
                    Body::Erased { seq, from, to, .. } => {
                        let keys = from.len() + to.unwrap_or_default().len();
                        self.hides.note(*seq, item::hides_bytes(keys, true));
                    }
                    _ => {}
                }
            }
        }
    }
}
