//! How many files may be kept open, and the table of them, as long at once as it may have to be.
//!
//! Linux doubles a process's table whenever a descriptor is beyond its end, at 64, 256, 512 and so on, and in a process of several threads whoever
//! asks for that one waits until each processor has been through its scheduler (`synchronize_rcu`): 5 to 13 ms, measured, of a read
//! whose file was not open yet. Entries take 8 bytes each.
//!
//! Walk: [`is_short`] where there was none · [`files_max`] of one kind · [`expect_descriptors`] of all, where a store is opened or a server starts.

use std::io;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

use crate::disk::FILES_MAX_LEAST;

/// Of what a process may open, one part in so many; more files than that gain nothing.
const FILES_PART: u64 = 32;
const FILES_MAX: u32 = 4096;
/// A longer table is not made ahead: half a MiB.
const TABLE_MAX: u64 = 1 << 16;

/// No descriptor, or no memory, of the process or of the machine: EMFILE, ENFILE, ENOMEM.
const SHORT: [Errno; 3] = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];

/// Whether the process or the machine had no descriptor or no memory left: that says nothing of the file, and passes.
#[must_use]
pub fn is_short(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|number| SHORT.iter().any(|short| short.raw_os_error() == number))
}

/// [`crate::Disk::files_max`] of a process that may open so many.
#[must_use]
pub fn files_max(descriptors: u64) -> u32 {
    u32::try_from(descriptors / FILES_PART).unwrap_or(u32::MAX).clamp(FILES_MAX_LEAST, FILES_MAX)
}

/// Says that so many descriptors may be open at a time: the process's table is made long enough for them, as far as its limit goes. It never gets
/// shorter. Nothing else changes, and nothing where it cannot be.
pub fn expect_descriptors(many: u64) {
    let most = many.min(limit()).min(TABLE_MAX);
    let Some(last) = most.checked_sub(1).and_then(|last| i32::try_from(last).ok()) else { return };
    // For a moment there is one at its end.
    _ = eventfd(0, EventfdFlags::CLOEXEC).and_then(|any| fcntl_dupfd_cloexec(any, last));
}

/// How many this process may have open.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk as _, RealDisk};

    #[test]
    fn who_may_open_many_keeps_more_open() {
        let cases = [(0, 64), (1_024, 64), (20_000, 625), (524_288, 4_096), (u64::MAX, 4_096)];
        assert_eq!(cases.map(|(descriptors, _)| (descriptors, files_max(descriptors))), cases);
        assert_eq!(RealDisk.files_max(), files_max(limit()));
    }

    #[test]
    fn the_table_is_as_long_as_expected_and_no_descriptor_is_left_open() {
        let long = limit().min(3_000);
        for many in [0, 1, long, u64::MAX, 1] {
            expect_descriptors(many);
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let entries = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap().trim().parse::<u64>();
        assert!(entries.unwrap() >= limit().min(TABLE_MAX), "{status}");
        let open = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok());
        let highest = open.filter_map(|name| name.parse::<u64>().ok()).max().unwrap();
        assert!(highest < long, "{highest} is open");
    }
}
