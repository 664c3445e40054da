//! Values as bytes: little endian, behind a byte that says which layout they have.

use std::{
    ops::RangeInclusive,
    time::{Duration, SystemTime},
};

use bytes::{Buf, BufMut};
use penstock_base::FsResult;

use super::damaged;

/// Takes the layout's version off a value, which must be `known`.
pub(super) fn take_version(value: &mut &[u8], known: u8, what: &str) -> FsResult<()> {
    take_version_of(value, known..=known, what).map(drop)
}

/// The same where several are known.
pub(super) fn take_version_of(
    value: &mut &[u8],
    known: RangeInclusive<u8>,
    what: &str,
) -> FsResult<u8> {
    match value.try_get_u8() {
        Ok(version) if known.contains(&version) => Ok(version),
        _ => Err(damaged(what)),
    }
}

/// Seconds and nanoseconds, as `stat` shows them: also before 1970.
pub(super) fn put_time(bytes: &mut impl BufMut, time: SystemTime) {
    let (seconds, nanoseconds) = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => (since.as_secs() as i64, since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let partial = i64::from(before.subsec_nanos() > 0);
            let seconds = -(before.as_secs() as i64) - partial;
            let nanoseconds = (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000;
            (seconds, nanoseconds)
        }
    };
    bytes.put_i64_le(seconds);
    bytes.put_u32_le(nanoseconds);
}

/// The time that [`put_time`] put.
pub(super) fn take_time(value: &mut &[u8]) -> Option<SystemTime> {
    let seconds = value.try_get_i64_le().ok()?;
    let nanoseconds = Duration::from_nanos(u64::from(value.try_get_u32_le().ok()?));
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = match seconds >= 0 {
        true => SystemTime::UNIX_EPOCH.checked_add(whole)?,
        false => SystemTime::UNIX_EPOCH.checked_sub(whole)?,
    };
    time.checked_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_before_and_after_1970() {
        for nanoseconds in [
            0_i64,
            1,
            -1,
            1_500_000_000,
            -1_500_000_000,
            5_000_000_000_000_000_000,
        ] {
            let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
            let time = match nanoseconds >= 0 {
                true => SystemTime::UNIX_EPOCH + distance,
                false => SystemTime::UNIX_EPOCH - distance,
            };
            let mut bytes = Vec::new();
            put_time(&mut bytes, time);
            assert_eq!(take_time(&mut &bytes[..]), Some(time), "{nanoseconds}");
        }
    }
}
