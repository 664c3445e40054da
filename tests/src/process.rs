//! Running programs with a deadline, and looking at them from outside.

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::Patience;

/// The unit of processor time in `/proc`, on every architecture.
const TICKS_PER_SECOND: u64 = 100;

/// What a program left behind.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it complained.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
}

impl Finished {
    /// Whether it exited with 0.
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// Fails the test, with all output, unless the program succeeded.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(self.succeeded(), "failed: {self:#?}");
        self
    }
}

/// Runs `command` to its end, or fails the test and kills it when that takes too long.
#[track_caller]
pub fn run_within(patience: Patience, command: &mut Command) -> Finished {
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let mut stdout = child.stdout.take().expect("stdout is piped");
    let mut stderr = child.stderr.take().expect("stderr is piped");
    let errors = thread::spawn(move || read_all(&mut stderr));
    let output = thread::spawn(move || read_all(&mut stdout));
    let status = patience.find(|| child.try_wait().expect("our own child can be waited for"));
    let Some(status) = status else {
        drop(child.kill());
        drop(child.wait());
        panic!("{command:?} did not end within {:?}", patience.0);
    };
    Finished {
        code: status.code(),
        stdout: output.join().expect("reading does not panic"),
        stderr: errors.join().expect("reading does not panic"),
        took: started.elapsed(),
    }
}

fn read_all(source: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    drop(source.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A running program, ours or not, seen through `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(pub u32);

impl Process {
    /// The program that `child` runs.
    pub fn of(child: &Child) -> Self {
        Self(child.id())
    }

    /// Whether any of its threads still runs: until the last has ended its files are open.
    pub fn is_alive(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let (state, threads) = (fields.first(), fields.get(17));
        state.is_some_and(|state| *state != "Z" || threads.is_none_or(|threads| *threads != "1"))
    }

    /// The most memory that it ever had resident, in bytes.
    pub fn peak_resident(self) -> u64 {
        self.status_kib("VmHWM:") << 10
    }

    /// The memory that it has resident, in bytes.
    pub fn resident(self) -> u64 {
        self.status_kib("VmRSS:") << 10
    }

    /// The processor time that all its threads took so far, those that ended too.
    pub fn processor_time(self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
    }

    /// The processors that its threads may use, for the thread that may use most.
    pub fn processors_allowed(self) -> usize {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0));
        let threads = threads.into_iter().flatten().flatten();
        let allowed = threads.map(|thread| {
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let mask = status
                .lines()
                .find_map(|line| line.strip_prefix("Cpus_allowed:"));
            let digits = mask.unwrap_or_default().chars();
            digits
                .filter_map(|digit| digit.to_digit(16))
                .map(|bits| bits.count_ones() as usize)
                .sum()
        });
        allowed.max().unwrap_or(0)
    }

    /// Whether the kernel tells which connection a descriptor of `/dev/fuse` belongs to.
    pub fn tells_connections(self) -> bool {
        let descriptors = fs::read_dir(format!("/proc/{}/fdinfo", self.0));
        let mut texts = descriptors.into_iter().flatten().flatten();
        texts.any(|descriptor| {
            let text = fs::read_to_string(descriptor.path()).unwrap_or_default();
            text.contains("fuse_connection:")
        })
    }

    /// Ends it without warning, as the kernel does when memory runs out.
    pub fn kill(self) {
        self.signal("-KILL");
        Patience::seconds(10).until("a killed process to go", || !self.is_alive());
    }

    /// Asks it to end.
    pub fn terminate(self) {
        self.signal("-TERM");
    }

    /// Sends it a signal by its name or number, as `kill` takes it.
    pub fn signal(self, signal: &str) {
        let pid = self.0.to_string();
        run_within(
            Patience::seconds(5),
            Command::new("kill").args([signal, &pid]),
        );
    }

    /// Where in the kernel each of its threads waits, and how long all processes waited for the disk of late.
    pub fn waits(self) -> String {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let threads = fs::read_dir(format!("/proc/{}/task", self.0));
        let threads = threads.into_iter().flatten().flatten();
        let lines = threads.map(|thread| {
            let thread = thread.path();
            let (name, place) = (read(&thread.join("comm")), read(&thread.join("wchan")));
            format!("{}: {place}\n{}", name.trim(), read(&thread.join("stack")))
        });
        let pressure = read(Path::new("/proc/pressure/io"));
        lines.chain([pressure]).collect()
    }

    /// The directory in which it stands, which stays busy because of it.
    pub fn working_directory(self) -> std::path::PathBuf {
        fs::read_link(format!("/proc/{}/cwd", self.0)).expect("it is alive")
    }

    /// The processes that it started and that have not ended.
    pub fn children(self) -> Vec<Self> {
        let parent = self.0.to_string();
        let found = run_within(
            Patience::seconds(5),
            Command::new("pgrep").args(["-P", &parent]),
        );
        let numbers = found.stdout.lines().map(str::parse);
        numbers
            .map(|number| Self(number.expect("pgrep prints numbers")))
            .collect()
    }

    fn status_kib(self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    }
}
