//! Text from outside in Markdown: nothing in it may end a cell, open a tag or become emphasis.
//!
//! The filters of the templates, and their footnotes, which are numbered in the order in which they are first used.

use std::sync::{Arc, Mutex, PoisonError};

use minijinja::{Environment, Value};
use penstock_base::text::clean;

/// Gives the templates of `environment` their filters and footnotes.
pub(super) fn add_to(environment: &mut Environment<'_>) {
    environment.add_filter("plain", |text: &str| plain(text));
    environment.add_filter("sentence", |text: &str| {
        format!("{}.", text.trim_end_matches('.'))
    });
    environment.add_filter("code", |text: &str| code(text));
    environment.add_filter("code_block", |lines: Vec<String>| {
        Value::from_safe_string(code_block(&lines))
    });
    let notes: Arc<Mutex<Vec<String>>> = Arc::default();
    let known = Arc::clone(&notes);
    environment.add_function("footnote", move |note: String| footnote(&known, note));
    environment.add_function("footnotes", move || {
        notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    });
}

/// The mark of `note` in the text; the same text has one number.
fn footnote(notes: &Mutex<Vec<String>>, note: String) -> String {
    let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
    let index = notes.iter().position(|known| *known == note);
    let index = index.unwrap_or_else(|| {
        notes.push(note);
        notes.len() - 1
    });
    format!("[^{}]", index + 1)
}

/// `text` on one line with every character escaped that Markdown, its tables or HTML in it would take for markup.
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
fn code(text: &str) -> String {
    let text = clean(text).replace('|', "\\|");
    let fence = fence(&text, 1);
    format!("{fence} {text} {fence}")
}

/// `lines` as a block of code.
fn code_block(lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| clean(line)).collect();
    let text = lines.join("\n");
    let fence = fence(&text, 3);
    format!("{fence}sh\n{text}\n{fence}")
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
        let block =
            |lines: &[&str]| code_block(&lines.iter().map(|&it| it.to_owned()).collect::<Vec<_>>());
        assert_eq!(block(&["a", "b"]), "```sh\na\nb\n```");
        assert!(block(&["````"]).starts_with("`````sh\n"));
    }

    #[test]
    fn the_same_note_has_one_number() {
        let notes = Mutex::default();
        let marks = ["a", "b", "a"].map(|note| footnote(&notes, note.to_owned()));
        assert_eq!(marks, ["[^1]", "[^2]", "[^1]"]);
        assert_eq!(notes.into_inner().expect("whole"), ["a", "b"]);
    }
}
