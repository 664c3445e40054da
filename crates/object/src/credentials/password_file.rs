//! Files of `key:secret` lines, as ossfs and s3fs read them.

use std::{
    collections::HashSet,
    fs::Metadata,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use penstock_base::{Secret, run_blocking};
use thiserror::Error;

use super::{
    Credentials,
    chain::{Nothing, Place},
    origin::Found,
};

/// The system-wide file, which a group may read.
const SYSTEM_FILE: &str = "/etc/passwd-ossfs";

/// Bytes in the largest file that is read.
const SIZE_MAX: u64 = 1 << 20;

/// Why a password file cannot be used. Never holds a line's content.
#[derive(Debug, Error)]
pub(super) enum PasswordFileError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// More people may read it than should.
    #[error("{} is open to others (mode {mode:03o}): run chmod {allowed:03o} on it", path.display())]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The most it may have.
        allowed: u32,
    },
    /// A line is none of the three forms.
    #[error(
        "line {line} of {} is neither KEY:SECRET nor BUCKET:KEY:SECRET without blanks",
        path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// Two lines are for one bucket, or for every bucket.
    #[error("{} has two entries for one bucket: remove one of them", path.display())]
    Duplicate {
        /// The file.
        path: PathBuf,
    },
    /// Of the lines that name what they hold one is missing.
    #[error("{} has only one of OSSAccessKeyId=... and OSSSecretKey=...", path.display())]
    Half {
        /// The file.
        path: PathBuf,
    },
    /// It holds no line for the bucket and none for every bucket.
    #[error("{} has no entry for the bucket `{bucket}`", path.display())]
    NoEntry {
        /// The file.
        path: PathBuf,
        /// The bucket.
        bucket: String,
    },
}

impl PasswordFileError {
    /// Whether this is the system-wide file, which is meant for those who may read it.
    fn is_of_others(&self) -> bool {
        matches!(self, Self::Unreadable { path, error }
            if path == Path::new(SYSTEM_FILE) && error.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// Fails when `path` is open to more people than a file of secrets may be: nobody but its owner,
/// except that the group may read the system-wide file.
fn check_permissions(path: &Path, metadata: &Metadata) -> Result<(), PasswordFileError> {
    let mode = metadata.permissions().mode() & 0o777;
    let allowed = if path == Path::new(SYSTEM_FILE) {
        0o640
    } else {
        0o600
    };
    if mode & !allowed == 0 {
        return Ok(());
    }
    Err(PasswordFileError::Permissions {
        path: path.to_owned(),
        mode,
        allowed,
    })
}

/// The credentials for `bucket`: those of its own line, else those of the line without a bucket.
pub(super) fn read_password_file(
    path: &Path,
    bucket: &str,
) -> Result<Option<Credentials>, PasswordFileError> {
    let unreadable = |error| PasswordFileError::Unreadable {
        path: path.to_owned(),
        error,
    };
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    check_permissions(path, &metadata)?;
    if metadata.len() > SIZE_MAX {
        return Err(unreadable(io::ErrorKind::FileTooLarge.into()));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let entries = parse(path, text)?;
    let mut buckets = HashSet::new();
    if !entries.iter().all(|entry| buckets.insert(entry.bucket)) {
        return Err(PasswordFileError::Duplicate {
            path: path.to_owned(),
        });
    }
    let of = |wanted| entries.iter().find(|entry| entry.bucket == wanted);
    let found = of(Some(bucket)).or_else(|| of(None));
    Ok(found.map(Entry::credentials))
}

struct Entry<'a> {
    bucket: Option<&'a str>,
    key_id: &'a str,
    secret: &'a str,
}

impl Entry<'_> {
    fn credentials(&self) -> Credentials {
        Credentials {
            key_id: self.key_id.to_owned(),
            secret: Secret::new(self.secret),
            token: None,
            expires: None,
        }
    }
}

fn parse<'a>(path: &Path, text: &'a str) -> Result<Vec<Entry<'a>>, PasswordFileError> {
    let (mut entries, mut key_id, mut secret) = (Vec::new(), None, None);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let malformed = || PasswordFileError::Malformed {
            path: path.to_owned(),
            line: index + 1,
        };
        if line.contains([' ', '\t', '[']) {
            return Err(malformed());
        }
        if let Some(value) = value_of(line, &["OSSAccessKeyId", "AccessKeyId", "AWSAccessKeyId"]) {
            key_id = Some(value);
        } else if let Some(value) = value_of(line, &["OSSSecretKey", "SecretKey", "AWSSecretKey"]) {
            secret = Some(value);
        } else {
            entries.push(parse_line(line).ok_or_else(malformed)?);
        }
    }
    match (key_id, secret) {
        (Some(key_id), Some(secret)) => entries.push(Entry {
            bucket: None,
            key_id,
            secret,
        }),
        (None, None) => {}
        _ => {
            let path = path.to_owned();
            return Err(PasswordFileError::Half { path });
        }
    }
    Ok(entries)
}

fn value_of<'a>(line: &'a str, names: &[&str]) -> Option<&'a str> {
    let (name, value) = line.split_once('=')?;
    names.contains(&name).then_some(value)
}

fn parse_line(line: &str) -> Option<Entry<'_>> {
    let parts: Vec<&str> = line.split(':').collect();
    let (bucket, key_id, secret) = match parts[..] {
        [key_id, secret] => (None, key_id, secret),
        [bucket, key_id, secret] => (Some(bucket), key_id, secret),
        _ => return None,
    };
    let complete = !key_id.is_empty() && !secret.is_empty() && bucket != Some("");
    complete.then_some(Entry {
        bucket,
        key_id,
        secret,
    })
}

/// Files to look in, in this order.
#[derive(Debug)]
pub(super) struct PasswordFiles {
    /// The file that was asked for: it must exist and have an entry; no other is looked at.
    pub(super) explicit: Option<PathBuf>,
    /// Files that may exist.
    pub(super) usual: Vec<PathBuf>,
    pub(super) bucket: String,
}

impl PasswordFiles {
    /// The file that the settings name, if they do.
    pub(super) fn explicit(path: Option<PathBuf>, bucket: &str) -> Self {
        Self {
            explicit: path,
            usual: Vec::new(),
            bucket: bucket.to_owned(),
        }
    }

    fn read(&self, path: &Path) -> Result<Option<Found>, PasswordFileError> {
        let found = run_blocking(|| read_password_file(path, &self.bucket))?;
        Ok(found.map(|credentials| Found {
            credentials,
            origin: format!("the password file {}", path.display()),
        }))
    }
}

#[async_trait]
impl Place for PasswordFiles {
    async fn look(&self) -> Result<Found, Nothing> {
        let broken = |error: PasswordFileError| Nothing::Broken(error.to_string());
        if let Some(path) = &self.explicit {
            let found = self.read(path).map_err(broken)?;
            let missing = || PasswordFileError::NoEntry {
                path: path.clone(),
                bucket: self.bucket.clone(),
            };
            return found.ok_or_else(|| broken(missing()));
        }
        // A link that leads nowhere is there.
        let is_there = |path: &&PathBuf| path.symlink_metadata().is_ok();
        for path in self.usual.iter().filter(is_there) {
            match self.read(path) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(error) if error.is_of_others() => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Err(Nothing::absent())
    }
}
