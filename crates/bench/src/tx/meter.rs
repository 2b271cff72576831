//! What a cell has cost: processor time of this process and of servers, and what servers say of their logs.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use assent_kind::Kind;
use assent_world::net::{Address, Stream};

use crate::BenchError;

/// How long a server may take over its own numbers.
const PATIENCE: Duration = Duration::from_secs(5);

/// Counters of one coordinator and its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) writes: u64,
    pub(super) syncs: u64,
    pub(super) decisions: u64,
    pub(super) unsynced: u64,
}

impl Counters {
    /// What came since `before`; `unsynced` is what it is now.
    pub(super) const fn since(self, before: Self) -> Self {
        Self {
            writes: self.writes.saturating_sub(before.writes),
            syncs: self.syncs.saturating_sub(before.syncs),
            decisions: self.decisions.saturating_sub(before.decisions),
            unsynced: self.unsynced,
        }
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            writes: self.writes + other.writes,
            syncs: self.syncs + other.syncs,
            decisions: self.decisions + other.decisions,
            unsynced: self.unsynced + other.unsynced,
        }
    }

    fn parse(text: &str) -> Self {
        let of = |name: &str| {
            let numbers =
                text.lines().filter_map(|line| line.strip_prefix(name)?.rsplit(' ').next()?.parse::<u64>().ok());
            numbers.sum()
        };
        Self {
            writes: of("assent_log_writes_total{log=\"coordinator\"}"),
            syncs: of("assent_log_syncs_total{log=\"coordinator\"}"),
            decisions: of("assent_decisions_total{"),
            unsynced: of("assent_decisions_unsynced "),
        }
    }
}

/// Asks a server for its metrics.
pub(super) fn scrape(admin: &Address) -> Result<Counters, BenchError> {
    let failed = |error: std::io::Error| {
        BenchError::new(Kind::Unavailable, format!("the metrics of the server at {admin}: {error}"))
    };
    let stream = Stream::connect(admin, PATIENCE).map_err(failed)?;
    stream.set_timeouts(Some(PATIENCE), Some(PATIENCE)).map_err(failed)?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    (&stream).write_all(request.as_bytes()).map_err(failed)?;
    let mut text = String::new();
    (&stream).read_to_string(&mut text).map_err(failed)?;
    if !text.starts_with("HTTP/1.1 200") {
        let said = text.lines().next().unwrap_or_default();
        return Err(BenchError::new(Kind::Unavailable, format!("the metrics of the server at {admin}: {said:?}")));
    }
    Ok(Counters::parse(&text))
}

/// Processor time of this process.
pub(super) fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Processor time of another process: of its living threads, to the nanosecond. A server's threads live as long as it does.
#[expect(clippy::disallowed_methods, reason = "what the kernel says of a process is no disk's business")]
pub(super) fn cpu_of(process: u32) -> Option<Duration> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let mut nanos = 0_u64;
    for thread in threads {
        // One that has ended meanwhile has said its last.
        let Ok(text) = std::fs::read(thread.ok()?.path().join("schedstat")) else { continue };
        nanos += String::from_utf8_lossy(&text).split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_in_what_a_server_says() {
        let text = "# TYPE assent_decisions counter\n\
                    assent_decisions_total{outcome=\"committed\"} 40\nassent_decisions_total{outcome=\"rolled_back\"} 2\n\
                    assent_decisions_forgotten_total 9\nassent_decisions_unsynced 3\n\
                    assent_log_syncs_total{log=\"coordinator\"} 11\nassent_log_syncs_total{log=\"kv\"} 500\n\
                    assent_log_writes_total{log=\"coordinator\"} 12\n# EOF\n";
        let counters = Counters::parse(text);
        assert_eq!(counters, Counters { writes: 12, syncs: 11, decisions: 42, unsynced: 3 });
        let later = Counters { writes: 20, syncs: 15, decisions: 50, unsynced: 1 };
        assert_eq!(later.since(counters), Counters { writes: 8, syncs: 4, decisions: 8, unsynced: 1 });
    }

    #[test]
    fn the_processor_time_of_a_process_grows_while_it_works() {
        let own = std::process::id();
        let before = cpu_of(own).unwrap();
        // The kernel counts in hundredths of a second: as much work as it takes to see one.
        let mut work = 1_u64;
        let grows = |_| {
            for step in 0..20_000_000_u64 {
                work = std::hint::black_box(work.wrapping_mul(step | 1));
            }
            cpu_of(own).unwrap() > before
        };
        assert!((0..1_000).any(grows));
        assert!(cpu_of(u32::MAX).is_none());
    }
}
