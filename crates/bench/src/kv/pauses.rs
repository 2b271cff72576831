//! What the machine itself makes everybody wait: the floor under each longest latency, measured beside the clients of the same cell.
//!
//! On each processor a thread that needs nearly nothing, and is let in before all others, sleeps for a millisecond and looks how much longer it
//! was: a host that runs somebody else there, a processor that gets no time any more this tenth of a second, an interrupt that takes its time. All
//! stores are watched alike. What a store pays for its own threads is not in it, nor what a disk takes.
//!
//! One thread more reads a block from the disk that no store has, past the page cache, each two milliseconds: how long that takes at most, any
//! read may take then. What the store itself asks of the disk before it is in that.
//!
//! Each tells the processor time that it took itself: that is the harness's, and no store's.
//!
//! Walk: [`Pauses::watch`] · [`Pauses::ended`].

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use assent_world::{AlignedBuffer, BLOCK_BYTES, Clock as _, Moment, RealClock, wake_soon};
use rustix::fs::OFlags;
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::windows::{Seconds, Tail};
use crate::report::Figures;

const SLEEP: Duration = Duration::from_millis(1);
/// Shorter ones are what waking up takes.
const LEAST: Duration = Duration::from_millis(1);
/// Between two reads of the disk.
const UNREAD: Duration = Duration::from_millis(2);
/// `setpriority(2)`: before all of the usual policy.
const FIRST: i32 = -20;

/// The threads that look.
#[derive(Debug)]
pub(super) struct Pauses {
    since: Moment,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Seen>>,
    /// None where the disk cannot be read past the page cache.
    disk: Option<JoinHandle<Seen>>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) figures: Figures,
    /// The longest read of the disk in each 10-second window.
    pub(super) disk: Vec<(f64, f64)>,
    /// Processor time of all that looked, until each had ended.
    pub(super) cpu: Duration,
}

impl Drop for Pauses {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What one of them has seen.
#[derive(Debug, Default)]
struct Seen {
    longest: Seconds,
    all: Duration,
    /// What looking took.
    cpu: Duration,
}

impl Pauses {
    /// Begins. A processor that this process may not use is not looked at; without threads there are no figures.
    pub(super) fn watch(folder: &Path) -> Self {
        let (since, stop) = (RealClock.now(), Arc::new(AtomicBool::new(false)));
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let ours = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        let thread = || std::thread::Builder::new().name("pauses".to_owned());
        let start = |cpu: usize| {
            let stop = Arc::clone(&stop);
            thread().spawn(move || look(cpu, &stop)).ok()
        };
        let threads = ours.filter_map(start).collect();
        let disk = block_of_its_own(folder).ok().and_then(|file| {
            let stop = Arc::clone(&stop);
            thread().spawn(move || look_at_disk(&file, &stop)).ok()
        });
        Self { since, stop, threads, disk }
    }

