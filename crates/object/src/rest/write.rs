//! PUT and delete.

use base64::{Engine, engine::general_purpose::STANDARD};
use md5::{Digest, Md5};
use penstock_base::Payload;

use super::{
    Dialect, Draft, RestStore, WriteKind, WritePlan, describe::describe, failure::kind_of_key,
    plan::Written, proof::Put,
};
use crate::{
    Checksum, DeleteFailure, ETag, ErrorKind, Key, ObjectError, ObjectInfo, ObjectResult,
    Operation, PutOptions, Stored, UserMetadata, WriteCondition,
    http::{RequestHeaders, Response, ResponseHeaders},
    rules::check_delete_many,
    sign::Query,
    xml::{
        Failure, WriteAnswer, XmlError, delete_many_body, is_expressible, parse_delete_failures,
        parse_failure, parse_write_answer,
    },
};

impl<D: Dialect> RestStore<D> {
    pub(super) async fn put(
        &self,
        key: &Key,
        body: &Payload,
        options: &PutOptions,
    ) -> ObjectResult<Stored> {
        let kind = WriteKind::new(Operation::Put, &options.condition);
        self.write_with_plans(kind, |plan| self.put_as(key, body, options, plan))
            .await
            .map_err(|error| judged(error, &options.condition))
    }

    async fn put_as(
        &self,
        key: &Key,
        body: &Payload,
        options: &PutOptions,
        plan: WritePlan,
    ) -> ObjectResult<Written<Stored>> {
        let mut draft = Draft::new(Operation::Put, "PUT")
            .about(key)
            .with_body(body.clone());
        self.describe_object(&mut draft, options)?;
        self.make_conditional(&mut draft, &options.condition, plan)
            .await?;
        let ours = self.declare_body(plan, body, &mut draft.headers);
        let put = Put {
            stored: self.send_put(&draft, ours).await?,
            draft: &draft,
            condition: &options.condition,
            plan,
            ours,
        };
        let stored = self.put_to_the_proof(put).await?;
        Ok(Written {
            echoed: ours.map(|_| stored.checksum.is_some()),
            value: stored,
        })
    }

    /// Sends a body of which our checksum is `ours`.
    pub(super) async fn send_put(
        &self,
        draft: &Draft,
        ours: Option<Checksum>,
    ) -> ObjectResult<Stored> {
        let response = self.send_only(draft).await?;
        let checksum = self.dialect.checksum_in(&response.headers);
        let etag = etag_of(&response);
        match self.compare(draft, ours, checksum) {
            Ok(()) => Ok(Stored { etag, checksum }),
            Err(error) => Err(error.leaving(etag)),
        }
    }

    /// Adds media type and metadata.
    pub(crate) fn describe_object(
        &self,
        draft: &mut Draft,
        options: &PutOptions,
    ) -> ObjectResult<()> {
        let description = (options.content_type.as_deref(), &options.metadata);
        self.describe_as(draft, description)
    }

    pub(super) fn describe_as(
        &self,
        draft: &mut Draft,
        description: (Option<&str>, &UserMetadata),
    ) -> ObjectResult<()> {
        let class = D::NAMES.storage_class;
        let class = self.writes.storage_class.is_none().then_some(class);
        let names = (D::NAMES.metadata, class);
        describe(names, description, &mut draft.headers)
            .map_err(|message| draft.error(ErrorKind::InvalidRequest, message))
    }

    /// Sums a body up and says so in the headers.
    pub(super) fn declare_body(
        &self,
        plan: WritePlan,
        body: &Payload,
        headers: &mut RequestHeaders,
    ) -> Option<Checksum> {
        let checksum = body.checksum(self.dialect.body_checksum(plan)?);
        self.dialect.declare_body(checksum, headers);
        Some(checksum)
    }

