//! Text in columns, and numbers for people.

use std::time::SystemTime;

use jiff::Timestamp;

/// Rows of text, each column as wide as its widest cell. The last column is not padded.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let width_of = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width_of).collect();
    let mut text = String::new();
    for row in rows {
        let padded = row.iter().zip(&widths).map(|(cell, width)| {
            let pad = width - cell.chars().count();
            format!("{cell}{}", " ".repeat(pad))
        });
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Text broken into lines of at most `width` letters, as far as its words allow.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one from the beginning");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

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

/// A time as `2026-11-22T10:15:30Z`.
pub(crate) fn timestamp(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or_default();
    let whole = Timestamp::from_second(time.as_second()).unwrap_or_default();
    whole.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn long_text_is_broken_between_words() {
        assert_eq!(wrapped("one two  three", 7), "one two\nthree");
        assert_eq!(wrapped("unbreakable", 3), "unbreakable");
        assert_eq!(wrapped("", 3), "");
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a", "bb", "c"], ["aaa", "b", ""]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows), "a    bb  c\naaa  b\n");
    }

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

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(timestamp(time), text);
        }
    }
}
