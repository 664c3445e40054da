//! What is mounted, as people write it.

use std::{fmt, path::PathBuf, str::FromStr};

use thiserror::Error;

/// Stands for what must not be shown.
const HIDDEN: &str = "***";

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// `s3://bucket/prefix`.
    S3(BucketUrl),
    /// `oss://bucket/prefix`.
    Oss(BucketUrl),
    /// `file:///directory`, optionally with `?prefix=a/b`.
    File {
        /// The directory that is the bucket.
        directory: PathBuf,
        /// Only keys that start with this; empty, or ending with `/`.
        prefix: String,
    },
}

/// A bucket, or what is under a prefix in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketUrl {
    /// The bucket's name.
    pub bucket: String,
    /// Only keys that start with this; empty, or ending with `/`.
    pub prefix: String,
}

/// Why some text is not a store's URL.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreUrlError {
    /// No scheme that is known here.
    #[error(
        "`{0}` is no source: write s3://BUCKET/PREFIX, oss://BUCKET/PREFIX or file:///DIRECTORY"
    )]
    Scheme(String),
    /// The bucket's name cannot be one.
    #[error(
        "`{0}` is no bucket name: it has 3 to 63 lower-case letters, digits, dots and dashes \
         (the endpoint is a setting, not part of the source)"
    )]
    Bucket(String),
    /// The directory is relative.
    #[error("`{0}` is not an absolute path: write file:///DIRECTORY with three slashes")]
    Relative(String),
    /// A query other than `prefix`.
    #[error("`{0}` is no option of a file source: only prefix= is")]
    Option(String),
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        match text.split_once("://") {
            Some(("s3", rest)) => parse_bucket(rest).map(Self::S3),
            Some(("oss", rest)) => parse_bucket(rest).map(Self::Oss),
            Some(("file", rest)) => parse_file(rest),
            _ => Err(StoreUrlError::Scheme(without_secrets(text))),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3(url) => write!(f, "s3://{}/{}", url.bucket, url.prefix),
            Self::Oss(url) => write!(f, "oss://{}/{}", url.bucket, url.prefix),
            Self::File { directory, prefix } if prefix.is_empty() => {
                write!(f, "file://{}", directory.display())
            }
            Self::File { directory, prefix } => {
                write!(f, "file://{}?prefix={prefix}", directory.display())
            }
        }
    }
}

impl StoreUrl {
    /// Only keys that start with this; empty, or ending with `/`.
    pub fn prefix(&self) -> &str {
        match self {
            Self::S3(url) | Self::Oss(url) => &url.prefix,
            Self::File { prefix, .. } => prefix,
        }
    }
}

fn parse_bucket(rest: &str) -> Result<BucketUrl, StoreUrlError> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'_')
    };
    if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(allowed) || bucket.contains("..") {
        return Err(StoreUrlError::Bucket(if rest.contains('@') {
            HIDDEN.to_owned()
        } else {
            bucket.to_owned()
        }));
    }
    Ok(BucketUrl {
        bucket: bucket.to_owned(),
        prefix: closed(prefix),
    })
}

fn parse_file(rest: &str) -> Result<StoreUrl, StoreUrlError> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !path.starts_with('/') {
        return Err(StoreUrlError::Relative(without_user(rest)));
    }
    let prefix = match query.split_once('=') {
        None if query.is_empty() => "",
        Some(("prefix", prefix)) => prefix,
        _ => return Err(StoreUrlError::Option(query.to_owned())),
    };
    Ok(StoreUrl::File {
        directory: path.into(),
        prefix: closed(prefix),
    })
}

/// The text as an error may show it: neither user and password before an `@`, nor a query, which
/// may hold a signature.
pub(crate) fn without_secrets(text: &str) -> String {
    let is_scheme = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match text.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => {
            format!("{scheme}://{}", without_user(rest))
        }
        _ => without_user(text),
    }
}

/// The same for what follows a scheme.
fn without_user(rest: &str) -> String {
    let shown = match rest.rsplit_once('@') {
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        None => rest.to_owned(),
    };
    shown.split('?').next().unwrap_or_default().to_owned()
}

/// A prefix is a directory: it ends with a slash.
fn closed(prefix: &str) -> String {
    if prefix.is_empty() || prefix.ends_with('/') {
        prefix.to_owned()
    } else {
        format!("{prefix}/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_it_reads() {
        for (text, printed) in [
            ("s3://bucket", "s3://bucket/"),
            ("s3://bucket/a/b", "s3://bucket/a/b/"),
            ("oss://my-bucket/a b/", "oss://my-bucket/a b/"),
            ("file:///srv/data", "file:///srv/data"),
            ("file:///srv?prefix=a/b", "file:///srv?prefix=a/b/"),
        ] {
            let url: StoreUrl = text.parse().expect(text);
            assert_eq!(url.to_string(), printed);
        }
    }

    /// People put keys where other programs take them.
    #[test]
    fn errors_do_not_repeat_credentials() {
        for text in [
            "s3://AKIA0EXAMPLE:Wx81/hEpq4@bucket/p",
            "https://AKIA0EXAMPLE:Wx81/hEpq4@host/bucket",
            "file://AKIA0EXAMPLE:Wx81/hEpq4@host/d",
            "file://AKIA0EXAMPLE/Wx81://hEpq4@host/d",
            "AKIA0EXAMPLE:Wx81/hEpq4@bucket",
            "https://host/bucket?X-Amz-Signature=AKIA0EXAMPLE/hEpq4",
        ] {
            let error = text.parse::<StoreUrl>().expect_err(text).to_string();
            assert!(
                !error.contains("AKIA") && !error.contains("hEpq4"),
                "{error}"
            );
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, part) in [
            ("bucket", "no source"),
            ("memory:", "no source"),
            ("http://x", "no source"),
            ("s3:///x", "no bucket name"),
            ("s3://UPPER", "no bucket name"),
            ("oss://a..b", "no bucket name"),
            ("file://srv", "absolute"),
            ("file:///srv?mode=1", "prefix="),
        ] {
            let error = text.parse::<StoreUrl>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
