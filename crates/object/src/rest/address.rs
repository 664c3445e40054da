//! Where a bucket is: which host, and what comes before a key in the path.

use std::sync::Arc;

use crate::{http::Origin, sign::encode_path};

/// Whether the bucket's name stands in the host name or in the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Addressing {
    /// In the path where the host is an IP address or `localhost`, or where a name with dots
    /// would not match the wildcard of a TLS certificate; else in the host name.
    #[default]
    Auto,
    /// `https://endpoint/bucket/key`.
    Path,
    /// `https://bucket.endpoint/key`.
    VirtualHost,
}

/// One bucket at one endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) origin: Arc<Origin>,
    pub(crate) bucket: String,
    in_path: bool,
}

impl Address {
    pub(crate) fn new(endpoint: &Origin, bucket: &str, addressing: Addressing) -> Self {
        let in_path = match addressing {
            Addressing::Path => true,
            Addressing::VirtualHost => false,
            Addressing::Auto => endpoint.is_address() || (endpoint.secure && bucket.contains('.')),
        };
        let origin = if in_path {
            endpoint.clone()
        } else {
            endpoint.with_host(format!("{bucket}.{}", endpoint.host))
        };
        Self {
            origin: Arc::new(origin),
            bucket: bucket.to_owned(),
            in_path,
        }
    }

    /// The path of a key, or of the bucket itself, as it is sent.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.in_path {
            self.full_path(key)
        } else {
            format!("/{}", encode_path(key))
        }
    }

    /// `/bucket/key` in any case.
    pub(crate) fn full_path(&self, key: &str) -> String {
        format!("/{}/{}", self.bucket, encode_path(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(endpoint: &str, bucket: &str, addressing: Addressing) -> String {
        let origin = Origin::parse(endpoint).expect(endpoint);
        let address = Address::new(&origin, bucket, addressing);
        format!("{}{}", address.origin, address.path("a b/c"))
    }

    #[test]
    fn chooses_the_style_that_can_work() {
        use Addressing::{Auto, Path, VirtualHost};
        for (endpoint, bucket, addressing, expected) in [
            ("https://s3.x", "b", Auto, "https://b.s3.x/a%20b/c"),
            ("https://s3.x", "b.c", Auto, "https://s3.x/b.c/a%20b/c"),
            ("http://s3.x", "b.c", Auto, "http://b.c.s3.x/a%20b/c"),
            (
                "http://127.0.0.1:9",
                "b",
                Auto,
                "http://127.0.0.1:9/b/a%20b/c",
            ),
            (
                "http://localhost:9",
                "b",
                Auto,
                "http://localhost:9/b/a%20b/c",
            ),
            ("https://s3.x", "b", Path, "https://s3.x/b/a%20b/c"),
            (
                "http://localhost",
                "b",
                VirtualHost,
                "http://b.localhost/a%20b/c",
            ),
        ] {
            assert_eq!(place(endpoint, bucket, addressing), expected);
        }
    }
}
