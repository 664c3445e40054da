//! Text on a terminal: how wide it is, how to cut and break it, and how to make it harmless.

/// `text` without anything that a terminal would obey: control characters become spaces, runs of white space one space.
#[must_use]
pub fn clean(text: &str) -> String {
    let visible: String = text
        .chars()
        .map(|c| if is_unsafe(c) { ' ' } else { c })
        .collect();
    visible.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Controls, and marks that reorder or hide what stands around them.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Columns that `text` takes: ideographs and their like take two.
#[must_use]
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
#[must_use]
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

/// `text` in lines of at most `limit` columns, broken at spaces; a word that is longer is cut.
#[must_use]
pub fn wrap(text: &str, limit: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.is_empty() {
            *line = truncate(word, limit);
        } else if width(line) + 1 + width(word) <= limit {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(truncate(word, limit));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    proptest! {
        #[test]
        fn no_line_is_wider_than_asked_and_no_short_word_is_lost(text in "[a-z对 ]{0,80}", limit in 4_usize..30) {
            let lines = wrap(&text, limit);
            prop_assert!(lines.iter().all(|line| width(line) <= limit));
            let fitting = text.split_whitespace().all(|word| width(word) <= limit);
            if fitting {
                let words: Vec<_> = text.split_whitespace().collect();
                let joined = lines.join(" ");
                prop_assert_eq!(joined.trim(), words.join(" "));
            }
        }

        #[test]
        fn clean_text_has_no_controls(text in any::<String>()) {
            prop_assert!(!clean(&text).chars().any(char::is_control));
        }
    }
}
