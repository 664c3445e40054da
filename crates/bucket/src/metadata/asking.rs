//! Asking for metadata: of one name, and of the entries of a listing.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use penstock_base::{FsResult, Utf8Name, clock, clock::Instant};
use penstock_object::{ErrorKind, ObjectError, ObjectInfo};
use penstock_vfs::{FileKind, Inode};

use crate::{
    errors::{Purpose, for_reading, object_failure},
    inode::{Dentry, Known, OldMarker},
    key,
    lookup::Below,
    lookup::Lookups,
    mount::Mount,
    posix::KeptMetadata,
};

/// Times of objects have seconds: what was written longer ago than this when it was asked for has
/// another time when it is written again.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// An entry of a listing whose metadata may have to be asked for.
#[derive(Debug)]
pub(crate) struct Wanted<'page> {
    pub(crate) name: &'page Utf8Name,
    /// What the listing tells.
    pub(crate) listed: Known,
}

impl Mount {
    /// What an object shows as, with the metadata that HEAD told.
    pub(crate) fn known_with_metadata(&self, info: &ObjectInfo, plain: Known) -> Known {
        if !self.keeps_metadata() {
            return plain;
        }
        let mut kept = KeptMetadata::of(info);
        kept.settled = info.modified + SETTLED_AFTER < clock::wall_time();
        let (old, marks) = (&self.settings.metadata, kept.marks_directory(info.size));
        if plain.kind == FileKind::Regular && marks && old.old_directories {
            return Known {
                old_marker: Some(OldMarker::Plain),
                ..marked_by(info, plain.until)
            };
        }
        let kind = match (plain.kind, kept.posix.kind()) {
            (FileKind::Regular, Some(FileKind::Symlink)) => FileKind::Symlink,
            // What has content shows it, whatever its mode says.
            (FileKind::Regular, Some(special @ FileKind::Special(_))) if info.size == 0 => special,
            (kind, _) => kind,
        };
        Known {
            kind,
            kept: Some(Arc::new(kept)),
            ..plain
        }
    }
}

impl Lookups {
    /// Completes what two questions told about a name: what marks a directory, and in which form.
    pub(crate) async fn complete(
        &self,
        answer: Option<Known>,
        below: Option<Below>,
        (prefix, name, begun): (&str, &Utf8Name, Instant),
    ) -> FsResult<Option<Known>> {
        match answer {
            Some(known) if known.kind == FileKind::Directory => {
                let marked = below.is_some_and(|below| below.marker);
                let directory = key::directory_prefix(prefix, name);
                self.known_directory(known, (&directory, marked))
                    .await
                    .map(Some)
            }
            None if self.mount.settings.metadata.old_directories => {
                let key = key::file_key(prefix, &old_folder(name)?)?;
                let marker = for_reading(self.mount.head(&key).await)?;
                Ok(marker.map(|info| Known {
                    old_marker: Some(OldMarker::Folder),
                    ..marked_by(&info, self.mount.believed_until(begun))
                }))
            }
            answer => Ok(answer),
        }
    }

    /// A directory with what the object says that marks it.
    async fn known_directory(
        &self,
        mut known: Known,
        (prefix, marked): (&str, bool),
    ) -> FsResult<Known> {
        if marked {
            let key = key::marker_key(prefix)?;
            if let Some(info) = for_reading(self.mount.head(&key).await)? {
                known = Known {
                    old_marker: known.old_marker,
                    ..marked_by(&info, known.until)
                };
            }
        }
        known.kept.get_or_insert_default();
        Ok(known)
    }

    /// What a listing does not tell of its entries: metadata, unless it is known already or not
    /// wanted. `None` for objects that are gone.
    pub(crate) async fn describe_entries(
        &self,
        (directory, prefix): (Inode, &str),
        entries: Vec<Wanted<'_>>,
    ) -> FsResult<Vec<Option<Known>>> {
        let remembered = entries
            .iter()
            .map(|wanted| self.remembered_entry(directory, wanted));
        let mut known: Vec<_> = remembered.collect();
        let unknown = entries.into_iter().enumerate();
        let unknown: Vec<_> = unknown.filter(|(at, _)| known[*at].is_none()).collect();
        let mut questions = unknown.into_iter();
        let mut asked = FuturesUnordered::new();
        loop {
            while asked.len() < self.metadata_pace.allowed()
                && let Some((at, wanted)) = questions.next()
            {
                asked.push(async move { (at, self.ask_in_pace(prefix, wanted).await) });
            }
            match asked.next().await {
                Some((at, answer)) => known[at] = answer?,
                None => return Ok(known),
            }
        }
    }

