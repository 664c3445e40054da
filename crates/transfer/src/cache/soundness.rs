//! Which blocks of a version were compared with their checksums in this process.
//!
//! A kernel that reads a file by itself compares nothing. So it gets a version only when each block
//! was written or compared here, and nobody else has touched the file since: the time of its last
//! change tells.

use std::{fs::File, io, ops::Range, os::unix::fs::MetadataExt};

/// Seconds and nanoseconds of the last change of a file's content or of what `stat` shows.
type ChangeTime = (i64, i64);

/// What is known of the blocks of one file.
#[derive(Debug)]
pub(super) struct Soundness {
    /// A bit for each block.
    sound: Vec<u64>,
    /// Blocks whose bit is not set.
    left: u64,
    blocks: u64,
    changed: ChangeTime,
    /// What changes the file now is ours.
    writing: bool,
}

impl Soundness {
    /// Of a file with this many blocks, none of which was compared yet.
    pub(super) fn new(file: &File, blocks: u64) -> io::Result<Self> {
        Ok(Self {
            sound: Vec::new(),
            left: blocks,
            blocks,
            changed: change_time(file)?,
            writing: false,
        })
    }

    /// Block `index` is as its checksum says.
    pub(super) fn compared(&mut self, index: u64) {
        self.sound.resize(self.blocks.div_ceil(64) as usize, 0);
        let word = &mut self.sound[(index / 64) as usize];
        let bit = 1 << (index % 64);
        if *word & bit == 0 {
            *word |= bit;
            self.left -= 1;
        }
    }

    /// Block `index` is not there, or not as it should be.
    pub(super) fn lost(&mut self, index: u64) {
        let Some(word) = self.sound.get_mut((index / 64) as usize) else {
            return;
        };
        let bit = 1 << (index % 64);
        if *word & bit != 0 {
            *word &= !bit;
            self.left += 1;
        }
    }

    /// Blocks of `file` are about to be written. One write at a time.
    pub(super) fn begin_write(&mut self, file: &File, blocks: &Range<u64>) -> io::Result<()> {
        self.notice(file)?;
        self.writing = true;
        blocks.clone().for_each(|index| self.lost(index));
        Ok(())
    }

    /// That write ended.
    pub(super) fn end_write(
        &mut self,
        file: &File,
        blocks: &Range<u64>,
        written: io::Result<()>,
    ) -> io::Result<()> {
        self.writing = false;
        self.changed = change_time(file)?;
        written?;
        blocks.clone().for_each(|index| self.compared(index));
        Ok(())
    }

    /// Whether all of `file` is as it should be.
    pub(super) fn is_whole(&mut self, file: &File) -> io::Result<bool> {
        self.notice(file)?;
        Ok(self.left == 0 && !self.writing)
    }

    /// Trusts nothing any more when somebody else changed `file`.
    fn notice(&mut self, file: &File) -> io::Result<()> {
        let changed = change_time(file)?;
        if changed != self.changed && !self.writing {
            self.changed = changed;
            self.sound.clear();
            self.left = self.blocks;
        }
        Ok(())
    }
}

fn change_time(file: &File) -> io::Result<ChangeTime> {
    let metadata = file.metadata()?;
    Ok((metadata.ctime(), metadata.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::FileExt, time::Duration};

    use penstock_base::clock;

    use super::*;

    #[tokio::test]
    async fn whole_is_what_was_written_or_compared_and_left_alone() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        let mut soundness = Soundness::new(&file, 70).expect("readable");
        soundness.compared(69);
        soundness.compared(69);
        for index in 0..67 {
            soundness.compared(index);
        }
        let blocks = 67..69;
        let begun = soundness.begin_write(&file, &blocks);
        begun.expect("readable");
        let written = file.write_all_at(b"x", 0);
        assert!(!soundness.is_whole(&file).expect("readable"));
        let ended = soundness.end_write(&file, &blocks, written);
        ended.expect("written");
        assert!(soundness.is_whole(&file).expect("readable"));
        soundness.lost(3);
        assert!(!soundness.is_whole(&file).expect("readable"));
        soundness.compared(3);
        assert!(soundness.is_whole(&file).expect("readable"));
        // The clock of file systems ticks every few milliseconds.
        clock::sleep(Duration::from_millis(20)).await;
        file.write_all(b"y").expect("written");
        assert!(!soundness.is_whole(&file).expect("readable"));
    }
}
