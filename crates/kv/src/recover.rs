//! Opening: a checkpoint if one can be believed, then every journal entry behind it.
//!
//! The journal believes nothing before it is durable, so whatever is read here may be published at once.

use std::path::Path;

use assent_ids::{Lsn, Xid};
use assent_journal::{Entry, Log};
use assent_world::Disk;

use crate::KvError;
use crate::branch::{Branch, Ending};
use crate::checkpoint::{self, Loaded};
use crate::desk::Desk;
use crate::finished::Finished;
use crate::index::{Index, Live};
use crate::record::{Effect, Record};

/// What an opening found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opened {
    /// The place of the checkpoint that it began from.
    pub(crate) checkpoint: Option<Lsn>,
    /// Checkpoints that could not be believed.
    pub(crate) ignored: u64,
    /// Entries replayed.
    pub(crate) replayed: u64,
}

pub(crate) fn recover(
    log: &dyn Log,
    disk: &dyn Disk,
    folder: &Path,
    finished_max: u32,
) -> Result<(Index, Desk, Opened), KvError> {
    let mut opened = Opened::default();
    let (mut index, mut desk, from) = match checkpoint::newest(log, disk, folder, finished_max, &mut opened.ignored)? {
        Some(Loaded { index, prepared, finished }) => {
            let published = index.published();
            opened.checkpoint = Some(published);
            let mut desk = Desk::new(finished);
            for (xid, entry, effects) in prepared {
                desk.restore(xid, entry, effects);
            }
            (index, desk, published)
        }
        None => (Index::default(), Desk::new(Finished::new(finished_max, log.start())), log.start()),
    };
    for entry in log.read(from)? {
        apply(&mut index, &mut desk, &entry?)?;
        opened.replayed += 1;
    }
    Ok((index, desk, opened))
}

fn apply(index: &mut Index, desk: &mut Desk, entry: &Entry) -> Result<(), KvError> {
    let wrong = |what: String| KvError::Record { lsn: entry.lsn, what };
    let record =
        Record::decode(entry.lsn, entry.kind, &entry.payload).map_err(|malformed| wrong(malformed.to_string()))?;
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
    index.publish(entry.lsn, entry.end, effects, &Live::default());
    Ok(())
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
