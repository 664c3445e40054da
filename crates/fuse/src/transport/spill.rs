//! A file for WRITEs that find no memory.
//!
//! The thread that received a WRITE may not wait for memory. To take only the beginning of it is right
//! for a program that waits in write(2), if it is written with care: many take a short count for a
//! full disk. For what the kernel writes back from its page cache it is wrong: the pages are clean as
//! soon as the WRITE is answered, however short the answer, and nobody sends the rest. So the data
//! goes to an unnamed file in places of one block, waits there for memory, and is read back when
//! there is some.
//!
//! The file has a bounded number of places, and is cut to nothing whenever none is taken. A receiving
//! thread fills it, so a disk that stands still while memory is short holds up the mount.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use penstock_base::{BLOCK_SIZE, BufferWriter};

/// Places in the file: eight times as many as the kernel has background requests by default.
const PLACES_MAX: u32 = 4096;

/// A file for WRITEs that find no memory.
#[derive(Debug)]
pub(super) struct Spill {
    file: File,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    /// Given back, all below `end`.
    free: BTreeSet<u32>,
    /// Places from here on were never taken since the file was cut.
    end: u32,
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
        Ok(Arc::new(Self {
            file: tempfile::tempfile_in(directory)?,
            places: Mutex::default(),
        }))
    }

    /// Puts `bytes`, at most a block of them, into the file. Blocks as a write to the page cache does.
    pub(super) fn put(self: &Arc<Self>, bytes: &[u8]) -> io::Result<Spilled> {
        let place = self.places().take().ok_or(io::ErrorKind::OutOfMemory)?;
        let spilled = Spilled {
            spill: Arc::clone(self),
            place,
            length: bytes.len(),
        };
        self.file.write_all_at(bytes, spilled.offset())?;
        Ok(spilled)
    }

    fn give_back(&self, place: u32) {
        let mut places = self.places();
        places.free.insert(place);
        if places.free.len() == places.end as usize {
            *places = Places::default();
            // Under the lock, or it would cut what is put there next. What fails is cut next time.
            drop(self.file.set_len(0));
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    fn take(&mut self) -> Option<u32> {
        if let Some(place) = self.free.pop_first() {
            return Some(place);
        }
        let place = self.end;
        (place < PLACES_MAX).then(|| {
            self.end += 1;
            place
        })
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
        u64::from(self.place) * BLOCK_SIZE as u64
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

    #[test]
    fn what_is_put_in_comes_back_whatever_else_comes_and_goes() {
        let spill = spill();
        let content = |number: u8| vec![number; 1000 * usize::from(number) + 1];
        let mut held: Vec<_> = (0..200)
            .map(|number| (number, spill.put(&content(number)).expect("room")))
            .collect();
        held.retain(|(number, _)| number % 3 > 0);
        held.extend((200..250).map(|number| (number, spill.put(&content(number)).expect("room"))));
        assert!(spill.places().end <= 200, "places are used again");
        for (number, spilled) in &held {
            assert_eq!(fetched(spilled), content(*number));
        }
        drop(held);
        assert_eq!(spill.file.metadata().expect("a file").len(), 0);
    }

    #[test]
    fn a_full_file_refuses() {
        let spill = spill();
        let all: Vec<_> = (0..PLACES_MAX)
            .map(|_| spill.put(b"x").expect("room"))
            .collect();
        assert_eq!(
            spill.put(b"x").expect_err("no place").kind(),
            io::ErrorKind::OutOfMemory
        );
        drop(all);
        assert_eq!(fetched(&spill.put(b"again").expect("room")), b"again");
    }
}
