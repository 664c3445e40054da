//! The errors that a client sees, and how a handler ends without an answer.

use std::{borrow::Cow, io};

macro_rules! codes {
    ($($code:ident $status:literal $word:literal $message:literal;)*) => {
        /// An error code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Code {
            $($code,)*
        }

        impl Code {
            /// The word on the wire, the status, and what to tell the reader.
            pub(crate) fn describe(self) -> (&'static str, u16, &'static str) {
                match self {
                    $(Self::$code => ($word, $status, $message),)*
                }
            }
        }
    };
}

codes! {
    AccessDenied 403 "AccessDenied" "Sign the request.";
    AuthorizationHeaderMalformed 400 "AuthorizationHeaderMalformed" "The authorization header is malformed.";
    BadDigest 400 "BadDigest" "The body does not match the checksum sent with it.";
    BucketAlreadyExists 409 "BucketAlreadyOwnedByYou" "The bucket exists already.";
    BucketNotEmpty 409 "BucketNotEmpty" "The bucket still holds objects.";
    EntityTooLarge 400 "EntityTooLarge" "The body is larger than one request may carry.";
    EntityTooSmall 400 "EntityTooSmall" "A part other than the last is too small.";
    FileAlreadyExists 409 "FileAlreadyExists" "The object exists and overwriting was forbidden.";
    IncompleteBody 400 "IncompleteBody" "The body ended before its declared length.";
    InternalError 500 "InternalError" "The server failed. Try again.";
    InvalidAccessKeyId 403 "InvalidAccessKeyId" "The access key id is unknown.";
    InvalidArgument 400 "InvalidArgument" "An argument is not valid.";
    InvalidBucketName 400 "InvalidBucketName" "The bucket name is not valid.";
    InvalidDigest 400 "InvalidDigest" "A checksum in the headers is not valid.";
    InvalidObjectName 400 "InvalidObjectName" "The object name is not valid.";
    InvalidPart 400 "InvalidPart" "A part was not uploaded or has another tag.";
    InvalidPartOrder 400 "InvalidPartOrder" "Parts must come in ascending order.";
    InvalidRange 416 "InvalidRange" "The range lies beyond the end of the object.";
    InvalidRequest 400 "InvalidRequest" "The request is not valid.";
    InvalidTargetType 400 "InvalidTargetType" "A link may not point to a link.";
    InvalidToken 400 "InvalidToken" "The security token is missing or wrong.";
    KeyTooLongError 400 "KeyTooLongError" "The key is too long.";
    MalformedXml 400 "MalformedXML" "The XML is malformed or not what was expected.";
    NoSuchBucket 404 "NoSuchBucket" "The bucket does not exist.";
    NoSuchKey 404 "NoSuchKey" "The key does not exist.";
    NoSuchUpload 404 "NoSuchUpload" "The upload does not exist, was completed or aborted.";
    NotImplemented 501 "NotImplemented" "This server does not do that.";
    NotSymlink 400 "NotSymlink" "The object is not a symbolic link.";
    ObjectNotAppendable 409 "ObjectNotAppendable" "The object was not begun by an append.";
    PayloadHashMismatch 400 "XAmzContentSHA256Mismatch" "The body does not match x-amz-content-sha256.";
    PositionNotEqualToLength 409 "PositionNotEqualToLength" "The position is not the length of the object.";
    PreconditionFailed 412 "PreconditionFailed" "A condition of the request does not hold.";
    RequestTimeTooSkewed 403 "RequestTimeTooSkewed" "The clocks differ by more than 15 minutes.";
    SignatureDoesNotMatch 403 "SignatureDoesNotMatch" "The signature does not match. Check the secret key.";
    SlowDown 503 "SlowDown" "Please reduce your request rate.";
    SymlinkTargetNotExist 404 "SymlinkTargetNotExist" "The target of the link does not exist.";
    TooManyRequests 429 "TooManyRequests" "Please reduce your request rate.";
    UriTooLong 400 "InvalidURI" "The request target cannot be read.";
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
