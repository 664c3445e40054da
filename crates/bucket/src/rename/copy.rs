//! Copying objects inside the store.

use futures_util::{TryStreamExt, stream::FuturesOrdered};
use penstock_base::{FsError, FsResult, MIB};
use penstock_object::{
    CompleteOptions, CopyOptions, Description, ETag, ErrorKind, HeadOptions, Key, ObjectError,
    ObjectInfo, ObjectKind, ObjectResult, Operation, Part, PartCopy, PutOptions, Stored, UploadId,
    WriteCondition,
};
use penstock_vfs::Inode;

use crate::{inode::Tree, mount::Mount};

/// Bytes in a part of an object that is copied in parts, unless that would make too many.
const COPY_PART_SIZE: u64 = 256 * MIB;
/// Parts of one object that are copied at the same time.
const COPY_PARTS_CONCURRENT: usize = 16;

/// An object to copy.
#[derive(Debug, Clone)]
pub(crate) struct Original {
    pub(crate) key: Key,
    pub(crate) size: u64,
    /// Only if it still is this version; `None` takes any.
    pub(crate) etag: Option<ETag>,
    pub(crate) kind: ObjectKind,
}

impl Original {
    /// The object of a file as it is known.
    pub(crate) fn of(tree: &Tree, inode: Inode) -> FsResult<Self> {
        let known = tree.node(inode)?.known.as_ref().ok_or(FsError::Stale)?;
        Ok(Self {
            key: tree.file_key(inode)?,
            size: known.size,
            etag: known.etag.clone(),
            kind: known.object,
        })
    }
}

impl Mount {
    /// Copies an object of any size. The target is visible whole or not at all.
    pub(super) async fn copy_object(
        &self,
        original: &Original,
        target: &Key,
        condition: WriteCondition,
    ) -> ObjectResult<Stored> {
        let how = (condition, None);
        self.copy_object_as(original, target, how).await
    }

    /// The same, described otherwise than the original if `description` says so, and then also
    /// onto itself.
    pub(crate) async fn copy_object_as(
        &self,
        original: &Original,
        target: &Key,
        (condition, description): (WriteCondition, Option<&Description>),
    ) -> ObjectResult<Stored> {
        if original.kind == ObjectKind::Symlink {
            let leads_to = self.store().get_symlink(&original.key).await?;
            let description = description.cloned().unwrap_or_default();
            let options = PutOptions {
                content_type: description.content_type,
                metadata: description.metadata,
                condition,
            };
            return self.store().put_symlink(target, &leads_to, options).await;
        }
        if original.size > self.store().capabilities().copy_size_max {
            let how = (condition, description);
            return self.copy_in_parts(original, target, how).await;
        }
        let options = CopyOptions {
            if_match: original.etag.clone(),
            condition,
            description: description.cloned(),
        };
        self.store().copy(&original.key, target, options).await
    }

    async fn copy_in_parts(
        &self,
        original: &Original,
        target: &Key,
        (condition, description): (WriteCondition, Option<&Description>),
    ) -> ObjectResult<Stored> {
        // A copy in one request keeps metadata; one in parts must bring it along.
        let info = self.head_version(original).await?;
        let content_type = (!info.content_type.is_empty()).then_some(info.content_type);
        let description = description.cloned().unwrap_or(Description {
            content_type,
            metadata: info.metadata,
        });
        let options = PutOptions {
            content_type: description.content_type,
            metadata: description.metadata,
            condition: condition.clone(),
        };
        let upload = self.store().create_upload(target, options).await?;
        let version = Original {
            size: info.size,
            etag: Some(info.etag.clone()),
            ..original.clone()
        };
        let copied = async {
            let parts = self.copy_parts(&version, target, &upload).await?;
            let options = CompleteOptions {
                condition,
                checksum: info.checksum,
                copied: Some((original.key.clone(), info.etag)),
                ..CompleteOptions::default()
            };
            self.store()
                .complete_upload(target, &upload, &parts, options)
                .await
        };
        let copied = copied.await;
        if copied.is_err()
            && let Err(error) = self.store().abort_upload(target, &upload).await
        {
            tracing::warn!("{error}: parts of a failed copy stay in the store until aborted");
        }
        copied
    }

    /// What the store tells of an object, unless it is another version now.
    async fn head_version(&self, original: &Original) -> ObjectResult<ObjectInfo> {
        let key = &original.key;
        let info = self.store().head(key, HeadOptions::default()).await?;
        if original.etag.as_ref().is_some_and(|tag| *tag != info.etag) {
            let message = "the object was replaced by another version";
            let kind = ErrorKind::PreconditionFailed;
            return Err(ObjectError::new(kind, Operation::Copy, message).about(key));
        }
        Ok(info)
    }

    async fn copy_parts(
        &self,
        original: &Original,
        target: &Key,
        upload: &UploadId,
    ) -> ObjectResult<Vec<Part>> {
        let limits = self.store().capabilities();
        let part_size = COPY_PART_SIZE
            .max(original.size.div_ceil(u64::from(limits.parts_max)))
            .min(limits.part_size_max)
            .min(limits.copy_size_max);
        let (mut copies, mut parts) = (FuturesOrdered::new(), Vec::new());
        let mut start = 0;
        for number in 1.. {
            if start == original.size {
                break;
            }
            let range = start..original.size.min(start + part_size);
            start = range.end;
            let (source, if_match) = (original.key.clone(), original.etag.clone());
            let copy = PartCopy {
                source,
                range,
                if_match,
            };
            copies.push_back(self.store().copy_part(target, upload, number, copy));
            if copies.len() == COPY_PARTS_CONCURRENT {
                parts.extend(copies.try_next().await?);
            }
        }
        parts.extend(copies.try_collect::<Vec<_>>().await?);
        Ok(parts)
    }
}

/// Whether a copy failed because its source is another version now, or gone.
pub(super) fn is_changed(error: &ObjectError) -> bool {
    matches!(
        error.kind,
        ErrorKind::PreconditionFailed | ErrorKind::NotFound
    )
}
