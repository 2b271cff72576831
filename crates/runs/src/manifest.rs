//! The manifest: which runs the map is made of. Two copies, written in turn; the newest that can be believed counts.
//!
//! ```text
//!   manifest-a, manifest-b
//!   0       8        12        16       24       32
//!   | magic | CRC-32C | version | number | length | fields …
//! ```
//! All little endian. The checksum covers everything behind it; `length` counts the fields; what a longer manifest left
//! behind them is nobody's. The fields: the next run's id, applied, levels (the facts of each run), erased ranges, the note.
//!
//! Walk: [`Copies::open`] finds the newest, and makes sure that the other one never counts if it cannot be believed · [`Copies::commit`] writes the other copy: the fields first and the head last, so
//! that a write that fails leaves no manifest that anybody believes, then the sync, from which on it counts.
//! Deliberately absent: what becomes of the files that a commit let go. The older copy still names them until the next one,
//! and an open that cannot believe the newer copy goes back to it: [`crate::runs`] keeps them so long.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use assent_frame::{Malformed, Reader, Writer, crc32c};
use assent_world::{Access, Barrier, Disk, File, Open, read_exact_at, write_all_at};

use crate::entry::Range;
use crate::run::{RunFacts, RunId};
use crate::{KEY_BYTES_MAX, RunsError};

pub(crate) const FOLDER: Barrier = Barrier::new("runs: the folder's entry before anything in it");
pub(crate) const COPY_BYTES: Barrier = Barrier::new("runs: a manifest's first bytes before its name");
pub(crate) const COPY_NAMES: Barrier = Barrier::new("runs: the manifests' names before anything is committed");
pub(crate) const COPY_AGAIN: Barrier =
    Barrier::new("runs: the manifest that an open found before the other one is written over");
pub(crate) const COPY_VOID: Barrier = Barrier::new("runs: a manifest that is not believed before what it names goes");
pub(crate) const COPY: Barrier = Barrier::new("runs: a manifest before what it says counts");

const NAMES: [&str; 2] = ["manifest-a", "manifest-b"];
const TEMPORARY: &str = "manifest.new";
const MAGIC: u64 = u64::from_le_bytes(*b"AS-RUNS\0");
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 32;
/// Bytes of a manifest before its checksum ends.
const CHECKED_FROM: usize = 12;
/// A manifest is read into memory: one that says more is damaged.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 1 << 30;
/// Levels that a manifest may have: with a ratio of two, sixteen hold 32,000 times the first.
pub(crate) const LEVELS_MAX: usize = 16;

/// What a manifest says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// The id that the next run gets. Ids are never used twice.
    pub(crate) next_id: u64,
    /// Up to here the owner need not replay.
    pub(crate) applied: u64,
    /// Level 0 newest first, the others in the order of their keys.
    pub(crate) levels: Vec<Vec<RunFacts>>,
    /// Disjoint, in the order of their keys.
    pub(crate) erased: Vec<Range>,
    pub(crate) note: Vec<u8>,
}

impl Contents {
    pub(crate) fn runs(&self) -> impl Iterator<Item = &RunFacts> {
        self.levels.iter().flatten()
    }

    /// The fields, as they are laid behind the head.
    pub(crate) fn lay(&self) -> Vec<u8> {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let mut out = Writer::new();
        out.u64(self.next_id).u64(self.applied).u32(count(self.levels.len()));
        for level in &self.levels {
            out.u32(count(level.len()));
            level.iter().for_each(|run| run.lay(&mut out));
        }
        out.u32(count(self.erased.len()));
        for Range { from, to, seq } in &self.erased {
            out.u64(*seq).bytes(from).u8(to.is_some().into());
            out.bytes(to.as_deref().unwrap_or_default());
        }
        out.bytes(&self.note);
        out.into_vec()
    }

