//! Where log messages go.
//!
//! A command in the foreground logs to standard error. A mount in the background logs to a file
//! that is opened before it leaves the foreground, so that an unusable path is reported to the
//! user and not to nobody. SIGHUP opens the file again, for logrotate; without it the file is
//! renamed at a fixed size, so that a mount that nobody looks after cannot fill a disk. The level can
//! be changed while a mount runs.

use std::{
    borrow::Cow,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use penstock_base::{MIB, Mutex};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    Registry,
    filter::Targets,
    fmt::{self, MakeWriter},
    layer::SubscriberExt as _,
    reload,
    util::SubscriberInitExt as _,
};

use crate::{
    control::mount_id,
    environment::Environment,
    failure::{Failure, Outcome},
    legible::legible,
    places,
};

/// Bytes at which a log file is set aside.
const FILE_SIZE_MAX: u64 = 64 * MIB;

/// A log file that can be opened again while it is in use. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct LogFile {
    path: PathBuf,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug)]
struct Open {
    file: File,
    size: u64,
}

impl LogFile {
    /// Opens `path` for appending, and makes its directory where that is missing.
    pub(crate) fn open(path: &Path) -> Outcome<Self> {
        if let Some(directory) = path.parent() {
            // What matters is whether the file can be opened.
            let _ = DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory);
        }
        let open = open_file(path).map_err(|error| {
            Failure::new(
                format!("cannot write the log file `{}`: {error}", path.display()),
                "name another with --log-file, or stay in the foreground with -f",
            )
        })?;
        Ok(Self {
            path: path.to_owned(),
            open: Arc::new(Mutex::new(open)),
        })
    }

    /// Opens the path again; keeps the old file when that fails.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        let fresh = open_file(&self.path)?;
        *self.open.lock() = fresh;
        Ok(())
    }
}

fn open_file(path: &Path) -> io::Result<Open> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    let size = file.metadata()?.len();
    Ok(Open { file, size })
}

impl Write for &LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut open = self.open.lock();
        if open.size + line.len() as u64 > FILE_SIZE_MAX {
            let mut old = self.path.clone().into_os_string();
            old.push(".old");
            fs::rename(&self.path, old)?;
            *open = open_file(&self.path)?;
        }
        let written = open.file.write(line)?;
        open.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// Sends messages of at least `level` to `file`, or to standard error without one.
pub(crate) fn start(level: &str, file: Option<&LogFile>) {
    start_with(level, file, discreet());
}

/// The same to standard error for a command that tells itself of what these modules log.
pub(crate) fn start_without(level: &str, modules: &[&'static str]) {
    let told = modules.iter().map(|module| (*module, LevelFilter::OFF));
    start_with(level, None, discreet().with_targets(told));
}

fn start_with(level: &str, file: Option<&LogFile>, targets: Targets) {
    let level: LevelFilter = level.parse().unwrap_or(LevelFilter::INFO);
    let (level, handle) = reload::Layer::new(level);
    let logger = tracing_subscriber::registry().with(level).with(targets);
    let format = fmt::layer().with_ansi(false);
    let started = match file {
        Some(file) => {
            let writer = OneLine(file.clone());
            logger.with(format.with_writer(writer)).try_init()
        }
        None => {
            let writer = OneLine(io::stderr);
            logger.with(format.with_writer(writer)).try_init()
        }
    };
    // A second start (in tests) changes nothing.
    if started.is_ok() {
        let _ = LEVEL.set(handle);
    }
}

/// Everything except what may hold secrets: `reqsign` tells at the level debug which command prints
/// credentials, with its arguments.
fn discreet() -> Targets {
    Targets::new()
        .with_default(LevelFilter::TRACE)
        .with_target("reqsign", LevelFilter::WARN)
}

/// Writes each message as one line, whatever names it holds.
struct OneLine<W>(W);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for OneLine<M> {
    type Writer = OneLine<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        OneLine(self.0.make_writer())
    }
}

