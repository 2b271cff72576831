//! Moments as the documents' callers write them, and as they are answered: `2026-11-21T07:05:17.123Z`.
//!
//! Walk: [`parse`] a date, `T` or a blank, hours and minutes, and maybe seconds, a fraction, `Z` or an offset; without an
//! offset it is UTC · [`show`] always in UTC, with milliseconds.

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// Milliseconds since 1970, if the text is a moment from then on.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let (date, rest) = text.split_at_checked(10)?;
    let mut parts = date.split('-');
    let (year, month, day) = (number(parts.next()?, 4)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=days(year, month)).contains(&day) {
        return None;
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (time, offset) = match rest.find(['Z', 'z', '+', '-']) {
        None => (rest, 0),
        Some(at) => {
            let (time, zone) = rest.split_at_checked(at)?;
            (time, offset(zone)?)
        }
    };
    let day_ms = since_midnight(time)?;
    let total = day_number(year, month, day) * DAY_MS + day_ms - offset;
    u64::try_from(total).ok()
}

/// `07:05`, `07:05:17`, `07:05:17.123456`.
fn since_midnight(time: &str) -> Option<i64> {
    let mut parts = time.split(':');
    let (hours, minutes) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let (seconds, fraction) = match parts.next() {
        None => ("00", ""),
        Some(text) => text.split_once('.').unwrap_or((text, "")),
    };
    let seconds = number(seconds, 2)?;
    let is_fraction = fraction.len() <= 9 && fraction.bytes().all(|digit| digit.is_ascii_digit());
    if parts.next().is_some() || hours > 23 || minutes > 59 || seconds > 59 || !is_fraction {
        return None;
    }
    let ms = format!("{fraction:0<3}").get(..3)?.parse::<i64>().ok()?;
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000 + ms)
}

/// `Z`, `+01:00`, `-0730`, in milliseconds.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let digits = zone.get(1..)?.replace(':', "");
    let (hours, minutes) = digits.split_at_checked(2)?;
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    (hours <= 18 && minutes <= 59).then_some(sign * (hours * 60 + minutes) * 60_000)
}

fn number(text: &str, digits: usize) -> Option<i64> {
    let is_number = text.len() == digits && text.bytes().all(|digit| digit.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

const fn days(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970 of a date of the Gregorian calendar. Years begin in March here, so that a leap day is their last.
const fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// As a text, in UTC.
pub(crate) fn show(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let (number, of_day) = (ms / DAY_MS + 719_468, ms % DAY_MS);
    let (era, of_era) = (number.div_euclid(146_097), number.rem_euclid(146_097));
    let years = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * years + years / 4 - years / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = years + era * 400 + i64::from(month <= 2);
    let (seconds, ms) = (of_day / 1_000, of_day % 1_000);
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_that_clients_send_is_the_same_moment() {
        let moment = Some(1_763_708_717_120);
        for text in [
            "2025-11-21T07:05:17.120Z",
            "2025-11-21 07:05:17.12",
            "2025-11-21T07:05:17.120000",
            "2025-11-21T08:05:17.120+01:00",
            "2025-11-20T23:35:17.120-0730",
        ] {
            assert_eq!(parse(text), moment, "{text}");
        }
        assert_eq!((parse("2025-11-21T07:05"), parse("1970-01-01T00:00:00Z")), (Some(1_763_708_700_000), Some(0)));
        for wrong in [
            "",
            "2025",
            "2025-11-21",
            "2025-13-01T00:00",
            "2025-02-29T00:00",
            "2025-11-21T24:00",
            "2025-11-21T07:60",
            "2025-11-21T07:05:60",
            "2025-11-21T07:05:17.x",
            "2025-11-21T07:05+99:00",
            "1969-12-31T23:59:59Z",
            "x025-11-21T07:05",
            "2025-11-21T7:05",
            "2025-11-21T07:05:17Zx",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_is_what_was_read() {
        for text in [
            "1970-01-01T00:00:00.000Z",
            "2000-02-29T23:59:59.999Z",
            "2100-03-01T00:00:00.000Z",
            "2026-12-31T12:00:00.001Z",
        ] {
            assert_eq!(show(parse(text).unwrap()), text);
        }
    }
}
