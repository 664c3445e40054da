//! Whether a copy is of the version that was wanted, and whether an object is that copy.
//!
//! Some imitations copy whatever is there, and some do not tell the tag of what they made. Whoever takes
//! another client's object for a version of his own mixes both when he saves next, so what cannot be
//! told from another's counts as one: the copy fails with `PreconditionFailed`.

use super::{
    Dialect, Draft, RestStore,
    write::{after_the_fact, is_replaced},
};
use crate::{
    CopyOptions, Description, ETag, ErrorKind, HEADER_MARK, Key, ObjectInfo, ObjectResult,
    Operation, UserMetadata,
};

impl<D: Dialect> RestStore<D> {
    /// Fails if the copy of `source` that has the tag `told` may be of another version than was wanted. The
    /// copy stays: a delete knows no versions, and could take what another client stores there.
    pub(super) async fn require_copy_of(
        &self,
        draft: &Draft,
        (source, options): (&Key, &CopyOptions),
        told: &ETag,
    ) -> ObjectResult<()> {
        let is_compared = self.features.checks_sources(Operation::Copy);
        // Objects that were written at once keep their tag.
        let differs = |wanted: &&ETag| *wanted != told && !is_compared;
        let Some(wanted) = options.if_match.as_ref().filter(differs) else {
            return Ok(());
        };
        let Some(target) = draft.key.as_ref().filter(|target| *target != source) else {
            return Ok(());
        };
        let outcome = self.require_version(draft, source, wanted).await;
        if outcome.as_ref().is_err_and(is_replaced) {
            tracing::warn!(
                "`{target}` may be a copy of a version of `{source}` that another client stored: the \
                 store copies whatever is there"
            );
        }
        outcome.map(drop).map_err(after_the_fact)
    }

    /// The tag of a copy of `source` that the store did not tell: that of the object, if it is the copy.
    /// `before` is the source as it was before the copy, where it was looked at.
    pub(super) async fn find_copy(
        &self,
        draft: &Draft,
        (source, options): (&Key, &CopyOptions),
        before: Option<ObjectInfo>,
    ) -> ObjectResult<ETag> {
        let target = draft.key.as_ref().unwrap_or(source);
        let made = self.head(target).await.map_err(after_the_fact)?;
        let wanted = match &options.if_match {
            Some(wanted) if *wanted != made.etag => wanted,
            // These are the bytes, or any would do.
            _ => return Ok(made.etag),
        };
        let before = match before {
            None if source != target => {
                let source = self.require_version(draft, source, wanted).await;
                Some(source.map_err(after_the_fact)?)
            }
            before => before,
        };
        let description = options.description.as_ref();
        if before.is_some_and(|before| is_copy(&made, &before, description)) {
            return Ok(made.etag);
        }
        let message = "the store does not tell what it made, and what is there may be another's";
        Err(draft.error(ErrorKind::PreconditionFailed, message))
    }
}

/// Whether `made` is a copy of `source`, by the checksums of both, or else by what only the copy was to
/// be described with.
fn is_copy(made: &ObjectInfo, source: &ObjectInfo, description: Option<&Description>) -> bool {
    if made.size != source.size || made.modified < source.modified {
        return false;
    }
    if let (Some(one), Some(other)) = (made.checksum, source.checksum)
        && one.kind() == other.kind()
    {
        return one == other;
    }
    let attached = |metadata: &UserMetadata| -> UserMetadata {
        let of_user = |name: &str| !name.starts_with(HEADER_MARK);
        let of_user = metadata.iter().filter(|(name, _)| of_user(name));
        let owned = of_user.map(|(name, value)| (name.clone(), value.clone()));
        owned.collect()
    };
    description.is_some_and(|description| {
        let sent = attached(&description.metadata);
        sent != attached(&source.metadata) && sent == attached(&made.metadata)
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::{Checksum, ObjectKind};

    fn object(tag: &str, mode: &str) -> ObjectInfo {
        ObjectInfo {
            size: 6,
            etag: ETag::new(tag),
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(10),
            kind: ObjectKind::Normal,
            storage_class: String::new(),
            content_type: String::new(),
            metadata: metadata(mode),
            checksum: None,
        }
    }

    fn metadata(mode: &str) -> UserMetadata {
        let mode = ("mode".to_owned(), mode.to_owned());
        let kept = (":cache-control".to_owned(), "private".to_owned());
        [mode, kept].into()
    }

    fn described(mode: &str) -> Description {
        Description {
            content_type: None,
            metadata: metadata(mode),
        }
    }

    #[test]
    fn a_copy_is_known_by_its_checksum() {
        let summed = |sum| ObjectInfo {
            checksum: Some(Checksum::Crc64Nvme(sum)),
            ..object("a", "1")
        };
        assert!(is_copy(&summed(1), &summed(1), None));
        assert!(!is_copy(&summed(1), &summed(2), Some(&described("2"))));
    }

    #[test]
    fn else_by_what_it_was_described_with() {
        let (before, after) = (object("a", "1"), object("b", "2"));
        assert!(is_copy(&after, &before, Some(&described("2"))));
        assert!(!is_copy(&after, &before, None));
        assert!(!is_copy(&before, &before, Some(&described("1"))));
        assert!(!is_copy(&after, &before, Some(&described("3"))));
        let longer = ObjectInfo {
            size: 7,
            ..after.clone()
        };
        assert!(!is_copy(&longer, &before, Some(&described("2"))));
        let older = ObjectInfo {
            modified: SystemTime::UNIX_EPOCH,
            ..after
        };
        assert!(!is_copy(&older, &before, Some(&described("2"))));
    }
}
