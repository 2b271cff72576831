//! A snapshot of a member's state, one file: where it stands in the log, and the state in chunks.
//!
//! ```text
//!   frame, kind 1: | version 2 | base |  ·  frames, kind 2, chain 0, 1, 2 ...: a chunk each  ·  frame, kind 3: | chunks 8 |
//! ```
//! The mark of each frame is the sequence of the base: a frame of another snapshot does not fit.
//! Walk: [`lay`] writes the chunks as they come · [`Snapshot::open`] reads where it stands · [`Snapshot::load`] gives the chunks,
//! every checksum, and says at the end whether it was whole · [`Snapshot::piece`] for a standby: the file's bytes as they are.
//! Deliberately absent: what a chunk means, and the state in memory: a file stays readable while it is open, whatever its name.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use assent_frame::{Head, Malformed, PAYLOAD_BYTES_MAX, Reader, Writer};
use assent_world::{Access, Disk, File, Open, read_exact_at, write_all_at};

use crate::error::{ReplicaError, damaged, refused};
use crate::machine::{CHUNK_BYTES_MAX, Next, Put};
use crate::message::{Base, PIECE_BYTES_MAX, Piece, lay_base, read_base};

const KIND_BASE: u16 = 1;
const KIND_CHUNK: u16 = 2;
const KIND_END: u16 = 3;
const VERSION: u8 = 2;
/// Bytes that are written or read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// A snapshot file, open.
#[derive(Clone)]
pub struct Snapshot {
    /// The last entry that is in it.
    pub base: Base,
    pub(crate) file: Arc<dyn File>,
    pub(crate) bytes: u64,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Snapshot").field("base", &self.base).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// The snapshot of this name; none if there is none.
    ///
    /// # Errors
    /// `Damaged` if its head is wrong, or as the disk says.
    pub(crate) fn open(disk: &dyn Disk, path: &Path) -> Result<Option<Self>, ReplicaError> {
        let file = match disk.open(path, Open { access: Access::Read, direct: false }) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| refused("opening", path, &error))?,
        };
        let snapshot = Self::of(file).map_err(|error| refused("reading", path, &error))?;
        snapshot.map(Some).map_err(|why| damaged(path, why))
    }

    /// The snapshot of a file; or what is wrong with its head.
    pub(crate) fn of(file: Arc<dyn File>) -> io::Result<Result<Self, String>> {
        let bytes = file.size()?;
        let mut frames = Frames::new(&*file);
        Ok(match frames.next(read_head) {
            Ok(Ok(base)) => Ok(Self { base, file, bytes }),
            Ok(Err(malformed)) => Err(malformed.to_string()),
            Err(why) => Err(why),
        })
    }

    /// Gives all chunks to `take`. The error says what is wrong with the file, or what `take` said.
    pub(crate) fn load(&self, take: impl FnOnce(Next<'_>) -> Result<(), String>) -> Result<(), String> {
        let mark = self.base.end.sequence.0;
        let mut frames = Frames::new(&*self.file);
        frames.next(|_| ())?;
        let (mut chunks, mut end, mut wrong) = (0_u32, None, None);
        let mut next = || {
            if end.is_some() || wrong.is_some() {
                return None;
            }
            let taken = frames.next(|frame| match frame.kind {
                _ if frame.mark != mark => Err("a frame of another snapshot".to_owned()),
                KIND_CHUNK if frame.chain == chunks => Ok(Ok(frame.payload.to_vec())),
                KIND_END => Reader::new(frame.payload).u64("chunks").map(Err).map_err(|error| error.to_string()),
                kind => Err(format!("a frame of kind {kind}, number {}, behind {chunks} chunks", frame.chain)),
            });
            match taken {
                Ok(Ok(Ok(chunk))) => {
                    chunks = chunks.saturating_add(1);
                    return Some(chunk);
                }
                Ok(Ok(Err(count))) => end = Some(count),
                Ok(Err(why)) | Err(why) => wrong = Some(why),
            }
            None
        };
        let took = take(&mut next);
        // What it did not take is read all the same: a machine that stops early is not what laid it.
        let left = next().is_some();
        match (wrong, end) {
            (Some(why), _) => Err(why),
            (None, _) if left => Err(took.err().unwrap_or_else(|| "there is more than was taken".to_owned())),
            (None, Some(count)) if count == u64::from(chunks) && frames.at_end(self.bytes) => took,
            _ => Err(format!("it ends behind {chunks} chunks and says {end:?}")),
        }
    }

    /// Some bytes of the file for a standby; beyond its end, its beginning.
    pub(crate) fn piece(&self, offset: u64, bytes_max: u64) -> io::Result<Piece> {
        let offset = if offset <= self.bytes { offset } else { 0 };
        let most = u64::try_from(PIECE_BYTES_MAX).unwrap_or(u64::MAX);
        let length = (self.bytes - offset).min(bytes_max).min(most);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(PIECE_BYTES_MAX)];
        let read = read_exact_at(&*self.file, offset, &mut bytes)?;
        bytes.truncate(read);
        Ok(Piece { base: self.base.clone(), total_bytes: self.bytes, offset, bytes })
    }
}

