//! Footnotes, numbered in the order in which they are first used; the same text has one number.

use super::escape::plain;

/// The notes of a document.
#[derive(Debug, Default)]
pub(super) struct Footnotes {
    notes: Vec<String>,
}

impl Footnotes {
    /// The mark of `note` in the text.
    pub(super) fn mark(&mut self, note: &str) -> String {
        let known = self.notes.iter().position(|known| known == note);
        let index = known.unwrap_or_else(|| {
            self.notes.push(note.to_owned());
            self.notes.len() - 1
        });
        format!("[^{}]", index + 1)
    }

    /// The notes themselves, for the end of the document.
    pub(super) fn definitions(&self) -> String {
        let lines = self.notes.iter().enumerate();
        lines
            .map(|(index, note)| format!("\n[^{}]: {}\n", index + 1, plain(note)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_note_has_one_number() {
        let mut notes = Footnotes::default();
        assert_eq!(
            [notes.mark("a"), notes.mark("b"), notes.mark("a")],
            ["[^1]", "[^2]", "[^1]"]
        );
        assert_eq!(notes.definitions(), "\n[^1]: a\n\n[^2]: b\n");
    }
}
