//! nfs-load: one operation of NFS version 3, by several connections, with several calls outstanding on each.
//!
//! It speaks to a mount target itself, so that no client of a kernel, no page cache and no limit of that stands between the
//! figures and the server. A call is packed into a buffer, many go with one system call, and of what is read only the first and
//! last bytes are looked at: it shares the processors with the server. From an address to figures:
//!
//! - `connection`: calls and replies of ONC RPC over TCP, and their records.
//! - `served`: the ports, the export's root, and the directories and files that an operation is about.
//! - `work`: the operations: the calls that each takes, and what the answers must say.
//! - `worker`: one connection that keeps so many operations under way, until there have been enough.
//! - `latencies`: how long they took, in as much memory whatever their number.
//!
//! Each status is looked at, and the first error ends the run. What it makes stays, below `nfs-load` in the export.

use std::{
    io::Write,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use penstock_base::clock;
use serde::{Deserialize, Serialize};

use crate::{BenchError, BenchResult, load::cannot_print, proc_fs, system};
use connection::{Connection, NFS};
use served::Served;
use work::Work;
use worker::{Done, Worker};

mod connection;
mod latencies;
mod served;
mod work;
mod worker;

/// Connections at most: each has a thread, and room for one reply.
pub const CONNECTIONS_MAX: usize = 1024;
/// Calls outstanding on a connection at most: as many as a socket takes without an answer.
pub const DEPTH_MAX: usize = 1024;
/// Bytes of a READ or WRITE at most.
pub const SIZE_MAX: u64 = 16 << 20;
/// A word of a file is the offset that it has there.
const WORD: u64 = 8;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// READ at scattered offsets of one file, or in order. The bytes are checked.
    Read,
    /// WRITE in order to one file for each connection, again and again, and a COMMIT for each 64 MiB and at the end.
    Write,
    /// GETATTR of 256 files in turn.
    Getattr,
    /// LOOKUP of 256 names in turn.
    Lookup,
    /// CREATE of a new file; where it has bytes, also WRITE and COMMIT of them.
    Create,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::Write,
        Self::Getattr,
        Self::Lookup,
        Self::Create,
    ];

    /// How it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Getattr => "getattr",
            Self::Lookup => "lookup",
            Self::Create => "create",
        }
    }

    /// The operation of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// How long it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// Operations begin for so long.
    Time(Duration),
    /// So many in all.
    Operations(u64),
}

/// Where a server is.
#[derive(Debug, Clone)]
pub struct Server {
    /// `HOST` or `HOST:PORT`: the port of NFS, or of the port mapper where that is asked.
    pub address: String,
    /// The port of MOUNT; that of NFS if not given.
    pub mount_port: Option<u16>,
    /// Ask the port mapper at the address for the ports of NFS and MOUNT.
    pub asks_port_mapper: bool,
    /// The path of the export.
    pub export: String,
}

/// What to do.
#[derive(Debug, Clone)]
pub struct NfsLoad {
    /// Of whom it is asked.
    pub server: Server,
    /// What is asked.
    pub operation: Operation,
    /// Connections, up to [`CONNECTIONS_MAX`].
    pub connections: usize,
    /// Calls outstanding on each, up to [`DEPTH_MAX`].
    pub depth: usize,
    /// Bytes of a READ or WRITE, or of a file that is made, up to [`SIZE_MAX`].
    pub size: u64,
    /// Bytes of a file that is read or written.
    pub file_size: u64,
    /// Each connection reads a part of the file from its begin on, instead of here and there.
    pub reads_in_order: bool,
    /// When it ends.
    pub amount: Amount,
    /// The server's process, whose processor time is told, with that of its children.
    pub server_process: Option<u32>,
    /// Print the figures as one line of JSON too.
    pub json: bool,
}

/// What came of it, as the line of JSON has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Figures {
    operation: Operation,
    connections: usize,
    depth: usize,
    size: u64,
    seconds: f64,
    operations: u64,
    bytes: u64,
    operations_per_second: f64,
    latency_seconds: Latency,
    /// What an operation cost this program.
    own_cpu_seconds_per_operation: f64,
    server_cpu_seconds_per_operation: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Latency {
    mean: f64,
    p50: f64,
    p99: f64,
    max: f64,
}

/// Makes what the operation needs, runs it and prints what came of it.
///
/// # Errors
/// The server cannot be reached or does not export the path, something cannot be made, an operation failed or was answered
/// with other bytes than the file holds, or there is no such process.
pub fn run(load: &NfsLoad, output: &mut dyn Write) -> BenchResult<()> {
    load.check()?;
    // Before anything is made, so that a wrong number is told at once.
    load.server_time()?;
    let figures = load.figures()?;
    let mut text = figures.text();
    if load.json {
        text += &serde_json::to_string(&figures).expect("numbers and text");
        text += "\n";
    }
    output
        .write_all(text.as_bytes())
        .map_err(|error| cannot_print(&error))
}

