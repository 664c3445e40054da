//! Writes the map in one pass.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Seek, Write},
    path::{Path, PathBuf},
};

use super::{
    ENTRY, GROUP, MAGIC,
    record::Encoder,
    table::{Table, encode_entry},
};
use crate::{
    BLOCK_SIZE, BlockAddress, PlacedObjects, SnapshotError, SnapshotObject,
    checked_file::CheckedWriter,
};

/// Bytes of a disk's table that are held in memory.
const TABLE_BUFFER: usize = 64 << 10;

/// Writes the map of one snapshot.
///
/// Keys rise strictly in byte order, and so do the blocks of each disk. What is at the path before
/// [`ObjectMapWriter::finish`] returned is refused by [`super::ObjectMap::open`].
#[derive(Debug)]
pub struct ObjectMapWriter {
    path: PathBuf,
    file: CheckedWriter,
    encoder: Encoder,
    record: Vec<u8>,
    last_key: Vec<u8>,
    records: u32,
    /// Where each group begins.
    groups: Vec<u64>,
    tables: Vec<TableWriter>,
}

/// A table that grows aside until the records are written.
#[derive(Debug)]
struct TableWriter {
    file: BufWriter<File>,
    entries: u64,
    /// The first block behind the last object.
    end: u64,
}

impl ObjectMapWriter {
    /// Begins a map at `path`, in the place of what is there.
    pub fn create(path: &Path) -> Result<Self, SnapshotError> {
        let file = CheckedWriter::create(path).map_err(|error| file_error(path, error))?;
        Ok(Self {
            path: path.to_path_buf(),
            file,
            encoder: Encoder::default(),
            record: Vec::new(),
            last_key: Vec::new(),
            records: 0,
            groups: Vec::new(),
            tables: Vec::new(),
        })
    }

    /// Adds the next object, whose first block is at `start`. Fails with `Invalid` when its key or
    /// its place does not follow those before.
    pub fn add(
        &mut self,
        object: &SnapshotObject<'_>,
        start: BlockAddress,
    ) -> Result<(), SnapshotError> {
        self.check_key(object.key)?;
        self.place(object, start)?;
        if self.records.is_multiple_of(GROUP) {
            self.groups.push(self.file.length());
            self.encoder.begin_group();
        }
        self.record.clear();
        self.encoder.encode(object, &mut self.record);
        let written = self.file.write_all(&self.record);
        written.map_err(|error| self.error(error))?;
        self.records += 1;
        Ok(())
    }

    /// Ends the map and makes it durable.
    pub fn finish(mut self) -> Result<(), SnapshotError> {
        let path = std::mem::take(&mut self.path);
        self.write_end().map_err(|error| file_error(&path, error))
    }

    fn check_key(&mut self, key: &[u8]) -> Result<(), SnapshotError> {
        let is_first = self.records == 0;
        if !is_first && key <= self.last_key.as_slice() {
            return Err(self.refused("keys do not rise", key));
        }
        if self.records == u32::MAX {
            return Err(self.refused("a map holds no more objects; mount a smaller path", key));
        }
        self.last_key.clear();
        self.last_key.extend(key);
        Ok(())
    }

    fn place(
        &mut self,
        object: &SnapshotObject<'_>,
        start: BlockAddress,
    ) -> Result<(), SnapshotError> {
        while self.tables.len() <= usize::from(start.disk) {
            let table = TableWriter::create(&self.path, self.tables.len());
            self.tables.push(table.map_err(|error| self.error(error))?);
        }
        let blocks = object.size.div_ceil(BLOCK_SIZE);
        if blocks == 0 {
            return Ok(());
        }
        let table = &mut self.tables[usize::from(start.disk)];
        let end = start.block.saturating_add(blocks);
        let Some(first) = u32::try_from(start.block).ok().filter(|_| end <= 1 << 32) else {
            return Err(self.refused("the disk is full: use more disks", object.key));
        };
        if start.block < table.end {
            return Err(self.refused("its blocks are taken", object.key));
        }
        let written = table.add(first, self.records, end);
        written.map_err(|error| self.error(error))
    }

    fn write_end(mut self) -> io::Result<()> {
        let groups_end = self.file.length();
        let mut tables = Vec::new();
        for table in self.tables {
            tables.push(table.copy_to(&mut self.file)?);
        }
        let groups = self.file.length();
        for start in &self.groups {
            self.file.write_all(&start.to_le_bytes())?;
        }
        for table in tables {
            for number in [table.start, table.entries, table.blocks] {
                self.file.write_all(&number.to_le_bytes())?;
            }
        }
        for number in [u64::from(self.records), groups_end, groups] {
            self.file.write_all(&number.to_le_bytes())?;
        }
        self.file.finish(MAGIC)
    }

    fn refused(&self, why: &str, key: &[u8]) -> SnapshotError {
        let key = key.escape_ascii();
        SnapshotError::Invalid(format!("object `{key}` cannot be mapped: {why}"))
    }

    fn error(&self, source: io::Error) -> SnapshotError {
        file_error(&self.path, source)
    }
}

impl PlacedObjects for ObjectMapWriter {
    fn add(&mut self, object: &SnapshotObject<'_>, start: BlockAddress) -> io::Result<()> {
        let added = self.add(object, start);
        added.map_err(|error| match error {
            SnapshotError::File { path, source } => {
                io::Error::new(source.kind(), format!("{path}: {source}"))
            }
            other => io::Error::other(other.to_string()),
        })
    }
}

impl TableWriter {
    /// A file beside the map that has no name any more.
    fn create(path: &Path, disk: usize) -> io::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".disk{disk}"));
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&name)?;
        fs::remove_file(&name)?;
        Ok(Self {
            file: BufWriter::with_capacity(TABLE_BUFFER, file),
            entries: 0,
            end: 0,
        })
    }

    fn add(&mut self, first: u32, number: u32, end: u64) -> io::Result<()> {
        self.file.write_all(&encode_entry(first, number))?;
        self.entries += 1;
        self.end = end;
        Ok(())
    }

    fn copy_to(self, map: &mut CheckedWriter) -> io::Result<Table> {
        let start = map.length();
        let mut file = self.file.into_inner()?;
        file.rewind()?;
        let copied = io::copy(&mut file, map)?;
        if copied != self.entries * ENTRY {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Table {
            start,
            entries: self.entries,
            blocks: self.end,
        })
    }
}

fn file_error(path: &Path, source: io::Error) -> SnapshotError {
    SnapshotError::File {
        path: path.display().to_string(),
        source,
    }
}
