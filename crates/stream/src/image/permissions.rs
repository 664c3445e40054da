//! Owners and modes of a volume. Objects have none, so one set holds for all of it.

/// What every file and directory of a volume says of its owner and mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Permissions {
    /// The owner of everything.
    pub uid: u32,
    /// The group of everything.
    pub gid: u32,
    /// Permission bits of every file, the low nine bits of a mode.
    pub file_mode: u16,
    /// Permission bits of every directory, the low nine bits of a mode.
    pub directory_mode: u16,
}

impl Permissions {
    /// All permissions but those in `umask`, for files, too: a bucket does not know which of them
    /// are programs. So 022 makes 755 of both.
    pub fn with_umask(uid: u32, gid: u32, umask: u16) -> Self {
        let mode = 0o777 & !umask;
        Self {
            uid,
            gid,
            file_mode: mode,
            directory_mode: mode,
        }
    }
}

impl Default for Permissions {
    /// Everything is root's, and everybody may read it.
    fn default() -> Self {
        Self {
            uid: 0,
            gid: 0,
            file_mode: 0o644,
            directory_mode: 0o755,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_umask_takes_from_files_and_directories_alike() {
        let modes = |umask| {
            let permissions = Permissions::with_umask(1, 2, umask);
            (permissions.file_mode, permissions.directory_mode)
        };
        assert_eq!(modes(0), (0o777, 0o777));
        assert_eq!(modes(0o022), (0o755, 0o755));
    }
}
