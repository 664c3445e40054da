//! Percent-encoding of paths, queries and listings.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The same, but slashes stay.
const RESERVED_IN_PATHS: &AsciiSet = &RESERVED.remove(b'/');

/// Encodes a name or value of a query, slashes too.
pub(crate) fn encode(text: &str) -> String {
    encoded(text).into_owned()
}

/// Encodes a path; slashes stay.
pub(crate) fn encode_path(path: &str) -> String {
    encoded_path(path).into_owned()
}

/// What [`encode`] makes, without a copy where nothing needs encoding.
pub(crate) fn encoded(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, RESERVED).into()
}

/// What [`encode_path`] makes, without a copy where nothing needs encoding.
pub(crate) fn encoded_path(path: &str) -> Cow<'_, str> {
    utf8_percent_encode(path, RESERVED_IN_PATHS).into()
}

/// Decodes a path, in which `+` means itself. `None` if the bytes are not UTF-8.
pub(crate) fn decode_path(text: &str) -> Option<String> {
    percent_decode_str(text)
        .decode_utf8()
        .ok()
        .map(Cow::into_owned)
}

/// Decodes a name or value of a query, in which `+` means a space.
pub(crate) fn decode_query(text: &str) -> Option<String> {
    if text.contains('+') {
        decode_path(&text.replace('+', " "))
    } else {
        decode_path(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plus_is_a_space_in_queries_only() {
        assert_eq!(decode_path("a+b%2Bc").as_deref(), Some("a+b+c"));
        assert_eq!(decode_query("a+b%2Bc").as_deref(), Some("a b+c"));
        assert_eq!(decode_path("%ff"), None);
        assert_eq!(encode("a/b c~*'"), "a%2Fb%20c~%2A%27");
        assert_eq!(encode_path("a/b c"), "a/b%20c");
    }

    proptest! {
        #[test]
        fn text_round_trips(text in any::<String>()) {
            prop_assert_eq!(decode_path(&encode(&text)), Some(text.clone()));
            prop_assert_eq!(decode_query(&encode(&text)), Some(text.clone()));
            prop_assert_eq!(decode_path(&encode_path(&text)), Some(text));
        }
    }
}
