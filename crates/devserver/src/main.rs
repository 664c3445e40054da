//! `penstock-devserver`: the object server as a program.

// This program is a world of its own: it reads its command line and writes where it listens.
#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr)]

use std::{io, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use penstock_devserver::{
    CONNECTIONS_DEFAULT, Credentials, Crowd, EtagPolicy, Faults, Fill, Identity, Server, Settings,
    parse_bytes, parse_duration,
};
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

/// A light object server for development, tests and benchmarks: S3 and OSS on one port, all in
/// memory, with faults on demand. Its own requests are under /-/: health, counters,
/// counters/reset, faults, crowds.
#[derive(Debug, Parser)]
#[command(name = "penstock-devserver", version)]
struct Arguments {
    /// Where to listen; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:9000")]
    address: SocketAddr,

    /// Create this bucket; may be repeated.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    bucket: Vec<String>,

    /// Read DIR/BUCKET/KEY... into memory at the start. Nothing is written back.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Make COUNT objects of SIZE at once, such as bench/small/:10000:128KiB; may be repeated.
    #[arg(long, value_name = "BUCKET/PREFIX:COUNT:SIZE")]
    fill: Vec<Fill>,

    /// Let COUNT objects be there that take no memory, spread over so many directories, such as
    /// bench/many/:10000000:100KiB:1000; may be repeated.
    #[arg(long, value_name = "BUCKET/PREFIX:COUNT:SIZE:DIRECTORIES")]
    crowd: Vec<Crowd>,

    /// A key that may sign requests; may be repeated.
    #[arg(long, value_name = "KEY:SECRET[:TOKEN]")]
    credentials: Vec<Credentials>,

    /// Refuse requests that are not signed with one of the credentials.
    #[arg(long, requires = "credentials")]
    verify_signatures: bool,

    /// The region that signatures must name; any if not given.
    #[arg(long)]
    region: Option<String>,

    /// A domain whose sub-domains are buckets.
    #[arg(long)]
    domain: Option<String>,

    /// Speak HTTPS, too, with a certificate made for the run; the authority to trust is written to FILE.
    #[arg(long, value_name = "FILE")]
    tls: Option<PathBuf>,

    /// Time until the first byte of every answer, such as 30ms.
    #[arg(long, value_parser = parse_duration, default_value = "0")]
    latency: Duration,

    /// Bytes per second of each connection, such as 1GiB.
    #[arg(long, value_parser = parse_bytes)]
    bandwidth: Option<u64>,

    /// Bytes per second of all connections together.
    #[arg(long, value_parser = parse_bytes)]
    bandwidth_total: Option<u64>,

    /// What tags are made from: auto (MD5 up to 1 MiB), md5, opaque.
    #[arg(long, default_value = "auto")]
    etag: EtagPolicy,

    /// Memory to make ready at the start and keep, such as 4GiB: storing then costs no more the
    /// first time than the next.
    #[arg(long, value_parser = parse_bytes, default_value = "0")]
    prepared_memory: u64,

    /// Connections served at a time.
    #[arg(long, default_value_t = CONNECTIONS_DEFAULT)]
    connections: usize,
}

impl Arguments {
    fn into_settings(self) -> io::Result<Settings> {
        let faults = Faults {
            bandwidth: self.bandwidth,
            bandwidth_total: self.bandwidth_total,
            ..Faults::latency(self.latency)
        };
        let identity = self.tls.map(|file| -> io::Result<Identity> {
            let identity = Identity::generate(self.address.ip())?;
            std::fs::write(file, identity.authority())?;
            Ok(identity)
        });
        Ok(Settings {
            address: self.address,
            buckets: self.bucket,
            fills: self.fill,
            crowds: self.crowd,
            directory: self.directory,
            credentials: self.credentials,
            verify_signatures: self.verify_signatures,
            region: self.region,
            domain: self.domain,
            identity: identity.transpose()?,
            etag: self.etag,
            faults,
            prepared_memory: self.prepared_memory,
            connections_max: self.connections,
        })
    }
}

/// What RUST_LOG asks for, such as `penstock_devserver=debug`, and warnings.
fn filter() -> Targets {
    let asked = std::env::var("RUST_LOG").ok();
    let asked = asked.and_then(|text| text.parse().ok());
    asked.unwrap_or_else(|| Targets::new().with_default(tracing::Level::WARN))
}

fn main() -> ExitCode {
    let format = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(format.with_filter(filter()))
        .init();
    let arguments = Arguments::parse();
    let address = arguments.address;
    match arguments.into_settings().and_then(Server::start) {
        Ok(server) => {
            println!("listening on {}", server.url());
            server.wait();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("penstock-devserver: cannot serve on {address}: {error}");
            ExitCode::FAILURE
        }
    }
}
