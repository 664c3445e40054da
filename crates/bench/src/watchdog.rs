//! Nothing is left behind, however the benchmark ends.
//!
//! All that an invocation makes lies in one directory, and all that it starts carries one mark. A
//! process of its own, which Ctrl-C does not reach, makes the directory and then waits for its
//! standard input to end. That happens when the benchmark closes it and also when the benchmark is
//! killed, for the kernel closes it then. Either way the watchdog ends every marked process, takes
//! every mount below the directory out of the tree, and removes the directory. Clients may end by
//! themselves first, for some have things elsewhere on the machine; after one that could not, a
//! command of its own cleans up ([`Farewell`]). As the watchdog is the one who cleans up at the
//! end, it is tried by every run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::{fs::DirBuilderExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use crate::{
    BenchError, BenchResult, proc_fs,
    process::{self, Mark},
    session::CLIENT,
    system::{self, LOOK},
};

/// How long the benchmark waits for the watchdog to finish.
const FAREWELL: Duration = Duration::from_secs(60);
/// The parts that use a client's mount.
const USERS: [&str; 4] = ["workload-", "worker-", "before-", "load-"];
/// How long unmounting is tried.
const UNMOUNTING: Duration = Duration::from_secs(1);
/// How often everything is ended: a program that was just being started shows its mark late.
const ROUNDS: usize = 2;
/// Between the rounds.
const LATECOMERS: Duration = Duration::from_millis(100);
/// How long a client may take to end by itself.
const LEAVE: Duration = Duration::from_secs(4);
/// How long a command at the end may take.
const FAREWELL_LIMIT: Duration = Duration::from_secs(20);
/// The file with the commands for the end.
const FAREWELLS: &str = "farewells.json";
/// What the watchdog answers when the directory is there.
const READY: &str = "ready";

/// What there is to clean up.
#[derive(Debug, Clone)]
pub struct Estate {
    /// The mark of all processes.
    pub token: String,
    /// The directory in which everything lies. It must not exist yet.
    pub directory: PathBuf,
    /// A directory of ours in somebody else's file system, to be removed too.
    pub elsewhere: Option<PathBuf>,
}

/// A command for the end and its environment: it removes what a client leaves elsewhere when it is killed.
pub(crate) type Farewell = (Vec<String>, BTreeMap<String, String>);

/// Writes the commands down where the watchdog finds them, all or none.
pub(crate) fn write_farewells(directory: &Path, farewells: &BTreeSet<Farewell>) -> io::Result<()> {
    let text = serde_json::to_string(farewells)?;
    let new = directory.join(format!("{FAREWELLS}.new"));
    fs::write(&new, text)?;
    fs::rename(new, directory.join(FAREWELLS))
}

/// The watchdog as the benchmark sees it. Dropping it cleans up.
#[derive(Debug)]
pub(crate) struct Watchdog {
    estate: Estate,
    child: Child,
    life_line: Option<ChildStdin>,
}

impl Watchdog {
    /// Starts it and waits for the directory.
    pub(crate) fn start(program: &Path, estate: &Estate) -> BenchResult<Self> {
        let failure = |error: io::Error| {
            let cause = format!("cannot start the watchdog: {error}");
            BenchError::new(cause, "check that there is space for temporary files")
        };
        let mut command = Command::new(program);
        command.args(["bench", "watchdog", &estate.token]);
        command.arg(&estate.directory).args(&estate.elsewhere);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.process_group(0).spawn().map_err(failure)?;
        let life_line = child.stdin.take();
        let mut answer = String::new();
        if let Some(stdout) = child.stdout.take() {
            let read = BufReader::new(stdout).read_line(&mut answer);
            read.map_err(failure)?;
        }
        if answer.trim() != READY {
            let why = format!("{} cannot be made", estate.directory.display());
            return Err(failure(io::Error::other(why)));
        }
        Ok(Self {
            estate: estate.clone(),
            child,
            life_line,
        })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.life_line.take());
        system::ends_within(&mut self.child, FAREWELL);
        // Somebody killed it, or something in our directory resisted: one more try.
        if self.estate.directory.exists() {
            // There is nobody left to tell.
            let _ = clean_up(&self.estate);
        }
    }
}

/// The watchdog itself: makes the directory, waits for the end of `stdin`, cleans up.
///
/// # Errors
/// The directory cannot be made, or something could not be removed.
pub fn guard(estate: &Estate, stdin: &mut dyn Read, stdout: &mut dyn Write) -> BenchResult<()> {
    system::ignore_interrupts();
    let made = fs::DirBuilder::new().mode(0o700).create(&estate.directory);
    made.map_err(|error| BenchError::unusable(&estate.directory, &error))?;
    // If nobody listens any more, there is as little to wait for as when somebody hangs up.
    let _ = writeln!(stdout, "{READY}").and_then(|()| stdout.flush());
    let _ = io::copy(stdin, &mut io::sink());
    clean_up(estate)
}

