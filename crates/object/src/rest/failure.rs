//! Bad answers, sorted by what the caller can do about them.
//!
//! The codes of both dialects are in one table: imitations mix them, and none means two things.

use std::time::{Duration, SystemTime};

use base64::{Engine, engine::general_purpose::STANDARD};
use penstock_base::clock;

use crate::{
    ErrorKind, ObjectError, Operation,
    http::ResponseHeaders,
    xml::{Failure, parse_failure},
};

/// Characters of the store's explanation that are repeated in an error.
const MESSAGE_MAX: usize = 300;

/// The longest wait that a store may ask for; beyond that the answer is a failure like any other.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// What nginx refuses a client by whose certificate it lacks or does not trust: 400 to the outside, and what its settings may
/// show instead. Of another one's page, as of a gateway whose own client certificate is refused, the status counts.
const NGINX_STATUS: [u16; 3] = [400, 495, 496];

/// What an answer to HEAD, which has no body, leaves unsaid.
const HEAD_HAS_NO_WORDS: &str =
    "without a reason, which an answer to HEAD cannot have: `penstock check` asks for one";

const WANTS_TLS: &str = "the server speaks HTTPS there: say https:// in the endpoint";

/// Turns an answer that is no success into an error.
pub(super) fn error_from(
    operation: Operation,
    status: u16,
    headers: &ResponseHeaders,
    body: &[u8],
) -> ObjectError {
    let mut failure = read_failure(headers, body);
    let page = match failure.code.is_empty() && NGINX_STATUS.contains(&status) {
        true => ClientCertificatePage::of(body),
        false => None,
    };
    let kind = match page {
        Some(page) => {
            page.words().clone_into(&mut failure.message);
            ErrorKind::ClientUntrusted
        }
        None => kind_of(operation, status, &failure),
    };
    let mut message = explain(kind, status, &failure, headers);
    if operation == Operation::Head && failure.message.is_empty() && status == 400 {
        message = format!("{message} {HEAD_HAS_NO_WORDS}");
    }
    let mut error = ObjectError::new(kind, operation, message);
    error.status = Some(status);
    error.request_id = request_id(&failure, headers);
    error.retry_after = retry_after(headers);
    error.code = failure.code;
    error
}

fn read_failure(headers: &ResponseHeaders, body: &[u8]) -> Failure {
    let mut failure = parse_failure(body)
        // OSS puts the document into a header when the answer to HEAD cannot have a body.
        .or_else(|| parse_failure(&STANDARD.decode(headers.get("x-oss-err")?).ok()?))
        .unwrap_or_default();
    if failure.message.is_empty() && wants_tls(body) {
        WANTS_TLS.clone_into(&mut failure.message);
    }
    if failure.code.is_empty()
        && let Some(code) = headers.get("x-minio-error-code")
    {
        failure.code = code.to_owned();
    }
    if let Some(region) = headers.get("x-amz-bucket-region")
        && failure.region.is_empty()
    {
        failure.region = region.to_owned();
    }
    failure
}

/// Whether a server says that it was spoken to without TLS: those of Go, nginx and Apache.
fn wants_tls(body: &[u8]) -> bool {
    const WORDS: [&str; 3] = [
        "HTTP request to an HTTPS server",
        "HTTP request was sent to HTTPS port",
        "speaking plain HTTP to an SSL-enabled",
    ];
    says_one_of(body, &WORDS)
}

/// What a server says, behind the handshake, of the certificate of its client: nginx does.
enum ClientCertificatePage {
    Missing,
    Refused,
}

impl ClientCertificatePage {
    fn of(body: &[u8]) -> Option<Self> {
        let pages = [
            ("No required SSL certificate was sent", Self::Missing),
            ("The SSL certificate error", Self::Refused),
        ];
        let shown = pages
            .into_iter()
            .find(|(words, _)| says_one_of(body, &[words]));
        shown.map(|(_, page)| page)
    }

    fn words(&self) -> &'static str {
        match self {
            Self::Missing => {
                "the server wants a certificate of its client: set `--client-cert` to one that it trusts, or use an endpoint \
                 that asks for none"
            }
            Self::Refused => {
                "the server refused the client certificate of `--client-cert`, and does not say why: it may have expired, or be \
                 signed by an authority that the server does not trust; its log may say more"
            }
        }
    }
}

