//! The floor of the race: what the same bytes cost a store that only does what none can leave out.
//!
//! A hash index in memory over segments that are zeroed ahead of use. A write that must be durable goes with all that wait into one
//! write and one sync; another goes to the page cache at its own place. A head is in the index. Nothing is compacted, no key has an order,
//! an open reads every record's head. Beyond its syncs it promises nothing: a torn record is not noticed.
//!
//! ```text
//!   | mark u32 | key's bytes u32 | value's bytes u32, all ones: deleted | 0 u32 | key | value |     next ..   zeroes
//! ```

use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::hash::BuildHasher;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;

use assent_kind::Kind;
use assent_world::{Access, Barrier, Clock, Disk, File, Gate, Open, RealClock, RealDisk, read_exact_at, write_all_at};

use super::slow::SlowDisk;
use super::store::{Ability, Each, Member, Setup, Store, Write, failed};
use super::value::HEAD_BYTES;
use crate::BenchError;

const RECORD_HEAD: usize = 16;
const MARK: u32 = 0x464c_4f4f;
const DELETED: u32 = u32::MAX;
const SHARDS: usize = 64;
const BYTES: Barrier = Barrier::new("bench: the floor store's records");
const ZEROES: Barrier = Barrier::new("bench: the floor store's zeroed segment");

/// The member.
#[must_use]
pub fn member() -> Member {
    Member {
        name: "floor",
        about: "floor: a hash index in memory over zeroed segments, group commit, no compaction".to_owned(),
        lacks: vec![(Ability::Order, "its index is a hash"), (Ability::Compaction, "it keeps every record")],
        open: |setup| Ok(Box::new(Floor::open(setup)?)),
    }
}

/// Where a value stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    segment: usize,
    at: u64,
    bytes: usize,
    /// What a HEAD answers.
    head: [u8; HEAD_BYTES],
}

impl Place {
    const fn order(&self) -> (usize, u64) {
        (self.segment, self.at)
    }
}

#[derive(Debug)]
struct Chunk {
    segment: usize,
    at: u64,
    bytes: Vec<u8>,
}

/// What waits, and where the next record goes.
#[derive(Debug, Default)]
struct Tail {
    segment: usize,
    at: u64,
    waiting: Vec<Chunk>,
    appended: u64,
    durable: u64,
    writing: bool,
    /// Segments that hold bytes which no sync has seen.
    dirty: BTreeSet<usize>,
    failed: Option<String>,
}

#[derive(Debug)]
struct Segments {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    bytes: u64,
    files: RwLock<Vec<Arc<dyn File>>>,
    spare: Mutex<Option<Arc<dyn File>>>,
    /// Bumped when a spare is wanted; 0 says stop.
    wanted: Gate,
}

type Shard = RwLock<HashMap<Box<[u8]>, Place>>;

/// The store.
#[derive(Debug)]
struct Floor {
    shards: Vec<Shard>,
    hasher: std::hash::RandomState,
    segments: Arc<Segments>,
    tail: Mutex<Tail>,
    wake: Condvar,
    zeroer: Option<JoinHandle<()>>,
}

fn io(doing: &str, error: &dyn Display) -> BenchError {
    failed(&format!("floor: {doing}"), error)
}

fn at_most_u32(bytes: usize) -> Result<u32, BenchError> {
    let said = || BenchError::new(Kind::Invalid, format!("floor: {bytes} bytes; a key or value takes less than 4 GiB"));
    u32::try_from(bytes).ok().filter(|bytes| *bytes != DELETED).ok_or_else(said)
}

impl Segments {
    fn make(&self) -> Result<Arc<dyn File>, BenchError> {
        let path = self.folder.join("spare");
        let made = || {
            if let Ok(file) = self.disk.open(&path, Open { access: Access::Write, direct: false }) {
                // Of an earlier opening, and never used.
                if file.size()? == self.bytes {
                    return Ok(file);
                }
                self.disk.unlink(&path)?;
            }
            let file = self.disk.open(&path, Open { access: Access::Create, direct: false })?;
            file.preallocate_zeroed(self.bytes)?;
            file.sync_all(ZEROES)?;
            Ok::<_, std::io::Error>(file)
        };
        made().map_err(|error| io("zeroing a segment", &error))
    }

    /// Keeps one segment ready, until it is told to stop.
    fn keep_spare(&self) {
        loop {
            let seen = self.wanted.value();
            if seen == 0 {
                return;
            }
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            if spare.is_none() {
                // Who needs one and finds none makes it, and says what the disk says.
                *spare = self.make().ok();
            }
            drop(spare);
            self.wanted.wait(seen, None);
        }
    }

