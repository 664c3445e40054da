//! Text in columns, and numbers for people.

pub(crate) use penstock_base::text::{columns, timestamp};

/// A number of bytes with three digits and a unit: `1.25 GiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1_047_552, "1023 KiB"),
            (1_048_100, "1.00 MiB"),
            (12 << 30, "12.0 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}
