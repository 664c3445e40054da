//! Copies inside the store.
//!
//! What imitations get wrong is made up for here: markers of directories that cannot be copied; and, with
//! [`super::provenance`], copies of another version and answers that do not tell the copy's tag.

use penstock_base::Payload;

use super::{
    Dialect, Draft, RestStore, WriteKind, WritePlan,
    plan::{Written, is_not_understood},
    write::{is_another_version, protocol},
};
use crate::{
    CopyOptions, Description, ETag, ErrorKind, Key, Known, ObjectResult, Operation, PutOptions,
    Stored, WriteCondition,
    sign::encode_path,
    xml::{XmlError, parse_write_answer},
};

impl<D: Dialect> RestStore<D> {
    pub(super) async fn copy(
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
        let info = self.head(source).await?;
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
        self.put(target, &Payload::new(), &options).await
    }

    async fn copy_as(
        &self,
        source: &Key,
        target: &Key,
        options: &CopyOptions,
        plan: WritePlan,
    ) -> ObjectResult<Written<Stored>> {
        let mut draft = Draft::new(Operation::Copy, "PUT").about(target).patient();
        let mut before = None;
        match &options.condition {
            // The store looks at it, and tells what it made.
            WriteCondition::IfMatch(tag)
                if self.describes_reliably()
                    && source == target
                    && options.if_match.as_ref() == Some(tag) => {}
            WriteCondition::IfMatch(tag) => {
                let present = self.require_version(&draft, target, tag).await?;
                before = (source == target).then_some(present);
            }
            condition => self.make_conditional(&mut draft, condition, plan).await?,
        }
        self.name_source(&mut draft, source, options.if_match.as_ref());
        self.redescribe(&mut draft, options.description.as_ref())?;
        let etag = match self.make_copy(&draft, options).await? {
            Some(told) => {
                let copied = self.require_copy_of(&draft, (source, options), &told);
                copied.await?;
                told
            }
            None => self.find_copy(&draft, (source, options), before).await?,
        };
        Ok(Written {
            value: Stored {
                etag,
                checksum: None,
            },
            echoed: None,
        })
    }

    /// Whether copies of an object onto itself are known to be of the version that they insist on, and to
    /// tell their tag. Imitations are looked at before.
    fn describes_reliably(&self) -> bool {
        let tells = self.features.copy_answers.state() == Known::Present;
        tells && self.features.checks_sources(Operation::Copy)
    }

    /// Makes the copy and returns its tag; `None` where the store does not tell it.
    async fn make_copy(&self, draft: &Draft, options: &CopyOptions) -> ObjectResult<Option<ETag>> {
        let answer = self.fetch_late(draft).await;
        let of_source = options.if_match.is_some() && options.condition != WriteCondition::IfAbsent;
        if of_source && answer.as_ref().is_err_and(is_another_version) {
            self.features.saw_source_refused(Operation::Copy);
        }
        match parse_write_answer(&answer?.0) {
            Ok(answer) => {
                self.features.copy_answers.learn(true);
                Ok(Some(ETag::new(&answer.etag)))
            }
            Err(XmlError::Missing("ETag")) if !self.dialect.is_original() => {
                self.features.copy_answers.learn(false);
                Ok(None)
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
