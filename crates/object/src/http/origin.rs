//! Where a request goes.

use std::net::{IpAddr, Ipv6Addr};

use thiserror::Error;

use crate::url::without_secrets;

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// A scheme, a host and a port: what connections are shared by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// Whether TLS is spoken.
    pub(crate) secure: bool,
    /// A name or an address, without the brackets of IPv6.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Why some text is not an origin.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum OriginError {
    #[error("`{0}` starts with neither http:// nor https://")]
    Scheme(String),
    #[error("`{0}` has no host name or address that can be one")]
    Host(String),
    #[error("`{0}` has a port that is not a number from 1 to 65535")]
    Port(String),
    #[error("`{0}` has a path, a user or a query; write only scheme://host:port")]
    Surplus(String),
}

impl Origin {
    /// Reads `https://host[:port]`; text without a scheme is taken as https.
    pub(crate) fn parse(text: &str) -> Result<Self, OriginError> {
        let (secure, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some(_) => return Err(OriginError::Scheme(without_secrets(text))),
            None => (true, text),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '@', '?', '#']) || authority.contains(char::is_whitespace) {
            return Err(OriginError::Surplus(without_secrets(text)));
        }
        let default_port = if secure { HTTPS_PORT } else { HTTP_PORT };
        let (host, port) = split_port(authority);
        let port = match port {
            Some(digits) => parse_port(digits).ok_or(OriginError::Port(without_secrets(text)))?,
            None => default_port,
        };
        let host = parse_host(host).ok_or(OriginError::Host(without_secrets(text)))?;
        Ok(Self { secure, host, port })
    }

    /// The same origin under another host name.
    pub(crate) fn with_host(&self, host: String) -> Self {
        Self { host, ..*self }
    }

    /// The `Host` header: the port only where it is not the scheme's own.
    pub(crate) fn authority(&self) -> String {
        let host = self.bracketed_host();
        let default_port = if self.secure { HTTPS_PORT } else { HTTP_PORT };
        if self.port == default_port {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Host and port, always both.
    pub(crate) fn host_and_port(&self) -> String {
        format!("{}:{}", self.bracketed_host(), self.port)
    }

    /// Whether the host is an address or this machine, which no bucket name can be put before.
    pub(crate) fn is_address(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok() || self.host == "localhost"
    }

    fn bracketed_host(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        // The last colon of an IPv6 address is not before a port.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// A name, or an address; one of IPv6 is in brackets, which are taken off.
fn parse_host(text: &str) -> Option<String> {
    let bracketed = text.strip_prefix('[');
    if let Some(address) = bracketed.and_then(|text| text.strip_suffix(']')) {
        let address: Ipv6Addr = address.parse().ok()?;
        return Some(address.to_string());
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = !text.is_empty() && text.bytes().all(allowed);
    is_name.then(|| text.to_ascii_lowercase())
}

fn parse_port(digits: &str) -> Option<u16> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| plain && *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Origin {
        Origin::parse(text).expect(text)
    }

    #[test]
    fn reads_schemes_ports_and_addresses() {
        assert_eq!(parse("http://a.example/").authority(), "a.example");
        assert_eq!(parse("http://A.example:9000").authority(), "a.example:9000");
        assert_eq!(parse("a.example").to_string(), "https://a.example");
        assert_eq!(parse("HTTPS://a.example").to_string(), "https://a.example");
        assert_eq!(parse("https://a:443").authority(), "a");
        let local = parse("http://[::1]:9000");
        assert_eq!((local.host.as_str(), local.is_address()), ("::1", true));
        assert_eq!(local.authority(), "[::1]:9000");
    }

    #[test]
    fn refuses_what_is_not_an_origin() {
        for text in [
            "ftp://a",
            "http://",
            "http://a/b",
            "http://a:0",
            "http://a:x",
            "http://u@a",
            "http://[::1]a:9",
            "http://[a]",
            "http://a:b:9",
            "http://a\u{1}",
            "http://a:+9",
        ] {
            assert!(Origin::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn errors_do_not_repeat_credentials() {
        for text in [
            "http://user:hunter2@proxy:3128",
            "https://a.example/?X-Amz-Signature=hunter2",
            "ftp://user:hunter2@a",
        ] {
            let error = Origin::parse(text).expect_err(text).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
