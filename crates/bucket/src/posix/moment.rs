//! Times as text: seconds since 1970 with a fraction, or RFC 3339.
//!
//! Before 1970 the fraction counts forward as in `struct timespec`: `-2.500000000` is one and a half
//! seconds before 1970, which is what ossfs and s3fs write for it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_base::calendar;

const NANOS: u32 = 1_000_000_000;
const DAY: i64 = 86_400;

/// Seconds since 1970, rounded down, and the nanoseconds after that.
fn parts(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs().cast_signed(), since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let whole = -before.as_secs().cast_signed();
            match before.subsec_nanos() {
                0 => (whole, 0),
                nanos => (whole - 1, NANOS - nanos),
            }
        }
    }
}

fn from_parts(seconds: i64, nanos: u32) -> Option<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)?
    } else {
        UNIX_EPOCH.checked_add(whole)?
    };
    start.checked_add(Duration::from_nanos(nanos.into()))
}

/// Seconds since 1970, and nine digits of nanoseconds unless they are 0.
pub(super) fn format(time: SystemTime) -> String {
    match parts(time) {
        (seconds, 0) => seconds.to_string(),
        (seconds, nanos) => format!("{seconds}.{nanos:09}"),
    }
}

/// Reads what is a time, in whichever form.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    if text.contains('T') {
        return parse_calendar(text);
    }
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    from_parts(seconds.parse().ok()?, parse_fraction(fraction)?)
}

/// Digits after the point as nanoseconds; beyond the ninth they are dropped.
fn parse_fraction(digits: &str) -> Option<u32> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = &digits[..digits.len().min(9)];
    format!("{kept:0<9}").parse().ok()
}

/// Reads `2001-02-03T04:05:06.5Z` and the like.
fn parse_calendar(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_once('T')?;
    let zone = rest.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = rest.split_at(zone);
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let valid = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second)
        && (0..=9999).contains(&year);
    let seconds = calendar::days_until(year, month, day) * DAY + hour * 3600 + minute * 60 + second;
    valid
        .then_some(seconds - offset(zone)?)
        .and_then(|seconds| from_parts(seconds, parse_fraction(fraction)?))
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut words = text.split(separator);
    let mut next = || {
        let word = words.next()?;
        let digits = !word.is_empty() && word.len() <= 4;
        (digits && word.bytes().all(|byte| byte.is_ascii_digit())).then(|| word.parse().ok())?
    };
    let numbers = [next()?, next()?, next()?];
    words.next().is_none().then_some(numbers)
}

/// Seconds that a zone such as `+02:00` is ahead.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("Z") {
        return Some(0);
    }
    let (sign, zone) = match zone.split_at_checked(1)? {
        ("+", zone) => (1, zone),
        ("-", zone) => (-1, zone),
        _ => return None,
    };
    let [hours, minutes, _] = numbers(&format!("{zone}:0"), ':')?;
    Some(sign * (hours * 3600 + minutes * 60))
}
