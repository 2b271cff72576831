//! Times as people write them: `1h` ago, or 2026-11-20T18:00:00Z. Everything is UTC, so that two servers' words compare.

use crate::failure::Failure;

const DAY_MS: u64 = 86_400_000;
const FORMS: &str = "a time is 90s, 30m, 1h or 2d ago, or UTC as 2026-11-20, 2026-11-20T18:00 or 2026-11-20T18:00:00Z";

/// Milliseconds since 1970 of such a text.
pub(crate) fn parse(text: &str, now_ms: u64) -> Result<u64, Failure> {
    let found = ago(text).map(|ago| now_ms.saturating_sub(ago)).or_else(|| date(text));
    found.ok_or_else(|| Failure::invalid(format!("{text:?} is no time: {FORMS}")))
}

/// Milliseconds of a length of time.
pub(crate) fn pause_ms(text: &str) -> Result<u64, Failure> {
    ago(text).ok_or_else(|| Failure::invalid(format!("{text:?} is no length of time: write 90s, 30m, 1h or 2d")))
}

fn ago(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit_ms = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => DAY_MS,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit_ms)
}

fn date(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let mut parts = date.splitn(3, '-').map(str::parse::<u64>);
    let (year, month, day) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = time.splitn(3, ':').map(str::parse::<u64>);
    let (hour, minute, second) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next().unwrap_or(Ok(0)).ok()?);
    let ms = format!("{fraction:0<3}").get(..3)?.parse::<u64>().ok()?;
    let is_real = (1970..=9_999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let days = is_real.then(|| days_before(year, month, day))?;
    Some(days * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1_000 + ms)
}

/// Days from 1970-01-01; the year begins in March, so that the leap day is its last.
/// Source: Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
const fn days_before(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    era * 146_097 + days - 719_468
}

/// `2026-11-20T18:00:00.123Z`.
pub(crate) fn show(ms: u64) -> String {
    let (days, of_day) = (ms / DAY_MS + 719_468, ms % DAY_MS);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (seconds, ms) = (of_day / 1_000, of_day % 1_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_understood_over_leap_days_and_centuries() {
        for ms in [0, 951_782_400_000, 951_868_799_999, 1_709_164_800_000, 4_107_542_400_000, 1_795_200_000_123] {
            assert_eq!(parse(&show(ms), 0).unwrap(), ms, "{}", show(ms));
        }
        assert_eq!(show(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(show(1_709_251_199_999), "2024-02-29T23:59:59.999Z");
    }

    #[test]
    fn ago_is_counted_back_and_nonsense_is_told_the_forms() {
        assert_eq!(parse("90s", 100_000).unwrap(), 10_000);
        assert_eq!(parse("2d", DAY_MS).unwrap(), 0);
        assert_eq!(parse("2026-11-20", 0).unwrap(), parse("2026-11-20T00:00", 0).unwrap());
        for text in ["", "h", "1w", "yesterday", "2026-13-01", "2026-11-20T25:00", "-1h", "1969-01-01"] {
            assert!(parse(text, 0).unwrap_err().message.contains("a time is"), "{text}");
        }
    }
}
