//! A bucket in a local directory: `file:///dir`.
//!
//! Objects are plain files at the paths that their keys spell, so an existing directory of files
//! is a bucket and other tools can read what is written here; [`name`] says how keys that are no
//! paths are stored. Content type and user metadata are in an extended attribute
//! ([`attributes`]), tags come from `stat` ([`version`]).
//!
//! - **Atomicity.** A write goes to a file in `.penstock/staging` and is renamed into place
//!   ([`draft`], [`placing`]). A process that is killed leaves no half object, at most a staged
//!   file that is swept when the bucket is opened later ([`private`]).
//! - **Durability.** With [`LocalSettings::durable`] a write that returned survives a power
//!   failure: file and directory are synced. A deletion may be undone by one.
//! - **Reads** go from the page cache into the sink's memory and nowhere else ([`reading`]).
//! - **Containment.** Paths are resolved below the directory by the kernel ([`tree`]). Symbolic
//!   links that stay inside are followed, others and special files are hidden; a write to the
//!   name of a link replaces the link.
//! - **Directories** are not objects: one without files in it is not shown, and a directory goes
//!   with its last object.
//! - **Other programs** may change the directory at any time. A file that they write in place
//!   while it is read makes that read fail rather than deliver a mixture.
//!
//! Every operation blocks its thread on the disk for a bounded amount of work at a time.

mod append;
mod attributes;
mod copying;
mod directory;
mod draft;
mod listing;
mod name;
mod placing;
mod private;
mod problem;
// Receives into memory that is not initialised yet.
#[allow(unsafe_code)]
mod reading;
#[cfg(test)]
mod tests;
mod tree;
mod uploads;
mod version;
mod walk;
mod writing;

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use async_trait::async_trait;
use penstock_base::{GIB, Payload, run_blocking};

use self::{
    listing::Listings,
    name::Location,
    placing::{Placing, Removing, Shape},
    private::{APPENDS, Private, STAGING, UPLOADS},
    problem::{Attempt, Problem},
    reading::Reading,
    tree::Tree,
};
use crate::{
    Appended, Below, BodySink, Capabilities, CompleteOptions, CopyOptions, DeleteFailure,
    GetOptions, Got, HeadOptions, Key, ListOptions, ListPage, ObjectInfo, ObjectResult, Operation,
    Part, PartCopy, PartNumber, PutOptions, Store, Stored, UploadId, UploadPage, rules,
};

/// Appends that can be under way at once.
const APPENDS_MAX: usize = 16;

/// How a [`LocalStore`] works.
#[derive(Debug, Clone)]
pub struct LocalSettings {
    /// Whether a write returns only when it would survive a power failure. Without, it survives
    /// the death of the process but is only as durable as the kernel's writeback, and much
    /// faster for small objects. Default: true.
    pub durable: bool,
    /// How old a staged file is before it counts as left behind and is removed when the bucket is
    /// opened. It must exceed the longest copy that another process may be making. Default: one
    /// day.
    pub staging_age_max: Duration,
    /// Entries of a directory that a listing keeps at once; a larger one is read again when they
    /// are used up. Default: 65,536.
    pub window: usize,
    /// Whether symbolic links that stay inside the bucket are followed. They never are where the
    /// kernel lacks openat2. Default: true.
    pub follow_links: bool,
}

impl Default for LocalSettings {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            durable: true,
            staging_age_max: DAY,
            window: 64 << 10,
            follow_links: true,
        }
    }
}

/// A bucket in a local directory.
pub struct LocalStore {
    path: PathBuf,
    settings: LocalSettings,
    capabilities: Capabilities,
    tree: Tree,
    private: Private,
    shape: Shape,
    listings: Listings,
    /// Keeps appends to one object apart, by a hash of its key.
    append_turns: [Mutex<()>; APPENDS_MAX],
}

