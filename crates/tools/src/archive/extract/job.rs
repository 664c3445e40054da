//! What many threads do with an archive: write files, make links and devices, set attributes.

use std::{
    ffi::CString,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use penstock_base::Mutex;
use rustix::{
    fs::{self, AtFlags, FileType, Mode, OFlags, Timespec, Timestamps},
    io::Errno,
};

use super::{
    super::{Kind, Member, accounts::Accounts, names},
    ExtractSettings,
    started::{Begun, Permit},
};
use crate::{
    Report,
    local::{self, Attempts, Directory, Handle, Place, flush, kind_of, write_fully},
    report::reason,
    work::{Crew, Job},
};

/// The list of who may use a file.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// Content on its way, with its part of the budget.
type Piece<'a> = (Vec<u8>, Permit<'a>);

/// Where a member goes.
pub(super) struct Target<'a> {
    pub(super) directory: Arc<Directory>,
    pub(super) name: CString,
    /// The path by which others wait for it.
    pub(super) path: Begun<'a>,
    /// What is known of the member, as a part of the budget.
    pub(super) _weight: Permit<'a>,
}

/// A piece of the work.
pub(super) enum Task<'a> {
    /// A file with all its content.
    Small(Target<'a>, Box<Member>, Piece<'a>),
    /// Some content of a large file.
    Piece(Arc<Growing<'a>>, u64, Piece<'a>),
    /// There is no more of it.
    Last(Arc<Growing<'a>>),
    /// The second is another name of the first.
    Link(Place, Target<'a>),
    /// A symbolic link, a FIFO or a device.
    Other(Target<'a>, Box<Member>),
    /// What a directory gets at the end.
    Directory(Arc<Directory>, Box<Member>),
}

/// A large file that is being written.
pub(super) struct Growing<'a> {
    target: Target<'a>,
    member: Member,
    /// None before its first piece.
    file: Mutex<Option<Arc<OwnedFd>>>,
    failure: Mutex<Option<String>>,
    pieces: Mutex<Pieces>,
    is_given_up: AtomicBool,
}

/// Pieces that are not written.
#[derive(Default)]
struct Pieces {
    written: u64,
    is_last_known: bool,
}

impl<'a> Growing<'a> {
    pub(super) fn new(target: Target<'a>, member: Member) -> Self {
        Self {
            target,
            member,
            file: Mutex::new(None),
            failure: Mutex::new(None),
            pieces: Mutex::new(Pieces::default()),
            is_given_up: AtomicBool::new(false),
        }
    }

    /// Its content ended too early.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}

impl Drop for Growing<'_> {
    /// What did not become whole goes.
    fn drop(&mut self) {
        let is_whole = {
            let pieces = self.pieces.lock();
            pieces.is_last_known && pieces.written == self.member.stored()
        };
        if !is_whole && self.file.lock().is_some() {
            let _ = self.target.directory.remove_file(&self.target.name);
        }
    }
}

/// An archive's threads that write.
pub(super) struct Writing<'a> {
    settings: &'a ExtractSettings,
    report: &'a Report,
    accounts: Accounts,
}

impl<'a> Writing<'a> {
    pub(super) fn new(
        settings: &'a ExtractSettings,
        report: &'a Report,
        accounts: Accounts,
    ) -> Self {
        Self {
            settings,
            report,
            accounts,
        }
    }

    fn small(&self, target: &Target<'_>, member: &Member, content: &[u8]) -> io::Result<()> {
        let file = self.create(target)?;
        let written = self.fill(&file, member, content);
        let done = written.and_then(|()| self.dress_file(&file, member));
        if done.is_err() {
            let _ = target.directory.remove_file(&target.name);
        }
        self.report.bytes.add(content.len() as u64);
        done
    }

    fn fill(&self, file: &OwnedFd, member: &Member, mut content: &[u8]) -> io::Result<()> {
        for (offset, length) in member.ranges() {
            let (data, rest) = content.split_at(length as usize);
            write_fully(file, data, offset)?;
            content = rest;
        }
        if member.data.is_some() {
            fs::ftruncate(file, member.size)?;
        }
        Ok(())
    }

