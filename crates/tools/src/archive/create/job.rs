//! What many threads do for an archive: look at members, and read.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::SyncSender,
    },
    time::SystemTime,
};

use penstock_base::clock;
use penstock_vfs::FileKind;
use rustix::fs::{self, FileType, Mode, OFlags, Stat};

use super::{
    super::{
        FileId, Kind, Member,
        format::{BLOCK, RANGES_MAX},
    },
    batch::Pace,
    opened::{Opened, member_of},
    walk::{Named, Origin, Planned, as_path},
};
use crate::{
    Report,
    accounts::Accounts,
    local::{self, Handle},
    tree::{Facts, Source, local::facts_of},
    work::{self, Crew, Job},
};

/// Files up to this size are read by who looks at them.
const SMALL_BYTES: u64 = 128 << 10;

/// Why a socket is left out.
const SOCKET: &str = "socket ignored";

/// A piece of a file.
pub(super) type Chunk = Vec<u8>;

/// A piece of the work, and where its result goes.
pub(super) enum Task {
    /// Members, in order. Those that cannot be archived are told, and not in the result.
    Prepare(Vec<Planned>, SyncSender<Vec<Found>>),
    /// A piece of a file, into this buffer.
    Piece(Arc<Large>, (u64, u64), Chunk, SyncSender<Chunk>),
}

impl work::Task for Task {}

/// A member with what comes behind its header.
pub(super) struct Found {
    pub(super) member: Member,
    pub(super) content: Content,
    /// Which file it is, if it has more names than one.
    pub(super) names: Option<Names>,
}

/// A file that has several names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub(super) file: FileId,
    pub(super) count: u64,
    /// Generation, size and time: another file with its number has others.
    pub(super) version: (u32, u64, SystemTime),
}

impl Names {
    fn of(facts: &Facts) -> Option<Self> {
        let (key, attributes) = (facts.key(), &facts.attributes);
        let has_names = attributes.kind != FileKind::Directory && attributes.links > 1;
        has_names.then(|| Self {
            file: FileId::new(key.device, key.number),
            count: attributes.links.into(),
            version: (attributes.generation, attributes.size, attributes.modified),
        })
    }
}

/// What comes behind the header.
pub(super) enum Content {
    Nothing,
    Small(Vec<u8>),
    Large(Arc<Large>),
}

impl Content {
    /// The same with zeros for holes.
    pub(super) fn filled(self, map: &[(u64, u64)], size: u64) -> Self {
        match self {
            Self::Small(bytes) if size <= SMALL_BYTES => {
                let mut filled = vec![0; size as usize];
                let mut rest = &bytes[..];
                for (offset, length) in map {
                    let (data, after) = rest.split_at(*length as usize);
                    filled[*offset as usize..][..data.len()].copy_from_slice(data);
                    rest = after;
                }
                Self::Small(filled)
            }
            Self::Small(_) | Self::Nothing => self,
            Self::Large(large) => Self::Large(Arc::new(large.whole())),
        }
    }
}

/// A file that is read while it is written.
pub(super) struct Large {
    file: Arc<Opened>,
    path: Vec<u8>,
    pub(super) ranges: Vec<(u64, u64)>,
    /// It held less than it had said.
    is_short: AtomicBool,
}

impl Large {
    fn whole(&self) -> Self {
        Self {
            file: Arc::clone(&self.file),
            path: self.path.clone(),
            ranges: vec![(0, self.file.size())],
            is_short: AtomicBool::new(false),
        }
    }

    /// Notes if it changed since it was looked at first, or held less than it had said.
    pub(super) fn look_again(&self, report: &Report) {
        if self.is_short.load(Ordering::Relaxed) || self.file.has_changed() {
            report.note_change(as_path(&self.path));
        }
    }
}

/// An archive's threads that read.
pub(super) struct Reading<'a> {
    report: &'a Report,
    accounts: Accounts,
    except: &'a [FileId],
    pace: &'a Pace,
}

