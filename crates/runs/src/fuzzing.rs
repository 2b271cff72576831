//! Plain functions that fuzzers feed: bytes from a disk never panic.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use assent_world::{Access, Barrier, Disk, Durably, File, Lock, Open};

use crate::Config;
use crate::block::{Block, BlockCursor};
use crate::cache::Cache;
use crate::entry::Cursor;
use crate::filter::{self, Filter};
use crate::manifest::{self, Contents};
use crate::policy::{self, Shape};
use crate::ranges::Erased;
use crate::run::RunId;
use crate::run_reader::{Reading, Run, read_facts};

const ID: RunId = RunId(1);

/// Reads a run file of these bytes in every way; then takes them for a block and for a filter, whose checksums nobody guesses.
pub fn fuzz_run_file(bytes: &[u8]) {
    let disk: Arc<dyn Disk> = Arc::new(OneFile(Arc::new(Bytes(bytes.to_vec()))));
    let folder = Path::new("runs");
    if let (Ok(facts), Ok(cache)) = (read_facts(&disk, folder, ID), Cache::new(1 << 16, 0, 4096, 64)) {
        let run = Run::open(&disk, folder, facts, &cache);
        _ = run.verify(&mut |_| {});
        for reading in [Reading::Cached, Reading::Ahead] {
            walk(&mut run.cursor(reading), |key| _ = run.get(key, filter::hash(key)));
        }
    }
    if let Ok(block) = Block::parse(bytes) {
        block_ways(&Arc::new(block));
    }
    if let Ok(filter) = Filter::parse(bytes) {
        (0..64).for_each(|number| _ = filter.may_hold(filter::mix(number)));
    }
}

/// Reads a manifest of these bytes; then takes them for its fields, whose checksum nobody guesses, and judges what they say.
pub fn fuzz_manifest(bytes: &[u8]) {
    _ = manifest::parse(bytes);
    let Ok(contents) = Contents::read(bytes) else { return };
    assert!(contents.lay() == bytes, "fields that are read are laid as they were");
    let erased = Erased::of(&contents.erased);
    assert!(erased.ranges() == contents.erased, "ranges that are read stand as they were");
    let (levels, shunned) = (&contents.levels, &BTreeSet::new());
    let shape = Shape { frozen: 0, levels, erased: &erased, gathers: true, hurries: false, shunned };
    _ = policy::next(shape, &Config::default());
    for fragment in erased.fragments() {
        _ = policy::is_needed(&contents.levels, fragment);
    }
}

/// Keys laid in disorder are long at will, and a way back is a search each time: so many steps will do.
const STEPS_MAX: usize = 128;

fn walk(cursor: &mut impl Cursor, mut visit: impl FnMut(&[u8])) {
    _ = cursor.seek(&[]);
    while let Some(entry) = cursor.entry() {
        visit(entry.key);
        _ = cursor.next();
    }
    _ = cursor.seek_back(None);
    for _ in 0..STEPS_MAX {
        _ = cursor.prev();
    }
}

fn block_ways(block: &Arc<Block>) {
    let mut cursor = BlockCursor::new(Arc::clone(block));
    let mut keys = Vec::new();
    let mut moved = cursor.first();
    while let (Ok(()), Some(entry)) = (&moved, cursor.entry()) {
        if keys.len() < STEPS_MAX {
            keys.push(entry.key.to_vec());
        }
        moved = cursor.next();
    }
    _ = cursor.last();
    for _ in 0..STEPS_MAX {
        _ = cursor.prev();
    }
    for key in &keys {
        _ = block.get(key);
        _ = cursor.seek(key);
        _ = cursor.seek_back(key);
    }
}

/// A folder whose files all have these bytes, and can only be read.
#[derive(Debug)]
struct OneFile(Arc<Bytes>);

#[derive(Debug)]
struct Bytes(Vec<u8>);

fn denied<T>() -> io::Result<T> {
    Err(io::ErrorKind::PermissionDenied.into())
}

impl Disk for OneFile {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        denied()
    }

    fn open(&self, _: &Path, open: Open) -> io::Result<Arc<dyn File>> {
        if open.access == Access::Read { Ok(Arc::clone(&self.0) as Arc<dyn File>) } else { denied() }
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        denied()
    }

    fn unlink(&self, _: &Path) -> io::Result<()> {
        denied()
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        denied()
    }

    fn sync_dir(&self, _: &Path, _: Barrier) -> io::Result<()> {
        denied()
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn Lock>> {
        denied()
    }
}

impl File for Bytes {
    fn size(&self) -> io::Result<u64> {
        Ok(u64::try_from(self.0.len()).unwrap_or(u64::MAX))
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let rest = self.0.get(at..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Ok(read)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<usize> {
        denied()
    }

    fn write_durable_at(&self, _: u64, _: &[u8], _: Durably, _: Barrier) -> io::Result<usize> {
        denied()
    }

    fn preallocate_zeroed(&self, _: u64) -> io::Result<()> {
        denied()
    }

    fn set_size(&self, _: u64) -> io::Result<()> {
        denied()
    }

    fn sync_data(&self, _: Barrier) -> io::Result<()> {
        denied()
    }

    fn sync_all(&self, _: Barrier) -> io::Result<()> {
        denied()
    }
}
