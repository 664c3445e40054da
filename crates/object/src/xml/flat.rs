//! A page of a listing, read fast.
//!
//! Listings of millions of keys are all alike: `<Contents>` with plain children and no text that
//! means anything else. [`parse_flat`] reads that shape in one pass, straight into a [`FlatPage`];
//! at the first thing that it does not know (comments, name spaces, nesting, a document that is cut)
//! it gives up, and the page is read by [`super::read_list`], which knows it all. So both agree on
//! every document, which a test holds them to.

use std::str;

#[cfg(any(test, feature = "testing"))]
use super::{XmlError, parse_list};
use super::{
    decode_url,
    list::{LISTING_ROOT, SPOILT, kind_of},
    parse_time,
};
use crate::{FlatObject, FlatPage, FlatTime, ObjectKind};

/// Bytes of XML around one entry at least; gives room for entries without growing twice.
const ENTRY_SIZE_MIN: usize = 200;

/// Elements within elements that are skipped; `Owner` has two.
const SKIP_DEPTH_MAX: usize = 4;

/// Reads a page of a listing without delimiter. Fails like [`parse_list`].
#[cfg(any(test, feature = "testing"))]
pub fn parse_flat(xml: &[u8]) -> Result<FlatPage, XmlError> {
    if let Some(page) = scan_flat(xml) {
        return Ok(page);
    }
    parse_list(xml).map(FlatPage::from)
}

/// The same; `None` where anything is unusual, which [`super::read_list`] knows.
pub(crate) fn scan_flat(xml: &[u8]) -> Option<FlatPage> {
    str::from_utf8(xml).ok().and_then(scan)
}

/// `None` where anything is unusual.
fn scan(xml: &str) -> Option<FlatPage> {
    let mut scanner = Scanner { rest: xml };
    scanner.prologue()?;
    let objects = xml.len() / ENTRY_SIZE_MIN + 1;
    let mut page = FlatPage::with_capacity(objects, xml.len() / 2);
    let mut state = State::default();
    loop {
        match scanner.tag()? {
            Tag::Close(LISTING_ROOT) => break,
            Tag::Open("Contents") => scanner.object(&mut page, &mut state)?,
            Tag::Open(name) => scanner.property(name, &mut page, &mut state)?,
            Tag::Close(_) => return None,
        }
    }
    if !scanner.rest.trim_ascii().is_empty() {
        return None;
    }
    if !state.truncated {
        page.continuation = None;
    }
    // Without a place to go on the page is refused, by the reader that has words for it.
    (page.continuation.is_some() == state.truncated).then_some(page)
}

#[derive(Default)]
struct State<'a> {
    truncated: bool,
    url_encoded: bool,
    /// The last time that was read; neighbours often have the same.
    time: (&'a str, FlatTime),
}

enum Tag<'a> {
    Open(&'a str),
    Close(&'a str),
}

struct Scanner<'a> {
    rest: &'a str,
}

/// The fields of an object, as they stand in the document.
#[derive(Default)]
struct Fields<'a> {
    key: Option<&'a str>,
    size: Option<&'a str>,
    etag: Option<&'a str>,
    modified: Option<&'a str>,
    kind: Option<&'a str>,
}

impl<'a> Scanner<'a> {
    /// Everything up to and including the root's opening tag.
    fn prologue(&mut self) -> Option<()> {
        self.rest = self.rest.trim_ascii_start();
        if let Some(declaration) = self.rest.strip_prefix("<?xml ") {
            let end = declaration.find("?>")?;
            self.rest = declaration[end + 2..].trim_ascii_start();
        }
        let inside = self.rest.strip_prefix('<')?.strip_prefix(LISTING_ROOT)?;
        let end = inside.find('>')?;
        let attributes = &inside[..end];
        if !attributes.is_empty() {
            let value = attributes.strip_prefix(" xmlns=\"")?.strip_suffix('"')?;
            value.bytes().all(is_of_address).then_some(())?;
        }
        self.rest = &inside[end + 1..];
        Some(())
    }