    /// Lets a write fail when its condition does not hold: by the store where it can, else by
    /// looking first.
    pub(crate) async fn make_conditional(
        &self,
        draft: &mut Draft,
        condition: &WriteCondition,
        plan: WritePlan,
    ) -> ObjectResult<()> {
        match condition {
            WriteCondition::Always => return Ok(()),
            // Many stores ignore a header that they do not know.
            WriteCondition::IfAbsent => {
                if !plan.condition || !self.dialect.checks_absence(draft.operation) {
                    self.require_absent(draft).await?;
                }
                if plan.condition {
                    self.dialect.forbid_overwrite(&mut draft.headers);
                }
            }
            WriteCondition::IfMatch(tag) => {
                if !plan.condition || !self.dialect.checks_version(draft.operation) {
                    self.require_target(draft, tag).await?;
                }
                if plan.condition {
                    self.dialect.require_version(tag, &mut draft.headers);
                }
            }
        }
        draft.repeatable = false;
        Ok(())
    }

    async fn require_target(&self, draft: &Draft, tag: &ETag) -> ObjectResult<()> {
        let Some(key) = &draft.key else {
            return Ok(());
        };
        self.require_version(draft, key, tag).await.map(drop)
    }

    /// The object `key`; fails with `PreconditionFailed` if it is another version, or gone.
    pub(super) async fn require_version(
        &self,
        draft: &Draft,
        key: &Key,
        tag: &ETag,
    ) -> ObjectResult<ObjectInfo> {
        let message = match self.head(key).await {
            Ok(info) if info.etag == *tag => return Ok(info),
            Ok(_) => "the object was replaced by another version",
            Err(error) if error.kind == ErrorKind::NotFound => "the object was removed",
            Err(error) => return Err(error),
        };
        Err(draft.error(ErrorKind::PreconditionFailed, message))
    }

