//! One request and its answer.

use std::time::Duration;

use penstock_base::{Payload, clock};

use super::{Dialect, RestStore, Signing, attributes::attach, failure::error_from};
use crate::{
    ErrorKind, Key, ObjectError, ObjectResult, Operation,
    credentials::Credentials,
    http::{HttpError, Patience, Request, RequestHeaders, Response, ResponseHeaders},
    sign::Query,
};

/// Bytes in the longest document that is taken as an answer: a page of a thousand keys of the
/// greatest length, encoded in the worst way, takes under 8 MiB.
pub(super) const DOCUMENT_MAX: usize = 16 << 20;

/// Bytes in the longest error document.
const FAILURE_MAX: usize = 64 << 10;

/// The status of a failure that came too late to have one.
const LATE_STATUS: u16 = 500;

/// A request before it has credentials.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) operation: Operation,
    pub(crate) method: &'static str,
    /// Empty for requests about the bucket.
    pub(crate) key: Option<Key>,
    pub(crate) query: Query,
    pub(crate) headers: RequestHeaders,
    pub(crate) body: Payload,
    pub(crate) patience: Patience,
    /// Whether carrying it out twice is the same as once.
    pub(crate) repeatable: bool,
}

impl Draft {
    /// A request about the bucket.
    pub(crate) fn new(operation: Operation, method: &'static str) -> Self {
        Self {
            operation,
            method,
            key: None,
            query: Query::new(),
            headers: RequestHeaders::default(),
            body: Payload::new(),
            patience: Patience::Usual,
            repeatable: true,
        }
    }

    /// The same request about an object.
    pub(crate) fn about(mut self, key: &Key) -> Self {
        self.key = Some(key.clone());
        self
    }

    /// The same request with parameters.
    pub(crate) fn with_query(mut self, query: Query) -> Self {
        self.query = query;
        self
    }

    /// The same request with a body.
    pub(crate) fn with_body(mut self, body: Payload) -> Self {
        self.body = body;
        self
    }

    /// The same request, given more time to be answered.
    pub(crate) fn patient(mut self) -> Self {
        self.patience = Patience::Long;
        self
    }

    /// The same request, which insists on a state that it changes itself.
    pub(crate) fn once(mut self) -> Self {
        self.repeatable = false;
        self
    }

    /// The key as text, empty for the bucket.
    pub(crate) fn key_text(&self) -> &str {
        self.key.as_ref().map_or("", Key::as_str)
    }

    /// An error of this request.
    pub(crate) fn error(&self, kind: ErrorKind, message: impl Into<String>) -> ObjectError {
        self.name(ObjectError::new(kind, self.operation, message))
    }

    /// The error in an answer that had begun as a success.
    pub(crate) fn late_failure(&self, headers: &ResponseHeaders, body: &[u8]) -> ObjectError {
        let mut error = error_from(self.operation, LATE_STATUS, headers, body);
        error.status = None;
        self.name(error)
    }

    fn http_error(&self, error: HttpError) -> ObjectError {
        self.error(error.kind, error.message)
    }

    fn name(&self, error: ObjectError) -> ObjectError {
        match &self.key {
            Some(key) => error.about(key),
            None => error,
        }
    }
}

impl<D: Dialect> RestStore<D> {
    /// Sends a request and returns a successful answer whose body is still to be read.
    pub(crate) async fn send(&self, draft: &Draft) -> ObjectResult<Response> {
        let credentials = self.credentials.current().await;
        let credentials = credentials.map_err(|error| draft.error(error.kind, error.message))?;
        let offset = self.clock.offset();
        let mut outcome = self.send_with(draft, credentials.as_deref()).await;
        if is_skewed(&outcome) && self.clock.offset() != offset {
            outcome = self.send_with(draft, credentials.as_deref()).await;
        }
        match (outcome, credentials) {
            (Err(error), Some(old)) if is_expired(&error) => {
                self.credentials.forget(&old);
                let fresh = self.credentials.current().await;
                let fresh = fresh.map_err(|_| error)?;
                self.send_with(draft, fresh.as_deref()).await
            }
            (outcome, _) => outcome,
        }
    }

