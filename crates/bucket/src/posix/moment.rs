//! Times as text: seconds since 1970 with a fraction, or RFC 3339.
//!
//! Before 1970 the fraction counts forward as in `struct timespec`: `-2.500000000` is one and a half
//! seconds before 1970, which is what ossfs and s3fs write for it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

const NANOS: u32 = 1_000_000_000;

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
        return text.parse().ok().map(|time: Timestamp| time.into());
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