    /// Of the processors the mean over 10-second windows of the longest, the longest of all, and how much of the time of one went; of the disk the
    /// first two, and the longest of each window.
    pub(super) fn ended(mut self, elapsed: Duration) -> Watched {
        self.stop.store(true, Ordering::Relaxed);
        let mut whole = Seen::default();
        let threads = std::mem::take(&mut self.threads);
        let processors = super::number(super::length(threads.len()));
        for seen in threads.into_iter().flat_map(JoinHandle::join) {
            whole.longest.merge(&seen.longest);
            whole.all += seen.all;
            whole.cpu += seen.cpu;
        }
        let disk = self.disk.take().and_then(|thread| thread.join().ok());
        let cpu = whole.cpu + disk.as_ref().map_or(Duration::ZERO, |seen| seen.cpu);
        let mut figures = whole.figures("pause", elapsed);
        if !figures.is_empty() {
            let looked = RealClock.now().since(self.since).as_secs_f64().max(1e-9);
            let percent = whole.all.as_secs_f64() * 100.0 / processors / looked;
            figures.insert("paused_percent".to_owned(), percent);
        }
        figures.extend(disk.iter().flat_map(|seen| seen.figures("disk_pause", elapsed)));
        let ms_per_s = cpu.as_secs_f64() * 1e3 / elapsed.as_secs_f64().max(1e-9);
        figures.insert("cpu_harness_ms_per_s".to_owned(), ms_per_s);
        let windows = disk.map_or_else(Vec::new, |seen| seen.longest.maxima_us(Tail::Get, elapsed));
        Watched { figures, disk: windows, cpu }
    }
}

impl Seen {
    /// The mean over 10-second windows of the longest, and the longest of all.
    fn figures(&self, what: &str, elapsed: Duration) -> Figures {
        let Some(mean) = self.longest.mean_of_maxima_us(Tail::Get, elapsed) else { return Figures::new() };
        let maxima = self.longest.maxima_us(Tail::Get, elapsed).into_iter().map(|(_, longest)| longest);
        let longest = maxima.fold(0.0, f64::max);
        [(format!("{what}_max_10s_mean_us"), mean), (format!("{what}_max_us"), longest)].into_iter().collect()
    }
}

/// A file of one block, which has no name any more, past the page cache.
#[expect(clippy::disallowed_methods, reason = "reads past the page cache, whatever the store does")]
fn block_of_its_own(folder: &Path) -> io::Result<File> {
    let path = folder.join("pauses.tmp");
    let past_the_cache = OFlags::DIRECT.bits().cast_signed();
    let file = OpenOptions::new().read(true).write(true).create_new(true).custom_flags(past_the_cache).open(&path)?;
    std::fs::remove_file(&path)?;
    file.write_all_at(AlignedBuffer::zeroed(BLOCK_BYTES).as_slice(), 0)?;
    Ok(file)
}

/// Processor time of this thread since its birth.
fn own_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn look_at_disk(file: &File, stop: &AtomicBool) -> Seen {
    wake_soon();
    _ = setpriority_process(Some(gettid()), FIRST);
    // A disk that says no once is not told of; the time that was taken is.
    let longest = reads(file, stop).unwrap_or_default();
    Seen { longest, cpu: own_cpu(), ..Seen::default() }
}

fn reads(file: &File, stop: &AtomicBool) -> io::Result<Seconds> {
    let (mut longest, mut block, start) = (Seconds::default(), AlignedBuffer::zeroed(BLOCK_BYTES), RealClock.now());
    // Once at least.
    loop {
        let before = RealClock.now();
        file.read_exact_at(block.as_mut_slice(), 0)?;
        let now = RealClock.now();
        longest.latency(Tail::Get, now.since(start), now.since(before));
        if stop.load(Ordering::Relaxed) {
            return Ok(longest);
        }
        RealClock.sleep(UNREAD);
    }
}

fn look(cpu: usize, stop: &AtomicBool) -> Seen {
    let mut here = CpuSet::new();
    here.set(cpu);
    // Where any of it is not granted, what is seen is a little more than the machine's own.
    _ = sched_setaffinity(None, &here);
    wake_soon();
    _ = setpriority_process(Some(gettid()), FIRST);
    let (mut seen, start) = (Seen::default(), RealClock.now());
    // Once at least.
    loop {
        let before = RealClock.now();
        RealClock.sleep(SLEEP);
        let now = RealClock.now();
        let pause = now.since(before).saturating_sub(SLEEP);
        seen.longest.latency(Tail::Get, now.since(start), pause);
        if pause >= LEAST {
            seen.all += pause;
        }
        if stop.load(Ordering::Relaxed) {
            return Seen { cpu: own_cpu(), ..seen };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_processor_is_looked_at_and_a_look_ends() {
        let folder = tempfile::tempdir().unwrap();
        let pauses = Pauses::watch(folder.path());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing that would count as a store's");
        assert_eq!(pauses.threads.len(), usize::try_from(sched_getaffinity(None).unwrap().count()).unwrap());
        RealClock.sleep(SLEEP * 20);
        let direct = pauses.disk.is_some();
        let Watched { figures, disk: windows, cpu } = pauses.ended(SLEEP * 20);
        assert!(cpu > Duration::ZERO && figures["cpu_harness_ms_per_s"] > 0.0, "{cpu:?} {figures:?}");
        assert_eq!(windows.len(), usize::from(direct), "{windows:?}");
        assert_eq!(figures.get("disk_pause_max_us").is_some_and(|longest| *longest > 0.0), direct, "{figures:?}");
        assert!(figures["pause_max_us"] >= figures["pause_max_10s_mean_us"], "{figures:?}");
        assert!(
            figures["pause_max_10s_mean_us"] > 0.0 && (0.0..=100.0).contains(&figures["paused_percent"]),
            "{figures:?}"
        );
    }
}