impl NfsLoad {
    fn check(&self) -> BenchResult<()> {
        let within = |name: &str, value: u64, most: u64| match (1..=most).contains(&value) {
            true => Ok(()),
            false => Err(BenchError::new(
                format!("{name} is {value}"),
                format!("give 1 to {most}"),
            )),
        };
        within(
            "--connections",
            self.connections as u64,
            CONNECTIONS_MAX as u64,
        )?;
        within("--depth", self.depth as u64, DEPTH_MAX as u64)?;
        let moves_blocks = matches!(self.operation, Operation::Read | Operation::Write);
        if !moves_blocks && self.size == 0 {
            return Ok(());
        }
        within("--size", self.size, SIZE_MAX)?;
        let (size, file_size) = (self.size, self.file_size);
        if !size.is_multiple_of(WORD) {
            let cause = format!("--size is {size}");
            return Err(BenchError::new(cause, "give a multiple of 8 bytes"));
        }
        if moves_blocks && (file_size < size || !file_size.is_multiple_of(size)) {
            let cause = format!("--file-size is {file_size}");
            let remedy = format!("give a multiple of --size, which is {size}");
            return Err(BenchError::new(cause, remedy));
        }
        Ok(())
    }

    fn figures(&self) -> BenchResult<Figures> {
        let mut served = Served::find(&self.server)?;
        let workers = (0..self.connections)
            .map(|number| self.worker(&mut served, number as u64))
            .collect::<BenchResult<Vec<_>>>()?;
        let (server, own) = (self.server_time()?, system::own_time());
        let started = clock::now();
        let done = self.run_all(workers)?;
        let took = started.elapsed();
        let own = system::own_time() - own;
        let spent = server.zip(self.server_time()?);
        let spent = spent.map(|(before, after)| after.saturating_sub(before));
        Ok(self.sum_up(&done, took, (own, spent)))
    }

    fn worker(&self, served: &mut Served, number: u64) -> BenchResult<Worker> {
        let work: Box<dyn Work> = match self.operation {
            Operation::Read => served.reads(self, number as f64 / self.connections as f64)?,
            Operation::Write => served.writes(self.file_size, self.size, number)?,
            Operation::Getattr => served.looks_at_attributes()?,
            Operation::Lookup => served.looks_at_names()?,
            Operation::Create => served.creates(self.size, number)?,
        };
        let room = usize::try_from(self.size).unwrap_or(usize::MAX);
        let connection = Connection::open(served.nfs, NFS, room)?;
        Ok(Worker::new(connection, work, self.depth))
    }

    /// Lets each connection work in a thread of its own. The first failure ends all.
    fn run_all(&self, workers: Vec<Worker>) -> BenchResult<Done> {
        let has_failed = AtomicBool::new(false);
        let (connections, has_failed) = (self.connections as u64, &has_failed);
        let outcomes: Vec<BenchResult<Done>> = std::thread::scope(|scope| {
            let threads = workers.into_iter().enumerate().map(|(number, worker)| {
                let amount = self.amount.share(number as u64, connections);
                scope.spawn(move || {
                    let outcome = worker.run(amount, has_failed);
                    has_failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                    outcome
                })
            });
            // All are started before the first is waited for.
            let threads: Vec<_> = threads.collect();
            let outcomes = threads.into_iter();
            outcomes
                .map(|thread| thread.join().expect("it does not panic"))
                .collect()
        });
        let mut all = Done::default();
        for outcome in outcomes {
            all.add(&outcome?);
        }
        Ok(all)
    }

    /// What the server has used of the processors since it was started, if its process is known.
    fn server_time(&self) -> BenchResult<Option<Duration>> {
        let Some(process) = self.server_process else {
            return Ok(None);
        };
        let time = proc_fs::family_time(process).ok_or_else(|| {
            let cause = format!("there is no process {process}");
            BenchError::new(cause, "give --server-pid the id of the server's process")
        })?;
        Ok(Some(time))
    }

    fn sum_up(
        &self,
        done: &Done,
        took: Duration,
        (own, server): (Duration, Option<Duration>),
    ) -> Figures {
        let operations = done.latencies.count();
        let each = |time: Duration| time.as_secs_f64() / operations.max(1) as f64;
        let seconds = |time: Duration| time.as_secs_f64();
        Figures {
            operation: self.operation,
            connections: self.connections,
            depth: self.depth,
            size: self.size,
            seconds: seconds(took),
            operations,
            bytes: done.bytes,
            operations_per_second: operations as f64 / seconds(took).max(1e-9),
            latency_seconds: Latency {
                mean: seconds(done.latencies.mean()),
                p50: seconds(done.latencies.percentile(0.5)),
                p99: seconds(done.latencies.percentile(0.99)),
                max: seconds(done.latencies.max()),
            },
            own_cpu_seconds_per_operation: each(own),
            server_cpu_seconds_per_operation: server.map(each),
        }
    }
}

