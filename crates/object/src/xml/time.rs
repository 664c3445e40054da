//! Time stamps of listings.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Reads `2020-05-18T05:45:54.123Z`; the fraction is optional, the zone must be UTC.
pub fn parse_time(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    let time: Timestamp = text.ends_with('Z').then(|| text.parse().ok())??;
    Some(SystemTime::from(time)).filter(|time| *time >= UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
