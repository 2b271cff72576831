//! Batches of many openings laid anew as the last one's, so that the list of openings has an end: of processes that write little each,
//! as one command each minute does, a single segment holds tens of thousands.
//!
//! The last of them is in the list already: at each moment every batch is of an opening that is known. The segments behind go
//! first, each in a copy that is durable before it takes the name: no batch is ever followed by one of an earlier opening. Where an
//! entry was never closed nothing changes: what goes on behind it begins with a first piece of its own.
//!
//! Walk: [`restamp`], before an opening is added to the list.

use std::path::Path;
use std::sync::Arc;

use assent_kind::Kind;
use assent_world::{File, write_all_at};

use crate::barrier;
use crate::epochs::Epochs;
use crate::error::refused;
use crate::layout::{BATCH_BYTES, BatchHead, SegmentHead, length};
use crate::recovery::{Found, copy, rescue};
use crate::segment::{self, Files, Making, Segment};
use crate::walk::Walk;
use crate::{Config, JournalError};

/// Lays what was found anew if it is of that many openings: then it is of the last one. Where there is no room for a copy it stays as it is,
/// for the next one to try.
///
/// How many bytes were rescued for that, as [`rescue`] says.
///
/// # Errors
/// As the disk says.
pub(crate) fn restamp(
    files: &Arc<Files>,
    folder: &Path,
    found: &mut Found,
    epochs: &Epochs,
    config: &Config,
) -> Result<u64, JournalError> {
    let Some((epoch, opening)) = epochs.last() else { return Ok(0) };
    if found.living.len() < length(config.openings_max.into()) {
        return Ok(0);
    }
    let (stamp, mut rescued) = ((epoch, opening.salt), 0);
    // What nobody claims to be durable is made so first: a segment that is may follow it then.
    if found.synced < found.end {
        match rescue(files, folder, found, stamp, config) {
            Ok((segments, bytes)) => {
                (found.segments, found.synced, rescued) = (Arc::new(segments), found.end, bytes);
            }
            Err(error) if error.kind() == Kind::Full => return Ok(0),
            Err(error) => return Err(error),
        }
    }
    match laid_anew(files, folder, found, epochs, stamp, config) {
        Ok(true) => found.living = [epoch].into(),
        Ok(false) => {}
        Err(error) if error.kind() == Kind::Full => {}
        Err(error) => return Err(error),
    }
    Ok(rescued)
}

/// Whether all of them are of that opening now.
fn laid_anew(
    files: &Arc<Files>,
    folder: &Path,
    found: &mut Found,
    epochs: &Epochs,
    (epoch, salt): (u32, u64),
    config: &Config,
) -> Result<bool, JournalError> {
    let (batches, end) = batches(files, found, epochs)?;
    // What this walk does not see would be gone.
    if end != found.end {
        return Ok(false);
    }
    let mut segments = found.segments.to_vec();
    for (old, heads) in batches.iter().rev().filter(|(_, heads)| heads.iter().any(|head| head.epoch != epoch)) {
        let head = SegmentHead { first: old.first(), size: old.head.size, epoch, salt, recycled: false };
        let barriers = [barrier::RESCUE, barrier::RESCUE_ENTRY];
        let making = Making { folder, head, recycled: None, direct: config.direct(), lazy: config.lazy(), barriers };
        let end = heads.iter().map(BatchHead::end).max().unwrap_or(old.first());
        let fill = |file: &dyn File, new: &Segment| {
            copy(files, old, file, new, old.first(), end)?;
            heads.iter().try_for_each(|head| {
                let mut bytes = [0; 64];
                // That an earlier opening was closed there says nothing of the last one.
                let close = head.close && head.epoch == epoch;
                BatchHead { epoch, salt, close, ..*head }.lay(&mut bytes);
                write_all_at(file, new.offset(head.lsn), &bytes).map_err(|error| refused("writing", new.path(), &error))
            })
        };
        let new = segment::make(&*files.disk, &making, fill).map_err(|unmade| unmade.error)?;
        old.shut();
        new.inherit(old);
        // Whoever writes to it opens it.
        new.retire();
        segments.iter_mut().filter(|segment| segment.first() == old.first()).for_each(|it| *it = Arc::clone(&new));
        found.segments = Arc::new(segments.clone());
    }
    Ok(true)
}

/// A segment, and the batches that stand in it.
type Laid = (Arc<Segment>, Vec<BatchHead>);

/// The batches of each segment that has some, empty ones among them, and where the last one ends.
fn batches(files: &Arc<Files>, found: &Found, epochs: &Epochs) -> Result<(Vec<Laid>, u64), JournalError> {
    let start = found.segments.first().map_or(0, |segment| segment.first());
    let mut walk = Walk::new(Arc::clone(files), Arc::clone(&found.segments), Arc::new(epochs.clone()), start);
    let mut all: Vec<Laid> = Vec::new();
    while let Some(head) = walk.next()? {
        let Some(segment) = walk.segment() else { continue };
        match all.last_mut() {
            Some((last, heads)) if last.first() == segment.first() => heads.push(head),
            _ => all.push((Arc::clone(segment), vec![head])),
        }
    }
    Ok((all, walk.at()))
}

const _: () = assert!(BATCH_BYTES == 64, "a header is laid into that many");
