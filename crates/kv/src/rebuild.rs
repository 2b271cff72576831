//! A ledger that is lost or damaged is built anew: from the volumes, and from the journal behind them.
//!
//! Volumes say themselves what they are: range, generation, as of. Where several have one place, the one of the highest generation
//! counts that is whole: it was written from the others, and from a log that was durable. One that is not whole was never
//! finished if what it was to be made of is still there; else it is damaged, and the open says so and goes no further,
//! because what it cannot read may be a delete.
//!
//! Walk: [`rebuild`] · [`choose`] says which volumes count · [`Build`] takes in the journal, whose outcomes may be about branches in
//! volumes, then the volumes, the last first · `runs::Bulk` sorts, within its memory, and makes it the ledger at once or not at all.
//! Memory: what `Bulk` has, erased ranges, branches without an outcome.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use assent_ids::{Lsn, Xid};
use assent_journal::{Entry, Log};
use assent_runs::{AtOnce, Bulk, Change, Entry as Row, Owner, Range, Tally};
use assent_world::Disk;
use xxhash_rust::xxh3::xxh3_64;

use crate::KvError;
use crate::branch::Ending;
use crate::config::Config;
use crate::desk::Desk;
use crate::finished::Finished;
use crate::ledger::{CELL_BYTES, head, row};
use crate::note::{self, Moment};
use crate::record::{Became, Effect, KIND_COMMIT, KIND_ROLLBACK, Place, Record};
use crate::recover::replayed;
use crate::tally::laid_bytes;
use crate::vault::{Accounts, Address, Body, Facts, Item, Value, VaultError, Volume, volumes};

/// How far a rebuild is: told now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of volumes and journal that were read.
    pub read: u64,
    /// Bytes that will have been read.
    pub total: u64,
}

/// The rebuild tells about every so many bytes.
const TOLD_BYTES: u64 = 4 << 20;

/// Whether the journal alone does not have everything: then an empty ledger is a lost one.
///
/// # Errors
/// As the disk says.
pub(crate) fn was_compacted(log: &dyn Log, disk: &dyn Disk, volumes_folder: &Path) -> Result<bool, KvError> {
    Ok(log.oldest() > Lsn::ZERO || !volumes(disk, volumes_folder)?.is_empty())
}

/// Makes a ledger of all that is left; answers how many entries of the journal it took in, and when the newest of all was written.
///
/// # Errors
/// [`KvError::Volume`] naming what is damaged, or is another journal's; [`KvError::Record`]; as the disk or the journal says. The ledger
/// is what it was.
pub(crate) fn rebuild(
    log: &dyn Log,
    disk: &Arc<dyn Disk>,
    (folder, volumes_folder): (&Path, &Path),
    config: &Config,
    told: &mut dyn FnMut(Progress),
) -> Result<(u64, u64), KvError> {
    let chosen = choose(log, disk, volumes_folder)?;
    let facts: Vec<Facts> = chosen.iter().map(|volume| *volume.facts()).collect();
    let said = facts.iter().map(|facts| facts.cell_bytes).find(|bytes| *bytes > 0);
    let cell_bytes = said.or_else(|| log.stretch_bytes()).unwrap_or(CELL_BYTES);
    let (oldest, behind) = (log.oldest().0, facts.iter().map(|facts| facts.end).max().unwrap_or(0));
    // Where the last volumes had nothing left, the journal begins behind them.
    let raw_from = behind.max(oldest - oldest % cell_bytes);
    let accounts = Accounts::found(cell_bytes, raw_from, facts.iter());
    let from = raw_from.max(oldest);
    let total = facts.iter().map(|facts| facts.bytes).sum::<u64>() + log.end().0.saturating_sub(from);
    let mut build = Build {
        bulk: Bulk::new(Arc::clone(disk), folder, config.ledger())?,
        ranges: Vec::new(),
        // What begins before, and is not in a volume, was released with nothing left of it.
        raw_from: from,
        outcomes: BTreeMap::new(),
        progress: Progress { read: 0, total },
        untold: 0,
        latest_ms: 0,
        told,
    };
    let mut desk = Desk::new(Finished::new(config.finished_max, Lsn(from)));
    let mut last: Option<(Lsn, Lsn, u64)> = None;
    let mut replayed = 0;
    for entry in log.read(Lsn(from))? {
        let entry = entry?;
        build.entry(&mut desk, &entry)?;
        last = Some((entry.lsn, entry.end, xxh3_64(&entry.payload)));
        replayed += 1;
    }
    let Some((entry, end, hash)) = last.or_else(|| chosen.is_empty().then_some((Lsn(0), Lsn(0), 0))) else {
        let what =
            format!("the journal has nothing behind LSN {from}, where the volumes end: it is not that of this store");
        return Err(KvError::Volume { kind: assent_kind::Kind::Corrupt, what });
    };
    for volume in chosen.iter().rev() {
        build.volume(volume)?;
    }
    let moment = Moment { hash: Some(hash), ..desk.moment(entry, end) };
    let founder = Founder { log, accounts, moment };
    let Build { bulk, ranges, latest_ms, .. } = build;
    bulk.finish(&ranges, end.0, &founder, &AtOnce)?;
    Ok((replayed, latest_ms))
}

