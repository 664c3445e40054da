//! Dates as signatures write them.

use std::time::{SystemTime, UNIX_EPOCH};

use penstock_base::calendar;

const SECONDS_PER_DAY: u64 = 86_400;

/// `YYYYMMDD`.
pub(crate) fn basic_date(time: SystemTime) -> String {
    let (year, month, day) = calendar::date_of(seconds(time) / SECONDS_PER_DAY);
    format!("{year:04}{month:02}{day:02}")
}

/// `YYYYMMDDThhmmssZ`.
pub(crate) fn basic_time(time: SystemTime) -> String {
    let of_day = seconds(time) % SECONDS_PER_DAY;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{}T{hour:02}{minute:02}{second:02}Z", basic_date(time))
}

/// `Thu, 01 Jan 1970 00:00:00 GMT`.
pub(crate) fn http_date(time: SystemTime) -> String {
    httpdate::fmt_http_date(time)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
