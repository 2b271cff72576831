//! How long a writer waits for what is behind: a delay that grows with the debt, instead of a stall when there is no room left.
//!
//! ```text
//!   memory     from half of what it may take; all of it: the longest delay
//!   level 0    from 14 runs, 38: the longest delay
//!   merges     from 256 MiB that wait to be merged, 1 GiB: the longest delay
//!   dead       as long as [`crate::pacing`] says, [`DUE_MAX`] at most
//!   old        from a volume of what was too much before that; a quarter of what lives, and a volume, more: the longest delay
//! ```
//! The worst of them counts, squared: little at first. Rows beyond a few wait longer, none longer than [`DELAY_MAX`].
//! So N writers of small batches write no more than N batches in [`DELAY_MAX`] when it is at its worst.
//!
//! Walk: [`delay`] is a value, tested as a table · who writes and waits sleeps it before it comes to the desk, with no lock held.
//! Deliberately absent: outcomes of prepared branches. Their rows were counted when they were prepared; they never wait.
//! And dead values that no compaction can give back now: outside of its hours, or where it found nothing to do, a delay would buy nothing.

use std::time::Duration;

/// The longest that one batch waits.
pub(crate) const DELAY_MAX: Duration = Duration::from_millis(10);
/// The longest that it waits for what has just become too much: where that does not do the debt gets old, and is waited for longer.
const DUE_MAX: Duration = Duration::from_millis(8);
/// Shorter ones are not worth a sleep.
const DELAY_MIN: Duration = Duration::from_micros(50);
/// A batch whose rows take more of the memory than this waits as much longer.
const ROWS_BYTES: u64 = 4 << 10;
/// Parts of the whole: where a delay begins, and where it is the longest.
const WHOLE: u64 = 1 << 16;

const LEVEL0_RUNS: (u64, u64) = (14, 38);
const MERGE_BYTES: (u64, u64) = (256 << 20, 1 << 30);

/// What is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pressure {
    /// Bytes that only memory has, and what it may take.
    pub(crate) memory_bytes: u64,
    pub(crate) memory_bytes_max: u64,
    /// Runs at level 0 of the ledger, and what its merges would have to read.
    pub(crate) level0_runs: u64,
    pub(crate) merge_bytes: u64,
    /// Bytes of values on disk that are too much and can be given back, but for those that writers have just made.
    pub(crate) old_bytes: u64,
    /// Bytes that live, and about those of a volume.
    pub(crate) live_bytes: u64,
    pub(crate) volume_bytes: u64,
}

/// How long a batch waits whose rows take so many bytes, and which is due in a while.
pub(crate) fn delay(pressure: &Pressure, rows_bytes: u64, due: Duration) -> Duration {
    let memory = (pressure.memory_bytes_max / 2, pressure.memory_bytes_max);
    let worst = part(pressure.memory_bytes, memory)
        .max(part(pressure.level0_runs, LEVEL0_RUNS))
        .max(part(pressure.merge_bytes, MERGE_BYTES))
        .max(part(pressure.old_bytes, old_bytes(pressure.live_bytes, pressure.volume_bytes)));
    let squared = u128::from(worst) * u128::from(worst);
    let longer = u128::from((rows_bytes / ROWS_BYTES).max(1));
    let us = DELAY_MAX.as_micros() * squared * longer / u128::from(WHOLE * WHOLE);
    let delay = Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX)).max(due.min(DUE_MAX)).min(DELAY_MAX);
    if delay < DELAY_MIN { Duration::ZERO } else { delay }
}

/// Where an old debt begins to be a delay, and where it is the longest. It comes and goes by whole volumes: one is none too many.
fn old_bytes(live_bytes: u64, volume_bytes: u64) -> (u64, u64) {
    (volume_bytes, volume_bytes.saturating_mul(2).saturating_add(live_bytes / 4))
}

/// How far a number is on its way between two others.
fn part(number: u64, (from, to): (u64, u64)) -> u64 {
    if number <= from {
        return 0;
    }
    let behind =
        u128::from(number.saturating_sub(from)) * u128::from(WHOLE) / u128::from(to.saturating_sub(from).max(1));
    u64::try_from(behind).unwrap_or(u64::MAX).min(WHOLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_delay_grows_with_what_is_behind_as_the_table_says() {
        let calm = Pressure { memory_bytes_max: 64 * MIB, ..Pressure::default() };
        let memory = |mib| Pressure { memory_bytes: mib * MIB, ..calm };
        let level0 = |level0_runs| Pressure { level0_runs, ..calm };
        let merges = |mib| Pressure { merge_bytes: mib * MIB, ..calm };
        let old = |old_mib, live_mib: u64| {
            let old = Pressure { volume_bytes: 64 * MIB, ..calm };
            Pressure { old_bytes: old_mib * MIB, live_bytes: live_mib * MIB, ..old }
        };
        let rows: [(Pressure, u64, u64); 27] = [
            // What is behind, the bytes of a batch's rows, microseconds.
            (calm, 200, 0),
            (memory(32), 200, 0),
            (memory(34), 200, 0),
            (memory(36), 200, 156),
            (memory(40), 200, 625),
            (memory(48), 200, 2_500),
            (memory(56), 200, 5_625),
            (memory(64), 200, 10_000),
            (memory(400), 200, 10_000),
            (memory(36), 4 << 10, 156),
            (memory(36), 40 << 10, 1_562),
            (memory(36), MIB, 10_000),
            (level0(14), 200, 0),
            (level0(20), 200, 625),
            (level0(26), 200, 2_500),
            (level0(38), 200, 10_000),
            (merges(256), 200, 0),
            (merges(640), 200, 2_500),
            (merges(1024), 200, 10_000),
            (old(64, 0), 200, 0),
            (old(96, 0), 200, 2_500),
            (old(128, 0), 200, 10_000),
            (old(64, 4096), 200, 0),
            (old(608, 4096), 200, 2_500),
            (old(1152, 4096), 200, 10_000),
            // The worst counts, and they are not added up.
            (Pressure { level0_runs: 26, merge_bytes: 640 * MIB, ..memory(40) }, 200, 2_500),
            (Pressure { level0_runs: u64::MAX, merge_bytes: u64::MAX, ..memory(40) }, u64::MAX, 10_000),
        ];
        for (pressure, rows_bytes, expected) in rows {
            let delay = delay(&pressure, rows_bytes, Duration::ZERO);
            assert_eq!(delay, Duration::from_micros(expected), "{pressure:?}, rows of {rows_bytes} bytes");
        }
        // What is due later waits so long, or longer.
        for (pressure, due, expected) in
            [(calm, 49, 0), (calm, 50, 50), (calm, 7_000, 7_000), (calm, 11_000, 8_000), (memory(48), 2_000, 2_500)]
        {
            let delay = delay(&pressure, 200, Duration::from_micros(due));
            assert_eq!(delay, Duration::from_micros(expected), "{pressure:?}, due in {due} us");
        }
    }

    #[test]
    fn more_behind_is_never_a_shorter_delay() {
        let mut last = Duration::ZERO;
        for kib in 0..80_u64 << 10 {
            let pressure = Pressure { memory_bytes: kib << 10, memory_bytes_max: 64 * MIB, ..Pressure::default() };
            let now = delay(&pressure, 200, Duration::ZERO);
            assert!(now >= last && now <= DELAY_MAX, "{kib} KiB: {last:?}, then {now:?}");
            last = now;
        }
        assert_eq!(last, DELAY_MAX);
    }
}