/// A ledger under construction.
struct Build<'a> {
    bulk: Bulk,
    ranges: Vec<Range>,
    raw_from: u64,
    /// Of branches whose prepared writes stand in volumes: by their place, when, and whether committed.
    outcomes: BTreeMap<u64, (u64, bool)>,
    progress: Progress,
    untold: u64,
    latest_ms: u64,
    told: &'a mut dyn FnMut(Progress),
}

impl Build<'_> {
    fn entry(&mut self, desk: &mut Desk, entry: &Entry) -> Result<(), KvError> {
        self.read(entry.end.0 - entry.lsn.0);
        // It begins in a volume, and is there.
        if entry.lsn.0 < self.raw_from {
            return Ok(());
        }
        if let Some((xid, prepare, ending)) = outcome(entry)?.filter(|(_, prepare, _)| prepare.0 < self.raw_from) {
            desk.finished.note(entry.lsn, &xid, ending);
            self.outcomes.insert(prepare.0, (entry.end.0, ending == Ending::Commit));
            return Ok(());
        }
        let (effects, modified) = replayed(desk, entry)?;
        self.latest_ms = self.latest_ms.max(modified);
        effects.iter().try_for_each(|effect| self.add(effect, entry.end.0))
    }

    fn volume(&mut self, volume: &Volume) -> Result<(), KvError> {
        // An outcome stands behind what was prepared, perhaps in this volume.
        let mut prepared: Vec<(u64, Effect)> = Vec::new();
        for record in volume.records() {
            let record = record?;
            let Item { address, body } = record.item()?;
            self.read(u64::try_from(record.bytes()).unwrap_or(0));
            match body {
                Body::Value { seq, value } => {
                    self.latest_ms = self.latest_ms.max(value.modified);
                    self.add(&valued(address, &value), seq)?;
                }
                Body::Deleted { seq, keyspace, key } => self.add(&became(keyspace, key, Became::Nothing), seq)?,
                Body::Erased { seq, keyspace, from, to } => {
                    self.add(&became(keyspace, from, Became::Erased { to: to.map(Into::into) }), seq)?;
                }
                Body::Outcome { seq, prepare, committed, .. } => {
                    self.outcomes.insert(prepare, (seq, committed));
                }
                Body::Prepared { value, .. } => prepared.push((address.lsn, valued(address, &value))),
                Body::PreparedDelete { keyspace, key, .. } => {
                    prepared.push((address.lsn, became(keyspace, key, Became::Nothing)));
                }
            }
        }
        for (prepare, effect) in prepared {
            match self.outcomes.get(&prepare) {
                Some((seq, true)) => self.add(&effect, *seq)?,
                Some((_, false)) => {}
                None => {
                    let what =
                        format!("the prepared branch of LSN {prepare} in {} has no outcome", volume.path().display());
                    return Err(KvError::Volume { kind: assent_kind::Kind::Corrupt, what });
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, effect: &Effect, seq: u64) -> Result<(), KvError> {
        let laid = row(effect);
        match laid.change() {
            Change::Put { key, value } => self.bulk.add(&Row { key, seq, value: Some(value) })?,
            Change::Delete { key } => self.bulk.add(&Row { key, seq, value: None })?,
            Change::Erase { from, to } => {
                self.ranges.push(Range { from: from.to_vec(), to: to.map(<[u8]>::to_vec), seq });
            }
        }
        Ok(())
    }

    fn read(&mut self, bytes: u64) {
        self.progress.read += bytes;
        self.untold += bytes;
        if self.untold >= TOLD_BYTES {
            self.untold = 0;
            (self.told)(self.progress);
        }
    }
}

fn outcome(entry: &Entry) -> Result<Option<(Xid, Lsn, Ending)>, KvError> {
    if !matches!(entry.kind, KIND_COMMIT | KIND_ROLLBACK) {
        return Ok(None);
    }
    match Record::decode(entry.lsn, entry.kind, &entry.payload) {
        Ok(Record::Commit { xid, prepare }) => Ok(Some((xid, prepare, Ending::Commit))),
        Ok(Record::Rollback { xid, prepare }) => Ok(Some((xid, prepare, Ending::Rollback))),
        Ok(_) => Ok(None),
        Err(malformed) => Err(KvError::Record { lsn: entry.lsn, what: malformed.to_string() }),
    }
}

fn became(keyspace: u32, key: &[u8], became: Became) -> Effect {
    Effect { keyspace, key: key.into(), became }
}

fn valued(address: Address, value: &Value<'_>) -> Effect {
    let Value { keyspace, key, modified, expiry, metadata, value, hash } = *value;
    let place = Place {
        entry: Lsn(address.lsn),
        hash,
        at: address.at,
        value_bytes: u32::try_from(value.len()).unwrap_or(u32::MAX),
        metadata_bytes: u16::try_from(metadata.len()).unwrap_or(u16::MAX),
        modified,
        expiry,
    };
    became(keyspace, key, Became::Value { place, metadata: metadata.into() })
}

/// The volumes that count, in order.
fn choose(log: &dyn Log, disk: &Arc<dyn Disk>, folder: &Path) -> Result<Vec<Arc<Volume>>, KvError> {
    let (mut found, mut shut) = (Vec::new(), Vec::new());
    for (first, generation) in volumes(&**disk, folder)? {
        match Volume::open(disk, folder, first, generation) {
            Ok(volume) => found.push(volume),
            Err(error @ VaultError::Damaged { .. }) => shut.push((first, error)),
            Err(error) => return Err(error.into()),
        }
    }
    // The highest generation first: what it was written from comes behind it.
    found.sort_by_key(|volume| (std::cmp::Reverse(volume.facts().generation), volume.facts().first));
    let mut chosen: Vec<Arc<Volume>> = Vec::new();
    for (at, volume) in found.iter().enumerate() {
        let facts = volume.facts();
        if chosen.iter().any(|other| overlap(facts, other.facts())) {
            continue;
        }
        if facts.as_of > log.end().0 {
            let what = format!(
                "the volume {} is as of LSN {}, and the journal ends at {}: it has lost its end, or is another store's",
                volume.path().display(),
                facts.as_of,
                log.end()
            );
            return Err(KvError::Volume { kind: assent_kind::Kind::Corrupt, what });
        }
        let mut damage = None;
        let whole = volume.verify(&mut |error| _ = damage.get_or_insert_with(|| error.clone()));
        match damage {
            None if whole == facts.items => chosen.push(Arc::clone(volume)),
            // It was never finished: what it was to be made of is there.
            _ if is_covered(facts, found.get(at + 1..).unwrap_or_default(), log.oldest().0) => {}
            Some(damage) => return Err(damage.into()),
            None => {
                let what = format!("{whole} items, its seal says {}", facts.items);
                return Err(VaultError::damaged(volume.path(), 0, what).into());
            }
        }
    }
    chosen.sort_by_key(|volume| volume.facts().first);
    for (first, error) in shut {
        let holds = |volume: &Arc<Volume>| (volume.facts().first..volume.facts().end).contains(&first);
        if !chosen.iter().any(holds) && first < log.oldest().0 {
            return Err(error.into());
        }
    }
    Ok(chosen)
}

const fn overlap(a: &Facts, b: &Facts) -> bool {
    a.first < b.end && b.first < a.end
}

/// Whether each place of a volume is in one of these, or still in the journal.
fn is_covered(facts: &Facts, others: &[Arc<Volume>], oldest: u64) -> bool {
    let mut at = facts.first;
    while at < facts.end && at < oldest {
        let holds = |volume: &&Arc<Volume>| (volume.facts().first..volume.facts().end).contains(&at);
        match others.iter().find(holds) {
            Some(other) => at = other.facts().end,
            None => return false,
        }
    }
    true
}

/// Says the note of the ledger that is built.
struct Founder<'a> {
    log: &'a dyn Log,
    accounts: Accounts,
    moment: Moment,
}

struct Founding<'a> {
    moment: &'a Moment,
    accounts: Accounts,
    kept: [u64; 2],
}

impl Owner for Founder<'_> {
    fn durable(&self) -> u64 {
        self.log.durable().0
    }

    fn tally(&self) -> Box<dyn Tally + '_> {
        Box::new(Founding { moment: &self.moment, accounts: self.accounts.clone(), kept: [0; 2] })
    }
}

impl Tally for Founding<'_> {
    fn enters(&mut self, entry: &Row<'_>) {
        let Some(Ok(head)) = entry.value.map(|row| head(entry.seq, row)) else { return };
        let [keys, bytes] = &mut self.kept;
        *keys += 1;
        *bytes += u64::from(head.place.value_bytes);
        // It came from there.
        _ = self.accounts.admit(head.place.entry.0, laid_bytes(entry.key, &head));
    }

    /// Nothing leaves what begins.
    fn leaves(&mut self, _: &Row<'_>) {}

    fn note(&mut self, _: u64) -> Vec<u8> {
        note::lay(self.moment, self.kept, &self.accounts)
    }

    fn committed(self: Box<Self>) {}
}
