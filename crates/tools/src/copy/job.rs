//! The tasks of a copy.

use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    io,
    os::fd::AsFd,
    sync::Arc,
};

use penstock_base::Mutex;
use rustix::{
    fs::{self, FileType, Mode, Stat},
    io::Errno,
};

use super::{
    Settings,
    branch::{Branch, Item, Pair},
    large::Large,
    links::Links,
    made::Made,
    prune, was_told,
};
use crate::{
    Report, Stop,
    local::{self, Attempts, Directory, FileId, kind_of},
    tree::Losses,
    work::{self, Crew, Job, Node, Place},
};

/// Files that one task copies at most.
const BATCH_MAX: usize = 32;

/// What is said of a copy that is whole and lacks something else.
pub(super) const UNDRESSED: &str = "cannot set attributes of the copy of";

/// A piece of the work.
pub(super) enum Task {
    /// Make the counterpart of a directory and go into it.
    Enter(Branch, Item),
    /// Remove what the source has not, before anything is made.
    Prune(Branch),
    /// Take the next page of names.
    List(Branch),
    /// Copy what is no directory.
    Files(Branch, Vec<Item>),
    /// Copy a range of a large file.
    Range(Arc<Large>),
}

impl work::Task for Task {
    fn place(&self) -> Option<Place> {
        match self {
            Self::Enter(branch, _) => Some(Place::beside(branch)),
            Self::Range(large) => Some(Place::beside(large.branch())),
            Self::Prune(branch) | Self::List(branch) | Self::Files(branch, _) => {
                Some(Place::of(branch))
            }
        }
    }
}

/// A copy.
pub(super) struct Copying<'a> {
    pub(super) settings: &'a Settings,
    pub(super) report: &'a Report,
    pub(super) stop: &'a Stop,
    pub(super) links: Links,
    pub(super) losses: Losses<'a>,
    /// File systems by their devices, and whether these are of FUSE.
    fuse: Mutex<HashMap<u64, bool>>,
}

impl<'a> Copying<'a> {
    pub(super) fn new(settings: &'a Settings, report: &'a Report, stop: &'a Stop) -> Self {
        Self {
            settings,
            report,
            stop,
            links: Links::default(),
            losses: Losses::new(report),
            fuse: Mutex::default(),
        }
    }

    /// Whether a file goes to the file system that it is in, which is one of FUSE.
    pub(super) fn stays_on_fuse(&self, stat: &Stat, copy: impl AsFd) -> io::Result<bool> {
        if fs::fstat(&copy)?.st_dev != stat.st_dev {
            return Ok(false);
        }
        let mut known = self.fuse.lock();
        let is_fuse = known.entry(stat.st_dev);
        Ok(*is_fuse.or_insert_with(|| local::is_on_fuse(copy)))
    }

    fn enter(&self, branch: &Branch, item: &Item, crew: &Crew<Task>) {
        match self.enter_pair(branch, item) {
            Ok(None) => self.leave(Arc::clone(branch)),
            Ok(Some(pair)) => {
                let is_foreign = pair
                    .stat
                    .is_some_and(|stat| self.is_foreign(&stat, pair.device));
                let is_pruned = self.settings.delete && !pair.is_fresh && pair.target.is_some();
                let node = Node::new(Some(Arc::clone(branch)), item.name.clone(), pair);
                if is_foreign {
                    self.leave(node);
                } else if is_pruned {
                    crew.push(Task::Prune(node));
                } else {
                    crew.push(Task::List(node));
                }
            }
            Err(error) => {
                self.fail(branch, &item.name, "cannot copy", error);
                self.leave(Arc::clone(branch));
            }
        }
    }

    /// Whether what is in a directory is left out, as another file system is mounted there.
    fn is_foreign(&self, directory: &Stat, device: u64) -> bool {
        self.settings.one_file_system && directory.st_dev != device
    }

