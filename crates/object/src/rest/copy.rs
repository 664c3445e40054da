//! Copies inside the store.
//!
//! What imitations get wrong is made up for here: an answer that does not tell the copy's tag, and
//! markers of directories that cannot be copied.

use penstock_base::Payload;

use super::{
    Dialect, Draft, RestStore, WriteKind, WritePlan,
    plan::{Written, is_not_understood},
    write::{after_the_fact, protocol},
};
use crate::{
    CopyOptions, Description, ETag, ErrorKind, Key, Known, ObjectResult, Operation, PutOptions,
    Stored, WriteCondition,
    sign::encode_path,
    xml::{XmlError, parse_write_answer},
};

impl<D: Dialect> RestStore<D> {
    pub(super) async fn copy_object(
        &self,
        source: &Key,
        target: &Key,
        options: &CopyOptions,
    ) -> ObjectResult<Stored> {
        let feature = &self.features.marker_copies;
        if !source.as_str().ends_with('/') || feature.state() == Known::Present {
            return self.copy_in_store(source, target, options).await;
        }
        if feature.is_absent() {
            return self.write_marker_anew(source, target, options).await;
        }
        let copied = self.copy_in_store(source, target, options).await;
        match copied {
            Err(error) if is_not_understood(&error) => {
                let written = self.write_marker_anew(source, target, options).await?;
                feature.learn(false);
                Ok(written)
            }
            copied => {
                if copied.is_ok() {
                    feature.learn(true);
                }
                copied
            }
        }
    }

    async fn copy_in_store(
        &self,
        source: &Key,
        target: &Key,
        options: &CopyOptions,
    ) -> ObjectResult<Stored> {
        // The version of a copy's target is looked at, so there is nothing to learn of a header.
        let kind = WriteKind {
            versioned: false,
            ..WriteKind::new(Operation::Copy, &options.condition)
        };
        self.write_with_plans(kind, |plan| self.copy_as(source, target, options, plan))
            .await
    }

    /// Copies a directory marker, which has no bytes, without the store's help.
    async fn write_marker_anew(
        &self,
        source: &Key,
        target: &Key,
        options: &CopyOptions,
    ) -> ObjectResult<Stored> {
        let draft = Draft::new(Operation::Copy, "PUT").about(source);
        let info = self.head_object(source).await?;
        if options
            .if_match
            .as_ref()
            .is_some_and(|tag| *tag != info.etag)
        {
            let message = "the directory marker was replaced by another version";
            return Err(draft.error(ErrorKind::PreconditionFailed, message));
        }
        if info.size > 0 {
            let message = "the store cannot copy an object whose name ends with a slash";
            return Err(draft.error(ErrorKind::Unsupported, message));
        }
        let description = options.description.clone().unwrap_or(Description {
            content_type: Some(info.content_type).filter(|kind| !kind.is_empty()),
            metadata: info.metadata,
        });
        let options = PutOptions {
            content_type: description.content_type,
            metadata: description.metadata,
            condition: options.condition.clone(),
        };
        self.put_object(target, &Payload::new(), &options).await
    }

    async fn copy_as(
        &self,
        source: &Key,
        target: &Key,
        options: &CopyOptions,
        plan: WritePlan,
    ) -> ObjectResult<Written<Stored>> {
        let mut draft = Draft::new(Operation::Copy, "PUT").about(target).patient();
        match &options.condition {
            // Then the source is the target, and the store looks at it.
            WriteCondition::IfMatch(tag)
                if source == target && options.if_match.as_ref() == Some(tag) => {}
            WriteCondition::IfMatch(tag) => self.require_version(&draft, tag).await?,
            condition => self.make_conditional(&mut draft, condition, plan).await?,
        }
        self.name_source(&mut draft, source, options.if_match.as_ref());
        self.redescribe(&mut draft, options.description.as_ref())?;
        let etag = self.tag_of_copy(&draft, target).await?;
        Ok(Written {
            value: Stored {
                etag,
                checksum: None,
            },
            echoed: None,
        })
    }

    /// Makes the copy and returns its tag, which some stores do not tell.
    async fn tag_of_copy(&self, draft: &Draft, target: &Key) -> ObjectResult<ETag> {
        let (body, _) = self.fetch_late(draft).await?;
        match parse_write_answer(&body) {
            Ok(answer) => {
                self.features.copy_answers.learn(true);
                Ok(ETag::new(&answer.etag))
            }
            Err(XmlError::Missing("ETag")) if !self.dialect.is_original() => {
                self.features.copy_answers.learn(false);
                let info = self.head_object(target).await.map_err(after_the_fact)?;
                Ok(info.etag)
            }
            Err(error) => Err(protocol(draft, &error)),
        }
    }

    /// Says what to copy.
    pub(super) fn name_source(&self, draft: &mut Draft, source: &Key, if_match: Option<&ETag>) {
        let path = format!("/{}/{}", self.address.bucket, encode_path(source.as_str()));
        draft.headers.push(D::NAMES.copy_source, path);
        if let Some(tag) = if_match {
            let condition = format!("\"{tag}\"");
            draft.headers.push(D::NAMES.copy_source_if_match, condition);
        }
    }

    /// Replaces media type and metadata by others, where that is asked for.
    fn redescribe(&self, draft: &mut Draft, description: Option<&Description>) -> ObjectResult<()> {
        let Some(description) = description else {
            return Ok(());
        };
        draft.headers.push(D::NAMES.metadata_directive, "REPLACE");
        let description = (description.content_type.as_deref(), &description.metadata);
        self.describe_as(draft, description)
    }
}
