//! The tasks of a removal.

use std::{
    ffi::CString,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::{fs::FileType, io::Errno};

use super::{Settings, safety};
use crate::{
    Report, Stop,
    local::{Directory, Entry, Place, c_string},
    work::{Crew, Job, Node},
};

/// Files that one task removes at most.
const BATCH_MAX: usize = 64;
/// How often a directory is listed again because something was in it after all.
const PASSES_MAX: usize = 8;

/// A directory that is being emptied.
pub(super) struct Emptied {
    /// What it lies in, and its name there.
    place: Place,
    /// Itself.
    directory: Arc<Directory>,
    /// How often it was found empty.
    passes: AtomicUsize,
}

type Branch = Arc<Node<Emptied>>;

/// A piece of the work.
pub(super) enum Task {
    /// Go into a directory, or remove what turns out to be none.
    Enter(Parent, CString),
    /// Take the next page of its names.
    List(Branch),
    /// Remove these.
    Files(Parent, Vec<CString>),
}

/// Where names lie.
#[derive(Clone)]
pub(super) enum Parent {
    /// In what a path of the user's leads to, which stays.
    Top(Arc<Directory>, Arc<Path>),
    /// In a directory that goes too.
    Branch(Branch),
}

/// A removal.
pub(super) struct Removal<'a> {
    pub(super) settings: &'a Settings,
    report: &'a Report,
    stop: &'a Stop,
}

impl<'a> Removal<'a> {
    pub(super) fn new(settings: &'a Settings, report: &'a Report, stop: &'a Stop) -> Self {
        Self {
            settings,
            report,
            stop,
        }
    }

    /// What removes the file or directory at `place`, which the user called `path`.
    pub(super) fn task_at(&self, path: &Path, place: Place, is_directory: bool) -> Task {
        let top = Parent::Top(place.directory, path.into());
        match is_directory {
            true => Task::Enter(top, place.name),
            false => Task::Files(top, vec![place.name]),
        }
    }

    fn enter(&self, parent: &Parent, name: CString, crew: &Crew<Task>) {
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
                let place = Place {
                    directory: Arc::clone(parent.directory()),
                    name,
                };
                let emptied = Emptied {
                    place,
                    directory,
                    passes: AtomicUsize::new(0),
                };
                crew.push(Task::List(Node::new(above, shown, emptied)));
            }
            // It became something else.
            Ok(None) => self.remove_files(parent, &[name], crew),
            Err(error) => {
                self.fail(parent, &name, &error);
                parent.leave(self, crew);
            }
        }
    }

    /// Opens a directory to empty it; none if it is no directory any more.
    fn open(&self, parent: &Parent, name: &CString) -> Result<Option<Arc<Directory>>, Why> {
        let above = parent.directory();
        let is_below = matches!(parent, Parent::Branch(_));
        if is_below && !self.settings.mounts && above.is_mount_point(name)? {
            return Err(Why::Mounted);
        }
        match above.open_in(name) {
            Ok(directory) => Ok(Some(directory)),
            Err(Errno::LOOP | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn list(&self, branch: Branch, crew: &Crew<Task>) {
        let page = match branch.data.directory.next_page() {
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

    fn tasks_of(&self, branch: &Branch, page: Vec<Entry>, threads: usize) -> Vec<Task> {
        let mut files = Vec::new();
        let mut directories = Vec::new();
        for entry in page {
            match branch.data.directory.kind(&entry) {
                Ok(FileType::Directory) => directories.push(entry.name),
                // What cannot be looked at may still be removed.
                _ => files.push(entry.name),
            }
        }
        let batch = (files.len() / (2 * threads)).clamp(1, BATCH_MAX);
        let parent = || Parent::Branch(branch.enter());
        let files = files.chunks(batch).map(<[CString]>::to_vec);
        let files = files.map(|names| Task::Files(parent(), names));
        let directories = directories
            .into_iter()
            .map(|name| Task::Enter(parent(), name));
        files.chain(directories).collect()
    }

    fn remove_files(&self, parent: &Parent, names: &[CString], crew: &Crew<Task>) {
        for name in names {
            if self.stop.is_set() {
                parent.fail();
                break;
            }
            match parent.directory().remove_file(name) {
                Ok(()) => self.report.files.add(1),
                // Somebody else removed it.
                Err(Errno::NOENT) if matches!(parent, Parent::Branch(_)) => {}
                Err(Errno::ISDIR) if matches!(parent, Parent::Branch(_)) => {
                    crew.push(Task::Enter(parent.enter(), name.clone()));
                }
                Err(error) => self.fail(parent, name, &error.into()),
            }
        }
        parent.leave(self, crew);
    }

    fn remove_directory(&self, parent: &Parent, name: &CString) {
        match parent.directory().remove_directory(name) {
            Ok(()) => self.report.directories.add(1),
            Err(error) => self.fail(parent, name, &error.into()),
        }
    }

    /// Ends a task of `branch`; the last one removes it, and goes on above.
    fn leave(&self, mut branch: Branch, crew: &Crew<Task>) {
        while branch.leave() && self.finish(&branch, crew) {
            match &branch.above {
                None => return,
                Some(above) => branch = Arc::clone(above),
            }
        }
    }

    /// Removes a directory that nobody works on. Says whether it is over: not if it is listed once more.
    fn finish(&self, branch: &Branch, crew: &Crew<Task>) -> bool {
        if branch.has_failed() || self.stop.is_set() {
            branch.above.iter().for_each(|above| above.fail());
            return true;
        }
        let place = &branch.data.place;
        match place.directory.remove_directory(&place.name) {
            Ok(()) => self.report.directories.add(1),
            Err(Errno::NOENT) if branch.above.is_some() => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => return self.finish_again(branch, crew),
            Err(error) => {
                self.report.fail_at("cannot remove", &branch.path(), error);
                branch.above.iter().for_each(|above| above.fail());
            }
        }
        true
    }

    /// Something is in it: a name that the listing left out while others were removed, or a new one.
    fn finish_again(&self, branch: &Branch, crew: &Crew<Task>) -> bool {
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

    fn fail(&self, parent: &Parent, name: &CString, why: &Why) {
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
            Why::System(error) => self.report.fail_at("cannot remove", &path, *error),
        }
    }
}

/// Why something could not be removed.
enum Why {
    /// A file system is mounted on it.
    Mounted,
    System(Errno),
}

impl From<Errno> for Why {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

impl Parent {
    fn directory(&self) -> &Arc<Directory> {
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

    fn leave(&self, removal: &Removal<'_>, crew: &Crew<Task>) {
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

impl Job for Removal<'_> {
    type Task = Task;

    fn run(&self, task: Task, crew: &Crew<Task>) {
        match task {
            Task::Enter(parent, name) => self.enter(&parent, name, crew),
            Task::List(branch) => self.list(branch, crew),
            Task::Files(parent, names) => self.remove_files(&parent, &names, crew),
        }
    }

    fn work(&self) -> u64 {
        self.report.work()
    }
}