fn says_one_of(body: &[u8], words: &[&str]) -> bool {
    let text = String::from_utf8_lossy(body);
    words.iter().any(|words| text.contains(words))
}

fn kind_of(operation: Operation, status: u16, failure: &Failure) -> ErrorKind {
    let elsewhere = !failure.endpoint.is_empty() && matches!(status, 301 | 307 | 400 | 403);
    if elsewhere {
        return ErrorKind::WrongEndpoint;
    }
    kind_of_code(operation, failure).unwrap_or_else(|| kind_of_status(operation, status))
}

/// What went wrong with one of many keys, of which only a code is told.
pub(super) fn kind_of_key(failure: &Failure) -> ErrorKind {
    kind_of_code(Operation::DeleteMany, failure).unwrap_or(ErrorKind::InvalidRequest)
}

fn kind_of_code(operation: Operation, failure: &Failure) -> Option<ErrorKind> {
    let code = failure.code.as_str();
    Some(match code {
        "NoSuchKey" | "SymlinkTargetNotExist" | "NoSuchSymlinkTarget" => ErrorKind::NotFound,
        "NoSuchBucket" => ErrorKind::NoSuchBucket,
        "NoSuchUpload" => ErrorKind::NoSuchUpload,
        "FileAlreadyExists" | "ObjectAlreadyExists" => ErrorKind::AlreadyExists,
        "PreconditionFailed" => failed_condition(operation, failure),
        "PositionNotEqualToLength" => ErrorKind::PositionMismatch,
        "ObjectNotAppendable" | "NotImplemented" | "MethodNotAllowed" | "OperationNotSupported" => {
            ErrorKind::Unsupported
        }
        "AccessDenied" | "AccessForbidden" | "AllAccessDisabled" | "BucketDisable"
        | "BucketNotBelongTo" | "AccountProblem" | "UserDisable" | "InDebt" | "NotSignedUp" => {
            ErrorKind::PermissionDenied
        }
        "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "InvalidSecurityToken"
        | "SecurityTokenExpired"
        | "SecurityTokenNotSupport"
        | "AccessKeyIdAndSecurityTokenNotMatch"
        | "ExpiredToken"
        | "InvalidToken"
        | "TokenRefreshRequired" => ErrorKind::BadCredentials,
        "RequestTimeTooSkewed" | "RequestExpired" => ErrorKind::ClockSkew,
        "PermanentRedirect"
        | "TemporaryRedirect"
        | "Redirect"
        | "IllegalLocationConstraintException"
        | "InvalidRegionName" => ErrorKind::WrongEndpoint,
        "AuthorizationHeaderMalformed" if !failure.region.is_empty() => ErrorKind::WrongEndpoint,
        "InvalidArgument" if failure.message.contains("signing region") => ErrorKind::WrongEndpoint,
        "InvalidObjectState" | "ObjectNotInActiveTierError" => ErrorKind::Archived,
        "InvalidRange" => ErrorKind::InvalidRange,
        "EntityTooLarge" | "MaxMessageLengthExceeded" => ErrorKind::TooLarge,
        "QuotaExceeded"
        | "StorageQuotaExceeded"
        | "BucketQuotaExceeded"
        | "StorageFull"
        | "XMinioStorageFull"
        | "XMinioAdminBucketQuotaExceeded"
        | "InsufficientStorage" => ErrorKind::NoSpace,
        "BadDigest"
        | "InvalidDigest"
        | "XAmzContentChecksumMismatch"
        | "XAmzContentSHA256Mismatch" => ErrorKind::ChecksumMismatch,
        "IncompleteBody" => ErrorKind::Interrupted,
        "RequestTimeout" => ErrorKind::Timeout,
        "InternalError"
        | "ServiceUnavailable"
        | "OperationAborted"
        | "ConditionalRequestConflict" => ErrorKind::Unavailable,
        _ if is_throttle(code) => ErrorKind::Throttled,
        _ => return None,
    })
}

fn is_throttle(code: &str) -> bool {
    // The second `t` in `Limitted` is the store's own.
    const NAMES: [&str; 9] = [
        "SlowDown",
        "SlowDownRead",
        "SlowDownWrite",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "BandwidthLimitExceeded",
        "PartitionQpsLimitted",
    ];
    const ENDINGS: [&str; 3] = [
        "QpsLimitExceeded",
        "TrafficRateLimitExceeded",
        "RateLimitExceeded",
    ];
    NAMES.contains(&code) || ENDINGS.iter().any(|ending| code.ends_with(ending))
}

