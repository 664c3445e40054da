//! File systems on a server of the tests' own.

#![allow(
    unreachable_pub,
    dead_code,
    unused_imports,
    unused_macros,
    clippy::unwrap_used,
    reason = "each test file uses some of it"
)]

pub mod gate;
pub mod relay;
pub mod server;
pub mod turns;

use std::{path::Path, sync::Arc, time::Duration};

use penstock_base::Secret;
use penstock_fileset::engine::{DatabaseEngine, PostgresAddress, PostgresSettings};
use tempfile::TempDir;

pub use server::{PASSWORD, Server};
pub use turns::Turns;

/// What a file system on a server is opened with.
pub type Settings = PostgresSettings;

/// A directory of a machine's own.
pub fn place() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The same as [`settings`], for who has a [`place`].
pub fn settings_of(server: &Server, place: &TempDir, identity: u64) -> PostgresSettings {
    settings(server, place.path(), identity)
}

/// Where a file system's tables are.
pub fn schema(settings: &PostgresSettings) -> String {
    format!("penstock_{:016x}", settings.identity)
}

/// Lets what is inserted into a table fail with this code, in some of so many cases.
pub fn fail_changes(
    server: &Server,
    settings: &PostgresSettings,
    (table, code, share): (&str, &str, f64),
) {
    let schema = schema(settings);
    server.sql(&format!(
        "CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           IF random() < {share} THEN RAISE EXCEPTION 'as told' USING ERRCODE = '{code}'; END IF; \
           RETURN NEW; END $$; \
         CREATE TRIGGER fail BEFORE INSERT ON {schema}.{table} \
           FOR EACH STATEMENT EXECUTE FUNCTION {schema}.fail();"
    ));
}

/// It goes on without failures.
pub fn stop_failing(server: &Server, settings: &PostgresSettings) {
    let schema = schema(settings);
    server.sql(&format!("DROP FUNCTION {schema}.fail() CASCADE"));
}

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
        lease: PostgresSettings::LEASE,
        is_shared: true,
    }
}

/// A new file system of its own on the server that the tests share.
pub async fn new_engine(directory: &Path) -> Option<Arc<DatabaseEngine>> {
    let settings = settings(
        Server::shared()?,
        directory,
        penstock_base::random::number(),
    );
    Some(Arc::new(DatabaseEngine::create(&settings).await.unwrap()))
}

/// A new file system of its own on the server that the tests share, which two machines have.
pub async fn new_engines(directories: &[TempDir; 2]) -> Option<[Arc<DatabaseEngine>; 2]> {
    let identity = penstock_base::random::number();
    let [first, second] = directories.each_ref();
    let first = settings(Server::shared()?, first.path(), identity);
    let second = settings(Server::shared()?, second.path(), identity);
    let first = DatabaseEngine::create(&first).await.unwrap();
    let second = DatabaseEngine::open(&second).await.unwrap();
    Some([Arc::new(first), Arc::new(second)])
}

/// Runs tests on machines that share keys in memory, and on a database where there is one.
macro_rules! on_each_engine {
    ($($name:ident),* $(,)?) => {
        mod in_memory {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name($crate::ground::Ground::in_memory().await).await;
                }
            )*
        }

        mod on_postgres {
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