    pub(crate) fn read(fields: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Reader::new(fields);
        let (next_id, applied) = (fields.u64("next id")?, fields.u64("applied")?);
        let mut levels = Vec::new();
        for _ in 0..fields.u32("levels")? {
            let mut runs = Vec::new();
            for _ in 0..fields.u32("runs")? {
                runs.push(RunFacts::read(&mut fields)?);
            }
            levels.push(runs);
        }
        let mut erased = Vec::new();
        for _ in 0..fields.u32("ranges")? {
            let seq = fields.u64("range seq")?;
            let from = fields.bytes("range from")?.to_vec();
            let to = match (fields.u8("range has an end")?, fields.bytes("range to")?) {
                (0, []) => None,
                (1, to) => Some(to.to_vec()),
                _ => return Err(Malformed { field: "range has an end" }),
            };
            erased.push(Range { from, to, seq });
        }
        let note = fields.bytes("note")?.to_vec();
        fields.end()?;
        let contents = Self { next_id, applied, levels, erased, note };
        contents.is_orderly()?;
        Ok(contents)
    }

    /// What the engine relies on, whatever the bytes say.
    fn is_orderly(&self) -> Result<(), Malformed> {
        let rule = |holds: bool, field| if holds { Ok(()) } else { Err(Malformed { field }) };
        rule(self.levels.len() <= LEVELS_MAX, "levels")?;
        let mut ids: Vec<u64> = self.runs().map(|run| run.id.0).collect();
        ids.sort_unstable();
        rule(ids.is_sorted_by(|a, b| a < b) && ids.last().is_none_or(|last| *last < self.next_id), "run id")?;
        rule(self.runs().all(|run| run.last.len() <= KEY_BYTES_MAX), "run keys")?;
        let deep = self.levels.iter().skip(1);
        rule(deep.map(Vec::as_slice).all(|runs| runs.is_sorted_by(|a, b| a.last < b.first)), "run order")?;
        let whole = |range: &Range| range.seq > 0 && range.to.as_ref().is_none_or(|to| *to > range.from);
        rule(self.erased.iter().all(whole), "range")?;
        let disjoint = |a: &Range, b: &Range| a.to.as_ref().is_some_and(|to| *to <= b.from);
        rule(self.erased.is_sorted_by(disjoint), "range order")
    }
}

/// A whole manifest: head and fields.
fn seal(number: u64, fields: &[u8]) -> Vec<u8> {
    let mut out = Writer::new();
    out.u64(MAGIC).u32(0).u32(VERSION).u64(number).u64(u64::try_from(fields.len()).unwrap_or(u64::MAX)).raw(fields);
    let mut bytes = out.into_vec();
    let checksum = crc32c(bytes.get(CHECKED_FROM..).unwrap_or_default());
    if let Some(place) = bytes.get_mut(8..CHECKED_FROM) {
        place.copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

/// What a copy says: its number and contents, or what is wrong with it.
pub(crate) fn parse(bytes: &[u8]) -> Result<(u64, Contents), String> {
    let malformed = |malformed: Malformed| malformed.to_string();
    let mut head = Reader::new(bytes);
    if head.u64("magic").map_err(malformed)? != MAGIC {
        return Err("it is no manifest".to_owned());
    }
    let stored = head.u32("checksum").map_err(malformed)?;
    let version = head.u32("version").map_err(malformed)?;
    let number = head.u64("number").map_err(malformed)?;
    let length = head.u64("length").map_err(malformed)?;
    let whole = usize::try_from(length).ok().and_then(|length| bytes.get(..length.checked_add(HEAD_BYTES)?));
    let whole = whole.ok_or_else(|| format!("{length} bytes of fields, and the file ends before"))?;
    let computed = crc32c(whole.get(CHECKED_FROM..).unwrap_or_default());
    if stored != computed {
        return Err(format!("its checksum is {computed:#010x}, its head says {stored:#010x}"));
    }
    if version != VERSION {
        return Err(format!("its version is {version}; known is {VERSION}"));
    }
    let contents = Contents::read(whole.get(HEAD_BYTES..).unwrap_or_default()).map_err(malformed)?;
    Ok((number, contents))
}

/// Why a commit did not happen, or may have.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Nothing was changed; it may be tried again.
    Nothing(RunsError),
    /// A sync failed: which copy counts only an open can say.
    Unknown(RunsError),
}

/// What the copies said when they were opened.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) newest: Contents,
    /// What the other copy says, if it can be believed.
    pub(crate) older: Option<Contents>,
    /// Why the other copy could not be believed: a crash may have torn it, or it is rotten.
    pub(crate) torn: Option<RunsError>,
}

