//! Programs that the benchmark runs: started with a mark, waited for with a deadline, and ended
//! with everything that they started.
//!
//! The mark is a variable in the environment, `PENSTOCK_BENCH=TOKEN.ROLE.`. It is inherited by
//! whatever a program starts, whether that stays a child or becomes a daemon, so the kernel knows
//! at any time which processes are ours and which part they play; nothing has to be written down
//! that could be lost.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use penstock_base::clock;

use crate::{
    proc_fs,
    system::{self, LOOK},
};

/// The variable that marks our processes.
const VARIABLE: &str = "PENSTOCK_BENCH";
/// How long one wait lasts before interrupts are looked for.
const SLICE: Duration = Duration::from_millis(100);
/// How long processes may take to end after SIGTERM.
const TERMINATION: Duration = Duration::from_secs(5);
/// How long processes may take to end after SIGKILL.
const KILLING: Duration = Duration::from_secs(5);

/// Which of our processes are meant: those whose mark begins like this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark(String);

impl Mark {
    pub(crate) fn of_run(token: &str) -> Self {
        Self(format!("{VARIABLE}={token}."))
    }

    /// Everything that plays one part in it.
    pub(crate) fn of_role(token: &str, role: &str) -> Self {
        Self(format!("{VARIABLE}={token}.{role}."))
    }

    /// Everything of one invocation whose part begins like this.
    pub(crate) fn of_roles(token: &str, beginning: &str) -> Self {
        Self(format!("{VARIABLE}={token}.{beginning}"))
    }

    pub(crate) fn is_on(&self, pid: u32) -> bool {
        proc_fs::environment_has(pid, &self.0)
    }

    pub(crate) fn processes(&self) -> Vec<u32> {
        let own = std::process::id();
        let is_ours = |pid: &u32| {
            *pid != own
                && self.is_on(*pid)
                && proc_fs::stat(*pid).is_some_and(|stat| !stat.is_zombie)
        };
        proc_fs::process_ids().into_iter().filter(is_ours).collect()
    }

    /// Asks all of them to end, then makes them. False when some would not, which means that
    /// they hang in the kernel.
    pub(crate) fn end_all(&self, politely: bool) -> bool {
        if politely {
            self.processes().into_iter().for_each(system::terminate);
            if self.gone_within(TERMINATION) {
                return true;
            }
        }
        let kill = || {
            let left = self.processes();
            left.iter().copied().for_each(system::kill);
            left.is_empty().then_some(())
        };
        system::until(KILLING, LOOK, kill).is_some()
    }

    pub(crate) fn gone_within(&self, limit: Duration) -> bool {
        let are_gone = || self.processes().is_empty().then_some(());
        system::until(limit, LOOK, are_gone).is_some()
    }

    fn value(&self) -> &str {
        self.0.split_once('=').map_or("", |(_, value)| value)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) arguments: Vec<String>,
    /// Its whole environment, but for the mark.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) directory: PathBuf,
    /// Where its output goes; its errors go to the same place with `.err` behind.
    pub(crate) output: PathBuf,
    pub(crate) mark: Mark,
}

impl Task {
    pub(crate) fn errors(&self) -> PathBuf {
        let mut name = self.output.as_os_str().to_owned();
        name.push(".err");
        PathBuf::from(name)
    }

    /// Starts it, in a process group of its own: Ctrl-C is for us.
    pub(crate) fn start(&self) -> io::Result<Running> {
        let program = self.arguments.first().map_or("", String::as_str);
        let child = Command::new(program)
            .args(self.arguments.iter().skip(1))
            .env_clear()
            .envs(&self.environment)
            .env(VARIABLE, self.mark.value())
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(File::create(&self.output)?)
            .stderr(File::create(self.errors())?)
            .process_group(0)
            .spawn()?;
        Ok(Running {
            ended: system::process_descriptor(child.id())?,
            child,
        })
    }

    /// The last lines that it printed as errors, in one line.
    pub(crate) fn complaint(&self) -> String {
        let errors = std::fs::read(self.errors()).unwrap_or_default();
        let output = std::fs::read(&self.output).unwrap_or_default();
        let text = if errors.is_empty() { output } else { errors };
        last_words(&String::from_utf8_lossy(&text))
    }
}

/// `words` as a command that reads and prints nothing; none of no words.
pub(crate) fn quiet(words: &[String], environment: &BTreeMap<String, String>) -> Option<Command> {
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(environment);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null());
    Some(command)
}

/// Characters of a complaint that are kept.
const WORDS_MAX: usize = 300;

/// The end of a text in one line of bounded length.
pub(crate) fn last_words(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    let words = lines[lines.len().saturating_sub(3)..].join(" | ");
    let skip = words.chars().count().saturating_sub(WORDS_MAX);
    words.chars().skip(skip).collect()
}

#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    ended: OwnedFd,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn ending(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until it ends, the time is up or the user wants to stop.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        self.wait_unless(system::interrupted, limit)
    }

    /// Waits a while for it to end, interrupts or not.
    pub(crate) fn wait_calmly(&mut self, limit: Duration) -> bool {
        self.wait_unless(|| false, limit).is_some()
    }

    fn wait_unless(&mut self, is_over: fn() -> bool, limit: Duration) -> Option<ExitStatus> {
        let deadline = clock::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(clock::now());
            let status = self.ending();
            if status.is_some() || left.is_zero() || is_over() {
                return status;
            }
            system::wait_readable(&self.ended, left.min(SLICE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Task {
        /// A shell script that runs in `directory`.
        pub(crate) fn of_script(script: &str, directory: &std::path::Path, mark: &Mark) -> Self {
            Self {
                arguments: ["sh", "-c", script].map(str::to_owned).into(),
                environment: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
                directory: directory.to_path_buf(),
                output: directory.join("out"),
                mark: mark.clone(),
            }
        }
    }

    fn task(directory: &std::path::Path, token: &str, script: &str) -> Task {
        Task::of_script(script, directory, &Mark::of_role(token, "client-1"))
    }

    #[test]
    fn daemons_of_daemons_carry_the_mark_and_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let token = penstock_base::random::token();
        let script = "(setsid sh -c 'trap \"\" TERM; sleep 1000' &) ; sleep 0.2";
        let mut running = task(directory.path(), &token, script)
            .start()
            .expect("starts");
        assert!(running.wait_calmly(Duration::from_secs(30)));
        let mark = Mark::of_run(&token);
        assert!(!mark.processes().is_empty(), "the daemon lives on");
        assert!(mark.end_all(false));
        assert!(mark.processes().is_empty());
        assert!(Mark::of_role(&token, "client-2").processes().is_empty());
    }

    #[test]
    fn a_deadline_ends_the_wait_and_words_are_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let token = penstock_base::random::token();
        let task = task(directory.path(), &token, "echo why >&2; exec sleep 1000");
        let mut running = task.start().expect("starts");
        assert_eq!(running.wait(Duration::from_millis(300)), None);
        assert!(task.mark.end_all(true));
        assert!(running.wait_calmly(Duration::from_secs(30)));
        assert_eq!(task.complaint(), "why");
    }
}
