//! One request.

use std::sync::Arc;

use penstock_base::Payload;

use super::{Origin, RequestHeaders};

/// How long an answer may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Patience {
    /// The store answers as soon as it has found or written the bytes.
    #[default]
    Usual,
    /// The store moves data inside before it answers.
    Long,
}

/// What is sent.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) origin: Arc<Origin>,
    pub(crate) method: &'static str,
    /// Path and query, percent-encoded.
    pub(crate) target: String,
    /// Everything but `content-length`, `user-agent` and `connection`.
    pub(crate) headers: RequestHeaders,
    pub(crate) body: Payload,
    pub(crate) patience: Patience,
    /// Whether carrying it out twice is the same as once. Only then may a connection that died
    /// before it answered be replaced in silence: the server may have got the request.
    pub(crate) repeatable: bool,
}

impl Request {
    /// The head as it goes over the wire. Towards a proxy the target is the whole URL.
    pub(super) fn head(&self, user_agent: &str, through_proxy: bool) -> Vec<u8> {
        let mut head = String::with_capacity(768);
        head.push_str(self.method);
        head.push(' ');
        if through_proxy && !self.origin.secure {
            head.push_str(&self.origin.to_string());
        }
        head.push_str(&self.target);
        head.push_str(" HTTP/1.1\r\n");
        for (name, value) in self.headers.iter() {
            push_field(&mut head, name, value);
        }
        push_field(&mut head, "user-agent", user_agent);
        if self.has_length() {
            push_field(&mut head, "content-length", &self.body.len().to_string());
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    fn has_length(&self) -> bool {
        !self.body.is_empty() || matches!(self.method, "PUT" | "POST")
    }
}

fn push_field(head: &mut String, name: &str, value: &str) {
    head.push_str(name);
    head.push_str(": ");
    // A line break would let a value begin a field of its own.
    if value.bytes().any(|byte| byte.is_ascii_control()) {
        head.extend(value.chars().filter(|character| !character.is_control()));
    } else {
        head.push_str(value);
    }
    head.push_str("\r\n");
}
