//! Multipart uploads.

use penstock_base::Payload;

use super::{
    Dialect, Draft, RestStore, WriteKind, WritePlan,
    plan::{Written, is_not_understood},
    write::{after_the_fact, etag_of, is_another_version, judged, protocol},
};
use crate::{
    Checksum, CompleteOptions, ETag, ErrorKind, Key, Known, ObjectError, ObjectResult, Operation,
    Part, PartCopy, PartNumber, PutOptions, Stored, UploadId, WriteCondition,
    assembled::{self, Likeness},
    sign::Query,
    xml::{WriteAnswer, complete_upload_body, parse_upload_id},
};

const NO_PART_COPIES: &str = "the store cannot make parts of what it has (UploadPartCopy)";

const LENGTH_REQUIRED: u16 = 411;

impl<D: Dialect> RestStore<D> {
    pub(super) async fn create_upload(
        &self,
        key: &Key,
        options: &PutOptions,
    ) -> ObjectResult<UploadId> {
        // The condition is checked when the upload is completed.
        let kind = WriteKind::new(Operation::CreateUpload, &WriteCondition::Always);
        self.write_with_plans(kind, |plan| self.create_upload_as(key, options, plan))
            .await
    }

    async fn create_upload_as(
        &self,
        key: &Key,
        options: &PutOptions,
        plan: WritePlan,
    ) -> ObjectResult<Written<UploadId>> {
        let mut draft = Draft::new(Operation::CreateUpload, "POST")
            .about(key)
            .with_query(Query::new().flag("uploads"));
        self.describe_object(&mut draft, options)?;
        if plan.checksum {
            self.dialect.declare_upload(&mut draft.headers);
        }
        let body = self.fetch(&draft).await?;
        let id = parse_upload_id(&body).map_err(|error| protocol(&draft, &error))?;
        Ok(Written {
            value: UploadId::new(&id),
            echoed: None,
        })
    }

