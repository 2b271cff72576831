//! Room of removed files, given back to the real disk in steps.
//!
//! A file system that tells its disk of freed blocks at once (mount option `discard`) makes the disk stand still for as long as
//! it takes: 20 ms for 64 MiB on the machine where it was found, with every read behind it. So a large file loses its name
//! first and then its bytes, a few at a time, by a thread that lives as long as there is something to do.
//!
//! Walk: [`give_back`] hands the file over · [`shrink`], with a rest after each step, shorter the more files wait.
//!
//! Deliberately absent: a promise when the room is there. Who needs it at once unlinks.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes of one step.
const STEP_BYTES: u64 = 2 << 20;
/// A step takes a disk that discards about 0.7 ms: with this rest it does that for a seventh of the time.
const REST: Duration = Duration::from_millis(4);
/// More files than these wait: the rest is a quarter.
const FEW_FILES: usize = 4;
/// More files than these are not kept open: the next go at once.
const FILES_MAX: usize = 32;

#[derive(Debug)]
struct Waiting {
    files: VecDeque<fs::File>,
    at_work: bool,
}

static WAITING: Mutex<Waiting> = Mutex::new(Waiting { files: VecDeque::new(), at_work: false });

/// Gives back the room of a file without a name.
pub(crate) fn give_back(file: fs::File) {
    // With another name somewhere, as a copy by links has it, its bytes are not ours to cut.
    if !file.metadata().is_ok_and(|facts| facts.nlink() == 0 && facts.len() > STEP_BYTES) {
        return;
    }
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    if waiting.files.len() >= FILES_MAX {
        return;
    }
    waiting.files.push_back(file);
    if !waiting.at_work {
        // Without a thread the files are shut, and their room is there at once.
        waiting.at_work = thread::Builder::new().name("room".to_owned()).spawn(work).is_ok();
        if !waiting.at_work {
            waiting.files.clear();
        }
    }
}

fn work() {
    loop {
        let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = waiting.files.pop_front() else {
            waiting.at_work = false;
            return;
        };
        drop(waiting);
        shrink(&file);
    }
}

#[expect(clippy::disallowed_methods, reason = "part of the door: nobody waits for it")]
fn shrink(file: &fs::File) {
    let mut left = file.metadata().map_or(0, |facts| facts.len());
    while left > STEP_BYTES {
        left -= STEP_BYTES;
        if file.set_len(left).is_err() {
            return;
        }
        let waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner).files.len();
        thread::sleep(if waiting > FEW_FILES { REST / 4 } else { REST });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Disk, Open, RealDisk, remove_in_steps};

    fn lengths(bytes: u64) -> (u64, u64) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = RealDisk.open(&path, Open { access: Access::Create, direct: false }).unwrap();
        file.set_size(bytes).unwrap();
        remove_in_steps(&RealDisk, &path).unwrap();
        assert!(!path.exists());
        let at_once = file.size().unwrap();
        // Nobody is left at work once the last piece is gone.
        while WAITING.lock().unwrap().at_work {
            thread::yield_now();
        }
        (at_once, file.size().unwrap())
    }

    #[test]
    fn a_large_file_shrinks_step_by_step_and_a_small_one_goes_as_it_is() {
        assert_eq!(lengths(STEP_BYTES), (STEP_BYTES, STEP_BYTES));
        let (at_once, at_last) = lengths(STEP_BYTES * 20 + 1);
        assert!(at_once > STEP_BYTES, "{at_once} bytes left at once: not in steps");
        assert_eq!(at_last, 1, "the last piece goes with the file");
    }

    #[test]
    fn a_file_that_has_another_name_keeps_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("file"), folder.path().join("copy"));
        let file = RealDisk.open(&path, Open { access: Access::Create, direct: false }).unwrap();
        file.set_size(STEP_BYTES * 5).unwrap();
        fs::hard_link(&path, &copy).unwrap();
        remove_in_steps(&RealDisk, &path).unwrap();
        while WAITING.lock().unwrap().at_work {
            thread::yield_now();
        }
        assert_eq!(fs::metadata(&copy).unwrap().len(), STEP_BYTES * 5);
    }

    #[test]
    fn a_missing_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let missing = remove_in_steps(&RealDisk, &folder.path().join("none"));
        assert_eq!(missing.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
}
