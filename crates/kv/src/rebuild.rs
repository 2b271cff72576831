//! A ledger that is lost or damaged is built anew: from the volumes, and from the journal behind them.
//!
//! Volumes say themselves what they are: range, generation, as of. Where several have one place, the one of the highest generation
//! counts that is whole: it was written from the others, and from a log that was durable. One that is not whole and does not say that
//! it was finished never was, if what it was to be made of is still there. Volumes and journal together have every place: where one is missing the
//! open says so and goes no further, because what it cannot read may be a delete. Where a volume says that the journal has its range
//! (`kept`), that is read.
//!
//! Walk: [`rebuild`] · [`choose`] says which volumes count · [`Build`] takes in the journal, whose outcomes may be about branches in
//! volumes, then the volumes, the last first · `runs::Bulk` sorts, within its memory, and makes it the ledger at once or not at all.
//! Memory: what `Bulk` has, erased ranges, branches without an outcome, outcomes that volumes say.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::slice;
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
use crate::finished::{Finished, Row as Finish};
use crate::ledger::CELL_BYTES;
use crate::note::{self, Moment};
use crate::progress::{Progress, Teller};
use crate::record::{Became, Effect, KIND_COMMIT, KIND_ROLLBACK, Metadata, Place, Record, ShortKey};
use crate::recover::replayed;
use crate::rows::Laid;
use crate::rows::place;
use crate::tally::laid_bytes;
use crate::vault::{Accounts, Address, Body, Facts, Item, Value, VaultError, Volume, items, volumes};

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
    let from = facts.last().map_or(0, |facts| facts.end);
    let mut accounts = Accounts::found(cell_bytes, from, facts.iter());
    let kept = facts.iter().filter(|facts| facts.is_kept()).map(|facts| facts.end - facts.first);
    let read: u64 = facts.iter().map(|facts| facts.bytes).chain(kept).sum();
    let total = read + log.end().0.saturating_sub(from);
    let mut build = Build {
        bulk: Bulk::new(Arc::clone(disk), folder, config.ledger())?,
        ranges: Vec::new(),
        raw_from: from,
        outcomes: BTreeMap::new(),
        finished: Vec::new(),
        teller: Teller::new(total, told),
        latest_ms: 0,
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
        if volume.facts().is_kept() {
            accounts.keep_until(volume.facts().first, build.kept(log, volume)?);
        } else {
            build.volume(volume)?;
        }
    }
    desk.finished.precede(std::mem::take(&mut build.finished));
    let moment = Moment { hash: Some(hash), ..desk.moment(entry, end, build.latest_ms) };
    let founder = Founder { log, accounts, moment };
    let Build { bulk, ranges, latest_ms, teller, .. } = build;
    bulk.finish(&ranges, end.0, &founder, &AtOnce)?;
    teller.end();
    Ok((replayed, latest_ms))
}

/// Writes of branches, by the place of their record.
type Prepared = Vec<(u64, Effect)>;

/// A ledger under construction.
struct Build<'a> {
    bulk: Bulk,
    ranges: Vec<Range>,
    raw_from: u64,
    /// Of branches whose prepared writes stand in volumes: by their place, when, and whether committed.
    outcomes: BTreeMap<u64, (u64, bool)>,
    /// Outcomes that stand in volumes, in any order: what became of branches, for who asks.
    finished: Vec<Finish>,
    teller: Teller<'a>,
    latest_ms: u64,
}

