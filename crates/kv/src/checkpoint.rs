//! Checkpoints: the index, the prepared branches and the latest finished ones at one place of the log, so that an open replays only what follows.
//!
//! ```text
//!   checkpoint-<place, 16 hex digits>: frames; mark = the place, chain = which frame
//!   | head: version, last entry and its hash | prepared: (xid, entry)* | finished: floor, (lsn, ending, xid)* |
//!   | keys: (lsn, keyspace, key, place)* | end: counts |
//! ```
//! Walk: `Kv::checkpoint` takes a snapshot, lets the log sync, and writes a few hundred keys at a time: nobody waits for
//! it · [`newest`] loads the newest one that can be believed. A damaged, cut or foreign one is ignored: the journal has
//! everything. The format is disposable: another version is ignored too.

use std::path::Path;
use std::sync::{MutexGuard, PoisonError, TryLockError};

use assent_frame::{HEADER_BYTES, Head, Malformed, PAYLOAD_BYTES_MAX, Reader, Writer, laid_bytes, lay, parse};
use assent_ids::{Lsn, Xid};
use assent_journal::Log;
use assent_world::{Access, Barrier, Disk, File, Open, read_exact_at, write_all_at};
use xxhash_rust::xxh3::xxh3_64;

use crate::branch::Ending;
use crate::finished::{Finished, Row};
use crate::index::Index;
use crate::record::{Effect, KIND_PREPARE, Place, Record, lay_xid, read_xid};
use crate::snapshot::Snapshot;
use crate::{Kv, KvError};

const FOLDER: Barrier = Barrier::new("kv: the checkpoint folder before anything in it");
const FILE: Barrier = Barrier::new("kv: a checkpoint's bytes before its name");
const NAME: Barrier = Barrier::new("kv: a checkpoint's name before older ones go");

/// Every place of this room that makes something durable. What makes writes durable is the journal's.
pub const BARRIERS: &[Barrier] = &[FOLDER, FILE, NAME];

const VERSION: u8 = 2;
const PREFIX: &str = "checkpoint-";
const TEMPORARY: &str = "checkpoint.new";
const FRAME_HEAD: u16 = 1;
const FRAME_PREPARED: u16 = 2;
const FRAME_KEYS: u16 = 3;
const FRAME_END: u16 = 4;
const FRAME_FINISHED: u16 = 5;
/// A frame is closed once it has this much.
const FRAME_BYTES: usize = 256 << 10;
/// Keys copied under one hold of the index lock.
const CHUNK_KEYS: usize = 512;

const _: () = assert!(FRAME_BYTES + (64 << 10) + 64 <= PAYLOAD_BYTES_MAX, "a frame takes one more row of any size");

/// Counts checkpoints and knows when the next is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checkpoints {
    /// The place of the newest.
    pub(crate) newest: Lsn,
    pub(crate) written: u64,
    pub(crate) failed: u64,
    /// Where the last try began: after a failure, the next waits as long as after a success.
    tried: Lsn,
}

impl Checkpoints {
    pub(crate) fn after(loaded: Option<Lsn>, published: Lsn) -> Self {
        let newest = loaded.unwrap_or_default();
        Self { newest, written: 0, failed: 0, tried: newest.min(published) }
    }
}

/// A checkpoint, believed.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) index: Index,
    pub(crate) prepared: Vec<(Xid, Lsn, Vec<Effect>)>,
    pub(crate) finished: Finished,
}

pub(crate) fn make_folder(disk: &dyn Disk, folder: &Path) -> Result<(), KvError> {
    disk.create_dir(folder).map_err(|error| KvError::disk("create", folder, &error))?;
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    disk.sync_dir(parent, FOLDER).map_err(|error| KvError::disk("sync", parent, &error))
}

impl Kv {
    pub(crate) fn checkpoint_is_due(&self) -> bool {
        let behind = self.shared.log.end().0.saturating_sub(self.checkpoint_counts().tried.0);
        behind >= self.config.checkpoint_bytes
    }

