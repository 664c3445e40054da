//! One file of any kind but directories.

use std::{io, os::fd::AsFd, os::fd::OwnedFd};

use rustix::{
    fs::{self, AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::{
    Stays, Unchanged,
    branch::{Branch, Item, Spot},
    in_the_way,
    job::{Copying, Task, UNDRESSED, is_regular},
    large::Large,
    links::Turn,
    prune::remove_tree,
};
use crate::{
    local::{self, Attempts, Handle, Segments, Temporary, copy_range, is_equal, kind_of},
    tree::LOST_ATTRIBUTES,
    work::Crew,
};

/// Files from this size on are copied by several threads.
const LARGE_BYTES: u64 = 64 << 20;
/// Files up to this size go through memory: that is two calls.
const SMALL_BYTES: u64 = 128 << 10;
/// What is said where a file is replaced that this process may not read.
const LOST_UNREAD: &str = "what else files that may not be read had besides their access lists";
/// How often a file is read again because it changed meanwhile.
const ATTEMPTS_MAX: usize = 2;

/// What became of a name.
enum Done {
    /// Its file is there, and other names may lead to it.
    There,
    /// Something else is there, and stays.
    Other,
    /// The tasks of a large file will tell.
    Later,
}

impl Copying<'_> {
    /// Copies one, or leaves it to the tasks of a large file or to who copies another name of it.
    pub(super) fn copy_file(
        &self,
        branch: &Branch,
        item: &Item,
        crew: &Crew<Task>,
    ) -> io::Result<()> {
        item.check_name()?;
        let stat = branch.data.source.stat(&item.name)?;
        let stat = match kind_of(&stat) {
            FileType::Symlink if !self.settings.recursive => return Err(Errno::LOOP.into()),
            FileType::Directory => return Err(Errno::ISDIR.into()),
            _ => stat,
        };
        if !self.settings.preserve.links || stat.st_nlink < 2 {
            return self.copy_one(branch, item, &stat, crew).map(drop);
        }
        let origin = branch.data.source.origin(&item.name, &stat)?;
        match self.links.meet((&stat, origin), branch, item) {
            Turn::Wait => Ok(()),
            Turn::Link(spot) => self.link(branch, item, &stat, &spot),
            Turn::Copy => {
                let done = self.copy_one(branch, item, &stat, crew);
                if !matches!(done, Ok(Done::Later)) {
                    let is_there = matches!(done, Ok(Done::There));
                    self.tell_links(branch, item, &stat, is_there, crew);
                }
                done.map(drop)
            }
        }
    }

    /// Lets those go on who wait for the copy of a file with several names.
    pub(super) fn tell_links(
        &self,
        branch: &Branch,
        item: &Item,
        stat: &Stat,
        is_there: bool,
        crew: &Crew<Task>,
    ) {
        let spot = is_there
            .then(|| Spot::of(branch, item.target_name()))
            .flatten();
        for (branch, item) in self.links.copied(stat, spot) {
            crew.push(Task::Files(branch, vec![item]));
        }
    }

    fn copy_one(
        &self,
        branch: &Branch,
        item: &Item,
        stat: &Stat,
        crew: &Crew<Task>,
    ) -> io::Result<Done> {
        let existing = self.make_way(branch, item)?;
        if is_regular(stat) {
            return self.copy_regular(branch, item, (stat, existing.as_ref()), crew);
        }
        if !self.settings.recursive {
            return Err(io::Error::other(
                "it is no file; use -a to copy it as what it is",
            ));
        }
        let made = self.make_other(branch, item, stat, existing.as_ref())?;
        if made {
            self.report
                .tell(|| branch.path_of(&item.name).display().to_string());
            self.report.files.add(1);
        } else {
            self.report.unchanged.add(1);
        }
        Ok(Done::There)
    }

    /// What has the name of the copy; nothing in a fresh directory. A directory is removed where that is asked for.
    fn make_way(&self, branch: &Branch, item: &Item) -> io::Result<Option<Stat>> {
        let target = branch.data.target.as_ref();
        let Some(target) = target.filter(|_| !branch.data.is_fresh) else {
            return Ok(None);
        };
        let left = branch.data.left.as_ref();
        let left = left.filter(|left| !left.is_empty());
        if left.is_some_and(|left| left.contains(&local::temporary_name(item.target_name()))) {
            local::clear_way(target, item.target_name());
        }
        let existing = target.stat_if_any(item.target_name())?;
        if let Some(existing) = &existing {
            branch.data.made.check(existing)?;
        }
        match existing.as_ref().map(kind_of) {
            Some(FileType::Directory) if !self.settings.delete => Err(in_the_way()),
            Some(FileType::Directory) if self.settings.dry_run => Ok(None),
            Some(FileType::Directory) => {
                match remove_tree(self, branch, target, item.target_name())? {
                    None => Ok(None),
                    Some(kept) => Err(kept.into()),
                }
            }
            Some(FileType::RegularFile | FileType::Symlink) | None => Ok(existing),
            Some(_) if self.settings.recursive => Ok(existing),
            Some(_) => Err(io::Error::other(
                "what has the name of the copy is no file and is not replaced",
            )),
        }
    }

    fn copy_regular(
        &self,
        branch: &Branch,
        item: &Item,
        (stat, existing): (&Stat, Option<&Stat>),
        crew: &Crew<Task>,
    ) -> io::Result<Done> {
        if let Some(existing) = existing
            && let Some(stays) = self.may_stay(branch, item, stat, existing)?
        {
            self.report.stay(stat.st_size.cast_unsigned());
            if let Some(target) = &branch.data.target {
                let found = (item.target_name(), existing);
                branch.data.made.add_existing(target, found)?;
            }
            return Ok(match stays {
                Stays::Same => Done::There,
                Stays::Newer => Done::Other,
            });
        }
        self.report
            .tell(|| branch.path_of(&item.name).display().to_string());
        if self.settings.dry_run {
            self.report.files.add(1);
            self.report.bytes.add(stat.st_size.cast_unsigned());
            return Ok(Done::There);
        }
        let Some(target) = &branch.data.target else {
            return Ok(Done::There);
        };
        let (source, stat) = open_source(branch, item, stat)?;
        let temporary = Temporary::create(target, item.target_name())?;
        if is_large(&stat) && local::set_size(&temporary, stat.st_size.cast_unsigned())? {
            Large::begin(
                self,
                (branch, item),
                (source, temporary),
                (&stat, existing),
                crew,
            );
            return Ok(Done::Later);
        }
        self.fill(branch, item, &stat, (&source, &temporary))?;
        self.complete(branch, item, (&stat, existing), (&source, temporary))?;
        Ok(Done::There)
    }

    /// Why the copy that is there needs no new content, if it needs none. What else differs is set right.
    fn may_stay(
        &self,
        branch: &Branch,
        item: &Item,
        stat: &Stat,
        existing: &Stat,
    ) -> io::Result<Option<Stays>> {
        if !is_regular(existing) {
            return Ok(None);
        }
        let has_same_size = existing.st_size == stat.st_size;
        if let Some(stays) = self.stays_as_new(stat, existing) {
            return Ok(Some(stays));
        }
        let is_same = match self.settings.unchanged {
            Unchanged::Never => false,
            Unchanged::ByTime => has_same_size && is_same_time(stat, existing),
            Unchanged::ByContent => has_same_size && self.has_same_content(branch, item, stat)?,
        };
        if !is_same {
            return Ok(None);
        }
        let done = match self.is_shared(stat, existing) {
            true => match self.would_differ(branch, item, (stat, existing)) {
                Ok(true) => return Ok(None),
                same => same.map(drop),
            },
            false if self.settings.dry_run => Ok(()),
            false => self.set_right(branch, item, stat, existing),
        };
        if let Err(error) = done {
            self.fail(branch, &item.name, UNDRESSED, error);
        }
        Ok(Some(Stays::Same))
    }

    /// Why a file stays that is as new as its source, if such files do.
    fn stays_as_new(&self, stat: &Stat, existing: &Stat) -> Option<Stays> {
        let stays = self.settings.update
            && is_regular(existing)
            && local::modified(existing) >= local::modified(stat);
        stays.then(
            || match existing.st_size == stat.st_size && is_same_time(stat, existing) {
                true => Stays::Same,
                false => Stays::Newer,
            },
        )
    }

    fn has_same_content(&self, branch: &Branch, item: &Item, stat: &Stat) -> io::Result<bool> {
        let copy = open_copy(branch, item)?;
        is_equal(open_source(branch, item, stat)?.0, copy, self.stop)
    }

    /// Gives a copy whose content is right what else the source has.
    fn set_right(
        &self,
        branch: &Branch,
        item: &Item,
        stat: &Stat,
        existing: &Stat,
    ) -> io::Result<()> {
        let keep = self.settings.preserve;
        let has_other_owner = keep.owner && local::owner(stat) != local::owner(existing);
        let has_other_mode = keep.mode && local::permissions(stat) != local::permissions(existing);
        let has_other_time = keep.times && local::modified(stat) != local::modified(existing);
        if !(has_other_owner || has_other_mode || has_other_time || keep.attributes) {
            return Ok(());
        }
        let copy = open_copy(branch, item)?;
        let mut attempts = Attempts::default();
        let mut withheld = Mode::empty();
        if has_other_owner {
            withheld = attempts.give(&copy, local::owner(stat));
        }
        let mut wanted = local::Attributes::new();
        if keep.attributes || has_other_mode {
            wanted = self.wanted_attributes(branch, item, stat)?;
            self.set_attributes(&copy, &wanted, &self.kept_attributes(&copy)?, &mut attempts);
        }
        if has_other_mode || has_other_owner {
            let mode = local::permissions(stat).difference(withheld);
            attempts.note(local::set_mode(&copy, mode, &wanted));
        }
        if has_other_time {
            attempts.note(fs::futimens(&copy, &local::times(stat)));
        }
        Ok(attempts.end()?)
    }

    /// Copies the content of a file that is not large. What changes meanwhile is read once more.
    fn fill(
        &self,
        branch: &Branch,
        item: &Item,
        stat: &Stat,
        (source, copy): (&OwnedFd, &Temporary),
    ) -> io::Result<()> {
        let mut before = *stat;
        for attempt in 1..=ATTEMPTS_MAX {
            let counted = self.copy_bytes(source, copy, &before)?;
            let after = fs::fstat(source)?;
            if is_same_version(&before, &after) {
                self.report.bytes.add(counted);
                return Ok(());
            }
            if attempt == ATTEMPTS_MAX {
                self.report.bytes.add(counted);
                break;
            }
            fs::ftruncate(copy, 0)?;
            before = after;
        }
        self.report.note_change(&branch.path_of(&item.name));
        Ok(())
    }

    fn copy_bytes(&self, source: &OwnedFd, copy: &Temporary, stat: &Stat) -> io::Result<u64> {
        let size = stat.st_size.cast_unsigned();
        let is_sparse = stat.st_blocks * 512 < stat.st_size;
        let is_small = size <= SMALL_BYTES && !is_sparse;
        if is_small && (size == 0 || !self.stays_on_fuse(stat, copy)?) {
            // One more, to see that it does not go on.
            let mut buffer = vec![0; size as usize + 1];
            let count = local::read_fully(source, &mut buffer, 0)?;
            if size == 0 && count > 0 {
                // As in /proc, where files do not say how long they are.
                return self.copy_span(source, copy, (0, u64::MAX));
            }
            local::write_fully(copy, &buffer[..count], 0)?;
            return Ok(count as u64);
        }
        if size > SMALL_BYTES && fs::ioctl_ficlone(copy, source).is_ok() {
            return Ok(size);
        }
        if !is_sparse || !local::set_size(copy, size)? {
            return self.copy_span(source, copy, (0, size));
        }
        for range in Segments::of(source.as_fd(), stat, 0, size) {
            let end = self.copy_span(source, copy, range)?;
            if end < range.1 {
                // As in /sys, where a file says that it has a page.
                fs::ftruncate(copy, end)?;
                return Ok(end);
            }
        }
        Ok(size)
    }

    fn copy_span(&self, source: &OwnedFd, copy: &Temporary, span: (u64, u64)) -> io::Result<u64> {
        copy_range(source.as_fd(), copy.as_fd(), span, self.stop, &|_| {})
    }

    /// Gives a copy whose content is there what else it has, and then its name.
    pub(super) fn complete(
        &self,
        branch: &Branch,
        item: &Item,
        (stat, existing): (&Stat, Option<&Stat>),
        (source, copy): (&OwnedFd, Temporary),
    ) -> io::Result<()> {
        if self.settings.verify {
            self.verify(source, &copy)?;
        }
        let dressed = self.dress((branch, item), (stat, existing), (source, &copy));
        branch.data.made.publish(copy, item.target_name())?;
        self.report.files.add(1);
        if let Err(error) = dressed {
            self.fail(branch, &item.name, UNDRESSED, error.into());
        }
        Ok(())
    }

    fn verify(&self, source: &OwnedFd, copy: &Temporary) -> io::Result<()> {
        // From the disk, not from what was just written.
        fs::fdatasync(copy)?;
        fs::fadvise(copy, 0, None, fs::Advice::DontNeed)?;
        match is_equal(source, copy, self.stop)? {
            true => Ok(()),
            false => Err(io::Error::other(
                "the copy differs from its source and was removed",
            )),
        }
    }

    fn dress(
        &self,
        (branch, item): (&Branch, &Item),
        (stat, existing): (&Stat, Option<&Stat>),
        (source, copy): (&OwnedFd, &Temporary),
    ) -> rustix::io::Result<()> {
        let keep = self.settings.preserve;
        let replaced = existing.filter(|existing| is_regular(existing));
        let owner = match keep.owner {
            true => Some(local::owner(stat)),
            false => replaced.map(local::owner),
        };
        let mut attempts = Attempts::default();
        let withheld = owner.map_or(Mode::empty(), |owner| attempts.give(copy, owner));
        // What is replaced keeps what is its own, as where cp(1) writes into it.
        let own = replaced.filter(|_| !keep.mode && !keep.attributes);
        let known = attempts.note(match own {
            Some(_) => self.own_attributes(branch, item),
            None => self.kept_attributes(source),
        });
        // Without its list nobody knows what the rights of a group are.
        let withheld = match known {
            Some(_) => withheld,
            None => withheld | Mode::RWXG,
        };
        let wanted = known.unwrap_or_default();
        if branch.data.hands_down && (keep.mode || own.is_some()) {
            attempts.note(local::remove_access_list(copy));
        }
        self.set_attributes(copy, &wanted, &Vec::new(), &mut attempts);
        let mode = match (keep.mode, replaced) {
            (true, _) => local::permissions(stat),
            (false, Some(replaced)) => local::after_writing(local::permissions(replaced)),
            (false, None) => Mode::from_raw_mode(stat.st_mode & 0o777 & !self.settings.umask),
        };
        attempts.note(local::set_mode(copy, mode.difference(withheld), &wanted));
        if keep.times {
            attempts.note(fs::futimens(copy, &local::times(stat)));
        }
        attempts.end()
    }

    /// The attributes of what a copy replaces, but those that vouch for its content: capabilities and signatures, which the
    /// system takes from a file that is written to. Of what may not be read it is the access list.
    fn own_attributes(
        &self,
        branch: &Branch,
        item: &Item,
    ) -> rustix::io::Result<local::Attributes> {
        let mut own = match open_copy(branch, item) {
            Err(Errno::ACCESS) => {
                self.losses.tell(LOST_UNREAD);
                list_of_copy(branch, item)?
            }
            copy => local::attributes(copy?)?,
        };
        own.retain(|(name, _)| !name.to_bytes().starts_with(b"security."));
        Ok(own)
    }

    /// The attributes of an open file that copies keep: a mode is nothing without its access list.
    pub(super) fn kept_attributes(&self, file: impl AsFd) -> rustix::io::Result<local::Attributes> {
        match self.settings.preserve {
            keep if keep.attributes => local::attributes(file),
            keep if keep.mode => local::access_list(file),
            _ => Ok(local::Attributes::new()),
        }
    }

    /// The same of a source that is not open.
    pub(super) fn wanted_attributes(
        &self,
        branch: &Branch,
        item: &Item,
        stat: &Stat,
    ) -> io::Result<local::Attributes> {
        match self.settings.preserve.attributes {
            true => Ok(local::attributes(open_source(branch, item, stat)?.0)?),
            false => Ok(Handle::of(&branch.data.source, &item.name)?.access_list_alone()?),
        }
    }

    /// Gives an open copy the attributes that are `wanted`, and tells once if its file system takes no such.
    pub(super) fn set_attributes(
        &self,
        copy: impl AsFd,
        wanted: &local::Attributes,
        existing: &local::Attributes,
        attempts: &mut Attempts,
    ) {
        let set = local::set_attributes(copy, wanted, existing);
        if attempts.note(set) == Some(false) {
            self.losses.tell(LOST_ATTRIBUTES);
        }
    }

    /// Makes `item` another name of what is at `spot`.
    fn link(&self, branch: &Branch, item: &Item, stat: &Stat, spot: &Spot) -> io::Result<()> {
        let existing = self.make_way(branch, item)?;
        let stays = existing.and_then(|existing| self.stays_as_new(stat, &existing));
        if stays == Some(Stays::Newer) {
            self.report.unchanged.add(1);
            return Ok(());
        }
        let Some(target) = &branch.data.target else {
            self.report.files.add(1);
            return Ok(());
        };
        let (directory, first) = spot.open()?;
        if let Some(existing) = existing {
            let first = directory.stat(first)?;
            if local::is_same_file(&first, &existing) {
                self.report.unchanged.add(1);
                return Ok(());
            }
        }
        self.report.files.add(1);
        if self.settings.dry_run {
            return Ok(());
        }
        self.under_name(branch, item, existing.is_some(), &|under| {
            fs::linkat(&directory, first, target, under, AtFlags::empty())
        })
    }

    fn under_name(
        &self,
        branch: &Branch,
        item: &Item,
        is_taken: bool,
        make: &dyn Fn(&std::ffi::CStr) -> rustix::io::Result<()>,
    ) -> io::Result<()> {
        let Some(target) = &branch.data.target else {
            return Ok(());
        };
        let name = item.target_name();
        if !is_taken && !branch.data.is_fresh && branch.data.left.is_none() {
            local::clear_way(target, name);
        }
        if !is_taken {
            match make(name) {
                Err(Errno::EXIST) => branch.data.made.check(&target.stat(name)?)?,
                made => return Ok(made?),
            }
        }
        Ok(local::make_under(target, (name, true), make)?)
    }

    /// Copies a link, a FIFO, a socket or a device. Says whether it had to be made.
    fn make_other(
        &self,
        branch: &Branch,
        item: &Item,
        stat: &Stat,
        existing: Option<&Stat>,
    ) -> io::Result<bool> {
        let Some(target) = &branch.data.target else {
            return Ok(true);
        };
        let name = item.target_name();
        let kind = kind_of(stat);
        let same_kind = existing.filter(|existing| kind_of(existing) == kind);
        let is_link = kind == FileType::Symlink;
        let mut is_same = same_kind.is_some_and(|existing| existing.st_rdev == stat.st_rdev);
        let mut leads_to = c"".to_owned();
        if is_link {
            leads_to = fs::readlinkat(&branch.data.source, &item.name, Vec::new())?;
            is_same = is_same && fs::readlinkat(target, name, Vec::new())? == leads_to;
        }
        if self.settings.dry_run {
            return Ok(!is_same);
        }
        if !is_same {
            let mode = local::permissions(stat);
            self.under_name(branch, item, existing.is_some(), &|under| match is_link {
                true => fs::symlinkat(&leads_to, target, under),
                false => fs::mknodat(target, under, kind, mode, stat.st_rdev),
            })?;
        }
        let made = target.stat(name)?;
        branch.data.made.add_existing(target, (name, &made))?;
        let kept = same_kind.filter(|_| is_same);
        if let Err(error) = self.dress_other(branch, item, stat, kept) {
            self.fail(branch, &item.name, UNDRESSED, error.into());
        }
        Ok(!is_same)
    }

    fn dress_other(
        &self,
        branch: &Branch,
        item: &Item,
        stat: &Stat,
        existing: Option<&Stat>,
    ) -> rustix::io::Result<()> {
        let (Some(target), keep) = (&branch.data.target, self.settings.preserve) else {
            return Ok(());
        };
        let name = item.target_name();
        let mut attempts = Attempts::default();
        let has_other_owner = keep.owner
            && existing.is_none_or(|existing| local::owner(existing) != local::owner(stat));
        let has_mode = keep.mode && kind_of(stat) != FileType::Symlink;
        if has_other_owner || has_mode {
            let handle = Handle::of_kind(target, name, kind_of(stat))?;
            if has_other_owner {
                attempts.note(handle.give(local::owner(stat)));
            }
            if has_mode {
                let list = Handle::of(&branch.data.source, &item.name)?.access_list();
                attempts.note(handle.set_access_list(list.as_deref()));
                attempts.note(handle.set_mode(local::permissions(stat), list.as_deref()));
            }
        }
        if keep.times {
            attempts.note(local::date_in(target, name, &local::times(stat)));
        }
        attempts.end()
    }
}

pub(super) fn is_large(stat: &Stat) -> bool {
    is_regular(stat) && stat.st_size.cast_unsigned() >= LARGE_BYTES
}

/// Whether nobody wrote to a file between two looks.
pub(super) fn is_same_version(before: &Stat, after: &Stat) -> bool {
    before.st_size == after.st_size && local::modified(before) == local::modified(after)
}

/// Whether the copy has the source's time. A file system that keeps whole seconds has no more to show.
pub(super) fn is_same_time(stat: &Stat, existing: &Stat) -> bool {
    let (source, copy) = (local::modified(stat), local::modified(existing));
    source == copy || (source.0 == copy.0 && copy.1 == 0)
}

/// Opens a file that was seen as `stat` says. Returns what it is now, which is large or not as before.
fn open_source(branch: &Branch, item: &Item, seen: &Stat) -> io::Result<(OwnedFd, Stat)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::openat(&branch.data.source, &item.name, flags, Mode::empty())?;
    let stat = local::stat_of_same(&file, seen)?;
    match is_large(&stat) == is_large(seen) {
        true => Ok((file, stat)),
        false => Err(io::Error::other("it changed just now; try again")),
    }
}

fn list_of_copy(branch: &Branch, item: &Item) -> rustix::io::Result<local::Attributes> {
    let target = branch.data.target.as_ref().ok_or(Errno::NOENT)?;
    Handle::of(target, item.target_name())?.access_list_alone()
}

pub(super) fn open_copy(branch: &Branch, item: &Item) -> rustix::io::Result<OwnedFd> {
    let Some(target) = &branch.data.target else {
        return Err(Errno::NOENT);
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    fs::openat(target, item.target_name(), flags, Mode::empty())
}
