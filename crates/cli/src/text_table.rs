//! Text in columns, and numbers for people.

use penstock_base::text;
pub(crate) use penstock_base::text::timestamp;

use crate::legible::legible;

/// Rows as a table without headings. Control characters, which names may have, are shown as escapes.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let is_legible = |row: &Vec<String>| !row.iter().any(|cell| cell.contains(char::is_control));
    if rows.iter().all(is_legible) {
        return text::columns(rows);
    }
    let shown = |row: &Vec<String>| row.iter().map(|cell| legible(cell).into_owned()).collect();
    text::columns(&rows.iter().map(shown).collect::<Vec<_>>())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_write_no_rows_of_their_own() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let rows = [row(["a\nb", "1"]), row(["c\u{1b}[2J", "2"])];
        assert_eq!(columns(&rows), "a\\nb        1\nc\\u{1b}[2J  2\n");
        assert_eq!(columns(&[row(["ü", "1"])]), "ü  1\n");
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
}
