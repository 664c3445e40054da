//! The head of a request.

use super::encoding;

/// Headers in one request.
const HEADERS_MAX: usize = 128;

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Put,
    Post,
    Delete,
    Other,
}

impl Method {
    fn named(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "PUT" => Self::Put,
            "POST" => Self::Post,
            "DELETE" => Self::Delete,
            _ => Self::Other,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Delete => "DELETE",
            Self::Other => "OTHER",
        }
    }
}

/// Header fields, names in lower case, in the order of arrival.
#[derive(Debug, Clone, Default)]
pub(crate) struct Headers(Vec<(String, String)>);

impl Headers {
    /// The first value of a field; `name` in lower case.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Query parameters, decoded, in the order of arrival.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, Option<String>)>);

impl Query {
    /// `None` if a name or value is not UTF-8 after decoding.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let pieces = text.split('&').filter(|piece| !piece.is_empty());
        let parameter = |piece: &str| match piece.split_once('=') {
            None => Some((encoding::decode_query(piece)?, None)),
            Some((name, value)) => Some((
                encoding::decode_query(name)?,
                Some(encoding::decode_query(value)?),
            )),
        };
        pieces.map(parameter).collect::<Option<_>>().map(Self)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(parameter, _)| parameter == name)
    }

    /// The value of the first parameter of that name; empty if it has none.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(parameter, _)| parameter == name)?;
        Some(found.1.as_deref().unwrap_or(""))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
    }
}

/// How the end of the body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes; 0 where there is no body.
    Length(u64),
    /// HTTP's chunks.
    Chunked,
}

/// The head of a request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// The path as it was sent, percent-encoded, with its first slash.
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) headers: Headers,
    /// From the request target if it was absolute, else from the `Host` field.
    pub(crate) host: String,
    pub(crate) framing: Framing,
    /// Whether the client wants to use the connection again.
    pub(crate) keep_alive: bool,
    /// Whether the client waits for a word before it sends the body.
    pub(crate) expects_continue: bool,
}

/// The head could not be read; says why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl Request {
    /// Parses the head at the front of `bytes`: the request and the head's length, or `None`
    /// if more bytes are needed.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut fields);
        match parsed.parse(bytes) {
            Ok(httparse::Status::Partial) => Ok(None),
            Ok(httparse::Status::Complete(length)) => {
                Ok(Some((Self::from_parsed(&parsed)?, length)))
            }
            Err(_) => Err(Malformed("the request head is not HTTP/1.1")),
        }
    }

    fn from_parsed(parsed: &httparse::Request<'_, '_>) -> Result<Self, Malformed> {
        let fields = parsed
            .headers
            .iter()
            .map(|field| (field.name.to_ascii_lowercase(), text_of(field.value)));
        let headers = Headers(fields.collect());
        let target = Target::split(parsed.path.unwrap_or("/"));
        let query = Query::parse(target.query).ok_or(Malformed("the query is not UTF-8"))?;
        let host = target
            .host
            .or(headers.get("host"))
            .unwrap_or("")
            .to_ascii_lowercase();
        let connection = headers.get("connection").unwrap_or("").to_ascii_lowercase();
        let keep_alive = match parsed.version {
            Some(1) => !connection.contains("close"),
            _ => connection.contains("keep-alive"),
        };
        Ok(Self {
            method: Method::named(parsed.method.unwrap_or("")),
            path: target.path.to_owned(),
            query,
            host,
            framing: framing_of(&headers)?,
            keep_alive,
            expects_continue: headers
                .get("expect")
                .is_some_and(|value| value.eq_ignore_ascii_case("100-continue")),
            headers,
        })
    }

    /// A header field's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)
    }
}

/// The parts of a request target.
struct Target<'a> {
    host: Option<&'a str>,
    path: &'a str,
    query: &'a str,
}

impl<'a> Target<'a> {
    /// Splits `/path?query` and, as clients write it to a proxy, `http://host/path?query`.
    fn split(target: &'a str) -> Self {
        let absolute = target
            .strip_prefix("http://")
            .or_else(|| target.strip_prefix("https://"));
        let (host, rest) = match absolute {
            None => (None, target),
            Some(rest) => {
                let end = rest.find(['/', '?']).unwrap_or(rest.len());
                (Some(&rest[..end]), &rest[end..])
            }
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        Self {
            host,
            path: if path.is_empty() { "/" } else { path },
            query,
        }
    }
}

fn framing_of(headers: &Headers) -> Result<Framing, Malformed> {
    if let Some(coding) = headers.get("transfer-encoding") {
        return if coding.trim().eq_ignore_ascii_case("chunked") {
            Ok(Framing::Chunked)
        } else {
            Err(Malformed("the transfer coding is not `chunked`"))
        };
    }
    let length = headers.get("content-length").unwrap_or("0").trim();
    if !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Malformed("the content length is not a number"));
    }
    length
        .parse()
        .map(Framing::Length)
        .map_err(|_| Malformed("the content length is not a number"))
}

/// UTF-8 where it is, else Latin-1, which any bytes are.
fn text_of(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.trim().to_owned(),
        Err(_) => bytes.iter().copied().map(char::from).collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Request {
        Request::parse(text.as_bytes())
            .expect("well formed")
            .expect("whole")
            .0
    }

    #[test]
    fn reads_a_plain_request() {
        let request = parse(
            "PUT /b/k%20+?partNumber=3&x=a+b&uploads HTTP/1.1\r\nHost: H:1\r\nContent-Length: 5\r\n\r\nhello",
        );
        assert_eq!(
            (request.method, request.path.as_str()),
            (Method::Put, "/b/k%20+")
        );
        assert_eq!(request.query.get("partNumber"), Some("3"));
        assert_eq!(request.query.get("x"), Some("a b"));
        assert!(request.query.has("uploads"));
        assert_eq!(
            (request.host.as_str(), request.framing),
            ("h:1", Framing::Length(5))
        );
        assert!(request.keep_alive && !request.expects_continue);
    }

    #[test]
    fn an_absolute_target_names_the_host() {
        let request = parse("GET http://b.example.com/k?acl HTTP/1.1\r\nHost: proxy\r\n\r\n");
        assert_eq!(
            (request.host.as_str(), request.path.as_str()),
            ("b.example.com", "/k")
        );
        let request = parse("GET http://b.example.com?acl HTTP/1.0\r\n\r\n");
        assert_eq!((request.path.as_str(), request.keep_alive), ("/", false));
    }

    #[test]
    fn refuses_what_it_cannot_frame() {
        for head in [
            "Content-Length: -1",
            "Content-Length: 1x",
            "Transfer-Encoding: gzip",
        ] {
            let text = format!("PUT / HTTP/1.1\r\n{head}\r\n\r\n");
            assert!(Request::parse(text.as_bytes()).is_err(), "{head}");
        }
        assert!(Request::parse(b"\x00\x01\x02\r\n\r\n").is_err());
        assert!(
            Request::parse(b"GET / HTTP/1.1\r\nHost:")
                .expect("so far")
                .is_none()
        );
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Request::parse(&bytes);
        }

        #[test]
        fn any_header_value_is_kept(value in "[ -~]{0,40}") {
            let text = format!("GET / HTTP/1.1\r\nx-amz-meta-a: {value}\r\n\r\n");
            let request = parse(&text);
            prop_assert_eq!(request.header("x-amz-meta-a"), Some(value.trim()));
        }
    }
}