fn kind_of_status(operation: Operation, status: u16) -> ErrorKind {
    match status {
        300..=399 => ErrorKind::WrongEndpoint,
        401 => ErrorKind::BadCredentials,
        403 => ErrorKind::PermissionDenied,
        404 => ErrorKind::NotFound,
        405 | 501 => ErrorKind::Unsupported,
        408 => ErrorKind::Timeout,
        409 => ErrorKind::Unavailable,
        412 => failed_condition(operation, &Failure::default()),
        413 => ErrorKind::TooLarge,
        416 => ErrorKind::InvalidRange,
        429 | 503 => ErrorKind::Throttled,
        507 => ErrorKind::NoSpace,
        400..=499 => ErrorKind::InvalidRequest,
        500..=599 => ErrorKind::Unavailable,
        _ => ErrorKind::Protocol,
    }
}

/// Only writes to a key that must be free have a condition, apart from copies, whose source has
/// one of its own.
fn failed_condition(operation: Operation, failure: &Failure) -> ErrorKind {
    let condition = failure.condition.to_ascii_lowercase();
    match operation {
        Operation::Put
        | Operation::CreateUpload
        | Operation::CompleteUpload
        | Operation::PutSymlink => ErrorKind::AlreadyExists,
        Operation::Copy if condition == "if-none-match" => ErrorKind::AlreadyExists,
        _ => ErrorKind::PreconditionFailed,
    }
}

fn explain(kind: ErrorKind, status: u16, failure: &Failure, headers: &ResponseHeaders) -> String {
    let said = one_line(&failure.message);
    match kind {
        ErrorKind::WrongEndpoint => explain_place(failure, headers),
        ErrorKind::ClockSkew => explain_skew(headers),
        ErrorKind::BadCredentials => format!("{said}; check key id and secret"),
        ErrorKind::Archived => {
            format!("the object is in an archive class; restore it first ({said})")
        }
        _ if said.is_empty() => format!("the store answered {status}"),
        _ => said,
    }
}

fn explain_place(failure: &Failure, headers: &ResponseHeaders) -> String {
    if !failure.endpoint.is_empty() {
        format!(
            "the bucket is served at {}; set that endpoint",
            failure.endpoint
        )
    } else if !failure.region.is_empty() {
        format!(
            "the bucket is in region {0}; set region = {0}",
            failure.region
        )
    } else if let Some(location) = headers.get("location") {
        // A query could carry a signature.
        let place = location.split('?').next().unwrap_or_default();
        format!("the bucket is served at {place}; set that endpoint")
    } else {
        let said = one_line(&failure.message);
        format!("{said}; the bucket is in another region or behind another endpoint")
    }
}

fn explain_skew(headers: &ResponseHeaders) -> String {
    let theirs = headers
        .get("date")
        .and_then(|text| httpdate::parse_http_date(text).ok());
    match theirs.map(|theirs| seconds_apart(clock::wall_time(), theirs)) {
        Some(0) | None => "this machine's clock differs too much from the store's; set it".into(),
        Some(ahead) if ahead > 0 => {
            format!("this machine's clock is {ahead} s ahead of the store's; set it")
        }
        Some(behind) => {
            format!(
                "this machine's clock is {} s behind the store's; set it",
                -behind
            )
        }
    }
}

fn seconds_apart(ours: SystemTime, theirs: SystemTime) -> i64 {
    let seconds = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs() as i64)
    };
    seconds(ours) - seconds(theirs)
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MESSAGE_MAX).collect()
}

fn request_id(failure: &Failure, headers: &ResponseHeaders) -> String {
    ["x-amz-request-id", "x-oss-request-id"]
        .iter()
        .find_map(|name| headers.get(name))
        .unwrap_or(&failure.request_id)
        .to_owned()
}

