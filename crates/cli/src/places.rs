//! Where things lie for which nobody named a place, so that nobody else can have prepared it.
//!
//! | | root | others | without a home |
//! |---|---|---|---|
//! | sockets | `/run/penstock` | `$XDG_RUNTIME_DIR/penstock` | `/tmp/penstock-UID` |
//! | logs | `/var/log/penstock` | `~/.local/state/penstock` | `/var/tmp/penstock-UID/log` |
//! | indexes | `/var/cache/penstock/stream` | `~/.cache/penstock/stream` | `/var/tmp/penstock-UID/stream` |
//! | staging | `/var/lib/penstock/staging` | `/var/tmp/penstock-staging-UID` | the same |
//! | of mount targets | `/var/lib/penstock/nfs` | `~/.local/share/penstock/nfs` | `/var/tmp/penstock-UID/nfs` |
//! | filesets | `/var/lib/penstock/fileset` | `~/.local/share/penstock/fileset` | `/var/tmp/penstock-UID/fileset` |
//!
//! `PENSTOCK_FILESET_DIR` names another place for filesets, of root's too.
//!
//! What is staged of a user's may be large, and homes often lie on a network: hence `/var/tmp`. Older
//! versions staged there for root, too, see [`older_staging`].

use std::{
    io,
    path::{Path, PathBuf},
};

use penstock_base::{find_own_directory, is_root, make_own_directory, user_id};

use crate::{
    control::SocketDirectory,
    environment::{Environment, FILESETS_VARIABLE},
};

/// What stands for the mount points of mount targets.
const TARGETS: &str = "/nfs";

/// Kept when the machine restarts, and everybody may make directories in it.
const SHARED: &str = "/var/tmp";

/// A directory of this user's below one that the system has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnPlace {
    system: PathBuf,
    below: PathBuf,
}

impl OwnPlace {
    pub(crate) fn new(system: impl Into<PathBuf>, below: impl Into<PathBuf>) -> Self {
        Self {
            system: system.into(),
            below: below.into(),
        }
    }

    /// A directory in it.
    fn join(self, name: &str) -> Self {
        Self {
            below: self.below.join(name),
            ..self
        }
    }

    /// Its path, whether or not it is there.
    pub(crate) fn path(&self) -> PathBuf {
        self.system.join(&self.below)
    }

    /// Makes it, private to this user. Fails when somebody else had a hand in it.
    pub(crate) fn make(&self) -> io::Result<PathBuf> {
        make_own_directory(&self.system, &self.below)
    }

    /// Its path, if it is there. Fails when somebody else had a hand in it.
    pub(crate) fn find(&self) -> io::Result<Option<PathBuf>> {
        find_own_directory(&self.system, &self.below)
    }
}

/// For sockets.
pub(crate) fn sockets(environment: &Environment) -> SocketDirectory {
    match environment.directory("XDG_RUNTIME_DIR") {
        _ if is_root() => SocketDirectory::new("/run", "penstock"),
        Some(runtime) => SocketDirectory::new(runtime, "penstock"),
        None => SocketDirectory::new("/tmp", of_user("penstock")),
    }
}

/// For logs.
pub(crate) fn logs(environment: &Environment) -> OwnPlace {
    match in_home(environment, "XDG_STATE_HOME", ".local/state") {
        _ if is_root() => OwnPlace::new("/var/log", "penstock"),
        Some(state) => OwnPlace::new(state, "penstock"),
        None => OwnPlace::new(SHARED, of_user("penstock")).join("log"),
    }
}

/// For indexes of stream volumes.
pub(crate) fn indexes(environment: &Environment) -> OwnPlace {
    match in_home(environment, "XDG_CACHE_HOME", ".cache") {
        _ if is_root() => OwnPlace::new("/var/cache", "penstock/stream"),
        Some(cache) => OwnPlace::new(cache, "penstock/stream"),
        None => OwnPlace::new(SHARED, of_user("penstock")).join("stream"),
    }
}

/// For what is staged under a name.
pub(crate) fn staging(name: &str) -> OwnPlace {
    match is_root() {
        true => OwnPlace::new("/var/lib", "penstock/staging").join(name),
        false => older_staging(name),
    }
}

/// For filesets: what is there of a user's is not to be lost, so it lies in the home, unless a variable names another
/// place.
pub(crate) fn filesets(environment: &Environment) -> OwnPlace {
    let named = environment.directory(FILESETS_VARIABLE);
    if let Some((above, name)) = named.as_deref().and_then(parted) {
        return OwnPlace::new(above, name);
    }
    match in_home(environment, "XDG_DATA_HOME", ".local/share") {
        _ if is_root() => OwnPlace::new("/var/lib", "penstock/fileset"),
        Some(data) => OwnPlace::new(data, "penstock/fileset"),
        None => OwnPlace::new(SHARED, of_user("penstock")).join("fileset"),
    }
}

/// For what NFS mount targets keep.
pub(crate) fn nfs(environment: &Environment) -> OwnPlace {
    match in_home(environment, "XDG_DATA_HOME", ".local/share") {
        _ if is_root() => OwnPlace::new("/var/lib", "penstock/nfs"),
        Some(data) => OwnPlace::new(data, "penstock/nfs"),
        None => OwnPlace::new(SHARED, of_user("penstock")).join("nfs"),
    }
}

/// What mount targets are called where mounts are called by their mount points: by their address, or by their file.
pub(crate) fn of_target(name: &str) -> PathBuf {
    Path::new(TARGETS).join(name.trim_start_matches('/'))
}

/// Whether a path is such a name.
pub(crate) fn is_of_target(path: &Path) -> bool {
    path.starts_with(TARGETS)
}

/// What a directory lies in, and its name there.
fn parted(directory: &Path) -> Option<(&Path, &Path)> {
    Some((directory.parent()?, directory.file_name()?.as_ref()))
}

/// Where older versions staged it, whoever ran them.
pub(crate) fn older_staging(name: &str) -> OwnPlace {
    OwnPlace::new(SHARED, of_user("penstock-staging")).join(name)
}

fn in_home(environment: &Environment, variable: &str, usual: &str) -> Option<PathBuf> {
    let home = || Some(environment.directory("HOME")?.join(usual));
    environment.directory(variable).or_else(home)
}

fn of_user(name: &str) -> String {
    format!("{name}-{}", user_id())
}

/// Whether anything is in a directory of a place.
pub(crate) fn has_entries(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_home_places_carry_the_number_of_the_user() {
        if is_root() {
            return penstock_skips::skipped("root's places carry no number");
        }
        let none = Environment::of(&[]);
        let id = user_id().to_string();
        let places = [logs(&none), indexes(&none), staging("x")].map(|place| place.path());
        for path in places.into_iter().chain([sockets(&none).path()]) {
            let path = path.display().to_string();
            assert!(path.contains(&id), "{path}");
        }
    }

    #[test]
    fn filesets_lie_where_a_variable_says() {
        let named = Environment::of(&[(FILESETS_VARIABLE, "/srv/a/b"), ("HOME", "/home/me")]);
        assert_eq!(filesets(&named).path(), Path::new("/srv/a/b"));
        let relative = Environment::of(&[(FILESETS_VARIABLE, "b"), ("HOME", "/home/me")]);
        assert!(filesets(&relative).path().ends_with("penstock/fileset"));
    }

    #[test]
    fn each_mount_stages_in_a_place_of_its_own() {
        assert_ne!(staging("a"), staging("b"));
        assert_eq!(older_staging("a").path().file_name(), Some("a".as_ref()));
    }
}
