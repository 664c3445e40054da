//! The tasks of a removal.

use std::{
    ffi::CString,
    io,
    marker::PhantomData,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::io::Errno;

use super::{
    Settings,
    folder::{Folder, Named},
    safety,
};
use crate::{
    Report, Stop,
    local::c_string,
    volume::errno_of,
    work::{self, Crew, Job, Node, Place},
};

/// Files that one task removes at most.
const BATCH_MAX: usize = 64;
/// How often a directory is listed again because something was in it after all.
const PASSES_MAX: usize = 8;

/// A directory that is being emptied.
pub(super) struct Emptied<F> {
    /// What it lies in.
    above: Arc<F>,
    /// Its name there.
    name: CString,
    /// Itself.
    directory: Arc<F>,
    /// How often it was found empty.
    passes: AtomicUsize,
}

type Branch<F> = Arc<Node<Emptied<F>>>;

/// A piece of the work.
pub(super) enum Task<F> {
    /// Go into a directory, or remove what turns out to be none.
    Enter(Parent<F>, CString),
    /// Take the next page of its names.
    List(Branch<F>),
    /// Remove these.
    Files(Parent<F>, Vec<CString>),
}

impl<F: Folder> work::Task for Task<F> {
    fn place(&self) -> Option<Place> {
        match self {
            Self::List(branch) | Self::Files(Parent::Branch(branch), _) => Some(Place::of(branch)),
            Self::Enter(Parent::Branch(branch), _) => Some(Place::beside(branch)),
            Self::Enter(Parent::Top(..), _) | Self::Files(Parent::Top(..), _) => None,
        }
    }
}

/// Where names lie.
pub(super) enum Parent<F> {
    /// In what a path of the user's leads to, which stays.
    Top(Arc<F>, Arc<Path>),
    /// In a directory that goes too.
    Branch(Branch<F>),
}

/// A removal.
pub(super) struct Removal<'a> {
    pub(super) settings: &'a Settings,
    report: &'a Report,
    stop: &'a Stop,
}

/// A removal in directories of one kind.
pub(super) struct Removing<'a, F> {
    pub(super) removal: &'a Removal<'a>,
    pub(super) kind: PhantomData<fn() -> F>,
}

impl<'a> Removal<'a> {
    pub(super) fn new(settings: &'a Settings, report: &'a Report, stop: &'a Stop) -> Self {
        Self {
            settings,
            report,
            stop,
        }
    }

    /// What removes the file or directory `named` in `directory`, which the user called `path`.
    pub(super) fn task_at<F>(&self, path: &Path, directory: Arc<F>, named: Named) -> Task<F> {
        let top = Parent::Top(directory, path.into());
        match named.is_directory {
            true => Task::Enter(top, named.name),
            false => Task::Files(top, vec![named.name]),
        }
    }

    fn enter<F: Folder>(&self, parent: &Parent<F>, name: CString, crew: &Crew<Task<F>>) {
        if !self.settings.recursive {
            self.remove_directory(parent, &name);
            return parent.leave(self, crew);
        }
        match self.open(parent, &name) {
            Ok(Some(directory)) => {
                let (above, shown) = match parent {
                    Parent::Branch(branch) => (Some(Arc::clone(branch)), name.clone()),
                    Parent::Top(_, path) => (None, as_name(path)),
                };
                let emptied = Emptied {
                    above: Arc::clone(parent.directory()),
                    name,
                    directory,
                    passes: AtomicUsize::new(0),
                };
                crew.push(Task::List(Node::new(above, shown, emptied)));
            }
            // It became something else.
            Ok(None) => self.remove_files(parent, &[name], crew),
            Err(error) => {
                self.fail(parent, &name, error);
                parent.leave(self, crew);
            }
        }
    }

    /// Opens a directory to empty it; none if it is no directory any more.
    fn open<F: Folder>(&self, parent: &Parent<F>, name: &CString) -> Result<Option<Arc<F>>, Why> {
        let above = parent.directory();
        let is_below = matches!(parent, Parent::Branch(_));
        if is_below && !self.settings.mounts && above.is_mount_point(name)? {
            return Err(Why::Mounted);
        }
        above.enter(name).map_err(Why::System)
    }

    fn list<F: Folder>(&self, branch: Branch<F>, crew: &Crew<Task<F>>) {
        let page = match branch.data.directory.next_names() {
            Ok(page) => page,
            Err(error) => {
                self.report.fail_at("cannot list", &branch.path(), error);
                branch.fail();
                return self.leave(branch, crew);
            }
        };
        if page.is_empty() {
            return self.leave(branch, crew);
        }
        // Counted before the next page can be found to be the last. First in, last out: what is in this page
        // goes before it.
        let tasks = self.tasks_of(&branch, page, crew.limit());
        crew.push(Task::List(branch));
        tasks.into_iter().for_each(|task| crew.push(task));
    }

    fn tasks_of<F: Folder>(
        &self,
        branch: &Branch<F>,
        page: Vec<Named>,
        threads: usize,
    ) -> Vec<Task<F>> {
        let names = |named: Named| named.name;
        let (directories, files): (Vec<_>, Vec<_>) =
            page.into_iter().partition(|named| named.is_directory);
        let files: Vec<CString> = files.into_iter().map(names).collect();
        let batch = (files.len() / (2 * threads)).clamp(1, BATCH_MAX);
        let parent = || Parent::Branch(branch.enter());
        let files = files.chunks(batch).map(<[CString]>::to_vec);
        let files = files.map(|names| Task::Files(parent(), names));
        let directories = directories
            .into_iter()
            .map(|named| Task::Enter(parent(), named.name));
        files.chain(directories).collect()
    }

