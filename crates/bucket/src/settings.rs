//! What a user may choose. Limits that nobody has a reason to change are constants where they are
//! used.

use std::{sync::Arc, time::Duration};

use crate::ContentTypes;

/// Directory entries that a rename of a directory moves at most, unless set otherwise.
pub const RENAME_DIR_LIMIT_DEFAULT: usize = 1_000_000;

/// How staged files are saved behind the close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaveBehind {
    /// How long a file that was closed is left alone before it is saved: what happens to it meanwhile goes with
    /// the save.
    pub after: Duration,
    /// How long it may be unsaved, whatever happens to it.
    pub age_max: Duration,
    /// Closed files that may be unsaved at once. Each has two files of the staging directory open. With half as
    /// many, files are saved as soon as they are closed; with all, a close waits until its file is saved.
    pub files_max: usize,
}

/// What fsync waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// What was written is durable in the store, and seen by a new open.
    Store,
    /// Of staged files that are saved behind the close: what was written, and the journal that tells of it, survive a
    /// crash of this machine. Elsewhere the same as [`Fsync::Store`].
    Journal,
    /// Nothing: only closing a file makes it durable.
    Nothing,
}

/// Settings of a [`crate::BucketVolume`]. Every field has a default that suits one writer and
/// many readers of data that changes seldom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketSettings {
    /// Owner of every file and directory.
    pub uid: u32,
    /// Group of every file and directory.
    pub gid: u32,
    /// Permission bits of every file, the low twelve bits of a mode.
    pub file_mode: u16,
    /// Permission bits of every directory, the low twelve bits of a mode.
    pub dir_mode: u16,
    /// Refuse every change.
    pub read_only: bool,
    /// How long attributes and listings are believed. Longer saves requests; shorter shows
    /// sooner what others change in the bucket.
    pub attr_timeout: Duration,
    /// How long a complete listing answers for names that it did not show, `attr_timeout` at most.
    pub listing_timeout: Duration,
    /// How long the absence of a name is believed. One second by default: enough that creating
    /// a file after looking for it asks the store once, too short to hide what others create.
    pub negative_timeout: Duration,
    /// Ask the store for the version of a file at each open (one HEAD), so that whoever opens a
    /// file after another client closed it sees what was written.
    pub close_to_open: bool,
    /// What fsync waits for.
    pub fsync: Fsync,
    /// Save staged files behind the close; `None` saves them at the close.
    pub save_behind: Option<SaveBehind>,
    /// Write files as appendable objects, where the store has them: each 8 MiB become visible
    /// when they are written instead of all at close.
    pub appendable: bool,
    /// Show the store's native symbolic links as links, and allow making them. Where the store
    /// has none this changes nothing.
    pub symlinks: bool,
    /// Entries below a directory up to which it can be renamed.
    pub rename_dir_limit: usize,
    /// The door knows sizes and times of files better than the volume: show a file that another
    /// client changed as another inode.
    pub door_keeps_sizes: bool,
    /// What is kept of files beside their bytes.
    pub metadata: MetadataSettings,
    /// Which media type a file gets by its name; none by default, and the store chooses.
    pub content_types: Arc<ContentTypes>,
}

/// Requests for the metadata of listed objects that are under way at once, unless set otherwise.
pub const METADATA_REQUESTS_DEFAULT: usize = 128;

/// What is kept in the metadata of objects. With `keep` off, the default, everything else here has
/// no effect, and owners and modes are those of [`BucketSettings`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataSettings {
    /// Keep owner, mode, times, links and extended attributes. Owner and mode in
    /// [`BucketSettings`] then stand for what an object does not say.
    pub keep: bool,
    /// Owner shown of everything, whatever objects say.
    pub uid: Option<u32>,
    /// Group shown of everything, whatever objects say.
    pub gid: Option<u32>,
    /// Permission bits that nothing shows.
    pub umask: u16,
    /// Permission bits of the root of the mount; `None` for those of directories.
    pub root_mode: Option<u16>,
    /// Keep extended attributes too.
    pub xattrs: bool,
    /// Keep the targets of links in metadata, where `readdir_optimize` finds them, not in bodies.
    pub symlink_in_meta: bool,
    /// List directories without asking for the metadata of each object: what was not asked for yet
    /// shows defaults.
    pub readdir_optimize: bool,
    /// With `readdir_optimize`: ask all the same for objects of up to so many bytes. 0 asks for
    /// none, with `symlink_in_meta` for empty ones.
    pub readdir_check_size: u64,
    /// Take objects `dir_$folder$` and `dir` with the mode or media type of a directory for
    /// directories.
    pub old_directories: bool,
    /// Requests for the metadata of listed objects that are under way at once, at least 1.
    pub requests_max: usize,
    /// Names that are remembered though nobody holds their files, beside what memory allows.
    pub stat_cache_size: usize,
    /// Count `attr_timeout` from the last use instead of from the answer of the store.
    pub stat_cache_interval: bool,
}

impl Default for MetadataSettings {
    fn default() -> Self {
        Self {
            keep: false,
            uid: None,
            gid: None,
            umask: 0,
            root_mode: None,
            xattrs: true,
            symlink_in_meta: false,
            readdir_optimize: false,
            readdir_check_size: 0,
            old_directories: true,
            requests_max: METADATA_REQUESTS_DEFAULT,
            stat_cache_size: usize::MAX,
            stat_cache_interval: false,
        }
    }
}

impl Default for BucketSettings {
    fn default() -> Self {
        Self {
            uid: 0,
            gid: 0,
            file_mode: 0o644,
            dir_mode: 0o755,
            read_only: false,
            attr_timeout: Duration::from_secs(60),
            listing_timeout: Duration::MAX,
            negative_timeout: Duration::from_secs(1),
            close_to_open: false,
            fsync: Fsync::Store,
            save_behind: None,
            appendable: false,
            symlinks: true,
            rename_dir_limit: RENAME_DIR_LIMIT_DEFAULT,
            door_keeps_sizes: false,
            metadata: MetadataSettings::default(),
            content_types: Arc::default(),
        }
    }
}
