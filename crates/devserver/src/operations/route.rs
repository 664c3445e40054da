//! From method, address and query to the operation.

use super::Operation;
use crate::{
    address::Address,
    dialect::Dialect,
    http::request::{Method, Request},
};

/// Parameters that ask for something that this server does not have; ignoring them would do
/// something else than was asked for.
const UNKNOWN_SUBRESOURCES: [&str; 22] = [
    "tagging",
    "policy",
    "cors",
    "lifecycle",
    "website",
    "logging",
    "notification",
    "replication",
    "requestPayment",
    "torrent",
    "retention",
    "legal-hold",
    "object-lock",
    "restore",
    "select",
    "encryption",
    "inventory",
    "analytics",
    "metrics",
    "accelerate",
    "publicAccessBlock",
    "versions",
];

/// What the request asks for.
pub(crate) fn route(request: &Request, dialect: Dialect, address: &Address) -> Operation {
    if UNKNOWN_SUBRESOURCES
        .iter()
        .any(|name| request.query.has(name))
    {
        return Operation::Unknown;
    }
    match (address.bucket.is_empty(), address.key.is_empty()) {
        (true, _) => match request.method {
            Method::Get => Operation::ListBuckets,
            _ => Operation::Unknown,
        },
        (false, true) => route_bucket(request),
        (false, false) => route_object(request, dialect),
    }
}

fn route_bucket(request: &Request) -> Operation {
    let has = |name| request.query.has(name);
    match request.method {
        Method::Get if has("location") => Operation::GetBucketLocation,
        Method::Get if has("bucketInfo") => Operation::GetBucketInfo,
        Method::Get if has("stat") => Operation::GetBucketStat,
        Method::Get if has("acl") => Operation::GetBucketAcl,
        Method::Get if has("versioning") => Operation::GetBucketVersioning,
        Method::Get if has("uploads") => Operation::ListUploads,
        Method::Get if request.query.get("list-type") == Some("2") => Operation::ListObjectsV2,
        Method::Get => Operation::ListObjects,
        Method::Head => Operation::HeadBucket,
        Method::Put if has("acl") || has("versioning") => Operation::Unknown,
        Method::Put => Operation::CreateBucket,
        Method::Delete => Operation::DeleteBucket,
        Method::Post if has("delete") => Operation::DeleteObjects,
        Method::Post | Method::Other => Operation::Unknown,
    }
}

fn route_object(request: &Request, dialect: Dialect) -> Operation {
    let has = |name| request.query.has(name);
    let copies = request.header(&dialect.header("copy-source")).is_some();
    let oss = dialect == Dialect::Oss;
    match request.method {
        Method::Get if oss && has("symlink") => Operation::GetSymlink,
        Method::Get if has("uploadId") => Operation::ListParts,
        Method::Get if has("acl") => Operation::GetObjectAcl,
        Method::Get | Method::Head if has("objectMeta") => Operation::GetObjectMeta,
        Method::Get => Operation::GetObject,
        Method::Head => Operation::HeadObject,
        Method::Put if oss && has("symlink") => Operation::PutSymlink,
        Method::Put if has("acl") => Operation::Unknown,
        Method::Put if has("partNumber") && copies => Operation::UploadPartCopy,
        Method::Put if has("partNumber") => Operation::UploadPart,
        Method::Put if copies => Operation::CopyObject,
        Method::Put => Operation::PutObject,
        Method::Delete if has("uploadId") => Operation::AbortUpload,
        Method::Delete => Operation::DeleteObject,
        Method::Post if has("uploads") => Operation::CreateUpload,
        Method::Post if has("uploadId") => Operation::CompleteUpload,
        Method::Post if oss && has("append") => Operation::AppendObject,
        Method::Post | Method::Other => Operation::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(line: &str) -> Operation {
        let text = format!("{line} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let request = Request::parse(text.as_bytes())
            .expect("well formed")
            .expect("whole")
            .0;
        let address = Address::of(&request, None).expect("UTF-8");
        route(&request, Dialect::Oss, &address)
    }

    #[test]
    fn every_shape_has_its_operation() {
        for (line, expected) in [
            ("GET /", Operation::ListBuckets),
            ("GET /b", Operation::ListObjects),
            ("GET /b/?list-type=2", Operation::ListObjectsV2),
            ("GET /b?location", Operation::GetBucketLocation),
            ("POST /b?delete", Operation::DeleteObjects),
            ("GET /b/k?uploadId=1", Operation::ListParts),
            ("PUT /b/k?partNumber=1&uploadId=1", Operation::UploadPart),
            ("PUT /b/k?symlink", Operation::PutSymlink),
            ("POST /b/k?append&position=0", Operation::AppendObject),
            ("DELETE /b/k?uploadId=1", Operation::AbortUpload),
            ("PUT /b/k?tagging", Operation::Unknown),
            ("PATCH /b/k", Operation::Unknown),
        ] {
            assert_eq!(operation(line), expected, "{line}");
        }
    }
}
