//! Markup that is well-formed by construction: what is opened is closed, what is given as text is text.
//!
//! Elements without content end in `/>`, which HTML allows and XML needs, so a page can be checked by any XML parser. Tags
//! and attribute names are ours; everything else is escaped.

use std::fmt::{Display, Write as _};

/// The attributes of an element.
pub(in crate::report) type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

/// A page that is being written.
pub(in crate::report) struct Markup {
    text: String,
    identifiers: usize,
    hides_paths: bool,
}

impl Markup {
    /// An empty HTML document.
    pub(in crate::report) fn document() -> Self {
        Self {
            text: "<!DOCTYPE html>\n".to_owned(),
            identifiers: 0,
            hides_paths: false,
        }
    }

    /// The inside of a picture, which is shown to anybody: texts in it lose the paths of this machine.
    pub(in crate::report) fn picture() -> Self {
        Self {
            text: String::new(),
            identifiers: 0,
            hides_paths: true,
        }
    }

    /// The page.
    pub(in crate::report) fn finish(self) -> String {
        self.text
    }

    /// An identifier that no other element of the page has.
    pub(in crate::report) fn identifier(&mut self) -> String {
        self.identifiers += 1;
        format!("i{}", self.identifiers)
    }

    /// An element with whatever `content` writes.
    pub(in crate::report) fn within(
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
    pub(in crate::report) fn leaf(
        &mut self,
        tag: &'static str,
        attributes: Attributes<'_>,
        text: &str,
    ) {
        self.within(tag, attributes, |markup| markup.text(text));
    }

    /// An element without content.
    pub(in crate::report) fn empty(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.begin(tag, attributes);
        self.text.push_str("/>");
    }

    /// `text`, escaped.
    pub(in crate::report) fn text(&mut self, text: &str) {
        if self.hides_paths {
            escape_into(&mut self.text, &without_paths(text));
        } else {
            escape_into(&mut self.text, text);
        }
    }

    /// Text of our own that is not escaped: the style sheet.
    pub(in crate::report) fn trusted(&mut self, text: &str) {
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

/// `text` with `…` for each word, or the end of one, that is a path of this machine.
fn without_paths(text: &str) -> String {
    let words = text.split_inclusive(char::is_whitespace);
    let shorten = |word: &str| match path_in(word) {
        Some(at) => {
            let end = word.trim_end().len();
            format!("{}…{}", &word[..at], &word[end..])
        }
        None => word.to_owned(),
    };
    words.map(shorten).collect()
}

/// Where in `word` a path begins: at a slash that follows no letter and no digit, as those of units and URLs do.
fn path_in(word: &str) -> Option<usize> {
    if let Some(at) = word.find("file://") {
        return Some(at);
    }
    let slashes = word.match_indices('/').map(|(at, _)| at);
    slashes.into_iter().find(|at| {
        let before = word[..*at].chars().next_back();
        let starts = before.is_none_or(|c| !c.is_alphanumeric() && c != '/');
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
        let name = word[at + 1..].chars().take_while(|c| is_name(*c)).count();
        starts && name > 1
    })
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
pub(in crate::report) struct Px(pub(in crate::report) f64);

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
    fn pictures_hold_no_path_of_this_machine() {
        let cases = [
            ("failed: cannot open /tmp/a b", "failed: cannot open … b"),
            ("(/mnt) log=/var/log/x\n", "(… log=…\n"),
            ("~/x.y, ../../up and file:///srv/a", "~… ..… and …"),
            (
                "120 MiB/s, 16 /s, 1/50, and/or",
                "120 MiB/s, 16 /s, 1/50, and/or",
            ),
            (
                "https://oss.example.com/a/b s3://x/y",
                "https://oss.example.com/a/b s3://x/y",
            ),
        ];
        for (text, shown) in cases {
            assert_eq!(without_paths(text), shown);
            let mut picture = Markup::picture();
            picture.text(text);
            assert_eq!(picture.finish(), shown);
        }
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