fn read_head(frame: &assent_frame::Frame<'_>) -> Result<Base, Malformed> {
    let mut fields = Reader::new(frame.payload);
    if frame.kind != KIND_BASE || fields.u8("version")? != VERSION {
        return Err(Malformed { field: "version" });
    }
    let base = read_base(&mut fields)?;
    fields.end()?;
    if frame.mark != base.end.sequence.0 {
        return Err(Malformed { field: "mark" });
    }
    Ok(base)
}

/// Lays a snapshot into a file: its head, the chunks that `chunks` puts, its end. Not durable before the file is synced.
pub(crate) fn lay(
    file: &dyn File,
    base: &Base,
    mut wrote: impl FnMut(u64) -> io::Result<()>,
    chunks: impl FnOnce(Put<'_>) -> io::Result<()>,
) -> io::Result<u64> {
    let mark = base.end.sequence.0;
    let (mut out, mut at, mut count) = (Vec::new(), 0_u64, 0_u32);
    let mut fields = Writer::new();
    fields.u8(VERSION);
    lay_base(&mut fields, base);
    assent_frame::lay(&mut out, Head { mark, kind: KIND_BASE, ..Head::default() }, &[fields.as_slice()]);
    chunks(&mut |chunk| {
        if chunk.is_empty() || chunk.len() > CHUNK_BYTES_MAX {
            let why = format!("a chunk of {} bytes; it has 1 to {CHUNK_BYTES_MAX}", chunk.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        assent_frame::lay(&mut out, Head { mark, kind: KIND_CHUNK, flags: 0, chain: count }, &[chunk]);
        count = count.saturating_add(1);
        if out.len() < BUFFER_BYTES {
            return Ok(());
        }
        write_all_at(file, at, &out)?;
        at = at.saturating_add(u64::try_from(out.len()).unwrap_or(u64::MAX));
        out.clear();
        wrote(at)
    })?;
    let end = u64::from(count).to_le_bytes();
    assent_frame::lay(&mut out, Head { mark, kind: KIND_END, ..Head::default() }, &[&end]);
    write_all_at(file, at, &out)?;
    Ok(at.saturating_add(u64::try_from(out.len()).unwrap_or(u64::MAX)))
}

/// Frames of a file, read in order.
struct Frames<'a> {
    file: &'a dyn File,
    bytes: Vec<u8>,
    used: usize,
    /// Where `bytes` begins in the file.
    offset: u64,
}

impl<'a> Frames<'a> {
    const fn new(file: &'a dyn File) -> Self {
        Self { file, bytes: Vec::new(), used: 0, offset: 0 }
    }

    fn next<T>(&mut self, take: impl FnOnce(&assent_frame::Frame<'_>) -> T) -> Result<T, String> {
        loop {
            let rest = self.bytes.get(self.used..).unwrap_or_default();
            match assent_frame::parse(rest, PAYLOAD_BYTES_MAX) {
                Err(error) => return Err(format!("at byte {}: {error}", self.place())),
                Ok(Some((frame, laid))) => {
                    let taken = take(&frame);
                    self.used += laid;
                    return Ok(taken);
                }
                Ok(None) => {}
            }
            if !self.more()? {
                return Err(format!("it ends at byte {}, within a frame", self.place()));
            }
        }
    }

    fn place(&self) -> u64 {
        self.offset.saturating_add(u64::try_from(self.used).unwrap_or(u64::MAX))
    }

    /// Whether everything was read.
    fn at_end(&self, bytes: u64) -> bool {
        self.place() == bytes
    }

    fn more(&mut self) -> Result<bool, String> {
        self.offset = self.place();
        self.bytes.drain(..self.used.min(self.bytes.len()));
        self.used = 0;
        let have = self.bytes.len();
        self.bytes.resize(have + BUFFER_BYTES, 0);
        let at = self.offset.saturating_add(u64::try_from(have).unwrap_or(u64::MAX));
        let buffer = self.bytes.get_mut(have..).unwrap_or_default();
        let read = read_exact_at(self.file, at, buffer).map_err(|error| format!("reading it: {error}"))?;
        self.bytes.truncate(have + read);
        Ok(read > 0)
    }
}

/// Where the snapshot of these bytes stands.
pub(crate) fn parse(bytes: &[u8]) -> Option<Base> {
    let Ok(Some((frame, _))) = assent_frame::parse(bytes, PAYLOAD_BYTES_MAX) else { return None };
    read_head(&frame).ok()
}
