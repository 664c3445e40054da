//! Writing XML, and reading the two documents that clients send.

use quick_xml::{Reader, events::Event};

/// A document in the making.
#[derive(Debug)]
pub(crate) struct Xml {
    text: String,
    open: Vec<&'static str>,
}

impl Xml {
    /// Begins a document with its root element.
    pub(crate) fn new(root: &'static str) -> Self {
        let mut document = Self {
            text: String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"),
            open: Vec::new(),
        };
        document.begin(root);
        document
    }

    /// Begins a document whose root element is in a name space.
    pub(crate) fn in_namespace(root: &'static str, namespace: &str) -> Self {
        let mut document = Self::new(root);
        document.text.pop();
        document.text.push_str(" xmlns=\"");
        document.text.push_str(namespace);
        document.text.push_str("\">");
        document
    }

    /// Opens an element.
    pub(crate) fn begin(&mut self, element: &'static str) {
        self.text.push('<');
        self.text.push_str(element);
        self.text.push('>');
        self.open.push(element);
    }

    /// Closes the element that was opened last.
    pub(crate) fn end(&mut self) {
        if let Some(element) = self.open.pop() {
            self.text.push_str("</");
            self.text.push_str(element);
            self.text.push('>');
        }
    }

    /// An element with text.
    pub(crate) fn leaf(&mut self, element: &str, text: &str) {
        self.text.push('<');
        self.text.push_str(element);
        self.text.push('>');
        escape(text, &mut self.text);
        self.text.push_str("</");
        self.text.push_str(element);
        self.text.push('>');
    }

    /// Makes room for `bytes` more.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.text.reserve(bytes);
    }

    /// Pieces of the document as they are, markup and all.
    pub(crate) fn raw(&mut self, pieces: &[&str]) {
        self.text
            .reserve(pieces.iter().map(|piece| piece.len()).sum());
        pieces.iter().for_each(|piece| self.text.push_str(piece));
    }

    /// Closes all elements and gives the document.
    pub(crate) fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.end();
        }
        self.text
    }
}

/// Escapes what has a meaning in XML, and control characters as references.
fn escape(text: &str, out: &mut String) {
    if is_plain(text) {
        out.push_str(text);
        return;
    }
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c < ' ' => out.push_str(&format!("&#x{:x};", c as u32)),
            c => out.push(c),
        }
    }
}

/// Whether nothing in `text` has to be escaped.
pub(crate) fn is_plain(text: &str) -> bool {
    let is_plain = |byte: u8| byte >= b' ' && !matches!(byte, b'&' | b'<' | b'>' | b'"');
    text.bytes().all(is_plain)
}

/// An element with its texts and children.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    /// Without its name space prefix.
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) children: Vec<Element>,
}

/// Elements inside each other; far more than any client sends.
const DEPTH_MAX: usize = 16;

impl Element {
    /// Parses a document to its root element; `None` if it is malformed.
    pub(crate) fn parse(document: &str) -> Option<Self> {
        let mut reader = Reader::from_str(document);
        let mut open = vec![Self::default()];
        loop {
            match reader.read_event().ok()? {
                Event::Start(tag) => open.push(Self::named(tag.local_name().as_ref())),
                Event::Empty(tag) => {
                    let element = Self::named(tag.local_name().as_ref());
                    open.last_mut()?.children.push(element);
                }
                Event::End(_) => {
                    let element = open.pop()?;
                    open.last_mut()?.children.push(element);
                }
                Event::Text(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
                Event::CData(text) => open.last_mut()?.text.push_str(&text),
                Event::GeneralRef(reference) => {
                    let c = resolve(&reference)?;
                    open.last_mut()?.text.push(c);
                }
                Event::Eof => break,
                _ => {}
            }
            if open.len() > DEPTH_MAX {
                return None;
            }
        }
        let root = open.pop().filter(|_| open.is_empty())?;
        root.children.into_iter().next()
    }

    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// The text of the first child of that name.
    pub(crate) fn text_of(&self, child: &str) -> Option<&str> {
        let found = self.children.iter().find(|element| element.name == child);
        found.map(|child| child.text.as_str())
    }

    pub(crate) fn children_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }
}

/// The character that a reference such as `amp` or `#x1` stands for.
fn resolve(reference: &str) -> Option<char> {
    let number = |text: &str, radix| char::from_u32(u32::from_str_radix(text, radix).ok()?);
    match reference {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => match reference.strip_prefix('#')? {
            hexadecimal if hexadecimal.starts_with('x') => number(&hexadecimal[1..], 16),
            decimal => number(decimal, 10),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_a_delete_document() {
        let text = "<?xml version=\"1.0\"?>\n<Delete xmlns=\"http://x\"><Quiet>true</Quiet>\
            <Object><Key>a&amp;b&#x20;c</Key></Object><Object><Key/></Object></Delete>";
        let root = Element::parse(text).expect("well formed");
        assert_eq!(
            (root.name.as_str(), root.text_of("Quiet")),
            ("Delete", Some("true"))
        );
        let keys: Vec<_> = root
            .children_named("Object")
            .map(|object| object.text_of("Key"))
            .collect();
        assert_eq!(keys, [Some("a&b c"), Some("")]);
    }

    #[test]
    fn refuses_what_is_malformed() {
        for text in ["", "<a>", "<a></b>", "hello", "<a>&nope;</a>"] {
            assert_eq!(Element::parse(text), None, "{text}");
        }
        assert_eq!(Element::parse(&"<a>".repeat(100)), None);
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read(text in "\\PC{0,40}", control in "[\u{1}-\u{1f}]{0,3}") {
            let text = format!("x{text}{control}x");
            let mut document = Xml::in_namespace("Root", "http://example.com/");
            document.leaf("Leaf", &text);
            let root = Element::parse(&document.finish()).expect("well formed");
            prop_assert_eq!(root.text_of("Leaf"), Some(text.as_str()));
        }

        #[test]
        fn never_panics(text in any::<String>()) {
            let _ = Element::parse(&text);
        }
    }
}
