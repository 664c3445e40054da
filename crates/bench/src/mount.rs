//! A client's mount, from its start to its end: fresh directories, the command, the wait for the
//! mount table, and an unmount that gets harder until it works.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    BenchResult,
    catalog::ClientSpec,
    client::{Client, Kind},
    proc_fs,
    process::{self, Mark, Running, Task},
    session::{CLIENT, Session, make_private},
    store::Store,
    system,
    template::{self, Variables, variables},
    watchdog,
};

/// Between looks at the mount table.
const LOOK: Duration = Duration::from_millis(5);
/// How long one attempt to unmount may take; what is not stored yet is stored then.
const UNMOUNT_LIMIT: Duration = Duration::from_secs(60);
/// How long a mount may be busy, with an indexer or a straggler.
const BUSY_LIMIT: Duration = Duration::from_secs(5);
/// Between attempts while it is.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How long a client may take to end after it was unmounted.
const END_LIMIT: Duration = Duration::from_secs(20);
/// How long the command may take that cleans up after a client.
const CLEANUP_LIMIT: Duration = Duration::from_secs(20);
/// How long one of a client's setup commands may take.
const SETUP_LIMIT: Duration = Duration::from_secs(60);

/// The directories of one mount, all fresh.
#[derive(Debug)]
pub(crate) struct Area {
    root: PathBuf,
    pub(crate) mountpoint: PathBuf,
    pub(crate) cache: PathBuf,
    private: PathBuf,
}

impl Area {
    pub(crate) fn make(session: &Session) -> BenchResult<Self> {
        let root = session
            .directory
            .join(format!("mount-{}", session.number()));
        let area = Self {
            mountpoint: root.join("mnt"),
            cache: root.join("cache"),
            private: root.join("private"),
            root,
        };
        for part in [&area.mountpoint, &area.cache, &area.private] {
            make_private(part)?;
        }
        Ok(area)
    }

    pub(crate) fn variables(&self) -> Variables {
        variables([
            ("mountpoint", self.mountpoint.display().to_string()),
            ("cache", self.cache.display().to_string()),
            ("private", self.private.display().to_string()),
        ])
    }

