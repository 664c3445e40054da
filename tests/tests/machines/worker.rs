//! A worker: a program of its own, which has files open on a machine. It has a folder for itself, or plays with
//! registers that all have.
//!
//! The test has none: a program that starts another one closes its files in the new one first, and waits for their
//! mounts with that.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use penstock_tests::soak::{Chance, Shadow};

/// Makes this program a worker: its number, its seed and the folder that it begins in.
pub(crate) const VARIABLE: &str = "PENSTOCK_TEST_MACHINES_WORKER";
/// All workers add lines to it.
pub(crate) const JOURNAL: &str = "journal";
/// How long a worker rests whose operation failed.
const REST: Duration = Duration::from_millis(20);

/// A worker as the test has it.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The folder of the worker with this number.
pub(crate) fn folder(number: u64) -> String {
    format!("worker-{number}")
}

impl Worker {
    /// Returns when it has made its folder.
    pub(crate) fn start(number: u64, seed: u64, root: &Path) -> Self {
        Self::run(&format!("{number} {seed} {}", root.display()))
    }

    /// Returns when a program is there that does what `order` says.
    pub(crate) fn run(order: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new(program)
            .args(["--exact", "worker_of_a_machine", "--nocapture"])
            .env(VARIABLE, order)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut worker = Self {
            orders: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        worker.wait();
        worker
    }

    /// Lets it work on the machine whose mount this is.
    pub(crate) fn begin(&mut self, root: &Path) {
        self.order("work", root);
    }

    /// Tells it to do something there.
    pub(crate) fn order(&mut self, verb: &str, root: &Path) {
        writeln!(self.orders, "{verb} {}", root.display()).unwrap();
    }

    /// Tells it to stop; [`Worker::wait`] returns when it did.
    pub(crate) fn stop(&mut self) {
        writeln!(self.orders, "stop").unwrap();
    }

    /// Tells it to look for all that it left.
    pub(crate) fn verify(&mut self, root: &Path) {
        self.order("verify", root);
        self.wait();
    }

    /// Returns when an order was carried out, with what the worker says of it.
    pub(crate) fn wait(&mut self) -> String {
        for line in (&mut self.answers).lines() {
            if let Some(said) = line.unwrap().strip_prefix("done ") {
                return said.to_owned();
            }
        }
        panic!("a worker failed: {:?}", self.child.wait());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What the program does that is a worker: what it is told, line by line.
pub(crate) fn obey(order: &str) {
    let mut order = order.splitn(3, ' ');
    let mut next = || order.next().unwrap().to_owned();
    let (number, seed): (u64, u64) = (next().parse().unwrap(), next().parse().unwrap());
    let mut working = Working::new(number, seed, Path::new(&next()));
    println!("\ndone beginning");
    while let Some((verb, root)) = next_order() {
        match &*verb {
            "work" => until_stopped(|stop| working.work(&root, stop)),
            _ => working.verify(&root),
        }
        let shadow = &working.shadow;
        println!("\ndone {} well, {} failed", shadow.done, shadow.failed);
    }
}

/// The next thing to do, and where.
pub(crate) fn next_order() -> Option<(String, PathBuf)> {
    let line = std::io::stdin().lines().next()?.ok()?;
    let (verb, root) = line.split_once(' ')?;
    Some((verb.to_owned(), PathBuf::from(root)))
}

/// Does something until the next order, which is to stop.
pub(crate) fn until_stopped<T: Send>(work: impl FnOnce(&AtomicBool) -> T + Send) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let worker = scope.spawn(|| work(&stop));
        drop(std::io::stdin().lines().next());
        stop.store(true, Ordering::SeqCst);
        worker.join().unwrap()
    })
}

/// What a worker knows: its folder, and its lines of the journal.
struct Working {
    number: u64,
    shadow: Shadow,
    chance: Chance,
    /// Lines that are there, and lines that may be: their writing failed.
    certain: Vec<String>,
    uncertain: Vec<String>,
}

impl Working {
    fn new(number: u64, seed: u64, root: &Path) -> Self {
        let folder = root.join(folder(number));
        fs::create_dir(&folder).unwrap();
        let seed = seed * 101 + number;
        Self {
            number,
            shadow: Shadow::new(folder, seed, false).in_place().that_may_end(),
            chance: Chance::new(seed),
            certain: Vec::new(),
            uncertain: Vec::new(),
        }
    }

    fn work(&mut self, root: &Path, stop: &AtomicBool) {
        self.shadow.move_to(root);
        while !stop.load(Ordering::SeqCst) {
            let failed = self.shadow.failed;
            match self.chance.below(4) {
                0 => self.note(&root.join(JOURNAL)),
                _ => self.shadow.step(),
            }
            if self.shadow.failed > failed {
                thread::sleep(REST);
            }
        }
    }

    /// Adds a line to the journal, if nobody else holds it.
    fn note(&mut self, journal: &Path) {
        let count = self.certain.len() + self.uncertain.len();
        let line = format!("{} {count}", self.number);
        match append_locked(journal, &format!("{line}\n")) {
            Ok(false) => {}
            Ok(true) => self.certain.push(line),
            Err(_) => self.uncertain.push(line),
        }
    }

    /// Finds everything that it left, in another mount.
    fn verify(&mut self, root: &Path) {
        self.shadow.move_to(root);
        for name in self.shadow.names() {
            assert!(self.shadow.verify(&name), "{name} cannot be read");
        }
        self.verify_journal(&root.join(JOURNAL));
    }

    fn verify_journal(&self, journal: &Path) {
        let text = fs::read_to_string(journal).unwrap();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for line in text.lines() {
            let (worker, number) = line.split_once(' ').expect("a whole line");
            let numbers: (u64, u64) = (worker.parse().unwrap(), number.parse().unwrap());
            if numbers.0 == self.number {
                *counts.entry(line).or_default() += 1;
            }
        }
        for line in &self.certain {
            assert_eq!(counts.remove(&**line), Some(1), "{line:?} in {text}");
        }
        for line in &self.uncertain {
            assert!(counts.remove(&**line).unwrap_or(1) == 1, "{line:?} twice");
        }
        assert!(counts.is_empty(), "nobody wrote {counts:?}");
    }
}

/// Adds `line` at the end of a file under its lock; whether the lock was free.
fn append_locked(path: &Path, line: &str) -> std::io::Result<bool> {
    let mut file = fs::OpenOptions::new().read(true).append(true).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Ok(false),
        Err(fs::TryLockError::Error(error)) => return Err(error),
    }
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    file.unlock()?;
    Ok(true)
}
