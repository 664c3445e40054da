//! Dates as signatures write them.

use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;

/// `YYYYMMDD`.
pub fn basic_date(time: SystemTime) -> String {
    let (year, month, day) = civil_date(seconds(time) / SECONDS_PER_DAY);
    format!("{year:04}{month:02}{day:02}")
}

/// `YYYYMMDDThhmmssZ`.
pub fn basic_time(time: SystemTime) -> String {
    let of_day = seconds(time) % SECONDS_PER_DAY;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{}T{hour:02}{minute:02}{second:02}Z", basic_date(time))
}

/// `Thu, 01 Jan 1970 00:00:00 GMT`.
pub fn http_date(time: SystemTime) -> String {
    httpdate::fmt_http_date(time)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Years are
/// counted from March so that the leap day is the last of its year.
fn civil_date(days: u64) -> (u64, u64, u64) {
    const DAYS_FROM_YEAR_0: u64 = 719_468;
    const DAYS_PER_ERA: u64 = 146_097;
    let days = days + DAYS_FROM_YEAR_0;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let leap_days = day_of_era / 1460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
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
