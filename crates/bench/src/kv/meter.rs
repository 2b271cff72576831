//! What a cell has cost: processor time, bytes to disk, memory, space.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use crate::report::Figures;

/// Source: Documentation/admin-guide/iostats.rst; a sector of these counters is 512 bytes whatever the disk's is.
const SECTOR_BYTES: u64 = 512;
const MIB: f64 = 1_048_576.0;

/// What this process and its disk have done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    cpu: Duration,
    /// Bytes of pages that this process made dirty; those that were deleted before they were written are taken off. Where the
    /// kernel keeps many pages as one, a small write counts all of them (seen on Linux 6.18: 25 times the disk's own count).
    written: Option<u64>,
    /// Bytes written and milliseconds busy of the whole disk.
    device: Option<(u64, u64)>,
}

impl Look {
    /// Now, once the disk has what it is owed: what is written later is not of before.
    pub(super) fn settled(folder: &Path) -> Self {
        rustix::fs::sync();
        Self::at(folder)
    }

    pub(super) fn at(folder: &Path) -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let io = read("/proc/self/io");
        let written =
            field(&io, "write_bytes").map(|all| all - field(&io, "cancelled_write_bytes").unwrap_or(0).min(all));
        Self { cpu: Duration::try_from(time).unwrap_or_default(), written, device: device(folder) }
    }

    /// Without the processor time that the harness took for itself.
    pub(super) fn without(self, harness: Duration) -> Self {
        Self { cpu: self.cpu.saturating_sub(harness), ..self }
    }

    /// What came between two looks; the disk's bytes up to a third one, when it had written everything.
    pub(super) fn since(
        self,
        before: Self,
        settled: Self,
        elapsed: Duration,
        operations: u64,
        user_bytes: u64,
    ) -> Figures {
        let (per_op, seconds) = (super::number(operations.max(1)), elapsed.as_secs_f64().max(1e-9));
        let cpu = self.cpu.saturating_sub(before.cpu).as_secs_f64();
        let mut figures = vec![
            ("cpu_us_per_op", cpu * 1e6 / per_op),
            ("cpu_percent", cpu * 100.0 / seconds),
            ("user_written_mb", super::number(user_bytes) / MIB),
        ];
        if let Some((after, before)) = self.written.zip(before.written) {
            let bytes = super::number(after.saturating_sub(before));
            figures.push(("dirtied_mb", bytes / MIB));
        }
        if let Some(((_, busy), (_, busy_before))) = self.device.zip(before.device) {
            figures.push(("disk_busy_percent", super::number(busy.saturating_sub(busy_before)) / seconds / 10.0));
        }
        if let Some(((after, _), (before, _))) = settled.device.zip(before.device) {
            let bytes = super::number(after.saturating_sub(before));
            figures.push(("disk_written_mb", bytes / MIB));
            if user_bytes > 0 {
                figures.push(("write_amplification", bytes / super::number(user_bytes)));
            }
        }
        figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The most memory that this process ever held.
pub(super) fn rss_peak_mb() -> Option<f64> {
    field(&read("/proc/self/status"), "VmHWM").map(|kib| super::number(kib) / 1_024.0)
}

/// Bytes of disk that a folder takes.
pub(super) fn space(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => space(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        // A file that its store has just removed takes none.
        Err(_) => 0,
    };
    entries.flatten().map(of).sum()
}

fn device(folder: &Path) -> Option<(u64, u64)> {
    let number = std::fs::metadata(folder).ok()?.dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let fields: Vec<u64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    Some((fields.get(6)? * SECTOR_BYTES, *fields.get(9)?))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The number of the line `NAME: NUMBER ..`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the kernel counts what is written past any door too")]
    fn bytes_written_and_space_taken_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let before = Look::at(folder.path());
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        let path = folder.path().join("inner").join("file");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let bytes = space(folder.path());
        assert!((1 << 20..2 << 20).contains(&bytes) || bytes == 0, "{bytes}: delayed allocation says nothing, or all");
        let (after, settled) = (Look::at(folder.path()), Look::settled(folder.path()));
        let figures = after.since(before, settled, Duration::from_secs(1), 10, 1 << 19);
        // A folder in memory has no disk.
        if let Some(written) = figures.get("disk_written_mb").filter(|mb| **mb > 0.0) {
            assert!(*written >= 1.0 && figures["write_amplification"] >= 2.0, "{figures:?}");
        }
        assert!(figures.get("dirtied_mb").is_none_or(|mb| *mb == 0.0 || *mb >= 1.0), "{figures:?}");
        assert!(figures["cpu_us_per_op"] >= 0.0 && rss_peak_mb().is_some_and(|mb| mb > 1.0));
    }
}
