//! What stores begin with, loaded once and kept: each cell gets a copy, also in the next race. To load half a million keys of 8 KB takes
//! some stores minutes, and a race of many rounds would do little else.
//!
//! ```text
//!   FOLDER/STORE-MARK/loaded.json    how it was loaded, laid last: a folder without it is loaded anew
//!   FOLDER/STORE-MARK/store-0 ..     the store's own files
//! ```
//! A copy begins with nothing of it in memory, whoever made it: its pages, and those of what is kept, are let go once they are on the disk.
//! Else a store would read pages that its own limit of memory does not count.
//!
//! Walk: [`Loads::copy`] loads if it must, and copies.
//! Deliberately absent: links instead of copies. Some stores write into files that they wrote before.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::race::{clean, remove};
use super::scenario::Case;
use super::store::Named;
use crate::BenchError;
use crate::report::sink::replace;
use crate::report::{Figures, Labels};

const LOADED: &str = "loaded.json";

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
}

impl<'p> Loads<'p> {
    pub(super) const fn new(folder: &'p Path) -> Self {
        Self { folder }
    }

    /// Lays a copy of a loaded store into a folder that is empty; `load` makes it where it is not there. What the load took.
    ///
    /// # Errors
    /// What the disk says, and as `load` does.
    pub(super) fn copy(
        &self,
        case: &Case,
        store: &Named,
        to: &Path,
        load: impl FnOnce(&Path) -> Result<Figures, BenchError>,
    ) -> Result<Figures, BenchError> {
        let how = how(case, store);
        let mark = xxh3_64(format!("{how:?}").as_bytes());
        let kept = self.folder.join(format!("{}-{mark:016x}", store.name));
        let mark = kept.join(LOADED);
        let known = read(&mark).filter(|loaded| loaded.how == how);
        let loaded = match known {
            Some(loaded) => loaded,
            None => {
                clean(&kept)?;
                let figures = load(&kept).inspect_err(|_| _ = remove(&kept))?;
                let loaded = Loaded { how, figures };
                let text = serde_json::to_string(&loaded).unwrap_or_default();
                replace(&mark, text.as_bytes())?;
                loaded
            }
        };
        let failed = |error: io::Error| BenchError::disk(&format!("copying {}", kept.display()), &error);
        copy(&kept, to).map_err(failed)?;
        Ok(loaded.figures)
    }
}

/// All that a loaded store depends on: not how long clients run, nor what they do.
fn how(case: &Case, store: &Named) -> Labels {
    let copies = if case.scenario.has_copies() { "each store has all keys" } else { "each key in one store" };
    let mut how = case.settings();
    how.retain(|name, _| ["stores", "different keys", "value bytes", "segment bytes"].contains(&name.as_str()));
    let more = [
        ("store", store.about.clone()),
        ("sync", case.sync.to_string()),
        ("seed", case.seed.to_string()),
        ("copies", copies.to_owned()),
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
        let copied = |case: &Case, store: &Named, fails: bool| {
            clean(&to).unwrap();
            let figures = Loads::new(&loads).copy(case, store, &to, |place| {
                times.set(times.get() + 1);
                fs::create_dir_all(place.join("store-0/inner")).unwrap();
                fs::write(place.join("store-0/inner/file"), times.get().to_string()).unwrap();
                if fails {
                    return Err(BenchError::new(assent_kind::Kind::Full, "no room"));
                }
                Ok([("preload_per_s".to_owned(), f64::from(times.get()))].into())
            });
            let text = fs::read_to_string(to.join("store-0/inner/file")).unwrap_or_default();
            figures.map(|figures| (figures["preload_per_s"], text)).map_err(|error| error.message)
        };
        let first = || Ok((1.0, "1".to_owned()));
        assert_eq!(copied(&case(Given::default()), &named("1.0"), false), first());
        // A cell writes into its copy, and the next one gets what was loaded.
        fs::write(to.join("store-0/inner/file"), "changed").unwrap();
        let same = Given { clients: vec![3], duration_ms: 5, cache_bytes: 7, ..Given::default() };
        assert_eq!(copied(&case(same), &named("1.0"), false), first());
        assert!(!to.join(LOADED).exists(), "the mark is none of the store's files");
        assert_eq!(copied(&case(Given::default()), &named("1.1"), true), Err("no room".to_owned()));
        for (number, given) in (3..).zip([
            Given::default(),
            Given { keys: 9, ..Given::default() },
            Given { seed: 9, ..Given::default() },
            Given { scenarios: vec![Scenario::KvHead], ..Given::default() },
        ]) {
            let loaded = copied(&case(given), &named("1.1"), false);
            assert_eq!(loaded, Ok((f64::from(number), number.to_string())), "another load");
        }
    }
}