    pub(crate) fn checkpoint_counts(&self) -> Checkpoints {
        *self.counts()
    }

    fn counts(&self) -> MutexGuard<'_, Checkpoints> {
        self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a checkpoint of everything that is published. Readers and writers go on meanwhile.
    ///
    /// # Errors
    /// `Busy` while another is written; as the disk or the log says. The store goes on without it.
    pub fn checkpoint(&self) -> Result<(), KvError> {
        self.refuse_read_only()?;
        let _alone = match self.checkpointing.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(KvError::Busy { what: "checkpoints at once", limit: 1 }),
        };
        self.counts().tried = self.shared.log.end();
        let done = self.write_checkpoint();
        let mut counts = self.counts();
        match &done {
            Ok(None) => {}
            Ok(Some(at)) => {
                counts.written += 1;
                counts.newest = *at;
            }
            Err(_) => counts.failed += 1,
        }
        done.map(|_| ())
    }

    fn write_checkpoint(&self) -> Result<Option<Lsn>, KvError> {
        let (snapshot, entry, branches) = {
            let mut desk = self.desk();
            self.publish(&mut desk);
            let snapshot = self.snapshot();
            let branches = Branches {
                prepared: desk.prepared().collect(),
                floor: desk.finished.floor(),
                finished: desk.finished.rows(),
            };
            (snapshot, self.shared.index().entry(), branches)
        };
        let at = snapshot.lsn();
        if at <= self.counts().newest {
            return Ok(None);
        }
        // What is published may be only in the kernel; a checkpoint must not know more than the disk.
        self.shared.log.sync()?;
        let hash = xxh3_64(&self.shared.log.read_at(entry)?.payload);
        let temporary = self.folder.join(TEMPORARY);
        let name = format!("{PREFIX}{:016x}", at.0);
        _ = self.disk.unlink(&temporary);
        let wrap = |doing, error: &std::io::Error| KvError::disk(doing, &temporary, error);
        let open = Open { access: Access::Create, direct: false };
        let file = self.disk.open(&temporary, open).map_err(|error| wrap("create", &error))?;
        self.fill(&*file, &snapshot, (entry, hash), &branches).map_err(|error| wrap("write", &error))?;
        file.sync_all(FILE).map_err(|error| wrap("sync", &error))?;
        self.disk.rename(&temporary, &self.folder.join(&name)).map_err(|error| wrap("rename", &error))?;
        let folder = &self.folder;
        self.disk.sync_dir(folder, NAME).map_err(|error| KvError::disk("sync", folder, &error))?;
        for other in names(&*self.disk, folder)?.into_iter().filter(|other| *other != name) {
            // One that stays is older: ignored by the next open, removed by the next checkpoint.
            _ = self.disk.unlink(&folder.join(other));
        }
        Ok(Some(at))
    }

    fn fill(
        &self,
        file: &dyn File,
        snapshot: &Snapshot,
        (entry, hash): (Lsn, u64),
        branches: &Branches,
    ) -> std::io::Result<()> {
        let mut frames =
            Frames { file, place: snapshot.lsn(), at: 0, number: 0, payload: Writer::new(), laid: Vec::new() };
        frames.payload.u8(VERSION).u64(entry.0).u64(hash).u64(branches.floor.0);
        frames.close(FRAME_HEAD)?;
        for (xid, entry) in &branches.prepared {
            lay_xid(frames.payload.u64(entry.0), xid);
            frames.close_if_full(FRAME_PREPARED)?;
        }
        frames.close(FRAME_PREPARED)?;
        for row in &branches.finished {
            lay_finished(&mut frames.payload, row);
            frames.close_if_full(FRAME_FINISHED)?;
        }
        frames.close(FRAME_FINISHED)?;
        let mut cursor = None;
        let mut keys = 0_u64;
        loop {
            let (chunk, next) = snapshot.chunk(cursor.as_ref(), CHUNK_KEYS);
            for (lsn, effect) in chunk {
                lay_row(&mut frames.payload, lsn, &effect);
                frames.close_if_full(FRAME_KEYS)?;
                keys += 1;
            }
            match next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        frames.close(FRAME_KEYS)?;
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        frames.payload.u64(count(branches.prepared.len())).u64(count(branches.finished.len())).u64(keys);
        frames.close(FRAME_END)
    }
}