    pub(super) async fn upload_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        body: &Payload,
    ) -> ObjectResult<Part> {
        let kind = WriteKind::new(Operation::UploadPart, &WriteCondition::Always);
        self.write_with_plans(kind, |plan| {
            let draft = draft_part(Operation::UploadPart, key, upload, number);
            self.upload_part_as(draft.with_body(body.clone()), number, plan)
        })
        .await
    }

    async fn upload_part_as(
        &self,
        mut draft: Draft,
        number: PartNumber,
        plan: WritePlan,
    ) -> ObjectResult<Written<Part>> {
        let ours = self.declare_body(plan, &draft.body, &mut draft.headers);
        let response = self.send_only(&draft).await?;
        let theirs = self.dialect.checksum_in(&response.headers);
        self.compare(&draft, ours, theirs)?;
        Ok(Written {
            value: Part {
                number,
                etag: etag_of(&response),
                size: draft.body.len() as u64,
                checksum: ours,
            },
            echoed: ours.map(|_| theirs.is_some()),
        })
    }

    pub(super) async fn copy_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        copy: &PartCopy,
    ) -> ObjectResult<Part> {
        let mut draft = draft_part(Operation::CopyPart, key, upload, number).patient();
        if copy.range.is_empty() {
            return Err(draft.error(ErrorKind::InvalidRange, "no bytes to copy"));
        }
        self.name_source(&mut draft, &copy.source, copy.if_match.as_ref());
        let range = format!("bytes={}-{}", copy.range.start, copy.range.end - 1);
        draft.headers.push(D::NAMES.copy_source_range, range);
        let answer = self.fetch_part_copy(&draft).await;
        if copy.if_match.is_some() && answer.as_ref().is_err_and(is_another_version) {
            self.features.saw_source_refused(Operation::CopyPart);
        }
        let answer = answer?;
        Ok(Part {
            number,
            etag: ETag::new(&answer.etag),
            size: copy.range.end - copy.range.start,
            checksum: self.dialect.checksum_of_copy(&answer),
        })
    }

    /// Fails with `Unsupported`, soon with no request at all, where the store makes no copies of parts.
    async fn fetch_part_copy(&self, draft: &Draft) -> ObjectResult<WriteAnswer> {
        let feature = &self.features.part_copies;
        if feature.is_absent() {
            return Err(draft.error(ErrorKind::Unsupported, NO_PART_COPIES));
        }
        match self.fetch_write_answer(draft).await {
            Ok((answer, _)) => {
                feature.learn(true);
                Ok(answer)
            }
            // Another copy may have learned it meanwhile.
            Err(error) if feature.state() != Known::Present && is_unable(&error) => {
                // A request that is malformed may have been so for its range.
                if error.kind != ErrorKind::InvalidRequest || error.status == Some(LENGTH_REQUIRED)
                {
                    feature.learn(false);
                }
                let message = format!("{NO_PART_COPIES}: {error}");
                Err(draft.error(ErrorKind::Unsupported, message))
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn complete_upload(
        &self,
        key: &Key,
        upload: &UploadId,
        parts: &[Part],
        options: &CompleteOptions,
    ) -> ObjectResult<Stored> {
        let kind = WriteKind::new(Operation::CompleteUpload, &options.condition);
        let complete = |plan| self.complete_upload_as(key, upload, parts, options, plan);
        let stored = self
            .write_with_plans(kind, complete)
            .await
            .map_err(|error| judged(error, &options.condition))?;
        self.with_true_tag(key, (parts, options.checksum), stored)
            .await
    }

    /// The same with the tag that the object has: some stores tell another one when they complete an
    /// upload. An object of which checksum or tag say that the parts do not make it is somebody else's by
    /// now. Where neither tells, its size does.
    async fn with_true_tag(
        &self,
        key: &Key,
        (parts, whole): (&[Part], Option<Checksum>),
        stored: Stored,
    ) -> ObjectResult<Stored> {
        let feature = &self.features.upload_tags;
        if feature.state() == Known::Present {
            return Ok(stored);
        }
        match self.head(key).await {
            Ok(info) if info.etag == stored.etag => {
                feature.learn(true);
                Ok(stored)
            }
            Ok(info) if assembled::compare(&info, parts, whole) != Likeness::Other => {
                feature.learn(false);
                Ok(Stored {
                    etag: info.etag,
                    ..stored
                })
            }
            // Who repeats the completion finds the object.
            Err(error) if error.kind.is_transient() => Err(after_the_fact(error)),
            Ok(_) | Err(_) => Ok(stored),
        }
    }

    async fn complete_upload_as(
        &self,
        key: &Key,
        upload: &UploadId,
        parts: &[Part],
        options: &CompleteOptions,
        plan: WritePlan,
    ) -> ObjectResult<Written<Stored>> {
        let body = complete_upload_body(parts, |checksum| {
            plan.checksum
                .then(|| self.dialect.part_element(checksum))
                .flatten()
        });
        let mut draft = Draft::new(Operation::CompleteUpload, "POST")
            .about(key)
            .with_query(Query::new().with("uploadId", upload.as_str()))
            .with_body(body.into_bytes().into())
            .patient()
            .once();
        draft.headers.push("content-type", "application/xml");
        self.require_copied(&draft, key, options).await?;
        self.make_conditional(&mut draft, &options.condition, plan)
            .await?;
        let ours = self.whole_checksum(parts, options, plan);
        if let Some(checksum) = ours {
            self.dialect.declare_whole(checksum, &mut draft.headers);
        }
        let (answer, told) = self.complete(&draft).await?;
        self.compare(&draft, ours, told)?;
        Ok(Written {
            value: Stored {
                etag: answer,
                checksum: told,
            },
            echoed: None,
        })
    }

    /// Fails if parts may have been copied from another version than was wanted. One that was replaced
    /// stays so: its tag does not come back with other bytes.
    async fn require_copied(
        &self,
        draft: &Draft,
        key: &Key,
        options: &CompleteOptions,
    ) -> ObjectResult<()> {
        let Some((source, tag)) = &options.copied else {
            return Ok(());
        };
        // The condition of the completion itself is of this version.
        let is_replaced =
            source == key && options.condition == WriteCondition::IfMatch(tag.clone());
        let is_compared = self.features.checks_sources(Operation::CopyPart);
        if is_replaced || is_compared || tag.as_str().is_empty() {
            return Ok(());
        }
        self.require_version(draft, source, tag).await.map(drop)
    }

    /// The checksum of the object to be, of the kind that this store can compare with.
    fn whole_checksum(
        &self,
        parts: &[Part],
        options: &CompleteOptions,
        plan: WritePlan,
    ) -> Option<Checksum> {
        let kind = self.dialect.body_checksum(plan)?;
        options
            .checksum
            .filter(|checksum| checksum.kind() == kind)
            .or_else(|| Part::joined_checksum(parts))
    }

    async fn complete(&self, draft: &Draft) -> ObjectResult<(ETag, Option<Checksum>)> {
        let (answer, headers) = self.fetch_write_answer(draft).await?;
        let told = self
            .dialect
            .checksum_in(&headers)
            .or_else(|| self.dialect.checksum_of_whole(&answer));
        Ok((ETag::new(&answer.etag), told))
    }

    pub(super) async fn abort_upload(&self, key: &Key, upload: &UploadId) -> ObjectResult<()> {
        let draft = Draft::new(Operation::AbortUpload, "DELETE")
            .about(key)
            .with_query(Query::new().with("uploadId", upload.as_str()));
        match self.send_only(&draft).await {
            Err(error) if matches!(error.kind, ErrorKind::NoSuchUpload | ErrorKind::NotFound) => {
                Ok(())
            }
            outcome => outcome.map(|_| ()),
        }
    }
}

/// Whether the store may have failed because it cannot copy parts at all. Some take such a request for
/// a part without bytes, and answer without a document or ask for its length.
fn is_unable(error: &ObjectError) -> bool {
    is_not_understood(error) || error.kind == ErrorKind::Protocol
}

fn draft_part(operation: Operation, key: &Key, upload: &UploadId, number: PartNumber) -> Draft {
    let query = Query::new()
        .with("partNumber", number.to_string())
        .with("uploadId", upload.as_str());
    Draft::new(operation, "PUT").about(key).with_query(query)
}