    /// The next tag, before which only white space may stand.
    fn tag(&mut self) -> Option<Tag<'a>> {
        self.rest = self.rest.trim_ascii_start();
        let inside = self.rest.strip_prefix('<')?;
        let end = find(inside, b'>')?;
        let name = &inside[..end];
        self.rest = &inside[end + 1..];
        match name.strip_prefix('/') {
            Some(name) => is_plain(name).then_some(Tag::Close(name)),
            None => is_plain(name).then_some(Tag::Open(name)),
        }
    }

    /// The text of the element `name`, which was opened and has no children.
    fn text(&mut self, name: &str) -> Option<&'a str> {
        let end = find(self.rest, b'<')?;
        let text = &self.rest[..end];
        let after = self.rest[end..].strip_prefix("</")?.strip_prefix(name)?;
        self.rest = after.strip_prefix('>')?;
        Some(text)
    }

    /// Passes over the element `name`, which was opened.
    fn skip(&mut self, name: &str, depth: usize) -> Option<()> {
        let end = find(self.rest, b'<')?;
        if self.rest[..end].contains('&') {
            return None;
        }
        if self.rest[end..].starts_with("</") {
            return self.text(name).map(|_| ());
        }
        self.rest = &self.rest[end..];
        loop {
            match self.tag()? {
                Tag::Close(closed) => return (closed == name).then_some(()),
                Tag::Open(child) if depth > 1 => self.skip(child, depth - 1)?,
                Tag::Open(_) => return None,
            }
        }
    }

    fn property(
        &mut self,
        name: &'a str,
        page: &mut FlatPage,
        state: &mut State<'a>,
    ) -> Option<()> {
        match name {
            "IsTruncated" => {
                state.truncated = match self.text(name)? {
                    "true" => true,
                    "false" => false,
                    _ => return None,
                }
            }
            "EncodingType" => {
                state.url_encoded = self.text(name)? == "url";
                return (state.url_encoded && page.is_empty()).then_some(());
            }
            "NextContinuationToken" => {
                let text = unescape(self.text(name)?)?;
                if !text.is_empty() {
                    page.continuation = Some(text);
                }
            }
            "CommonPrefixes" => return None,
            _ => self.skip(name, SKIP_DEPTH_MAX)?,
        }
        Some(())
    }

    /// An object, whose opening tag was read. What nearly every object has is compared with
    /// constants, which costs a load or two each; the rest goes the long way.
    fn object(&mut self, page: &mut FlatPage, state: &mut State<'a>) -> Option<()> {
        let mut fields = Fields::default();
        loop {
            self.rest = self.rest.trim_ascii_start();
            let (field, text) = if self.eat(b"<Key>") {
                (&mut fields.key, self.until(b"</Key>")?)
            } else if self.eat(b"<LastModified>") {
                (&mut fields.modified, self.until(b"</LastModified>")?)
            } else if self.eat(b"<ETag>") {
                (&mut fields.etag, self.until(b"</ETag>")?)
            } else if self.eat(b"<Size>") {
                (&mut fields.size, self.until(b"</Size>")?)
            } else if self.eat(b"</Contents>") {
                break;
            } else if self.eat(b"<StorageClass>") {
                let class = self.until(b"</StorageClass>")?;
                class.bytes().all(|byte| byte != b'&').then_some(())?;
                continue;
            } else if self.eat(b"<Type>") {
                (&mut fields.kind, self.until(b"</Type>")?)
            } else {
                match self.tag()? {
                    Tag::Open(name) => self.skip(name, SKIP_DEPTH_MAX)?,
                    Tag::Close(_) => return None,
                }
                continue;
            };
            if field.replace(text).is_some() {
                return None;
            }
        }
        push(page, &fields, state)
    }

    /// Passes over `expected` if that comes next.
    #[inline(always)]
    fn eat<const N: usize>(&mut self, expected: &[u8; N]) -> bool {
        let comes = self.rest.as_bytes().first_chunk::<N>() == Some(expected);
        if comes {
            self.rest = &self.rest[N..];
        }
        comes
    }

    /// The text up to the next tag, which is `closing`.
    #[inline(always)]
    fn until<const N: usize>(&mut self, closing: &[u8; N]) -> Option<&'a str> {
        let (text, rest) = self.rest.split_at(find(self.rest, b'<')?);
        self.rest = rest;
        self.eat(closing).then_some(text)
    }
}

fn push<'a>(page: &mut FlatPage, fields: &Fields<'a>, state: &mut State<'a>) -> Option<()> {
    let size = fields.size?.trim().parse().ok()?;
    let modified = time(fields.modified?, state)?;
    let kind = fields.kind.unwrap_or_default();
    if kind.contains('&') {
        return None;
    }
    let is_link = kind_of(kind.trim()) == ObjectKind::Symlink;
    let key = fields.key?;
    if !state.url_encoded && key.contains(SPOILT) {
        return None;
    }
    let etag = bare_tag(fields.etag?);
    let is_plain = |byte: u8| match byte {
        b'&' | b'\r' => false,
        b'%' | b'+' => !state.url_encoded,
        _ => true,
    };
    if let (true, Some(etag)) = (key.bytes().all(is_plain), etag) {
        let object = FlatObject {
            key,
            size,
            etag,
            modified,
            is_link,
        };
        page.push(&object);
        return Some(());
    }
    let mut key = unescape(key)?;
    if state.url_encoded {
        key = decode_url(&key);
    }
    let unescaped = unescape(fields.etag?)?;
    page.push(&FlatObject {
        key: &key,
        size,
        etag: etag.unwrap_or_else(|| unescaped.trim().trim_matches('"')),
        modified,
        is_link,
    });
    Some(())
}

/// The tag without the quotes around it, where it is plain otherwise.
fn bare_tag(text: &str) -> Option<&str> {
    let text = text.strip_prefix("&quot;").or(text.strip_prefix('"'))?;
    let text = text.strip_suffix("&quot;").or(text.strip_suffix('"'))?;
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    text.bytes().all(is_word).then_some(text)
}

