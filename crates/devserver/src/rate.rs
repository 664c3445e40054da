//! Amounts and rates: `128KiB`, `1GiB` a second, `30ms`, and waiting so that they hold.

use std::{
    str::FromStr,
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::{clock, sync};

/// A number of bytes, written with or without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteCount(pub(crate) u64);

impl FromStr for ByteCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split_unit(text);
        let factor = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1u64 << 40,
            _ => {
                return Err(format!(
                    "`{text}`: the unit is not one of KiB, MiB, GiB, TiB"
                ));
            }
        };
        let number: u64 = number
            .parse()
            .map_err(|_| format!("`{text}` is not a number of bytes"))?;
        number
            .checked_mul(factor)
            .map(Self)
            .ok_or_else(|| format!("`{text}` is too large"))
    }
}

/// Parses a number of bytes such as `1GiB`, `128KiB` or `77`.
///
/// # Errors
/// The text is not one; says why.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    text.parse::<ByteCount>().map(|count| count.0)
}

/// Parses a duration such as `30ms`, `2s`, `500us` or `0`.
///
/// # Errors
/// The text is not one; says why.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("`{text}` is not a duration"))?;
    match unit {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "" if number == 0 => Ok(Duration::ZERO),
        _ => Err(format!("`{text}`: the unit is not one of us, ms, s")),
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// Spaces bytes out so that a rate holds over time, shared by whoever holds a reference.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// When what was reserved so far has gone.
    free_at: Mutex<Option<Instant>>,
}

impl Pacer {
    /// Reserves `bytes` at `rate` bytes per second and returns how long to wait before they
    /// may go.
    pub(crate) fn reserve(&self, bytes: u64, rate: u64) -> Duration {
        let now = clock::now();
        let mut free_at = sync::lock(&self.free_at);
        let start = free_at.map_or(now, |at| at.max(now));
        *free_at = Some(start + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64));
        start - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_parsed() {
        assert_eq!("128KiB".parse(), Ok(ByteCount(128 << 10)));
        assert_eq!("2 GiB".parse(), Ok(ByteCount(2 << 30)));
        assert_eq!("77".parse(), Ok(ByteCount(77)));
        assert!("1parsec".parse::<ByteCount>().is_err());
        assert!("99999999999TiB".parse::<ByteCount>().is_err());
        assert_eq!(parse_duration("30ms"), Ok(Duration::from_millis(30)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert!(parse_duration("30").is_err());
    }

    #[test]
    fn a_pacer_keeps_its_rate() {
        let pacer = Pacer::default();
        assert_eq!(pacer.reserve(1000, 1000), Duration::ZERO);
        let wait = pacer.reserve(1000, 1000);
        assert!(wait > Duration::from_millis(900) && wait <= Duration::from_secs(1));
    }
}
