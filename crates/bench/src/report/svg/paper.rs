//! The paper of a picture: what is written on it from top to bottom, and then its size.
//!
//! SVG breaks no lines, so texts are broken here, by the same safe estimate of how wide letters are that the charts use.

use crate::{
    record::Report,
    report::charts::{
        self,
        chart::{label, line},
        colour,
        markup::{Markup, Px},
    },
};

/// Around everything.
const MARGIN: f64 = 28.0;
/// How wide a letter is, as a part of the height of the type.
const LETTER: f64 = 0.57;
/// From line to line, as a part of it.
const LEADING: f64 = 1.35;

const STYLE: &str = include_str!("paper.css");

/// A kind of text: its class in the style sheet and the height of its type there.
#[derive(Clone, Copy)]
pub(super) struct Type {
    class: &'static str,
    size: f64,
}

const fn of(class: &'static str, size: f64) -> Type {
    Type { class, size }
}

pub(super) const TITLE: Type = of("title", 22.0);
pub(super) const SENTENCE: Type = of("sentence", 15.0);
pub(super) const HEADING: Type = of("heading", 14.0);
pub(super) const SOFT: Type = of("soft", 13.0);
pub(super) const NOTE: Type = of("small", 12.0);

/// A picture that is being written.
pub(super) struct Paper {
    pub(super) markup: Markup,
    /// Between the margins.
    width: f64,
    y: f64,
}

impl Paper {
    /// Paper with `width` units between its margins.
    pub(super) fn new(width: f64) -> Self {
        Self {
            markup: Markup::picture(),
            width,
            y: MARGIN,
        }
    }

    /// Where the next thing goes: the left margin, and how far down.
    pub(super) fn corner(&self) -> (f64, f64) {
        (MARGIN, self.y)
    }

    /// Goes down.
    pub(super) fn skip(&mut self, units: f64) {
        self.y += units;
    }

    /// A line from margin to margin.
    pub(super) fn rule(&mut self, class: &str) {
        let (from, to) = ((MARGIN, self.y), (MARGIN + self.width, self.y));
        line(&mut self.markup, class, from, to);
    }

    /// Writes `text` in as many lines as it needs.
    pub(super) fn write(&mut self, kind: Type, text: &str) {
        for text in broken(text, self.width, kind.size) {
            let at = (MARGIN, self.y + kind.size);
            label(&mut self.markup, kind.class, at, &text);
            self.y += kind.size * LEADING;
        }
    }

    /// What all pictures of `report` end with: who was measured, where, and when.
    pub(super) fn conditions(&mut self, report: &Report, clients: &[&str]) {
        self.skip(8.0);
        self.rule("rule");
        self.skip(8.0);
        let versions = report.clients.iter();
        let versions = versions.filter(|client| clients.contains(&client.name.as_str()));
        let versions = versions.map(|client| {
            let text = format!("{} {}", client.name, colour::version_of(client));
            text.trim().to_owned()
        });
        let versions: Vec<String> = versions.collect();
        self.write(NOTE, &format!("{}.", versions.join(" · ")));
        self.write(NOTE, &place(report));
    }

    /// The whole file.
    pub(super) fn finish(self, report: &Report, subject: &str, title: &str) -> String {
        let (width, height) = (self.width + 2.0 * MARGIN, self.y + MARGIN);
        let view = format!("0 0 {} {}", Px(width), Px(height));
        let mut root = Markup::picture();
        let (width, height) = (Px(width), Px(height));
        let attributes: &[(&'static str, &dyn std::fmt::Display)] = &[
            ("xmlns", &"http://www.w3.org/2000/svg"),
            ("viewBox", &view),
            ("width", &width),
            ("height", &height),
            ("role", &"img"),
            ("aria-labelledby", &"title"),
        ];
        root.within("svg", attributes, |root| {
            root.leaf("title", &[("id", &"title")], title);
            root.within("style", &[], |root| {
                root.trusted(&charts::style(report, Some(subject)));
                root.trusted(STYLE);
            });
            let whole = "100%";
            let paper: &[(&'static str, &dyn std::fmt::Display)] =
                &[("class", &"paper"), ("width", &whole), ("height", &whole)];
            root.empty("rect", paper);
            root.trusted(&self.markup.finish());
        });
        root.finish()
    }
}

/// Where and when it was measured, in a sentence.
fn place(report: &Report) -> String {
    let machine = &report.machine;
    let day = report.started.split('T').next().unwrap_or_default();
    let memory = charts::memory(machine);
    let shared = if report.endpoint.same_machine {
        ", which shares the processors"
    } else {
        ""
    };
    format!(
        "Measured {day} with {} × {} and {memory} of memory, Linux {}, against {}{shared}.",
        machine.processors, machine.processor, machine.kernel, report.endpoint.description
    )
}

/// `text` in lines that fit into `units` in type of `size`.
pub(super) fn broken(text: &str, units: f64, size: f64) -> Vec<String> {
    let letters = (units / (size * LETTER)).floor().max(1.0) as usize;
    let mut lines: Vec<String> = Vec::new();
    // Not at every white space: a number stays with its unit.
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
        let word = charts::chart::shorten(word, letters);
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= letters => {
                last.push(' ');
                last.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_break_between_words() {
        let lines = broken("one two\u{a0}three four", 10.0 * 10.0 * LETTER, 10.0);
        assert_eq!(lines, ["one", "two\u{a0}three", "four"]);
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_paper(text in "[a-zé  ]{0,80}", letters in 1..30_usize) {
            let lines = broken(&text, letters as f64 * 12.0 * LETTER + 0.1, 12.0);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= letters));
        }
    }
}
