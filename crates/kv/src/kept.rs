//! Cells of the journal that no compaction can read, or that are full while what stands behind them is not: they stay as they are, and that is
//! compacted all the same.
//!
//! A volume of what can be read would be wrong: what cannot may be a delete. So a volume without an item, as of nothing, says of their
//! range that the journal has it. A value there is read where it is, or its damage is told; what hides something there, or is
//! hidden by something there, stays, as with the journal itself; and no stretch of it is released. Once it can be read again, a
//! compaction takes it in like any other: after the next open, which forgets what was damaged.
//!
//! Of full ones it is known where the last of their entries ends, and said: nothing else of the journal stays for them, and they are compacted once that
//! is worth it. The journal says it where it begins a segment; of what an earlier release wrote all is read.
//!
//! Walk: [`Kv::pass_readable`] · [`Kv::unreadable_front`] · [`Kv::pass`] · [`kept_until`] says what else of the journal must stay for it.
//! Deliberately absent: repair.

use std::sync::{MutexGuard, PoisonError};

use assent_ids::Lsn;
use assent_journal::{ENTRY_BYTES_MAX, Entries, Log};
use assent_runs::{Go, Pace};

use crate::vault::{Account, Front, PACE_BYTES, VaultError, keep};
use crate::{Kv, KvError};

/// The stretches in which cells stand are no more than so many times as long: where the journal was opened anew two have parts of a cell, and
/// with longer segments than at first one has many.
const HOLDS_MAX: u64 = 3;

/// Who only reads stands before no sync: it asks less often whether to go on.
const READ_PACE_BYTES: usize = 16 * PACE_BYTES;

struct Stopped;

impl Kv {
    /// The oldest cell of the journal, if a compaction has found that it cannot be read.
    pub(crate) fn unreadable_front(&self) -> Option<Account> {
        let front = self.shared.ledger.accounts().cells(self.sealed_end()).next()?;
        self.damaged().range(front.first..front.end).next().is_some().then_some(front)
    }

    /// Lets what is behind such a cell be compacted. Whether it did; not if it was told to stop.
    pub(crate) fn pass(&self, cell: &Account, pace: &dyn Pace) -> Result<bool, KvError> {
        let Account { first, end, .. } = *cell;
        // More than itself: it is not taken for one that can be read.
        let until = kept_until(&*self.shared.log, (first, end), pace).map(|until| until.max(end + 1));
        until.map_or(Ok(false), |until| self.keep((first, end, until), pace))
    }

    /// The same for cells that can be read, with the next ones where an entry begins in one and ends in the next. Whether it did; not if it was
    /// told to stop, or if a compaction should see what is wrong there.
    pub(crate) fn pass_readable(&self, front: Front, pace: &dyn Pace) -> Result<bool, KvError> {
        if self.unpassable().as_ref() == Some(&front) {
            return Ok(false);
        }
        if let Some((end, until)) = divided_at(&*self.shared.log, &front) {
            return self.keep((front.first, end, until), pace);
        }
        match ends_at(&*self.shared.log, &front, pace) {
            Err(Stopped) => Ok(false),
            Ok(Some((end, until))) => self.keep((front.first, end, until), pace),
            Ok(None) => {
                // It would be read again and again.
                *self.unpassable() = Some(front);
                Ok(false)
            }
        }
    }

    fn unpassable(&self) -> MutexGuard<'_, Option<Front>> {
        self.unpassable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, (first, end, until): (u64, u64, u64), pace: &dyn Pace) -> Result<bool, KvError> {
        let Kv { shared, disk, volumes_folder, .. } = self;
        self.make_folder()?;
        let generation = self.generation((first, end, 1), &shared.values.pin())?;
        let laid = (generation, shared.ledger.cell_bytes());
        match keep((first, end, until), laid, &**disk, volumes_folder, pace) {
            Err(VaultError::Stopped) => Ok(false),
            kept => self.adopt(&kept?).map(|()| true),
        }
    }
}