/// What a checkpoint knows of branches.
struct Branches {
    prepared: Vec<(Xid, Lsn)>,
    /// Of the finished ones: see [`Finished`].
    floor: Lsn,
    finished: Vec<Row>,
}

fn lay_finished(payload: &mut Writer, row: &Row) {
    payload.u64(row.lsn.0).u8(match row.ending {
        Ending::Commit => 1,
        Ending::Rollback => 2,
    });
    lay_xid(payload, &row.branch.xid());
}

fn read_finished(reader: &mut Reader<'_>) -> Result<Row, Malformed> {
    let lsn = Lsn(reader.u64("lsn")?);
    let ending = match reader.u8("ending")? {
        1 => Ending::Commit,
        2 => Ending::Rollback,
        _ => return Err(Malformed { field: "ending" }),
    };
    let branch = read_xid(reader)?.branch().ok_or(Malformed { field: "xid" })?;
    Ok(Row { lsn, branch, ending })
}

fn lay_row(payload: &mut Writer, lsn: Lsn, effect: &Effect) {
    let Some(place) = effect.place else { return };
    payload.u64(lsn.0).u32(effect.keyspace).bytes(&effect.key).u64(place.entry.0).u64(place.hash);
    payload.u32(place.at).u32(place.value_bytes).u16(place.metadata_bytes);
}

fn read_row(reader: &mut Reader<'_>) -> Result<(Lsn, Effect), Malformed> {
    let lsn = Lsn(reader.u64("lsn")?);
    let keyspace = reader.u32("keyspace")?;
    let key = reader.bytes("key")?.into();
    let entry = Lsn(reader.u64("entry")?);
    let hash = reader.u64("hash")?;
    let at = reader.u32("at")?;
    let value_bytes = reader.u32("value length")?;
    let metadata_bytes = reader.u16("metadata length")?;
    Ok((lsn, Effect { keyspace, key, place: Some(Place { entry, hash, at, value_bytes, metadata_bytes }) }))
}

/// Lays frames one after the other into a file.
struct Frames<'a> {
    file: &'a dyn File,
    place: Lsn,
    at: u64,
    number: u32,
    payload: Writer,
    laid: Vec<u8>,
}

impl Frames<'_> {
    fn close_if_full(&mut self, kind: u16) -> std::io::Result<()> {
        if self.payload.as_slice().len() >= FRAME_BYTES { self.close(kind) } else { Ok(()) }
    }

    fn close(&mut self, kind: u16) -> std::io::Result<()> {
        self.laid.clear();
        let head = Head { mark: self.place.0, kind, flags: 0, chain: self.number };
        lay(&mut self.laid, head, &[self.payload.as_slice()]);
        write_all_at(self.file, self.at, &self.laid)?;
        self.at += u64::try_from(self.laid.len()).unwrap_or(u64::MAX);
        self.number += 1;
        self.payload.clear();
        Ok(())
    }
}

fn names(disk: &dyn Disk, folder: &Path) -> Result<Vec<String>, KvError> {
    let names = match disk.list(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        other => other.map_err(|error| KvError::disk("list", folder, &error))?,
    };
    Ok(names.into_iter().filter(|name| name.starts_with(PREFIX)).collect())
}

/// The newest checkpoint that can be believed; counts those that cannot.
pub(crate) fn newest(
    log: &dyn Log,
    disk: &dyn Disk,
    folder: &Path,
    finished_max: u32,
    ignored: &mut u64,
) -> Result<Option<Loaded>, KvError> {
    for name in names(disk, folder)?.iter().rev() {
        let place = name.strip_prefix(PREFIX).and_then(|place| u64::from_str_radix(place, 16).ok());
        let loaded = place.and_then(|place| load(log, disk, &folder.join(name), Lsn(place), finished_max));
        if loaded.is_some() {
            return Ok(loaded);
        }
        *ignored += 1;
    }
    Ok(None)
}

