//! File operations as the kernel sees them, with errno as the answer to failure.
//!
//! std's own would do for most, but hides some results (short reads are repeated, `EINTR` is
//! retried) and cannot ask for others (`RENAME_NOREPLACE`, `O_APPEND` with an offset).

use std::{
    ffi::CString,
    fmt, fs, io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    process::Command,
};

/// Why a system call failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// A result with errno.
pub type SystemResult<T> = Result<T, Errno>;

/// The numbers that tests speak of, with their names.
const NAMES: [(i32, &str); 25] = [
    (libc::EACCES, "EACCES"),
    (libc::EBADF, "EBADF"),
    (libc::EBUSY, "EBUSY"),
    (libc::ECONNABORTED, "ECONNABORTED"),
    (libc::EEXIST, "EEXIST"),
    (libc::EFBIG, "EFBIG"),
    (libc::EINTR, "EINTR"),
    (libc::EINVAL, "EINVAL"),
    (libc::EIO, "EIO"),
    (libc::EISDIR, "EISDIR"),
    (libc::EMFILE, "EMFILE"),
    (libc::ENAMETOOLONG, "ENAMETOOLONG"),
    (libc::ENODATA, "ENODATA"),
    (libc::ENOENT, "ENOENT"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ENOTCONN, "ENOTCONN"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::ENOTEMPTY, "ENOTEMPTY"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EPERM, "EPERM"),
    (libc::EROFS, "EROFS"),
    (libc::ESTALE, "ESTALE"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
];

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// What `stat` says that a test can predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Bytes in it; 0 for directories, whose size means nothing.
    pub size: u64,
}

/// `open`, with the flags as they are.
pub fn open(path: &Path, flags: i32) -> SystemResult<OwnedFd> {
    const MODE: libc::c_uint = 0o644;
    let path = c_path(path);
    // SAFETY: `path` is a terminated string that lives through the call.
    let fd = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, MODE) };
    check(fd)?;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `close`, whose error `OwnedFd` would swallow.
pub fn close(file: OwnedFd) -> SystemResult<()> {
    let fd = std::os::fd::IntoRawFd::into_raw_fd(file);
    // SAFETY: the descriptor is ours and not used again.
    check(unsafe { libc::close(fd) })
}

/// One `pwrite`: returns how many bytes were taken.
pub fn write_at(file: &OwnedFd, data: &[u8], offset: u64) -> SystemResult<usize> {
    // SAFETY: `data` is readable for its length.
    let count = unsafe {
        libc::pwrite(
            file.as_raw_fd(),
            data.as_ptr().cast(),
            data.len(),
            offset.cast_signed(),
        )
    };
    usize::try_from(count).map_err(|_| last_error())
}

/// One `copy_file_range` of at most `length` bytes to the same place of another file: returns how many were copied.
pub fn copy_range(from: &OwnedFd, to: &OwnedFd, offset: u64, length: usize) -> SystemResult<usize> {
    let (mut here, mut there) = (offset.cast_signed(), offset.cast_signed());
    // SAFETY: both offsets are writable.
    let count = unsafe {
        libc::copy_file_range(
            from.as_raw_fd(),
            &raw mut here,
            to.as_raw_fd(),
            &raw mut there,
            length,
            0,
        )
    };
    usize::try_from(count).map_err(|_| last_error())
}

/// One `pread` of at most `length` bytes.
pub fn read_at(file: &OwnedFd, length: usize, offset: u64) -> SystemResult<Vec<u8>> {
    let mut data = vec![0; length];
    // SAFETY: `data` is writable for its length.
    let count = unsafe {
        libc::pread(
            file.as_raw_fd(),
            data.as_mut_ptr().cast(),
            length,
            offset.cast_signed(),
        )
    };
    data.truncate(usize::try_from(count).map_err(|_| last_error())?);
    Ok(data)
}

/// Makes the kernel forget what it has read of a file.
pub fn forget_pages(file: &impl AsRawFd) {
    // SAFETY: takes a descriptor and numbers.
    let status = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(status, 0, "the kernel forgets");
}

/// `fsync`.
pub fn sync(file: &OwnedFd) -> SystemResult<()> {
    // SAFETY: takes a descriptor and nothing else.
    check(unsafe { libc::fsync(file.as_raw_fd()) })
}

/// `ftruncate`.
pub fn truncate_open(file: &OwnedFd, size: u64) -> SystemResult<()> {
    // SAFETY: takes a descriptor and a number.
    check(unsafe { libc::ftruncate(file.as_raw_fd(), size.cast_signed()) })
}

/// `truncate`.
pub fn truncate(path: &Path, size: u64) -> SystemResult<()> {
    let path = c_path(path);
    // SAFETY: `path` is a terminated string that lives through the call.
    check(unsafe { libc::truncate(path.as_ptr(), size.cast_signed()) })
}

