//! PostgreSQL servers of the tests' own, of the programs that this machine has.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::panic,
    reason = "each test file uses some of it"
)]

use std::{
    fs,
    io::Write,
    net::TcpListener,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock},
    time::Duration,
};

use tempfile::TempDir;

pub const PASSWORD: &str = "hunter2";
/// Root may not run a server: this user does.
const NOBODY: u32 = 65534;

/// Runs the server until its standard input ends, which it does with the tests, and removes what is left if it is told.
const KEEPER: &str = r#"left=$1; shift; "$@" & server=$!
cat >/dev/null; kill -QUIT $server; wait $server; [ -z "$left" ] || rm -rf "$left""#;

/// A server with a directory of its own.
pub struct Server {
    programs: PathBuf,
    directory: TempDir,
    pub port: u16,
    keeper: Mutex<Option<Child>>,
    /// Nobody drops it.
    is_shared: bool,
}

/// Where this machine has the server's programs.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let mut found: Vec<_> = versions
        .map(|version| version.path().join("bin"))
        .filter(|programs| programs.join("initdb").exists() && programs.join("postgres").exists())
        .collect();
    found.sort();
    found.pop()
}

/// Says that a test is skipped.
fn skip<T>() -> Option<T> {
    penstock_skips::skipped("there is no PostgreSQL server: apt-get install postgresql");
    None
}

/// Not by `Command::uid`, with which a child is a copy of this process for a while, with the locks of other tests.
fn as_server(program: &Path) -> Command {
    if !penstock_base::is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={NOBODY}"));
    command.arg(format!("--regid={NOBODY}"));
    command.arg("--clear-groups").arg(program).current_dir("/");
    command
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Server {
    /// One that runs, or `None` and a word of it where this machine has none.
    pub fn start() -> Option<Self> {
        Self::start_as(false)
    }

    fn start_as(is_shared: bool) -> Option<Self> {
        let Some(programs) = programs() else {
            return skip();
        };
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let password = place.join("password");
        fs::write(&password, PASSWORD).unwrap();
        if penstock_base::is_root() {
            chown(place, Some(NOBODY), Some(NOBODY)).unwrap();
            chown(&password, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let made = as_server(&programs.join("initdb"))
            .args([
                "--no-sync",
                "--locale=C",
                "--encoding=UTF8",
                "-A",
                "scram-sha-256",
                "-U",
                "penstock",
            ])
            .arg("--pwfile")
            .arg(&password)
            .arg("-D")
            .arg(place.join("data"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(made.status.success(), "{said}");
        let server = Self {
            programs,
            directory,
            port: free_port(),
            keeper: Mutex::new(None),
            is_shared,
        };
        server.run();
        Some(server)
    }

    /// The one that the tests of a program share.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Server>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| Self::start_as(true)).as_ref();
        if shared.is_none() {
            return skip();
        }
        shared
    }

    /// Runs it, and returns when it answers.
    pub fn run(&self) {
        for _ in 0..100 {
            let mut keeper = self.spawn();
            for _ in 0..100 {
                std::thread::sleep(Duration::from_millis(50));
                if self.answers() {
                    *self.keeper.lock().unwrap() = Some(keeper);
                    return;
                }
                if self.has_failed() {
                    break;
                }
            }
            keeper.kill().unwrap();
            keeper.wait().unwrap();
        }
        panic!("{}", fs::read_to_string(self.log()).unwrap());
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn has_failed(&self) -> bool {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        log.contains("FATAL:  lock file") || log.contains("FATAL:  pre-existing")
    }

    fn spawn(&self) -> Child {
        let data = self.directory.path().join("data");
        let log = fs::File::create(self.log()).unwrap();
        as_server(Path::new("/bin/sh"))
            .args(["-c", KEEPER, "keeper"])
            .arg(match self.is_shared {
                true => self.directory.path(),
                false => Path::new(""),
            })
            .arg(self.programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(&data)
            .args([
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "max_connections=200",
            ])
            .args(["-p", &self.port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap()
    }

    fn answers(&self) -> bool {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        log.contains("database system is ready to accept connections")
    }

    /// The process that began all others of the server.
    pub fn main_process(&self) -> u32 {
        let file = self.directory.path().join("data/postmaster.pid");
        let text = fs::read_to_string(file).unwrap();
        text.lines().next().unwrap().parse().unwrap()
    }

    /// Kills the server, without a word to it, and all processes of it: one that serves a connection goes on until it notices.
    pub fn kill(&self) {
        let server = self.main_process().to_string();
        let server = server.as_str();
        let signal = |what, process| {
            let sent = Command::new("kill").args([what, process]).status();
            sent.unwrap().success()
        };
        // It starts none anew meanwhile.
        assert!(signal("-STOP", server));
        let below = fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
        let below = below.unwrap();
        for process in below.split_whitespace() {
            // It may have ended by itself.
            signal("-KILL", process);
        }
        assert!(signal("-KILL", server));
        let keeper = self.keeper.lock().unwrap().take();
        if let Some(mut keeper) = keeper {
            drop(keeper.stdin.take());
            keeper.wait().unwrap();
        }
    }

    /// From now on it speaks TLS, with this certificate and its key.
    pub fn encrypt(&self, certificate: &str, key: &str) {
        let data = self.directory.path().join("data");
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = data.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            if penstock_base::is_root() {
                chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        self.sql("ALTER SYSTEM SET ssl = on");
        self.sql("SELECT pg_reload_conf()");
    }

    /// Runs SQL as the one who may do all.
    pub fn sql(&self, statements: &str) -> String {
        let mut child = Command::new(self.programs.join("psql"))
            .args(["-h", "127.0.0.1", "-U", "penstock", "-At"])
            .args(["-p", &self.port.to_string(), "-d", "postgres"])
            .env("PGPASSWORD", PASSWORD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(statements.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.lock().unwrap().take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }
}