fn clean_up(estate: &Estate) -> BenchResult<()> {
    let mark = Mark::of_run(&estate.token);
    end_clients(&estate.token);
    for round in 0..ROUNDS {
        if round > 0 {
            system::pause(LATECOMERS);
        }
        if !mark.end_all(false) {
            // Who hangs in the kernel hangs in a mount.
            for mount in proc_fs::mounts(&estate.directory, true) {
                proc_fs::abort(&mount);
            }
            mark.end_all(false);
        }
        unmount_below(&estate.directory);
    }
    take_leave(&estate.directory);
    if let Some(elsewhere) = &estate.elsewhere {
        remove(elsewhere)?;
    }
    remove(&estate.directory)
}

/// Asks clients to end once nobody uses their mounts any more. Those that do not are killed with
/// all the rest.
fn end_clients(token: &str) {
    for role in USERS {
        Mark::of_roles(token, role).end_all(false);
    }
    let clients = Mark::of_roles(token, CLIENT);
    clients.processes().into_iter().for_each(system::terminate);
    clients.gone_within(LEAVE);
}

/// Runs the commands for the end. What they cannot remove nobody here can.
fn take_leave(directory: &Path) {
    let text = fs::read(directory.join(FAREWELLS)).unwrap_or_default();
    let farewells: BTreeSet<Farewell> = serde_json::from_slice(&text).unwrap_or_default();
    for (arguments, environment) in &farewells {
        let command = process::quiet(arguments, environment);
        let child = command.and_then(|mut command| command.spawn().ok());
        if let Some(mut child) = child
            && system::ends_within(&mut child, FAREWELL_LIMIT).is_none()
        {
            // It hangs in the kernel, or ends now.
            let _ = child.kill();
            let _ = child.try_wait();
        }
    }
}

/// Takes every mount below `directory` out of the tree.
pub(crate) fn unmount_below(directory: &Path) {
    let detach_all = || {
        let mounts = proc_fs::mounts(directory, true);
        mounts.iter().for_each(|mount| detach(&mount.mountpoint));
        mounts.is_empty().then_some(())
    };
    system::until(UNMOUNTING, LOOK, detach_all);
}

/// Unmounts even while it is in use, with the helper of FUSE where we may not ourselves.
pub(crate) fn detach(path: &Path) {
    if system::detach(path).is_ok() {
        return;
    }
    for helper in ["fusermount3", "fusermount"] {
        let mut command = Command::new(helper);
        command.args(["-u", "-z", "-q"]).arg(path);
        let status = command.stderr(Stdio::null()).status();
        if status.is_ok_and(|status| status.success()) {
            return;
        }
    }
}

/// Removes a directory, unless something is mounted in it: then files would be removed that are
/// not ours.
fn remove(directory: &Path) -> BenchResult<()> {
    if !proc_fs::mounts(directory, true).is_empty() {
        let cause = format!("{} is still a mount", directory.display());
        return Err(BenchError::new(cause, "unmount it and remove it"));
    }
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(BenchError::unusable(directory, &error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_lives_as_long_as_the_input() {
        let parent = tempfile::tempdir().expect("a directory");
        let estate = Estate {
            token: penstock_base::random::token(),
            directory: parent.path().join("run"),
            elsewhere: Some(parent.path().join("elsewhere")),
        };
        fs::create_dir_all(parent.path().join("elsewhere/a")).expect("made");
        let mut answer = Vec::new();
        guard(&estate, &mut io::empty(), &mut answer).expect("cleaned up");
        assert_eq!(answer, b"ready\n");
        assert_eq!(fs::read_dir(parent.path()).expect("there").count(), 0);
    }

    #[test]
    fn commands_for_the_end_are_run_after_all_else() {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join("run");
        fs::create_dir(&directory).expect("made");
        let script = "echo \"$WORD\" > \"$0\"";
        let said = parent.path().join("said").display().to_string();
        let arguments = ["/bin/sh", "-c", script, &said].map(str::to_owned).to_vec();
        let environment = BTreeMap::from([("WORD".to_owned(), "gone".to_owned())]);
        let farewell = (arguments, environment);
        write_farewells(&directory, &BTreeSet::from([farewell])).expect("written");
        let estate = Estate {
            token: penstock_base::random::token(),
            directory: directory.clone(),
            elsewhere: None,
        };
        clean_up(&estate).expect("cleaned up");
        assert!(!directory.exists());
        assert_eq!(fs::read_to_string(said).expect("run"), "gone\n");
    }

    #[test]
    fn a_directory_that_exists_is_not_taken_over() {
        let parent = tempfile::tempdir().expect("a directory");
        let estate = Estate {
            token: penstock_base::random::token(),
            directory: parent.path().to_path_buf(),
            elsewhere: None,
        };
        assert!(guard(&estate, &mut io::empty(), &mut io::sink()).is_err());
        assert!(parent.path().exists());
    }
}
