//! `penstock cache warm WHAT`: reads files through their mount, so that its cache has them.
//!
//! Files are read past the kernel's own cache, or what lies there would never reach the mount's. A
//! disk that is slower than the store makes the cache leave bytes out; those are asked for again.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_base::{
    MIB, Mutex, clock,
    metrics::{Definition, table as metrics},
};

use crate::{
    control::{Phase, Status, client},
    environment::Environment,
    failure::{Failure, Outcome},
    mount_table, output, places, sharing, text_table,
};

/// Files that are read at once.
const READERS: usize = 4;

/// Bytes that are asked for at once.
const READ_SIZE: usize = 4 * MIB as usize;

/// Bytes that the cache may have waiting for its disk before somebody reads on.
const WAITING_MAX: u64 = 16 * MIB;

/// How often a reader looks whether they are fewer before it goes on in any case.
const LOOKS_MAX: usize = 500;

/// How often everything is read when the cache leaves something out.
const PASSES_MAX: usize = 3;

const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Failed files that are named one by one.
const NAMED_MAX: u64 = 10;

pub(super) fn command() -> Command {
    Command::new("warm")
        .about("Read files through their mount, so that its disk cache has them")
        .arg(
            Arg::new("what")
                .value_name("WHAT")
                .required(true)
                .help("A file or directory in a mount, or the SOURCE of a mount for all of it"),
        )
        .arg(
            Arg::new("readers")
                .long("readers")
                .value_name("COUNT")
                .value_parser(value_parser!(u8).range(1..=64))
                .help(format!("Files read at once, 1 to 64 [default: {READERS}]")),
        )
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let what = matches.get_one::<String>("what").expect("required");
    let readers = matches.get_one::<u8>("readers").copied();
    let readers = readers.map_or(READERS, usize::from);
    let place = places::sockets(environment);
    let mounts = client::all(&place).into_iter().map(|found| found.status);
    let mounts: Vec<_> = mounts.filter(is_there).collect();
    let (mountpoint, root) = locate(what, &mounts)?;
    let socket = sharing::sockets_at(&place, &mountpoint)?.swap_remove(0);
    for pass in 1..=PASSES_MAX {
        let before = left_out(&socket)?;
        let warming = Warming::new(&root, &socket);
        warming.read_all(readers);
        let missing = left_out(&socket)?.saturating_sub(before);
        if missing == 0 || pass == PASSES_MAX {
            return warming.report(missing);
        }
    }
    Ok(())
}

/// Whether programs see a mount. The kernel shows one a moment before its program says that it is mounted.
fn is_there(mount: &Status) -> bool {
    match mount.phase {
        Phase::Mounted => true,
        Phase::Starting => mount_table::find(&mount.mountpoint).is_ok_and(|entry| entry.is_some()),
        Phase::Saving => false,
    }
}

/// The mount point and the place in it that `what` names.
fn locate(what: &str, mounts: &[Status]) -> Outcome<(PathBuf, PathBuf)> {
    if what.contains(":/") && !Path::new(what).exists() {
        let wanted = what.trim_end_matches('/');
        let same = |mount: &&Status| mount.source.trim_end_matches('/') == wanted;
        let mount = mounts.iter().find(same).ok_or_else(|| {
            Failure::new(
                format!("`{what}` is not mounted by this user"),
                "mount it with --cache-dir first; `penstock stats` lists the mounts",
            )
        })?;
        return Ok((mount.mountpoint.clone(), mount.mountpoint.clone()));
    }
    let path = fs::canonicalize(what).map_err(|error| {
        Failure::new(
            format!("`{what}` cannot be found: {error}"),
            "name a file or directory in a mount, or the source of one",
        )
    })?;
    let mut around = mounts
        .iter()
        .filter(|mount| sharing::places(mount).any(|at| path.starts_with(at)));
    let mount = around.next().ok_or_else(|| {
        Failure::new(
            format!("`{what}` is in no mount of this user"),
            "`penstock stats` lists the mounts",
        )
    })?;
    Ok((mount.mountpoint.clone(), path))
}

/// Bytes that the cache of a mount has left out so far.
fn left_out(socket: &Path) -> Outcome<u64> {
    metric(socket, &metrics::CACHE_SKIPPED_BYTES)
}

