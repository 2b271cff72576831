//! The facts of the machine that a figure depends on. No names of hosts, people or folders.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// A program of ours that is started for a race or a play takes nothing of what is set for the service on this machine: neither its folders nor how it
/// keeps them. Only how much it says.
pub fn without_settings(command: &mut Command) {
    let settings = std::env::vars_os().map(|(name, _)| name);
    let is_ours = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("ASSENT_") && name != "ASSENT_LOG";
    settings.filter(is_ours).for_each(|name| _ = command.env_remove(name));
}

/// Where a race ran. What is not known is empty or null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// The processor's own name.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: u32,
    /// All memory of the machine.
    pub memory_bytes: u64,
    /// Name and release.
    pub kernel: String,
    /// Of the race's folder: `ext4`.
    pub file_system: String,
    /// Its mount's flags.
    pub mount_flags: String,
    /// Its disk's cache as the kernel sees it: `write back`, `write through`.
    pub write_cache: Option<String>,
    /// Whether the kernel takes its disk for one that turns.
    pub rotational: Option<bool>,
    /// How much the kernel reads around a fault of a mapped file, and at most ahead of a reader, where nobody said that it shall not.
    pub read_ahead_kb: Option<u64>,
    /// One, five and fifteen minutes before the race.
    pub load_average: String,
    /// The compiler.
    pub rustc: String,
    /// `release` or `debug`.
    pub build: String,
    /// Of this program.
    pub version: String,
    /// When it began, UTC.
    pub date: String,
}

impl Host {
    /// Looks at this machine and the disk of `folder`, which exists.
    #[must_use]
    pub fn look(folder: &Path, date: String) -> Self {
        let mounts = read("/proc/self/mountinfo");
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let mount = mount_of(&mounts, &folder).unwrap_or_default();
        Self {
            cpu: after(&read("/proc/cpuinfo"), "model name").to_owned(),
            cores: std::thread::available_parallelism()
                .map_or(0, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
            memory_bytes: kilobytes(after(&read("/proc/meminfo"), "MemTotal")) << 10,
            kernel: format!("{} {}", read("/proc/sys/kernel/ostype").trim(), read("/proc/sys/kernel/osrelease").trim()),
            write_cache: mount.queue("write_cache"),
            rotational: mount.queue("rotational").map(|text| text == "1"),
            read_ahead_kb: mount.queue("read_ahead_kb").and_then(|text| text.parse().ok()),
            file_system: mount.file_system,
            mount_flags: mount.flags,
            load_average: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
            rustc: env!("ASSENT_RUSTC").to_owned(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            date,
        }
    }

    /// Each fact with its name, for people.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let known = |is_known: bool, text: String| if is_known { text } else { String::new() };
        let (tenths, build) = ((self.memory_bytes >> 20) * 10 / 1024, &self.build);
        let turns = self.rotational.map(|turns| if turns { "rotational" } else { "not rotational" });
        let cache = self.write_cache.as_ref().map(|cache| format!("cache {cache}"));
        let disk: Vec<String> = cache.into_iter().chain(turns.map(str::to_owned)).collect();
        vec![
            ("processor", self.cpu.clone()),
            ("cores", known(self.cores > 0, self.cores.to_string())),
            ("memory", known(tenths > 0, format!("{}.{} GiB", tenths / 10, tenths % 10))),
            ("kernel", self.kernel.clone()),
            (
                "file system",
                known(!self.file_system.is_empty(), format!("{} ({})", self.file_system, self.mount_flags)),
            ),
            ("disk, as the kernel sees it", disk.join(", ")),
            ("read-ahead of the disk", self.read_ahead_kb.map_or_else(String::new, |kib| format!("{kib} KiB"))),
            ("load average at start", self.load_average.clone()),
            ("assent", known(!self.version.is_empty(), format!("{} ({build} build)", self.version))),
            ("compiler", self.rustc.clone()),
            ("date", self.date.clone()),
        ]
    }

    /// What makes two reports incomparable, each as a sentence's end; dates, load and versions may differ.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let may_differ = ["load average at start", "assent", "compiler", "date"];
        let differ = |((name, one), (_, two)): ((&'static str, String), (&'static str, String))| {
            (one != two && !may_differ.contains(&name)).then(|| format!("{name}: {one} | {two}"))
        };
        let build = (self.build != other.build).then(|| format!("build: {} | {}", self.build, other.build));
        self.facts().into_iter().zip(other.facts()).filter_map(differ).chain(build).collect()
    }
}

/// What `/proc` and `/sys` do not tell is empty: a race runs without it.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Of the first line `NAME : VALUE`.
fn after<'t>(text: &'t str, name: &str) -> &'t str {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_once(':')).map_or("", |(_, value)| value.trim())
}