/// `Retry-After` in seconds or as a date, or the milliseconds of OSS.
fn retry_after(headers: &ResponseHeaders) -> Option<Duration> {
    let wait = if let Some(milliseconds) = headers.number("x-oss-qos-delay-time") {
        Duration::from_millis(milliseconds)
    } else if let Some(seconds) = headers.number("retry-after") {
        Duration::from_secs(seconds)
    } else {
        let date = httpdate::parse_http_date(headers.get("retry-after")?).ok()?;
        date.duration_since(clock::wall_time()).unwrap_or_default()
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(operation: Operation, head: &str, body: &str) -> ObjectError {
        let head = format!("HTTP/1.1 {head}\r\n\r\n");
        let mut fields = [httparse::EMPTY_HEADER; 8];
        let mut response = httparse::Response::new(&mut fields);
        response.parse(head.as_bytes()).expect("a head");
        let headers = ResponseHeaders::new(head.as_bytes(), response.headers);
        let status = response.code.expect("a status");
        error_from(operation, status, &headers, body.as_bytes())
    }

    fn kind(operation: Operation, status: u16, code: &str) -> ErrorKind {
        let body = match code {
            "" => String::new(),
            code => format!("<Error><Code>{code}</Code><Message>m</Message></Error>"),
        };
        error(operation, &format!("{status} X"), &body).kind
    }

    #[test]
    fn a_server_of_https_that_was_asked_without_is_told_as_one() {
        for body in [
            "Client sent an HTTP request to an HTTPS server.\n",
            "<html><center>The plain HTTP request was sent to HTTPS port</center></html>",
            "Reason: You're speaking plain HTTP to an SSL-enabled server port.<br />",
        ] {
            let told = error(Operation::List, "400 Bad Request", body);
            assert!(told.message.contains("say https://"), "{told}");
        }
    }

    #[test]
    fn a_server_that_wants_a_client_certificate_by_a_page_is_told_as_one() {
        for (reason, words) in [
            (
                "No required SSL certificate was sent",
                "wants a certificate",
            ),
            (
                "The SSL certificate error",
                "refused the client certificate",
            ),
        ] {
            let page = format!("<html>\r\n<head><title>400 {reason}</title></head></html>");
            let told = error(Operation::List, "400 Bad Request", &page);
            assert_eq!(told.kind, ErrorKind::ClientUntrusted, "{told}");
            assert!(told.message.contains("--client-cert"), "{told}");
            assert!(told.message.contains(words), "{told}");
            let of_gateway = error(Operation::List, "503 X", &page);
            assert_eq!(of_gateway.kind, ErrorKind::Throttled, "{of_gateway}");
            assert!(
                !of_gateway.message.contains("--client-cert"),
                "{of_gateway}"
            );
            let of_store =
                format!("<Error><Code>InvalidRequest</Code><Message>{reason}</Message></Error>");
            let told = error(Operation::List, "400 Bad Request", &of_store);
            assert_eq!(told.kind, ErrorKind::InvalidRequest, "{told}");
        }
        let told = error(Operation::Head, "400 Bad Request", "");
        assert!(told.message.contains("penstock check"), "{told}");
    }

    #[test]
    fn codes_of_both_dialects_have_their_kinds() {
        use ErrorKind::{
            AlreadyExists, Archived, BadCredentials, ClockSkew, Interrupted, InvalidRequest,
            NoSpace, NoSuchBucket, NoSuchUpload, NotFound, PermissionDenied, PositionMismatch,
            Throttled, TooLarge, Unavailable, Unsupported,
        };
        for (status, code, expected) in [
            (404, "NoSuchKey", NotFound),
            (404, "SymlinkTargetNotExist", NotFound),
            (404, "NoSuchBucket", NoSuchBucket),
            (404, "NoSuchUpload", NoSuchUpload),
            (403, "AccessDenied", PermissionDenied),
            (403, "BucketNotBelongTo", PermissionDenied),
            (403, "InvalidAccessKeyId", BadCredentials),
            (403, "SignatureDoesNotMatch", BadCredentials),
            (400, "ExpiredToken", BadCredentials),
            (403, "RequestTimeTooSkewed", ClockSkew),
            (403, "InvalidObjectState", Archived),
            (409, "FileAlreadyExists", AlreadyExists),
            (409, "PositionNotEqualToLength", PositionMismatch),
            (409, "ObjectNotAppendable", Unsupported),
            (409, "ConditionalRequestConflict", Unavailable),
            (400, "EntityTooLarge", TooLarge),
            (400, "EntityTooSmall", InvalidRequest),
            (400, "IncompleteBody", Interrupted),
            (501, "NotImplemented", Unsupported),
            (503, "SlowDown", Throttled),
            (503, "PartitionQpsLimitted", Throttled),
            (503, "MetaOperationQpsLimitExceeded", Throttled),
            (503, "DownloadTrafficRateLimitExceeded", Throttled),
            (503, "ServiceUnavailable", Unavailable),
            (500, "InternalError", Unavailable),
            (507, "XMinioStorageFull", NoSpace),
            (418, "Teapot", InvalidRequest),
        ] {
            assert_eq!(
                kind(Operation::Get, status, code),
                expected,
                "{status} {code}"
            );
        }
    }

    #[test]
    fn statuses_speak_where_there_is_no_code() {
        use ErrorKind::{
            InvalidRange, NoSpace, NotFound, PermissionDenied, Throttled, Unavailable,
            WrongEndpoint,
        };
        for (status, expected) in [
            (301, WrongEndpoint),
            (403, PermissionDenied),
            (404, NotFound),
            (416, InvalidRange),
            (429, Throttled),
            (500, Unavailable),
            (502, Unavailable),
            (503, Throttled),
            (507, NoSpace),
        ] {
            assert_eq!(kind(Operation::Head, status, ""), expected, "{status}");
        }
    }

    #[test]
    fn a_failed_condition_means_what_was_asked() {
        let failed = |operation| kind(operation, 412, "PreconditionFailed");
        assert_eq!(failed(Operation::Get), ErrorKind::PreconditionFailed);
        assert_eq!(failed(Operation::Put), ErrorKind::AlreadyExists);
        assert_eq!(failed(Operation::CompleteUpload), ErrorKind::AlreadyExists);
        assert_eq!(failed(Operation::Copy), ErrorKind::PreconditionFailed);
        let body =
            "<Error><Code>PreconditionFailed</Code><Condition>If-None-Match</Condition></Error>";
        let target = error(Operation::Copy, "412 X", body);
        assert_eq!(target.kind, ErrorKind::AlreadyExists);
    }

    #[test]
    fn another_place_is_named() {
        for (head, body, part) in [
            (
                "301 X\r\nx-amz-bucket-region: eu-west-1",
                "",
                "region = eu-west-1",
            ),
            (
                "400 X",
                "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>",
                "region = eu-west-1",
            ),
            (
                "403 X",
                "<Error><Code>AccessDenied</Code><Endpoint>oss-cn-x.aliyuncs.com</Endpoint></Error>",
                "served at oss-cn-x.aliyuncs.com",
            ),
            (
                "307 X\r\nlocation: https://y.example/k?signature=z",
                "",
                "served at https://y.example/k;",
            ),
        ] {
            let error = error(Operation::List, head, body);
            assert_eq!(error.kind, ErrorKind::WrongEndpoint, "{head} {body}");
            assert!(error.message.contains(part), "{error}");
            assert!(!error.message.contains("signature"), "{error}");
        }
    }

    #[test]
    fn an_answer_to_head_may_explain_itself_in_a_header() {
        let document = STANDARD.encode("<Error><Code>NoSuchBucket</Code></Error>");
        let of_oss = error(
            Operation::Head,
            &format!("404 X\r\nx-oss-err: {document}"),
            "",
        );
        assert_eq!(of_oss.kind, ErrorKind::NoSuchBucket);
        let of_minio = error(
            Operation::Head,
            "404 X\r\nx-minio-error-code: NoSuchBucket",
            "",
        );
        assert_eq!(of_minio.kind, ErrorKind::NoSuchBucket);
    }

    #[test]
    fn waits_are_read_in_every_unit_and_limited() {
        let wait =
            |field: &str| error(Operation::Get, &format!("503 X\r\n{field}"), "").retry_after;
        assert_eq!(wait("retry-after: 2"), Some(Duration::from_secs(2)));
        assert_eq!(
            wait("x-oss-qos-delay-time: 200"),
            Some(Duration::from_millis(200))
        );
        assert_eq!(wait("retry-after: 86400"), Some(RETRY_AFTER_MAX));
        assert_eq!(
            wait("retry-after: Wed, 21 Oct 2015 07:28:00 GMT"),
            Some(Duration::ZERO)
        );
        assert_eq!(wait("x: y"), None);
    }

    #[test]
    fn a_wrong_clock_is_told_by_how_much() {
        let body = "<Error><Code>RequestTimeTooSkewed</Code></Error>";
        let head = "403 X\r\ndate: Wed, 21 Oct 2015 07:28:00 GMT";
        let error = error(Operation::List, head, body);
        assert_eq!(error.kind, ErrorKind::ClockSkew);
        assert!(error.message.contains("ahead of the store's"), "{error}");
    }
}
