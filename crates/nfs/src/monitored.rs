//! The clients that are told when the server was started again, so that they reclaim their locks.
//!
//! A file has their addresses, and that of the server as each knows it: a client is in it before it is given its first
//! lock, and until a minute after its last. It is written anew, whole or not at all, when a client comes or goes. Who is
//! in it without a lock is told in vain, which harms nobody.
//!
//! ```text
//! state 5
//! client 10.0.0.7 10.0.0.5
//! ```

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Write as _,
    fs,
    io::{self, Read, Write as _},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use penstock_base::{Mutex, clock, clock::Instant, random, run_blocking};
use tracing::warn;

use crate::{
    callbacks::Host,
    limits::{MONITORED_IDLE, MONITORED_MAX},
};

/// The state of a server that was never started with clients to be told; that of one that runs is odd.
const FIRST_STATE: u32 = 1;
/// How much the state grows with each start.
const STEP: u32 = 2;
/// Bytes of the longest file: a line has less than 100.
const FILE_MAX: u64 = 100 * (MONITORED_MAX as u64 + 1);
/// What stands for an address that nobody knows.
const UNKNOWN: &str = "-";

/// A client.
#[derive(Debug, Clone, Copy)]
struct Client {
    /// It does not know yet that the server was started.
    is_untold: bool,
    /// When it was known to hold something.
    used: Instant,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Monitored {
    path: PathBuf,
    state: u32,
    /// The addresses of those that were in the file at the start.
    before: HashSet<IpAddr>,
    /// Those in the file.
    clients: Mutex<BTreeMap<Host, Client>>,
    /// Whoever writes.
    writing: tokio::sync::Mutex<()>,
}

impl Monitored {
    /// Those in a file, if it is there. If it has any the state is a new one, which is in the file when this returns.
    pub(crate) fn load(path: PathBuf) -> io::Result<Self> {
        let (mut state, hosts) = match read(&path)? {
            Some(text) => parse(&text).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "it is no list of clients")
            })?,
            None => (FIRST_STATE, Vec::new()),
        };
        if !hosts.is_empty() {
            state = state.wrapping_add(STEP) | FIRST_STATE;
            write(&path, &format(state, &hosts))?;
        }
        let client = Client {
            is_untold: true,
            used: clock::now(),
        };
        let before = hosts.iter().map(|host| host.address).collect();
        let clients = hosts.into_iter().map(|host| (host, client)).collect();
        Ok(Self {
            path,
            state,
            before,
            clients: Mutex::new(clients),
            writing: tokio::sync::Mutex::default(),
        })
    }

    /// The state of the server.
    pub(crate) fn state(&self) -> u32 {
        self.state
    }

    /// The addresses of those who held locks before the start.
    pub(crate) fn before(&self) -> &HashSet<IpAddr> {
        &self.before
    }

    /// Clients that do not know yet that the server was started.
    pub(crate) fn untold(&self) -> Vec<Host> {
        let clients = self.clients.lock();
        let untold = clients.iter().filter(|(_, client)| client.is_untold);
        untold.map(|(host, _)| *host).collect()
    }

    /// A client knows, or is taken for gone.
    pub(crate) fn told(&self, host: Host) {
        if let Some(client) = self.clients.lock().get_mut(&host) {
            client.is_untold = false;
            client.used = clock::now();
        }
    }

    /// A client is to be told. When this returns the file says so.
    pub(crate) async fn add(&self, host: Host) -> io::Result<()> {
        if self.is_kept(host) {
            return Ok(());
        }
        let _writing = self.writing.lock().await;
        if self.is_kept(host) {
            return Ok(());
        }
        let hosts = {
            let clients = self.clients.lock();
            if clients.len() >= MONITORED_MAX {
                return Err(io::Error::other("too many clients hold locks"));
            }
            clients.keys().copied().chain([host]).collect::<Vec<_>>()
        };
        let written = self.write(&hosts);
        written.inspect_err(|error| {
            let path = self.path.display();
            warn!(%path, %error, "no locks are given: the clients that hold some cannot be kept");
        })?;
        let client = Client {
            is_untold: false,
            used: clock::now(),
        };
        self.clients.lock().insert(host, client);
        Ok(())
    }

    /// Whether a client is in the file: it is for a while from now on.
    fn is_kept(&self, host: Host) -> bool {
        let mut clients = self.clients.lock();
        let known = clients.get_mut(&host);
        known.map(|client| client.used = clock::now()).is_some()
    }

    /// Forgets clients that have held nothing for a while; `holding` are those that do.
    pub(crate) async fn sweep(&self, holding: &HashSet<IpAddr>) {
        if !self.use_all(holding) {
            return;
        }
        let _writing = self.writing.lock().await;
        let hosts = {
            let mut clients = self.clients.lock();
            clients.retain(|_, client| !client.is_idle());
            clients.keys().copied().collect::<Vec<_>>()
        };
        if let Err(error) = self.write(&hosts) {
            warn!(path = %self.path.display(), %error, "the clients that hold locks cannot be kept");
        }
    }

    /// Takes note of those that hold something. Says whether any is idle.
    fn use_all(&self, holding: &HashSet<IpAddr>) -> bool {
        let mut clients = self.clients.lock();
        for (host, client) in clients.iter_mut() {
            if holding.contains(&host.address) {
                client.used = clock::now();
            }
        }
        clients.values().any(Client::is_idle)
    }

    fn write(&self, hosts: &[Host]) -> io::Result<()> {
        run_blocking(|| write(&self.path, &format(self.state, hosts)))
    }
}

