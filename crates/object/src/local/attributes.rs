//! What an object carries beside its bytes: one JSON value in an extended attribute.

use std::mem::MaybeUninit;

use rustix::{
    fd::BorrowedFd,
    fs::{XattrFlags, fgetxattr, fgetxattr_query, fsetxattr},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::problem::{Attempt, Problem};
use crate::{Description, ErrorKind, PutOptions, UserMetadata};

const NAME: &str = "user.penstock";

/// Bytes that are read at once; the attribute is rarely longer.
const USUAL_LENGTH: usize = 1024;

/// Bytes that every file system with extended attributes takes; above it a failure is more
/// likely due to the length than to a full disk.
const SAFE_LENGTH: usize = 2048;

/// Content type and user metadata. Most objects have neither, and no attribute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Attributes {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) content_type: String,
    #[serde(skip_serializing_if = "UserMetadata::is_empty")]
    pub(super) metadata: UserMetadata,
}

impl Attributes {
    pub(super) fn of(options: &PutOptions) -> Self {
        Self {
            content_type: options.content_type.clone().unwrap_or_default(),
            metadata: options.metadata.clone(),
        }
    }

    pub(super) fn described_by(description: &Description) -> Self {
        Self {
            content_type: description.content_type.clone().unwrap_or_default(),
            metadata: description.metadata.clone(),
        }
    }

    pub(super) fn read(file: BorrowedFd<'_>) -> Attempt<Self> {
        let mut memory = [MaybeUninit::<u8>::uninit(); USUAL_LENGTH];
        match fgetxattr(file, NAME, &mut memory[..]) {
            Ok((text, _)) => Ok(Self::parse(text)),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(Self::default()),
            Err(Errno::RANGE) => Self::read_long(file),
            Err(errno) => Err(errno.into()),
        }
    }

    fn read_long(file: BorrowedFd<'_>) -> Attempt<Self> {
        let mut text = vec![0; fgetxattr_query(file, NAME)?];
        let length = fgetxattr(file, NAME, &mut text[..])?;
        Ok(Self::parse(&text[..length]))
    }

    /// An attribute that somebody else wrote is no reason to withhold the object.
    fn parse(text: &[u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_else(|error| {
            tracing::warn!(%error, "ignoring an extended attribute {NAME} that is not ours");
            Self::default()
        })
    }

    pub(super) fn write(&self, file: BorrowedFd<'_>) -> Attempt<()> {
        if *self == Self::default() {
            return Ok(());
        }
        let text = serde_json::to_vec(self).expect("maps of text are valid JSON");
        match fsetxattr(file, NAME, &text, XattrFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP) => self.without_room(),
            Err(Errno::NOSPC | Errno::TOOBIG | Errno::RANGE) if text.len() > SAFE_LENGTH => {
                let message = format!(
                    "the file system keeps less than these {} bytes of metadata for a file",
                    text.len()
                );
                Err(Problem::new(ErrorKind::TooLarge, message))
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// A content type is merely useful; metadata must not be lost.
    fn without_room(&self) -> Attempt<()> {
        if self.metadata.is_empty() {
            return Ok(());
        }
        let message = "the file system keeps no user attributes, so metadata would be lost: \
             use ext4, xfs, btrfs or a recent tmpfs";
        Err(Problem::new(ErrorKind::Unsupported, message))
    }
}
