//! The tasks of a copy from or to a volume.

use std::{
    ffi::{CStr, CString},
    io,
    sync::Arc,
};

use penstock_base::{
    Mutex,
    clock::{self, Instant},
};
use penstock_vfs::FileKind;

use super::{links::Links, patience::Patience, prune};
use crate::{
    Report, Stop,
    copy::{Settings, was_told},
    local::{is_root, is_temporary},
    tree::{Dress, Facts, FileKey, Found, Listing, Losses, Source, Target, was_taken},
    work::{self, Crew, Job, Node, Place},
};

/// Files that one task copies at most.
const BATCH_MAX: usize = 32;

/// What is said of a copy that is whole and lacks something else.
pub(super) const UNDRESSED: &str = "cannot set attributes of the copy of";

/// A directory of the source with its counterpart.
#[derive(Debug)]
pub(super) struct Pair {
    /// None for where the user's names lie.
    pub(super) source: Option<OpenedSource>,
    /// None in a dry run, where it would have been made.
    pub(super) target: Option<Arc<dyn Target>>,
    /// The copy was made just now: nothing can be there.
    pub(super) is_fresh: bool,
    /// The name of the copy in its directory; none if it is that of the node above.
    pub(super) target_name: Option<CString>,
    /// The directory into which everything goes.
    pub(super) destination: FileKey,
}

/// A directory that is being copied.
pub(super) struct OpenedSource {
    pub(super) file: Box<dyn Source>,
    pub(super) facts: Facts,
    pub(super) listing: Mutex<Box<dyn Listing>>,
    /// The file system of what the user named.
    device: u64,
}

impl std::fmt::Debug for OpenedSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.file.fmt(f)
    }
}

pub(super) type Branch = Arc<Node<Pair>>;

/// Something in a directory.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) found: Found,
    /// What its copy is called, if otherwise.
    pub(super) renamed: Option<CString>,
}

impl Item {
    pub(super) fn name(&self) -> &CStr {
        &self.found.name
    }

    pub(super) fn target_name(&self) -> &CStr {
        self.renamed.as_ref().unwrap_or(&self.found.name)
    }

    /// Refuses a name under which a neighbour of the copy may be written.
    pub(super) fn check_name(&self) -> io::Result<()> {
        match is_temporary(self.target_name().to_bytes()) {
            false => Ok(()),
            true => Err(io::Error::other(
                "copies on their way have such names: rename it, or remove what a copy left that was cut off",
            )),
        }
    }
}

/// A piece of the work.
#[derive(Debug)]
pub(super) enum Task {
    /// Make the counterpart of a directory and go into it.
    Enter(Branch, Item),
    /// Go into a directory whose counterpart is there.
    Begin(Branch, bool),
    /// Take the next page of names.
    List(Branch),
    /// Copy what is no directory.
    Files(Branch, Vec<Item>),
}

impl work::Task for Task {
    fn place(&self) -> Option<Place> {
        match self {
            Self::Enter(branch, _) => Some(Place::beside(branch)),
            Self::Begin(branch, _) | Self::List(branch) | Self::Files(branch, _) => {
                Some(Place::of(branch))
            }
        }
    }
}

/// A copy.
pub(super) struct Direct<'a> {
    pub(super) settings: &'a Settings,
    pub(super) report: &'a Report,
    pub(super) stop: &'a Stop,
    pub(super) links: Links,
    pub(super) losses: Losses<'a>,
    patience: Patience,
}

impl<'a> Direct<'a> {
    pub(super) fn new(settings: &'a Settings, report: &'a Report, stop: &'a Stop) -> Self {
        Self {
            settings,
            report,
            stop,
            links: Links::default(),
            losses: Losses::new(report),
            patience: Patience::default(),
        }
    }

    /// Tells once that the target keeps nothing of a kind.
    pub(super) fn lose(&self, kind: &str) {
        self.losses.tell(kind);
    }

    fn enter(&self, branch: &Branch, item: Item, crew: &Crew<Task>) {
        let (name, begun) = (item.found.name.clone(), clock::now());
        match self.enter_pair(branch, item) {
            Ok(pair) => {
                let begins = pair.target.is_some() && !pair.is_fresh;
                let node = Node::new(Some(Arc::clone(branch)), name, pair);
                match self.is_foreign(&node) {
                    true => self.leave(node),
                    false => crew.push(Task::Begin(node, begins)),
                }
            }
            Err(error) => {
                self.fail_to_copy((branch, &name), begun, error);
                self.leave(Arc::clone(branch));
            }
        }
    }

