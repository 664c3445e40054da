//! Everything that makes an object: put, append, copy and the end of an upload.

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::PoisonError,
};

use penstock_base::{Payload, run_blocking};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{OFlags, fstat},
};

use super::{
    LocalStore,
    append::{self, Growing, check_position},
    attributes::Attributes,
    copying::copy_range,
    draft::{Draft, write_all},
    name::Location,
    private::{APPENDS, STAGING, UPLOADS},
    problem::{Attempt, Problem},
    reading::check_tag,
    uploads::{self, Unfinished},
    version::Version,
};
use crate::{
    Appended, ChecksumKind, CompleteOptions, CopyOptions, ETag, ErrorKind, Key, Part, PartCopy,
    PartNumber, PutOptions, Stored, UploadId, WriteCondition, rules,
};

/// Times that an append starts over because its object was replaced or made in that moment.
const ATTEMPTS_MAX: u32 = 100;

impl LocalStore {
    /// Writes an object in one go.
    pub(super) fn write(&self, key: &Key, body: &Payload, options: &PutOptions) -> Attempt<Stored> {
        let mut draft = self.draft()?;
        write_all(draft.file(), body, 0)?;
        self.publish(
            &mut draft,
            key,
            &Attributes::of(options),
            &options.condition,
        )
    }

