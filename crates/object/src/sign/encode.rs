//! Percent-encoding as the signatures define it: everything but letters, digits, `-`, `.`, `_`
//! and `~`; in paths also not `/`.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const VALUE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
const PATH: &AsciiSet = &VALUE.remove(b'/');

/// A key as it stands in a path.
pub(crate) fn encode_path(key: &str) -> String {
    utf8_percent_encode(key, PATH).to_string()
}

/// A name or value as it stands in a query.
pub(crate) fn encode_value(value: &str) -> String {
    utf8_percent_encode(value, VALUE).to_string()
}

/// Parameters of a request, not encoded yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(Cow<'static, str>, Option<String>)>);

impl Query {
    /// No parameters.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter without a value, such as `uploads`.
    #[must_use]
    pub(crate) fn flag(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.0.push((name.into(), None));
        self
    }

    /// Adds a parameter with a value.
    #[must_use]
    pub(crate) fn with(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
    ) -> Self {
        self.0.push((name.into(), Some(value.into())));
        self
    }

    /// Adds a parameter that may be left out.
    #[must_use]
    pub(crate) fn with_some(self, name: &'static str, value: Option<impl Into<String>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Whether there are no parameters.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and raw values in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0
            .iter()
            .map(|(name, value)| (&**name, value.as_deref()))
    }

    /// Encoded and sorted by name, then value. A parameter without a value is `name` followed by
    /// `after_flag`: `=` for AWS, nothing for OSS.
    pub(crate) fn encoded(&self, after_flag: &str) -> String {
        let mut pairs: Vec<(String, Option<String>)> = self
            .iter()
            .map(|(name, value)| (encode_value(name), value.map(encode_value)))
            .collect();
        pairs.sort_unstable();
        let parts: Vec<String> = pairs
            .into_iter()
            .map(|(name, value)| match value {
                Some(value) => format!("{name}={value}"),
                None => name + after_flag,
            })
            .collect();
        parts.join("&")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_what_the_signatures_demand() {
        assert_eq!(encode_path("1234+-/é x"), "1234%2B-/%C3%A9%20x");
        assert_eq!(encode_value("a/b~c*"), "a%2Fb~c%2A");
    }

    #[test]
    fn sorts_by_name_before_value() {
        let query = Query::new().with("a-b", "1").with("a", "2").flag("uploads");
        assert_eq!(query.encoded("="), "a=2&a-b=1&uploads=");
        assert_eq!(query.encoded(""), "a=2&a-b=1&uploads");
    }
}
