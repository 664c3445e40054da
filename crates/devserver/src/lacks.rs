//! What imitations of S3 lack. Each of these was met at a store that people use.
//!
//! A lack is no fault that passes: the server behaves like that for every request. What a store says
//! plainly that it cannot do, such as copies of parts, is a [`crate::Fault::Status`] for all requests
//! of that kind.

use serde::{Deserialize, Serialize};

/// One thing that the server does not do, or does in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lack {
    /// Writes pass over `If-None-Match` and `If-Match`.
    WriteConditions,
    /// Requests with `x-amz-checksum-mode` get 501.
    ChecksumMode,
    /// The answer to a completed upload tells another tag than HEAD and listings.
    TagOfUpload,
    /// Copies pass over the conditions on their source.
    CopyConditions,
    /// The answer to a copy is empty.
    AnswerToCopy,
    /// Keys that end with a slash cannot be copied.
    CopyOfMarker,
    /// Names in listings are not encoded, and what XML cannot hold becomes U+FFFD.
    EncodedNames,
    /// Listing uploads with `max-uploads` gets 501.
    MaxUploads,
    /// Where there are no uploads, listing them gets 404.
    EmptyUploads,
}