/// `lstat`.
pub fn status(path: &Path) -> SystemResult<Status> {
    let metadata = fs::symlink_metadata(path)?;
    Ok(Status {
        is_directory: metadata.is_dir(),
        size: if metadata.is_dir() { 0 } else { metadata.len() },
    })
}

/// `fstat`.
pub fn status_open(file: &OwnedFd) -> SystemResult<Status> {
    let mut answer = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `answer` is writable and as large as the kernel expects.
    check(unsafe { libc::fstat(file.as_raw_fd(), answer.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the kernel filled the answer.
    let answer = unsafe { answer.assume_init() };
    let is_directory = answer.st_mode & libc::S_IFMT == libc::S_IFDIR;
    Ok(Status {
        is_directory,
        size: if is_directory {
            0
        } else {
            answer.st_size.cast_unsigned()
        },
    })
}

/// The sorted names in a directory.
pub fn list(path: &Path) -> SystemResult<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// `mkdir`.
pub fn make_directory(path: &Path) -> SystemResult<()> {
    Ok(fs::create_dir(path)?)
}

/// `rmdir`.
pub fn remove_directory(path: &Path) -> SystemResult<()> {
    Ok(fs::remove_dir(path)?)
}

/// `unlink`.
pub fn remove(path: &Path) -> SystemResult<()> {
    Ok(fs::remove_file(path)?)
}

/// `renameat2` with flags such as `RENAME_NOREPLACE`.
pub fn rename(from: &Path, to: &Path, flags: libc::c_uint) -> SystemResult<()> {
    let (from, to) = (c_path(from), c_path(to));
    let here = libc::AT_FDCWD;
    // SAFETY: both paths are terminated strings that live through the call.
    check(unsafe { libc::renameat2(here, from.as_ptr(), here, to.as_ptr(), flags) })
}

/// Lets go of a mount point at once, whoever still uses it, and of a process that died while the kernel held
/// it.
pub fn detach(path: &Path) {
    let target = c_path(path);
    // SAFETY: `target` is a terminated string that lives through the call.
    let detached =
        check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH | libc::MNT_FORCE) });
    if detached.is_err() {
        drop(
            Command::new("fusermount3")
                .args(["-u", "-z"])
                .arg(path)
                .status(),
        );
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("tests use no NUL in paths")
}

fn check(result: libc::c_int) -> SystemResult<()> {
    if result < 0 {
        Err(last_error())
    } else {
        Ok(())
    }
}

fn last_error() -> Errno {
    io::Error::last_os_error().into()
}

/// `fallocate`, with the mode as it is.
pub fn allocate(file: &OwnedFd, mode: i32, offset: u64, length: u64) -> SystemResult<()> {
    let (offset, length) = (offset.cast_signed(), length.cast_signed());
    // SAFETY: takes a descriptor and numbers.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) })
}

/// Writes `data` at `offset` of a file through a shared mapping of its first `length` bytes.
pub fn write_mapped(file: &OwnedFd, length: usize, offset: usize, data: &[u8]) -> SystemResult<()> {
    assert!(offset + data.len() <= length, "beyond the mapping");
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice, written within its length and
    // unmapped before anybody else hears of it.
    unsafe {
        let shared = libc::MAP_SHARED;
        let start = libc::mmap(
            std::ptr::null_mut(),
            length,
            protection,
            shared,
            file.as_raw_fd(),
            0,
        );
        if start == libc::MAP_FAILED {
            return Err(last_error());
        }
        let target = start.cast::<u8>().add(offset);
        std::ptr::copy_nonoverlapping(data.as_ptr(), target, data.len());
        check(libc::munmap(start, length))
    }
}

/// What the kernel gives out for a file so that it can be opened without its name: NFS handles are made of it.
#[repr(C)]
pub struct FileHandle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    handle: [u8; 128],
}

impl FileHandle {
    /// `name_to_handle_at`.
    pub fn of(path: &Path) -> SystemResult<Self> {
        let path = c_path(path);
        let mut handle = Self {
            bytes: 128,
            kind: 0,
            handle: [0; 128],
        };
        let mut mount = 0;
        // SAFETY: the structure is laid out as the kernel's and has the room that it says.
        check(unsafe {
            let place = std::ptr::from_mut(&mut handle).cast();
            libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), place, &raw mut mount, 0)
        })?;
        Ok(handle)
    }

    /// `open_by_handle_at`, for reading, on what is mounted at `mount`.
    pub fn open(&mut self, mount: &Path) -> SystemResult<OwnedFd> {
        let mount = open(mount, libc::O_RDONLY | libc::O_DIRECTORY)?;
        // SAFETY: the handle is one that the kernel filled; the descriptor that it returns is new.
        unsafe {
            let place = std::ptr::from_mut(self).cast();
            match libc::open_by_handle_at(mount.as_raw_fd(), place, libc::O_RDONLY) {
                -1 => Err(last_error()),
                opened => Ok(OwnedFd::from_raw_fd(opened)),
            }
        }
    }
}