/// What a mount's cache says.
fn metric(socket: &Path, wanted: &Definition) -> Outcome<u64> {
    let status = client::status(socket).map_err(|error| {
        Failure::new(
            format!("the mount does not answer: {error}"),
            "look into its log",
        )
    })?;
    let mut metrics = status.metrics.iter();
    let found = metrics
        .find(|metric| metric.name == wanted.name)
        .ok_or_else(|| Failure::new("the mount has no disk cache", "mount with --cache-dir"))?;
    Ok(found.value)
}

/// Files that are being read.
struct Warming {
    /// Where the mount can be asked how it is.
    socket: PathBuf,
    /// Directories and files to look at. A directory's entries replace it.
    paths: Mutex<VecDeque<PathBuf>>,
    busy: AtomicUsize,
    files: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
}

impl Warming {
    fn new(root: &Path, socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            paths: Mutex::new(VecDeque::from([root.to_owned()])),
            busy: AtomicUsize::new(0),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Reads everything, and shows how far it is.
    fn read_all(&self, readers: usize) {
        thread::scope(|scope| {
            let readers: Vec<_> = (0..readers).map(|_| scope.spawn(|| self.work())).collect();
            while readers.iter().any(|reader| !reader.is_finished()) {
                let shown = output::draw(Some(&self.progress()));
                clock::pause(if shown { PROGRESS_INTERVAL } else { PAUSE });
            }
            output::draw(None);
        });
    }

    fn work(&self) {
        let mut buffer = vec![0; READ_SIZE];
        loop {
            let Some(path) = self.next() else {
                if self.busy.load(Ordering::SeqCst) == 0 && self.is_empty() {
                    return;
                }
                clock::pause(PAUSE);
                continue;
            };
            if let Err(error) = self.visit(&path, &mut buffer)
                && self.failed.fetch_add(1, Ordering::Relaxed) < NAMED_MAX
            {
                output::complain(&format!("`{}`: {error}", path.display()));
            }
            self.busy.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The next path; whoever takes it is busy.
    fn next(&self) -> Option<PathBuf> {
        let mut paths = self.paths.lock();
        let path = paths.pop_back()?;
        self.busy.fetch_add(1, Ordering::SeqCst);
        Some(path)
    }

    fn is_empty(&self) -> bool {
        let paths = self.paths.lock();
        paths.is_empty()
    }

    fn visit(&self, path: &Path, buffer: &mut [u8]) -> io::Result<()> {
        let kind = fs::symlink_metadata(path)?.file_type();
        if kind.is_dir() {
            for entry in fs::read_dir(path)? {
                let path = entry?.path();
                let mut paths = self.paths.lock();
                paths.push_back(path);
            }
        } else if kind.is_file() {
            self.read(path, buffer)?;
            self.files.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn read(&self, path: &Path, buffer: &mut [u8]) -> io::Result<()> {
        let direct = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(path);
        let mut file = direct.or_else(|_| File::open(path))?;
        loop {
            match file.read(buffer)? {
                0 => return Ok(()),
                count => self.bytes.fetch_add(count as u64, Ordering::Relaxed),
            };
            self.wait_for_disk();
        }
    }

    /// Waits until the cache has written most of what it received.
    fn wait_for_disk(&self) {
        for _ in 0..LOOKS_MAX {
            match metric(&self.socket, &metrics::CACHE_WAITING_BYTES) {
                Ok(waiting) if waiting > WAITING_MAX => clock::pause(PAUSE),
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn progress(&self) -> String {
        let files = self.files.load(Ordering::Relaxed);
        let bytes = text_table::bytes(self.bytes.load(Ordering::Relaxed));
        format!("{files} files read, {bytes}")
    }

    fn report(&self, missing: u64) -> Outcome {
        let mut line = self.progress();
        if missing > 0 {
            let missing = text_table::bytes(missing);
            line.push_str(&format!(
                "; {missing} were not cached: the cache is too small or its disk too slow"
            ));
        }
        output::print_line(&line)?;
        match self.failed.load(Ordering::Relaxed) {
            0 => Ok(()),
            failed => Err(Failure::new(
                format!("{failed} files could not be read"),
                "see the lines above",
            )),
        }
    }
}

/// How long somebody waits who has nothing to do at the moment.
const PAUSE: Duration = Duration::from_millis(10);
