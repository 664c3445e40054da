//! The bytes of files: where they are, and their way from one file into another.
//!
//! The kernel copies where it can, which is a reference where the file system shares extents, and a copy on the
//! server where that has one. Holes stay holes.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::{
    fs::{self, SeekFrom, Stat},
    io::Errno,
};

use crate::Stop;

/// Bytes that are read at once.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;
/// Bytes that the kernel copies between two looks at the stop.
const STEP_BYTES: u64 = 16 << 20;
/// The number of FUSE among file systems, see statfs(2).
const FUSE: fs::FsWord = 0x6573_5546;
/// Bytes of a block of `st_blocks`, see stat(2).
const STAT_BLOCK: i64 = 512;

/// The parts of a file that hold data, within a range.
pub(crate) struct Segments<'a> {
    file: BorrowedFd<'a>,
    at: u64,
    end: u64,
    /// Holes are looked for.
    is_sparse: bool,
}

impl<'a> Segments<'a> {
    /// Those of `file`, which `stat` describes, between two offsets.
    pub(crate) fn of(file: BorrowedFd<'a>, stat: &Stat, at: u64, end: u64) -> Self {
        Self {
            file,
            at,
            end,
            is_sparse: stat.st_blocks * STAT_BLOCK < stat.st_size,
        }
    }
}

impl Iterator for Segments<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        if self.at >= self.end {
            return None;
        }
        let (begin, end) = match self.is_sparse {
            false => (self.at, self.end),
            true => match fs::seek(self.file, SeekFrom::Data(self.at)) {
                // A hole to the end.
                Err(Errno::NXIO) => (self.end, self.end),
                Err(_) => (self.at, self.end),
                Ok(begin) => {
                    let end = fs::seek(self.file, SeekFrom::Hole(begin)).unwrap_or(self.end);
                    (begin, end.min(self.end))
                }
            },
        };
        self.at = end;
        (begin < self.end).then_some((begin, end))
    }
}

/// Gives a new file its size before its bytes, which can be written anywhere then. Says whether it has it: not where files
/// are only appended to.
pub(crate) fn set_size(file: impl AsFd, size: u64) -> rustix::io::Result<bool> {
    match fs::ftruncate(file, size) {
        Err(Errno::OPNOTSUPP) => Ok(false),
        sized => sized.map(|()| true),
    }
}

/// Whether a file is on a file system of FUSE, where reading and writing a small file may cost more than asking for a copy.
pub(crate) fn is_on_fuse(file: impl AsFd) -> bool {
    fs::fstatfs(file).is_ok_and(|found| found.f_type == FUSE)
}

/// Copies the bytes between two offsets of `from` to the same place of `to`, and tells `copied` of each piece. Returns
/// where it ended: earlier where `from` ends. Fails with `Interrupted` when `stop` is set.
pub(crate) fn copy_range(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    (begin, end): (u64, u64),
    stop: &Stop,
    copied: &dyn Fn(u64),
) -> io::Result<u64> {
    let mut at = begin;
    while at < end {
        check(stop)?;
        let (mut here, mut there) = (at, at);
        let length = (end - at).min(STEP_BYTES) as usize;
        match fs::copy_file_range(from, Some(&mut here), to, Some(&mut there), length) {
            // At the end, or a file such as those of /proc, which only tell what they hold when they are read.
            Ok(0) => return by_hand(from, to, (at, end), stop, copied),
            Ok(count) => {
                at += count as u64;
                copied(count as u64);
            }
            Err(Errno::INTR) => {}
            Err(
                Errno::XDEV
                | Errno::NOSYS
                | Errno::OPNOTSUPP
                | Errno::INVAL
                | Errno::PERM
                | Errno::IO,
            ) => {
                return by_hand(from, to, (at, end), stop, copied);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(at)
}

fn by_hand(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    (mut at, end): (u64, u64),
    stop: &Stop,
    copied: &dyn Fn(u64),
) -> io::Result<u64> {
    let mut buffer = vec![0; BUFFER_BYTES.min((end - at) as usize)];
    while at < end {
        check(stop)?;
        let length = buffer.len().min((end - at) as usize);
        let count = read_fully(from, &mut buffer[..length], at)?;
        if count == 0 {
            break;
        }
        write_fully(to, &buffer[..count], at)?;
        at += count as u64;
        copied(count as u64);
    }
    Ok(at)
}

fn check(stop: &Stop) -> io::Result<()> {
    match stop.is_set() {
        true => Err(io::ErrorKind::Interrupted.into()),
        false => Ok(()),
    }
}

/// Reads until `buffer` is full or the file ends.
pub(crate) fn read_fully(file: impl AsFd, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match rustix::io::pread(&file, &mut buffer[count..], at + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(count)
}

/// Writes all of `bytes`.
pub(crate) fn write_fully(file: impl AsFd, bytes: &[u8], at: u64) -> io::Result<()> {
    let mut count = 0;
    while count < bytes.len() {
        match rustix::io::pwrite(&file, &bytes[count..], at + count as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => count += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether two files of the same size hold the same. Ends with `Interrupted` when `stop` is set.
pub(crate) fn is_equal(left: impl AsFd, right: impl AsFd, stop: &Stop) -> io::Result<bool> {
    let mut buffers = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    let mut at = 0;
    loop {
        check(stop)?;
        let counts = (
            read_fully(&left, &mut buffers.0, at)?,
            read_fully(&right, &mut buffers.1, at)?,
        );
        if buffers.0[..counts.0] != buffers.1[..counts.1] {
            return Ok(false);
        }
        if counts.0 < BUFFER_BYTES {
            return Ok(true);
        }
        at += counts.0 as u64;
    }
}
