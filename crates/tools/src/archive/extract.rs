//! Takes an archive apart.
//!
//! One thread reads it, makes directories as they come and hands everything else out: a small file as one task, a
//! large one piece by piece. A later member of the same name, and a link to a member before, wait for that one, and a
//! later member waits for links to what it replaces.
//! Owners, modes and times of directories are set at the end, deepest first.
//!
//! An archive may be meant to harm: names that lead out of the tree, links out of it and members through links are
//! refused, each with a line; an archive that grows beyond what the file system has room for is left.

mod growing;
mod job;
mod kept;
mod started;

use std::{
    io::{self, Read},
    sync::Arc,
};

use penstock_vfs::FileKind;

use super::{
    Compression, Kind, Member, Reader, Selection, is_final,
    list::tell_missing,
    names,
    place::{Places, open_root},
    tell_damage,
};
use crate::{
    Report, Stop, Threads,
    accounts::Accounts,
    direct::Place,
    local::c_string,
    tree::{Target, was_taken},
    work::{Crew, Order},
};

use growing::Growing;
use job::{First, Named, Spot, Task, Writing};
use kept::Kept;
use started::{Budget, Started};

/// Bytes of content that are on their way from the archive to files.
const BYTES_MAX: u64 = 64 << 20;
/// The same where a volume holds what it sends besides.
const VOLUME_BYTES_MAX: u64 = 16 << 20;
/// Rights of a directory until it is dressed.
const CLOSED: u16 = 0o700;
/// Bytes of what directories get, with their paths, that are kept until the end.
const KEPT_MAX: u64 = 256 << 20;
/// Bytes that are handed out at once.
const PIECE_BYTES: usize = 1 << 20;

/// How an archive is taken apart.
#[derive(Debug, Clone)]
pub struct ExtractSettings {
    /// What is meant.
    pub selection: Selection,
    /// Names at the beginning of paths that are left away.
    pub strip: usize,
    /// Users and groups as in the archive; only root can.
    pub same_owner: bool,
    /// By their numbers alone.
    pub numeric: bool,
    /// Modes as in the archive, whatever the umask.
    pub same_mode: bool,
    /// What is there stays.
    pub keep: bool,
    /// Symbolic links that lead out of the tree are made.
    pub links_out: bool,
    /// Bytes that may be extracted; without one, what the file system has room for.
    pub bytes_max: Option<u64>,
    /// Members that may be extracted.
    pub members_max: u64,
    /// Permission bits that new files do not get.
    pub umask: u32,
    /// How many threads.
    pub threads: Threads,
}

/// Extracts `input` below the directory `target`. What could not be extracted stands in `report`.
pub fn extract(
    input: Box<dyn Read + Send>,
    target: &Place,
    settings: &ExtractSettings,
    report: &Report,
    stop: &Stop,
) {
    let permissions = (0o777 & !settings.umask) as u16;
    let root = match open_root(target, permissions) {
        Ok(root) => root,
        Err(error) => {
            let why = crate::report::reason(&error);
            return report.fail(format_args!("cannot open '{target}': {why}"));
        }
    };
    let reader = match Compression::reader(input) {
        Ok(input) => Reader::new(input),
        Err(error) => return tell_damage(&error.into(), report, stop),
    };
    let accounts = match settings.numeric {
        true => Accounts::default(),
        false => Accounts::read(),
    };
    let room = settings.bytes_max.or_else(|| root.room());
    let started = Started::default();
    let budget = Budget::new(match root.as_volume() {
        Some(_) => VOLUME_BYTES_MAX,
        None => BYTES_MAX,
    });
    let job = Writing::new(settings, report, stop, accounts);
    Crew::run(&job, settings.threads, Order::Oldest, stop, |crew| {
        let mut extraction = Extraction {
            is_whole: false,
            reader,
            keeps_holes: root.keeps().holes,
            places: Places::new(root, permissions),
            settings,
            report,
            stop,
            crew,
            started: &started,
            budget: &budget,
            kept: Kept::new(KEPT_MAX),
            seen: vec![false; settings.selection.members.len()],
            job: &job,
            room: room.unwrap_or(u64::MAX),
            members_left: settings.members_max,
        };
        extraction.members();
        crew.wait();
        extraction.finish();
    });
}