    /// Appends to an object or begins one.
    pub(super) fn grow(
        &self,
        key: &Key,
        position: u64,
        body: &Payload,
        options: &PutOptions,
    ) -> Attempt<Appended> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key.as_str());
        let turn = &self.append_turns[hash as usize % self.append_turns.len()];
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let appends = self.private.directory(self.tree.root(), APPENDS)?;
        for _ in 0..ATTEMPTS_MAX {
            match Growing::hold(&self.tree, &Location::of(key)) {
                Ok(Some(mut growing)) => {
                    growing.settle(appends)?;
                    growing.check(position)?;
                    let durable = self.settings.durable;
                    return growing.grow(&self.tree, (appends, key), body, durable);
                }
                Ok(None) => {}
                Err(problem) if problem.kind == ErrorKind::NotFound => {
                    check_position(position, 0)?;
                    match self.begin_growing(key, body, options) {
                        Err(problem) if problem.kind == ErrorKind::AlreadyExists => {}
                        begun => return begun,
                    }
                }
                Err(problem) => return Err(problem),
            }
        }
        let message = "other processes keep replacing this object";
        Err(Problem::new(ErrorKind::Unavailable, message))
    }

    fn begin_growing(&self, key: &Key, body: &Payload, options: &PutOptions) -> Attempt<Appended> {
        let mut draft = self.draft()?;
        draft.mark_appendable()?;
        write_all(draft.file(), body, 0)?;
        let appends = self.private.directory(self.tree.root(), APPENDS)?;
        append::forget_records(appends, &Version::of(&fstat(draft.file())?))?;
        let attributes = Attributes::of(options);
        let stored = self.publish(&mut draft, key, &attributes, &WriteCondition::IfAbsent)?;
        Ok(Appended {
            next_position: body.len() as u64,
            etag: Some(stored.etag),
            checksum: None,
        })
    }

    /// Copies an object.
    pub(super) async fn duplicate(
        &self,
        source: &Key,
        target: &Key,
        options: &CopyOptions,
    ) -> Attempt<Stored> {
        let (from, version) = run_blocking(|| self.source(source, options.if_match.as_ref()))?;
        let mut draft = run_blocking(|| self.draft())?;
        copy_range(from.as_fd(), 0..version.size, draft.file(), 0).await?;
        run_blocking(|| {
            self.check_unchanged(&from, &version)?;
            let attributes = match &options.description {
                Some(description) => Attributes::described_by(description),
                None => Attributes::read(from.as_fd())?,
            };
            self.publish(&mut draft, target, &attributes, &options.condition)
        })
    }

    /// Receives a part.
    pub(super) fn write_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        body: &Payload,
    ) -> Attempt<Part> {
        let unfinished = self.upload(key, upload)?;
        let mut draft = self.draft()?;
        write_all(draft.file(), body, 0)?;
        let part = Part {
            checksum: Some(body.checksum(ChecksumKind::Crc64Ecma)),
            ..Self::add_part(&unfinished, &mut draft, number)?
        };
        Ok(part)
    }

    /// Copies a part from an object.
    pub(super) async fn duplicate_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        copy: &PartCopy,
    ) -> Attempt<Part> {
        let (from, version) = run_blocking(|| self.source(&copy.source, copy.if_match.as_ref()))?;
        if copy.range.is_empty() || copy.range.end > version.size {
            let message = format!("the source has only {} bytes", version.size);
            return Err(Problem::new(ErrorKind::InvalidRange, message));
        }
        let unfinished = run_blocking(|| self.upload(key, upload))?;
        let mut draft = run_blocking(|| self.draft())?;
        copy_range(from.as_fd(), copy.range.clone(), draft.file(), 0).await?;
        run_blocking(|| {
            self.check_unchanged(&from, &version)?;
            Self::add_part(&unfinished, &mut draft, number)
        })
    }

    /// A part need not be durable: the object that it becomes a part of will be.
    fn add_part(
        unfinished: &Unfinished,
        draft: &mut Draft<'_>,
        number: PartNumber,
    ) -> Attempt<Part> {
        let version = draft.seal(&Attributes::default(), false)?;
        unfinished.add(draft, number)?;
        Ok(Part {
            number,
            etag: version.etag(),
            size: version.size,
            checksum: None,
        })
    }

    /// Turns the parts of an upload into the object.
    pub(super) async fn assemble(
        &self,
        key: &Key,
        upload: &UploadId,
        parts: &[Part],
        options: &CompleteOptions,
    ) -> Attempt<Stored> {
        let unfinished = run_blocking(|| self.upload(key, upload))?;
        rules::check_order(&self.capabilities, key, parts)
            .map_err(|error| Problem::new(error.kind, error.message))?;
        check_sum(parts, options)?;
        run_blocking(|| unfinished.lock().and_then(|()| unfinished.check(parts)))?;
        let mut draft = run_blocking(|| self.draft())?;
        let mut offset = 0;
        for part in parts {
            let file = run_blocking(|| unfinished.part(part))?;
            let size = fstat(&file)?.st_size as u64;
            copy_range(file.as_fd(), 0..size, draft.file(), offset).await?;
            offset += size;
        }
        let condition = match options.condition {
            WriteCondition::Always => unfinished.description.condition(),
            ref condition => condition.clone(),
        };
        run_blocking(|| {
            let attributes = &unfinished.description.attributes;
            let stored = self.publish(&mut draft, key, attributes, &condition)?;
            // The object is there; an upload that cannot be cleared away is no failure.
            if let Err(problem) = self.forget_upload(key, upload) {
                let problem = problem.during(crate::Operation::CompleteUpload);
                tracing::warn!(%problem, "the parts of a completed upload stay behind");
            }
            Ok(stored)
        })
    }

    /// Ends an upload without an object, if there is such an upload.
    pub(super) fn forget_upload(&self, key: &Key, upload: &UploadId) -> Attempt<()> {
        match self.upload(key, upload) {
            Err(problem) if problem.kind == ErrorKind::NoSuchUpload => Ok(()),
            found => {
                found?;
                let root = self.tree.root();
                let staging = self.private.directory(root, STAGING)?;
                let uploads = self.private.directory(root, UPLOADS)?;
                uploads::forget(staging, uploads, upload)
            }
        }
    }

    fn upload(&self, key: &Key, upload: &UploadId) -> Attempt<Unfinished> {
        match self.private.existing(self.tree.root(), UPLOADS)? {
            Some(uploads) => Unfinished::find(uploads, key, upload),
            None => Err(uploads::no_such_upload()),
        }
    }

    fn draft(&self) -> Attempt<Draft<'_>> {
        Draft::create(self.private.directory(self.tree.root(), STAGING)?)
    }

    /// Makes the finished `draft` the object `key`.
    fn publish(
        &self,
        draft: &mut Draft<'_>,
        key: &Key,
        attributes: &Attributes,
        condition: &WriteCondition,
    ) -> Attempt<Stored> {
        let version = draft.seal(attributes, self.settings.durable)?;
        if let WriteCondition::IfMatch(tag) = condition {
            self.check_version(key, tag)?;
        }
        self.placing()?
            .place(draft, &Location::of(key), condition)?;
        Ok(Stored {
            etag: version.etag(),
            checksum: None,
        })
    }

    /// Fails unless the object is this version.
    fn check_version(&self, key: &Key, tag: &ETag) -> Attempt<()> {
        match self.source(key, Some(tag)) {
            Err(problem) if problem.kind == ErrorKind::NotFound => {
                let message = "the object was removed";
                Err(Problem::new(ErrorKind::PreconditionFailed, message))
            }
            found => found.map(drop),
        }
    }

    /// Opens an object to copy from.
    fn source(&self, key: &Key, if_match: Option<&ETag>) -> Attempt<(OwnedFd, Version)> {
        let (file, version) = self.tree.object(&Location::of(key), OFlags::RDONLY)?;
        check_tag(&version.info(Attributes::default()), if_match)?;
        Ok((file, version))
    }

    /// Fails when another program wrote to the file since it was opened. Appends do not count:
    /// they change nothing of what was there.
    fn check_unchanged(&self, file: &OwnedFd, version: &Version) -> Attempt<()> {
        let now = self.tree.observe(|| fstat(file))?;
        if !version.appendable && now.etag() != version.etag() {
            let message = "another program wrote to the file while it was copied";
            return Err(Problem::new(ErrorKind::PreconditionFailed, message));
        }
        Ok(())
    }
}

/// Refuses parts whose checksums do not add up to that of the whole, where all are known.
fn check_sum(parts: &[Part], options: &CompleteOptions) -> Attempt<()> {
    let (Some(whole), Some(sum)) = (options.checksum, Part::joined_checksum(parts)) else {
        return Ok(());
    };
    if sum.kind() == whole.kind() && sum != whole {
        let message = "the parts do not add up to the checksum that was sent";
        return Err(Problem::new(ErrorKind::ChecksumMismatch, message));
    }
    Ok(())
}
