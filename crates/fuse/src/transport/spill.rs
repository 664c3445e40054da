//! A file for WRITEs that find no memory.
//!
//! The thread that received a WRITE may not wait for memory. To take only the beginning of it is right
//! for a program that waits in write(2), if it is written with care: many take a short count for a
//! full disk. For what the kernel writes back from its page cache it is wrong: the pages are clean as
//! soon as the WRITE is answered, however short the answer, and nobody sends the rest. So the data
//! goes to an unnamed file in places of one block, waits there for memory, and is read back when
//! there is some.
//!
//! The file has a bounded number of places. The first ones are *certain*: they are allocated at the start
//! and kept, so that a disk which is full takes them, and the kernel is asked to send no more of its page
//! cache at once than goes there ([`Spill::certain`]). Nothing else gets them. What programs write goes to
//! the others, while the disk has more free than is left to everybody on it. A receiving thread fills
//! the file, so a disk that stands still while memory is short holds up the mount.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use penstock_base::{BLOCK_SIZE, BufferWriter, kept_free};
use rustix::{
    fs::{FallocateFlags, fallocate, fstatvfs},
    io::Errno,
};

use crate::protocol::WriteOrigin;

/// Places in the file: eight times as many as the kernel has background requests by default.
const PLACES_MAX: u32 = 4096;
/// The most places that are certain.
const CERTAIN_MAX: u32 = 256;
/// The part of the disk's free space that they may have: one in this many.
const CERTAIN_SHARE: u64 = 16;

/// A file for WRITEs that find no memory.
#[derive(Debug)]
pub(super) struct Spill {
    file: File,
    /// `None` where the file system allocates nothing beforehand.
    certain: Option<u32>,
    places: Mutex<Places>,
}

/// Places of which each can be taken once.
#[derive(Debug)]
struct Places {
    /// The certain ones, and all others.
    certain: Row,
    others: Row,
}

/// Places that follow one another.
#[derive(Debug)]
struct Row {
    all: Range<u32>,
    /// Given back, all before `untouched`.
    free: BTreeSet<u32>,
    /// Places from here on were not taken since all were free.
    untouched: u32,
}

/// The data of one WRITE. Dropping it gives the place back.
#[derive(Debug)]
pub(crate) struct Spilled {
    spill: Arc<Spill>,
    place: u32,
    length: usize,
}

impl Spill {
    /// A new file in `directory`, which nobody else ever sees.
    pub(super) fn new(directory: &Path) -> io::Result<Arc<Self>> {
        let file = tempfile::tempfile_in(directory)?;
        let certain = allocate(&file);
        Ok(Arc::new(Self {
            places: Mutex::new(Places::new(certain.unwrap_or(0))),
            certain,
            file,
        }))
    }

    /// How many places the disk has for certain, where its file system promises that.
    pub(super) fn certain(&self) -> Option<u32> {
        self.certain
    }

    /// Puts `bytes`, at most a block of them, into the file. Blocks as a write to the page cache does.
    pub(super) fn put(self: &Arc<Self>, bytes: &[u8], origin: WriteOrigin) -> io::Result<Spilled> {
        let spilled = Spilled {
            place: self.place(origin)?,
            spill: Arc::clone(self),
            length: bytes.len(),
        };
        self.file.write_all_at(bytes, spilled.offset())?;
        Ok(spilled)
    }

