//! What a volume can do, for doors to ask once.

use std::time::Duration;

/// What a volume can do. A door tells its clients of it (the INIT reply of FUSE, FSINFO and PATHCONF of NFS)
/// and does not ask for what is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Bytes in the longest name.
    pub name_bytes_max: u32,
    /// Bytes in the largest file.
    pub file_size_max: u64,
    /// Names that one file may have; 1 where there are no hard links.
    pub links_max: u32,
    /// Files have extended attributes.
    pub xattrs: bool,
    /// Files have access lists, as the extended attributes of [`crate::ListKind`], and [`crate::Attributes`] tell of them.
    pub access_lists: bool,
    /// A file can be written anywhere, not only at its end.
    pub random_writes: bool,
    /// [`crate::Volume::node_id`] gives numbers.
    pub persistent_ids: bool,
    /// What was written is saved when a file is closed, as [`crate::Volume::flush`] tells.
    pub saves_on_close: bool,
    /// A name may be stored after the call that made it: [`crate::Volume::sync_directory`] waits for that.
    pub saves_names_behind: bool,
    /// [`crate::Volume::seek`] finds holes.
    pub finds_holes: bool,
    /// [`crate::Volume::copy_range`] copies.
    pub copies_ranges: bool,
    /// A change of names that is made in a call ([`crate::Identity::call`]) is made once, whichever door asks for it again.
    pub remembers_calls: bool,
    /// The smallest difference between two time stamps that is kept.
    pub time_granularity: Duration,
    /// Others change files without this volume, which tells its doors so: what a door keeps, it keeps of what is stored
    /// and of nothing that was not written yet.
    pub changes_elsewhere: bool,
}

impl Features {
    /// A volume whose files are read and never changed.
    pub const READ_ONLY: Self = Self {
        name_bytes_max: penstock_base::NAME_LENGTH_MAX as u32,
        file_size_max: i64::MAX as u64,
        links_max: 1,
        xattrs: false,
        access_lists: false,
        random_writes: false,
        persistent_ids: false,
        saves_on_close: false,
        saves_names_behind: false,
        finds_holes: false,
        copies_ranges: false,
        remembers_calls: false,
        time_granularity: Duration::from_nanos(1),
        changes_elsewhere: false,
    };
}
