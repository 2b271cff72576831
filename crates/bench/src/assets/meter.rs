//! What a process has taken of the machine: processor time, and how often its threads went to sleep.

use std::ops::Sub;

/// Ticks of `/proc/PID/stat` in a second, as Linux has them on every machine that we know.
const TICKS: f64 = 100.0;

/// What one process, or several, took so far. What `/proc` does not tell is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Meter {
    /// User and system.
    pub cpu_s: f64,
    /// How often a thread waited for something.
    pub sleeps: f64,
}

impl Meter {
    /// Looks at a process.
    #[must_use]
    pub fn of(process: u32) -> Self {
        Self { cpu_s: cpu_s(&read(&format!("/proc/{process}/stat"))), sleeps: sleeps(process) }
    }
}

impl Sub for Meter {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        // A thread that has ended takes its sleeps with it.
        Self { cpu_s: self.cpu_s - before.cpu_s, sleeps: (self.sleeps - before.sleeps).max(0.0) }
    }
}

/// The name may hold anything; what follows its bracket is fields 3 and on.
fn cpu_s(stat: &str) -> f64 {
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>()).unwrap_or_default();
    let field = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (field(11) + field(12)) / TICKS
}

fn sleeps(process: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.map(|thread| voluntary(&read(&thread.path().join("status").display().to_string()))).sum()
}

fn voluntary(status: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0.0)
}

#[expect(clippy::disallowed_methods, reason = "a fact of the machine, not of the product")]
fn read(path: &str) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_brackets_and_a_status_tells_its_sleeps() {
        let stat = "17 (a) b) S 1 17 17 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3 0 5 6 7";
        assert!((cpu_s(stat) - 3.0).abs() < 1e-9);
        assert!(
            (voluntary("Name:\tx\nvoluntary_ctxt_switches:\t42\nnonvoluntary_ctxt_switches:\t7\n") - 42.0).abs() < 1e-9
        );
        assert_eq!((cpu_s("nonsense"), voluntary("")), (0.0, 0.0));
    }

    #[test]
    fn a_process_that_slept_is_seen() {
        let before = Meter::of(std::process::id());
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || receive.recv());
        // Only one that waits has slept.
        while Meter::of(std::process::id()).sleeps <= before.sleeps {
            std::thread::yield_now();
        }
        drop(send);
        assert!(thread.join().unwrap().is_err());
        assert_eq!(Meter::of(u32::MAX), Meter::default());
    }
}
