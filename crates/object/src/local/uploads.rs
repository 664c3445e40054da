//! Multipart uploads: a directory each, with a description and a file per part.
//!
//! Parts arrive through the staging directory, so a part is there whole or not at all. To
//! complete an upload its parts are copied into one staged file, which becomes the object; until
//! then the upload is untouched, and a failure, a full disk for instance, leaves it as it was. A
//! lock on the description lets one process at a time complete an upload.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_base::{clock, random};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        AtFlags, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat, mkdirat, openat,
        renameat_with, statat,
    },
    io::{Errno, pread},
};
use serde::{Deserialize, Serialize};

use super::{
    attributes::Attributes,
    draft::{Draft, write_all},
    private::{self, remove_all},
    problem::{Attempt, Problem},
    version::Version,
};
use crate::{
    ErrorKind, Key, Part, PartNumber, PutOptions, Upload, UploadId, UploadPage, WriteCondition,
};

/// The description's name in the upload's directory.
const DESCRIPTION: &str = "upload.json";

/// Bytes in the longest description: a key, metadata, content type.
const DESCRIPTION_MAX: usize = 256 << 10;

/// Characters in an upload's name, which is a random token.
const ID_LENGTH: usize = 16;

/// Uploads in a page.
const PAGE_MAX: usize = 1000;

/// What was said when the upload was begun.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Description {
    key: String,
    pub(super) attributes: Attributes,
    if_absent: bool,
    /// Milliseconds since 1970.
    initiated: u64,
}

impl Description {
    pub(super) fn condition(&self) -> WriteCondition {
        if self.if_absent {
            WriteCondition::IfAbsent
        } else {
            WriteCondition::Always
        }
    }
}

/// Begins an upload and returns its name.
pub(super) fn create(
    staging: BorrowedFd<'_>,
    uploads: BorrowedFd<'_>,
    key: &Key,
    options: &PutOptions,
) -> Attempt<UploadId> {
    let since_epoch = clock::wall_time().duration_since(UNIX_EPOCH);
    let description = Description {
        key: key.as_str().to_owned(),
        attributes: Attributes::of(options),
        if_absent: options.condition == WriteCondition::IfAbsent,
        initiated: since_epoch.map_or(0, |passed| passed.as_millis() as u64),
    };
    let id = random::token();
    mkdirat(staging, &id, Mode::RWXU)?;
    let begun = describe(staging, &id, &description).and_then(|()| {
        Ok(
            renameat_with(staging, &id, uploads, &id, RenameFlags::NOREPLACE)
                .or_else(|_| renameat_with(staging, &id, uploads, &id, RenameFlags::empty()))?,
        )
    });
    if begun.is_err() {
        let _ = remove_all(staging, &id);
    }
    begun.map(|()| UploadId::new(&id))
}

fn describe(staging: BorrowedFd<'_>, id: &str, description: &Description) -> Attempt<()> {
    let text = serde_json::to_vec(description).expect("text and numbers are valid JSON");
    if text.len() > DESCRIPTION_MAX {
        let message = format!("content type and metadata exceed {DESCRIPTION_MAX} bytes");
        return Err(Problem::new(ErrorKind::TooLarge, message));
    }
    let directory = private::open(staging, id)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(&directory, DESCRIPTION, flags, Mode::from_raw_mode(0o600))?;
    write_all(file.as_fd(), &text.into(), 0)
}

/// An upload that is under way.
pub(super) struct Unfinished {
    directory: OwnedFd,
    file: OwnedFd,
    pub(super) description: Description,
}

impl Unfinished {
    /// Finds an upload of `key`.
    pub(super) fn find(uploads: BorrowedFd<'_>, key: &Key, id: &UploadId) -> Attempt<Self> {
        if !is_id(id.as_str()) {
            return Err(no_such_upload());
        }
        match Self::open(uploads, id.as_str())? {
            Some(found) if found.description.key == key.as_str() => Ok(found),
            _ => Err(no_such_upload()),
        }
    }

