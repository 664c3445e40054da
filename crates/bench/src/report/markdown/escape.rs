//! Text from outside in Markdown: nothing in it may end a cell, open a tag or become emphasis.

use crate::report::terminal::text::clean;

/// `text` on one line with every character escaped that Markdown, its tables or HTML in it would take for markup.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in clean(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}

/// `text` as code within a line: fenced by more backticks than it holds, pipes escaped for tables.
#[must_use]
pub fn code(text: &str) -> String {
    let text = clean(text).replace('|', "\\|");
    let fence = fence(&text, 1);
    format!("{fence} {text} {fence}")
}

/// `text` as a block of code.
#[must_use]
pub fn code_block(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(clean).collect();
    let text = lines.join("\n");
    let fence = fence(&text, 3);
    format!("{fence}sh\n{text}\n{fence}\n")
}

/// One backtick more than the longest run of them in `text`, and at least `least`.
fn fence(text: &str, least: usize) -> String {
    let runs = text.split(|c| c != '`').map(str::len);
    "`".repeat(runs.max().map_or(least, |longest| least.max(longest + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_only_text() {
        assert_eq!(plain("<b>|a`*_[x]\n#"), r"&lt;b&gt;\|a\`\*\_\[x\] \#");
    }

    #[test]
    fn code_is_fenced_by_more_than_it_holds() {
        assert_eq!(code("a ``b`` | c"), "``` a ``b`` \\| c ```");
        assert_eq!(code_block("a\nb"), "```sh\na\nb\n```\n");
        assert!(code_block("````").starts_with("`````sh\n"));
    }
}
