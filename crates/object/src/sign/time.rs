//! Dates as signatures write them.

use std::time::SystemTime;

use jiff::{Timestamp, civil::DateTime, tz::Offset};

/// `YYYYMMDD`.
pub(crate) fn basic_date(time: SystemTime) -> String {
    let time = in_utc(time);
    format!("{:04}{:02}{:02}", time.year(), time.month(), time.day())
}

/// `YYYYMMDDThhmmssZ`.
pub(crate) fn basic_time(time: SystemTime) -> String {
    let time = in_utc(time);
    let (year, month, day) = (time.year(), time.month(), time.day());
    let (hour, minute, second) = (time.hour(), time.minute(), time.second());
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// `Thu, 01 Jan 1970 00:00:00 GMT`.
pub(crate) fn http_date(time: SystemTime) -> String {
    httpdate::fmt_http_date(time)
}

fn in_utc(time: SystemTime) -> DateTime {
    // A time that no calendar has is the first that there is.
    Offset::UTC.to_datetime(Timestamp::try_from(time).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn knows_leap_days() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_702_743_657, "20231216T162057Z"),
            (4_107_542_399, "21000228T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(basic_time(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_http_date(seconds in 0u64..7_000_000_000) {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            let (date, http) = (basic_date(time), http_date(time));
            prop_assert_eq!(&date[6..], &http[5..7]);
            prop_assert_eq!(&date[..4], &http[12..16]);
        }
    }
}