    fn open(uploads: BorrowedFd<'_>, id: &str) -> Attempt<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = private::open(uploads, id).and_then(|directory| {
            let file = openat(&directory, DESCRIPTION, flags, Mode::empty())?;
            Ok((directory, file))
        });
        let (directory, file) = match opened {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            opened => opened?,
        };
        let mut text = vec![0; fstat(&file)?.st_size.clamp(0, DESCRIPTION_MAX as i64) as usize];
        let length = pread(&file, &mut text[..], 0)?;
        let description = serde_json::from_slice(&text[..length]).ok();
        Ok(description.map(|description| Self {
            directory,
            file,
            description,
        }))
    }

    /// Keeps others from completing the upload for as long as this value lives.
    pub(super) fn lock(&self) -> Attempt<()> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                let message = "the upload is being completed by somebody else";
                Err(Problem::new(ErrorKind::Unavailable, message))
            }
            locked => Ok(locked?),
        }?;
        if fstat(&self.file)?.st_nlink == 0 {
            return Err(no_such_upload());
        }
        Ok(())
    }

    /// Makes `draft` part `number`.
    pub(super) fn add(&self, draft: &mut Draft<'_>, number: PartNumber) -> Attempt<()> {
        let name = part_name(number);
        let moved = draft.move_to(self.directory.as_fd(), &name, &WriteCondition::Always);
        moved.map_err(|errno| match errno {
            Errno::NOENT => no_such_upload(),
            other => other.into(),
        })
    }

    /// Opens a part if it is still the one that the caller has the tag of.
    pub(super) fn part(&self, part: &Part) -> Attempt<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(
            &self.directory,
            part_name(part.number),
            flags,
            Mode::empty(),
        ) {
            Err(Errno::NOENT) => return Err(not_that_part(part)),
            opened => opened?,
        };
        if Version::of(&fstat(&file)?).etag() != part.etag {
            return Err(not_that_part(part));
        }
        Ok(file)
    }

    /// Checks that all `parts` are there and returns the sum of their sizes.
    pub(super) fn check(&self, parts: &[Part]) -> Attempt<u64> {
        let mut total = 0_u64;
        for part in parts {
            let name = part_name(part.number);
            let version = match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => Version::of(&stat),
                Err(Errno::NOENT) => return Err(not_that_part(part)),
                Err(errno) => return Err(errno.into()),
            };
            if version.etag() != part.etag {
                return Err(not_that_part(part));
            }
            total = total.saturating_add(version.size);
        }
        Ok(total)
    }
}

/// Ends an upload: it vanishes at once and its files after that.
pub(super) fn forget(
    staging: BorrowedFd<'_>,
    uploads: BorrowedFd<'_>,
    id: &UploadId,
) -> Attempt<()> {
    let doomed = random::token();
    match renameat_with(uploads, id.as_str(), staging, &doomed, RenameFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        moved => {
            moved?;
            Ok(remove_all(staging, &doomed)?)
        }
    }
}

/// One page of uploads of keys under `prefix`; its continuation is `ID KEY` of its last.
pub(super) fn page(
    uploads: BorrowedFd<'_>,
    prefix: &str,
    continuation: Option<&str>,
) -> Attempt<UploadPage> {
    let after = continuation.and_then(|text| text.split_once(' '));
    let mut found = Vec::new();
    for id in private::names(uploads)? {
        let Some(unfinished) = Unfinished::open(uploads, &id)? else {
            continue;
        };
        let description = unfinished.description;
        let behind = after.is_none_or(|(last_id, last_key)| {
            (description.key.as_str(), id.as_str()) > (last_key, last_id)
        });
        if let Ok(key) = Key::new(&description.key)
            && description.key.starts_with(prefix)
            && behind
        {
            found.push(Upload {
                key,
                id: UploadId::new(&id),
                initiated: time_of(&description),
            });
        }
    }
    found.sort_by(|one, other| (&one.key, one.id.as_str()).cmp(&(&other.key, other.id.as_str())));
    let more = found.len() > PAGE_MAX;
    found.truncate(PAGE_MAX);
    let continuation = found
        .last()
        .filter(|_| more)
        .map(|last| format!("{} {}", last.id.as_str(), last.key));
    Ok(UploadPage {
        uploads: found,
        continuation,
    })
}

fn time_of(description: &Description) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(description.initiated)
}

/// Whether `text` can be a name that [`create`] gave, and no path.
fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn part_name(number: PartNumber) -> String {
    format!("part-{number:05}")
}

pub(super) fn no_such_upload() -> Problem {
    let message = "no such upload: it was completed or aborted; start a new one";
    Problem::new(ErrorKind::NoSuchUpload, message)
}

fn not_that_part(part: &Part) -> Problem {
    let message = format!("part {} is missing or was replaced", part.number);
    Problem::new(ErrorKind::InvalidRequest, message)
}