/// The two copies of one map.
#[derive(Debug)]
pub(crate) struct Copies {
    files: [Arc<dyn File>; 2],
    paths: [PathBuf; 2],
    /// Which of them is the newest.
    newest: usize,
    number: u64,
    /// The newest is durable, as far as anybody can tell.
    is_sure: bool,
}

impl Copies {
    /// Opens the copies of a folder; makes them, for an empty map, where there are none and no runs either. `settles_late`: whether the
    /// newest is durable is left to [`Copies::make_sure`], unless the other one is no way back.
    ///
    /// # Errors
    /// `Damaged` if neither can be believed, or both are missing beside runs; as the disk says.
    pub(crate) fn open(disk: &dyn Disk, folder: &Path, settles_late: bool) -> Result<(Self, Found), RunsError> {
        let names = disk.list(folder).map_err(|error| RunsError::disk("list", folder, &error))?;
        let there = there(folder, &names)?;
        if there == [false; 2] {
            return Self::create(disk, folder, &Contents::default(), 1);
        }
        let (newest, number, found) = choose(read_each(disk, folder, there))?;
        if there != [true; 2] {
            // A crash between the two names of a new map.
            return Self::create(disk, folder, &found.newest, number + 1);
        }
        let mut copies = Self { is_sure: false, ..Self::of(disk, folder, newest, number)? };
        if !settles_late || found.torn.is_some() {
            copies.make_sure(&found.newest)?;
        }
        if found.torn.is_some() {
            copies.void_other()?;
        }
        Ok((copies, found))
    }

