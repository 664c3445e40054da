//! What many threads do with an archive: write files, make links and devices, set attributes.

use std::{
    ffi::CString,
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use penstock_vfs::{Device, FileKind, NewKind, SpecialFile};
use rustix::{fs, io::Errno};

use super::{
    super::{Kind, Member, names},
    ExtractSettings, PIECE_BYTES,
    growing::Growing,
    started::{Begun, Permit},
};
use crate::{
    Report, Stop,
    accounts::Accounts,
    report::reason,
    tree::{Dress, Facts, LOST_LINKS, Losses, Target, Written, was_taken},
    volume::errno_of,
    work::{self, Crew, Job},
};

/// Rights of what is made until it is dressed.
const CLOSED: u16 = 0o600;
/// Seconds beyond which no file system has times.
const SECONDS_MAX: i64 = 1 << 60;

/// Content on its way, with its part of the budget.
pub(super) type Piece<'a> = (Bytes, Permit<'a>);

/// Where a member goes.
pub(super) struct Spot<'a> {
    pub(super) directory: Arc<dyn Target>,
    pub(super) name: CString,
    /// The path by which others wait for it.
    pub(super) path: Begun<'a>,
    /// What is known of the member, as a part of the budget.
    pub(super) _weight: Permit<'a>,
}

/// A name in a directory.
pub(super) struct Named {
    pub(super) directory: Arc<dyn Target>,
    pub(super) name: CString,
}

/// A member before, to which another one links.
pub(super) struct First<'a> {
    pub(super) directory: Arc<dyn Target>,
    pub(super) name: CString,
    /// The path by which a later member of the same name waits.
    pub(super) _path: Begun<'a>,
}