impl LocalStore {
    /// Opens the bucket in `directory`, which must exist, and removes what killed processes left
    /// in it.
    ///
    /// Fails with `NoSuchBucket` if there is no such directory and with `PermissionDenied` if it
    /// cannot be read. The right to write is needed only for writing.
    pub fn open(directory: &Path, settings: LocalSettings) -> ObjectResult<Self> {
        let open = || -> Attempt<Self> {
            let store = Self {
                path: directory.to_owned(),
                tree: Tree::open(directory, &settings)?,
                settings,
                capabilities: capabilities(),
                private: Private::default(),
                shape: Shape::default(),
                listings: Listings::default(),
                append_turns: Default::default(),
            };
            store.recover();
            Ok(store)
        };
        run_blocking(open).map_err(|problem| problem.during(Operation::List))
    }

    /// Clears up after processes that were killed. A bucket where that is not allowed can still
    /// be read.
    fn recover(&self) {
        let recovered = || -> Attempt<()> {
            let age_max = self.settings.staging_age_max;
            let root = self.tree.root();
            if let Some(appends) = self.private.existing(root, APPENDS)? {
                append::recover(&self.tree, appends)?;
                private::sweep(appends, age_max)?;
            }
            if let Some(staging) = self.private.existing(root, STAGING)? {
                let swept = private::sweep(staging, age_max)?;
                tracing::debug!(swept, "removed staged files that were left behind");
            }
            Ok(())
        };
        if let Err(problem) = recovered() {
            let path = self.path.display();
            let problem = problem.during(Operation::Put);
            tracing::warn!(%path, %problem, "could not remove what a killed process left behind");
        }
    }

    fn placing(&self) -> Attempt<Placing<'_>> {
        Ok(Placing {
            tree: &self.tree,
            shape: &self.shape,
            staging: self.private.directory(self.tree.root(), STAGING)?,
            durable: self.settings.durable,
        })
    }

    async fn read(
        &self,
        key: &Key,
        options: &GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let failed = |problem: Problem| problem.during(Operation::Get).about(key);
        let location = Location::of(key);
        let if_match = options.if_match.as_ref();
        let begin = || -> ObjectResult<(Reading, Got, bool)> {
            let (mut reading, info) =
                Reading::open(&self.tree, &location, if_match).map_err(failed)?;
            let range = rules::delivered(key, options.range.as_ref(), info.size)?;
            let got = Got { info, range };
            reading.begin(&got, sink);
            let more = reading.turn(sink).map_err(failed)?;
            Ok((reading, got, more))
        };
        let (mut reading, mut got, mut more) = run_blocking(begin)?;
        while more {
            tokio::task::yield_now().await;
            more = run_blocking(|| reading.turn(sink)).map_err(failed)?;
        }
        got.range.end = reading.finish(&self.tree).map_err(failed)?;
        Ok(got)
    }

    fn delete_one(&self, key: &Key) -> Attempt<()> {
        let removing = Removing {
            tree: &self.tree,
            shape: &self.shape,
        };
        removing.remove(&Location::of(key))
    }
}

impl std::fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalStore")
            .field("path", &self.path)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

fn capabilities() -> Capabilities {
    Capabilities {
        scheme: "file",
        object_size_max: i64::MAX as u64,
        put_size_max: 5 * GIB,
        part_size_min: 1,
        part_size_max: 5 * GIB,
        parts_max: 10_000,
        copy_size_max: i64::MAX as u64,
        append: true,
        symlinks: false,
        metadata_size_max: 3 << 10,
        write_if_absent: true,
    }
}