impl Build<'_> {
    fn entry(&mut self, desk: &mut Desk, entry: &Entry) -> Result<(), KvError> {
        self.teller.read(entry.end.0 - entry.lsn.0);
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
        let mut prepared = Prepared::new();
        volume.each(|record, item| {
            self.teller.read(u64::try_from(record.bytes()).unwrap_or(0));
            self.item(&item, &mut prepared)
        })?;
        self.resolve(&prepared, volume)
    }

    /// What a volume says that the journal has; answers up to where that must be kept for it.
    fn kept(&mut self, log: &dyn Log, volume: &Volume) -> Result<u64, KvError> {
        let Facts { first, end, until: passed, .. } = *volume.facts();
        let end = if passed > 0 { passed } else { end };
        if log.oldest().0 > first {
            return Err(VaultError::Missing { from: first, to: end.min(log.oldest().0) }.into());
        }
        let (mut until, mut prepared) = (end, Prepared::new());
        let by = if passed > 0 { passed } else { u64::MAX };
        for entry in log.begun(Lsn(first), Lsn(end), Lsn(by))? {
            let entry = entry?;
            self.teller.read(entry.end.0 - entry.lsn.0);
            until = until.max(entry.end.0);
            let mut failed = None;
            let shown = items(&entry, &mut |item| {
                self.item(&item, &mut prepared).map_err(|error| {
                    failed = Some(error);
                    VaultError::Stopped
                })
            });
            failed.map_or(Ok(()), Err)?;
            shown?;
        }
        self.resolve(&prepared, volume)?;
        // That nothing is missing before it the walk said, which came so far. The last entry need not end there: one may stand before it
        // that a crash left without its end.
        if passed > 0 {
            return Ok(passed);
        }
        // That nothing is missing before its end the first entry behind says.
        let behind = log.read(Lsn(end))?.next().transpose()?;
        Ok(behind.map_or(until, |entry| until.max(entry.end.0)))
    }

    fn item(&mut self, item: &Item<'_>, prepared: &mut Prepared) -> Result<(), KvError> {
        let address = item.address;
        match &item.body {
            Body::Value { seq, value } => {
                self.latest_ms = self.latest_ms.max(value.modified);
                self.add(&valued(address, value), *seq)?;
            }
            Body::Deleted { seq, keyspace, key } => self.add(&became(*keyspace, key, Became::Nothing), *seq)?,
            Body::Erased { seq, keyspace, from, to } => {
                self.add(&became(*keyspace, from, Became::Erased { to: to.map(Into::into) }), *seq)?;
            }
            Body::Outcome { seq, xid, prepare, committed } => {
                self.outcomes.insert(*prepare, (*seq, *committed));
                let ending = if *committed { Ending::Commit } else { Ending::Rollback };
                let lsn = Lsn(address.lsn);
                self.finished.extend(xid.branch().map(|branch| Finish { lsn, branch, ending }));
            }
            Body::Prepared { value, .. } => prepared.push((address.lsn, valued(address, value))),
            Body::PreparedDelete { keyspace, key, .. } => {
                prepared.push((address.lsn, became(*keyspace, key, Became::Nothing)));
            }
        }
        Ok(())
    }

    /// An outcome stands behind what was prepared, perhaps in the same volume.
    fn resolve(&mut self, prepared: &Prepared, volume: &Volume) -> Result<(), KvError> {
        for (prepare, effect) in prepared {
            match self.outcomes.get(prepare) {
                Some((seq, true)) => self.add(effect, *seq)?,
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
        for change in Laid::of(slice::from_ref(effect), Vec::new()).changes() {
            match change {
                Change::Put { key, value } => self.bulk.add(&Row { key, seq, value: Some(value) })?,
                Change::Delete { key } => self.bulk.add(&Row { key, seq, value: None })?,
                Change::Erase { from, to } => {
                    self.ranges.push(Range { from: from.to_vec(), to: to.map(<[u8]>::to_vec), seq });
                }
            }
        }
        Ok(())
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
    Effect { keyspace, key: ShortKey::from_slice(key), became }
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
    became(keyspace, key, Became::Value { place, metadata: Metadata::from_slice(metadata) })
}

/// The volumes that count, in order: from the first place on without a hole, up to where the journal goes on.
fn choose(log: &dyn Log, disk: &Arc<dyn Disk>, folder: &Path) -> Result<Vec<Arc<Volume>>, KvError> {
    let (mut found, mut bad) = (Vec::new(), Vec::new());
    for (first, generation) in volumes(&**disk, folder)? {
        match Volume::open(disk, folder, first, generation) {
            Ok(volume) => found.push((*volume.facts(), Ok(volume))),
            Err(error @ VaultError::Damaged { .. }) => match Volume::finished_once(&**disk, folder, first, generation)?
            {
                Some(facts) => found.push((facts, Err(error))),
                None => bad.push((first, error)),
            },
            Err(error) => return Err(error.into()),
        }
    }
    // The highest generation first: what it was written from comes behind it.
    found.sort_by_key(|(Facts { generation, as_of, first, .. }, _)| (Reverse(*generation), Reverse(*as_of), *first));
    let mut chosen: Vec<Arc<Volume>> = Vec::new();
    for (facts, volume) in found {
        if chosen.iter().any(|other| overlap(&facts, other.facts())) {
            continue;
        }
        // It has rotted: an older file of its range may have what was deleted since.
        let volume = volume?;
        if facts.as_of > log.end().0 {
            let what = format!(
                "the volume {} is as of LSN {}, and the journal ends at {}: it has lost its end, or is another store's",
                volume.path().display(),
                facts.as_of,
                log.end()
            );
            return Err(KvError::Volume { kind: assent_kind::Kind::Corrupt, what });
        }
        match volume.each::<VaultError>(|_, _| Ok(())) {
            Ok(()) => chosen.push(volume),
            // Perhaps it was never finished: then what it was to be made of is there.
            Err(damage @ VaultError::Damaged { .. }) if !volume.is_finished() => bad.push((facts.first, damage)),
            // It has rotted, or cannot be read now: an older file of its range may have what was deleted since.
            Err(error) => return Err(error.into()),
        }
    }
    chosen.sort_by_key(|volume| volume.facts().first);
    match hole(&chosen, log.oldest().0) {
        None => Ok(chosen),
        Some((from, to)) => {
            let within = bad.into_iter().filter(|(first, _)| *first < to).max_by_key(|(first, _)| *first);
            let missing = VaultError::Missing { from, to };
            Err(within.map_or(missing, |(_, damage)| damage).into())
        }
    }
}

const fn overlap(a: &Facts, b: &Facts) -> bool {
    a.first < b.end && b.first < a.end
}

/// The first places that neither these volumes have, in order, nor the journal that begins at `oldest`. Behind the last volume
/// the journal is read, so a hole is one before that too.
fn hole(chosen: &[Arc<Volume>], oldest: u64) -> Option<(u64, u64)> {
    let mut at = 0;
    for facts in chosen.iter().map(|volume| volume.facts()) {
        if facts.first > at {
            return Some((at, facts.first));
        }
        at = facts.end;
    }
    (oldest > at).then_some((at, oldest))
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
        let Some(Ok(place)) = entry.value.map(|row| place(entry.seq, row)) else { return };
        let [keys, bytes] = &mut self.kept;
        *keys += 1;
        *bytes += u64::from(place.value_bytes);
        // It came from there.
        _ = self.accounts.admit(place.entry.0, laid_bytes(entry.key, &place));
    }

    /// Nothing leaves what begins.
    fn leaves(&mut self, _: &Row<'_>) {}

    fn note(&mut self, _: u64) -> Vec<u8> {
        note::lay(self.moment, self.kept, &self.accounts)
    }

    fn committed(self: Box<Self>) {}
}

#[cfg(test)]
mod tests {
    use assent_journal::{Config as Settings, Journal};
    use assent_kind::Kind;
    use assent_sim::{SimClock, SimDice, SimDisk};
    use assent_world::{Access, Open, write_all_at};

    use super::*;
    use crate::vault::VolumeWriter;

    const FOLDER: &str = "kv-values";

    /// What has become of a volume.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Is {
        Whole,
        /// The power went before its last sync.
        Torn,
        /// One bad sector: of its only item, of the index, of the first seal, of the second.
        Rotten(u64),
        /// The disk refuses to read its item.
        Unreadable,
    }
    use Is::{Rotten, Torn, Unreadable, Whole};

    const ITEM: Is = Rotten(4096);
    /// What the file says twice.
    const TWICE: [Is; 3] = [Rotten(0), Rotten(4096 + 4096), Rotten(3 * 4096)];

    /// A journal with something in it, and a folder of volumes: first, end, generation, as of, how it is.
    fn found(volumes: &[(u64, u64, u32, u64, Is)]) -> Result<Vec<(u64, u32)>, KvError> {
        let sim = SimDisk::new();
        let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
        let settings = Settings { log_size: 5 * 4096, max_buffer_log_size: 2 * 4096, ..Settings::default() };
        let (log, _) = Journal::open(Arc::new(sim.clone()), clock, dice, Path::new("log"), settings).unwrap();
        log.wait(log.append(1, &[&[7; 1000]]).unwrap()).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let folder = Path::new(FOLDER);
        disk.create_dir(folder).unwrap();
        for (first, end, generation, as_of, is) in volumes {
            let mut writer = VolumeWriter::create(&*disk, folder, (*first, *end), *generation, &AtOnce).unwrap();
            // Longer than a block less its frame: the index begins a block behind it.
            let body = Body::Deleted { seq: 3, keyspace: 0, key: &[7; 4000] };
            writer.push(&Item { address: Address::new(*first, 8), body }).unwrap();
            let facts = writer.finish(*as_of, 4096).unwrap();
            let path = folder.join(facts.name());
            let file = disk.open(&path, Open { access: Access::Write, direct: false }).unwrap();
            let rot = |at| write_all_at(&*file, at, &[0x5a; 64]).unwrap();
            match is {
                Whole => {}
                Torn => [0, 4096].into_iter().for_each(rot),
                Rotten(at) => rot(if *at == 8192 {
                    facts.index_at
                } else if *at > 8192 {
                    facts.bytes - 4096
                } else {
                    *at
                }),
                Unreadable => sim.set_unreadable(&path, 8, true),
            }
        }
        let chosen = choose(&*log, &disk, folder)?;
        Ok(chosen.iter().map(|volume| (volume.facts().first, volume.facts().generation)).collect())
    }

    #[test]
    fn the_highest_generation_counts_and_together_they_have_every_place() {
        // One that was never known, of all three, below one that was compacted since: that counts, and its neighbours.
        let olds = [(0, 100, 1, 9, Whole), (100, 200, 6, 20, Whole), (200, 300, 1, 9, Whole), (0, 300, 5, 15, Whole)];
        assert_eq!(found(&olds).unwrap(), [(0, 1), (100, 6), (200, 1)]);
        // Of one generation the later one.
        let equal = [(0, 200, 2, 10, Whole), (100, 200, 2, 20, Whole), (0, 100, 1, 9, Whole)];
        assert_eq!(found(&equal).unwrap(), [(0, 1), (100, 2)]);
        // Never finished: what it was to be made of is there; or, of the last one, the journal.
        assert_eq!(found(&[(0, 100, 1, 9, Whole), (0, 100, 2, 12, Torn)]).unwrap(), [(0, 1)]);
        assert_eq!(found(&[(0, 100, 1, 9, Whole), (100, 200, 1, 12, Torn)]).unwrap(), [(0, 1)]);
        assert_eq!(found(&[(0, 100, 1, 9, Torn)]).unwrap(), []);
    }

    #[test]
    fn one_that_was_finished_gives_way_to_no_older_one_whatever_has_become_of_it() {
        let beside = |is| [(0, 100, 1, 9, Whole), (0, 100, 2, 12, is), (100, 200, 1, 15, Whole)];
        for (is, kind) in [(ITEM, Kind::Corrupt), (Unreadable, Kind::Unavailable)] {
            let error = found(&beside(is)).unwrap_err();
            assert!(error.kind() == kind && error.to_string().contains("0000000000000000-00000002"), "{is:?} {error}");
        }
        // What it says twice it still says once.
        for is in TWICE {
            assert_eq!(found(&beside(is)).unwrap(), [(0, 2), (100, 1)], "{is:?}");
        }
    }

    #[test]
    fn a_place_that_nobody_has_is_told_though_the_journal_goes_back_behind_it() {
        for (volumes, named) in [
            (vec![(0, 100, 1, 9, Whole), (100, 200, 1, 9, Torn), (200, 300, 1, 9, Whole)], "0000000000000064-00000001"),
            (vec![(0, 100, 1, 9, Whole), (100, 200, 1, 9, ITEM), (200, 300, 1, 9, Whole)], "0000000000000064-00000001"),
            (vec![(0, 100, 1, 9, Torn), (100, 200, 1, 9, Whole)], "0000000000000000-00000001"),
            (vec![(0, 100, 1, 9, Whole), (200, 300, 1, 9, Whole)], "from LSN 100 to 200"),
            (vec![(0, 200, 1, 9, Whole), (150, 300, 2, 9, Whole)], "from LSN 0 to 150"),
        ] {
            let error = found(&volumes).unwrap_err();
            assert!(error.kind() == Kind::Corrupt && error.to_string().contains(named), "{error}");
        }
    }
}
