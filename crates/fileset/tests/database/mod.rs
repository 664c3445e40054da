//! File systems on a server of the tests' own.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses some of it"
)]

pub mod gate;
pub mod relay;
pub mod server;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use penstock_base::Secret;
use penstock_fileset::engine::{
    Engine, EngineResult, Operation, Peers, PostgresAddress, PostgresEngine, PostgresSettings,
    Query,
};
use tempfile::TempDir;

pub use server::{PASSWORD, Server};

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
pub async fn new_engine(directory: &Path) -> Option<Arc<PostgresEngine>> {
    let settings = settings(
        Server::shared()?,
        directory,
        penstock_base::random::number(),
    );
    Some(Arc::new(PostgresEngine::create(&settings).await.unwrap()))
}

/// A new file system of its own on the server that the tests share, which two machines have.
pub async fn new_engines(directories: &[TempDir; 2]) -> Option<[Arc<PostgresEngine>; 2]> {
    let identity = penstock_base::random::number();
    let [first, second] = directories.each_ref();
    let first = settings(Server::shared()?, first.path(), identity);
    let second = settings(Server::shared()?, second.path(), identity);
    let first = PostgresEngine::create(&first).await.unwrap();
    let second = PostgresEngine::open(&second).await.unwrap();
    Some([Arc::new(first), Arc::new(second)])
}

/// Sessions on the same keys, of which each does what comes next in turn. Queries see what was done by any of them.
#[derive(Debug)]
pub struct Turns {
    sessions: [Arc<PostgresEngine>; 2],
    turn: AtomicUsize,
}

impl Turns {
    pub fn new(sessions: [Arc<PostgresEngine>; 2]) -> Self {
        let turn = AtomicUsize::new(0);
        Self { sessions, turn }
    }

    fn next(&self) -> &PostgresEngine {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.sessions[turn % self.sessions.len()]
    }
}

#[async_trait]
impl Engine for Turns {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        let session = self.next();
        session.catch_up().await?;
        session.run_query(query).await
    }

    async fn run(&self, operation: Operation) -> EngineResult<()> {
        self.next().run(operation).await
    }

    async fn sync(&self) -> EngineResult<()> {
        for session in &self.sessions {
            session.sync().await?;
        }
        Ok(())
    }

    async fn close(&self) -> EngineResult<()> {
        for session in &self.sessions {
            session.close().await?;
        }
        Ok(())
    }
}
