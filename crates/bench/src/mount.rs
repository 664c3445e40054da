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
    client::{Client, ClientSpec, Kind},
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
/// How long a client may take to mount if its table does not say.
const READY_LIMIT: Duration = Duration::from_secs(30);
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

/// The directories of one mount, all fresh. They go when it does; what is still mounted is left to the watchdog.
#[derive(Debug)]
pub(crate) struct Area {
    root: PathBuf,
    pub(crate) mountpoint: PathBuf,
    pub(crate) cache: PathBuf,
    private: PathBuf,
}

impl Area {
    fn make(session: &Session) -> BenchResult<Self> {
        let name = format!("mount-{}", session.number());
        let root = session.directory.join(name);
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

    fn variables(&self) -> Variables {
        variables([
            ("mountpoint", self.mountpoint.display().to_string()),
            ("cache", self.cache.display().to_string()),
            ("private", self.private.display().to_string()),
        ])
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if proc_fs::mounts(&self.root, true).is_empty() {
            // What cannot be removed now is removed at the end.
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// A client with fresh directories and the files that it wants, on its way to a mount, or to a command of its own.
pub(crate) struct Attempt<'a> {
    client: &'a Client,
    session: &'a Session,
    spec: &'a ClientSpec,
    pub(crate) area: Area,
    pub(crate) known: Variables,
    /// What tells it which certificates to trust.
    trust: Variables,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(
        (client, spec): (&'a Client, &'a ClientSpec),
        session: &'a Session,
        store: &Store,
    ) -> Result<Self, String> {
        let area = Area::make(session)?;
        let mut known = client.variables(session, store);
        known.extend(area.variables());
        for (name, content) in &spec.files {
            let content = template::expand(content, &known)?;
            write_private(&area.private.join(name), &content)
                .map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(Self {
            client,
            session,
            spec,
            area,
            known,
            trust: store.trust().collect(),
        })
    }

    fn mount(self) -> Result<Mount, String> {
        self.set_up()?;
        let task = self.task(&self.spec.mount)?;
        let cleanup = match self.spec.cleanup.as_slice() {
            [] => None,
            words => {
                let words = template::expand_all(words, &self.known)?;
                Some(self.session.task("cleanup", words))
            }
        };
        if let Some(task) = &cleanup {
            self.session.at_end(task)?;
        }
        let log = template::expand(&self.spec.log, &self.known)?;
        let running = task.start();
        let mut mount = Mount {
            running: running.map_err(|error| format!("cannot be started: {error}"))?,
            task,
            unmount: template::expand_all(&self.spec.unmount, &self.known)?,
            cleanup,
            log: (!log.is_empty()).then(|| PathBuf::from(log)),
            area: self.area,
        };
        let ready = self
            .spec
            .ready_seconds
            .map_or(READY_LIMIT, Duration::from_secs);
        if let Err(why) = mount.wait(ready) {
            mount.force(self.session);
            return Err(why);
        }
        Ok(mount)
    }

    /// Once for each client and store: the directory of its state tells whether it was done.
    fn set_up(&self) -> Result<(), String> {
        let state = self.session.state(&self.client.name);
        if state.exists() {
            return Ok(());
        }
        make_private(&state)?;
        for command in &self.spec.setup {
            if let Err(why) = self.session.run(&self.task(command)?, SETUP_LIMIT) {
                // The next attempt begins anew.
                let _ = fs::remove_dir_all(&state);
                return Err(why);
            }
        }
        Ok(())
    }

    pub(crate) fn task(&self, command: &[String]) -> Result<Task, String> {
        let arguments = template::expand_all(command, &self.known)?;
        let mut task = self.session.task(CLIENT, arguments);
        task.environment = self.session.environment(&self.area.cache);
        task.environment.extend(self.trust.clone());
        for (name, value) in &self.spec.environment {
            let value = template::expand(value, &self.known)?;
            // An empty session token is not the same as none.
            if !value.is_empty() {
                task.environment.insert(name.clone(), value);
            }
        }
        Ok(task)
    }
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

#[derive(Debug)]
pub(crate) struct Mounted {
    /// Where files are: the mount point, or our part of a directory that is mounted already.
    pub(crate) directory: PathBuf,
    mount: Option<Mount>,
}

impl Mounted {
    /// Mounts, or takes the directory that is there.
    pub(crate) fn begin(
        client: &Client,
        session: &Session,
        store: Option<&Store>,
    ) -> Result<Self, String> {
        let (directory, mount) = match (&client.kind, store) {
            (Kind::Directory(directory), _) => (directory.clone(), None),
            (Kind::Program(spec, _), Some(store)) => {
                let attempt = Attempt::new((client, spec), session, store);
                let mount = attempt.and_then(Attempt::mount);
                let mount = mount.map_err(|why| store.redact(&why))?;
                (mount.area.mountpoint.clone(), Some(mount))
            }
            _ => return Err("there is nothing to mount".to_owned()),
        };
        Ok(Self { directory, mount })
    }

    pub(crate) fn mark(&self) -> Option<Mark> {
        self.mount.as_ref().map(|mount| mount.task.mark.clone())
    }

    pub(crate) fn cache(&self) -> &Path {
        let mount = self.mount.as_ref();
        mount.map_or(Path::new(""), |mount| &mount.area.cache)
    }

    pub(crate) fn complaint(&self) -> String {
        self.mount.as_ref().map_or(String::new(), Mount::complaint)
    }

    pub(crate) fn is_dead(&mut self) -> bool {
        let is_dead = |mount: &mut Mount| {
            mount.running.ending().is_some() && mount.task.mark.processes().is_empty()
        };
        self.mount.as_mut().is_some_and(is_dead)
    }

    /// Ends the mount whatever it takes, and says what it took when that was not the usual way.
    pub(crate) fn end(self, session: &Session) -> Result<(), String> {
        self.mount.map_or(Ok(()), |mut mount| mount.end(session))
    }

    /// Ends the mount at once, for a client that hangs.
    pub(crate) fn abort(self, session: &Session) {
        if let Some(mut mount) = self.mount {
            mount.force(session);
        }
    }
}

#[derive(Debug)]
struct Mount {
    task: Task,
    running: Running,
    unmount: Vec<String>,
    /// What removes what it leaves when it is killed.
    cleanup: Option<Task>,
    /// Where it complains, if not at its standard error.
    log: Option<PathBuf>,
    area: Area,
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

    fn end(&mut self, session: &Session) -> Result<(), String> {
        let outcome = self.unmount(session).and_then(|()| self.wait_end());
        if outcome.is_err() {
            self.force(session);
        }
        outcome
    }

    fn unmount(&self, session: &Session) -> Result<(), String> {
        let mountpoint = self.area.mountpoint.display().to_string();
        let command = match (self.unmount.as_slice(), penstock_base::is_root()) {
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
        let why = || format!("was still running {END_LIMIT:.0?} after it was unmounted");
        ended.then_some(()).ok_or_else(why)
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
        if let Some(cleanup) = &self.cleanup {
            // What it cannot remove now, it is asked for again at the end.
            let _ = session.run(cleanup, CLEANUP_LIMIT);
        }
    }

    /// What the client said last about what went wrong.
    fn complaint(&self) -> String {
        let said = self.task.complaint();
        match &self.log {
            Some(log) if said.is_empty() => {
                let text = fs::read(log).unwrap_or_default();
                process::last_words(&String::from_utf8_lossy(&text))
            }
            _ => said,
        }
    }
}
