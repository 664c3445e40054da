//! Extended attributes as one header: percent-encoded JSON whose values are in base64.

use std::collections::BTreeMap;

use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet::STANDARD, engine::DecodePaddingMode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What stays as it is, as in the other programs' form.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/');

/// Base64 with padding, which is not insisted on.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The header's value, or `None` without attributes.
pub(super) fn encode(xattrs: &BTreeMap<String, Vec<u8>>) -> Option<String> {
    if xattrs.is_empty() {
        return None;
    }
    let texts: BTreeMap<&String, String> = xattrs
        .iter()
        .map(|(name, value)| (name, BASE64.encode(value)))
        .collect();
    let json = serde_json::to_string(&texts).expect("a map of text to text is valid JSON");
    Some(utf8_percent_encode(&json, ESCAPED).to_string())
}

/// The attributes in a header. What cannot be read is left out.
pub(super) fn decode(text: &str) -> BTreeMap<String, Vec<u8>> {
    let json = percent_decode_str(text).decode_utf8_lossy();
    let texts: BTreeMap<String, String> = serde_json::from_str(&json).unwrap_or_default();
    let value = |(name, text): (String, String)| Some((name, BASE64.decode(text.trim()).ok()?));
    texts.into_iter().filter_map(value).collect()
}