    /// Writes both copies anew, whatever was there.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn create(
        disk: &dyn Disk,
        folder: &Path,
        contents: &Contents,
        number: u64,
    ) -> Result<(Self, Found), RunsError> {
        let temporary = folder.join(TEMPORARY);
        let wrap = |doing, error: &std::io::Error| RunsError::disk(doing, &temporary, error);
        for (name, number) in NAMES.iter().zip(number..) {
            _ = disk.unlink(&temporary);
            let open = Open { access: Access::Create, direct: false };
            let file = disk.open(&temporary, open).map_err(|error| wrap("create", &error))?;
            write_all_at(&*file, 0, &seal(number, &contents.lay())).map_err(|error| wrap("write", &error))?;
            // A name is a promise that there was a whole manifest: without one, a torn first copy would look like rot.
            file.sync_all(COPY_BYTES).map_err(|error| wrap("sync", &error))?;
            disk.rename(&temporary, &folder.join(name)).map_err(|error| wrap("rename", &error))?;
        }
        disk.sync_dir(folder, COPY_NAMES).map_err(|error| RunsError::disk("sync", folder, &error))?;
        let copies = Self::of(disk, folder, 1, number + 1)?;
        Ok((copies, Found { newest: contents.clone(), older: Some(contents.clone()), torn: None }))
    }

    /// Makes these the contents of a folder, whatever its manifests said and whether or not they can be believed. Both copies
    /// say so afterwards.
    ///
    /// # Errors
    /// As the disk says. A power cut, or an error, leaves the one or the other.
    pub(crate) fn replace(disk: &dyn Disk, folder: &Path, contents: &Contents) -> Result<Self, RunsError> {
        let numbers = NAMES.map(|name| read(disk, &folder.join(name)).map_or(0, |(number, _)| number));
        let number = numbers.iter().max().copied().unwrap_or(0) + 1;
        Ok(Self::create(disk, folder, contents, number)?.0)
    }

    fn of(disk: &dyn Disk, folder: &Path, newest: usize, number: u64) -> Result<Self, RunsError> {
        let paths = NAMES.map(|name| folder.join(name));
        let open = |path: &PathBuf| {
            let open = Open { access: Access::Write, direct: false };
            disk.open(path, open).map_err(|error| RunsError::disk("open", path, &error))
        };
        let [a, b] = &paths;
        Ok(Self { files: [open(a)?, open(b)?], paths, newest, number, is_sure: true })
    }

    /// A process that died may have left it in the page cache alone, or a sync of it may have failed and left it there as if it
    /// had not; the next commit overwrites the other one. The same bytes to the same place: the power may go meanwhile.
    pub(crate) fn make_sure(&mut self, contents: &Contents) -> Result<(), RunsError> {
        if self.is_sure {
            return Ok(());
        }
        let (Some(file), Some(path)) = (self.files.get(self.newest), self.paths.get(self.newest)) else {
            return Ok(());
        };
        let bytes = seal(self.number, &contents.lay());
        write_all_at(&**file, 0, &bytes).map_err(|error| RunsError::disk("write", path, &error))?;
        file.sync_all(COPY_AGAIN).map_err(|error| RunsError::disk("sync", path, &error))?;
        self.is_sure = true;
        Ok(())
    }

    /// A copy that is not believed may come to be whole again: where the power took the end of a file, the next commit's bytes may
    /// give it the length, or the sector, that it lacked. What it names is about to be removed, so its head goes first.
    fn void_other(&self) -> Result<(), RunsError> {
        let other = 1 - self.newest;
        let (Some(file), Some(path)) = (self.files.get(other), self.paths.get(other)) else { return Ok(()) };
        write_all_at(&**file, 0, &[0; HEAD_BYTES]).map_err(|error| RunsError::disk("write", path, &error))?;
        file.sync_all(COPY_VOID).map_err(|error| RunsError::disk("sync", path, &error))
    }

    /// Makes these the map's contents. What was there before is sure.
    pub(crate) fn commit(&mut self, contents: &Contents) -> Result<(), Refused> {
        debug_assert!(self.is_sure, "the other copy is a way back");
        let other = 1 - self.newest;
        let (Some(file), Some(path)) = (self.files.get(other), self.paths.get(other)) else { return Ok(()) };
        let bytes = seal(self.number + 1, &contents.lay());
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if length > MANIFEST_BYTES_MAX {
            let part = "manifest";
            return Err(Refused::Nothing(RunsError::Size { part, bytes: length, limit: MANIFEST_BYTES_MAX }));
        }
        let (head, fields) = bytes.split_at_checked(HEAD_BYTES).unwrap_or_default();
        let head_at = HEAD_BYTES.try_into().unwrap_or(0);
        let written = write_all_at(&**file, head_at, fields).and_then(|()| write_all_at(&**file, 0, head));
        // Its head is not whole, or its fields are not these: a checksum that fits neither.
        written.map_err(|error| Refused::Nothing(RunsError::disk("write", path, &error)))?;
        // POINT OF NO RETURN: from here the new manifest may count, from the answer on it does.
        file.sync_all(COPY).map_err(|error| Refused::Unknown(RunsError::disk("sync", path, &error)))?;
        self.newest = other;
        self.number += 1;
        Ok(())
    }

    /// What of the copies is not as it was written. The older one may be torn by a write that failed: the newest must be whole.
    pub(crate) fn verify(&self) -> Option<RunsError> {
        let path = self.paths.get(self.newest)?;
        let file = self.files.get(self.newest)?;
        match read_file(&**file, path) {
            Ok((number, _)) if number == self.number => None,
            Ok((number, _)) => {
                let what = format!("its number is {number}; number {} was written", self.number);
                Some(RunsError::damaged(path, 0, what))
            }
            Err(error) => Some(error),
        }
    }
}

