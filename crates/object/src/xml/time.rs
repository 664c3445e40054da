//! Time stamps of listings.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_base::calendar;

/// Reads `2020-05-18T05:45:54.123Z`; the fraction is optional, the zone must be UTC.
pub fn parse_time(text: &str) -> Option<SystemTime> {
    let text = text.trim().strip_suffix('Z')?;
    let (date, time) = text.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let in_range = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !in_range {
        return None;
    }
    let [year, month, day] = [year, month, day].map(u64::cast_signed);
    let days = calendar::days_until(year, month, day).cast_unsigned();
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    Some(UNIX_EPOCH + Duration::from_secs(seconds) + parse_fraction(fraction)?)
}

fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let mut parts = text.split(separator).map(parse_digits);
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

fn parse_digits(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn parse_fraction(digits: &str) -> Option<Duration> {
    if digits.is_empty() {
        return Some(Duration::ZERO);
    }
    parse_digits(digits)?;
    let nanoseconds = format!("{digits:0<9}")[..9].parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_fractions() {
        let time = parse_time("2020-05-18T05:45:54.25Z").expect("valid");
        let since = time.duration_since(UNIX_EPOCH).expect("later");
        assert_eq!(since, Duration::from_millis(1_589_780_754_250));
    }

    #[test]
    fn refuses_nonsense() {
        for text in [
            "",
            "2020-05-18",
            "2020-13-18T05:45:54Z",
            "2020-05-18T05:45:54+01:00",
            "1-1-1T1:1:1Z",
            "2020-05-18T05:45:54.xZ",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_writer(seconds in 0u64..200_000_000_000) {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            let basic = crate::sign::basic_time(time);
            let (d, t) = (&basic[..8], &basic[9..15]);
            let text = format!("{}-{}-{}T{}:{}:{}Z", &d[..4], &d[4..6], &d[6..], &t[..2], &t[2..4], &t[4..]);
            prop_assert_eq!(parse_time(&text), Some(time));
        }

        #[test]
        fn never_panics(text: String) {
            let _ = parse_time(&text);
        }
    }
}