    /// The next segment, and its number.
    fn next(&self) -> Result<usize, BenchError> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match spare.take() {
            Some(file) => file,
            None => self.make()?,
        };
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let number = files.len();
        let renamed = self.disk.rename(&self.folder.join("spare"), &named(&self.folder, number));
        renamed
            .and_then(|()| self.disk.sync_dir(&self.folder, ZEROES))
            .map_err(|error| io("naming a segment", &error))?;
        files.push(file);
        drop((files, spare));
        self.wanted.bump();
        self.wanted.wake_all();
        Ok(number)
    }

    fn file(&self, number: usize) -> Result<Arc<dyn File>, BenchError> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.get(number).cloned().ok_or_else(|| io("finding a segment", &number))
    }

    fn write(&self, chunk: &Chunk) -> Result<(), BenchError> {
        write_all_at(&*self.file(chunk.segment)?, chunk.at, &chunk.bytes).map_err(|error| io("writing", &error))
    }

    fn sync(&self, segments: impl IntoIterator<Item = usize>) -> Result<(), BenchError> {
        segments
            .into_iter()
            .try_for_each(|number| self.file(number)?.sync_data(BYTES).map_err(|error| io("syncing", &error)))
    }
}

fn named(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("segment-{number:06}"))
}

impl Floor {
    fn open(setup: &Setup) -> Result<Self, BenchError> {
        let clock: Arc<dyn Clock> = Arc::new(RealClock);
        let disk: Arc<dyn Disk> = match setup.disk_iops {
            Some(per_s) => Arc::new(SlowDisk::new(Arc::new(RealDisk), clock, per_s)),
            None => Arc::new(RealDisk),
        };
        let folder = setup.folder.clone();
        let names = disk.list(&folder).map_err(|error| io("looking at its folder", &error))?;
        let open = |name: &String| disk.open(&folder.join(name), Open { access: Access::Write, direct: false });
        let files = names.iter().filter(|name| name.starts_with("segment-")).map(open).collect::<Result<Vec<_>, _>>();
        let files = files.map_err(|error| io("opening a segment", &error))?;
        let count = files.len();
        let segments = Arc::new(Segments {
            disk,
            folder,
            bytes: setup.segment_bytes,
            files: RwLock::new(files),
            spare: Mutex::default(),
            wanted: Gate::default(),
        });
        segments.wanted.bump();
        let mut floor = Self {
            shards: std::iter::repeat_with(Shard::default).take(SHARDS).collect(),
            hasher: std::hash::RandomState::new(),
            segments,
            tail: Mutex::default(),
            wake: Condvar::new(),
            zeroer: None,
        };
        let ends =
            (0..count).map(|number| Ok((number, floor.load(number)?))).collect::<Result<Vec<_>, BenchError>>()?;
        let (segment, at) = ends.last().map_or_else(|| Ok((floor.segments.next()?, 0)), |end| Ok(*end))?;
        *floor.tail() = Tail { segment, at, ..Tail::default() };
        let segments = Arc::clone(&floor.segments);
        let zeroer = std::thread::Builder::new().name("floor-zero".to_owned()).spawn(move || segments.keep_spare());
        floor.zeroer = Some(zeroer.map_err(|error| io("starting a thread", &error))?);
        Ok(floor)
    }

