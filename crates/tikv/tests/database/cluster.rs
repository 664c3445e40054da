//! A PD and three TiKV of the tests' own, of the programs that a folder has which `PENSTOCK_TEST_TIKV` names: its `start.sh 3
//! DIRECTORY` starts them, again where they have run before, and leaves `pd.pid` and `tikv1.pid` to `tikv3.pid` in the
//! directory; its `stop.sh DIRECTORY` ends them.

#![allow(clippy::disallowed_methods, clippy::panic)]

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const PLACE: &str = "PENSTOCK_TEST_TIKV";

/// Runs the servers until its standard input ends, which it does with the tests, and removes what is left. Nobody reads what
/// it says by then.
const KEEPER: &str = r#""$1/start.sh" 3 "$2"; cat >/dev/null; exec >/dev/null 2>&1
kill -KILL $(cat "$2"/*.pid); "$1/stop.sh" "$2"; rm -rf "$2""#;

/// Servers with a directory of their own.
pub struct Cluster {
    programs: PathBuf,
    directory: PathBuf,
    address: String,
    keeper: Mutex<Child>,
}

/// One of the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member(String);

impl Member {
    pub fn pd() -> Self {
        Self("pd".to_owned())
    }
}

impl Cluster {
    /// One that runs, or `None` and a word of it where this machine has none.
    pub fn start() -> Option<Self> {
        let Some(programs) = std::env::var_os(PLACE).map(PathBuf::from) else {
            return skip();
        };
        let directory = tempfile::Builder::new().prefix("tikv").tempdir().unwrap();
        let directory = TempDir::keep(directory);
        let mut keeper = Command::new("/bin/sh")
            .args(["-c", KEEPER, "keeper"])
            .args([&programs, &directory])
            // Who leads is found in 3 s instead of 13.
            .env("TICK_MS", "200")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let lines = BufReader::new(keeper.stdout.take().unwrap()).lines();
        let mut address = None;
        for line in lines.map_while(Result::ok) {
            if let Some(said) = line.strip_prefix("PD=") {
                address = Some(said.to_owned());
            }
            if line == "stores up: 3 of 3" {
                break;
            }
        }
        Some(Self {
            programs,
            directory,
            address: address.expect("the servers start"),
            keeper: Mutex::new(keeper),
        })
    }

    /// The one that the tests of a program share.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
        let shared = SHARED.get_or_init(Self::start).as_ref();
        if shared.is_none() {
            return skip();
        }
        shared
    }

    /// Where its PD is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The TiKV that leads the most.
    pub fn busiest(&self) -> Member {
        let found = self.ask("stores");
        let stores = found["stores"].as_array().unwrap();
        let leaders = |store: &&Value| store["status"]["leader_count"].as_u64().unwrap_or(0);
        let busiest = stores.iter().max_by_key(leaders).unwrap();
        let address = busiest["store"]["address"].as_str().unwrap();
        let port = |address: &str| -> u16 {
            let (_, port) = address.rsplit_once(':').unwrap();
            port.parse().unwrap()
        };
        let number = (port(address) - port(&self.address)) / 2;
        Member(format!("tikv{number}"))
    }

    /// Up to which moment garbage was given up; 0 at first.
    pub fn safe_point(&self) -> u64 {
        let found = self.ask("gc/safepoint");
        found["gc_safe_point"].as_u64().unwrap_or(0)
    }

    fn ask(&self, what: &str) -> Value {
        let url = format!("http://{}/pd/api/v1/{what}", self.address);
        let output = Command::new("curl").args(["-sf", &url]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn signal(&self, member: &Member, signal: Signal) {
        let file = self.directory.join(format!("{}.pid", member.0));
        let pid = fs::read_to_string(file).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Kills a server, without a word to it.
    pub fn kill(&self, member: &Member) {
        self.signal(member, Signal::KILL);
    }

    /// A server does nothing until [`go_on`](Self::go_on).
    pub fn stop(&self, member: &Member) {
        self.signal(member, Signal::STOP);
    }

    pub fn go_on(&self, member: &Member) {
        self.signal(member, Signal::CONT);
    }

    /// Starts those that were killed. Returns when all are there.
    pub fn start_again(&self) {
        let started = Command::new(self.programs.join("start.sh"))
            .arg("3")
            .arg(&self.directory)
            .env("TICK_MS", "200")
            .stdout(Stdio::null())
            .status();
        assert!(started.unwrap().success());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut keeper = self.keeper.lock().unwrap();
        drop(keeper.stdin.take());
        let _ = keeper.wait();
    }
}

/// Says that a test is skipped.
fn skip<T>() -> Option<T> {
    penstock_skips::skipped(format!(
        "there is no TiKV: {PLACE} names no folder with start.sh"
    ));
    None
}
