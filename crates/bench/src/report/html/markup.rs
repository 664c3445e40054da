//! Markup that is well-formed by construction: what is opened is closed, what is given as text is text.
//!
//! Elements without content end in `/>`, which HTML allows and XML needs, so a page can be checked by any XML parser. Tags
//! and attribute names are ours; everything else is escaped.

use std::fmt::{Display, Write as _};

/// The attributes of an element.
pub(super) type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

/// A page that is being written.
pub(super) struct Markup {
    text: String,
    identifiers: usize,
}

impl Markup {
    /// An empty HTML document.
    pub(super) fn document() -> Self {
        Self {
            text: "<!DOCTYPE html>\n".to_owned(),
            identifiers: 0,
        }
    }

    /// The page.
    pub(super) fn finish(self) -> String {
        self.text
    }

    /// An identifier that no other element of the page has.
    pub(super) fn identifier(&mut self) -> String {
        self.identifiers += 1;
        format!("i{}", self.identifiers)
    }

    /// An element with whatever `content` writes.
    pub(super) fn within(
        &mut self,
        tag: &'static str,
        attributes: Attributes<'_>,
        content: impl FnOnce(&mut Self),
    ) {
        self.begin(tag, attributes);
        self.text.push('>');
        content(self);
        let _ = write!(self.text, "</{tag}>");
        if is_block(tag) {
            self.text.push('\n');
        }
    }

    /// An element that holds `text`.
    pub(super) fn leaf(&mut self, tag: &'static str, attributes: Attributes<'_>, text: &str) {
        self.within(tag, attributes, |markup| markup.text(text));
    }

    /// An element without content.
    pub(super) fn empty(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.begin(tag, attributes);
        self.text.push_str("/>");
    }

    /// `text`, escaped.
    pub(super) fn text(&mut self, text: &str) {
        escape_into(&mut self.text, text);
    }

    /// Text of our own that is not escaped: the style sheet.
    pub(super) fn trusted(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn begin(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        let _ = write!(self.text, "<{tag}");
        for (name, value) in attributes {
            let _ = write!(self.text, " {name}=\"");
            escape_into(&mut self.text, &value.to_string());
            self.text.push('"');
        }
    }
}

/// Elements that end a line of the source, to keep lines short.
fn is_block(tag: &str) -> bool {
    !matches!(
        tag,
        "b" | "i" | "span" | "code" | "text" | "tspan" | "a" | "small" | "title"
    )
}

fn escape_into(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            _ if is_harmful(c) => out.push(' '),
            _ => out.push(c),
        }
    }
}

/// What XML forbids, and marks that turn the direction of the text around them.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
}

/// A length or position: at most one decimal.
#[derive(Clone, Copy)]
pub(super) struct Px(pub(super) f64);

impl Display for Px {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rounded = (self.0 * 10.0).round() / 10.0;
        write!(
            f,
            "{}",
            if rounded == 0.0 || !rounded.is_finite() {
                0.0
            } else {
                rounded
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_are_escaped_and_elements_closed() {
        let mut markup = Markup::document();
        markup.within("p", &[("class", &"a\"b")], |markup| {
            markup.text("<&>\u{1b}\u{202e}'");
            markup.empty("br", &[]);
        });
        let expected = "<!DOCTYPE html>\n<p class=\"a&quot;b\">&lt;&amp;&gt;  &#39;<br/></p>\n";
        assert_eq!(markup.finish(), expected);
    }

    #[test]
    fn lengths_are_short_and_finite() {
        let text = |value| Px(value).to_string();
        assert_eq!(
            [text(1.0), text(1.26), text(-0.01), text(f64::NAN)],
            ["1", "1.3", "0", "0"]
        );
    }
}