/// Text with references resolved; `None` where it has unusual ones.
fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        let end = rest[at..].find(';')?;
        plain.push(match &rest[at + 1..at + end] {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            "apos" => '\'',
            _ => return None,
        });
        rest = &rest[at + end + 1..];
    }
    plain.push_str(rest);
    (!plain.contains('\r')).then_some(plain)
}

fn time<'a>(text: &'a str, state: &mut State<'a>) -> Option<FlatTime> {
    if text != state.time.0 || text.is_empty() {
        state.time = (text, FlatTime::from(parse_time(text)?));
    }
    Some(state.time.1)
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Whether a byte can stand in the name of a name space.
fn is_of_address(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b":/.-_".contains(&byte)
}

/// Where `byte` stands, which is ASCII; elements are short, so nothing clever pays.
fn find(text: &str, byte: u8) -> Option<usize> {
    text.bytes().position(|other| other == byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
        <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>\
        <Prefix>p/</Prefix><MaxKeys>2</MaxKeys><EncodingType>url</EncodingType>\
        <IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b==</NextContinuationToken>\
        <Contents><Key>p/a%2Bb</Key><LastModified>2020-05-18T05:45:54.000Z</LastModified>\
        <ETag>&quot;abc-2&quot;</ETag><Size>12</Size><StorageClass>STANDARD</StorageClass>\
        <Owner><ID>x</ID><DisplayName>y</DisplayName></Owner></Contents>\n\
        <Contents><Key>p/plain</Key><LastModified>2021-05-18T05:45:54.250Z</LastModified>\
        <ETag>\"x\"</ETag><Type>Normal</Type><Size>0</Size></Contents></ListBucketResult>";

    #[test]
    fn reads_the_usual_shape_fast() {
        let page = scan(PAGE).expect("nothing unusual");
        let keys: Vec<_> = page.objects().map(|object| object.key).collect();
        assert_eq!(keys, ["p/a+b", "p/plain"]);
        assert_eq!((page.object(0).etag, page.object(0).size), ("abc-2", 12));
        assert_eq!(page.object(1).modified.nanoseconds, 250_000_000);
        assert_eq!(page.continuation.as_deref(), Some("a&b=="));
        assert_eq!(Ok(page), parse_list(PAGE.as_bytes()).map(FlatPage::from));
    }

    #[test]
    fn leaves_what_is_unusual_to_the_other_reader() {
        for (usual, unusual) in [
            ("<Name>", "<!-- c --><Name>"),
            ("<Size>0</Size>", "<Size/>"),
            ("p/plain", "p/<![CDATA[plain]]>"),
            ("<Key>p/plain", "<Key>p/&#112;lain"),
            ("</ListBucketResult>", ""),
            ("<Contents><Key>p/plain", "<x:Contents><Key>p/plain"),
            ("IsTruncated>true", "IsTruncated>false"),
            ("IsTruncated>true", "IsTruncated>&true"),
            ("IsTruncated>true", "IsTruncated> true "),
            ("EncodingType>url", "EncodingType>&url"),
            ("EncodingType>url", "EncodingType>"),
        ] {
            let text = PAGE.replacen(usual, unusual, 1);
            let expected = parse_list(text.as_bytes()).map(FlatPage::from);
            assert_eq!(parse_flat(text.as_bytes()), expected, "{unusual}");
        }
        let without = PAGE.replace("NextContinuationToken", "Other");
        let error = parse_flat(without.as_bytes()).expect_err("nowhere to go on");
        assert_eq!(error, XmlError::Missing("NextContinuationToken"));
    }

    fn mutated() -> impl Strategy<Value = String> {
        let pieces = prop::sample::select(vec![
            "",
            "<",
            ">",
            "/",
            "&",
            ";",
            "&lt;",
            "&#65;",
            "\"",
            " ",
            "\r\n",
            "<Key>",
            "</Key>",
            "<Contents>",
            "</Contents>",
            "%41",
            "+",
            "é",
            "<a/>",
            "<!---->",
            "x",
            "]]>",
            "true",
            "'",
            "<CommonPrefixes><Prefix>q/</Prefix></CommonPrefixes>",
            "<ETag>",
            "=",
            "\u{0}",
        ]);
        (0..PAGE.len(), 0..40usize, pieces).prop_map(|(start, length, piece)| {
            let end = (start + length).min(PAGE.len());
            format!("{}{piece}{}", &PAGE[..start], &PAGE[end..])
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn agrees_with_the_other_reader(text in mutated()) {
            if let Some(page) = scan(&text) {
                let expected = parse_list(text.as_bytes()).map(FlatPage::from);
                prop_assert_eq!(Ok(page), expected, "{}", text);
            }
        }

        #[test]
        fn keys_survive(key in "[ -~à-ü]{1,40}", tag in "[ -~]{0,10}") {
            let text = PAGE
                .replace("<EncodingType>url</EncodingType>", "")
                .replace("p/plain", &quick_xml::escape::escape(&key))
                .replace("\"x\"", &quick_xml::escape::escape(&tag));
            let page = scan(&text).expect("nothing unusual");
            prop_assert_eq!(page.object(1).key, &key);
            let expected = parse_list(text.as_bytes()).map(FlatPage::from);
            prop_assert_eq!(Ok(page), expected);
        }
    }
}
