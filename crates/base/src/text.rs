//! Text for a terminal: how wide it is, how it is cut and broken, how it is made harmless, and tables.
//!
//! A [`Table`] makes each column as wide as its widest cell. Where the whole is wider than the terminal, columns are
//! dropped from the right until it fits, so their order is that of importance. Only what a caller styled carries ANSI
//! sequences, and only when it asked for colour.

use std::{ops::Range, time::SystemTime};

use jiff::Timestamp;

/// `text` without anything that a terminal would obey: control characters become spaces, runs of white space one space.
pub fn clean(text: &str) -> String {
    let visible = text.replace(is_unsafe, " ");
    visible.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Controls, marks that reorder or hide what stands around them, and what no XML may hold.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
            | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Columns that `text` takes: ideographs and their like take two.
pub fn width(text: &str) -> usize {
    text.chars().map(|c| if is_wide(c) { 2 } else { 1 }).sum()
}

fn is_wide(c: char) -> bool {
    matches!(c,
        '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}' | '\u{ff00}'..='\u{ff60}' | '\u{ffe0}'..='\u{ffe6}' | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}')
}

/// `text` in at most `limit` columns; what was cut ends in `…`.
pub fn truncate(text: &str, limit: usize) -> String {
    if width(text) <= limit {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        if width(&kept) + width(c.encode_utf8(&mut [0; 4])) >= limit {
            break;
        }
        kept.push(c);
    }
    if limit > 0 {
        kept.push('…');
    }
    kept
}

/// `text` in lines of at most `limit` columns, broken at spaces. A longer word has a line of its own, whole.
pub fn wrap(text: &str, limit: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    // Not at every white space: a number stays with its unit.
    for word in text
        .split([' ', '\n', '\t'])
        .filter(|word| !word.is_empty())
    {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.is_empty() {
            word.clone_into(line);
        } else if width(line) + 1 + width(word) <= limit {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// `text` with the ANSI style of this number, such as "1;32", or as it is without one.
pub fn styled(text: &str, style: &str) -> String {
    match style {
        "" => text.to_owned(),
        style => format!("\u{1b}[{style}m{text}\u{1b}[0m"),
    }
}

/// One piece of text in a table.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// What stands there.
    pub text: String,
    /// The number of its ANSI style; none if empty.
    pub style: &'static str,
    /// It reaches over all columns behind its own, and is cut where the line must end.
    pub reaches_over: bool,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

/// Rows of text whose columns line up.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Top to bottom, headings first.
    pub rows: Vec<Vec<Cell>>,
    /// How many of the rows are headings, which have a rule under them.
    pub headings: usize,
    /// The columns that stand to the right, as numbers do.
    pub numbers: Range<usize>,
    /// What each line begins with.
    pub indent: &'static str,
    /// Lines between columns are drawn with box characters.
    pub boxes: bool,
    /// Styles are shown.
    pub colour: bool,
}

impl Table {
    /// The width at which nothing is dropped or cut; cells that reach over columns do not count.
    pub fn width(&self) -> usize {
        self.end_of(&self.widths())
    }

    /// Its lines, each with a newline, in at most `limit` columns as long as that leaves two columns of the table.
    pub fn draw(&self, limit: usize) -> String {
        let mut widths = self.widths();
        while widths.len() > 2 && self.end_of(&widths) > limit {
            widths.pop();
        }
        let mut out = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 && index == self.headings {
                out.push_str(&self.rule(&widths));
            }
            out.push_str(&self.line(row, &widths, limit));
        }
        out
    }

    fn widths(&self) -> Vec<usize> {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let of_column = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let cells = cells.filter(|cell| !cell.reaches_over);
            cells.map(|cell| width(&cell.text)).max().unwrap_or(0)
        };
        (0..count).map(of_column).collect()
    }

    fn gap(&self) -> &'static str {
        if self.boxes { " │ " } else { "  " }
    }

    /// Where a line of columns of these widths ends.
    fn end_of(&self, widths: &[usize]) -> usize {
        let gaps = self.gap().chars().count() * widths.len().saturating_sub(1);
        self.indent.len() + widths.iter().sum::<usize>() + gaps
    }

    fn line(&self, row: &[Cell], widths: &[usize], limit: usize) -> String {
        let mut line = self.indent.to_owned();
        for (column, (cell, wanted)) in row.iter().zip(widths).enumerate() {
            if column > 0 {
                line.push_str(self.gap());
            }
            let mut padding = " ".repeat(wanted.saturating_sub(width(&cell.text)));
            let mut text = cell.text.clone();
            if cell.reaches_over {
                let begin = self.end_of(&widths[..column]) + self.gap().chars().count();
                text = truncate(&text, limit.saturating_sub(begin));
                padding.clear();
            }
            let text = styled(&text, if self.colour { cell.style } else { "" });
            line.push_str(&match self.numbers.contains(&column) {
                true => padding + &text,
                false => text + &padding,
            });
        }
        line.truncate(line.trim_end().len());
        line + "\n"
    }

    fn rule(&self, widths: &[usize]) -> String {
        let (line, cross) = if self.boxes {
            ("─", "─┼─")
        } else {
            ("-", "  ")
        };
        let parts: Vec<String> = widths.iter().map(|width| line.repeat(*width)).collect();
        format!("{}{}\n", self.indent, parts.join(cross))
    }
}