    /// Removes everything; what is still mounted is left to the watchdog.
    pub(crate) fn remove(&self) {
        if proc_fs::mounts(&self.root, true).is_empty() {
            // What cannot be removed now is removed at the end.
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// A client that is mounted.
#[derive(Debug)]
pub(crate) struct Mounted {
    /// Where files are: the mount point, or our part of a directory that is mounted already.
    pub(crate) directory: PathBuf,
    mount: Option<Mount>,
}

#[derive(Debug)]
struct Mount {
    area: Area,
    task: Task,
    running: Running,
    ending: Ending,
}

/// How a client ends, and where it says what went wrong.
#[derive(Debug)]
struct Ending {
    unmount: Vec<String>,
    /// What removes what it leaves when it is killed.
    cleanup: Option<Task>,
    /// Where it complains, if not at its standard error.
    log: Option<PathBuf>,
}

/// Why a client is not mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountFailure(pub(crate) String);

impl Mounted {
    /// Mounts, or takes the directory that is there.
    pub(crate) fn begin(
        client: &Client,
        session: &Session,
        store: Option<&Store>,
    ) -> Result<Self, MountFailure> {
        match (&client.kind, store) {
            (Kind::Directory(directory), _) => Ok(Self {
                directory: directory.clone(),
                mount: None,
            }),
            (Kind::Program(spec, _), Some(store)) => {
                let attempt = Attempt {
                    client,
                    session,
                    store,
                };
                attempt
                    .mount(spec)
                    .map_err(|why| MountFailure(store.redact(&why)))
            }
            _ => Err(MountFailure("there is nothing to mount".to_owned())),
        }
    }

    /// The mark of the client's processes.
    pub(crate) fn mark(&self) -> Option<Mark> {
        self.mount.as_ref().map(|mount| mount.task.mark.clone())
    }

    /// Where the client keeps files.
    pub(crate) fn cache(&self) -> &Path {
        self.mount
            .as_ref()
            .map_or(Path::new(""), |mount| &mount.area.cache)
    }

    /// What the client complained about last.
    pub(crate) fn complaint(&self) -> String {
        self.mount.as_ref().map_or(String::new(), Mount::complaint)
    }

    /// Whether the client has gone.
    pub(crate) fn is_dead(&mut self) -> bool {
        match &mut self.mount {
            Some(mount) => {
                mount.running.ending().is_some() && mount.task.mark.processes().is_empty()
            }
            None => false,
        }
    }

    /// Ends the mount whatever it takes, and says what it took when that was not the usual way.
    pub(crate) fn end(self, session: &Session) -> Result<(), String> {
        match self.mount {
            Some(mount) => mount.end(session),
            None => Ok(()),
        }
    }

    /// Ends the mount at once, for a client that hangs.
    pub(crate) fn abort(self, session: &Session) {
        if let Some(mut mount) = self.mount {
            mount.force(session);
            mount.area.remove();
        }
    }
}

/// A client on its way to a mount, or to a command of its own.
pub(crate) struct Attempt<'a> {
    pub(crate) client: &'a Client,
    pub(crate) session: &'a Session,
    pub(crate) store: &'a Store,
}

impl Attempt<'_> {
    fn mount(&self, spec: &ClientSpec) -> Result<Mounted, String> {
        let area = Area::make(self.session)?;
        let mut known = self.client.variables(self.session, self.store);
        known.extend(area.variables());
        match self.start(spec, &area, &known) {
            Ok((task, running, ending)) => {
                let directory = area.mountpoint.clone();
                let mut mount = Mount {
                    area,
                    task,
                    running,
                    ending,
                };
                if let Err(why) = mount.wait(Duration::from_secs(spec.ready_seconds)) {
                    mount.force(self.session);
                    mount.area.remove();
                    return Err(why);
                }
                Ok(Mounted {
                    directory,
                    mount: Some(mount),
                })
            }
            Err(why) => {
                area.remove();
                Err(why)
            }
        }
    }

    fn start(
        &self,
        spec: &ClientSpec,
        area: &Area,
        known: &Variables,
    ) -> Result<(Task, Running, Ending), String> {
        write_files(spec, area, known)?;
        self.set_up(spec, area, known)?;
        let task = self.task(spec, area, known, &spec.mount)?;
        let ending = self.ending(spec, known)?;
        let running = task
            .start()
            .map_err(|error| format!("cannot be started: {error}"))?;
        Ok((task, running, ending))
    }

    fn ending(&self, spec: &ClientSpec, known: &Variables) -> Result<Ending, String> {
        let cleanup = match spec.cleanup.as_slice() {
            [] => None,
            words => {
                let arguments = template::expand_all(words, known)?;
                Some(self.session.task("cleanup", arguments))
            }
        };
        if let Some(task) = &cleanup {
            self.session.at_end(task)?;
        }
        let log = template::expand(&spec.log, known)?;
        Ok(Ending {
            unmount: template::expand_all(&spec.unmount, known)?,
            cleanup,
            log: (!log.is_empty()).then(|| PathBuf::from(log)),
        })
    }

    /// Once for each client: the directory of its state tells whether it was done.
    fn set_up(&self, spec: &ClientSpec, area: &Area, known: &Variables) -> Result<(), String> {
        let state = self.session.state(&self.client.name);
        if state.exists() {
            return Ok(());
        }
        make_private(&state)?;
        for command in &spec.setup {
            let task = self.task(spec, area, known, command)?;
            if let Err(why) = self.session.run(&task, SETUP_LIMIT) {
                // The next attempt begins anew.
                let _ = fs::remove_dir_all(&state);
                return Err(why);
            }
        }
        Ok(())
    }

    /// One of the client's commands, with its environment.
    pub(crate) fn task(
        &self,
        spec: &ClientSpec,
        area: &Area,
        known: &Variables,
        command: &[String],
    ) -> Result<Task, String> {
        let arguments = template::expand_all(command, known)?;
        let mut task = self.session.task(CLIENT, arguments);
        task.environment = self.session.environment(&area.cache);
        for (name, value) in &spec.environment {
            let value = template::expand(value, known)?;
            // An empty session token is not the same as none.
            if !value.is_empty() {
                task.environment.insert(name.clone(), value);
            }
        }
        Ok(task)
    }
}

/// Makes the files that a client wants.
pub(crate) fn write_files(spec: &ClientSpec, area: &Area, known: &Variables) -> Result<(), String> {
    for (name, content) in &spec.files {
        let content = template::expand(content, known)?;
        write_private(&area.private.join(name), &content)
            .map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

fn write_private(path: &Path, content: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content.as_bytes())
}

impl Mount {
    /// Waits until the kernel has the mount. A command that ends well may have left a daemon.
    fn wait(&mut self, limit: Duration) -> Result<(), String> {
        let outcome = system::until(limit, LOOK, || {
            if proc_fs::mount_at(&self.area.mountpoint).is_some() {
                return Some(Ok(()));
            }
            let status = self.running.ending().filter(|status| !status.success());
            match status {
                Some(status) => Some(Err(format!(
                    "did not mount, {status}: {}",
                    self.complaint()
                ))),
                None => system::interrupted().then(|| Err("interrupted".to_owned())),
            }
        });
        outcome.unwrap_or_else(|| {
            let why = format!("was not mounted within {limit:.0?} {}", self.complaint());
            Err(why.trim_end().to_owned())
        })
    }

    fn end(mut self, session: &Session) -> Result<(), String> {
        let outcome = self.unmount(session).and_then(|()| self.wait_end());
        if outcome.is_err() {
            self.force(session);
        }
        self.area.remove();
        outcome
    }

    fn unmount(&self, session: &Session) -> Result<(), String> {
        let mountpoint = self.area.mountpoint.display().to_string();
        let command = match (self.ending.unmount.as_slice(), system::is_root()) {
            ([], true) => vec!["umount".to_owned(), mountpoint],
            ([], false) => vec!["fusermount3".to_owned(), "-u".to_owned(), mountpoint],
            (command, _) => command.to_vec(),
        };
        let mut why = "it is still mounted".to_owned();
        let outcome = system::until(BUSY_LIMIT, BUSY_PAUSE, || {
            let task = session.task("unmount", command.clone());
            if let Err(complaint) = session.run(&task, UNMOUNT_LIMIT) {
                why = complaint;
            }
            let is_gone = proc_fs::mount_at(&self.area.mountpoint).is_none();
            (is_gone || system::interrupted()).then_some(is_gone)
        });
        match outcome {
            Some(true) => Ok(()),
            _ => Err(format!("could not be unmounted: {why}")),
        }
    }

    fn wait_end(&mut self) -> Result<(), String> {
        let ended = self.running.wait_calmly(END_LIMIT) && self.task.mark.gone_within(END_LIMIT);
        if ended {
            return Ok(());
        }
        Err(format!(
            "was still running {END_LIMIT:.0?} after it was unmounted"
        ))
    }

    /// Takes the mount out of the tree, then ends the processes: asked, then killed, then by
    /// ending the connection that they hang in.
    fn force(&mut self, session: &Session) {
        let mounts = proc_fs::mounts(&self.area.mountpoint, false);
        for mount in &mounts {
            watchdog::detach(&mount.mountpoint);
        }
        if !self.task.mark.end_all(true) {
            mounts.iter().for_each(proc_fs::abort);
            self.task.mark.end_all(false);
        }
        // Killed above; the kernel keeps its number until it is waited for.
        self.running.wait_calmly(BUSY_LIMIT);
        watchdog::unmount_below(&self.area.root);
        if let Some(cleanup) = &self.ending.cleanup {
            // What it cannot remove now, it is asked for again at the end.
            let _ = session.run(cleanup, CLEANUP_LIMIT);
        }
    }

    /// What the client said last about what went wrong.
    fn complaint(&self) -> String {
        let said = self.task.complaint();
        match &self.ending.log {
            Some(log) if said.is_empty() => {
                let text = fs::read(log).unwrap_or_default();
                process::last_words(&String::from_utf8_lossy(&text))
            }
            _ => said,
        }
    }
}
