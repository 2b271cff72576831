//! Opening: the ledger as it was durable, then every journal entry behind that.
//!
//! The journal believes nothing before it is durable, so whatever is read here may be visible at once.

use std::path::Path;
use std::sync::Arc;

use assent_ids::{Lsn, Xid};
use assent_journal::{Entry, Log};
use assent_world::Disk;

use crate::KvError;
use crate::branch::{Branch, Ending};
use crate::config::Config;
use crate::desk::Desk;
use crate::finished::Finished;
use crate::ledger::Ledger;
use crate::note::Moment;
use crate::progress::{Progress, Teller};
use crate::rebuild::{rebuild, was_compacted};
use crate::record::{Effect, KIND_PREPARE, Record};

/// What an opening found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opened {
    /// The ledger was damaged, or of another journal, and is built anew.
    pub(crate) is_rebuilt: bool,
    /// Entries replayed.
    pub(crate) replayed: u64,
    /// The latest time that they tell of: what had expired by then stays so, whatever the clock says now.
    pub(crate) latest_ms: u64,
    /// Bytes of values that it made visible.
    pub(crate) made_bytes: u64,
}

pub(crate) fn recover(
    log: &dyn Log,
    disk: &Arc<dyn Disk>,
    (folder, volumes_folder): (&Path, &Path),
    (config, read_only): (&Config, bool),
    told: &mut dyn FnMut(Progress),
) -> Result<(Ledger, Desk, Opened), KvError> {
    let open = || Ledger::open(log, disk, folder, config, read_only);
    let mut opened = Opened::default();
    let (ledger, moment) = match open()? {
        Some((ledger, Some(moment))) => (ledger, Some(moment)),
        Some((ledger, None)) if !was_compacted(log, &**disk, volumes_folder)? => (ledger, None),
        found if read_only => {
            drop(found);
            if was_compacted(log, &**disk, volumes_folder)? {
                return Err(KvError::Lost { folder: folder.display().to_string() });
            }
            opened.is_rebuilt = true;
            (Ledger::in_memory(log, config)?, None)
        }
        found => {
            drop(found);
            let (replayed, latest_ms) = rebuild(log, disk, (folder, volumes_folder), config, told)?;
            opened = Opened { is_rebuilt: true, replayed, latest_ms, made_bytes: 0 };
            open()?.ok_or_else(|| KvError::Lost { folder: folder.display().to_string() })?
        }
    };
    let (mut desk, from) = match &moment {
        Some(moment) => {
            opened.latest_ms = opened.latest_ms.max(moment.latest_ms);
            (desk_of(log, config, moment)?, moment.end)
        }
        None => (Desk::new(Finished::new(config.finished_max, log.oldest())), log.oldest()),
    };
    // Behind what was written out there is little. Where there is no ledger, all of the journal is read for it.
    let all = if moment.is_none() { log.end().0.saturating_sub(from.0) } else { 0 };
    let mut teller = Teller::new(all, told);
    for entry in log.read(from)? {
        let entry = entry?;
        teller.read(entry.end.0 - entry.lsn.0);
        let (effects, modified) = replayed(&mut desk, &entry)?;
        ledger.apply(entry.lsn, entry.end, &effects)?;
        opened.replayed += 1;
        opened.latest_ms = opened.latest_ms.max(modified);
        if !read_only {
            bound(log, &ledger, (&desk, opened.latest_ms), config)?;
        }
    }
    teller.end();
    opened.made_bytes = ledger.made_bytes();
    Ok((ledger, desk, opened))
}

/// A long replay must not need more memory than work does. A full disk is no reason not to open.
fn bound(log: &dyn Log, ledger: &Ledger, (desk, latest_ms): (&Desk, u64), config: &Config) -> Result<(), KvError> {
    if ledger.memory_bytes() <= config.memory_bytes {
        return Ok(());
    }
    ledger.close_memory(config.memory_bytes, |entry, end| desk.moment(entry, end, latest_ms));
    while ledger.has_closed() {
        match ledger.flush(log) {
            Ok(true) => {}
            Err(error) if ledger.memory_bytes() > config.memory_bytes_max() => return Err(error),
            Ok(false) | Err(_) => break,
        }
    }
    Ok(())
}

/// The branches of a moment, their writes as the journal has them.
fn desk_of(log: &dyn Log, config: &Config, moment: &Moment) -> Result<Desk, KvError> {
    let mut finished = Finished::new(config.finished_max, moment.floor);
    moment.finished.iter().for_each(|row| finished.keep(*row));
    let mut desk = Desk::new(finished);
    for (xid, at) in &moment.prepared {
        let entry = log.read_at(*at)?;
        let wrong = |what: String| KvError::Record { lsn: *at, what };
        let record = (entry.kind == KIND_PREPARE).then(|| Record::decode(*at, entry.kind, &entry.payload));
        match record {
            Some(Ok(Record::Prepare { xid: prepared, effects })) if prepared == *xid => {
                desk.restore(*xid, *at, effects)
            }
            _ => return Err(wrong(format!("the ledger says that branch {xid} was prepared there"))),
        }
    }
    Ok(desk)
}

/// What an entry makes of branches, and its effects on keys; and when it was written, as far as it says so.
pub(crate) fn replayed(desk: &mut Desk, entry: &Entry) -> Result<(Vec<Effect>, u64), KvError> {
    let wrong = |what: String| KvError::Record { lsn: entry.lsn, what };
    let record =
        Record::decode(entry.lsn, entry.kind, &entry.payload).map_err(|malformed| wrong(malformed.to_string()))?;
    let modified = record.modified();
    let effects = match record {
        Record::Batch { effects } => effects,
        Record::Prepare { xid, effects } => {
            if desk.branches.contains_key(&xid) {
                return Err(wrong(format!("it prepares branch {xid}, which is prepared already")));
            }
            desk.restore(xid, entry.lsn, effects);
            Vec::new()
        }
        Record::Commit { xid, prepare } => {
            let effects = resolve(desk, &xid, prepare).map_err(wrong)?;
            desk.finished.note(entry.lsn, &xid, Ending::Commit);
            effects
        }
        Record::Rollback { xid, prepare } => {
            resolve(desk, &xid, prepare).map_err(wrong)?;
            desk.finished.note(entry.lsn, &xid, Ending::Rollback);
            Vec::new()
        }
    };
    Ok((effects, modified))
}

/// Takes out the branch that an outcome is about.
fn resolve(desk: &mut Desk, xid: &Xid, prepare: Lsn) -> Result<Vec<Effect>, String> {
    match desk.branches.remove(xid) {
        Some(Branch::Prepared { entry, effects, .. }) if entry == prepare => {
            desk.let_go(&effects);
            Ok(effects)
        }
        _ => Err(format!("it finishes branch {xid}, which was not prepared at LSN {prepare}")),
    }
}
