//! Several revisions as one JSON object.
//!
//! ```text
//!   {NAME: [{"revisionNumber": 1, "revisionTimestamp": "2026-01-31T12:00:00.000Z", "revision": ..}, ..]}
//! ```
//! Walk: [`Form::envelope`] · [`instant`] says a time.
//! Deliberately absent: memory of what was written: one revision after the other. One without a value has no `revision`.

use std::io::Write;

use crate::DocsError;
use crate::look::Look;
use crate::revision::Revision;
use crate::serialise::{Form, quoted};

const DAY_MS: u64 = 86_400_000;

impl Form {
    /// Writes several revisions as the only member, an array, of an object.
    ///
    /// # Errors
    /// As [`Form::write`], and what the revisions say.
    pub fn envelope<W: Write>(
        &self,
        name: &str,
        revisions: impl IntoIterator<Item = Result<Revision, DocsError>>,
        out: &mut W,
    ) -> Result<(), DocsError> {
        let stream = |error: std::io::Error| DocsError::Stream { doing: "writing JSON", error: error.to_string() };
        write!(out, "{{{}:[", quoted(name)).map_err(stream)?;
        for (at, revision) in revisions.into_iter().enumerate() {
            let revision = revision?;
            let (comma, number, time) =
                (if at == 0 { "" } else { "," }, revision.number(), instant(revision.time_ms()));
            write!(out, "{comma}{{\"revisionNumber\":{number},\"revisionTimestamp\":\"{time}\"").map_err(stream)?;
            if self.start.or_else(|| revision.value()).is_some() {
                out.write_all(b",\"revision\":").map_err(stream)?;
                self.write(&revision, out)?;
            }
            out.write_all(b"}").map_err(stream)?;
        }
        out.write_all(b"]}").map_err(stream)
    }
}

/// Milliseconds since 1970 as a date and time of day, UTC (ISO 8601, RFC 3339).
pub(crate) fn instant(time_ms: u64) -> String {
    let (days, rest) = (time_ms / DAY_MS, time_ms % DAY_MS);
    let (year, month, day) = date(days);
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, thousandth) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{thousandth:03}Z")
}

/// The date that is so many days after 1970-01-01. A year is counted from March, so that a leap day is its last one.
fn date(days: u64) -> (u64, u64, u64) {
    const CYCLE_DAYS: u64 = 146_097;
    // From 0000-03-01.
    let days = days + 719_468;
    let (cycle, day) = (days / CYCLE_DAYS, days % CYCLE_DAYS);
    // Without the leap days before it: every fourth year one, every hundredth none, the last day of the cycle one.
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (400 * cycle + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_those_of_the_calendar() {
        let known = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (1_709_164_800_001, "2024-02-29T00:00:00.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (1_795_243_319_007, "2026-11-21T06:41:59.007Z"),
        ];
        for (time_ms, expected) in known {
            assert_eq!(instant(time_ms), expected);
        }
        // Day by day: none is left out, none comes twice.
        let mut before = date(0);
        for days in 1..200_000 {
            let (year, month, day) = date(days);
            let last = match before.1 {
                2 if before.0.is_multiple_of(if before.0.is_multiple_of(100) { 400 } else { 4 }) => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            let expected = match before {
                (year, 12, 31) => (year + 1, 1, 1),
                (year, month, day) if day == last => (year, month + 1, 1),
                (year, month, day) => (year, month, day + 1),
            };
            assert_eq!((year, month, day), expected, "day {days}");
            before = (year, month, day);
        }
    }
}
