//! Limits that the kernel enforces, with control groups of version 2.
//!
//! The process moves into a group of its own, below the one that it is in or, where that one has
//! processes and so cannot limit groups below it, beside it. Neither needs more than the right to
//! write there. Where there is no such right, or no version 2, the volume's own limits remain.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::ResourceLimits;

/// Where version 2 is mounted on all current systems.
const ROOT: &str = "/sys/fs/cgroup";

/// Says which groups a process is in.
const OWN_GROUPS: &str = "/proc/self/cgroup";

/// Microseconds over which processor time is measured.
const PERIOD: u64 = 100_000;

/// Why the kernel does not enforce the limits.
#[derive(Debug, thiserror::Error)]
pub enum NotConfined {
    /// There are no groups that could.
    #[error(
        "no control groups of version 2 here: memory and processors are limited by the volume alone"
    )]
    NoGroups,
    /// The process may not make one.
    #[error(
        "no control group could be made at {path} ({source}): memory and processors are limited by \
         the volume alone; run with a delegated group to have the kernel enforce them"
    )]
    Refused {
        /// Where it was tried.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The control groups that a process sees.
#[derive(Debug, Clone)]
pub struct ControlGroups {
    root: PathBuf,
    /// The group that the process is in.
    own: PathBuf,
}

impl ControlGroups {
    /// Those of this process.
    pub fn of_this_process() -> Result<Self, NotConfined> {
        let groups = fs::read_to_string(OWN_GROUPS).unwrap_or_default();
        Self::new(Path::new(ROOT), &groups)
    }

    /// `root` is where version 2 is mounted, `groups` what /proc/self/cgroup says.
    fn new(root: &Path, groups: &str) -> Result<Self, NotConfined> {
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        let has_controllers = root.join("cgroup.controllers").exists();
        let own = own.filter(|_| has_controllers);
        Ok(Self {
            own: root.join(own.ok_or(NotConfined::NoGroups)?),
            root: root.to_path_buf(),
        })
    }

    /// Moves the process into a new group called `penstock-NAME` with these limits. What it has
    /// in memory already does not move with it.
    pub fn confine(&self, name: &str, limits: &ResourceLimits) -> Result<Confined, NotConfined> {
        let group = format!("penstock-{name}");
        let below = self.try_in(&self.own, &group, limits);
        let Some(beside) = self.own.parent().filter(|_| self.own != self.root) else {
            return below;
        };
        below.or_else(|_| self.try_in(beside, &group, limits))
    }

    fn try_in(
        &self,
        parent: &Path,
        name: &str,
        limits: &ResourceLimits,
    ) -> Result<Confined, NotConfined> {
        let group = parent.join(name);
        let entered = make(&group, parent).and_then(|()| enter(&group, limits));
        match entered {
            Ok(()) => Ok(Confined {
                group,
                before: self.own.clone(),
            }),
            Err(source) => {
                // What was made and holds nobody must not stay behind.
                drop(fs::remove_dir(&group));
                Err(NotConfined::Refused {
                    path: group,
                    source,
                })
            }
        }
    }
}

/// Makes a group whose memory and processors can be limited.
fn make(group: &Path, parent: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        // A process that was killed has left it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    if group.join("memory.max").exists() && group.join("cpu.max").exists() {
        return Ok(());
    }
    write(&parent.join("cgroup.subtree_control"), "+cpu +memory")
}

fn enter(group: &Path, limits: &ResourceLimits) -> io::Result<()> {
    let processors = Some(limits.processors).filter(|count| *count < u32::MAX);
    let memory = Some(limits.memory).filter(|bytes| *bytes < u64::MAX);
    let quota = or_max(processors.map(|count| u64::from(count) * PERIOD));
    write(&group.join("cpu.max"), &format!("{quota} {PERIOD}"))?;
    write(&group.join("memory.max"), &or_max(memory))?;
    write(&group.join("cgroup.procs"), "0")
}

/// A number in the kernel's words, which has one for no limit.
fn or_max(number: Option<u64>) -> String {
    number.map_or_else(|| "max".to_owned(), |number| number.to_string())
}

/// Writes to a file that the kernel has made, and makes none.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::File::options().write(true).open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

/// The process is in a group of its own until this is dropped.
#[derive(Debug)]
pub struct Confined {
    group: PathBuf,
    before: PathBuf,
}

impl Confined {
    /// Where the group is.
    pub fn path(&self) -> &Path {
        &self.group
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        let left = write(&self.before.join("cgroup.procs"), "0");
        let removed = left.and_then(|()| fs::remove_dir(&self.group));
        if let Err(error) = removed {
            let group = self.group.display();
            tracing::debug!("the control group {group} stays behind: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tier;

    /// A folder that looks like a mounted hierarchy, with these groups and files in it.
    fn hierarchy(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().expect("below the folder")).expect("made");
            fs::write(path, "").expect("written");
        }
        folder
    }

    fn confine(folder: &tempfile::TempDir) -> Result<Confined, NotConfined> {
        let groups = ControlGroups::new(folder.path(), "4:memory:/x\n0::/slice/service\n")?;
        groups.confine("a", &Tier::NAMED[1].limits())
    }

    #[test]
    fn the_process_moves_into_a_group_with_the_limits() {
        for place in ["slice/service/penstock-a", "slice/penstock-a"] {
            let inside = ["cpu.max", "memory.max", "cgroup.procs"];
            let mut files: Vec<String> = inside.map(|file| format!("{place}/{file}")).into();
            files.push("cgroup.controllers".to_owned());
            files.push("slice/service/cgroup.procs".to_owned());
            let folder = hierarchy(&files.iter().map(String::as_str).collect::<Vec<_>>());
            let confined = confine(&folder).expect("confined");
            let group = folder.path().join(place);
            assert_eq!(confined.path(), group);
            let said = inside.map(|file| fs::read_to_string(group.join(file)).expect("read"));
            assert_eq!(said, ["400000 100000", "8589934592", "0"]);
            drop(confined);
            let back = fs::read_to_string(folder.path().join("slice/service/cgroup.procs"));
            assert_eq!(back.expect("read"), "0");
        }
    }

    #[test]
    fn no_limit_is_the_kernels_word_for_it() {
        let inside = ["cpu.max", "memory.max", "cgroup.procs"];
        let files = inside.map(|file| format!("g/{file}"));
        let folder = hierarchy(&files.each_ref().map(String::as_str));
        let group = folder.path().join("g");
        enter(&group, &ResourceLimits::NONE).expect("entered");
        let said = inside.map(|file| fs::read_to_string(group.join(file)).expect("read"));
        assert_eq!(said, ["max 100000", "max", "0"]);
    }

    #[test]
    fn nothing_stays_behind_where_it_is_refused() {
        let folder = hierarchy(&["cgroup.controllers", "slice/service/cgroup.procs"]);
        let refused = confine(&folder).expect_err("no controllers");
        assert!(matches!(refused, NotConfined::Refused { .. }), "{refused}");
        assert!(!folder.path().join("slice/penstock-a").exists());
        assert!(!folder.path().join("slice/service/penstock-a").exists());
    }

    #[test]
    fn version_1_has_no_such_groups() {
        let folder = hierarchy(&["memory/tasks"]);
        assert!(matches!(confine(&folder), Err(NotConfined::NoGroups)));
        let other = hierarchy(&["cgroup.controllers"]);
        let groups = ControlGroups::new(other.path(), "4:memory:/x\n");
        assert!(matches!(groups, Err(NotConfined::NoGroups)));
    }
}