    /// Whether what is in a directory is left out, as another file system is mounted there.
    fn is_foreign(&self, branch: &Branch) -> bool {
        let source = branch.data.source.as_ref();
        self.settings.one_file_system
            && source.is_some_and(|source| source.facts.device != source.device)
    }

    /// Opens a directory and makes its counterpart.
    fn enter_pair(&self, branch: &Branch, item: Item) -> io::Result<Pair> {
        item.check_name()?;
        let name = item.target_name().to_owned();
        let shown = item.found.name.clone();
        let device = branch.data.source.as_ref().map(|above| above.device);
        let source = OpenedSource::open(item.found.file, device)?;
        if source.facts.key() == branch.data.destination {
            return Err(io::Error::other("the copy itself lies there"));
        }
        let (target, is_fresh) = match &branch.data.target {
            None => (None, true),
            Some(above) => self.make_directory(branch, above, &name, &source.facts)?,
        };
        if is_fresh {
            self.report
                .tell(|| branch.path_of(&shown).display().to_string());
            self.report.directories.add(1);
        } else {
            self.report.unchanged.add(1);
        }
        Ok(Pair {
            source: Some(source),
            target,
            is_fresh,
            target_name: Some(name),
            destination: branch.data.destination,
        })
    }

    /// Makes and opens a directory; says whether it is new.
    fn make_directory(
        &self,
        branch: &Branch,
        above: &Arc<dyn Target>,
        name: &CStr,
        source: &Facts,
    ) -> io::Result<(Option<Arc<dyn Target>>, bool)> {
        let existing = match branch.data.is_fresh {
            true => None,
            false => above.find(name)?,
        };
        match self.make_directory_over(above, name, source, existing) {
            // As with files.
            Err(error) if was_taken(&error) => {
                let existing = above.find(name)?;
                self.make_directory_over(above, name, source, existing)
            }
            made => made,
        }
    }

    /// The same in the place of what has the name.
    fn make_directory_over(
        &self,
        above: &Arc<dyn Target>,
        name: &CStr,
        source: &Facts,
        existing: Option<Facts>,
    ) -> io::Result<(Option<Arc<dyn Target>>, bool)> {
        match existing.map(|existing| existing.attributes.kind) {
            Some(FileKind::Directory) => {
                let existing = above.open_in(name)?;
                self.let_in(&*existing)?;
                return Ok((Some(existing), false));
            }
            Some(_) if !self.settings.delete => {
                return Err(io::Error::other(
                    "something that is no directory has the name of the copy",
                ));
            }
            _ if self.settings.dry_run => return Ok((None, true)),
            Some(_) => {
                above.remove_file(name)?;
                self.report.removed.add(1);
            }
            None => {}
        }
        let source = source.attributes.permissions.into();
        let permissions = self.settings.mode_while_filled(source) as u16;
        Ok((Some(above.make_directory(name, permissions)?), true))
    }

    /// Lets this process write into a directory that an earlier copy closed.
    fn let_in(&self, existing: &dyn Target) -> io::Result<()> {
        if self.settings.dry_run || !self.settings.preserve.mode || is_root() {
            return Ok(());
        }
        let permissions = existing.facts()?.attributes.permissions;
        if permissions & 0o700 == 0o700 || !existing.keeps().metadata {
            return Ok(());
        }
        let dress = Dress {
            permissions: Some(permissions | 0o700),
            ..Dress::default()
        };
        existing.dress(&dress, &|kind| self.lose(kind))
    }

    /// Looks at what is in the counterpart, where something may be, and removes what the source has not.
    fn begin(&self, branch: Branch, may_have_entries: bool, crew: &Crew<Task>) {
        if may_have_entries && let Some(target) = &branch.data.target {
            let looked = match self.settings.delete {
                true => prune::prune(self, &branch, target),
                false => target.learn(),
            };
            if let Err(error) = looked
                && !self.stop.is_set()
            {
                branch.fail();
                self.report.fail_at("cannot compare", &branch.path(), error);
            }
        }
        crew.push(Task::List(branch));
    }

