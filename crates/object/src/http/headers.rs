//! Header fields, as they are sent and as they arrived.

use std::{borrow::Cow, ops::Range};

/// Fields of a request, in the order in which they are sent. Names are in lower case.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestHeaders(Vec<(Cow<'static, str>, Cow<'static, str>)>);

impl RequestHeaders {
    /// Adds a field whose value this program made.
    pub(crate) fn push(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, str>>,
    ) {
        self.0.push((name.into(), value.into()));
    }

    /// All fields.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// Whether `value` may stand in a header field.
pub(crate) fn is_printable(value: &str) -> bool {
    value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Fields of a response: the head's bytes and where each field lies in them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResponseHeaders {
    head: Vec<u8>,
    fields: Vec<(Range<u32>, Range<u32>)>,
}

impl ResponseHeaders {
    /// Keeps a copy of `head` and the places of `parsed`, which must point into it.
    pub(crate) fn new(head: &[u8], parsed: &[httparse::Header<'_>]) -> Self {
        let place = |part: &[u8]| {
            let start = (part.as_ptr() as usize).wrapping_sub(head.as_ptr() as usize);
            start as u32..(start + part.len()) as u32
        };
        Self {
            head: head.to_vec(),
            fields: parsed
                .iter()
                .map(|field| (place(field.name.as_bytes()), place(field.value)))
                .collect(),
        }
    }

    /// All fields whose value is text, names as the server wrote them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields
            .iter()
            .filter_map(|(name, value)| Some((self.text(name)?, self.text(value)?)))
    }

    /// The first field of that name, in whatever case it was written.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.named(name).next()
    }

    /// A field that is a number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.trim().parse().ok()
    }

    /// Whether the field's comma-separated list has `token`.
    pub(super) fn has_token(&self, name: &str, token: &str) -> bool {
        self.named(name)
            .flat_map(|value| value.split(','))
            .any(|item| item.trim().eq_ignore_ascii_case(token))
    }

    /// Asked several times per response, so only what matches is looked at closely.
    fn named(&self, wanted: &str) -> impl Iterator<Item = &str> {
        self.fields
            .iter()
            .filter(move |(name, _)| {
                let name = self.bytes(name);
                name.len() == wanted.len() && name.eq_ignore_ascii_case(wanted.as_bytes())
            })
            .filter_map(|(_, value)| self.text(value))
    }

    fn text(&self, place: &Range<u32>) -> Option<&str> {
        std::str::from_utf8(self.bytes(place)).ok()
    }

    fn bytes(&self, place: &Range<u32>) -> &[u8] {
        &self.head[place.start as usize..place.end as usize]
    }
}
