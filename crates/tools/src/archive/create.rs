//! Makes an archive.
//!
//! A walk in the order of names says what comes; members are looked at, and read if they are small, by whoever is
//! free; one thread takes them in order and writes. Large files are read in pieces ahead of the writer. What is held
//! is bounded by the number of members ahead, by the size of a small file, and by the names of the directories on
//! the way to where the walk is.

mod batch;
mod job;
mod opened;
mod volume;
mod walk;

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    io::{self, BufWriter, Write},
    sync::{Arc, mpsc},
    time::SystemTime,
};

use super::{
    Compression, FileId, Format, Kind, Member, Sources, compression_threads,
    format::{encode, padding},
    names,
};
use crate::{
    Patterns, Report, Stop, Survey, Threads,
    accounts::Accounts,
    direct::Place,
    work::{Crew, Order},
};

use batch::{Batches, Coming, Pace};
use job::{Chunk, Content, Found, Large, Names, Reading, Task};

/// Pieces of a large file that are read ahead of the writer.
const PIECES_MAX: usize = 16;
/// Pieces for each thread that reads: more only leave the processor's cache before they are written.
const PIECES_PER_THREAD: usize = 2;
/// Bytes that are written at once.
const OUTPUT_BYTES: usize = 1 << 20;
/// Bytes of a piece.
const PIECE_BYTES: u64 = 1 << 20;
/// The end of an archive.
const END: [u8; 1024] = [0; 1024];

/// How an archive is made.
#[derive(Debug, Clone)]
pub struct CreateSettings {
    /// How it is written.
    pub format: Format,
    /// How it is compressed.
    pub compression: Compression,
    /// What is left out.
    pub exclude: Patterns,
    /// What is mounted below a source is left out.
    pub one_file_system: bool,
    /// Owners are numbers alone.
    pub numeric: bool,
    /// How many threads.
    pub threads: Threads,
}

/// Writes an archive of `sources` to `output`. What could not be read stands in `report`; fails if the archive
/// cannot be written.
pub fn create(
    sources: &Sources,
    settings: &CreateSettings,
    output: Box<dyn Write + Send + '_>,
    report: &Report,
    stop: &Stop,
) -> io::Result<()> {
    let threads = compression_threads(settings.threads);
    let output = BufWriter::with_capacity(OUTPUT_BYTES, output);
    let output = settings.compression.writer(Box::new(output), threads)?;
    let accounts = match settings.numeric {
        true => Accounts::default(),
        false => Accounts::read(),
    };
    let pace = Pace::unknown();
    let job = Reading::new(report, accounts, &sources.except, &pace);
    Crew::run(&job, settings.threads, Order::Oldest, stop, |crew| {
        let (mut batches, coming) = Batches::new(crew, &pace);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                walk::walk(sources, settings, report, &mut |planned| {
                    batches.add(planned)
                });
                batches.flush();
            });
            let mut writing = Writing {
                output,
                format: settings.format,
                report,
                crew,
                links: HashMap::new(),
                spare: Vec::new(),
            };
            let written = writing.members(coming);
            // An end on request is no failure, and no end of an archive.
            match stop.is_set() {
                true => Ok(()),
                false => written.and_then(|()| writing.finish()),
            }
        })
    })
}

/// Counts what [`create`] will archive of this machine's files, and tells `report`. Ends early, and tells nothing, once
/// `stop` is set.
pub fn survey(sources: &Sources, settings: &CreateSettings, report: &Report, stop: &Stop) {
    let survey = Survey {
        exclude: &settings.exclude,
        one_file_system: settings.one_file_system,
        with_sizes: true,
    };
    let Place::Local(base) = &sources.base else {
        return;
    };
    let tops = sources.paths.iter().map(|path| {
        let member = walk::inside(path);
        let steps: Vec<_> = names::steps(&member).collect();
        (base.join(path), steps.join(&b'/'))
    });
    survey.count_below(tops, report, stop);
}

/// The first name of a file in the archive.
#[derive(Debug)]
struct First {
    name: Vec<u8>,
    /// Names that are still to come.
    left: u64,
    version: (u32, u64, SystemTime),
}

