//! Where members go: directories by path, opened name by name from where the archive is extracted.
//!
//! A link on the way is not followed, whoever made it: a member that would go through one is refused.

use std::{
    collections::{HashMap, HashSet},
    ffi::CStr,
    io,
    sync::Arc,
};

use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};

use crate::{
    direct::Place,
    local::{Directory, c_string},
    tree::{Target, local::LocalTarget, was_taken},
    volume::errno_of,
};

/// Directories that are kept open at most.
const OPEN_MAX: u64 = 256;
/// Of as many files as may be open one is a directory that is kept so.
const OPEN_PART: u64 = 4;
/// Bytes of the paths of directories that were made on the way.
const MADE_MAX: usize = 16 << 20;

/// The tree that an archive is extracted to.
pub(super) struct Places {
    root: Arc<dyn Target>,
    open: HashMap<Vec<u8>, Arc<dyn Target>>,
    open_max: usize,
    /// Rights of directories that no member describes.
    permissions: u16,
    made: Made,
}

/// Paths of directories that no member described when they were made. Beyond a limit they are as those that were there before.
#[derive(Default)]
struct Made {
    paths: HashSet<Vec<u8>>,
    bytes: usize,
}

impl Made {
    fn add(&mut self, path: &[u8]) {
        if self.bytes + path.len() <= MADE_MAX && self.paths.insert(path.to_vec()) {
            self.bytes += path.len();
        }
    }
}

/// Opens the directory that a user named. In a volume it is made where it is missing, as nobody else can.
pub(super) fn open_root(place: &Place, permissions: u16) -> io::Result<Arc<dyn Target>> {
    let place = match place {
        Place::Local(path) => return Ok(Arc::new(LocalTarget(Directory::open(path)?))),
        Place::Volume(place) => place,
    };
    let mut directory = place.target(place.tree.root()?);
    for name in &place.path {
        directory = open_or_make(&directory, name, permissions)?.0;
    }
    directory.learn()?;
    Ok(directory)
}

impl Places {
    pub(super) fn new(root: Arc<dyn Target>, permissions: u16) -> Self {
        Self {
            root,
            open: HashMap::new(),
            open_max: open_max(),
            permissions,
            made: Made::default(),
        }
    }

    /// The directory of these names, which is made where it is missing.
    pub(super) fn directory(&mut self, parts: &[&[u8]]) -> io::Result<Arc<dyn Target>> {
        self.find(parts, true)
    }

    /// The directory of these names. Fails if it is missing.
    pub(super) fn existing(&mut self, parts: &[&[u8]]) -> io::Result<Arc<dyn Target>> {
        self.find(parts, false)
    }

    fn find(&mut self, parts: &[&[u8]], makes: bool) -> io::Result<Arc<dyn Target>> {
        let path = parts.join(&b'/');
        if let Some(known) = self.open.get(&path) {
            return Ok(Arc::clone(known));
        }
        let Some((name, above)) = parts.split_last() else {
            return Ok(Arc::clone(&self.root));
        };
        let above = self.find(above, makes)?;
        let name = c_string(name)?;
        let permissions = self.permissions;
        let open = || match makes {
            true => open_or_make(&above, &name, permissions),
            false => above.open_in(&name).map(|directory| (directory, false)),
        };
        let directory = match open() {
            Err(error) if errno_of(&error) == Some(Errno::MFILE) => {
                self.open.clear();
                open()
            }
            opened => opened,
        };
        let (directory, is_new) = directory.map_err(explained)?;
        directory.learn()?;
        if is_new {
            self.made.add(&path);
        }
        self.keep(path, &directory);
        Ok(directory)
    }

    /// Whether a directory was missing, and no member described it yet.
    pub(super) fn has_made(&self, path: &[u8]) -> bool {
        self.made.paths.contains(path)
    }

    /// Keeps a directory open that was made just now.
    pub(super) fn keep(&mut self, path: Vec<u8>, directory: &Arc<dyn Target>) {
        if self.open.len() >= self.open_max {
            self.open.clear();
        }
        self.open.insert(path, Arc::clone(directory));
    }

    /// Forgets what is at a path, and below it: it becomes something else.
    pub(super) fn forget(&mut self, path: &[u8]) {
        self.open.remove(path);
    }
}

/// How many directories are kept open: others need files, too.
fn open_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit / OPEN_PART).clamp(1, OPEN_MAX) as usize
}

/// Opens a directory, and says whether it was missing and made.
fn open_or_make(
    above: &Arc<dyn Target>,
    name: &CStr,
    permissions: u16,
) -> io::Result<(Arc<dyn Target>, bool)> {
    let is_missing = |error: &io::Error| errno_of(error) == Some(Errno::NOENT);
    match above.open_in(name) {
        Err(error) if is_missing(&error) => {}
        opened => return Ok((opened?, false)),
    }
    match above.make_directory(name, permissions) {
        Err(error) if was_taken(&error) => Ok((above.open_in(name)?, false)),
        made => Ok((made?, true)),
    }
}

fn explained(error: io::Error) -> io::Error {
    match errno_of(&error) {
        Some(Errno::LOOP | Errno::NOTDIR) => {
            io::Error::other("it would go through a link, or through what is no directory")
        }
        _ => error,
    }
}
