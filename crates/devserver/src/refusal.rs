//! The errors that a client sees, and how a handler ends without an answer.

use std::{borrow::Cow, io};

/// An error code with its status and usual message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    AccessDenied,
    AuthorizationHeaderMalformed,
    BadDigest,
    BucketAlreadyExists,
    BucketNotEmpty,
    EntityTooLarge,
    EntityTooSmall,
    FileAlreadyExists,
    IncompleteBody,
    InternalError,
    InvalidAccessKeyId,
    InvalidArgument,
    InvalidBucketName,
    InvalidDigest,
    InvalidObjectName,
    InvalidPart,
    InvalidPartOrder,
    InvalidRange,
    InvalidRequest,
    InvalidTargetType,
    InvalidToken,
    KeyTooLongError,
    MalformedXml,
    NoSuchBucket,
    NoSuchKey,
    NoSuchUpload,
    NotImplemented,
    NotSymlink,
    ObjectNotAppendable,
    PayloadHashMismatch,
    PositionNotEqualToLength,
    PreconditionFailed,
    RequestTimeTooSkewed,
    SignatureDoesNotMatch,
    SlowDown,
    SymlinkTargetNotExist,
    TooManyRequests,
    UriTooLong,
}

impl Code {
    /// The word on the wire, the status, and what to tell the reader.
    pub(crate) fn describe(self) -> (&'static str, u16, &'static str) {
        match self {
            Self::AccessDenied => ("AccessDenied", 403, "Sign the request."),
            Self::AuthorizationHeaderMalformed => (
                "AuthorizationHeaderMalformed",
                400,
                "The authorization header is malformed.",
            ),
            Self::BadDigest => (
                "BadDigest",
                400,
                "The body does not match the checksum sent with it.",
            ),
            Self::BucketAlreadyExists => {
                ("BucketAlreadyOwnedByYou", 409, "The bucket exists already.")
            }
            Self::BucketNotEmpty => ("BucketNotEmpty", 409, "The bucket still holds objects."),
            Self::EntityTooLarge => (
                "EntityTooLarge",
                400,
                "The body is larger than one request may carry.",
            ),
            Self::EntityTooSmall => (
                "EntityTooSmall",
                400,
                "A part other than the last is too small.",
            ),
            Self::FileAlreadyExists => (
                "FileAlreadyExists",
                409,
                "The object exists and overwriting was forbidden.",
            ),
            Self::IncompleteBody => (
                "IncompleteBody",
                400,
                "The body ended before its declared length.",
            ),
            Self::InternalError => ("InternalError", 500, "The server failed. Try again."),
            Self::InvalidAccessKeyId => {
                ("InvalidAccessKeyId", 403, "The access key id is unknown.")
            }
            Self::InvalidArgument => ("InvalidArgument", 400, "An argument is not valid."),
            Self::InvalidBucketName => ("InvalidBucketName", 400, "The bucket name is not valid."),
            Self::InvalidDigest => (
                "InvalidDigest",
                400,
                "A checksum in the headers is not valid.",
            ),
            Self::InvalidObjectName => ("InvalidObjectName", 400, "The object name is not valid."),
            Self::InvalidPart => (
                "InvalidPart",
                400,
                "A part was not uploaded or has another tag.",
            ),
            Self::InvalidPartOrder => (
                "InvalidPartOrder",
                400,
                "Parts must come in ascending order.",
            ),
            Self::InvalidRange => (
                "InvalidRange",
                416,
                "The range lies beyond the end of the object.",
            ),
            Self::InvalidRequest => ("InvalidRequest", 400, "The request is not valid."),
            Self::InvalidTargetType => {
                ("InvalidTargetType", 400, "A link may not point to a link.")
            }
            Self::InvalidToken => (
                "InvalidToken",
                400,
                "The security token is missing or wrong.",
            ),
            Self::KeyTooLongError => ("KeyTooLongError", 400, "The key is too long."),
            Self::MalformedXml => (
                "MalformedXML",
                400,
                "The XML is malformed or not what was expected.",
            ),
            Self::NoSuchBucket => ("NoSuchBucket", 404, "The bucket does not exist."),
            Self::NoSuchKey => ("NoSuchKey", 404, "The key does not exist."),
            Self::NoSuchUpload => (
                "NoSuchUpload",
                404,
                "The upload does not exist, was completed or aborted.",
            ),
            Self::NotImplemented => ("NotImplemented", 501, "This server does not do that."),
            Self::NotSymlink => ("NotSymlink", 400, "The object is not a symbolic link."),
            Self::ObjectNotAppendable => (
                "ObjectNotAppendable",
                409,
                "The object was not begun by an append.",
            ),
            Self::PayloadHashMismatch => (
                "XAmzContentSHA256Mismatch",
                400,
                "The body does not match x-amz-content-sha256.",
            ),
            Self::PositionNotEqualToLength => (
                "PositionNotEqualToLength",
                409,
                "The position is not the length of the object.",
            ),
            Self::PreconditionFailed => (
                "PreconditionFailed",
                412,
                "A condition of the request does not hold.",
            ),
            Self::RequestTimeTooSkewed => (
                "RequestTimeTooSkewed",
                403,
                "The clocks differ by more than 15 minutes.",
            ),
            Self::SignatureDoesNotMatch => (
                "SignatureDoesNotMatch",
                403,
                "The signature does not match. Check the secret key.",
            ),
            Self::SlowDown => ("SlowDown", 503, "Please reduce your request rate."),
            Self::SymlinkTargetNotExist => (
                "SymlinkTargetNotExist",
                404,
                "The target of the link does not exist.",
            ),
            Self::TooManyRequests => ("TooManyRequests", 429, "Please reduce your request rate."),
            Self::UriTooLong => ("InvalidURI", 400, "The request target cannot be read."),
        }
    }
}

/// An error answer.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    /// The word on the wire where it is not the code's own.
    pub(crate) name: Option<String>,
    pub(crate) status: u16,
    pub(crate) message: Cow<'static, str>,
    /// More elements of the error document.
    pub(crate) details: Vec<(&'static str, String)>,
    /// More headers of the answer.
    pub(crate) headers: Vec<(&'static str, String)>,
}

impl Refusal {
    /// With a message of its own.
    pub(crate) fn because(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            message: message.into(),
            ..Self::from(code)
        }
    }

    #[must_use]
    pub(crate) fn detail(mut self, element: &'static str, text: impl Into<String>) -> Self {
        self.details.push((element, text.into()));
        self
    }

    #[must_use]
    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The word on the wire.
    pub(crate) fn word(&self) -> &str {
        self.name.as_deref().unwrap_or(self.code.describe().0)
    }
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        let (_, status, message) = code.describe();
        let message = Cow::Borrowed(message);
        Self {
            code,
            name: None,
            status,
            message,
            details: Vec::new(),
            headers: Vec::new(),
        }
    }
}

/// Why a handler did not produce an answer of its own.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The client gets this error.
    Refused(Box<Refusal>),
    /// The connection is of no more use.
    Broken(io::Error),
    /// A fault rule wants the connection reset.
    Reset,
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl From<Code> for Trouble {
    fn from(code: Code) -> Self {
        Refusal::from(code).into()
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}
