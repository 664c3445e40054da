//! Byte counts as people write them.

use std::{fmt, str::FromStr};

use thiserror::Error;

/// 2^10 bytes.
pub const KIB: u64 = 1 << 10;
/// 2^20 bytes.
pub const MIB: u64 = 1 << 20;
/// 2^30 bytes.
pub const GIB: u64 = 1 << 30;

/// Units by descending size. A bare letter is binary, as in `dd` and `fio`.
const UNITS: [(&str, u64); 4] = [("TiB", GIB << 10), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)];

/// A number of bytes that reads and prints with binary units: `8MiB`, `256 KiB`, `4096`, `2G`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// The text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a size: write a whole number of bytes, or one with KiB, MiB, GiB or TiB")]
pub struct ParseSizeError(String);

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, ParseSizeError> {
        let error = || ParseSizeError(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = trimmed.split_at(digits);
        let number: u64 = number.parse().map_err(|_| error())?;
        let factor = factor_of(unit.trim_start()).ok_or_else(error)?;
        number.checked_mul(factor).map(ByteSize).ok_or_else(error)
    }
}

fn factor_of(unit: &str) -> Option<u64> {
    if unit.is_empty() || unit.eq_ignore_ascii_case("b") {
        return Some(1);
    }
    UNITS.iter().find_map(|(name, factor)| {
        let spellings = [name, &name[..1], &format!("{}B", &name[..1])[..]].map(str::to_owned);
        spellings
            .iter()
            .any(|spelling| spelling.eq_ignore_ascii_case(unit))
            .then_some(*factor)
    })
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS
            .iter()
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor));
        match exact {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_usual_spellings() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("8MiB", 8 * MIB),
            ("8 m", 8 * MIB),
            ("2gb", 2 * GIB),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_size() {
        for text in ["", "MiB", "-1", "1.5G", "8 potatoes", "99999999999999TiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_are_inverse(bytes: u64) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
    }
}
