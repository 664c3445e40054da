//! Text from outside, such as names of objects, made fit for a terminal and for a log.
//!
//! A name may hold newlines and escape sequences: as it is, it could write lines into a log that
//! nobody logged, or play with the terminal of whoever reads it.

use std::borrow::Cow;

/// `text` with control characters as escapes.
pub(crate) fn legible(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if letter.is_control() {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_visible() {
        assert!(matches!(legible("a b/ü"), Cow::Borrowed("a b/ü")));
        assert_eq!(legible("a\nb\u{1b}[2J\u{9b}"), "a\\nb\\u{1b}[2J\\u{9b}");
    }
}
