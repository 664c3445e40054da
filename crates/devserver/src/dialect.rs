//! Which of the two protocols a request speaks.

use serde::{Deserialize, Serialize};

use crate::http::request::Request;

/// The protocol of a request, and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// Amazon S3.
    S3,
    /// Alibaba Cloud OSS.
    Oss,
}

impl Dialect {
    /// Both.
    pub const ALL: [Self; 2] = [Self::S3, Self::Oss];

    /// The name in counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Oss => "oss",
        }
    }

    /// What headers of the dialect begin with.
    pub(crate) fn header_prefix(self) -> &'static str {
        match self {
            Self::S3 => "x-amz-",
            Self::Oss => "x-oss-",
        }
    }

    /// A header of the dialect, such as `x-amz-copy-source`.
    pub(crate) fn header(self, name: &str) -> String {
        format!("{}{name}", self.header_prefix())
    }

    /// What parts but the last must at least have.
    pub(crate) fn part_size_min(self) -> u64 {
        match self {
            Self::S3 => 5 << 20,
            Self::Oss => 100 << 10,
        }
    }

    /// From what the request says: its authorization, its headers, its query, its sender.
    pub(crate) fn of(request: &Request) -> Self {
        let is = |oss| if oss { Self::Oss } else { Self::S3 };
        if let Some(authorization) = request.header("authorization") {
            return is(authorization.starts_with("OSS ") || authorization.starts_with("OSS4-"));
        }
        if request.query.has("OSSAccessKeyId") || request.query.has("x-oss-signature") {
            return Self::Oss;
        }
        if request.query.has("X-Amz-Signature") {
            return Self::S3;
        }
        let agent = request
            .header("user-agent")
            .unwrap_or("")
            .to_ascii_lowercase();
        is(request
            .headers
            .iter()
            .any(|(name, _)| name.starts_with("x-oss-"))
            || ["aliyun", "alibaba", "ossfs", "ossutil", "oss-"]
                .iter()
                .any(|word| agent.contains(word))
            || request.host.contains(".aliyuncs.com"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialect(head: &str) -> Dialect {
        let text = format!("GET /k{head}\r\n\r\n");
        Dialect::of(
            &Request::parse(text.as_bytes())
                .expect("well formed")
                .expect("whole")
                .0,
        )
    }

    #[test]
    fn is_told_by_headers_query_and_agent() {
        for head in [
            " HTTP/1.1\r\nAuthorization: OSS ak:sig",
            " HTTP/1.1\r\nAuthorization: OSS4-HMAC-SHA256 Credential=ak",
            "?OSSAccessKeyId=ak&Signature=s HTTP/1.1",
            "?x-oss-signature=s HTTP/1.1",
            " HTTP/1.1\r\nx-oss-date: d",
            " HTTP/1.1\r\nUser-Agent: aliyun-sdk-python/2",
            " HTTP/1.1\r\nHost: b.oss-cn-hangzhou.aliyuncs.com",
        ] {
            assert_eq!(dialect(head), Dialect::Oss, "{head}");
        }
        for head in [
            " HTTP/1.1",
            " HTTP/1.1\r\nAuthorization: AWS4-HMAC-SHA256 Credential=ak",
            "?X-Amz-Signature=s HTTP/1.1",
            " HTTP/1.1\r\nUser-Agent: rclone/v1",
        ] {
            assert_eq!(dialect(head), Dialect::S3, "{head}");
        }
    }
}
