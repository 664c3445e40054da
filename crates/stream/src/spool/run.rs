//! A file of records, written and read from front to back.

use std::{
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use penstock_base::{Checksum, ChecksumKind, Summing, run_blocking};

use super::{
    FinishedRun, SPOOLED_KEY_MAX, Span, file_error,
    record::{self, Before, Decoded, RECORD_MAX, TAG_MAX, TARGET_MAX},
};
use crate::{SnapshotError, SnapshotObject, private};

/// Bytes that are gathered before a write.
const WRITE_SIZE: usize = 64 << 10;

/// Bytes that are read at once; more than a record.
const READ_SIZE: usize = 256 << 10;

/// Writes a run.
#[derive(Debug)]
pub(crate) struct RunWriter {
    path: PathBuf,
    number: u64,
    file: Option<File>,
    buffer: Vec<u8>,
    before: Before,
    objects: u64,
    bytes: u64,
    checksum: Summing,
}

impl RunWriter {
    pub(super) fn new(path: PathBuf, number: u64) -> Self {
        Self {
            path,
            number,
            file: None,
            buffer: Vec::new(),
            before: Before::default(),
            objects: 0,
            bytes: 0,
            checksum: Summing::new(ChecksumKind::Crc32c),
        }
    }

    /// Objects that were written.
    pub(crate) fn objects(&self) -> u64 {
        self.objects
    }

    /// Adds an object. Fails when its key is not after the one before, or longer than any store
    /// has.
    pub(crate) fn write(&mut self, object: &SnapshotObject<'_>) -> Result<(), SnapshotError> {
        check(&self.before.key, object)?;
        record::encode(&mut self.buffer, &mut self.before, object);
        self.objects += 1;
        if self.buffer.len() >= WRITE_SIZE {
            run_blocking(|| self.flush())?;
        }
        Ok(())
    }

    /// Writes what is left and closes the file.
    pub(super) fn finish(mut self, span: Span) -> Result<FinishedRun, SnapshotError> {
        run_blocking(|| self.flush())?;
        Ok(FinishedRun {
            span,
            file: self.file.is_some().then_some(self.number),
            objects: self.objects,
            bytes: self.bytes,
            checksum: crc32c(&self.checksum),
        })
    }

    fn flush(&mut self) -> Result<(), SnapshotError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let failed = |error| file_error(&self.path, error);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(private::create(&self.path).map_err(failed)?),
        };
        file.write_all(&self.buffer).map_err(failed)?;
        self.checksum.add(&self.buffer);
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

fn check(before: &[u8], object: &SnapshotObject<'_>) -> Result<(), SnapshotError> {
    let key = String::from_utf8_lossy(object.key);
    if object.key <= before {
        let before = String::from_utf8_lossy(before);
        return Err(SnapshotError::Invalid(format!(
            "`{key}` is listed after `{before}`: the store does not list in byte order; give a manifest"
        )));
    }
    let sizes = (object.key.len(), object.etag.len(), object.target.len());
    if sizes.0 > SPOOLED_KEY_MAX || sizes.1 > TAG_MAX || sizes.2 > TARGET_MAX {
        return Err(SnapshotError::Invalid(format!(
            "the key that begins with `{key:.80}`, or its tag, is longer than any store allows"
        )));
    }
    Ok(())
}

/// Reads a run.
#[derive(Debug)]
pub(crate) struct RunReader {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    /// Where in the buffer the next record begins.
    at: usize,
    before: Before,
    decoded: Decoded,
    objects_left: u64,
    checksum: Summing,
    expected: u32,
}

impl RunReader {
    /// Of the file at `path`, which `run` describes.
    pub(crate) fn open(path: &Path, run: &FinishedRun) -> Result<Self, SnapshotError> {
        Ok(Self {
            path: path.to_owned(),
            file: File::open(path).map_err(|error| file_error(path, error))?,
            buffer: Vec::with_capacity(READ_SIZE + RECORD_MAX),
            at: 0,
            before: Before::default(),
            decoded: Decoded::default(),
            objects_left: run.objects,
            checksum: Summing::new(ChecksumKind::Crc32c),
            expected: run.checksum,
        })
    }

    /// Moves to the next object; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, SnapshotError> {
        if self.objects_left == 0 {
            return self.check_end().map(|()| false);
        }
        if self.buffer.len() - self.at < RECORD_MAX {
            self.fill()?;
        }
        let bytes = &self.buffer[self.at..];
        let length = record::decode(bytes, &mut self.before, &mut self.decoded);
        self.at += length.ok_or_else(|| self.damaged())?;
        self.objects_left -= 1;
        Ok(true)
    }

    /// The object that it was moved to.
    pub(crate) fn object(&self) -> SnapshotObject<'_> {
        SnapshotObject {
            key: &self.before.key,
            size: self.decoded.size,
            modified: self.before.modified,
            etag: &self.decoded.etag,
            target: &self.decoded.target,
        }
    }

    fn fill(&mut self) -> Result<(), SnapshotError> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let kept = self.buffer.len();
        let mut piece = (&mut self.file).take(READ_SIZE as u64);
        let read = run_blocking(|| piece.read_to_end(&mut self.buffer));
        read.map_err(|error| file_error(&self.path, error))?;
        self.checksum.add(&self.buffer[kept..]);
        Ok(())
    }

    fn check_end(&mut self) -> Result<(), SnapshotError> {
        self.fill()?;
        if self.buffer.is_empty() && crc32c(&self.checksum) == self.expected {
            return Ok(());
        }
        Err(self.damaged())
    }

    fn damaged(&self) -> SnapshotError {
        let path = self.path.display();
        SnapshotError::Invalid(format!(
            "`{path}` is damaged: remove its directory and list again"
        ))
    }
}

/// Whether the file at `path` is what `run` says.
pub(super) fn is_intact(path: &Path, run: &FinishedRun) -> bool {
    let Ok(mut file) = File::open(path) else {
        return false;
    };
    let mut checksum = Summing::new(ChecksumKind::Crc32c);
    let mut buffer = vec![0; READ_SIZE];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return bytes == run.bytes && crc32c(&checksum) == run.checksum,
            Ok(count) => {
                checksum.add(&buffer[..count]);
                bytes += count as u64;
            }
            Err(_) => return false,
        }
    }
}

pub(super) fn crc32c(summing: &Summing) -> u32 {
    match summing.checksum() {
        Checksum::Crc32c(number) => number,
        other => other.value() as u32,
    }
}
