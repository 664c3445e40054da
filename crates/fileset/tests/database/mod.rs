//! File systems on a server of the tests' own.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses some of it"
)]

pub mod relay;
pub mod server;

use std::{path::Path, sync::Arc, time::Duration};

use penstock_base::Secret;
use penstock_fileset::engine::{PostgresAddress, PostgresEngine, PostgresSettings};

pub use server::{PASSWORD, Server};

/// A file system on `server`, for a machine that has `directory`.
pub fn settings(server: &Server, directory: &Path, identity: u64) -> PostgresSettings {
    settings_at(server.port, directory, identity)
}

/// The same behind another port.
pub fn settings_at(port: u16, directory: &Path, identity: u64) -> PostgresSettings {
    let address = format!("postgres://penstock@127.0.0.1:{port}/postgres");
    PostgresSettings {
        directory: directory.to_owned(),
        address: PostgresAddress::parse(&address).unwrap(),
        password: Some(Secret::new(PASSWORD)),
        identity,
        memory: 8 << 20,
        connections: 2,
        patience: Duration::from_secs(60),
    }
}

/// A new file system of its own on the server that the tests share.
pub async fn new_engine(directory: &Path) -> Option<Arc<PostgresEngine>> {
    let settings = settings(
        Server::shared()?,
        directory,
        penstock_base::random::number(),
    );
    Some(Arc::new(PostgresEngine::create(&settings).await.unwrap()))
}