/// The first end of cells of which the journal itself says that no entry stands across it, and where the last one before it ends: none of them is
/// read then.
fn divided_at(log: &dyn Log, front: &Front) -> Option<(u64, u64)> {
    let is_within = |end: u64, until: u64| front.first < until && until <= end && !is_long(log, front.first, end);
    front.ends.iter().find_map(|end| {
        // What cannot be read here is told by who reads all.
        let until = log.divided(Lsn(*end)).ok()??.0;
        is_within(*end, until).then_some((*end, until))
    })
}

/// Whether cells are a small part of the stretches that would stay for them.
fn is_long(log: &dyn Log, first: u64, end: u64) -> bool {
    let sealed = log.sealed();
    let holds = sealed.iter().filter(|span| span.first.0 < end && first < span.end.0);
    holds.map(|span| span.bytes).sum::<u64>() > HOLDS_MAX * (end - first)
}

/// The first end of cells behind which no entry ends that began before, and where the last of those entries ends; none if they cannot be read,
/// or long ones follow each other. Nor if they are a small part of the stretches that would stay for them.
fn ends_at(log: &dyn Log, front: &Front, pace: &dyn Pace) -> Result<Option<(u64, u64)>, Stopped> {
    let mut ends = front.ends.iter().copied();
    let (Some(mut end), Some(most)) = (ends.next(), front.ends.last()) else { return Ok(None) };
    let (mut until, mut unpaced) = (front.first, 0);
    let Ok(entries) = log.begun(Lsn(front.first), Lsn(*most), Lsn(u64::MAX)) else { return Ok(None) };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) if error.is_short() => return Err(Stopped),
            Err(_) => return Ok(None),
        };
        while entry.lsn.0 >= end {
            if front.first < until && until <= end {
                return Ok((!is_long(log, front.first, end)).then_some((end, until)));
            }
            let Some(next) = ends.next() else { return Ok(None) };
            end = next;
        }
        until = until.max(entry.end.0);
        unpaced += entry.payload.len();
        if unpaced >= READ_PACE_BYTES {
            unpaced = 0;
            if pace.wrote(0) == Go::Stop {
                return Err(Stopped);
            }
        }
    }
    Ok((front.first < until && until <= end && !is_long(log, front.first, end)).then_some((end, until)))
}

/// Up to where the journal must stay for the entries that begin in a range: a long one ends behind it, and no append under way began
/// before it. So must the first entry behind: it says that nothing is missing before. A stretch that cannot be read through may lead
/// to a long one, so it stays too; behind twice the longest entry none is looked for.
fn kept_until(log: &dyn Log, (first, end): (u64, u64), pace: &dyn Pace) -> Option<u64> {
    let stretches: Vec<Lsn> = log.sealed().iter().map(|span| span.first).chain([log.start()]).collect();
    let limit = Lsn(end.saturating_add(2 * ENTRY_BYTES_MAX));
    let (mut until, mut from, mut unpaced, mut is_proved) = (end, Lsn(end), 0, false);
    loop {
        let mut at = from;
        let entries: Entries<'_> = match log.read(from) {
            Ok(entries) => entries,
            Err(error) => Box::new(std::iter::once(Err(error))),
        };
        let mut is_whole = true;
        for entry in entries {
            // Whatever the error: what is not seen is not released. Where there were no descriptors, nothing is said of what stands there.
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) if error.is_short() => return None,
                Err(_) => {
                    is_whole = false;
                    break;
                }
            };
            at = at.max(entry.end);
            if !is_proved || (first..end).contains(&entry.lsn.0) {
                (until, is_proved) = (until.max(entry.end.0), true);
            }
            if at >= limit {
                return Some(until);
            }
            unpaced += entry.payload.len();
            if unpaced >= PACE_BYTES {
                unpaced = 0;
                if pace.wrote(0) == Go::Stop {
                    return None;
                }
            }
        }
        let next = stretches.iter().find(|stretch| **stretch > at && **stretch < limit);
        let Some(next) = next.filter(|_| !is_whole) else { return Some(until) };
        until = until.max(next.0);
        from = *next;
    }
}