/// Nothing if anything about it is not as it was written, or the journal is not the one it was written over.
fn load(log: &dyn Log, disk: &dyn Disk, path: &Path, place: Lsn, finished_max: u32) -> Option<Loaded> {
    let file = disk.open(path, Open { access: Access::Read, direct: false }).ok()?;
    let mut frames = Pieces { file: &*file, place, at: 0, number: 0, bytes: Vec::new() };
    let (FRAME_HEAD, head) = frames.next()? else { return None };
    let mut head = Reader::new(head);
    let version = head.u8("version").ok()?;
    let entry = Lsn(head.u64("entry").ok()?);
    let hash = head.u64("hash").ok()?;
    let floor = Lsn(head.u64("floor").ok()?);
    head.end().ok()?;
    if version != VERSION || place > log.end() || xxh3_64(&log.read_at(entry).ok()?.payload) != hash {
        return None;
    }
    let mut index = Index::starting_at(entry, place);
    let mut prepared = Vec::new();
    let mut finished = Finished::new(finished_max, floor);
    let (mut finished_rows, mut keys) = (0_u64, 0_u64);
    loop {
        let (kind, payload) = frames.next()?;
        let mut rows = Reader::new(payload);
        match kind {
            FRAME_PREPARED => {
                while !rows.rest().is_empty() {
                    let entry = Lsn(rows.u64("entry").ok()?);
                    prepared.push(branch(log, entry, &read_xid(&mut rows).ok()?)?);
                }
            }
            FRAME_FINISHED => {
                while !rows.rest().is_empty() {
                    finished.keep(read_finished(&mut rows).ok()?);
                    finished_rows += 1;
                }
            }
            FRAME_KEYS => {
                while !rows.rest().is_empty() {
                    let (lsn, effect) = read_row(&mut rows).ok()?;
                    index.load(lsn, effect);
                    keys += 1;
                }
            }
            FRAME_END => {
                let counts = (rows.u64("prepared").ok()?, rows.u64("finished").ok()?, rows.u64("keys").ok()?);
                let whole = counts == (u64::try_from(prepared.len()).ok()?, finished_rows, keys);
                return whole.then_some(Loaded { index, prepared, finished });
            }
            _ => return None,
        }
    }
}

fn branch(log: &dyn Log, entry: Lsn, xid: &Xid) -> Option<(Xid, Lsn, Vec<Effect>)> {
    let read = log.read_at(entry).ok().filter(|read| read.kind == KIND_PREPARE)?;
    match Record::decode(entry, read.kind, &read.payload).ok()? {
        Record::Prepare { xid: prepared, effects } if prepared == *xid => Some((prepared, entry, effects)),
        _ => None,
    }
}

/// Takes frames off a file, in order.
struct Pieces<'a> {
    file: &'a dyn File,
    place: Lsn,
    at: u64,
    number: u32,
    bytes: Vec<u8>,
}

impl Pieces<'_> {
    fn next(&mut self) -> Option<(u16, &[u8])> {
        let mut head = [0; HEADER_BYTES];
        read_exact_at(self.file, self.at, &mut head).ok().filter(|read| *read == HEADER_BYTES)?;
        let length = usize::try_from(u32::from_le_bytes(*head.first_chunk::<4>()?)).ok()?;
        if length > PAYLOAD_BYTES_MAX {
            return None;
        }
        self.bytes.clear();
        self.bytes.resize(laid_bytes(length), 0);
        read_exact_at(self.file, self.at, &mut self.bytes).ok()?;
        let (frame, used) = parse(&self.bytes, PAYLOAD_BYTES_MAX).ok()??;
        if frame.mark != self.place.0 || frame.chain != self.number {
            return None;
        }
        self.at += u64::try_from(used).ok()?;
        self.number += 1;
        Some((frame.kind, frame.payload))
    }
}
