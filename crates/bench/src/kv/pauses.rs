//! What the machine itself makes everybody wait: the floor under each longest latency, measured beside the clients of the same cell.
//!
//! On each processor a thread that needs nearly nothing, and is let in before all others, sleeps for a millisecond and looks how much longer it
//! was: a host that runs somebody else there, a processor that gets no time any more this tenth of a second, an interrupt that takes its time. All
//! stores are watched alike. What a store pays for its own threads is not in it, nor what a disk takes.
//!
//! Walk: [`Pauses::watch`] · [`Pauses::ended`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use assent_world::{Clock as _, Moment, RealClock, wake_soon};
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

use super::windows::{Seconds, Tail};
use crate::report::Figures;

const SLEEP: Duration = Duration::from_millis(1);
/// Shorter ones are what waking up takes.
const LEAST: Duration = Duration::from_millis(1);
/// `setpriority(2)`: before all of the usual policy.
const FIRST: i32 = -20;

/// The threads that look.
#[derive(Debug)]
pub(super) struct Pauses {
    since: Moment,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Seen>>,
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
}

impl Pauses {
    /// Begins. A processor that this process may not use is not looked at; without threads there are no figures.
    pub(super) fn watch() -> Self {
        let (since, stop) = (RealClock.now(), Arc::new(AtomicBool::new(false)));
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let ours = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        let start = |cpu: usize| {
            let stop = Arc::clone(&stop);
            std::thread::Builder::new().name("pauses".to_owned()).spawn(move || look(cpu, &stop)).ok()
        };
        let threads = ours.filter_map(start).collect();
        Self { since, stop, threads }
    }

    /// The mean over 10-second windows of the longest, the longest of all, and how much of the time of a processor went.
    pub(super) fn ended(mut self, elapsed: Duration) -> Figures {
        self.stop.store(true, Ordering::Relaxed);
        let mut whole = Seen::default();
        let threads = std::mem::take(&mut self.threads);
        let processors = super::number(super::length(threads.len()));
        for seen in threads.into_iter().flat_map(JoinHandle::join) {
            whole.longest.merge(&seen.longest);
            whole.all += seen.all;
        }
        let Some(mean) = whole.longest.mean_of_maxima_us(Tail::Get, elapsed) else { return Figures::new() };
        let maxima = whole.longest.maxima_us(Tail::Get, elapsed).into_iter().map(|(_, longest)| longest);
        let looked = RealClock.now().since(self.since).as_secs_f64().max(1e-9);
        let percent = whole.all.as_secs_f64() * 100.0 / processors / looked;
        let figures = [
            ("pause_max_10s_mean_us", mean),
            ("pause_max_us", maxima.fold(0.0, f64::max)),
            ("paused_percent", percent),
        ];
        figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
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
            return seen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_processor_is_looked_at_and_a_look_ends() {
        let pauses = Pauses::watch();
        assert_eq!(pauses.threads.len(), usize::try_from(sched_getaffinity(None).unwrap().count()).unwrap());
        RealClock.sleep(SLEEP * 20);
        let figures = pauses.ended(SLEEP * 20);
        assert!(figures["pause_max_us"] >= figures["pause_max_10s_mean_us"], "{figures:?}");
        assert!(
            figures["pause_max_10s_mean_us"] > 0.0 && (0.0..=100.0).contains(&figures["paused_percent"]),
            "{figures:?}"
        );
    }
}
