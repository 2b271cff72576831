//! What stores begin with, loaded once and kept: each cell gets a copy, also in the next race. To load half a million keys of 8 KB takes
//! some stores minutes, and a race of many rounds would do little else.
//!
//! ```text
//!   FOLDER/lock                      held by the race that uses it
//!   FOLDER/STORE-MARK/loaded.json    how it was loaded, laid last: a folder without it is loaded anew
//!   FOLDER/STORE-MARK/store-0 ..     the store's own files
//! ```
//! A copy begins with nothing of it in memory, whoever made it: its pages, and those of what is kept, are let go once they are on the disk.
//! Else a store would read pages that its own limit of memory does not count. And the disk rests behind it,
//! a second for 200 MiB: what stands beneath a disk may be busy with four GiB for some seconds more, and the first to read would wait for it.
//!
//! Walk: [`lock`] before the first cell · [`Loads::copy`] loads if it must, and copies · [`rest`] says for how long the race waits then.
//! Deliberately absent: links instead of copies. Some stores write into files that they wrote before.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assent_kind::Kind;
use assent_world::{Disk as _, Lock, RealDisk};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::meter::space;
use super::race::{clean, remove};
use super::scenario::Case;
use super::store::Named;
use crate::BenchError;
use crate::report::sink::replace;
use crate::report::{Figures, Labels};

const LOADED: &str = "loaded.json";
/// The disk rests a second for so many bytes of a copy.
const REST_BYTES: u64 = 200 << 20;

/// How it was loaded, and what that took.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Loaded {
    how: Labels,
    figures: Figures,
}

/// All that is kept.
#[derive(Debug)]
pub(super) struct Loads<'p> {
    folder: &'p Path,
    memory_bytes: Option<u64>,
}

/// Keeps other races away until the answer is dropped: they would clean what this one copies.
///
/// # Errors
/// [`Kind::Busy`] where another race has it, and what the disk says.
pub(super) fn lock(folder: &Path) -> Result<Box<dyn Lock>, BenchError> {
    let locked = fs::create_dir_all(folder).and_then(|()| RealDisk.lock(&folder.join("lock")));
    locked.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => BenchError::new(
            Kind::Busy,
            format!("another race loads into {}: wait for it, or name another folder", folder.display()),
        ),
        _ => BenchError::disk(&format!("locking {}", folder.display()), &error),
    })
}

impl<'p> Loads<'p> {
    /// Of stores that are loaded under this limit of memory.
    pub(super) const fn new(folder: &'p Path, memory_bytes: Option<u64>) -> Self {
        Self { folder, memory_bytes }
    }

    /// Lays a copy of a loaded store into a folder that is empty; `load` makes it where it is not there. What the load took, or what it
    /// says: that is the store's affair.
    ///
    /// # Errors
    /// What the disk says while it is kept and copied: the race's affair.
    pub(super) fn copy(
        &self,
        case: &Case,
        store: &Named,
        to: &Path,
        load: impl FnOnce(&Path) -> Result<Figures, BenchError>,
    ) -> Result<Result<Figures, BenchError>, BenchError> {
        let how = how(case, store, self.memory_bytes);
        let mark = xxh3_64(format!("{how:?}").as_bytes());
        let kept = self.folder.join(format!("{}-{mark:016x}", store.name));
        let mark = kept.join(LOADED);
        let known = read(&mark).filter(|loaded| loaded.how == how);
        let failed = |error: io::Error| BenchError::disk(&format!("keeping and copying {}", kept.display()), &error);
        let loaded = match known {
            Some(loaded) => loaded,
            None => {
                clean(&kept)?;
                let figures = match load(&kept) {
                    Ok(figures) => figures,
                    Err(error) => {
                        remove(&kept)?;
                        return Ok(Err(error));
                    }
                };
                // Before the mark: a power cut must not leave one over files that are torn.
                synced(&kept).map_err(failed)?;
                let loaded = Loaded { how, figures };
                let text = serde_json::to_string(&loaded).unwrap_or_default();
                replace(&mark, text.as_bytes())?;
                loaded
            }
        };
        copy(&kept, to).map_err(failed)?;
        Ok(Ok(loaded.figures))
    }
}

/// How long the disk rests behind a copy before anybody reads it.
pub(super) fn rest(copy: &Path) -> Duration {
    Duration::from_millis(space(copy) * 1_000 / REST_BYTES)
}

/// All that a loaded store depends on: not how long clients run, nor what they do, nor whether they wait for the disk, nor what memory
/// they have for values: none is read before the clock starts.
fn how(case: &Case, store: &Named, memory_bytes: Option<u64>) -> Labels {
    let copies = if case.scenario.has_copies() { "each store has all keys" } else { "each key in one store" };
    let mut how = case.settings();
    let names = ["stores", "different keys", "value bytes", "cache bytes", "segment bytes"];
    how.retain(|name, _| names.contains(&name.as_str()));
    let more = [
        ("store", store.about.clone()),
        ("seed", case.seed.to_string()),
        ("copies", copies.to_owned()),
        ("memory bytes", memory_bytes.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string())),
        ("disk turns each second", case.disk_iops.map_or_else(String::new, |turns| turns.to_string())),
    ];
    how.extend(more.map(|(name, value)| (name.to_owned(), value)));
    how
}