    /// Takes every record of a segment into the index; where the last one ends.
    fn load(&self, segment: usize) -> Result<u64, BenchError> {
        let file = self.segments.file(segment)?;
        let size = file.size().map_err(|error| io("reading", &error))?;
        let (mut at, mut head) = (0_u64, vec![0_u8; RECORD_HEAD]);
        let mut key = Vec::new();
        while at + super::length(RECORD_HEAD) <= size {
            read_exact_at(&*file, at, &mut head).map_err(|error| io("reading", &error))?;
            let field =
                |at: usize| head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
            if field(0) != MARK {
                break;
            }
            let width = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
            key.resize(width(field(4)), 0);
            let key_at = at + super::length(RECORD_HEAD);
            read_exact_at(&*file, key_at, &mut key).map_err(|error| io("reading", &error))?;
            let value_at = key_at + super::length(key.len());
            if field(8) == DELETED {
                self.shard(&key).write().unwrap_or_else(PoisonError::into_inner).remove(key.as_slice());
                at = value_at;
                continue;
            }
            let mut place = Place { segment, at: value_at, bytes: width(field(8)), head: [0; HEAD_BYTES] };
            let part = place.head.len().min(place.bytes);
            let into = place.head.get_mut(..part).unwrap_or_default();
            read_exact_at(&*file, value_at, into).map_err(|error| io("reading", &error))?;
            self.publish(&key, place);
            at = value_at + super::length(place.bytes);
        }
        Ok(at)
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard(&self, key: &[u8]) -> &Shard {
        let hash = usize::try_from(self.hasher.hash_one(key) % super::length(SHARDS)).unwrap_or(0);
        // There are SHARDS of them, and the first always is.
        #[expect(clippy::indexing_slicing, reason = "a remainder of the length")]
        &self.shards[hash]
    }

    /// A later record of a key wins, whoever comes first.
    fn publish(&self, key: &[u8], place: Place) {
        let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        match shard.get_mut(key) {
            Some(known) if known.order() > place.order() => {}
            Some(known) => *known = place,
            None => _ = shard.insert(key.into(), place),
        }
    }

    fn find(&self, key: &[u8]) -> Option<Place> {
        self.shard(key).read().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    /// Lays records behind each other and says where they begin.
    fn lay(writes: &[Write<'_>]) -> Result<(Vec<u8>, Vec<usize>), BenchError> {
        let (mut bytes, mut values) = (Vec::new(), Vec::new());
        for write in writes {
            let (key, value) = match *write {
                Write::Put(key, value) => (key, Some(value)),
                Write::Delete(key) => (key, None),
            };
            let value_bytes = value.map_or(Ok(DELETED), |value| at_most_u32(value.len()))?;
            for field in [MARK, at_most_u32(key.len())?, value_bytes, 0] {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
            bytes.extend_from_slice(key);
            values.push(bytes.len());
            bytes.extend_from_slice(value.unwrap_or_default());
        }
        Ok((bytes, values))
    }

    /// Room for so many bytes, in one segment.
    fn reserve(&self, tail: &mut Tail, bytes: usize) -> Result<(usize, u64), BenchError> {
        let bytes = super::length(bytes);
        if bytes > self.segments.bytes {
            let said = format!("floor: a write of {bytes} bytes; a segment takes {}", self.segments.bytes);
            return Err(BenchError::new(Kind::Invalid, said));
        }
        if tail.at + bytes > self.segments.bytes {
            tail.segment = self.segments.next()?;
            tail.at = 0;
        }
        let place = (tail.segment, tail.at);
        tail.at += bytes;
        Ok(place)
    }

    /// Waits until everything up to this ticket is durable; who finds nobody writing writes for all.
    fn commit(&self, ticket: u64) -> Result<(), BenchError> {
        let mut tail = self.tail();
        loop {
            if let Some(why) = &tail.failed {
                return Err(BenchError::new(Kind::Closed, format!("floor: an earlier write failed: {why}")));
            }
            if tail.durable >= ticket {
                return Ok(());
            }
            if tail.writing {
                tail = self.wake.wait(tail).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            tail.writing = true;
            let (chunks, upto) = (std::mem::take(&mut tail.waiting), tail.appended);
            drop(tail);
            let segments: BTreeSet<usize> = chunks.iter().map(|chunk| chunk.segment).collect();
            let written = chunks.iter().try_for_each(|chunk| self.segments.write(chunk));
            let done = written.and_then(|()| self.segments.sync(segments));
            tail = self.tail();
            tail.writing = false;
            match done {
                Ok(()) => tail.durable = upto,
                Err(error) => tail.failed = Some(error.message),
            }
            self.wake.notify_all();
        }
    }

    fn durably(&self, bytes: Vec<u8>) -> Result<(usize, u64), BenchError> {
        let mut tail = self.tail();
        let (segment, at) = self.reserve(&mut tail, bytes.len())?;
        match tail.waiting.last_mut() {
            Some(last) if (last.segment, last.at + super::length(last.bytes.len())) == (segment, at) => {
                last.bytes.extend_from_slice(&bytes);
            }
            _ => tail.waiting.push(Chunk { segment, at, bytes }),
        }
        tail.appended += 1;
        let ticket = tail.appended;
        drop(tail);
        self.commit(ticket)?;
        Ok((segment, at))
    }

    fn lazily(&self, bytes: Vec<u8>) -> Result<(usize, u64), BenchError> {
        let mut tail = self.tail();
        let (segment, at) = self.reserve(&mut tail, bytes.len())?;
        tail.dirty.insert(segment);
        drop(tail);
        self.segments.write(&Chunk { segment, at, bytes })?;
        Ok((segment, at))
    }

    fn end(&mut self) {
        self.segments.wanted.set(0);
        self.segments.wanted.wake_all();
        if let Some(zeroer) = self.zeroer.take() {
            // A panic there has been printed.
            _ = zeroer.join();
        }
    }
}

impl Store for Floor {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        let Some(place) = self.find(key) else { return Ok(false) };
        value.resize(place.bytes, 0);
        let file = self.segments.file(place.segment)?;
        read_exact_at(&*file, place.at, value).map_err(|error| io("reading", &error))?;
        Ok(true)
    }

    fn head(&self, key: &[u8], head: &mut Vec<u8>) -> Result<bool, BenchError> {
        let Some(place) = self.find(key) else { return Ok(false) };
        head.clear();
        head.extend_from_slice(&place.head);
        Ok(true)
    }

    fn write(&self, writes: &[Write<'_>], sync: bool) -> Result<(), BenchError> {
        let (bytes, values) = Self::lay(writes)?;
        let (segment, at) = if sync { self.durably(bytes)? } else { self.lazily(bytes)? };
        for (write, value_at) in writes.iter().zip(values) {
            match *write {
                Write::Put(key, value) => {
                    let mut head = [0; HEAD_BYTES];
                    head.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
                    self.publish(key, Place { segment, at: at + super::length(value_at), bytes: value.len(), head });
                }
                Write::Delete(key) => {
                    _ = self.shard(key).write().unwrap_or_else(PoisonError::into_inner).remove(key);
                }
            }
        }
        Ok(())
    }

    fn fold(&self, from: &[u8], to: &[u8], each: &mut Each<'_>) -> Result<(), BenchError> {
        for shard in &self.shards {
            // A copy of the shard's heads, so that no writer waits for who folds.
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            let rows: Vec<_> = shard.iter().map(|(key, place)| (key.clone(), place.head)).collect();
            drop(shard);
            for (key, head) in rows.iter().filter(|(key, _)| from <= &**key && &**key < to) {
                if each(key, head) == ControlFlow::Break(()) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), BenchError> {
        let dirty = std::mem::take(&mut self.tail().dirty);
        self.segments.sync(dirty)
    }

    fn close(mut self: Box<Self>) -> Result<(), BenchError> {
        self.flush()?;
        self.end();
        Ok(())
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(folder: &Path) -> Floor {
        let setup = Setup {
            folder: folder.to_owned(),
            sync: true,
            cache_bytes: 0,
            value_cache_bytes: 0,
            segment_bytes: 4_096,
            disk_iops: None,
        };
        Floor::open(&setup).unwrap()
    }

    #[test]
    fn what_was_written_in_many_segments_is_there_again_after_an_open() {
        let folder = tempfile::tempdir().unwrap();
        let floor = opened(folder.path());
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let floor = &floor;
                scope.spawn(move || {
                    for round in 0..20_u8 {
                        for key in 0..5_u8 {
                            let value = vec![round; 300];
                            floor.write(&[Write::Put(&[thread, key], &value)], round % 2 == 0).unwrap();
                        }
                    }
                });
            }
        });
        floor.write(&[Write::Delete(&[0, 0]), Write::Put(b"new", b"short")], true).unwrap();
        let too_long = vec![0; 5_000];
        assert_eq!(floor.write(&[Write::Put(b"long", &too_long)], true).unwrap_err().kind(), Kind::Invalid);
        let segments = floor.segments.files.read().unwrap().len();
        assert!(segments > 20);
        Box::new(floor).close().unwrap();
        let floor = opened(folder.path());
        assert_eq!(floor.segments.files.read().unwrap().len(), segments, "an open goes on where the last one ended");
        floor.write(&[Write::Put(&[1, 1], &[7; 100])], true).unwrap();
        Box::new(floor).close().unwrap();
        let floor = opened(folder.path());
        let mut value = Vec::new();
        assert!(!floor.get(&[0, 0], &mut value).unwrap());
        assert!(floor.get(&[3, 4], &mut value).unwrap());
        assert_eq!(value, [19; 300]);
        assert!(floor.get(&[1, 1], &mut value).unwrap());
        assert_eq!(value, [7; 100]);
        assert!(floor.head(b"new", &mut value).unwrap());
        assert_eq!(&value[..6], b"short\0");
        let mut rows = 0;
        floor
            .fold(&[0], b"z", &mut |_, _| {
                rows += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(rows, 20);
    }
}