    /// A new file in the place of what has its name.
    fn create(&self, target: &Target<'_>) -> io::Result<OwnedFd> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || {
            fs::openat(
                &target.directory,
                &target.name,
                flags,
                Mode::RUSR | Mode::WUSR,
            )
        };
        Ok(self.in_place(target, &create)?)
    }

    /// Makes something; what has its name is removed first, unless that should stay.
    fn in_place<T>(
        &self,
        target: &Target<'_>,
        make: &dyn Fn() -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        match make() {
            Err(Errno::EXIST) if !self.settings.keep => {
                match target.directory.remove_file(&target.name) {
                    // Only an empty one goes.
                    Err(Errno::ISDIR) => target.directory.remove_directory(&target.name)?,
                    other => other?,
                }
                make()
            }
            other => other,
        }
    }

    fn piece(&self, growing: &Growing<'_>, offset: u64, content: &[u8]) {
        let written = self.try_piece(growing, offset, content);
        if let Err(error) = written {
            growing.failure.lock().get_or_insert(reason(&error));
        }
        self.report.bytes.add(content.len() as u64);
        growing.pieces.lock().written += content.len() as u64;
        self.end_if_whole(growing);
    }

    fn try_piece(&self, growing: &Growing<'_>, offset: u64, content: &[u8]) -> io::Result<()> {
        if growing.failure.lock().is_some() {
            return Ok(());
        }
        let file = {
            let mut file = growing.file.lock();
            match &*file {
                Some(file) => Arc::clone(file),
                None => Arc::clone(file.insert(Arc::new(self.create(&growing.target)?))),
            }
        };
        write_fully(&*file, content, offset)
    }

    fn last(&self, growing: &Growing<'_>) {
        growing.pieces.lock().is_last_known = true;
        self.end_if_whole(growing);
    }

    /// Who wrote the last piece, or found that there is no more, ends the file.
    fn end_if_whole(&self, growing: &Growing<'_>) {
        {
            let mut pieces = growing.pieces.lock();
            if !pieces.is_last_known || pieces.written != growing.member.stored() {
                return;
            }
            // Only once.
            pieces.is_last_known = false;
        }
        let done = self.end(growing);
        match done {
            Ok(()) => {
                self.report.files.add(1);
                growing.pieces.lock().is_last_known = true;
            }
            Err(why) => self.fail(&growing.member, &why),
        }
    }

    fn end(&self, growing: &Growing<'_>) -> Result<(), String> {
        if let Some(why) = growing.failure.lock().take() {
            return Err(why);
        }
        let Some(file) = growing.file.lock().clone() else {
            return Err("it has no content".to_owned());
        };
        let sized = fs::ftruncate(&*file, growing.member.size).map_err(io::Error::from);
        let dressed = sized.and_then(|()| self.dress_file(&file, &growing.member));
        dressed.map_err(|error| reason(&error))
    }

    fn link(&self, from: &Place, target: &Target<'_>) -> io::Result<()> {
        let first = from.directory.stat(&from.name)?;
        if kind_of(&first) == FileType::Symlink && !self.settings.links_out {
            // From another place the same link leads elsewhere.
            let leads_to = fs::readlinkat(&from.directory, &from.name, Vec::new())?;
            let parts: Vec<&[u8]> = target.path.path().split(|byte| *byte == b'/').collect();
            if names::leads_out(&parts, leads_to.as_bytes()) {
                return Err(io::Error::other("there it is a link out of the tree"));
            }
        }
        if let Some(existing) = target.directory.stat_if_any(&target.name)?
            && local::is_same_file(&existing, &first)
        {
            return Ok(());
        }
        let flags = AtFlags::empty();
        let link = || {
            fs::linkat(
                &from.directory,
                &from.name,
                &target.directory,
                &target.name,
                flags,
            )
        };
        Ok(self.in_place(target, &link)?)
    }

    fn other(&self, target: &Target<'_>, member: &Member) -> io::Result<()> {
        let link = CString::new(member.link.clone())?;
        let kind = match member.kind {
            Kind::Fifo => FileType::Fifo,
            Kind::Character => FileType::CharacterDevice,
            Kind::Block => FileType::BlockDevice,
            _ => FileType::Symlink,
        };
        let device = fs::makedev(member.device.0, member.device.1);
        let (directory, name) = (&target.directory, &target.name);
        self.in_place(target, &|| match kind {
            FileType::Symlink => fs::symlinkat(&link, directory, name),
            _ => fs::mknodat(directory, name, kind, Mode::RUSR | Mode::WUSR, device),
        })?;
        if let Err(error) = self.dress_other(target, member, kind) {
            self.fail_to_dress(member, error);
        }
        Ok(())
    }

    fn dress_other(
        &self,
        target: &Target<'_>,
        member: &Member,
        kind: FileType,
    ) -> rustix::io::Result<()> {
        let (directory, name) = (&target.directory, &target.name);
        let mut attempts = Attempts::default();
        let handle = Handle::of_kind(directory, name, kind)?;
        if self.settings.same_owner {
            attempts.note(handle.give(self.owner(member)));
        }
        if kind != FileType::Symlink {
            let lists = member.attributes.iter();
            let mut lists = lists.filter(|(name, _)| name == ACCESS_LIST);
            let list = lists.next().map(|(_, value)| value.as_slice());
            attempts.note(handle.set_access_list(list));
            attempts.note(handle.set_mode(self.mode(member)));
        }
        attempts.note(local::date_in(directory, name, &times(member)));
        attempts.end()
    }

    /// The same for a new file, to which its directory may have handed down a list, and its end. Fails if its content is
    /// lost.
    fn dress_file(&self, file: &OwnedFd, member: &Member) -> io::Result<()> {
        let mut lists = member.attributes.iter();
        if lists.all(|(name, _)| name != ACCESS_LIST)
            && let Err(error) = local::remove_access_list(file)
        {
            self.fail_to_dress(member, error);
        }
        self.dress(file, member);
        flush(file)
    }

    /// Owner, attributes, mode and times, in the order in which none undoes another. What is not possible is told.
    fn dress(&self, file: impl std::os::fd::AsFd, member: &Member) {
        let mut attempts = Attempts::default();
        let mut withheld = Mode::empty();
        if self.settings.same_owner {
            withheld = attempts.give(&file, self.owner(member));
        }
        let wanted = attributes(member);
        if !wanted.is_empty() {
            attempts.note(local::set_attributes(&file, &wanted, &Vec::new()));
        }
        attempts.note(fs::fchmod(&file, self.mode(member).difference(withheld)));
        attempts.note(fs::futimens(&file, &times(member)));
        if let Err(error) = attempts.end() {
            self.fail_to_dress(member, error);
        }
    }

    fn fail_to_dress(&self, member: &Member, error: Errno) {
        let name = String::from_utf8_lossy(&member.name);
        self.report.fail(format_args!(
            "cannot set attributes of '{name}': {}",
            reason(&error.into())
        ));
    }

    fn owner(&self, member: &Member) -> (u32, u32) {
        let numbers = self.accounts.numbers(&member.owner_names, member.owner);
        let nobody = u32::MAX - 1;
        let number = |number| u32::try_from(number).unwrap_or(nobody);
        (number(numbers.0), number(numbers.1))
    }

    fn mode(&self, member: &Member) -> Mode {
        match self.settings.same_mode {
            true => Mode::from_raw_mode(member.mode),
            // Rights of whom the file does not belong to are not lent.
            false => Mode::from_raw_mode(member.mode & 0o777 & !self.settings.umask),
        }
    }

    fn fail(&self, member: &Member, why: &str) {
        let name = String::from_utf8_lossy(&member.name);
        self.report
            .fail(format_args!("cannot extract '{name}': {why}"));
    }

    fn done(&self, target: &Target<'_>, what: &str, done: io::Result<()>) {
        match done {
            Ok(()) => self.report.files.add(1),
            Err(error) => {
                let path = String::from_utf8_lossy(target.path.path());
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
            Task::Small(target, member, (content, _permit)) => {
                self.done(&target, "", self.small(&target, &member, &content));
            }
            Task::Piece(growing, offset, (content, _permit)) => {
                self.piece(&growing, offset, &content);
            }
            Task::Last(growing) => self.last(&growing),
            Task::Link(from, target) => self.done(&target, "the link ", self.link(&from, &target)),
            Task::Other(target, member) => self.done(&target, "", self.other(&target, &member)),
            Task::Directory(directory, member) => self.dress(&directory, &member),
        }
    }

    fn work(&self) -> u64 {
        self.report.work()
    }
}

fn attributes(member: &Member) -> Vec<(CString, Vec<u8>)> {
    let named = member.attributes.iter();
    named
        .filter_map(|(name, value)| Some((CString::new(name.clone()).ok()?, value.clone())))
        .collect()
}

fn times(member: &Member) -> Timestamps {
    let time = Timespec {
        tv_sec: member.modified.0,
        tv_nsec: i64::from(member.modified.1),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}
