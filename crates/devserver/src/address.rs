//! Which bucket and key a request means.
//!
//! In virtual-host style the bucket is in the host name, in path style it is the first
//! segment of the path. A host that is an IP address, `localhost` or a single word cannot
//! hold a bucket, so it means path style. Any other is `BUCKET.SERVICE`: the service begins at
//! the configured domain, or at a label that clouds use (`s3…`, `oss-…`), or at the second.

use std::net::IpAddr;

use crate::{
    dialect::Dialect,
    http::{encoding, request::Request},
    refusal::Code,
};

/// Bytes in the longest key.
const KEY_MAX: usize = 1024;

/// What a request is about. Empty texts stand for "none".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) bucket: String,
    pub(crate) key: String,
}

impl Address {
    /// Reads host and path.
    pub(crate) fn of(request: &Request, domain: Option<&str>) -> Result<Self, Code> {
        let path = encoding::decode_path(&request.path).ok_or(Code::UriTooLong)?;
        let path = path.strip_prefix('/').unwrap_or(&path);
        if let Some(bucket) = bucket_in_host(host_name(&request.host), domain) {
            return Ok(Self {
                bucket: bucket.to_owned(),
                key: path.to_owned(),
            });
        }
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        Ok(Self {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        })
    }

    /// Whether the key is one that the dialect allows.
    pub(crate) fn check_key(key: &str, dialect: Dialect) -> Result<(), Code> {
        match dialect {
            Dialect::S3 if key.len() > KEY_MAX => Err(Code::KeyTooLongError),
            Dialect::Oss if key.len() >= KEY_MAX || key.starts_with(['/', '\\']) => {
                Err(Code::InvalidObjectName)
            }
            _ => Ok(()),
        }
    }
}

/// The host without its port.
fn host_name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

fn bucket_in_host<'a>(host: &'a str, domain: Option<&str>) -> Option<&'a str> {
    if let Some(domain) = domain {
        if host == domain {
            return None;
        }
        if let Some(bucket) = host
            .strip_suffix(domain)
            .and_then(|rest| rest.strip_suffix('.'))
        {
            return Some(bucket);
        }
    }
    if host.parse::<IpAddr>().is_ok() || !host.contains('.') {
        return None;
    }
    let service = service_start(host)?;
    let bucket = host[..service].strip_suffix('.')?;
    (!bucket.is_empty()).then_some(bucket)
}

/// Where the service's own name begins in a host name.
fn service_start(host: &str) -> Option<usize> {
    let is_cloud = host.ends_with(".amazonaws.com") || host.ends_with(".aliyuncs.com");
    let is_service =
        |label: &str| label == "s3" || label.starts_with("s3-") || label.starts_with("oss-");
    let mut start = 0;
    for label in host.split('.') {
        if is_cloud && is_service(label) {
            return Some(start);
        }
        start += label.len() + 1;
    }
    host.find('.').map(|dot| dot + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str, path: &str) -> (String, String) {
        let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let request = Request::parse(text.as_bytes())
            .expect("well formed")
            .expect("whole")
            .0;
        let address = Address::of(&request, Some("store.test")).expect("UTF-8");
        (address.bucket, address.key)
    }

    fn pair(bucket: &str, key: &str) -> (String, String) {
        (bucket.to_owned(), key.to_owned())
    }

    #[test]
    fn path_style() {
        for host in [
            "127.0.0.1:9000",
            "localhost",
            "[::1]:9000",
            "server:80",
            "",
            "store.test:1",
            "oss-cn-hangzhou.aliyuncs.com",
            "s3.us-east-1.amazonaws.com",
        ] {
            assert_eq!(address(host, "/b/k/l"), pair("b", "k/l"), "{host}");
        }
        assert_eq!(address("localhost", "/"), pair("", ""));
        assert_eq!(address("localhost", "/b"), pair("b", ""));
        assert_eq!(address("localhost", "/b//k%2Fl+%2b"), pair("b", "/k/l++"));
    }

    #[test]
    fn virtual_host_style() {
        assert_eq!(address("b.localhost:9000", "/k"), pair("b", "k"));
        assert_eq!(address("b.example.com", "/k/"), pair("b", "k/"));
        assert_eq!(address("my.b.store.test", "/"), pair("my.b", ""));
        assert_eq!(address("my.b.s3.amazonaws.com", "/k"), pair("my.b", "k"));
        assert_eq!(address("b.s3-eu-1.amazonaws.com", "/k"), pair("b", "k"));
        assert_eq!(
            address("b.oss-cn-hangzhou-internal.aliyuncs.com", "/k"),
            pair("b", "k")
        );
        let text = "GET http://b.oss-cn-x.aliyuncs.com/k HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n";
        let request = Request::parse(text.as_bytes())
            .expect("well formed")
            .expect("whole")
            .0;
        assert_eq!(Address::of(&request, None).expect("UTF-8").bucket, "b");
    }

    #[test]
    fn keys_have_limits() {
        let long = "k".repeat(1025);
        assert_eq!(
            Address::check_key(&long, Dialect::S3),
            Err(Code::KeyTooLongError)
        );
        assert_eq!(Address::check_key(&long[1..], Dialect::S3), Ok(()));
        assert_eq!(
            Address::check_key(&long[1..], Dialect::Oss),
            Err(Code::InvalidObjectName)
        );
        assert_eq!(
            Address::check_key("/a", Dialect::Oss),
            Err(Code::InvalidObjectName)
        );
        assert_eq!(Address::check_key("/a", Dialect::S3), Ok(()));
    }
}
