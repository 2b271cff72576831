//! How fast a snapshot is written: as the disk takes it while nothing else goes on, and slowly beside commands.
//!
//! Walk: [`Pace::wrote`] what was written · [`Pace::wait`] how long to wait before more is, asked again after each wait until that is nothing.
//! Deliberately absent: a clock, a thread, and who counts commands. Both are handed in.

use std::time::Duration;

use assent_world::Moment;

/// Bytes a second that a snapshot writes while commands are executed. What it lays at once takes a millisecond of a core, and where no core is
/// free, all who wait for an answer wait for that: at 16 MiB a second commands lost a quarter.
pub const BESIDE_COMMANDS_BYTES_PER_S: u64 = 4 << 20;
/// Commands have ended when none was executed for so long: a pause of a disk or of a client is shorter.
const QUIET: Duration = Duration::from_millis(50);
/// One wait at most: whoever wants the writer to stop does not wait for a snapshot.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// How fast a snapshot may go on.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_per_s_max: u64,
    /// Written, and not waited for yet.
    owed_bytes: u64,
    looked: Moment,
    executed: u64,
    /// When that was seen to grow.
    grew: Moment,
}

impl Pace {
    /// A snapshot begins now, when so many commands were executed; it writes at most so many bytes a second, 0: no such limit.
    #[must_use]
    pub const fn new(bytes_per_s_max: u64, now: Moment, executed: u64) -> Self {
        // Whether commands are under way is not known yet: as if they were.
        Self { bytes_per_s_max, owed_bytes: 0, looked: now, executed, grew: now }
    }

    /// So many bytes more were written.
    pub const fn wrote(&mut self, bytes: u64) {
        self.owed_bytes = self.owed_bytes.saturating_add(bytes);
    }

    /// How long to wait now, when so many commands were executed; nothing: go on.
    pub fn wait(&mut self, now: Moment, executed: u64) -> Duration {
        if executed != self.executed {
            (self.executed, self.grew) = (executed, now);
        }
        let passed_us = now.since(self.looked).as_micros();
        self.looked = now;
        let bytes_per_s = match (now.since(self.grew) < QUIET, self.bytes_per_s_max) {
            (true, 0) => BESIDE_COMMANDS_BYTES_PER_S,
            (true, most) => most.min(BESIDE_COMMANDS_BYTES_PER_S),
            (false, 0) => {
                self.owed_bytes = 0;
                return Duration::ZERO;
            }
            (false, most) => most,
        };
        let paid = passed_us.saturating_mul(u128::from(bytes_per_s)) / 1_000_000;
        self.owed_bytes = self.owed_bytes.saturating_sub(u64::try_from(paid).unwrap_or(u64::MAX));
        let wait_us = u128::from(self.owed_bytes) * 1_000_000 / u128::from(bytes_per_s);
        Duration::from_micros(u64::try_from(wait_us).unwrap_or(u64::MAX)).min(WAIT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK_BYTES: u64 = 256 << 10;
    /// What writing a chunk takes on a disk that is fast.
    const CHUNK_US: u64 = 700;

    /// Milliseconds that a snapshot of so many bytes takes beside commands, of which `executed` were by that millisecond.
    fn took_ms(bytes: u64, bytes_per_s_max: u64, executed: impl Fn(u64) -> u64) -> u64 {
        let mut now = Moment(5_000_000);
        let begun = now;
        let since_ms = |now: Moment| u64::try_from(now.since(begun).as_millis()).unwrap();
        let mut pace = Pace::new(bytes_per_s_max, now, executed(0));
        for _ in 0..bytes / CHUNK_BYTES {
            now = now.after(Duration::from_micros(CHUNK_US));
            pace.wrote(CHUNK_BYTES);
            loop {
                let wait = pace.wait(now, executed(since_ms(now)));
                assert!(wait <= WAIT_MAX);
                if wait.is_zero() {
                    break;
                }
                now = now.after(wait);
            }
        }
        since_ms(now)
    }

    #[test]
    fn beside_commands_a_snapshot_goes_slowly_and_alone_as_the_disk_takes_it() {
        const BYTES: u64 = 256 << 20;
        let flat_out_ms = BYTES / CHUNK_BYTES * CHUNK_US / 1_000;
        let alone = took_ms(BYTES, 0, |_| 7);
        assert!((flat_out_ms..flat_out_ms + 70).contains(&alone), "{alone} ms for what takes {flat_out_ms}");
        assert_eq!(took_ms(BYTES, 0, |ms| ms * 100) / 100, 640, "4 MiB a second");
        assert_eq!(took_ms(BYTES, 0, |ms| ms / 40) / 100, 640, "one command in 40 ms is a load too");
        assert_eq!(took_ms(BYTES, 64 << 20, |ms| ms) / 100, 640, "more than that is not granted beside commands");
    }

    #[test]
    fn what_a_user_allows_is_a_limit_with_and_without_commands() {
        for executed in [0, 1_u64] {
            let took = took_ms(8 << 20, 2 << 20, |ms| ms * executed);
            assert!((3_999..4_060).contains(&took), "{took} ms for 8 MiB at 2 MiB a second");
        }
    }

    #[test]
    fn when_commands_end_the_rest_is_written_as_the_disk_takes_it() {
        let flat_out_ms = (256 << 20) / CHUNK_BYTES * CHUNK_US / 1_000;
        // Two seconds of them write 8 MiB of 256.
        let took = took_ms(256 << 20, 0, |ms| ms.min(2_000));
        assert!((2_050..2_100 + flat_out_ms).contains(&took), "{took} ms");
    }
}
