//! Readers of bytes that servers send, for the fuzz targets outside this crate. No API.

pub use super::tls::fuzzing::Peers as TlsPeers;
use super::{HttpError, Origin, body::Framing, chunked::Chunked, connection::parse_head};

/// The head of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Bytes of it.
    pub length: usize,
    /// The status.
    pub status: u16,
    /// Names and values of fields that are text.
    pub fields: Vec<(String, String)>,
}

/// Reads a head off the front of `bytes`; `None` when more of it is to come.
pub fn head(bytes: &[u8]) -> Result<Option<Head>, String> {
    let Some((head, length)) = parse_head(bytes).map_err(in_words)? else {
        return Ok(None);
    };
    Framing::of("GET", head.status, &head.headers).map_err(in_words)?;
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    Ok(Some(Head {
        length,
        status: head.status,
        fields: head.headers.iter().map(owned).collect(),
    }))
}

/// Decodes a chunked body of which `window` bytes arrive at a time.
pub fn chunked(body: &[u8], window: usize) -> Result<Vec<u8>, String> {
    let (mut coding, mut decoded) = (Chunked::new(), Vec::new());
    let (mut position, mut known) = (0, 0);
    while coding != Chunked::End {
        let bytes = &body[position..known];
        let used = match coding {
            Chunked::Data(left) => {
                let left = usize::try_from(left).unwrap_or(usize::MAX);
                let count = bytes.len().min(left);
                decoded.extend_from_slice(&bytes[..count]);
                coding.took(count as u64);
                Some(count).filter(|count| *count > 0)
            }
            _ => coding.step(bytes).map_err(in_words)?,
        };
        position += used.unwrap_or_default();
        if used.is_none() {
            if known == body.len() {
                return Err("the body ends too early".to_owned());
            }
            known = body.len().min(known + window);
        }
    }
    Ok(decoded)
}

/// Reads an endpoint and prints it.
pub fn origin(text: &str) -> Result<String, String> {
    Origin::parse(text)
        .map(|origin| origin.to_string())
        .map_err(|error| error.to_string())
}

#[allow(clippy::needless_pass_by_value, reason = "it stands for a closure")]
fn in_words(error: HttpError) -> String {
    error.message
}