#[expect(clippy::disallowed_methods, reason = "a mark beside files that the race copies itself")]
fn read(mark: &Path) -> Option<Loaded> {
    serde_json::from_slice(&fs::read(mark).ok()?).ok()
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, beside) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&beside)?;
            copy(&path, &beside)?;
        } else if entry.file_name() != LOADED {
            fs::copy(&path, &beside)?;
            [path, beside].into_iter().try_for_each(let_go)?;
        }
    }
    Ok(())
}

/// All of it is on the disk, names and files.
#[expect(clippy::disallowed_methods, reason = "files that a store has written and the race keeps")]
fn synced(place: &Path) -> io::Result<()> {
    if place.is_dir() {
        fs::read_dir(place)?.try_for_each(|entry| synced(&entry?.path()))?;
    }
    fs::File::open(place)?.sync_all()
}

/// No page of it stays in memory: who reads it has it charged to himself.
#[expect(clippy::disallowed_methods, reason = "the race's own copy")]
fn let_go(path: PathBuf) -> io::Result<()> {
    let file = fs::File::open(path)?;
    file.sync_data()?;
    Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::kv::scenario::{Given, Scenario};

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test plays a store")]
    fn a_store_is_loaded_once_and_again_where_that_would_be_another_load() {
        let folder = tempfile::tempdir().unwrap();
        let (loads, to) = (folder.path().join("loads"), folder.path().join("cell"));
        let named = |about: &str| Named { name: "s".to_owned(), about: about.to_owned() };
        let case = |given: Given| given.cases().remove(0);
        let times = Cell::new(0);
        let memory = Cell::new(None);
        let copied = |case: &Case, store: &Named, fails: bool| {
            clean(&to).unwrap();
            let figures = Loads::new(&loads, memory.get()).copy(case, store, &to, |place| {
                times.set(times.get() + 1);
                fs::create_dir_all(place.join("store-0/inner")).unwrap();
                fs::write(place.join("store-0/inner/file"), times.get().to_string()).unwrap();
                if fails {
                    return Err(BenchError::new(Kind::Full, "no room"));
                }
                Ok([("preload_per_s".to_owned(), f64::from(times.get()))].into())
            });
            let text = fs::read_to_string(to.join("store-0/inner/file")).unwrap_or_default();
            figures.unwrap().map(|figures| (figures["preload_per_s"], text)).map_err(|error| error.message)
        };
        let first = || Ok((1.0, "1".to_owned()));
        assert_eq!(copied(&case(Given::default()), &named("1.0"), false), first());
        // A cell writes into its copy, and the next one gets what was loaded.
        fs::write(to.join("store-0/inner/file"), "changed").unwrap();
        let same = Given { clients: vec![3], duration_ms: 5, ..Given::default() };
        assert_eq!(copied(&case(same), &named("1.0"), false), first());
        let other = Given { scenarios: vec![Scenario::KvNosync], ..Given::default() };
        assert_eq!(copied(&case(other), &named("1.0"), false), first(), "the load of the other one");
        assert!(!to.join(LOADED).exists(), "the mark is none of the store's files");
        assert_eq!(copied(&case(Given::default()), &named("1.1"), true), Err("no room".to_owned()));
        for (number, given) in (3..).zip([
            Given::default(),
            Given { keys: 9, ..Given::default() },
            Given { seed: 9, ..Given::default() },
            Given { cache_bytes: 7, ..Given::default() },
            Given { scenarios: vec![Scenario::KvHead], ..Given::default() },
        ]) {
            let loaded = copied(&case(given), &named("1.1"), false);
            assert_eq!(loaded, Ok((f64::from(number), number.to_string())), "another load");
        }
        memory.set(Some(1 << 30));
        assert_eq!(copied(&case(Given::default()), &named("1.1"), false), Ok((8.0, "8".to_owned())), "another limit");
        // What the race cannot do is no fault of the store.
        let nowhere = to.join("store-0/inner/file");
        let failed =
            Loads::new(&loads, memory.get()).copy(&case(Given::default()), &named("1.1"), &nowhere, |_| unreachable!());
        assert!(failed.unwrap_err().message.starts_with("keeping and copying"));
    }

    #[test]
    fn one_race_at_a_time_uses_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let loads = folder.path().join("loads");
        let held = lock(&loads).unwrap();
        let refused = lock(&loads).unwrap_err();
        assert!(refused.kind == Kind::Busy && refused.message.starts_with("another race loads into"), "{refused}");
        drop(held);
        lock(&loads).unwrap();
    }
}