    fn place(&self, origin: WriteOrigin) -> io::Result<u32> {
        let mut places = self.places();
        let place = match origin {
            WriteOrigin::Program if !has_room(&self.file) => {
                return Err(io::ErrorKind::StorageFull.into());
            }
            WriteOrigin::Program => places.others.take(),
            WriteOrigin::PageCache | WriteOrigin::Direct => {
                places.certain.take().or_else(|| places.others.take())
            }
        };
        place.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn give_back(&self, place: u32) {
        let mut places = self.places();
        if places.give_back(place) && place >= self.certain.unwrap_or(0) {
            // Under the lock, or it would cut what is put there next. What fails is cut next time.
            drop(self.file.set_len(bytes_of(self.certain.unwrap_or(0))));
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the disk has room for one more place beside what is left free. One that does not tell is taken
/// at its word when it refuses a write.
fn has_room(file: &File) -> bool {
    fstatvfs(file).map_or(true, |disk| {
        let (free, all) = (disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize);
        free >= kept_free(all) + BLOCK_SIZE as u64
    })
}

/// Allocates the first places, and returns how many those are.
fn allocate(file: &File) -> Option<u32> {
    let disk = fstatvfs(file).ok()?;
    let share = disk.f_bavail.saturating_mul(disk.f_frsize) / CERTAIN_SHARE / BLOCK_SIZE as u64;
    let mut places = u32::try_from(share).unwrap_or(u32::MAX).min(CERTAIN_MAX);
    while places > 0 {
        match fallocate(file, FallocateFlags::empty(), 0, bytes_of(places)) {
            Ok(()) => break,
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => places /= 2,
            Err(_) => return None,
        }
    }
    Some(places)
}

/// Bytes of so many places.
fn bytes_of(places: u32) -> u64 {
    u64::from(places) * BLOCK_SIZE as u64
}

impl Places {
    fn new(certain: u32) -> Self {
        Self {
            certain: Row::new(0..certain),
            others: Row::new(certain..PLACES_MAX),
        }
    }

    /// Says whether all of its kind are free now.
    fn give_back(&mut self, place: u32) -> bool {
        if self.certain.all.contains(&place) {
            self.certain.give_back(place)
        } else {
            self.others.give_back(place)
        }
    }
}

impl Row {
    fn new(all: Range<u32>) -> Self {
        Self {
            untouched: all.start,
            all,
            free: BTreeSet::new(),
        }
    }

    fn take(&mut self) -> Option<u32> {
        if let Some(place) = self.free.pop_first() {
            return Some(place);
        }
        let place = self.untouched;
        (place < self.all.end).then(|| {
            self.untouched += 1;
            place
        })
    }

    /// Says whether all are free now.
    fn give_back(&mut self, place: u32) -> bool {
        self.free.insert(place);
        let are_free = self.free.len() == (self.untouched - self.all.start) as usize;
        if are_free {
            *self = Self::new(self.all.clone());
        }
        are_free
    }
}

impl Spilled {
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Reads all of it back. Blocks.
    pub(super) fn fetch(&self, writer: &mut BufferWriter) -> io::Result<()> {
        let read = writer.read_from(&self.spill.file, self.offset(), self.length)?;
        if read < self.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn offset(&self) -> u64 {
        bytes_of(self.place)
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        self.spill.give_back(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::{BufferPool, MemoryBudget};

    fn spill() -> Arc<Spill> {
        Spill::new(&std::env::temp_dir()).expect("a file")
    }

    fn fetched(spilled: &Spilled) -> Vec<u8> {
        let pool = BufferPool::new(MemoryBudget::new(2 * BLOCK_SIZE as u64));
        let buffer = pool.try_take(BLOCK_SIZE).expect("room");
        let (mut writer, view) = buffer.share();
        spilled.fetch(&mut writer).expect("readable");
        view.slice(0..view.filled()).to_vec()
    }

    fn put(spill: &Arc<Spill>, bytes: &[u8]) -> Spilled {
        let spilled = spill.put(bytes, WriteOrigin::PageCache);
        spilled.expect("room")
    }

    #[test]
    fn what_is_put_in_comes_back_whatever_else_comes_and_goes() {
        let spill = spill();
        let content = |number: u16| vec![number as u8; 100 * usize::from(number) + 1];
        let mut held: Vec<_> = (0..600)
            .map(|number| (number, put(&spill, &content(number))))
            .collect();
        held.retain(|(number, _)| number % 3 > 0);
        held.extend((600..750).map(|number| (number, put(&spill, &content(number)))));
        assert!(
            spill.places().others.untouched <= 600,
            "places are used again"
        );
        for (number, spilled) in &held {
            assert_eq!(fetched(spilled), content(*number));
        }
        drop(held);
        let left = spill.file.metadata().expect("a file").len();
        assert_eq!(left, bytes_of(spill.certain().unwrap_or(0)));
    }

    #[test]
    fn a_full_file_refuses_and_keeps_what_is_certain_for_the_kernel() {
        let spill = spill();
        let certain = spill.certain().unwrap_or(0);
        let refused = |origin| spill.put(b"x", origin).expect_err("no place").kind();
        let mut all: Vec<_> = (certain..PLACES_MAX)
            .map(|_| spill.put(b"x", WriteOrigin::Program).expect("room"))
            .collect();
        assert_eq!(refused(WriteOrigin::Program), io::ErrorKind::OutOfMemory);
        for number in 0..certain {
            let origins = [WriteOrigin::PageCache, WriteOrigin::Direct];
            all.push(spill.put(b"x", origins[number as usize % 2]).expect("room"));
        }
        assert_eq!(refused(WriteOrigin::PageCache), io::ErrorKind::OutOfMemory);
        drop(all);
        assert_eq!(fetched(&put(&spill, b"again")), b"again");
    }
}
