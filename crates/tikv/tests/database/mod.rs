//! File systems on a cluster of the tests' own. Modules of the engines' tests find here what they find for other databases.

#![allow(
    unreachable_pub,
    dead_code,
    unused_imports,
    unused_macros,
    clippy::unwrap_used,
    reason = "each test file uses some of it"
)]

pub mod cluster;
#[path = "../../../fileset/tests/database/turns.rs"]
pub mod turns;

use std::{path::Path, sync::Arc};

use penstock_base::random;
use penstock_fileset::engine::DatabaseEngine;
use penstock_tikv::{TikvAddress, TikvSettings};
use tempfile::TempDir;

pub use cluster::Cluster as Server;
pub use turns::Turns;

/// What a file system on a cluster is opened with.
pub type Settings = TikvSettings;

/// A file system on `server`, for a machine that has `directory`.
pub fn settings(server: &Server, directory: &Path, identity: u64) -> Settings {
    // What tests leave goes with the cluster, and none of them looks at what was before for minutes.
    let address = format!("tikv://{}/tests?gc=off", server.address());
    TikvSettings {
        directory: directory.to_owned(),
        address: TikvAddress::parse(&address).unwrap(),
        identity,
        memory: 8 << 20,
        patience: TikvSettings::PATIENCE,
        lease: TikvSettings::LEASE,
        is_shared: true,
    }
}

/// A new file system of its own on the cluster that the tests share.
pub async fn new_engine(directory: &Path) -> Option<Arc<DatabaseEngine>> {
    let settings = settings(Server::shared()?, directory, random::number());
    Some(Arc::new(DatabaseEngine::create(&settings).await.unwrap()))
}

/// The same, which two machines have.
pub async fn new_engines(directories: &[TempDir; 2]) -> Option<[Arc<DatabaseEngine>; 2]> {
    let identity = random::number();
    let [first, second] = directories.each_ref();
    let first = settings(Server::shared()?, first.path(), identity);
    let second = settings(Server::shared()?, second.path(), identity);
    let first = DatabaseEngine::create(&first).await.unwrap();
    let second = DatabaseEngine::open(&second).await.unwrap();
    Some([Arc::new(first), Arc::new(second)])
}

/// Runs tests on machines that share keys in a cluster.
macro_rules! on_each_engine {
    ($($name:ident),* $(,)?) => {
        mod on_tikv {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    if let Some(ground) = $crate::ground::Ground::on_a_database().await {
                        super::$name(ground).await;
                    }
                }
            )*
        }
    };
}

pub(crate) use on_each_engine;