    /// Sends a request and collects the document that answers it.
    pub(crate) async fn fetch(&self, draft: &Draft) -> ObjectResult<Vec<u8>> {
        let response = self.send(draft).await?;
        self.collect(draft, response).await
    }

    /// Collects the document that a successful answer carries.
    pub(crate) async fn collect(&self, draft: &Draft, response: Response) -> ObjectResult<Vec<u8>> {
        let body = response.collect(DOCUMENT_MAX).await;
        body.map_err(|error| draft.http_error(error))
    }

    /// Sends a request whose answer is in its headers.
    pub(crate) async fn send_only(&self, draft: &Draft) -> ObjectResult<Response> {
        let mut response = self.send(draft).await?;
        let mut ignored = Vec::new();
        let read = response.receive(&mut ignored, FAILURE_MAX as u64).await;
        read.map_err(|error| draft.http_error(error))?;
        Ok(response)
    }

    async fn send_with(
        &self,
        draft: &Draft,
        credentials: Option<&Credentials>,
    ) -> ObjectResult<Response> {
        let request = self.finish(draft, credentials);
        let begun = clock::now();
        let sent = self.client.send(&request).await;
        if tracing::enabled!(tracing::Level::DEBUG) {
            log(draft, begun.elapsed(), &sent);
        }
        let response = sent.map_err(|error| draft.http_error(error))?;
        match response.status {
            200..=299 if response.early => {
                let message = "the store answered before it had the whole body";
                Err(draft.error(ErrorKind::Interrupted, message))
            }
            200..=299 => Ok(response),
            _ => Err(self.fail(draft, response).await),
        }
    }

    async fn fail(&self, draft: &Draft, response: Response) -> ObjectError {
        let (status, headers) = (response.status, response.headers.clone());
        // Without the document the status still says something.
        let body = response.collect(FAILURE_MAX).await.unwrap_or_default();
        let error = error_from(draft.operation, status, &headers, &body);
        if error.kind == ErrorKind::ClockSkew {
            self.clock.refused(headers.get("date"));
        }
        draft.name(error)
    }

    fn finish(&self, draft: &Draft, credentials: Option<&Credentials>) -> Request {
        let mut headers = draft.headers.clone();
        headers.push("host", self.address.origin.authority());
        if self.requester_pays {
            headers.push(D::NAMES.request_payer, "requester");
        }
        attach::<D>(draft.operation, &self.writes, &mut headers);
        if let Some(credentials) = credentials {
            let signing = Signing {
                draft,
                address: &self.address,
                credentials,
                time: self.clock.now(),
            };
            self.dialect.sign(&signing, &mut headers);
        }
        let mut target = self.address.path(draft.key_text());
        if !draft.query.is_empty() {
            target.push('?');
            target.push_str(&draft.query.encoded(D::AFTER_FLAG));
        }
        Request {
            origin: std::sync::Arc::clone(&self.address.origin),
            method: draft.method,
            target,
            headers,
            body: draft.body.clone(),
            patience: draft.patience,
            repeatable: draft.repeatable,
        }
    }
}

/// A line for a request, without its headers, which sign it. That it is an attempt of several the
/// layer says that repeats it.
fn log(draft: &Draft, time: Duration, sent: &Result<Response, HttpError>) {
    let (operation, method, key) = (draft.operation.name(), draft.method, draft.key_text());
    let sent_bytes = draft.body.len();
    match sent {
        Ok(Response {
            status, headers, ..
        }) => {
            let received = headers.number("content-length").unwrap_or_default();
            tracing::debug!(
                operation,
                status,
                sent = sent_bytes,
                received,
                ?time,
                "{method} `{key}`"
            );
        }
        Err(error) => {
            tracing::debug!(operation, %error, sent = sent_bytes, ?time, "{method} `{key}`");
        }
    }
}

/// Whether another time would help.
fn is_skewed(outcome: &ObjectResult<Response>) -> bool {
    let error = outcome.as_ref().err();
    error.is_some_and(|error| error.kind == ErrorKind::ClockSkew)
}

/// Whether newer credentials would help.
fn is_expired(error: &ObjectError) -> bool {
    matches!(
        error.code.as_str(),
        "ExpiredToken" | "SecurityTokenExpired" | "TokenRefreshRequired"
    )
}
