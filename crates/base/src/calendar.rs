//! Dates of the Gregorian calendar, by the days since 1970-01-01.
//!
//! Years begin in March here, so that the leap day is the last of its year, and are counted in eras
//! of 400, after which the calendar repeats.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS_FROM_YEAR_0: u64 = 719_468;
const DAYS_PER_ERA: u64 = 146_097;

/// Year, month and day of the day that is `days` after 1970-01-01.
#[must_use]
pub fn date_of(days: u64) -> (u64, u64, u64) {
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

/// Days from 1970-01-01 to a date, which may lie before.
#[must_use]
pub fn days_until(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA.cast_signed() + day_of_era - DAYS_FROM_YEAR_0.cast_signed()
}

/// A time in UTC as RFC 3339 has it, `2026-11-22T10:15:30Z`; nothing is before 1970.
#[must_use]
pub fn timestamp(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (year, month, day) = date_of(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn knows_the_days_around_leap_days() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (19_782, (2024, 2, 29)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date_of(days), date);
        }
        assert_eq!(days_until(1969, 12, 31), -1);
    }

    #[test]
    fn timestamps_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (1_702_743_657, "2023-12-16T16:20:57Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    proptest! {
        #[test]
        fn dates_lead_back_to_their_days(days in 0_u64..4_000_000) {
            let (year, month, day) = date_of(days);
            let [year, month, day] = [year, month, day].map(u64::cast_signed);
            prop_assert_eq!(days_until(year, month, day), days.cast_signed());
        }
    }
}