impl Amount {
    /// What the connection `number` of `connections` does of it.
    fn share(self, number: u64, connections: u64) -> Self {
        match self {
            Self::Time(_) => self,
            Self::Operations(all) => {
                let more = u64::from(number < all % connections);
                Self::Operations(all / connections + more)
            }
        }
    }
}

impl Figures {
    fn text(&self) -> String {
        let micros = |seconds: f64| format!("{:.1} µs", seconds * 1e6);
        let Latency {
            mean,
            p50,
            p99,
            max,
        } = self.latency_seconds;
        let mut text = format!(
            "{} of {} bytes, {} connections, {} deep: {} operations in {:.2} s\n\
             {:.0} operations/s, {:.1} MiB/s\n\
             latency: mean {}, p50 {}, p99 {}, max {}\n\
             CPU of an operation: {} of this program",
            self.operation.name(),
            self.size,
            self.connections,
            self.depth,
            self.operations,
            self.seconds,
            self.operations_per_second,
            self.bytes as f64 / self.seconds.max(1e-9) / f64::from(1 << 20),
            micros(mean),
            micros(p50),
            micros(p99),
            micros(max),
            micros(self.own_cpu_seconds_per_operation),
        );
        if let Some(server) = self.server_cpu_seconds_per_operation {
            text += &format!(", {} of the server", micros(server));
        }
        text + "\n"
    }
}

/// Where a name of a host leads, with a port in it or with `port`.
fn resolve(address: &str, port: u16) -> BenchResult<SocketAddr> {
    use std::net::ToSocketAddrs;
    let found = match address.to_socket_addrs() {
        Ok(found) => Ok(found),
        Err(_) => (address, port).to_socket_addrs(),
    };
    let found = found.map(|mut all| all.next());
    let why = match found {
        Ok(Some(address)) => return Ok(address),
        Ok(None) => "it has no address".to_owned(),
        Err(error) => error.to_string(),
    };
    let cause = format!("`{address}` is no address of a server: {why}");
    Err(BenchError::new(cause, "give HOST or HOST:PORT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> NfsLoad {
        NfsLoad {
            server: Server {
                address: "127.0.0.1:1".to_owned(),
                mount_port: None,
                asks_port_mapper: false,
                export: "/".to_owned(),
            },
            operation: Operation::Read,
            connections: 3,
            depth: 4,
            size: 4096,
            file_size: 8192,
            reads_in_order: false,
            amount: Amount::Operations(10),
            server_process: None,
            json: false,
        }
    }

    #[test]
    fn operations_are_shared_out_to_the_last() {
        let share = |number| match Amount::Operations(11).share(number, 3) {
            Amount::Operations(share) => share,
            Amount::Time(_) => 0,
        };
        assert_eq!([share(0), share(1), share(2)], [4, 4, 3]);
    }

    #[test]
    fn what_makes_no_sense_is_told_before_anything_is_asked() {
        let told = |change: fn(&mut NfsLoad)| {
            let mut load = load();
            change(&mut load);
            let error = run(&load, &mut Vec::new()).expect_err("it cannot run");
            error.to_string()
        };
        assert_eq!(
            told(|load| load.connections = 0),
            "--connections is 0; give 1 to 1024"
        );
        assert_eq!(
            told(|load| load.depth = 1025),
            "--depth is 1025; give 1 to 1024"
        );
        assert_eq!(
            told(|load| load.size = 4095),
            "--size is 4095; give a multiple of 8 bytes"
        );
        assert_eq!(
            told(|load| load.file_size = 5000),
            "--file-size is 5000; give a multiple of --size, which is 4096"
        );
        let unknown = told(|load| load.server_process = Some(u32::MAX));
        assert!(unknown.starts_with("there is no process"), "{unknown}");
        let nobody = told(|_| ());
        assert!(
            nobody.contains("127.0.0.1:1: Connection refused"),
            "{nobody}"
        );
    }

    #[test]
    fn an_address_may_lack_its_port() {
        let of = |text| resolve(text, 2049).expect("an address").to_string();
        assert_eq!(of("127.0.0.1"), "127.0.0.1:2049");
        assert_eq!(of("127.0.0.1:12"), "127.0.0.1:12");
        assert_eq!(of("::1"), "[::1]:2049");
        assert_eq!(of("[::1]:12"), "[::1]:12");
        resolve("no host", 1).expect_err("no name of a host");
    }
}
