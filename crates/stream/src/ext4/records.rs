//! What is kept of an inode until it is known where inodes lie: a short record in a file without a
//! name, in the order of inode numbers.

use std::{fs::File, io, io::Read, path::Path};

use penstock_base::random;

use crate::{
    Timestamp,
    image::{entries::NodeKind, output::Output},
};

/// Bytes of a record. A link's target follows it.
const SIZE: usize = 36;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// What an inode is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: NodeKind,
    /// A directory with an index.
    pub(super) indexed: bool,
    pub(super) links: u16,
    pub(super) size: u64,
    pub(super) modified: Timestamp,
    /// The first block: of a file, on the data disk; else of the image.
    pub(super) start: u64,
}

impl Default for Record {
    /// A directory that is filled in later.
    fn default() -> Self {
        Self {
            kind: NodeKind::Directory,
            indexed: false,
            links: 0,
            size: 0,
            modified: Timestamp::default(),
            start: 0,
        }
    }
}

impl Record {
    fn encode(&self, target_length: u8) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[0] = self.kind as u8;
        bytes[1] = u8::from(self.indexed);
        bytes[2..4].copy_from_slice(&self.links.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.size.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.modified.seconds.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.modified.nanoseconds.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.start.to_le_bytes());
        bytes[32] = target_length;
        bytes
    }

    fn decode(bytes: &[u8; SIZE]) -> (Self, usize) {
        let eight = |at: usize| {
            let bytes = bytes[at..].first_chunk().expect("within the record");
            u64::from_le_bytes(*bytes)
        };
        let record = Self {
            kind: NodeKind::of_byte(bytes[0]),
            indexed: bytes[1] != 0,
            links: u16::from_le_bytes([bytes[2], bytes[3]]),
            size: eight(4),
            modified: Timestamp {
                seconds: eight(12) as i64,
                nanoseconds: eight(20) as u32,
            },
            start: eight(24),
        };
        (record, usize::from(bytes[32]))
    }
}

/// Records on their way into the file.
#[derive(Debug, Default)]
pub(super) struct Records(Option<Output>);

impl Records {
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let path = folder.join(format!(".inodes-{:016x}", random::number()));
        let output = Output::create(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Self(Some(output)))
    }

    /// Adds a record and says where it is.
    pub(super) fn add(&mut self, record: &Record) -> io::Result<u64> {
        let output = self.output();
        let position = output.position();
        output.write(&record.encode(0))?;
        Ok(position)
    }

    /// Adds a link whose inode has the target in it.
    pub(super) fn add_link(&mut self, record: &Record, target: &[u8]) -> io::Result<()> {
        let output = self.output();
        output.write(&record.encode(target.len() as u8))?;
        output.write(target)
    }

    pub(super) fn replace(&mut self, position: u64, record: &Record) -> io::Result<()> {
        self.output().patch(position, &record.encode(0))
    }

    /// All records, in order.
    pub(super) fn into_reader(mut self) -> io::Result<Reader> {
        let output = self.0.take().expect("taken once");
        let file = output.into_file()?;
        Ok(Reader {
            file: io::BufReader::with_capacity(CHUNK, file),
            target: Vec::new(),
        })
    }

    fn output(&mut self) -> &mut Output {
        self.0.as_mut().expect("it is there until all is read")
    }
}

/// Gives the records in order.
#[derive(Debug)]
pub(super) struct Reader {
    file: io::BufReader<File>,
    target: Vec<u8>,
}

impl Reader {
    /// The next record, with the target if it is a link that has it in its inode.
    pub(super) fn next_record(&mut self) -> io::Result<Option<(Record, &[u8])>> {
        let mut bytes = [0; SIZE];
        match self.file.read_exact(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            result => result?,
        }
        let (record, target_length) = Record::decode(&bytes);
        self.target.resize(target_length, 0);
        self.file.read_exact(&mut self.target)?;
        Ok(Some((record, &self.target)))
    }
}
