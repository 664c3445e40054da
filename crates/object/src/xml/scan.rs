//! Going through a document from front to back, without building it.
//!
//! Answers of stores are elements with text, at most behind a declaration and a name space; listings of
//! millions of keys are made of nothing else. So the scanner is asked for one child after another of the
//! element that it is in, and for the text of the last: a slice of the document, unless it has
//! references. What else may stand in a document (comments, CDATA, attributes, prefixes of names) it passes
//! over or understands; documents that say what entities mean it refuses. It checks that elements end as they
//! began and that one document is all there is.

use std::{borrow::Cow, mem::take};

use super::XmlError;

/// Elements within elements; answers have four at most.
const DEPTH_MAX: usize = 32;

/// A place in a document.
pub(super) struct Scanner<'a> {
    rest: &'a str,
    /// The elements that are open, by their whole names.
    open: Vec<&'a str>,
    /// Whether the innermost is one without content, such as `<a/>`.
    is_empty: bool,
}

/// A tag; names are without prefixes.
enum Tag<'a> {
    Open(&'a str),
    Close,
    /// The document ends.
    End,
}

/// Lets `read` go through the document `xml`, given the name of its root, and checks that nothing follows. A
/// document without any element reads as nothing.
pub(super) fn read<T: Default>(
    xml: &[u8],
    read: impl FnOnce(&mut Scanner<'_>, &str) -> Result<T, XmlError>,
) -> Result<T, XmlError> {
    let document = String::from_utf8_lossy(xml);
    let mut scanner = Scanner::new(&document);
    let Some(root) = scanner.root()? else {
        return Ok(T::default());
    };
    let value = read(&mut scanner, root)?;
    scanner.end()?;
    Ok(value)
}

impl<'a> Scanner<'a> {
    pub(super) fn new(document: &'a str) -> Self {
        Self {
            rest: document,
            open: Vec::new(),
            is_empty: false,
        }
    }

    /// Enters the element that the document is, and returns its name; `None` where there is none.
    pub(super) fn root(&mut self) -> Result<Option<&'a str>, XmlError> {
        match self.tag()? {
            Tag::Open(name) => Ok(Some(name)),
            Tag::Close | Tag::End => Ok(None),
        }
    }

    /// Enters the next child of the innermost element and returns its name. `None` when that element
    /// ends instead, which is left then.
    pub(super) fn child(&mut self) -> Result<Option<&'a str>, XmlError> {
        match self.tag()? {
            Tag::Open(name) => Ok(Some(name)),
            Tag::Close => Ok(None),
            Tag::End => Err(cut()),
        }
    }

    /// The text of the element that was just entered, which is left. If it has children, what follows the last.
    pub(super) fn text(&mut self) -> Result<Cow<'a, str>, XmlError> {
        if let Some(name) = self.open.last()
            && !self.is_empty
            && let Some(end) = find(self.rest, b'<')
            && let (text, tag) = self.rest.split_at(end)
            && let Some(rest) = after_end(tag, name)
        {
            self.rest = rest;
            self.open.pop();
            return unescaped(text);
        }
        self.text_in_pieces()
    }

    /// Leaves the element that was just entered, whatever is in it.
    pub(super) fn skip(&mut self) -> Result<(), XmlError> {
        while self.child()?.is_some() {
            self.skip()?;
        }
        Ok(())
    }

    /// Checks that nothing follows the document.
    pub(super) fn end(&mut self) -> Result<(), XmlError> {
        match self.tag()? {
            Tag::End => Ok(()),
            Tag::Open(_) | Tag::Close => Err(malformed("another document follows")),
        }
    }

    /// Passes over white space.
    #[inline(always)]
    pub(super) fn blank(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    /// What stands between `open` and `close`, if they come next with plain text between them, and passes
    /// over all three. What is spelled otherwise is left to [`Scanner::child`].
    #[inline(always)]
    pub(super) fn usual<const O: usize, const C: usize>(
        &mut self,
        open: &[u8; O],
        close: &[u8; C],
    ) -> Option<&'a str> {
        if self.rest.as_bytes().first_chunk() != Some(open) {
            return None;
        }
        let inside = &self.rest[O..];
        let is_plain = |byte: u8| !matches!(byte, b'<' | b'&');
        let (text, tag) = inside.split_at(inside.bytes().position(|byte| !is_plain(byte))?);
        (tag.as_bytes().first_chunk() == Some(close)).then(|| {
            self.rest = &tag[C..];
            text
        })
    }

    /// The next tag. Text before it means nothing.
    fn tag(&mut self) -> Result<Tag<'a>, XmlError> {
        if take(&mut self.is_empty) {
            self.open.pop();
            return Ok(Tag::Close);
        }
        while let Some(at) = find(self.rest, b'<') {
            self.rest = &self.rest[at + 1..];
            match self.rest.as_bytes().first() {
                Some(b'/') => return self.close_tag(),
                Some(b'!' | b'?') => drop(self.aside()?),
                _ => return self.open_tag(),
            }
        }
        match self.open[..] {
            [] => Ok(Tag::End),
            [..] => Err(cut()),
        }
    }

    fn open_tag(&mut self) -> Result<Tag<'a>, XmlError> {
        let is_end = |byte: u8| matches!(byte, b'>' | b'/' | b' ' | b'\t' | b'\r' | b'\n');
        let length = self.rest.bytes().position(is_end).ok_or_else(cut)?;
        let (name, attributes) = self.rest.split_at(length);
        if name.is_empty() || self.open.len() == DEPTH_MAX {
            return Err(match name {
                "" => malformed("a tag has no name"),
                _ => XmlError::TooDeep,
            });
        }
        let end = end_of_tag(attributes).ok_or_else(cut)?;
        self.is_empty = attributes[..end].ends_with('/');
        self.rest = &attributes[end + 1..];
        self.open.push(name);
        Ok(Tag::Open(local(name)))
    }

    fn close_tag(&mut self) -> Result<Tag<'a>, XmlError> {
        let end = find(self.rest, b'>').ok_or_else(cut)?;
        let name = self.rest[1..end].trim_ascii_end();
        if self.open.pop() != Some(name) {
            return Err(malformed("an element ends that did not begin"));
        }
        self.rest = &self.rest[end + 1..];
        Ok(Tag::Close)
    }

    /// Passes over what stands aside and is no tag; its `<` is passed already. Returns what is text of it.
    fn aside(&mut self) -> Result<&'a str, XmlError> {
        for (begin, end, is_text) in [
            ("!--", "-->", false),
            ("![CDATA[", "]]>", true),
            ("?", "?>", false),
            ("!DOCTYPE", ">", false),
        ] {
            let Some(inside) = self.rest.strip_prefix(begin) else {
                continue;
            };
            let (text, rest) = inside.split_once(end).ok_or_else(cut)?;
            if begin == "!DOCTYPE" && text.contains('[') {
                return Err(malformed("it declares entities"));
            }
            self.rest = rest;
            return Ok(if is_text { text } else { "" });
        }
        Err(malformed("a tag begins with an exclamation mark"))
    }

    /// What [`Scanner::text`] returns, of an element with more than text in it.
    fn text_in_pieces(&mut self) -> Result<Cow<'a, str>, XmlError> {
        let mut text = String::new();
        let depth = self.open.len();
        while !self.is_empty {
            let end = find(self.rest, b'<').ok_or_else(cut)?;
            let (piece, tag) = self.rest.split_at(end);
            text.push_str(&unescaped(piece)?);
            self.rest = tag;
            if tag.starts_with("<!") || tag.starts_with("<?") {
                self.rest = &tag[1..];
                text.push_str(self.aside()?);
                continue;
            }
            match self.tag()? {
                Tag::Open(_) => {
                    self.skip()?;
                    text.clear();
                }
                Tag::Close | Tag::End => break,
            }
        }
        if self.open.len() == depth {
            self.tag()?;
        }
        Ok(Cow::Owned(text))
    }
}

