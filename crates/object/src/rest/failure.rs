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

/// Turns an answer that is no success into an error.
pub(super) fn error_from(
    operation: Operation,
    status: u16,
    headers: &ResponseHeaders,
    body: &[u8],
) -> ObjectError {
    let failure = read_failure(headers, body);
    let kind = kind_of(operation, status, &failure);
    let message = explain(kind, status, &failure, headers);
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

fn kind_of(operation: Operation, status: u16, failure: &Failure) -> ErrorKind {
    let elsewhere = !failure.endpoint.is_empty() && matches!(status, 301 | 307 | 400 | 403);
    if elsewhere {
        return ErrorKind::WrongEndpoint;
    }
    kind_of_code(operation, failure).unwrap_or_else(|| kind_of_status(operation, status))
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