impl<'a> Reading<'a> {
    pub(super) fn new(
        report: &'a Report,
        accounts: Accounts,
        except: &'a [FileId],
        pace: &'a Pace,
    ) -> Self {
        Self {
            report,
            accounts,
            except,
            pace,
        }
    }

    fn prepare_all(&self, planned: &[Planned]) -> Vec<Found> {
        let begun = clock::now();
        let found = planned.iter().filter_map(|one| self.prepare(one)).collect();
        self.pace.note(begun.elapsed(), planned.len());
        found
    }

    fn prepare(&self, planned: &Planned) -> Option<Found> {
        match self.try_prepare(planned) {
            Ok(found) => found,
            Err(error) => {
                self.report
                    .fail_at("cannot archive", as_path(&planned.path), error);
                None
            }
        }
    }

    fn try_prepare(&self, planned: &Planned) -> io::Result<Option<Found>> {
        match &planned.origin {
            Origin::Local(named) => self.prepare_local(named, &planned.path),
            Origin::Volume(source) => self.prepare_of_volume(source, &planned.path),
        }
    }

    fn prepare_of_volume(
        &self,
        source: &Arc<dyn Source>,
        path: &[u8],
    ) -> io::Result<Option<Found>> {
        let Some(mut member) = member_of(source, path)? else {
            return Ok(self.leave_out(path, SOCKET));
        };
        member.owner_names = self.accounts.names(member.owner);
        let facts = source.facts()?;
        let names = Names::of(&facts);
        let content = match member.kind {
            Kind::File => {
                let file = Opened::Volume(source.open()?, facts.attributes);
                self.read(path, file, &mut member)
            }
            _ => Content::Nothing,
        };
        Ok(Some(Found {
            member,
            content,
            names,
        }))
    }

    fn prepare_local(&self, planned: &Named, path: &[u8]) -> io::Result<Option<Found>> {
        let kind = match planned.kind {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::CharacterDevice => Kind::Character,
            FileType::BlockDevice => Kind::Block,
            _ => return Ok(self.leave_out(path, SOCKET)),
        };
        let opened = match kind {
            Kind::File | Kind::Directory => Some(open(planned)?),
            _ => None,
        };
        let stat = match &opened {
            Some(file) => fs::fstat(file)?,
            None => planned.directory.stat(&planned.name)?,
        };
        let stat = local::stat_of_kind(stat, planned.kind)?;
        if kind == Kind::File && self.except.contains(&FileId::from(&stat)) {
            return Ok(self.leave_out(path, "it is the archive"));
        }
        let names = Names::of(&facts_of(&planned.directory, &planned.name, &stat)?);
        let mut member = self.plain_member(path, kind, &stat);
        let mut content = Content::Nothing;
        match (kind, opened) {
            (Kind::Directory, Some(file)) => {
                member.name.push(b'/');
                member.attributes = as_bytes(local::attributes(file)?);
            }
            (_, Some(file)) => {
                member.attributes = as_bytes(local::attributes(&file)?);
                content = self.read(path, Opened::Local(file, stat), &mut member);
            }
            (Kind::Symlink, _) => {
                let target = fs::readlinkat(&planned.directory, &planned.name, Vec::new())?;
                member.link = target.into_bytes();
            }
            _ => {
                let handle = Handle::of(&planned.directory, &planned.name)?;
                let list = handle.access_list().into_iter();
                let name = b"system.posix_acl_access".to_vec();
                member.attributes = list.map(|list| (name.clone(), list)).collect();
            }
        }
        Ok(Some(Found {
            member,
            content,
            names,
        }))
    }

    fn leave_out(&self, path: &[u8], why: &str) -> Option<Found> {
        let path = String::from_utf8_lossy(path);
        self.report.tell(|| format!("{path}: {why}"));
        self.report.unchanged.add(1);
        None
    }

    fn plain_member(&self, path: &[u8], kind: Kind, stat: &Stat) -> Member {
        let owner = (u64::from(stat.st_uid), u64::from(stat.st_gid));
        Member {
            mode: stat.st_mode & 0o7777,
            owner,
            owner_names: self.accounts.names(owner),
            modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
            device: match kind {
                Kind::Character | Kind::Block => (fs::major(stat.st_rdev), fs::minor(stat.st_rdev)),
                _ => (0, 0),
            },
            ..Member::new(path.to_vec(), kind)
        }
    }