    async fn require_absent(&self, draft: &Draft) -> ObjectResult<()> {
        let Some(key) = &draft.key else {
            return Ok(());
        };
        match self.head(key).await {
            Ok(_) => Err(draft.error(ErrorKind::AlreadyExists, "the key is taken")),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Compares checksums, and counts where there is nothing to compare with.
    pub(crate) fn compare(
        &self,
        draft: &Draft,
        ours: Option<Checksum>,
        theirs: Option<Checksum>,
    ) -> ObjectResult<()> {
        match (ours, theirs) {
            (Some(ours), Some(theirs)) if ours == theirs => self.metrics.verified.increment(),
            (Some(_), Some(_)) => {
                self.metrics.mismatched.increment();
                let message = "what the store has does not match the checksum of what was sent";
                return Err(draft.error(ErrorKind::ChecksumMismatch, message));
            }
            (Some(_), None) => self.metrics.unverified.increment(),
            (None, _) => {}
        }
        Ok(())
    }

    /// Sends a request that the store works on for a while: it may begin a successful answer
    /// before it knows how things end, and then say that they ended badly.
    pub(super) async fn fetch_write_answer(
        &self,
        draft: &Draft,
    ) -> ObjectResult<(WriteAnswer, ResponseHeaders)> {
        let (body, headers) = self.fetch_late(draft).await?;
        let answer = parse_write_answer(&body).map_err(|error| protocol(draft, &error))?;
        Ok((answer, headers))
    }

    /// Sends such a request and returns its successful answer.
    pub(super) async fn fetch_late(
        &self,
        draft: &Draft,
    ) -> ObjectResult<(Vec<u8>, ResponseHeaders)> {
        let response = self.send(draft).await?;
        let headers = response.headers.clone();
        let body = self.collect(draft, response).await?;
        match parse_failure(&body) {
            Some(_) => Err(draft.late_failure(&headers, &body)),
            None => Ok((body, headers)),
        }
    }

    pub(super) async fn delete(&self, key: &Key) -> ObjectResult<()> {
        let draft = Draft::new(Operation::Delete, "DELETE").about(key);
        match self.send_only(&draft).await {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    pub(super) async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        check_delete_many(keys)?;
        let (listed, others): (Vec<&Key>, Vec<&Key>) =
            keys.iter().partition(|key| is_expressible(key));
        let mut failures = match listed[..] {
            [] => Vec::new(),
            _ => self.delete_many_ways(&listed).await?,
        };
        failures.extend(self.delete_each(&others).await?);
        Ok(failures)
    }

    /// At once, or one by one where the store cannot do that.
    async fn delete_many_ways(&self, keys: &[&Key]) -> ObjectResult<Vec<DeleteFailure>> {
        let feature = &self.features.bulk_deletes;
        if feature.is_absent() {
            return self.delete_each(keys).await;
        }
        match self.delete_listed(keys).await {
            Err(error) if error.kind == ErrorKind::Unsupported => {
                feature.learn(false);
                self.delete_each(keys).await
            }
            outcome => {
                if outcome.is_ok() {
                    feature.learn(true);
                }
                outcome
            }
        }
    }

    async fn delete_each(&self, keys: &[&Key]) -> ObjectResult<Vec<DeleteFailure>> {
        let mut failures = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            match self.delete(key).await {
                Ok(()) => {}
                Err(error) if !error.kind.is_transient() => failures.push(failed(key, error)),
                Err(error) if index == 0 => return Err(error),
                // What is repeated begins here, and not with those that are gone.
                Err(error) => {
                    let left = keys[index..].iter();
                    failures.extend(left.map(|key| failed(key, error.clone())));
                    break;
                }
            }
        }
        Ok(failures)
    }

    async fn delete_listed(&self, keys: &[&Key]) -> ObjectResult<Vec<DeleteFailure>> {
        let body = delete_many_body(keys);
        let digest = STANDARD.encode(Md5::digest(&body));
        let mut draft = Draft::new(Operation::DeleteMany, "POST")
            .with_query(Query::new().flag("delete"))
            .with_body(body.into_bytes().into());
        draft.headers.push("content-md5", digest);
        draft.headers.push("content-type", "application/xml");
        let answer = self.fetch(&draft).await?;
        let failures = parse_delete_failures(&answer).map_err(|error| protocol(&draft, &error))?;
        failures
            .into_iter()
            // Not an error: the store was asked to delete what is not there.
            .filter(|(_, failure)| failure.code != "NoSuchKey")
            .map(|(key, failure)| {
                let known = keys.iter().find(|known| known.as_str() == key);
                let key = known.ok_or_else(|| unnamed_failure(&draft, &failure))?;
                Ok(DeleteFailure {
                    key: (*key).clone(),
                    kind: kind_of_key(&failure),
                    code: failure.code,
                    message: failure.message,
                })
            })
            .collect()
    }
}

/// The error of a write that insisted on a version: stores say in different ways that the key has
/// another one, or none.
pub(super) fn judged(mut error: ObjectError, condition: &WriteCondition) -> ObjectError {
    let insisted = matches!(condition, WriteCondition::IfMatch(_));
    // A 404 without a code may come from whatever stands before the store.
    let is_gone = error.kind == ErrorKind::NotFound && !error.code.is_empty();
    if insisted && (is_gone || error.kind == ErrorKind::AlreadyExists) {
        error.kind = ErrorKind::PreconditionFailed;
    }
    error
}

fn failed(key: &Key, error: ObjectError) -> DeleteFailure {
    DeleteFailure {
        key: key.clone(),
        kind: error.kind,
        code: error.code,
        message: error.message,
    }
}

/// A failure that cannot be told of one key: then all of them may still be there.
fn unnamed_failure(draft: &Draft, failure: &Failure) -> ObjectError {
    let Failure { code, message, .. } = failure;
    let message = format!("the store could not delete a key that it does not name: {message}");
    let mut error = draft.error(ErrorKind::Protocol, message);
    error.code.clone_from(code);
    error
}

/// Whether it was the store that found another version, and not we who looked.
pub(super) fn is_another_version(error: &ObjectError) -> bool {
    is_replaced(error) && error.status.is_some()
}

/// Whether there is another version than was insisted on, or none.
pub(super) fn is_replaced(error: &ObjectError) -> bool {
    error.kind == ErrorKind::PreconditionFailed
}

pub(super) fn etag_of(response: &Response) -> ETag {
    ETag::new(response.headers.get("etag").unwrap_or_default())
}

/// What went wrong with a look at what was just written. Whoever tries again must know that the write
/// took place, also where the look was refused.
pub(super) fn after_the_fact(error: ObjectError) -> ObjectError {
    match error.kind {
        ErrorKind::Throttled => ObjectError {
            kind: ErrorKind::Unavailable,
            ..error
        },
        _ => error,
    }
}

pub(super) fn protocol(draft: &Draft, error: &XmlError) -> ObjectError {
    draft.error(ErrorKind::Protocol, error.to_string())
}
