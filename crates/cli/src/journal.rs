//! `assent journal`: looks into a journal folder that nobody serves from now, and changes nothing.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use assent_coordinator::engine::{Engine, is_foreign};
use assent_ids::Epoch;
use assent_journal::{Journal as Store, Log as _, Recovery};
use assent_kind::Kind;
use assent_world::{Lock, RealClock, RealDisk};
use serde::Serialize;

use crate::alone::alone;
use crate::args::Journal;
use crate::bench::{print_json, table};
use crate::failure::Failure;

/// Runs the command.
pub(crate) fn run(command: Journal, json: bool) -> Result<ExitCode, Failure> {
    match command {
        Journal::Inspect { folder, limit } => inspect(&folder, limit, json),
        Journal::Check { folder } => check(&folder, json),
    }?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Found {
    epoch: u32,
    /// Where the archived segments begin; where the live log does, if there are none.
    oldest_lsn: u64,
    start_lsn: u64,
    end_lsn: u64,
    batches: u64,
    entries: u64,
    /// Entries before the live log, once they have been counted.
    archived_entries: Option<u64>,
    closed_cleanly: bool,
    may_have_lost: bool,
    torn: Option<Torn>,
}

#[derive(Serialize)]
struct Torn {
    file: String,
    offset_bytes: u64,
    lsn: u64,
}

impl Found {
    fn new(archive: &assent_journal::Archive, recovery: &Recovery) -> Self {
        Self {
            epoch: recovery.epoch.0,
            oldest_lsn: archive.oldest().0,
            start_lsn: recovery.start.0,
            end_lsn: recovery.end.0,
            batches: recovery.batches,
            entries: recovery.entries,
            archived_entries: None,
            closed_cleanly: recovery.clean,
            may_have_lost: recovery.may_have_lost,
            torn: recovery.torn.as_ref().map(|torn| Torn {
                file: torn.file.display().to_string(),
                offset_bytes: torn.offset,
                lsn: torn.lsn.0,
            }),
        }
    }
}

/// What it holds, and that nobody writes to it as long as it is read.
type Read = (assent_journal::Archive, Recovery, Option<Box<dyn Lock>>);

fn open(folder: &Path) -> Result<Read, Failure> {
    let found = std::fs::metadata(folder).map_err(|error| Failure::io("look into", folder.display(), &error))?;
    if !found.is_dir() {
        return Err(Failure::new(Kind::NotFound, format!("{} is no folder: name a journal's", folder.display())));
    }
    if is_foreign(&RealDisk, folder, Engine::Journal)?.is_some() {
        let message =
            format!("{} holds a coordinator's state table and no journal: assent tx list --data", folder.display());
        return Err(Failure::invalid(message));
    }
    // Whoever writes there leaves half a batch before a whole one, which would be damage.
    let lock = alone(folder)?;
    let (archive, recovery) = Store::open_read_only(Arc::new(RealDisk), &RealClock, folder)?;
    // A folder without any is an empty journal to whoever opens it to write.
    if recovery.epoch == Epoch(0) {
        let message = format!("{} is no journal: name the folder of one, as DATA/coordinator", folder.display());
        return Err(Failure::new(Kind::NotFound, message));
    }
    Ok((archive, recovery, lock))
}

fn check(folder: &Path, json: bool) -> Result<(), Failure> {
    let (archive, recovery, _alone) = open(folder)?;
    // Opening walks the batches of the live log; reading also closes chains of large entries, and looks at the archive.
    let (mut archived, mut entries) = (0_u64, 0_u64);
    for entry in archive.read(archive.oldest())? {
        let live = entry?.end > archive.start();
        archived += u64::from(!live);
        entries += u64::from(live);
    }
    let found = Found { entries, archived_entries: Some(archived), ..Found::new(&archive, &recovery) };
    if json {
        return print_json(&found);
    }
    say!(
        "{}: whole from {} to {}, {} batches, {} entries, epoch {}; {}",
        folder.display(),
        found.start_lsn,
        found.end_lsn,
        found.batches,
        found.entries,
        found.epoch,
        if found.closed_cleanly { "closed cleanly" } else { "not closed cleanly: the next open recovers it" }
    )?;
    if found.oldest_lsn < found.start_lsn {
        say!("archived from {} to {}, {} entries", found.oldest_lsn, found.start_lsn, archived)?;
    }
    if let Some(torn) = &found.torn {
        say!("a write that was never acknowledged stands at byte {} of {}", torn.offset_bytes, torn.file)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Batch {
    file: String,
    offset_bytes: u64,
    lsn: u64,
    end_lsn: u64,
    epoch: u32,
    synced_lsn: u64,
    frames: u32,
}

#[derive(Serialize)]
struct Entry {
    lsn: u64,
    end_lsn: u64,
    kind: u16,
    payload_bytes: usize,
}

fn inspect(folder: &Path, limit: u64, json: bool) -> Result<(), Failure> {
    let (archive, recovery, _alone) = open(folder)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let (mut batches, mut all) = (Vec::new(), archive.batches());
    for batch in all.by_ref().take(limit) {
        let batch = batch?;
        batches.push(Batch {
            file: batch.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            offset_bytes: batch.offset,
            lsn: batch.lsn.0,
            end_lsn: batch.end.0,
            epoch: batch.epoch.0,
            synced_lsn: batch.synced.0,
            frames: batch.frames,
        });
    }
    let mut more = all.next().is_some();
    let (mut entries, mut all) = (Vec::new(), archive.read(archive.oldest())?);
    for entry in all.by_ref().take(limit) {
        let entry = entry?;
        entries.push(Entry {
            lsn: entry.lsn.0,
            end_lsn: entry.end.0,
            kind: entry.kind,
            payload_bytes: entry.payload.len(),
        });
    }
    more |= all.next().is_some();
    let found = Found::new(&archive, &recovery);
    if json {
        let told = serde_json::json!({"journal": found, "batches": batches, "entries": entries, "more": more});
        return print_json(&told);
    }
    let mut rows = table(&["batch at", "ends", "file", "byte", "epoch", "durable before", "frames"]);
    for batch in &batches {
        rows.add_row([
            batch.lsn.to_string(),
            batch.end_lsn.to_string(),
            batch.file.clone(),
            batch.offset_bytes.to_string(),
            batch.epoch.to_string(),
            batch.synced_lsn.to_string(),
            batch.frames.to_string(),
        ]);
    }
    say!("{rows}")?;
    let mut rows = table(&["entry at", "ends", "kind", "bytes"]);
    for entry in &entries {
        rows.add_row([
            entry.lsn.to_string(),
            entry.end_lsn.to_string(),
            format!("{:#06x}", entry.kind),
            entry.payload_bytes.to_string(),
        ]);
    }
    say!("{rows}")?;
    if more {
        aside!("assent: there are more; --limit was {limit}");
    }
    Ok(())
}