    /// Looks for the holes of a file and reads it if it is small.
    fn read(&self, path: &[u8], file: Opened, member: &mut Member) -> Content {
        let size = file.size();
        member.size = size;
        let ranges = ranges(file.segments().into_iter(), size);
        if ranges.iter().map(|(_, length)| length).sum::<u64>() < size {
            member.data = Some(ranges.clone());
        }
        let large = Large {
            file: Arc::new(file),
            path: path.to_vec(),
            ranges,
            is_short: AtomicBool::new(false),
        };
        if member.stored() > SMALL_BYTES {
            return Content::Large(Arc::new(large));
        }
        let mut bytes = vec![0; member.stored() as usize];
        let mut rest = &mut bytes[..];
        for (offset, length) in &large.ranges {
            let (piece, after) = rest.split_at_mut(*length as usize);
            self.piece(&large, *offset, piece);
            rest = after;
        }
        large.look_again(self.report);
        Content::Small(bytes)
    }

    /// Reads a piece of a file. What is not there is zeros: the header has said how much comes.
    fn piece(&self, large: &Large, offset: u64, buffer: &mut [u8]) {
        match large.file.read(buffer, offset) {
            Ok(count) => {
                buffer[count..].fill(0);
                let is_short = count < buffer.len();
                large.is_short.fetch_or(is_short, Ordering::Relaxed);
            }
            Err(error) => {
                buffer.fill(0);
                self.report
                    .fail_at("cannot read", as_path(&large.path), error);
            }
        }
    }
}

impl Job for Reading<'_> {
    type Task = Task;

    fn run(&self, task: Task, _: &Crew<Task>) {
        // Who asked may have given up.
        match task {
            Task::Prepare(planned, done) => drop(done.send(self.prepare_all(&planned))),
            Task::Piece(large, (offset, length), mut buffer, done) => {
                buffer.resize(length as usize, 0);
                self.piece(&large, offset, &mut buffer);
                drop(done.send(buffer));
            }
        }
    }

    fn work(&self) -> u64 {
        self.report.work()
    }
}

/// Where data is: offsets and lengths, in whole blocks, as GNU tar takes them. More ranges than a reader takes become
/// one, to the end of the file.
fn ranges(segments: impl Iterator<Item = (u64, u64)>, size: u64) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (begin, end) in segments {
        let begin = begin - begin % BLOCK as u64;
        let end = end.next_multiple_of(BLOCK as u64).min(size);
        // Room for the mark of an end.
        let is_full = ranges.len() + 1 == RANGES_MAX;
        match ranges.last_mut() {
            Some((offset, length)) if *offset + *length >= begin => *length = end - *offset,
            Some((offset, length)) if is_full => {
                *length = size - *offset;
                break;
            }
            _ => ranges.push((begin, end - begin)),
        }
    }
    ranges
}

fn open(planned: &Named) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    fs::openat(&planned.directory, &planned.name, flags, Mode::empty())
}

fn as_bytes(attributes: Vec<(std::ffi::CString, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let attributes = attributes.into_iter();
    attributes
        .map(|(name, value)| (name.into_bytes(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_do_not_begin_with_a_block_are_widened_to_whole_ones() {
        let found = ranges([(100, 700), (1000, 1100), (5000, 5100)].into_iter(), 5100);
        assert_eq!(found, [(0, 1536), (4608, 492)]);
    }

    #[test]
    fn a_file_with_more_ranges_than_a_reader_takes_is_data_from_there_on() {
        let count = RANGES_MAX as u64 + 5;
        let segments = (0..count).map(|index| (index * 8192, index * 8192 + 4096));
        let found = ranges(segments, count * 8192);
        assert_eq!(found.len(), RANGES_MAX - 1);
        let (offset, length) = found[RANGES_MAX - 2];
        assert_eq!(offset + length, count * 8192);
    }
}
