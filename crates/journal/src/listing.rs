//! The segments of a folder, by their names: the live log, and what was trimmed and kept.
//!
//! Walk: [`list`] finds the live ones, and refuses a hole · [`list_archived`] finds the archived ones, and leaves holes to
//! whoever reads over them · [`gap`] says what is missing between two.

use std::path::Path;
use std::sync::Arc;

use assent_kind::Kind;
use assent_world::{Access, Disk, Open, read_exact_at};

use crate::JournalError;
use crate::error::{damaged, refused};
use crate::layout::{BLOCK_BYTES, SegmentHead, length};
use crate::segment::Segment;

const LIVE: &str = ".log";
const ARCHIVED: &str = ".archived";
/// Kept until its owner releases it: no opening removes it by itself.
const KEPT: &str = ".kept";

/// The file name of a segment.
pub(crate) fn name(first: u64) -> String {
    format!("{first:016x}.log")
}

/// The file name of a segment that was trimmed and kept, perhaps until its owner releases it; with its end, if the next one begins
/// before the file ends.
pub(crate) fn archived_name(first: u64, end: Option<u64>, owned: bool) -> String {
    let ending = if owned { KEPT } else { ARCHIVED };
    end.map_or_else(|| format!("{first:016x}{ending}"), |end| format!("{first:016x}-{end:016x}{ending}"))
}

/// Whether a file of the archive is its owner's to release, by its name.
pub(crate) fn is_owned(path: &Path) -> bool {
    path.extension().is_some_and(|ending| KEPT.strip_prefix('.').is_some_and(|kept| ending == kept))
}

/// Which segment a file name says, if it is one's with this ending.
fn named(name: &str, ending: &str) -> Option<u64> {
    place(name.strip_suffix(ending)?)
}

/// Which segment of the archive a file name says, and where it ends at the latest.
fn archived(name: &str) -> Option<(u64, u64)> {
    let name = name.strip_suffix(ARCHIVED).or_else(|| name.strip_suffix(KEPT))?;
    match name.split_once('-') {
        Some((first, end)) => Some((place(first)?, place(end)?)),
        None => Some((place(name)?, u64::MAX)),
    }
}

fn place(digits: &str) -> Option<u64> {
    let lower = digits.len() == 16 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    lower.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// The live segments of a folder, in the order of the log.
///
/// # Errors
/// `Corrupt` if a header is damaged or a segment in the middle is missing.
pub(crate) fn list(disk: &dyn Disk, folder: &Path, names: &[String]) -> Result<Vec<Arc<Segment>>, JournalError> {
    let mut segments: Vec<Arc<Segment>> = Vec::new();
    for name in names {
        let Some(first) = named(name, LIVE) else { continue };
        let path = folder.join(name);
        let head = head(disk, &path, first)?;
        let segment = Arc::new(Segment::new(head, path, None));
        if let Some(error) = segments.last().and_then(|before| gap(before, &segment)) {
            return Err(error);
        }
        // Descriptors are few: opened again when somebody reads.
        segments.push(segment);
    }
    Ok(segments)
}

/// The archived segments of a folder, in the order of the log, all before its first live place. One that is missing or
/// damaged must not keep the log from opening: it is left out, and whoever reads over its place is told. One from the live
/// log's places on is somebody's copy, and none of ours. `owned`, or so named: somebody reads and releases them by what is listed, so that
/// one which only cannot be read now must not look like one that is gone.
///
/// # Errors
/// As the disk says of the folder; of those that are owned, of any of them.
pub(crate) fn list_archived(
    disk: &dyn Disk,
    folder: &Path,
    start: u64,
    owned: bool,
) -> Result<Vec<Arc<Segment>>, JournalError> {
    let names = disk.list(folder).map_err(|error| refused("listing", folder, &error))?;
    let mut segments: Vec<Arc<Segment>> = Vec::new();
    for name in &names {
        let Some((first, end)) = archived(name).filter(|(first, end)| *first < start && first < end) else { continue };
        let path = folder.join(name);
        let head = match head(disk, &path, first) {
            Ok(head) => head,
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::NotFound) => continue,
            Err(error) if owned || is_owned(&path) => return Err(error),
            Err(_) => continue,
        };
        // Of two with one place, one is a copy.
        if segments.last().is_none_or(|last| last.first() < first) {
            segments.push(Arc::new(Segment::of_archive(head, path, end)));
        }
    }
    Ok(segments)
}

fn head(disk: &dyn Disk, path: &Path, first: u64) -> Result<SegmentHead, JournalError> {
    let file = disk
        .open(path, Open { access: Access::Read, direct: false })
        .map_err(|error| refused("opening", path, &error))?;
    let mut block = vec![0; length(BLOCK_BYTES)];
    let read = read_exact_at(&*file, 0, &mut block).map_err(|error| refused("reading", path, &error))?;
    let head = SegmentHead::parse(block.get(..read).unwrap_or_default()).map_err(|what| damaged(path, 0, what))?;
    if head.first != first {
        return Err(damaged(path, 0, &format!("its header says that it is {}", name(head.first))));
    }
    let size = file.size().map_err(|error| refused("reading", path, &error))?;
    if size != head.size {
        return Err(damaged(path, size.min(head.size), &format!("{size} bytes, its header says {}", head.size)));
    }
    Ok(head)
}

/// What is missing between two segments, if something is.
pub(crate) fn gap(before: &Segment, next: &Segment) -> Option<JournalError> {
    let (from, to) = (before.end(), next.first());
    let what = || format!("the log from {from} to {to} is missing: no whole segment {} follows it", name(from));
    (from < to).then(|| damaged(before.path(), before.head.size, &what()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sixteen_lower_hexadecimal_digits() {
        assert_eq!(named(&name(0xabc), LIVE), Some(0xabc));
        for owned in [false, true] {
            assert_eq!(archived(&archived_name(0xabc, None, owned)), Some((0xabc, u64::MAX)));
            assert_eq!(archived(&archived_name(0xabc, Some(0xdef), owned)), Some((0xabc, 0xdef)));
            assert_eq!(is_owned(&Path::new("log").join(archived_name(0xabc, None, owned))), owned);
        }
        assert_eq!(archived("0000000000000abc-def.archived"), None);
        assert_eq!(named(&archived_name(0xabc, None, false), LIVE), None);
        for wrong in ["0000000000000ABC.log", "abc.log", "0000000000000abc.tmp", "+00000000000000a.log"] {
            assert_eq!(named(wrong, LIVE), None, "{wrong}");
        }
    }
}