    fn remove_files<F: Folder>(&self, parent: &Parent<F>, names: &[CString], crew: &Crew<Task<F>>) {
        for name in names {
            if self.stop.is_set() {
                parent.fail();
                break;
            }
            let Err(error) = parent.directory().remove_file(name) else {
                self.report.files.add(1);
                continue;
            };
            match (errno_of(&error), parent) {
                // Somebody else removed it.
                (Some(Errno::NOENT), Parent::Branch(_)) => {}
                (Some(Errno::ISDIR), Parent::Branch(_)) => {
                    crew.push(Task::Enter(parent.enter(), name.clone()));
                }
                _ => self.fail(parent, name, error.into()),
            }
        }
        parent.leave(self, crew);
    }

    fn remove_directory<F: Folder>(&self, parent: &Parent<F>, name: &CString) {
        match parent.directory().remove_directory(name) {
            Ok(()) => self.report.directories.add(1),
            Err(error) => self.fail(parent, name, error.into()),
        }
    }

    /// Ends a task of `branch`; the last one removes it, and goes on above.
    fn leave<F: Folder>(&self, mut branch: Branch<F>, crew: &Crew<Task<F>>) {
        while branch.leave() && self.finish(&branch, crew) {
            match &branch.above {
                None => return,
                Some(above) => branch = Arc::clone(above),
            }
        }
    }

    /// Removes a directory that nobody works on. Says whether it is over: not if it is listed once more.
    fn finish<F: Folder>(&self, branch: &Branch<F>, crew: &Crew<Task<F>>) -> bool {
        if branch.has_failed() || self.stop.is_set() {
            branch.above.iter().for_each(|above| above.fail());
            return true;
        }
        let data = &branch.data;
        let Err(error) = data.above.remove_directory(&data.name) else {
            self.report.directories.add(1);
            return true;
        };
        match errno_of(&error) {
            Some(Errno::NOENT) if branch.above.is_some() => {}
            Some(Errno::NOTEMPTY | Errno::EXIST) => return self.finish_again(branch, crew),
            _ => {
                self.report.fail_at("cannot remove", &branch.path(), error);
                branch.above.iter().for_each(|above| above.fail());
            }
        }
        true
    }

    /// Something is in it: a name that the listing left out while others were removed, or a new one.
    fn finish_again<F: Folder>(&self, branch: &Branch<F>, crew: &Crew<Task<F>>) -> bool {
        let passes = branch.data.passes.fetch_add(1, Ordering::Relaxed) + 1;
        if passes < PASSES_MAX && branch.data.directory.rewind().is_ok() {
            crew.push(Task::List(branch.enter()));
            return false;
        }
        self.report.fail(format_args!(
            "cannot remove '{}': another program keeps writing into it; end that and try again",
            branch.path().display()
        ));
        branch.above.iter().for_each(|above| above.fail());
        true
    }

    fn fail<F>(&self, parent: &Parent<F>, name: &CString, why: Why) {
        parent.fail();
        let path = match parent {
            Parent::Branch(branch) => branch.path_of(name),
            Parent::Top(_, path) => path.to_path_buf(),
        };
        match why {
            Why::Mounted if self.settings.one_file_system => self.report.fail(format_args!(
                "skipping '{}': it is on another file system",
                path.display()
            )),
            Why::Mounted => self.report.fail(safety::mounted(&path)),
            Why::System(error) => self.report.fail_at("cannot remove", &path, error),
        }
    }
}

/// Why something could not be removed.
enum Why {
    /// A file system is mounted on it.
    Mounted,
    System(io::Error),
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl<F> Clone for Parent<F> {
    fn clone(&self) -> Self {
        match self {
            Self::Top(directory, path) => Self::Top(Arc::clone(directory), Arc::clone(path)),
            Self::Branch(branch) => Self::Branch(Arc::clone(branch)),
        }
    }
}

impl<F> Parent<F> {
    fn directory(&self) -> &Arc<F> {
        match self {
            Self::Top(directory, _) => directory,
            Self::Branch(branch) => &branch.data.directory,
        }
    }

    fn enter(&self) -> Self {
        if let Self::Branch(branch) = self {
            let _counted = branch.enter();
        }
        self.clone()
    }

    fn leave(&self, removal: &Removal<'_>, crew: &Crew<Task<F>>)
    where
        F: Folder,
    {
        if let Self::Branch(branch) = self {
            removal.leave(Arc::clone(branch), crew);
        }
    }

    fn fail(&self) {
        if let Self::Branch(branch) = self {
            branch.fail();
        }
    }
}

fn as_name(path: &Path) -> CString {
    c_string(path.as_os_str().as_bytes()).unwrap_or_default()
}

impl<F: Folder> Job for Removing<'_, F> {
    type Task = Task<F>;

    fn run(&self, task: Task<F>, crew: &Crew<Task<F>>) {
        match task {
            Task::Enter(parent, name) => self.removal.enter(&parent, name, crew),
            Task::List(branch) => self.removal.list(branch, crew),
            Task::Files(parent, names) => self.removal.remove_files(&parent, &names, crew),
        }
    }

    fn work(&self) -> u64 {
        self.removal.report.work()
    }
}