#[async_trait]
impl Store for LocalStore {
    fn below(&self) -> Below<'_> {
        Below::Service(&self.capabilities)
    }

    async fn head(&self, key: &Key, _options: HeadOptions) -> ObjectResult<ObjectInfo> {
        let head = || Reading::open(&self.tree, &Location::of(key), None);
        let (_, info) =
            run_blocking(head).map_err(|problem| problem.during(Operation::Head).about(key))?;
        Ok(info)
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        self.read(key, &options, sink).await
    }

    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        run_blocking(|| self.write(key, &body, &options))
            .map_err(|problem| problem.during(Operation::Put).about(key))
    }

    async fn append(
        &self,
        key: &Key,
        position: u64,
        body: Payload,
        options: PutOptions,
    ) -> ObjectResult<Appended> {
        run_blocking(|| self.grow(key, position, &body, &options))
            .map_err(|problem| problem.during(Operation::Append).about(key))
    }

    async fn copy(&self, source: &Key, target: &Key, options: CopyOptions) -> ObjectResult<Stored> {
        let copied = self.duplicate(source, target, &options).await;
        copied.map_err(|problem| problem.during(Operation::Copy).about(source))
    }

    async fn delete(&self, key: &Key) -> ObjectResult<()> {
        run_blocking(|| self.delete_one(key))
            .map_err(|problem| problem.during(Operation::Delete).about(key))
    }

    async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        rules::check_delete_many(keys)?;
        let delete = |key: &Key| {
            let problem = self.delete_one(key).err()?;
            Some(DeleteFailure {
                key: key.clone(),
                kind: problem.kind,
                code: format!("{:?}", problem.kind),
                message: problem.during(Operation::DeleteMany).message,
            })
        };
        Ok(run_blocking(|| keys.iter().filter_map(delete).collect()))
    }

    async fn list(&self, options: ListOptions) -> ObjectResult<ListPage> {
        run_blocking(|| self.listings.page(&self.tree, &options))
            .map_err(|problem| problem.during(Operation::List))
    }

    async fn create_upload(&self, key: &Key, options: PutOptions) -> ObjectResult<UploadId> {
        let create = || {
            let root = self.tree.root();
            let staging = self.private.directory(root, STAGING)?;
            let uploads = self.private.directory(root, UPLOADS)?;
            uploads::create(staging, uploads, key, &options)
        };
        run_blocking(create).map_err(|problem| problem.during(Operation::CreateUpload).about(key))
    }

    async fn upload_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        body: Payload,
    ) -> ObjectResult<Part> {
        let operation = Operation::UploadPart;
        rules::check_part(&self.capabilities, operation, number, body.len() as u64)?;
        run_blocking(|| self.write_part(key, upload, number, &body))
            .map_err(|problem| problem.during(operation).about(key))
    }

    async fn copy_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        copy: PartCopy,
    ) -> ObjectResult<Part> {
        let operation = Operation::CopyPart;
        let size = copy.range.end.saturating_sub(copy.range.start);
        rules::check_part(&self.capabilities, operation, number, size)?;
        let copied = self.duplicate_part(key, upload, number, &copy).await;
        copied.map_err(|problem| problem.during(operation).about(key))
    }

    async fn complete_upload(
        &self,
        key: &Key,
        upload: &UploadId,
        parts: &[Part],
        options: CompleteOptions,
    ) -> ObjectResult<Stored> {
        let assembled = self.assemble(key, upload, parts, &options).await;
        assembled.map_err(|problem| problem.during(Operation::CompleteUpload).about(key))
    }

    async fn abort_upload(&self, key: &Key, upload: &UploadId) -> ObjectResult<()> {
        run_blocking(|| self.forget_upload(key, upload))
            .map_err(|problem| problem.during(Operation::AbortUpload).about(key))
    }

    async fn list_uploads(
        &self,
        prefix: &str,
        continuation: Option<&str>,
    ) -> ObjectResult<UploadPage> {
        let list = || match self.private.existing(self.tree.root(), UPLOADS)? {
            Some(uploads) => uploads::page(uploads, prefix, continuation),
            None => Ok(UploadPage::default()),
        };
        run_blocking(list).map_err(|problem| problem.during(Operation::ListUploads))
    }
}