impl<W: Write> Write for OneLine<W> {
    /// `message` is whole: the subscriber formats it in memory.
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(message);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        match legible(line) {
            Cow::Borrowed(_) => self.0.write_all(message)?,
            Cow::Owned(line) => self.0.write_all(format!("{line}\n").as_bytes())?,
        }
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The level of the log, where it was started.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// The levels, in the order in which they follow one another on request.
const LEVELS: [LevelFilter; 4] = [
    LevelFilter::ERROR,
    LevelFilter::WARN,
    LevelFilter::INFO,
    LevelFilter::DEBUG,
];

/// Changes the level of the log to the next one, and says which that is.
pub(crate) fn next_level() -> Option<LevelFilter> {
    let handle = LEVEL.get()?;
    let next = after(handle.clone_current()?);
    handle.reload(next).ok()?;
    Some(next)
}

fn after(level: LevelFilter) -> LevelFilter {
    let place = LEVELS.iter().position(|known| *known == level);
    LEVELS[place.map_or(0, |place| (place + 1) % LEVELS.len())]
}

/// Reports panics to the log as well: in the background nobody sees standard error.
pub(crate) fn catch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!("a part of the program failed: {panic}");
    }));
}

/// The log file of a mount in the background when none is named, in a directory that nobody else can
/// have prepared.
pub(crate) fn default_path(environment: &Environment, mountpoint: &Path) -> Outcome<PathBuf> {
    let directory = places::logs(environment).make().map_err(|error| {
        Failure::new(
            format!("the directory for logs cannot be used: {error}"),
            "remove it, or name a log file with --log-file",
        )
    })?;
    Ok(directory.join(file_name(mountpoint)))
}

/// `/mnt/data` becomes `mnt-data.log`. Where that could be the name of another mount point, too, the
/// identity of this one follows.
fn file_name(mountpoint: &Path) -> String {
    let text = mountpoint.to_string_lossy();
    let words = text.split('/').filter(|word| !word.is_empty());
    let mut name = words.collect::<Vec<_>>().join("-");
    let is_ambiguous = text.contains(['-', char::REPLACEMENT_CHARACTER]);
    if is_ambiguous || name.len() > FILE_NAME_LENGTH_MAX {
        name.truncate(name.floor_char_boundary(FILE_NAME_LENGTH_MAX));
        name = format!("{name}-{}", mount_id(mountpoint));
    }
    format!("{name}.log")
}

/// Bytes of a mount point that a log file's name keeps.
const FILE_NAME_LENGTH_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_moved_is_opened_again_on_request() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("deep/a.log");
        let log = LogFile::open(&path).expect("opened");
        (&log).write_all(b"one\n").expect("written");
        fs::rename(&path, directory.path().join("b.log")).expect("moved");
        log.reopen().expect("opened again");
        (&log).write_all(b"two\n").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("read"), "two\n");
    }

    #[test]
    fn a_full_file_is_set_aside() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("a.log");
        let file = File::create(&path).expect("made");
        file.set_len(FILE_SIZE_MAX - 1).expect("sparse");
        let log = LogFile::open(&path).expect("opened");
        (&log).write_all(b"line\n").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("read"), "line\n");
        let old = fs::metadata(directory.path().join("a.log.old")).expect("kept");
        assert_eq!(old.len(), FILE_SIZE_MAX - 1);
    }

    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("a.log");
        std::os::unix::fs::symlink("/tmp/elsewhere", &path).expect("made");
        assert!(LogFile::open(&path).is_err());
    }

    #[test]
    fn levels_follow_one_another_and_begin_again() {
        let mut level = LevelFilter::ERROR;
        let mut seen = Vec::new();
        for _ in 0..5 {
            level = after(level);
            seen.push(level.to_string());
        }
        assert_eq!(seen, ["warn", "info", "debug", "error", "warn"]);
        assert_eq!(after(LevelFilter::OFF), LevelFilter::ERROR);
    }

    #[test]
    fn each_mount_point_has_its_own_file() {
        assert_eq!(file_name(Path::new("/mnt/data")), "mnt-data.log");
        let names = ["/mnt/a/b", "/mnt/a-b", "/mnt-a/b"].map(|path| file_name(Path::new(path)));
        assert_eq!(names[0], "mnt-a-b.log");
        assert!(names[0] != names[1] && names[1] != names[2], "{names:?}");
        let long = |last: &str| file_name(Path::new(&format!("{}{last}", "/ä".repeat(400))));
        assert!(long("a").len() < 255);
        assert_ne!(long("a"), long("b"));
    }
}