fn kilobytes(text: &str) -> u64 {
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[derive(Debug, Default, PartialEq)]
struct Mount {
    /// `MAJOR:MINOR`
    device: String,
    file_system: String,
    flags: String,
}

impl Mount {
    fn queue(&self, fact: &str) -> Option<String> {
        // A partition has no queue of its own; its disk's is one folder up.
        let of = |up: &str| std::fs::read_to_string(format!("/sys/dev/block/{}/{up}queue/{fact}", self.device)).ok();
        of("").or_else(|| of("../")).map(|text| text.trim().to_owned())
    }
}

/// The mount that holds a folder. Source: proc(5), `/proc/pid/mountinfo`.
fn mount_of(mounts: &str, folder: &Path) -> Option<Mount> {
    let mut found: Option<(usize, Mount)> = None;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let (left, right): (Vec<_>, Vec<_>) = (left.split(' ').collect(), right.split(' ').collect());
        let ([_, _, device, _, point, flags, ..], [file_system, _, of_disk, ..]) = (&left[..], &right[..]) else {
            continue;
        };
        let point = point.replace("\\040", " ");
        // Of two on the same point the later one covers the earlier.
        if folder.starts_with(&point) && found.as_ref().is_none_or(|(length, _)| *length <= point.len()) {
            let flags = flags.split(',').chain(of_disk.split(',').filter(|flag| telling(flag)));
            let mut once: Vec<&str> = Vec::new();
            flags.for_each(|flag| {
                if !once.contains(&flag) {
                    once.push(flag)
                }
            });
            let flags = once.join(",");
            found = Some((
                point.len(),
                Mount { device: (*device).to_owned(), file_system: (*file_system).to_owned(), flags },
            ));
        }
    }
    found.map(|(_, mount)| mount)
}

/// Whether an option of a file system says how it treats writes; others may name folders, hosts and people.
fn telling(flag: &str) -> bool {
    let (name, _) = flag.split_once('=').unwrap_or((flag, ""));
    ["data", "barrier", "nobarrier", "commit", "discard", "journal_checksum", "journal_async_commit", "sync", "dirsync"]
        .contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 0:20 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/someone,upperdir=/x
30 22 259:1 / /srv rw,noatime shared:1 - ext4 /dev/nvme0n1p1 rw,data=ordered,user=someone,rw
31 22 0:40 / /srv/my\\040data rw - nfs host:/export rw,addr=10.0.0.1,sync
32 22 0:41 / /srvice rw - tmpfs tmpfs rw
";

    #[test]
    fn a_folder_belongs_to_the_deepest_mount_and_nothing_private_is_told() {
        let found = |folder: &str| {
            let mount = mount_of(MOUNTS, Path::new(folder)).unwrap();
            (mount.device, mount.file_system, mount.flags)
        };
        let expected = |device: &str, file_system: &str, flags: &str| {
            (device.to_owned(), file_system.to_owned(), flags.to_owned())
        };
        assert_eq!(found("/home"), expected("0:20", "overlay", "rw,relatime"));
        assert_eq!(found("/srv/data"), expected("259:1", "ext4", "rw,noatime,data=ordered"));
        assert_eq!(found("/srv/my data/x"), expected("0:40", "nfs", "rw,sync"));
        assert_eq!(found("/srvice"), expected("0:41", "tmpfs", "rw"));
        assert_eq!(mount_of("nonsense\n - \n", Path::new("/")), None);
    }

    #[test]
    fn this_machine_has_a_processor_a_kernel_and_a_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::look(folder.path(), "2026-11-20".to_owned());
        assert!(host.cores > 0 && host.memory_bytes > 1 << 20, "{host:?}");
        assert!(host.kernel.starts_with("Linux ") && !host.file_system.is_empty(), "{host:?}");
        assert!(host.rustc.starts_with("rustc "), "{host:?}");
        assert!(host.differences(&host).is_empty());
        let other = Host { cpu: "another".to_owned(), date: "later".to_owned(), ..host.clone() };
        assert_eq!(host.differences(&other), [format!("processor: {} | another", host.cpu)]);
    }

    #[test]
    fn two_disks_that_read_ahead_differently_are_two_machines() {
        let folder = tempfile::tempdir().unwrap();
        let found = Host::look(folder.path(), String::new());
        let told = |host: &Host| {
            let facts = host.facts().into_iter();
            facts.filter(|(name, text)| name.starts_with("read-ahead") && !text.is_empty()).count()
        };
        assert_eq!(told(&found), usize::from(found.read_ahead_kb.is_some()), "{found:?}");
        // What has a queue says whether it turns, and how far it reads ahead.
        assert_eq!(found.read_ahead_kb.is_some(), found.rotational.is_some(), "{found:?}");
        let with = |kib: u64| Host { read_ahead_kb: Some(kib), ..found.clone() };
        assert_eq!(with(8_192).differences(&with(128)), ["read-ahead of the disk: 8192 KiB | 128 KiB"]);
        assert!(with(128).differences(&with(128)).is_empty());
        let unknown = Host { read_ahead_kb: None, ..found.clone() };
        assert_eq!(with(128).differences(&unknown).len(), 1, "a report from before says nothing of it");
    }
}
