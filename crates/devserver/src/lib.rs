//! A light object server for development, tests and benchmarks.
//!
//! It speaks the S3 and the OSS dialect on one port, keeps everything in memory, checks
//! signatures when told to, and fails on demand. It shares no code with the client that it
//! tests: signing and checksums are implemented a second time here, so that they check each
//! other.
//!
//! Light means: a GET is one read of a request head, one send of an answer head, and
//! `sendfile` from memory that no one copies. There is one blocking thread for each
//! connection. Nothing hashes a large body unless a client asks for it.
//!
//! ```
//! use penstock_devserver::{Server, Settings};
//!
//! let server = Server::start(Settings::with_bucket("demo"))?;
//! server.data().put("demo", "hello.txt", b"hello")?;
//! println!("mount it from {}", server.url());
//! let data = server.stop();
//! assert_eq!(data.keys("demo"), ["hello.txt"]);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Layers, from the outside in: [`Server`] accepts; `connection` reads a request, asks the
//! [`FaultPlan`] what is to go wrong, has `signature` check it and `operations` carry it out
//! on [`Data`]; `send` answers.

mod address;
mod admin;
mod clock;
mod connection;
mod counters;
mod dialect;
mod digest;
mod faults;
mod http;
mod identity;
mod lacks;
mod operations;
mod rate;
mod refusal;
mod send;
mod server;
mod service;
mod settings;
mod signature;
mod store;
mod sync;
// The only unsafe code here: system calls that std does not wrap.
#[allow(unsafe_code)]
mod system;
mod xml;

pub use counters::Counters;
pub use dialect::Dialect;
pub use faults::{Fault, FaultPlan, FaultRule, Faults, RULES_MAX};
pub use identity::Identity;
pub use lacks::Lack;
pub use operations::Operation;
pub use rate::{parse_bytes, parse_duration};
pub use server::Server;
pub use settings::{CONNECTIONS_DEFAULT, Credentials, EtagPolicy, Settings};
pub use store::{
    Data,
    crowd::Crowd,
    fill::{Fill, PATTERN_LENGTH, expected},
};
