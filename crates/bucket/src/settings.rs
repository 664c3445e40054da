//! What a user may choose. Limits that nobody has a reason to change are constants where they are
//! used.

use std::time::Duration;

/// Directory entries that a rename of a directory moves at most, unless set otherwise.
pub const RENAME_DIR_LIMIT_DEFAULT: usize = 1_000_000;

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
    /// How long the absence of a name is believed. One second by default: enough that creating
    /// a file after looking for it asks the store once, too short to hide what others create.
    pub negative_timeout: Duration,
    /// Ask the store for the version of a file at each open (one HEAD), so that whoever opens a
    /// file after another client closed it sees what was written.
    pub close_to_open: bool,
    /// Whether fsync makes what was written durable and visible. If not, fsync does nothing and
    /// only closing a file does.
    pub fsync: bool,
    /// Write files as appendable objects, where the store has them: each 8 MiB become visible
    /// when they are written instead of all at close.
    pub appendable: bool,
    /// Show the store's native symbolic links as links, and allow making them. Where the store
    /// has none this changes nothing.
    pub symlinks: bool,
    /// Entries below a directory up to which it can be renamed.
    pub rename_dir_limit: usize,
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
            negative_timeout: Duration::from_secs(1),
            close_to_open: false,
            fsync: true,
            appendable: false,
            symlinks: true,
            rename_dir_limit: RENAME_DIR_LIMIT_DEFAULT,
        }
    }
}