impl Client {
    fn is_idle(&self) -> bool {
        !self.is_untold && self.used.elapsed() > MONITORED_IDLE
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(FILE_MAX).read_to_string(&mut text)?;
    Ok(Some(text))
}

fn format(state: u32, hosts: &[Host]) -> String {
    let mut text = format!("state {state}\n");
    for Host { address, server } in hosts {
        let server = server.map_or(UNKNOWN.to_owned(), |server| server.to_string());
        // Writing to a string does not fail.
        let _ = writeln!(text, "client {address} {server}");
    }
    text
}

fn parse(text: &str) -> Option<(u32, Vec<Host>)> {
    let mut lines = text.lines();
    let state = lines.next()?.strip_prefix("state ")?.parse().ok()?;
    let hosts: Option<Vec<Host>> = lines.map(parse_client).collect();
    Some((state, hosts.filter(|hosts| hosts.len() <= MONITORED_MAX)?))
}

fn parse_client(line: &str) -> Option<Host> {
    let (address, server) = line.strip_prefix("client ")?.split_once(' ')?;
    let server = match server {
        UNKNOWN => None,
        server => Some(server.parse().ok()?),
    };
    let address = address.parse().ok()?;
    Some(Host { address, server })
}

/// Puts a file with this text where one may be.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let begun = path.with_extension(format!("{}.new", random::token()));
    let mut options = fs::OpenOptions::new();
    let made = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&begun);
    let placed = made.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&begun, path)
    });
    if placed.is_err() {
        // What is left of it is in nobody's way.
        let _ = fs::remove_file(&begun);
    }
    placed?;
    match path.parent() {
        Some(directory) => fs::File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn host(text: &str) -> Host {
        Host {
            address: text.parse().expect("an address"),
            server: None,
        }
    }

    fn path() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("lockers");
        (directory, path)
    }

    #[tokio::test]
    async fn clients_outlive_the_process_and_the_state_grows_with_each_start_that_has_some() {
        let (directory, path) = path();
        let first = Monitored::load(path.clone()).expect("nothing");
        assert_eq!((first.state(), first.untold()), (1, vec![]));
        assert_eq!(Monitored::load(path.clone()).expect("nothing").state(), 1);
        let known = Host {
            server: Some("fd00::1".parse().expect("an address")),
            ..host("fd00::2")
        };
        for host in [host("10.0.0.7"), known, known] {
            first.add(host).await.expect("kept");
        }
        assert_eq!(first.untold(), []);
        let second = Monitored::load(path.clone()).expect("kept");
        assert_eq!(second.state(), 3);
        assert_eq!(second.untold(), [host("10.0.0.7"), known]);
        second.told(known);
        assert_eq!(second.untold(), [host("10.0.0.7")]);
        let third = Monitored::load(path).expect("kept");
        assert_eq!((third.state(), third.untold().len()), (5, 2));
        let files = fs::read_dir(&directory).expect("readable").count();
        assert_eq!(files, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_holds_nothing_for_a_while_and_knows_of_the_start_is_forgotten() {
        let (_directory, path) = path();
        let [holds, idle, untold] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(host);
        let before = Monitored::load(path.clone()).expect("nothing");
        before.add(untold).await.expect("kept");
        let monitored = Monitored::load(path.clone()).expect("kept");
        for host in [holds, idle] {
            monitored.add(host).await.expect("kept");
        }
        let holding = HashSet::from([holds.address]);
        clock::sleep(MONITORED_IDLE).await;
        monitored.sweep(&holding).await;
        let kept = || Monitored::load(path.clone()).expect("kept").untold();
        assert_eq!(kept(), [holds, idle, untold]);
        clock::sleep(Duration::from_millis(1)).await;
        monitored.sweep(&holding).await;
        assert_eq!(kept(), [holds, untold]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_about_to_be_forgotten_and_asks_for_a_lock_is_kept() {
        let (_directory, path) = path();
        let monitored = Monitored::load(path.clone()).expect("nothing");
        let client = host("10.0.0.1");
        monitored.add(client).await.expect("kept");
        clock::sleep(MONITORED_IDLE + Duration::from_millis(1)).await;
        let held_nothing_yet = HashSet::new();
        monitored.add(client).await.expect("kept");
        monitored.sweep(&held_nothing_yet).await;
        let kept = Monitored::load(path).expect("kept");
        assert_eq!(kept.untold(), [client]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let (_directory, path) = path();
        for wrong in [
            "",
            "state\n",
            "state x\n",
            "state 1\nclient 10.0.0.1\n",
            "state 1\nx\n",
        ] {
            fs::write(&path, wrong).expect("written");
            let refused = Monitored::load(path.clone()).expect_err(wrong);
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        }
    }
}