/// Rows of plain text as a table without headings.
pub fn columns(rows: &[Vec<String>]) -> String {
    let cells = |row: &Vec<String>| row.iter().map(Cell::from).collect();
    let rows = rows.iter().map(cells).collect();
    let table = Table {
        rows,
        ..Table::default()
    };
    table.draw(usize::MAX)
}

/// A time in UTC to the second as RFC 3339 has it, `2026-11-22T10:15:30Z`.
pub fn timestamp(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or_default();
    let whole = Timestamp::from_second(time.as_second()).unwrap_or_default();
    whole.to_string()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn timestamps_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert_eq!(clean("a\u{1b}[31mb\n\u{7}c\u{202e}d"), "a [31mb c d");
    }

    #[test]
    fn ideographs_take_two_columns() {
        assert_eq!(width("对象a"), 5);
        assert_eq!(truncate("对象存储", 5), "对象…");
        assert_eq!(truncate("abc", 0), "");
    }

    #[test]
    fn long_text_is_broken_between_words() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("two\u{a0}three four", 9), ["two\u{a0}three", "four"]);
        assert_eq!(wrap("unbreakable", 3), ["unbreakable"]);
        assert_eq!(wrap("", 3), [""]);
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a", "bb", "c"], ["aaa", "b", ""]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows), "a    bb  c\naaa  b\n");
    }

    #[test]
    fn what_is_too_wide_loses_columns_from_the_right_and_long_texts_their_ends() {
        let over = Cell {
            style: "31",
            reaches_over: true,
            ..Cell::from("a long reason")
        };
        let table = Table {
            rows: vec![
                ["who", "1st", "2nd"].map(Cell::from).into(),
                ["me", "5", "6"].map(Cell::from).into(),
                vec![Cell::from("you"), over],
            ],
            headings: 1,
            numbers: 1..3,
            ..Table::default()
        };
        let whole = "who  1st  2nd\n---  ---  ---\nme     5    6\nyou  a long …\n";
        assert_eq!((table.width(), table.draw(13).as_str()), (13, whole));
        let less = "who  1st\n---  ---\nme     5\nyou  a long…\n";
        assert_eq!(table.draw(12), less);
        let coloured = Table {
            colour: true,
            boxes: true,
            ..table
        };
        assert!(
            coloured
                .draw(80)
                .contains("you │ \u{1b}[31ma long reason\u{1b}[0m\n")
        );
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_asked_and_no_word_is_lost(text in "[a-z对 ]{0,80}", limit in 4_usize..30) {
            let lines = wrap(&text, limit);
            let is_whole = |line: &String| width(line) <= limit || !line.contains(' ');
            prop_assert!(lines.iter().all(is_whole));
            let words: Vec<_> = text.split_whitespace().collect();
            let joined = lines.join(" ");
            prop_assert_eq!(joined.trim(), words.join(" "));
        }

        #[test]
        fn clean_text_has_no_controls(text in any::<String>()) {
            prop_assert!(!clean(&text).chars().any(char::is_control));
        }
    }
}