    fn list(&self, branch: Branch, crew: &Crew<Task>) {
        let page = match &branch.data.source {
            None => Ok(Vec::new()),
            Some(source) => source.listing.lock().next_page(),
        };
        let page = match page {
            Ok(page) if page.is_empty() => return self.leave(branch),
            Ok(page) => page,
            Err(error) => {
                branch.fail();
                self.report.fail_at("cannot list", &branch.path(), error);
                return self.leave(branch);
            }
        };
        let wanted = page
            .into_iter()
            .filter(|found| !self.is_left_out(&branch, &found.name, found.is_directory));
        let items = wanted.map(|found| Item {
            found,
            renamed: None,
        });
        let (directories, files): (Vec<_>, Vec<_>) =
            items.partition(|item| item.found.is_directory);
        // Counted before the next page can be found to be the last.
        let mut tasks = Vec::new();
        let batch = (files.len() / (2 * crew.limit())).clamp(1, BATCH_MAX);
        let mut files = files.into_iter();
        loop {
            let batch: Vec<_> = files.by_ref().take(batch).collect();
            if batch.is_empty() {
                break;
            }
            tasks.push(Task::Files(branch.enter(), batch));
        }
        let directories = directories.into_iter();
        tasks.extend(directories.map(|item| Task::Enter(branch.enter(), item)));
        crew.push(Task::List(branch));
        tasks.into_iter().for_each(|task| crew.push(task));
    }

    /// Whether patterns leave `name` out.
    pub(super) fn is_left_out(&self, branch: &Branch, name: &CStr, is_directory: bool) -> bool {
        let exclude = &self.settings.exclude;
        !exclude.is_empty() && exclude.leave_out(&branch.relative(name), is_directory)
    }

    fn copy_files(&self, branch: Branch, items: &[Item]) {
        for item in items {
            if self.stop.is_set() || self.patience.is_over() {
                break;
            }
            let begun = clock::now();
            if let Err(error) = self.copy_file(&branch, item) {
                // An end on request is no failure.
                let is_ended = self.stop.is_set() && error.kind() == io::ErrorKind::Interrupted;
                if !is_ended && !was_told(&error) {
                    self.fail_to_copy((&branch, item.name()), begun, error);
                }
            }
        }
        self.leave(branch);
    }

    /// Tells that a copy which was `begun` failed, and if that ends all others.
    fn fail_to_copy(&self, (branch, name): (&Branch, &CStr), begun: Instant, error: io::Error) {
        let done = self.report.entries();
        let is_dead = self.patience.ends(&error, begun, done);
        self.fail(branch, name, "cannot copy", error);
        if is_dead {
            self.report.fail(
                "the store does not answer: what is left was not tried; the same command goes on where this one ends",
            );
        }
    }

    pub(super) fn fail(&self, branch: &Branch, name: &CStr, action: &str, error: io::Error) {
        branch.fail();
        self.report.fail_at(action, &branch.path_of(name), error);
    }

    /// Ends a task of `branch`; the last one gives the copy what the source has, and goes on above.
    fn leave(&self, mut branch: Branch) {
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
        let (Some(source), Some(target)) = (&branch.data.source, &branch.data.target) else {
            return Ok(());
        };
        if self.settings.dry_run {
            return Ok(());
        }
        let existing = (!branch.data.is_fresh)
            .then(|| target.facts())
            .transpose()?;
        let mut dress = self.dress(&*source.file, &source.facts, existing.as_ref(), &**target)?;
        if !branch.data.is_fresh {
            let existing = target.facts()?;
            self.leave_same(&mut dress, &existing, || target.as_source().xattrs())?;
        }
        match dress.is_nothing() {
            true => Ok(()),
            false => target.dress(&dress, &|kind| self.lose(kind)),
        }
    }
}

impl OpenedSource {
    pub(super) fn open(file: Box<dyn Source>, device: Option<u64>) -> io::Result<Self> {
        let facts = file.facts()?;
        Ok(Self {
            listing: Mutex::new(file.listing()?),
            device: device.unwrap_or(facts.device),
            facts,
            file,
        })
    }
}

impl Job for Direct<'_> {
    type Task = Task;

    fn run(&self, task: Task, crew: &Crew<Task>) {
        match task {
            _ if self.patience.is_over() => {}
            Task::Enter(branch, item) => self.enter(&branch, item, crew),
            Task::Begin(branch, may_have_entries) => self.begin(branch, may_have_entries, crew),
            Task::List(branch) => self.list(branch, crew),
            Task::Files(branch, items) => self.copy_files(branch, &items),
        }
    }

    fn work(&self) -> u64 {
        self.report.work()
    }
}
