//! Times as people write them: `1h` ago, or 2026-11-20T18:00:00Z. What says nothing of its zone is UTC, and so is everything
//! that is shown, so that two servers' words compare.

use crate::failure::Failure;

const DAY_MS: u64 = 86_400_000;
const FORMS: &str = "a time is 90s, 30m, 1h or 2d ago, or UTC as 2026-11-20, 2026-11-20T18:00 or 2026-11-20T18:00:00Z, \
     or +02:00 in place of Z";

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
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let (time, east_ms) = zone(time)?;
    let mut parts = date.splitn(3, '-').map(digits);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = time.splitn(3, ':').map(digits);
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    // Of any number of digits the first three are milliseconds.
    let fraction = Some(fraction).filter(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))?;
    let ms = digits(format!("{fraction:0<3}").get(..3)?)?;
    let is_real = (1970..=9_999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let days = is_real.then(|| days_before(year, month, day))?;
    (days * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1_000 + ms).checked_add_signed(-east_ms)
}

/// Digits and nothing else: a sign is one to `parse`.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A time of day without what it says of its zone, and by how much that is east of UTC. Source: RFC 3339, 5.6.
fn zone(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = time.find(['+', '-']) else { return Some((time, 0)) };
    let (time, offset) = time.split_at_checked(at)?;
    let (sign, offset) = offset.split_at_checked(1)?;
    let (hours, minutes) = offset.split_once(':')?;
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    let ms = i64::try_from((hours * 60 + minutes) * 60_000).ok()?;
    (offset.len() == 5 && hours < 24 && minutes < 60).then_some((time, if sign == "+" { ms } else { -ms }))
}

/// How long the month is.
const fn days_of(year: u64, month: u64) -> u64 {
    let (of, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days_before(of, next, 1) - days_before(year, month, 1)
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

    #[test]
    fn a_zone_counts_and_what_is_no_time_at_its_end_does_too() {
        let utc = parse("2026-11-29T13:25:15.200Z", 0).unwrap();
        for text in ["2026-11-29T15:25:15.200+02:00", "2026-11-29T08:55:15.2-04:30", "2026-11-29 13:25:15.2009"] {
            assert_eq!(parse(text, 0).unwrap(), utc, "{text}");
        }
        assert_eq!(parse("2024-02-29T00:30+01:00", 0).unwrap(), parse("2024-02-28T23:30", 0).unwrap());
        let wrong = [
            "2026-11-29T15:25:15.141 next week",
            "2026-11-29T15:25:15.141CET",
            "2026-11-29T15:25:15.",
            "2026-11-29T15:25+2",
            "2026-11-29T15:25+02:60",
            "2026-11-29T15:25+0200",
            "2026-11-29T+15:25",
            "1970-01-01T00:30+01:00",
            "2026-02-29",
            "2026-02-31",
            "2026-04-31",
            "2100-02-29",
        ];
        for text in wrong {
            assert!(parse(text, 0).unwrap_err().message.contains("a time is"), "{text}");
        }
        assert!(parse("2024-02-29", 0).is_ok() && parse("2026-12-31", 0).is_ok() && parse("9999-12-31", 0).is_ok());
    }
}
