//! A limit of memory for the process of a cell, page cache included: a control group of its own, of version 1 or 2.
//!
//! Walk: [`Cage::make`] finds where groups are made, makes one and sets the limit · [`Cage::take`] puts a process in before it has touched anything ·
//! [`Cage::peak_bytes`] and [`Cage::kills`] once it has ended · dropped, the group is removed.
//! Who may not make one gets a sentence for the report; the race then runs without.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use assent_world::{Clock as _, RealClock};

/// How often a group is tried to be removed, and the pause in between: its last process may not have been reaped by the kernel yet.
const REMOVALS: u32 = 20;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// Numbers the groups of this process.
static CAGES: AtomicU32 = AtomicU32::new(0);

/// Where the kernel's control groups with memory are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    root: PathBuf,
    version: u8,
    /// This process's own group in it.
    own: PathBuf,
}

impl Hierarchy {
    /// Source: `cgroups(7)`; `proc(5)`, `/proc/pid/mountinfo`.
    fn find(mounts: &str, groups: &str) -> Option<Self> {
        let mut second = None;
        for line in mounts.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let root = PathBuf::from(left.split(' ').nth(4)?);
            let mut right = right.split(' ');
            let (kind, options) = (right.next()?, right.nth(1).unwrap_or_default());
            let own = |controller: &str| {
                let mut lines = groups.lines().map(|line| line.splitn(3, ':').skip(1));
                let group = lines.find_map(|mut parts| {
                    parts.next().is_some_and(|list| list.split(',').any(|one| one == controller)).then(|| parts.next())
                });
                root.join(group.flatten().unwrap_or("/").trim_start_matches('/'))
            };
            if kind == "cgroup" && options.split(',').any(|option| option == "memory") {
                return Some(Self { own: own("memory"), root, version: 1 });
            }
            if kind == "cgroup2" {
                second = Some(Self { own: own(""), root, version: 2 });
            }
        }
        second
    }

    const fn limit(&self) -> &'static str {
        if self.version == 1 { "memory.limit_in_bytes" } else { "memory.max" }
    }

    fn peak(&self) -> &'static str {
        if self.version == 1 { "memory.max_usage_in_bytes" } else { "memory.peak" }
    }
}

/// One group with its limit.
#[derive(Debug)]
pub struct Cage {
    hierarchy: Hierarchy,
    folder: PathBuf,
}

impl Cage {
    /// A group whose processes may use so many bytes together, page cache included.
    ///
    /// # Errors
    /// Why there is none, as half a sentence.
    pub fn make(bytes: u64) -> Result<Self, String> {
        let (mounts, groups) = (read(Path::new("/proc/self/mountinfo")), read(Path::new("/proc/self/cgroup")));
        let hierarchy = Hierarchy::find(&mounts, &groups).ok_or("no control groups with memory are mounted")?;
        Self::make_in(hierarchy, bytes)
    }

    fn make_in(hierarchy: Hierarchy, bytes: u64) -> Result<Self, String> {
        if hierarchy.version == 2 {
            let given = read(&hierarchy.root.join("cgroup.subtree_control"));
            if !given.split_whitespace().any(|controller| controller == "memory") {
                return Err("the control groups give no memory controller to groups below".to_owned());
            }
        }
        // Nobody leaves a smaller limit that somebody else has set.
        let own = read(&hierarchy.own.join(hierarchy.limit())).trim().parse::<u64>().unwrap_or(u64::MAX);
        if own < bytes {
            return Err(format!("this process has a limit of {own} bytes itself, {bytes} are asked for"));
        }
        let number = CAGES.fetch_add(1, Ordering::Relaxed);
        let folder = hierarchy.root.join(format!("assent-bench-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| format!("a control group cannot be made: {error}"))?;
        let cage = Self { hierarchy, folder };
        cage.set(cage.hierarchy.limit(), &bytes.to_string())?;
        // Memory that is swapped out is no memory that is saved; where there is no such file there is no swap.
        let (swap, most) = if cage.hierarchy.version == 1 {
            ("memory.memsw.limit_in_bytes", bytes.to_string())
        } else {
            ("memory.swap.max", "0".to_owned())
        };
        _ = cage.set(swap, &most);
        Ok(cage)
    }

    /// Puts a process in.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take(&self, process: u32) -> Result<(), String> {
        self.set("cgroup.procs", &process.to_string())
    }

    /// The most that its processes used at once.
    #[must_use]
    pub fn peak_bytes(&self) -> Option<u64> {
        read(&self.folder.join(self.hierarchy.peak())).trim().parse().ok()
    }

    /// How many processes the kernel killed for want of memory.
    #[must_use]
    pub fn kills(&self) -> u64 {
        let file = if self.hierarchy.version == 1 { "memory.oom_control" } else { "memory.events" };
        let text = read(&self.folder.join(file));
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
    }

    #[expect(clippy::disallowed_methods, reason = "a control group is no disk's business")]
    fn set(&self, name: &str, value: &str) -> Result<(), String> {
        std::fs::write(self.folder.join(name), value).map_err(|error| format!("{name} of a control group: {error}"))
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            RealClock.sleep(PAUSE);
        }
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                         33 24 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                         39 24 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const SECOND: &str = "25 30 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_hierarchy_with_memory_is_found_and_this_process_in_it() {
        let found = Hierarchy::find(FIRST, "4:memory:/a/b\n0::/\n").unwrap();
        assert_eq!((found.version, found.root.to_str().unwrap()), (1, "/sys/fs/cgroup/memory"));
        assert_eq!(found.own.to_str().unwrap(), "/sys/fs/cgroup/memory/a/b");
        let found = Hierarchy::find(SECOND, "0::/user.slice\n").unwrap();
        assert_eq!((found.version, found.own.to_str().unwrap()), (2, "/sys/fs/cgroup/user.slice"));
        assert_eq!(Hierarchy::find("22 1 0:5 / /proc rw - proc proc rw\n", ""), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test plays the kernel")]
    fn a_group_gets_its_limit_and_its_process_and_nobody_leaves_a_smaller_limit() {
        // A folder that plays the kernel: what is written can be read again.
        let root = tempfile::tempdir().unwrap();
        let hierarchy = |version| Hierarchy { root: root.path().to_owned(), version, own: root.path().to_owned() };
        assert!(Cage::make_in(hierarchy(2), 5).unwrap_err().contains("no memory controller"));
        std::fs::write(root.path().join("cgroup.subtree_control"), "cpu memory\n").unwrap();
        for (version, limit) in [(1, "memory.limit_in_bytes"), (2, "memory.max")] {
            let cage = Cage::make_in(hierarchy(version), 1_000).unwrap();
            cage.take(77).unwrap();
            assert_eq!(read(&cage.folder.join(limit)), "1000");
            assert_eq!(read(&cage.folder.join("cgroup.procs")), "77");
            let (events, peak) = ("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", cage.hierarchy.peak());
            std::fs::write(cage.folder.join(if version == 1 { "memory.oom_control" } else { "memory.events" }), events)
                .unwrap();
            std::fs::write(cage.folder.join(peak), "900\n").unwrap();
            assert_eq!((cage.kills(), cage.peak_bytes()), (2, Some(900)));
            std::fs::remove_dir_all(&cage.folder).unwrap();
        }
        std::fs::write(root.path().join("memory.limit_in_bytes"), "999\n").unwrap();
        assert!(Cage::make_in(hierarchy(1), 1_000).unwrap_err().contains("limit of 999 bytes"));
    }
}