/// The thread that writes.
struct Writing<'a> {
    output: super::compression::Output<'a>,
    format: Format,
    report: &'a Report,
    crew: &'a Crew<Task>,
    /// Files that have several names.
    links: HashMap<FileId, First>,
    /// Buffers for pieces.
    spare: Vec<Chunk>,
}

impl Writing<'_> {
    fn members(&mut self, coming: Coming) -> io::Result<()> {
        for found in coming.flatten() {
            self.member(found)?;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.output.write_all(&END)?;
        self.output.finish()
    }

    fn member(&mut self, found: Found) -> io::Result<()> {
        let Found {
            mut member,
            mut content,
            names,
        } = found;
        if let Some(names) = names
            && let Some(first) = self.first_name(names)
        {
            member = as_link(&member, first);
            content = Content::Nothing;
        }
        self.report
            .tell(|| String::from_utf8_lossy(&member.name).into_owned());
        if self.format == Format::Ustar
            && let Some(map) = member.data.take()
        {
            // The format has no holes: they become zeros.
            content = content.filled(&map, member.size);
        }
        match encode(&member, self.format) {
            Ok(blocks) => self.output.write_all(&blocks)?,
            Err(why) => {
                let name = String::from_utf8_lossy(&member.name);
                self.report
                    .fail(format_args!("cannot archive '{name}': {why}"));
                return Ok(());
            }
        }
        if let Some(Names {
            file,
            count,
            version,
        }) = names
            && member.kind != Kind::HardLink
        {
            // Only now, for who is no member has no links.
            let name = member.name.clone();
            let left = count - 1;
            self.links.insert(
                file,
                First {
                    name,
                    left,
                    version,
                },
            );
        }
        match member.kind {
            Kind::Directory => self.report.directories.add(1),
            _ => self.report.files.add(1),
        }
        let stored = match content {
            Content::Nothing => return Ok(()),
            Content::Small(bytes) => {
                self.output.write_all(&bytes)?;
                bytes.len() as u64
            }
            Content::Large(large) => self.large(&large)?,
        };
        self.report.bytes.add(stored);
        self.output.write_all(&END[..padding(stored)])
    }

    /// The first name of a file, which is forgotten with the last of them, or once another file has its number.
    fn first_name(&mut self, names: Names) -> Option<Vec<u8>> {
        let Entry::Occupied(mut known) = self.links.entry(names.file) else {
            return None;
        };
        if known.get().version != names.version {
            known.remove();
            return None;
        }
        known.get_mut().left -= 1;
        match known.get().left {
            0 => Some(known.remove().name),
            _ => Some(known.get().name.clone()),
        }
    }

    /// Writes a large file, some pieces of which are always being read.
    fn large(&mut self, large: &Arc<Large>) -> io::Result<u64> {
        let mut pieces = large.ranges.iter().flat_map(|(offset, length)| {
            let begins = (*offset..offset + length).step_by(PIECE_BYTES as usize);
            begins.map(move |begin| (begin, PIECE_BYTES.min(offset + length - begin)))
        });
        let mut coming: VecDeque<(u64, mpsc::Receiver<Chunk>)> = VecDeque::new();
        let mut stored = 0;
        loop {
            let ahead = (self.crew.limit() * PIECES_PER_THREAD).min(PIECES_MAX);
            while coming.len() < ahead
                && let Some((offset, length)) = pieces.next()
            {
                let (done, result) = mpsc::sync_channel(1);
                let buffer = self.spare.pop().unwrap_or_default();
                let piece = Task::Piece(Arc::clone(large), (offset, length), buffer, done);
                self.crew.submit(piece);
                coming.push_back((length, result));
            }
            let Some((length, result)) = coming.pop_front() else {
                break;
            };
            let Ok(chunk) = result.recv() else {
                return Err(io::ErrorKind::Interrupted.into());
            };
            self.output.write_all(&chunk)?;
            self.spare.push(chunk);
            stored += length;
        }
        large.look_again(self.report);
        Ok(stored)
    }
}

fn as_link(member: &Member, first: Vec<u8>) -> Member {
    Member {
        kind: Kind::HardLink,
        size: 0,
        data: None,
        link: first,
        attributes: Vec::new(),
        ..member.clone()
    }
}
