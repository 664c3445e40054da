//! Reading files that nobody changes.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::{Chance, is_passing, timed};

const MIB: usize = 1 << 20;

/// A file that nobody changes.
#[derive(Debug)]
pub struct Shared {
    /// Where the mount shows it.
    pub path: PathBuf,
    /// What it holds.
    pub content: Vec<u8>,
}

/// Reads one of `files` in one way or another and compares it. Returns whether it could be read.
#[track_caller]
pub fn read_shared(files: &[Shared], chance: &mut Chance) -> bool {
    let file = chance.pick(files);
    let what = file.path.display().to_string();
    let read = timed(&what, || match chance.below(2) {
        0 => read_through(&file.path, &file.content),
        _ => read_at_random(&file.path, &file.content, chance),
    });
    if let Err(error) = &read {
        let errno = crate::system::Errno(error.raw_os_error().unwrap_or_default());
        assert!(is_passing(errno), "{what}: {error}");
    }
    read.is_ok()
}

fn read_through(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; MIB];
    let mut position = 0;
    loop {
        let count = file.read(&mut buffer)?;
        let end = position + count;
        assert!(end <= content.len(), "{path:?} is longer than it is");
        assert!(
            buffer[..count] == content[position..end],
            "{path:?} at {position}"
        );
        if count == 0 {
            assert_eq!(end, content.len(), "{path:?} is cut");
            return Ok(());
        }
        position = end;
    }
}

fn read_at_random(path: &Path, content: &[u8], chance: &mut Chance) -> io::Result<()> {
    const READS: usize = 8;
    let file = File::open(path)?;
    for _ in 0..READS {
        let position = chance.below(content.len());
        let mut buffer = vec![0; 1 + chance.below(2 * MIB)];
        let count = file.read_at(&mut buffer, position as u64)?;
        let expected = &content[position..content.len().min(position + count)];
        assert!(
            &buffer[..count] == expected && count > 0,
            "{path:?} at {position}"
        );
    }
    Ok(())
}