/// A piece of the work.
pub(super) enum Task<'a> {
    /// A file with all its content.
    Small(Spot<'a>, Box<Member>, Piece<'a>),
    /// Some content of a large file, which waits there.
    Piece(Arc<Growing<'a>>),
    /// There is no more of it.
    Last(Arc<Growing<'a>>),
    /// The second is another name of the first.
    Link(First<'a>, Spot<'a>),
    /// A symbolic link, a FIFO or a device.
    Other(Spot<'a>, Box<Member>),
    /// What a directory gets at the end.
    Directory(Arc<dyn Target>, Box<Member>),
}

impl work::Task for Task<'_> {}

/// An archive's threads that write.
pub(super) struct Writing<'a> {
    settings: &'a ExtractSettings,
    report: &'a Report,
    stop: &'a Stop,
    accounts: Accounts,
    losses: Losses<'a>,
}

impl<'a> Writing<'a> {
    pub(super) fn new(
        settings: &'a ExtractSettings,
        report: &'a Report,
        stop: &'a Stop,
        accounts: Accounts,
    ) -> Self {
        Self {
            settings,
            report,
            stop,
            accounts,
            losses: Losses::new(report),
        }
    }

    fn small(&self, spot: &Spot<'_>, member: &Member, mut content: Bytes) -> io::Result<()> {
        self.report.bytes.add(content.len() as u64);
        let written = self.begin(spot)?;
        let mut filled = Filled::new(&*spot.directory);
        for (offset, length) in member.ranges() {
            filled.fill_to(&*written, offset, self.stop)?;
            filled.write(&*written, offset, content.split_to(length as usize))?;
        }
        if member.data.is_some() {
            filled.end(&*written, member.size, self.stop)?;
        }
        self.publish(spot, written, member)
    }

    /// A new file in the place of what has its name.
    fn begin(&self, spot: &Spot<'_>) -> io::Result<Box<dyn Written>> {
        spot.directory.begin(&spot.name, !self.settings.keep)
    }

    /// Gives a file what it has besides its content, and its name. Fails if its content is lost.
    fn publish(
        &self,
        spot: &Spot<'_>,
        mut written: Box<dyn Written>,
        member: &Member,
    ) -> io::Result<()> {
        let dress = self.dress(&*spot.directory, member);
        if let Err(error) = written.dress(&dress, &|kind| self.losses.tell(kind)) {
            self.fail_to_dress(&member.name, &error);
        }
        written.finish()?;
        written.publish()
    }

    /// Makes something; what has its name is removed first, unless that should stay.
    fn in_place(&self, spot: &Spot<'_>, make: &dyn Fn() -> io::Result<()>) -> io::Result<()> {
        // Files of this machine take the place of what is there by themselves.
        if self.settings.keep && spot.directory.find(&spot.name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        match make() {
            Err(error) if is_in_the_way(&error) && !self.settings.keep => {
                spot.directory.remove_any(&spot.name)?;
                make()
            }
            other => other,
        }
    }

    fn pieces(&self, growing: &Growing<'_>) {
        while let Some((offset, (content, permit))) = growing.take() {
            let count = content.len() as u64;
            if growing.failure().is_none()
                && let Err(error) = self.piece(growing, offset, content)
            {
                growing.fail(reason(&error));
            }
            drop(permit);
            self.report.bytes.add(count);
            growing.note_written(count);
            self.end_if_whole(growing);
        }
    }

    fn piece(&self, growing: &Growing<'_>, offset: u64, content: Bytes) -> io::Result<()> {
        let file = growing.file(|| self.begin(&growing.spot))?;
        let file = file.as_ref().ok_or(Errno::BADF)?;
        let mut filled = growing.filled();
        filled.fill_to(&**file, offset, self.stop)?;
        filled.write(&**file, offset, content)?;
        growing.note_filled(filled);
        Ok(())
    }

    /// Who wrote the last piece, or found that there is no more, ends the file.
    fn end_if_whole(&self, growing: &Growing<'_>) {
        if !growing.is_whole() {
            return;
        }
        match self.end(growing) {
            Ok(()) => self.report.files.add(1),
            Err(why) => {
                let name = String::from_utf8_lossy(&growing.member.name);
                self.report
                    .fail(format_args!("cannot extract '{name}': {why}"));
            }
        }
    }

    fn end(&self, growing: &Growing<'_>) -> Result<(), String> {
        let file = growing.take_file();
        if let Some(why) = growing.failure() {
            return Err(why);
        }
        let file = file.ok_or("it has no content")?;
        let sized = growing.filled().end(&*file, growing.member.size, self.stop);
        let ended = sized.and_then(|()| self.publish(&growing.spot, file, &growing.member));
        ended.map_err(|error| reason(&error))
    }

    fn link(&self, from: &First<'_>, spot: &Spot<'_>) -> io::Result<()> {
        let first = from.directory.find(&from.name)?.ok_or(Errno::NOENT)?;
        let is_link = first.attributes.kind == FileKind::Symlink;
        if is_link && !self.settings.links_out {
            // From another place the same link leads elsewhere.
            let leads_to = from.directory.source(&from.name)?.read_link()?;
            let parts: Vec<&[u8]> = spot.path.path().split(|byte| *byte == b'/').collect();
            if names::leads_out(&parts, &leads_to) {
                return Err(io::Error::other("there it is a link out of the tree"));
            }
        }
        let existing = spot.directory.find(&spot.name)?;
        if existing.is_some_and(|existing| existing.key() == first.key()) {
            return Ok(());
        }
        if !spot.directory.keeps().links {
            self.losses.tell(LOST_LINKS);
            return self.copy(from, &first, spot);
        }
        let (directory, name) = (&spot.directory, &spot.name);
        self.in_place(spot, &|| {
            directory.link(&*from.directory, &from.name, name, false)
        })
    }

    /// Makes a file of its own that is as the first.
    fn copy(&self, from: &First<'_>, first: &Facts, spot: &Spot<'_>) -> io::Result<()> {
        let source = from.directory.source(&from.name)?;
        let attributes = &first.attributes;
        let dress = Dress {
            owner: Some((attributes.uid, attributes.gid)),
            permissions: Some(attributes.permissions),
            times: Some((attributes.accessed, attributes.modified)),
            xattrs: Some(source.xattrs()?),
            adds_xattrs: true,
        };
        let lost = |kind: &str| self.losses.tell(kind);
        let new = match attributes.kind {
            FileKind::Regular => {
                let mut written = self.begin(spot)?;
                self.copy_content(&*source.open()?, &*written)?;
                written.dress(&dress, &lost)?;
                written.finish()?;
                return written.publish();
            }
            FileKind::Special(special) => Some(NewKind::Special(special)),
            FileKind::Symlink | FileKind::Directory => None,
        };
        let leads_to = match new {
            None => source.read_link()?,
            Some(_) => Vec::new(),
        };
        let new = new.unwrap_or(NewKind::Symlink(&leads_to));
        let (directory, name) = (&spot.directory, &spot.name);
        self.in_place(spot, &|| directory.make_other(name, new, CLOSED, false))?;
        directory.dress_named((name, attributes.kind), &dress, &lost)
    }

    fn copy_content(
        &self,
        content: &dyn crate::tree::Content,
        written: &dyn Written,
    ) -> io::Result<()> {
        let mut at = 0;
        loop {
            check(self.stop)?;
            let piece = content.read_at(at, PIECE_BYTES)?;
            let count = piece.len();
            if count > 0 {
                written.write_at(at, piece)?;
            }
            if count < PIECE_BYTES {
                return Ok(());
            }
            at += count as u64;
        }
    }

    fn other(&self, spot: &Spot<'_>, member: &Member) -> io::Result<()> {
        let device = || {
            let number = fs::makedev(member.device.0, member.device.1);
            u32::try_from(number).map(Device).map_err(|_| Errno::INVAL)
        };
        let kind = match member.kind {
            Kind::Fifo => NewKind::Special(SpecialFile::Pipe),
            Kind::Character => NewKind::Special(SpecialFile::CharacterDevice(device()?)),
            Kind::Block => NewKind::Special(SpecialFile::BlockDevice(device()?)),
            _ => NewKind::Symlink(&member.link),
        };
        let (directory, name) = (&spot.directory, &spot.name);
        self.in_place(spot, &|| directory.make_other(name, kind, CLOSED, false))?;
        let dress = self.dress(&**directory, member);
        let made = match kind {
            NewKind::Special(special) => FileKind::Special(special),
            _ => FileKind::Symlink,
        };
        let lost = |kind: &str| self.losses.tell(kind);
        let dressed = directory.dress_named((name, made), &dress, &lost);
        if let Err(error) = dressed {
            self.fail_to_dress(&member.name, &error);
        }
        Ok(())
    }

    fn directory(&self, directory: &dyn Target, member: &Member) {
        self.dress_directory(directory, member, &self.dress(directory, member));
    }

    /// Gives a directory its owner and mode where the work ends before it is whole.
    pub(super) fn open(&self, directory: &dyn Target, member: &Member) {
        let dress = Dress {
            times: None,
            ..self.dress(directory, member)
        };
        self.dress_directory(directory, member, &dress);
    }

    fn dress_directory(&self, directory: &dyn Target, member: &Member, dress: &Dress) {
        if let Err(error) = directory.dress(dress, &|kind| self.losses.tell(kind)) {
            self.fail_to_dress(&member.name, &error);
        }
    }

    /// What a member has besides its content.
    fn dress(&self, target: &dyn Target, member: &Member) -> Dress {
        self.losses.check_metadata(target);
        let time = time(member.modified);
        Dress {
            owner: self.settings.same_owner.then(|| self.owner(member)),
            permissions: Some(self.permissions(member)),
            times: Some((time, time)),
            xattrs: (!member.attributes.is_empty()).then(|| member.attributes.clone()),
            adds_xattrs: true,
        }
    }

    fn fail_to_dress(&self, name: &[u8], error: &io::Error) {
        let name = String::from_utf8_lossy(name);
        self.report.fail(format_args!(
            "cannot set attributes of '{name}': {}",
            reason(error)
        ));
    }

    fn owner(&self, member: &Member) -> (u32, u32) {
        let numbers = self.accounts.numbers(&member.owner_names, member.owner);
        let nobody = u32::MAX - 1;
        let number = |number| u32::try_from(number).unwrap_or(nobody);
        (number(numbers.0), number(numbers.1))
    }

    fn permissions(&self, member: &Member) -> u16 {
        let permissions = match self.settings.same_mode {
            true => member.mode & 0o7777,
            // Rights of whom the file does not belong to are not lent.
            false => member.mode & 0o777 & !self.settings.umask,
        };
        permissions as u16
    }

    fn done(&self, spot: &Spot<'_>, what: &str, done: io::Result<()>) {
        match done {
            Ok(()) => self.report.files.add(1),
            // An end on request is no failure.
            Err(_) if self.stop.is_set() => {}
            Err(error) => {
                let path = String::from_utf8_lossy(spot.path.path());
                let reason = reason(&error);
                self.report
                    .fail(format_args!("cannot extract {what}'{path}': {reason}"));
            }
        }
    }
}

impl<'a> Job for Writing<'a> {
    type Task = Task<'a>;

    fn run(&self, task: Task<'a>, _: &Crew<Task<'a>>) {
        match task {
            Task::Small(spot, member, (content, _permit)) => {
                self.done(&spot, "", self.small(&spot, &member, content));
            }
            Task::Piece(growing) => self.pieces(&growing),
            Task::Last(growing) => {
                growing.close();
                self.end_if_whole(&growing);
            }
            Task::Link(from, spot) => self.done(&spot, "the link ", self.link(&from, &spot)),
            Task::Other(spot, member) => self.done(&spot, "", self.other(&spot, &member)),
            Task::Directory(directory, member) => self.directory(&*directory, &member),
        }
    }

    fn work(&self) -> u64 {
        self.report.work()
    }
}

/// How far a file is filled, where it takes bytes in their order only: holes are zeros there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filled {
    end: u64,
    keeps_holes: bool,
}

impl Filled {
    pub(super) fn new(target: &dyn Target) -> Self {
        Self {
            end: 0,
            keeps_holes: target.keeps().holes,
        }
    }

    /// Makes the file go to `offset`.
    fn fill_to(&mut self, file: &dyn Written, offset: u64, stop: &Stop) -> io::Result<()> {
        while !self.keeps_holes && self.end < offset {
            check(stop)?;
            let count = (offset - self.end).min(PIECE_BYTES as u64);
            file.write_at(self.end, vec![0; count as usize].into())?;
            self.end += count;
        }
        Ok(())
    }

    fn write(&mut self, file: &dyn Written, offset: u64, content: Bytes) -> io::Result<()> {
        self.end = offset + content.len() as u64;
        file.write_at(offset, content)
    }

    /// Makes the file so long.
    fn end(mut self, file: &dyn Written, size: u64, stop: &Stop) -> io::Result<()> {
        match self.keeps_holes {
            true => file.set_size(size),
            false => self.fill_to(file, size, stop),
        }
    }
}

/// Whether something has the name, or a directory that nothing takes the place of by itself.
fn is_in_the_way(error: &io::Error) -> bool {
    was_taken(error) || errno_of(error) == Some(Errno::ISDIR)
}

fn check(stop: &Stop) -> io::Result<()> {
    match stop.is_set() {
        true => Err(io::ErrorKind::Interrupted.into()),
        false => Ok(()),
    }
}

fn time((seconds, nanoseconds): (i64, u32)) -> SystemTime {
    let seconds = seconds.clamp(-SECONDS_MAX, SECONDS_MAX);
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let whole = match seconds < 0 {
        true => SystemTime::UNIX_EPOCH - whole,
        false => SystemTime::UNIX_EPOCH + whole,
    };
    whole + Duration::from_nanos(nanoseconds.into())
}