    /// Opens a directory and makes its counterpart; none if that is told already.
    fn enter_pair(&self, branch: &Branch, item: &Item) -> io::Result<Option<Pair>> {
        item.check_name()?;
        let source = branch.data.source.open_in(&item.name)?;
        let stat = source.own_stat()?;
        let is_foreign = self.is_foreign(&stat, branch.data.device);
        if !is_foreign && FileId::from(&stat) == branch.data.destination {
            return Err(io::Error::other("the copy itself lies there"));
        }
        let name = item.target_name();
        let (target, is_fresh) = match &branch.data.target {
            None => (None, true),
            Some(above) => self.make_directory(above, name, &stat)?,
        };
        if let (Some(target), Some(above)) = (&target, &branch.data.target) {
            let own = target.own_stat()?;
            branch.data.made.check(&own)?;
            branch.data.made.add_existing(above, (name, &own))?;
        }
        if is_fresh {
            self.report
                .tell(|| format!("{}", branch.path_of(&item.name).display()));
            self.report.directories.add(1);
        } else {
            self.report.unchanged.add(1);
        }
        let looks = !is_fresh && !self.settings.dry_run;
        let looked_at = target.as_ref().filter(|_| looks);
        Ok(Some(Pair {
            left: looked_at.and_then(|target| local::left_in(target).ok()),
            hands_down: target
                .as_ref()
                .is_some_and(|target| local::hands_down(target)),
            source,
            target,
            made: Arc::new(Made::default()),
            stat: Some(stat),
            is_fresh,
            target_name: name.to_owned(),
            device: branch.data.device,
            destination: branch.data.destination,
        }))
    }

