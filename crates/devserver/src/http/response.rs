//! Answers, before they are sent.

use std::{borrow::Cow, fmt::Write, ops::Range};

use crate::store::Content;

/// What follows the head.
#[derive(Debug)]
pub(crate) enum Payload {
    Text(Vec<u8>),
    /// Bytes of an object.
    Content {
        content: Content,
        range: Range<u64>,
    },
    /// A HEAD's answer: the length is told, the body is not sent.
    Omitted(u64),
    /// No body and no length either, as 204 and 304 want it.
    None,
}

impl Payload {
    /// Bytes that the head announces.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Content { range, .. } => range.end - range.start,
            Self::Omitted(length) => *length,
            Self::None => 0,
        }
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(Cow<'static, str>, String)>,
    pub(crate) payload: Payload,
}

impl Response {
    pub(crate) fn new(status: u16) -> Self {
        let payload = if matches!(status, 204 | 304) {
            Payload::None
        } else {
            Payload::Text(Vec::new())
        };
        Self {
            status,
            headers: Vec::new(),
            payload,
        }
    }

    /// An XML document.
    pub(crate) fn xml(status: u16, document: String) -> Self {
        let mut response = Self::new(status).header("Content-Type", "application/xml");
        response.payload = Payload::Text(document.into_bytes());
        response
    }

    /// A JSON document.
    pub(crate) fn json(document: String) -> Self {
        let mut response = Self::new(200).header("Content-Type", "application/json");
        response.payload = Payload::Text(document.into_bytes());
        response
    }

    #[must_use]
    pub(crate) fn header(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
    ) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The head as it goes over the wire, with what every answer carries in `common`.
    pub(crate) fn head(&self, common: &[(&str, String)]) -> Vec<u8> {
        let mut head = String::with_capacity(512);
        let _ = write!(head, "HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in common {
            push_field(&mut head, name, value);
        }
        for (name, value) in &self.headers {
            push_field(&mut head, name, value);
        }
        if !matches!(self.payload, Payload::None) {
            let _ = write!(head, "Content-Length: {}\r\n", self.payload.length());
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

/// Values come from clients, who must not be able to end the line.
fn push_field(head: &mut String, name: &str, value: &str) {
    head.push_str(name);
    head.push_str(": ");
    head.extend(
        value
            .chars()
            .map(|c| if c.is_control() && c != '\t' { ' ' } else { c }),
    );
    head.push_str("\r\n");
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_end_its_line() {
        let response = Response::new(200).header("x-amz-meta-a", "1\r\nSet-Cookie: evil");
        let head = String::from_utf8(response.head(&[("Server", "s".to_owned())])).expect("UTF-8");
        assert_eq!(
            head,
            "HTTP/1.1 200 OK\r\nServer: s\r\nx-amz-meta-a: 1  Set-Cookie: evil\r\nContent-Length: 0\r\n\r\n"
        );
    }
}
