//! One invocation's place in the world: its directory, its mark, and the programs that it runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use penstock_base::{Mutex, random};

use crate::{
    BenchError, BenchResult,
    process::{Mark, Task},
    settings::{Surroundings, Target},
    system,
    watchdog::{self, Estate, Farewell, Watchdog},
    worker::{Job, Verdict},
};

/// What directories of invocations are called.
const DIRECTORY_PREFIX: &str = "penstock-bench-";
/// The part of clients: `client-17`.
pub(crate) const CLIENT: &str = "client";
/// How long a program that hangs may take to end before its mount is ended.
const REAPING: Duration = Duration::from_secs(1);

/// The invocation. Dropping it cleans up, see [`crate::watchdog`].
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) surroundings: Surroundings,
    token: String,
    pub(crate) directory: PathBuf,
    /// Our directory in the mounted one that is measured.
    pub(crate) elsewhere: Option<PathBuf>,
    next: AtomicU64,
    /// Counts the stores that clients have had.
    stores: AtomicU64,
    farewells: Mutex<BTreeSet<Farewell>>,
    _watchdog: Watchdog,
}

impl Session {
    /// Makes the directory, and whatever is needed to get rid of it.
    pub(crate) fn begin(surroundings: &Surroundings, target: &Target) -> BenchResult<Self> {
        let token = random::token();
        let name = format!("{DIRECTORY_PREFIX}{token}");
        let directory = surroundings.temporary.join(&name);
        let elsewhere = match target {
            Target::Directory(mounted) => Some(mounted.join(&name)),
            _ => None,
        };
        let estate = Estate {
            token: token.clone(),
            directory: directory.clone(),
            elsewhere: elsewhere.clone(),
        };
        let watchdog = Watchdog::start(&surroundings.program, &estate)?;
        for part in ["logs", "home", "state", "server"] {
            make_private(&directory.join(part))?;
        }
        Ok(Self {
            surroundings: surroundings.clone(),
            token,
            directory,
            elsewhere,
            next: AtomicU64::new(0),
            stores: AtomicU64::new(0),
            farewells: Mutex::default(),
            _watchdog: watchdog,
        })
    }

    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A program to run, outside every mount.
    pub(crate) fn task(&self, role: &str, arguments: Vec<String>) -> Task {
        let name = format!("{role}-{}", self.number());
        Task {
            arguments,
            environment: self.environment(&self.directory.join("home")),
            directory: self.directory.clone(),
            output: self.directory.join("logs").join(&name),
            mark: Mark::of_role(&self.token, &name),
        }
    }

    /// What every program is given: nothing of the user's but PATH, so that no configuration of
    /// theirs changes a measurement.
    pub(crate) fn environment(&self, temporary: &Path) -> BTreeMap<String, String> {
        let home = self.directory.join("home").display().to_string();
        [
            ("PATH", self.surroundings.path.clone()),
            ("HOME", home),
            ("TMPDIR", temporary.display().to_string()),
            ("LC_ALL", "C".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Runs a program to its end and returns what it printed. One that does not end in time is ended.
    pub(crate) fn run(&self, task: &Task, limit: Duration) -> Result<String, String> {
        let program = task.arguments.first().map_or("", String::as_str);
        let name = Path::new(program).file_name().unwrap_or_default();
        let name = name.to_string_lossy();
        let mut running = task.start().map_err(|error| format!("{name}: {error}"))?;
        match running.wait(limit) {
            Some(status) if status.success() => {
                let output = fs::read(&task.output).unwrap_or_default();
                Ok(String::from_utf8_lossy(&output).into_owned())
            }
            Some(status) => Err(format!("{name} failed, {status}: {}", task.complaint())),
            None => {
                task.mark.processes().into_iter().for_each(system::kill);
                running.wait_calmly(REAPING);
                Err(match system::interrupted() {
                    true => "interrupted".to_owned(),
                    false => format!("{name} did not end within {limit:.0?}"),
                })
            }
        }
    }

    /// Has the watchdog run a command when everything else has ended, each command once.
    pub(crate) fn at_end(&self, task: &Task) -> Result<(), String> {
        let farewell = (task.arguments.clone(), task.environment.clone());
        let mut farewells = self.farewells.lock();
        if !farewells.insert(farewell) {
            return Ok(());
        }
        watchdog::write_farewells(&self.directory, &farewells)
            .map_err(|error| format!("cannot write for the watchdog: {error}"))
    }

    /// Has a worker do a job.
    pub(crate) fn work(&self, job: &Job, limit: Duration) -> Result<(), String> {
        let file = self.directory.join(format!("job-{}", self.number()));
        let text = serde_json::to_string(job).expect("numbers and text");
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        let arguments = [
            &self.surroundings.program,
            Path::new("bench"),
            Path::new("worker"),
            &file,
        ];
        let arguments = arguments.map(|word| word.display().to_string()).to_vec();
        let output = self.run(&self.task("worker", arguments), limit)?;
        // Left over, it would do no harm; the whole directory goes in the end.
        let _ = fs::remove_file(&file);
        let verdict: Verdict =
            serde_json::from_str(output.trim()).map_err(|error| format!("the worker: {error}"))?;
        verdict.problem.map_or(Ok(()), Err)
    }

    /// A word that no other invocation has.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The directory in which a client keeps what must outlive one mount, until the store is another one.
    pub(crate) fn state(&self, client: &str) -> PathBuf {
        self.states().join(client)
    }

    fn states(&self) -> PathBuf {
        let store = self.stores.load(Ordering::Relaxed);
        self.directory.join("state").join(store.to_string())
    }

    /// Forgets what clients know of a store that is no more: each is set up anew before its next mount.
    pub(crate) fn forget_states(&self) {
        let forgotten = self.states();
        self.stores.fetch_add(1, Ordering::Relaxed);
        // Left over, it would only take space until the end.
        let _ = fs::remove_dir_all(forgotten);
    }
}

pub(crate) fn make_private(path: &Path) -> BenchResult<()> {
    let mut builder = fs::DirBuilder::new();
    builder
        .mode(0o700)
        .recursive(true)
        .create(path)
        .map_err(|error| BenchError::unusable(path, &error))
}
