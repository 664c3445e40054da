//! What can go wrong between two ends of a connection.

use std::io;

use thiserror::Error;

use super::tls;
use crate::ErrorKind;

/// A request that got no usable answer.
#[derive(Debug, Clone, Error)]
#[error("{message}")]
pub(crate) struct HttpError {
    /// What the caller can do.
    pub(crate) kind: ErrorKind,
    /// One line with the cause and, where there is one, the remedy.
    pub(crate) message: String,
    /// The connection broke before a single byte of the response arrived.
    pub(crate) unanswered: bool,
}

impl HttpError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            unanswered: false,
        }
    }

    /// The connection failed while a request was sent or its answer awaited.
    pub(super) fn broken(error: &io::Error) -> Self {
        let broke = || {
            (
                ErrorKind::Unavailable,
                format!("the connection broke: {error}"),
            )
        };
        let (kind, message) = tls::lasting(error).unwrap_or_else(broke);
        Self {
            unanswered: true,
            ..Self::new(kind, message)
        }
    }

    /// This, if it says that trying again does not help, else that the connection broke.
    pub(super) fn or_broken(self, error: &io::Error) -> Self {
        if self.kind.is_transient() {
            return Self::broken(error);
        }
        self
    }

    /// The server closed the connection instead of answering.
    pub(super) fn closed() -> Self {
        Self {
            unanswered: true,
            ..Self::new(
                ErrorKind::Unavailable,
                "the server closed the connection without an answer",
            )
        }
    }

    /// The response body ended before its announced length.
    pub(crate) fn cut(reason: impl std::fmt::Display) -> Self {
        let message = format!("the response was cut off: {reason}");
        Self::new(ErrorKind::Interrupted, message)
    }

    /// The server does not speak HTTP as it should.
    pub(super) fn protocol(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Protocol, message)
    }

    /// A deadline passed.
    pub(super) fn timeout(what: &str, limit: std::time::Duration) -> Self {
        Self::new(ErrorKind::Timeout, format!("{what} within {limit:?}"))
    }
}