/// What follows the tag at the front of `text`, if that ends the element `name`.
#[inline(always)]
fn after_end<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.strip_prefix("</")?
        .strip_prefix(name)?
        .strip_prefix('>')
}

/// Where the `>` of a tag stands, given what follows its name.
fn end_of_tag(attributes: &str) -> Option<usize> {
    let mut quote = None;
    attributes.bytes().position(|byte| {
        match (quote, byte) {
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => return quote.is_none() && byte == b'>',
        }
        false
    })
}

/// Text with references resolved.
fn unescaped(text: &str) -> Result<Cow<'_, str>, XmlError> {
    let Some(first) = find(text, b'&') else {
        return Ok(Cow::Borrowed(text));
    };
    let mut plain = String::with_capacity(text.len());
    let (before, mut rest) = text.split_at(first);
    plain.push_str(before);
    while let Some(reference) = rest.strip_prefix('&') {
        let unfinished = || malformed("a reference does not end");
        let (name, after) = reference.split_once(';').ok_or_else(unfinished)?;
        let unknown = || malformed(&format!("it uses the unknown entity `{name:.40}`"));
        plain.push(referred(name).ok_or_else(unknown)?);
        let (between, next) = after.split_at(find(after, b'&').unwrap_or(after.len()));
        plain.push_str(between);
        rest = next;
    }
    Ok(Cow::Owned(plain))
}

fn referred(name: &str) -> Option<char> {
    Some(match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let number = name.strip_prefix('#').filter(is_number)?;
            let code = match number.strip_prefix('x') {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?).filter(|character| *character != '\0')?
        }
    })
}

fn local(name: &str) -> &str {
    name.rfind(':').map_or(name, |at| &name[at + 1..])
}

/// Where `byte` stands, which is ASCII; elements are short, so nothing clever pays.
#[inline(always)]
fn find(text: &str, byte: u8) -> Option<usize> {
    text.bytes().position(|other| other == byte)
}

fn cut() -> XmlError {
    malformed("it ends too early")
}

fn malformed(why: &str) -> XmlError {
    XmlError::Malformed(why.to_owned())
}