/// Whether a folder with these names has a map: then its own name was made durable before.
pub(crate) fn is_any(names: &[String]) -> bool {
    names.iter().any(|name| NAMES.contains(&name.as_str()))
}

/// Which copies are there.
fn there(folder: &Path, names: &[String]) -> Result<[bool; 2], RunsError> {
    let there = NAMES.map(|name| names.iter().any(|found| found == name));
    if there == [false; 2] && names.iter().any(|name| RunId::of(name).is_some()) {
        let path = folder.join(NAMES[0]);
        return Err(RunsError::damaged(&path, 0, "there are runs, and no manifest"));
    }
    Ok(there)
}

/// What the manifests of a folder with these names say, with nothing changed; and why one of them cannot be believed.
pub(crate) fn look(
    disk: &dyn Disk,
    folder: &Path,
    names: &[String],
) -> Result<(Contents, Option<RunsError>), RunsError> {
    let there = there(folder, names)?;
    if there == [false; 2] {
        return Ok((Contents::default(), None));
    }
    let (_, _, found) = choose(read_each(disk, folder, there))?;
    Ok((found.newest, found.torn))
}

type Read = Result<(u64, Contents), RunsError>;

/// Reads the copies that are there. A crash between the two names of a new map leaves one of them; a copy that is listed and
/// cannot be read is another matter, see [`choose`].
fn read_each(disk: &dyn Disk, folder: &Path, [a, b]: [bool; 2]) -> [Read; 2] {
    let each = |name: &str, is_there: bool| {
        let path = folder.join(name);
        if is_there { read(disk, &path) } else { Err(RunsError::damaged(&path, 0, "the file is not there")) }
    };
    let [name_a, name_b] = NAMES;
    [each(name_a, a), each(name_b, b)]
}

fn read(disk: &dyn Disk, path: &Path) -> Read {
    let open = Open { access: Access::Read, direct: false };
    let file = disk.open(path, open).map_err(|error| RunsError::disk("open", path, &error))?;
    read_file(&*file, path)
}

fn read_file(file: &dyn File, path: &Path) -> Read {
    let wrap = |doing, error: &std::io::Error| RunsError::disk(doing, path, error);
    let bytes = file.size().map_err(|error| wrap("read", &error))?;
    if bytes > MANIFEST_BYTES_MAX {
        return Err(RunsError::damaged(path, 0, format!("{bytes} bytes; the limit is {MANIFEST_BYTES_MAX}")));
    }
    let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(0)];
    read_exact_at(file, 0, &mut buffer).map_err(|error| wrap("read", &error))?;
    parse(&buffer).map_err(|what| RunsError::damaged(path, 0, what))
}

/// The newest that can be believed.
///
/// # Errors
/// `Damaged` if neither can be. What the disk says if it did not let one be read: that copy may be the newest, whole, and name
/// runs that the other does not, so nobody may go back to the other one, and nobody may begin anew.
fn choose([a, b]: [Read; 2]) -> Result<(usize, u64, Found), RunsError> {
    match (a, b) {
        (Ok((a_number, a)), Ok((b_number, b))) => Ok(if a_number > b_number {
            (0, a_number, Found { newest: a, older: Some(b), torn: None })
        } else {
            (1, b_number, Found { newest: b, older: Some(a), torn: None })
        }),
        (Ok((number, newest)), Err(torn @ RunsError::Damaged { .. })) => {
            Ok((0, number, Found { newest, older: None, torn: Some(torn) }))
        }
        (Err(torn @ RunsError::Damaged { .. }), Ok((number, newest))) => {
            Ok((1, number, Found { newest, older: None, torn: Some(torn) }))
        }
        (Err(RunsError::Damaged { .. }), Err(error)) | (Err(error), _) | (Ok(_), Err(error)) => Err(error),
    }
}

#[cfg(test)]
#[path = "manifest_test.rs"]
mod tests;