struct Extraction<'a, 'crew, R> {
    /// The archive was read to its end: what comes behind it is taken too, for who writes into a pipe.
    is_whole: bool,
    reader: Reader<R>,
    places: Places,
    /// Holes take no room.
    keeps_holes: bool,
    settings: &'a ExtractSettings,
    report: &'a Report,
    stop: &'a Stop,
    crew: &'crew Crew<Task<'a>>,
    started: &'a Started,
    budget: &'a Budget,
    /// What directories get at the end.
    kept: Kept,
    seen: Vec<bool>,
    job: &'crew Writing<'a>,
    room: u64,
    members_left: u64,
}

impl<'a, R: Read> Extraction<'a, '_, R> {
    fn members(&mut self) {
        while !self.stop.is_set() {
            let member = match self.reader.next_member() {
                Ok(None) => {
                    self.is_whole = true;
                    break;
                }
                Ok(Some(member)) => member,
                Err(damage) => {
                    tell_damage(&damage, self.report, self.stop);
                    if is_final(&damage) {
                        break;
                    }
                    continue;
                }
            };
            let name = String::from_utf8_lossy(&member.name).into_owned();
            match self.member(member) {
                Ok(()) => {}
                Err(Failed::Member(why)) => {
                    self.report
                        .fail(format_args!("cannot extract '{name}': {why}"));
                }
                Err(Failed::Archive) => break,
            }
        }
        if !self.stop.is_set()
            && self.is_whole
            && let Err(damage) = self.reader.drain()
        {
            tell_damage(&damage, self.report, self.stop);
        }
    }

    fn member(&mut self, member: Member) -> Result<(), Failed> {
        let name = member.name.clone();
        let all = names::parts(&name).map_err(Failed::refused)?;
        let is_directory = member.kind == Kind::Directory;
        if !self
            .settings
            .selection
            .has(&all, is_directory, &mut self.seen)
        {
            return Ok(());
        }
        if all.is_empty() && is_directory && self.settings.strip == 0 {
            return match self.settings.keep {
                true => Ok(()),
                false => self.keep(&all, member),
            };
        }
        let Some(parts) = all
            .get(self.settings.strip..)
            .filter(|parts| !parts.is_empty())
        else {
            // What was left away.
            return Ok(());
        };
        names::check(parts).map_err(Failed::refused)?;
        self.account(&member)?;
        self.report
            .tell(|| String::from_utf8_lossy(&name).into_owned());
        let path = parts.join(&b'/');
        self.wait_for(&path)?;
        if is_directory {
            return self.directory(parts, member);
        }
        self.places.forget(&path);
        self.kept.forget(&path);
        let (last, above) = parts
            .split_last()
            .ok_or(Failed::refused("it has no name"))?;
        let place = Named {
            directory: self.places.directory(above).map_err(Failed::system)?,
            name: c_string(last).map_err(Failed::system)?,
        };
        match member.kind {
            Kind::File => self.file(self.begin(place, path, &member), member),
            Kind::HardLink => self.hard_link(place, path, &member),
            Kind::Symlink if !self.settings.links_out && names::leads_out(parts, &member.link) => {
                let link = String::from_utf8_lossy(&member.link);
                Err(Failed::Member(format!(
                    "it is a link that leads out of the tree, or might, to '{link}'; --allow-links-out makes such links"
                )))
            }
            // The name of a volume.
            Kind::Other(b'V') => Ok(()),
            Kind::Other(letter) => Err(Failed::Member(format!(
                "it is of the unknown kind '{}'",
                letter.escape_ascii()
            ))),
            _ => self.submit(Task::Other(
                self.begin(place, path, &member),
                Box::new(member),
            )),
        }
    }

    fn begin(&self, place: Named, path: Vec<u8>, member: &Member) -> Spot<'a> {
        Spot {
            directory: place.directory,
            name: place.name,
            path: self.started.begin(path),
            _weight: self.budget.take(member.weight()),
        }
    }

    fn wait_for(&self, path: &[u8]) -> Result<(), Failed> {
        match self.started.wait_for(path, self.stop) {
            true => Ok(()),
            false => Err(Failed::Archive),
        }
    }

    /// Refuses to go on beyond the limits.
    fn account(&mut self, member: &Member) -> Result<(), Failed> {
        let stored = match self.keeps_holes {
            true => member.stored(),
            false => member.size,
        };
        if stored > self.room {
            self.report.fail(format_args!(
                "'{}' and what follows are left: the archive has more content than there is room for, or than \
                 --max-bytes allows",
                String::from_utf8_lossy(&member.name)
            ));
            return Err(Failed::Archive);
        }
        self.room -= stored;
        if self.members_left == 0 {
            self.report.fail(format_args!(
                "the archive has more than {} members, and the rest is left; --max-members allows more",
                self.settings.members_max
            ));
            return Err(Failed::Archive);
        }
        self.members_left -= 1;
        Ok(())
    }

    fn directory(&mut self, parts: &[&[u8]], member: Member) -> Result<(), Failed> {
        let (last, above) = parts
            .split_last()
            .ok_or(Failed::refused("it has no name"))?;
        let above = self.places.directory(above).map_err(Failed::system)?;
        let name = c_string(last).map_err(Failed::system)?;
        let make = || above.make_directory(&name, CLOSED);
        let made = match make() {
            Err(error) if was_taken(&error) && !self.settings.keep && is_file(&*above, &name) => {
                let removed = above.remove_file(&name);
                removed.and_then(|()| make()).map_err(Failed::system)?
            }
            Err(error) if was_taken(&error) => {
                let existing = self.places.existing(parts).map_err(Failed::system)?;
                if self.settings.keep && !self.is_ours(parts) {
                    self.report.unchanged.add(1);
                    return Ok(());
                }
                existing
            }
            other => other.map_err(Failed::system)?,
        };
        self.places.keep(parts.join(&b'/'), &made);
        self.report.directories.add(1);
        self.keep(parts, member)
    }

    /// Whether a directory was made out of this archive.
    fn is_ours(&self, parts: &[&[u8]]) -> bool {
        let path = parts.join(&b'/');
        self.kept.has(&path) || self.places.has_made(&path)
    }

    /// Keeps what a directory gets at the end. Where that would be too much, others get theirs before.
    fn keep(&mut self, parts: &[&[u8]], member: Member) -> Result<(), Failed> {
        let path = parts.join(&b'/');
        let member = Member {
            mode: member.mode,
            owner: member.owner,
            owner_names: member.owner_names,
            modified: member.modified,
            attributes: member.attributes,
            ..Member::new(Vec::new(), Kind::Directory)
        };
        if !self.kept.has_room(&path, &member) {
            let others = self.kept.take_all_but_above(&path);
            self.dress(others);
        }
        if !self.kept.has_room(&path, &member) {
            return Err(Failed::refused(
                "it and the directories above are too much to be kept until the end: it gets no owner, mode, time or attributes",
            ));
        }
        self.kept.add(path, member);
        Ok(())
    }

    fn file(&mut self, spot: Spot<'a>, member: Member) -> Result<(), Failed> {
        if member.stored() <= PIECE_BYTES as u64 {
            let permit = self.budget.take(member.stored());
            let mut content = vec![0; member.stored() as usize];
            self.read(&mut content)?;
            return self.submit(Task::Small(
                spot,
                Box::new(member),
                (content.into(), permit),
            ));
        }
        let ranges = member.ranges();
        let growing = Arc::new(Growing::new(spot, member));
        for (mut offset, length) in ranges {
            let end = offset + length;
            while offset < end {
                let count = (end - offset).min(PIECE_BYTES as u64);
                let permit = self.budget.take(count);
                let mut piece = vec![0; count as usize];
                self.read(&mut piece)?;
                growing.add(offset, (piece.into(), permit));
                self.submit(Task::Piece(Arc::clone(&growing)))?;
                offset += count;
            }
        }
        self.submit(Task::Last(growing))
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<(), Failed> {
        match self.reader.read_content(buffer) {
            Ok(count) if count == buffer.len() => {
                self.report.input.add(count as u64);
                Ok(())
            }
            Ok(_) => Err(Failed::refused("the archive has less content than it says")),
            Err(damage) => {
                tell_damage(&damage, self.report, self.stop);
                Err(Failed::Archive)
            }
        }
    }

    fn hard_link(&mut self, place: Named, path: Vec<u8>, member: &Member) -> Result<(), Failed> {
        let refused = |why| Failed::Member(format!("what it links to is refused: {why}"));
        let link = names::parts(&member.link).map_err(refused)?;
        let link = link.get(self.settings.strip..).unwrap_or_default();
        names::check(link).map_err(refused)?;
        let (last, above) = link
            .split_last()
            .ok_or(Failed::refused("it links to nothing"))?;
        let first = link.join(&b'/');
        if !self.started.wait_for_writer(&first, self.stop) {
            return Err(Failed::Archive);
        }
        let from = First {
            directory: self.places.existing(above).map_err(Failed::system)?,
            name: c_string(last).map_err(Failed::system)?,
            _path: self.started.begin_reading(first),
        };
        self.submit(Task::Link(from, self.begin(place, path, member)))
    }

    fn submit(&self, task: Task<'a>) -> Result<(), Failed> {
        match self.crew.submit(task) {
            true => Ok(()),
            false => Err(Failed::Archive),
        }
    }

    fn finish(&mut self) {
        let directories = self.kept.take();
        if self.stop.is_set() {
            return self.open(directories);
        }
        self.dress(directories);
        tell_missing(&self.settings.selection, &self.seen, self.report);
    }

    /// Gives directories of this machine their owners and modes: who goes on with `keep` takes them for what was there. What
    /// is not whole gets no time that says so.
    fn open(&mut self, directories: Vec<(Vec<u8>, Member)>) {
        for (path, member) in directories {
            let parts: Vec<&[u8]> = names::steps(&path).collect();
            let directory = self.places.existing(&parts);
            if let Some(directory) = directory.ok().filter(|found| found.as_local().is_some()) {
                self.job.open(
                    &*directory,
                    &Member {
                        name: path,
                        ..member
                    },
                );
            }
        }
    }

    /// Gives directories what they have once everything in them is there, those below before those above: a mode may close
    /// them.
    fn dress(&mut self, directories: Vec<(Vec<u8>, Member)>) {
        let mut level = None;
        for (path, mut member) in directories {
            let parts: Vec<&[u8]> = names::steps(&path).collect();
            if level.replace(parts.len()) != Some(parts.len()) {
                self.crew.wait();
            }
            match self.places.existing(&parts) {
                Ok(directory) => {
                    member.name = path;
                    self.crew
                        .submit(Task::Directory(directory, Box::new(member)));
                }
                Err(error) => self.report.fail(format_args!(
                    "cannot set attributes of '{}': {error}",
                    String::from_utf8_lossy(&path)
                )),
            }
        }
        self.crew.wait();
    }
}

fn is_file(directory: &dyn Target, name: &std::ffi::CStr) -> bool {
    let found = directory.find(name).ok().flatten();
    found.is_some_and(|found| found.attributes.kind == FileKind::Regular)
}

/// Why something was not extracted.
enum Failed {
    /// Only this member, in words.
    Member(String),
    /// Nor what follows.
    Archive,
}

impl Failed {
    fn refused(why: &'static str) -> Self {
        Self::Member(why.to_owned())
    }

    fn system(error: impl Into<io::Error>) -> Self {
        Self::Member(crate::report::reason(&error.into()))
    }
}