    async fn ask_in_pace(&self, prefix: &str, wanted: Wanted<'_>) -> FsResult<Option<Known>> {
        let begun = clock::now();
        let answer = self.describe_entry(prefix, wanted).await;
        self.metadata_pace.note(clock::now() - begun);
        answer
    }

    /// What memory knows of a listed entry, or what the listing tells if that is to do.
    fn remembered_entry(&self, directory: Inode, wanted: &Wanted<'_>) -> Option<Known> {
        let Wanted { name, listed } = wanted;
        let tree = self.mount.namespace.lock();
        let entry = tree.directory(directory).ok()?.entries.get(*name);
        let known = match entry {
            Some(Dentry::Held(inode)) => tree.node(*inode).ok()?.known.as_ref(),
            Some(Dentry::Remembered(known)) => Some(&**known),
            None => None,
        };
        let holds = |known: &&Known| match listed.kind {
            FileKind::Directory => {
                known.kind == FileKind::Directory
                    && known.kept.is_some()
                    && known.until > clock::now()
            }
            _ => {
                let believes = self.mount.save_behind().is_some();
                known.still_describes(listed) || believes && known.is_believed_of(listed)
            }
        };
        if let Some(known) = known.filter(holds) {
            let until = match known.still_describes(listed) {
                true => listed.until,
                false => known.until,
            };
            let known = known.clone();
            return Some(Known { until, ..known });
        }
        (!self.is_worth_asking(listed)).then(|| listed.clone())
    }

    fn is_worth_asking(&self, listed: &Known) -> bool {
        let settings = &self.mount.settings.metadata;
        if !settings.readdir_optimize {
            return true;
        }
        let may_be_link = settings.symlink_in_meta && listed.size == 0;
        let is_small = listed.size > 0 && listed.size <= settings.readdir_check_size;
        listed.kind == FileKind::Regular
            && (may_be_link || is_small || (listed.size == 0 && settings.readdir_check_size > 0))
    }

    async fn describe_entry(&self, prefix: &str, wanted: Wanted<'_>) -> FsResult<Option<Known>> {
        let Wanted { name, listed } = wanted;
        let (key, is_directory) = match (listed.kind, listed.old_marker) {
            (FileKind::Directory, None) => (key::directory_prefix(prefix, name), true),
            (FileKind::Directory, Some(_)) => (format!("{prefix}{}", old_folder(name)?), true),
            _ => (format!("{prefix}{name}"), false),
        };
        // A listing may show keys that are too long to be asked for.
        let Ok(key) = key::checked_key(key) else {
            return Ok(Some(listed));
        };
        match self.mount.head(&key).await {
            Ok(Some(info)) if is_directory => Ok(Some(Known {
                old_marker: listed.old_marker,
                ..marked_by(&info, listed.until)
            })),
            Ok(Some(info)) => Ok(Some(self.mount.known_with_metadata(
                &info,
                Known::object(&info, self.mount.kind_of(info.kind), listed.until),
            ))),
            Ok(None) if is_directory => Ok(Some(Known {
                kept: Some(Arc::default()),
                ..listed
            })),
            Ok(None) => Ok(None),
            Err(error) => self.shown_without(listed, &error),
        }
    }

    /// Objects that may be listed but not asked for are shown with defaults.
    fn shown_without(&self, listed: Known, error: &ObjectError) -> FsResult<Option<Known>> {
        if error.kind != ErrorKind::PermissionDenied {
            return Err(object_failure(error, Purpose::Read));
        }
        if self.mount.notices.undescribed.first() {
            tracing::warn!(
                "{error}: owner and mode of objects that may not be read show defaults (later \
                 cases are not mentioned)"
            );
        }
        Ok(Some(listed))
    }
}

/// A directory that an object marks.
fn marked_by(info: &ObjectInfo, until: Instant) -> Known {
    Known {
        modified: Some(info.modified),
        stored: Some(info.modified),
        kept: Some(Arc::new(KeptMetadata::of(info))),
        ..Known::directory(until)
    }
}

/// The name of the object by which some programs mark the directory `name`.
pub(super) fn old_folder(name: &Utf8Name) -> FsResult<Utf8Name> {
    Utf8Name::new(&format!("{name}{}", key::OLD_FOLDER))
        .map_err(|_| penstock_base::FsError::NameTooLong)
}
