//! A file as a slice of memory.

use std::{
    ffi::c_void,
    fs::File,
    io,
    ops::Deref,
    path::Path,
    ptr::{self, NonNull},
    slice,
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A whole file, mapped for reading.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is only read, and it belongs to the mapping until that is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the file at `path`. Fails with `UnexpectedEof` when it is empty.
    ///
    /// The file must stay as it is while it is mapped: files of an index are written under another
    /// name, and replaced as a whole. Who cuts one off, or a disk that cannot read it any more, ends
    /// the process with SIGBUS; the first could end it anyway, being its user or root.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        if length == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file is empty: delete it and build the index again",
            ));
        }
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: the kernel chooses an address that nothing else uses.
        let start = unsafe { mmap(ptr::null_mut(), length, protection, flags, &file, 0)? };
        let start = NonNull::new(start.cast()).expect("mmap never returns null");
        Ok(Self { start, length })
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes are mapped from `start` on as long as `self` lives, and nobody
        // writes to the file any more.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that was made in `open`, and no slice of it outlives `self`.
        let result = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.length) };
        debug_assert!(result.is_ok(), "the mapping was made by us");
    }
}