    /// Makes and opens a directory; says whether it is new.
    fn make_directory(
        &self,
        above: &Arc<Directory>,
        name: &CStr,
        stat: &Stat,
    ) -> io::Result<(Option<Arc<Directory>>, bool)> {
        if self.settings.dry_run {
            return Ok(match above.open_in(name) {
                Ok(existing) => (Some(existing), false),
                Err(_) => (None, true),
            });
        }
        let mode = Mode::from_raw_mode(self.settings.mode_while_filled(stat.st_mode));
        match fs::mkdirat(above, name, mode) {
            Ok(()) => return Ok((Some(above.open_in(name)?), true)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        match above.open_in(name) {
            Ok(existing) => {
                self.let_in(&existing)?;
                Ok((Some(existing), false))
            }
            Err(Errno::LOOP | Errno::NOTDIR) if self.settings.delete => {
                above.remove_file(name)?;
                self.report.removed.add(1);
                fs::mkdirat(above, name, mode)?;
                Ok((Some(above.open_in(name)?), true))
            }
            Err(Errno::LOOP | Errno::NOTDIR) => Err(io::Error::other(
                "something that is no directory has the name of the copy",
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets this process write into a directory that an earlier copy closed.
    fn let_in(&self, existing: &Directory) -> rustix::io::Result<()> {
        if !self.settings.preserve.mode || local::is_root() {
            return Ok(());
        }
        let mode = local::permissions(&existing.own_stat()?);
        match mode.contains(Mode::RWXU) {
            true => Ok(()),
            // Of another owner: writing tells whether it may be.
            false => match fs::fchmod(existing, mode | Mode::RWXU) {
                Err(Errno::PERM) => Ok(()),
                opened => opened,
            },
        }
    }

    fn list(&self, branch: Branch, crew: &Crew<Task>) {
        let page = match branch.data.source.next_page() {
            Ok(page) => page,
            Err(error) => {
                self.report.fail_at("cannot list", &branch.path(), error);
                return self.leave(branch);
            }
        };
        if page.is_empty() {
            return self.leave(branch);
        }
        let mut files = Vec::new();
        let mut directories = Vec::new();
        for entry in page {
            // What cannot be looked at fails when it is copied.
            let kind = branch.data.source.kind(&entry).unwrap_or(FileType::Unknown);
            let is_directory = kind == FileType::Directory;
            if self.is_left_out(&branch, &entry.name, is_directory) {
                continue;
            }
            let item = Item {
                name: entry.name,
                renamed: None,
            };
            match is_directory {
                true => directories.push(item),
                false => files.push(item),
            }
        }
        let batch = (files.len() / (2 * crew.limit())).clamp(1, BATCH_MAX);
        let files = files.chunks(batch).map(<[Item]>::to_vec);
        // Counted before the next page can be found to be the last.
        let mut tasks: Vec<Task> = files
            .map(|batch| Task::Files(branch.enter(), batch))
            .collect();
        tasks.extend(
            directories
                .into_iter()
                .map(|item| Task::Enter(branch.enter(), item)),
        );
        crew.push(Task::List(branch));
        tasks.into_iter().for_each(|task| crew.push(task));
    }

    /// Whether patterns leave `name` out.
    pub(super) fn is_left_out(&self, branch: &Branch, name: &CStr, is_directory: bool) -> bool {
        let exclude = &self.settings.exclude;
        !exclude.is_empty() && exclude.leave_out(&branch.relative(name), is_directory)
    }

    fn copy_files(&self, branch: Branch, items: &[Item], crew: &Crew<Task>) {
        for item in items {
            if self.stop.is_set() {
                break;
            }
            if let Err(error) = self.copy_file(&branch, item, crew) {
                self.fail_to_copy(&branch, item, error);
            }
        }
        self.leave(branch);
    }

    /// Notes that `item` could not be copied.
    pub(super) fn fail_to_copy(&self, branch: &Branch, item: &Item, error: io::Error) {
        // An end on request is no failure.
        let is_ended = self.stop.is_set() && error.kind() == io::ErrorKind::Interrupted;
        if !is_ended && !was_told(&error) {
            self.fail(branch, &item.name, "cannot copy", error);
        }
    }

    pub(super) fn fail(&self, branch: &Branch, name: &CString, action: &str, error: io::Error) {
        branch.fail();
        self.report.fail_at(action, &branch.path_of(name), error);
    }

    /// Ends a task of `branch`; the last one gives the copy what the source has, and goes on above.
    pub(super) fn leave(&self, mut branch: Branch) {
        while branch.leave() {
            // What is not whole gets no time that says so.
            if !self.stop.is_set()
                && let Err(error) = self.finish(&branch)
            {
                self.report.fail_at(UNDRESSED, &branch.path(), error);
            }
            match &branch.above {
                None => return,
                Some(above) => branch = Arc::clone(above),
            }
        }
    }

    fn finish(&self, branch: &Branch) -> io::Result<()> {
        let (Some(stat), Some(target)) = (&branch.data.stat, &branch.data.target) else {
            return Ok(());
        };
        if self.settings.dry_run {
            return Ok(());
        }
        let keep = self.settings.preserve;
        let mut attempts = Attempts::default();
        let mut withheld = Mode::empty();
        if keep.owner
            && (branch.data.is_fresh || local::owner(stat) != local::owner(&target.own_stat()?))
        {
            withheld = attempts.give(target, local::owner(stat));
        }
        let wanted = self.kept_attributes(&branch.data.source)?;
        if keep.attributes || keep.mode {
            let existing = self.kept_attributes(target)?;
            self.set_attributes(target, &wanted, &existing, &mut attempts);
        }
        if keep.mode {
            let mode = local::permissions(stat).difference(withheld);
            attempts.note(local::set_mode(target, mode, &wanted));
        } else if branch.data.is_fresh {
            // A new directory takes over whether its group is inherited.
            let inherited = target.own_stat()?.st_mode & 0o2000;
            let mode = stat.st_mode & 0o1777 & !self.settings.umask | inherited;
            attempts.note(fs::fchmod(target, Mode::from_raw_mode(mode)));
        }
        if keep.times {
            attempts.note(fs::futimens(target, &local::times(stat)));
        }
        Ok(attempts.end()?)
    }
}

impl Job for Copying<'_> {
    type Task = Task;

    fn run(&self, task: Task, crew: &Crew<Task>) {
        match task {
            Task::Enter(branch, item) => self.enter(&branch, &item, crew),
            Task::Prune(branch) => {
                prune::prune(self, &branch);
                crew.push(Task::List(branch));
            }
            Task::List(branch) => self.list(branch, crew),
            Task::Files(branch, items) => self.copy_files(branch, &items, crew),
            Task::Range(large) => self.copy_range(large, crew),
        }
    }

    fn work(&self) -> u64 {
        self.report.work()
    }
}

/// Whether `stat` is a file with content.
pub(super) fn is_regular(stat: &Stat) -> bool {
    kind_of(stat) == FileType::RegularFile
}
