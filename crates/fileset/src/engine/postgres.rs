//! The keys in a PostgreSQL database.
//!
//! | part | what it does |
//! |---|---|
//! | `session`, `readers` | connections, and the trips on them |
//! | `statements` | all SQL that there is, and which databases have what it is made of |
//! | `address`, `password`, `tls` | which database, who one is, and who it is |
//!
//! Three kinds of connections go to it: those that read, one that changes, and one for the pulse, which nothing else keeps
//! waiting. Each is made when it is needed and again when it broke.

mod address;
mod password;
mod readers;
mod session;
mod statements;
mod tls;

use std::{ops::Range, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::Secret;
use tokio::sync::Mutex;

pub use self::{address::PostgresAddress, password::password_in};
use self::{
    readers::Readers,
    session::{Connector, Reader, Session, Writer},
};
use super::{
    EngineResult, SessionRecord,
    database::{
        self, Batch, Database, DatabaseSettings, News, Outcome, Own, Page, Pages, Point, Since,
        Tenancy,
    },
};

/// The version of PostgreSQL from which on this is tried.
const SERVER_VERSION: u32 = 150_000;

/// Where a file system's keys are, and how much it may use.
#[derive(Debug, Clone)]
pub struct PostgresSettings {
    /// A directory of this user's, which is made: one process at a time has it, and it says which machine this is.
    pub directory: PathBuf,
    /// The database.
    pub address: PostgresAddress,
    /// The user's there.
    pub password: Option<Secret>,
    /// Which file system: the database may hold others.
    pub identity: u64,
    /// Bytes of memory for what is known of the keys.
    pub memory: u64,
    /// Connections that read; one more writes.
    pub connections: usize,
    /// How long an operation waits for a database that does not answer.
    pub patience: Duration,
    /// How long a session lives of which nothing is heard.
    pub lease: Duration,
    /// Whether others may have the file system at the same time.
    pub is_shared: bool,
}

impl PostgresSettings {
    /// Connections that read, usually.
    pub const CONNECTIONS: usize = 4;
    /// How long an operation waits, usually.
    pub const PATIENCE: Duration = database::PATIENCE;
    /// How long a session lives of which nothing is heard, usually.
    pub const LEASE: Duration = database::LEASE;
}

impl DatabaseSettings for PostgresSettings {
    fn tenancy(&self) -> Tenancy {
        Tenancy {
            directory: self.directory.clone(),
            memory: self.memory,
            patience: self.patience,
            lease: self.lease,
            is_shared: self.is_shared,
        }
    }

    fn database(&self) -> EngineResult<Arc<dyn Database>> {
        let (address, password) = (&self.address, self.password.as_ref());
        let connector = Connector::new(address, password, (self.identity, self.lease))?;
        Ok(Arc::new(Postgres {
            readers: Readers::new(connector.clone(), self.connections),
            writer: Mutex::default(),
            pulse: Mutex::default(),
            connector,
        }))
    }
}

/// The tables of one file system.
struct Postgres {
    connector: Connector,
    readers: Readers,
    /// Out of its place while it is used: who gives up waiting ends it, with what it has under way.
    writer: Mutex<Option<Writer>>,
    pulse: Mutex<Option<Session>>,
}

impl Postgres {
    async fn writer(&self) -> EngineResult<Writer> {
        let writer = self.writer.lock().await.take();
        match writer.filter(|writer| writer.session.is_alive()) {
            Some(writer) => Ok(writer),
            None => Writer::connect(&self.connector).await,
        }
    }

    /// What came of a trip, whose connection goes on if it is still one.
    async fn written<T>(&self, writer: Writer, came: EngineResult<T>) -> EngineResult<T> {
        *self.writer.lock().await = Some(writer);
        came
    }

    async fn pulse(&self) -> EngineResult<Session> {
        let pulse = self.pulse.lock().await.take();
        match pulse.filter(Session::is_alive) {
            Some(pulse) => Ok(pulse),
            None => self.connector.connect().await,
        }
    }

    async fn pulsed<T>(&self, pulse: Session, came: EngineResult<T>) -> EngineResult<T> {
        if came.is_ok() {
            *self.pulse.lock().await = Some(pulse);
        }
        came
    }
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.connector.place)
    }
}

#[async_trait]
impl Database for Postgres {
    fn place(&self) -> &str {
        &self.connector.place
    }

    async fn create(&self) -> EngineResult<()> {
        let session = self.connector.connect().await?;
        session.all(&self.connector.statements.create()).await
    }

    async fn is_there(&self) -> EngineResult<bool> {
        self.connector.connect().await?.has_schema().await
    }

    async fn remove(&self) -> EngineResult<()> {
        let session = self.connector.connect().await?;
        session.all(&self.connector.statements.drop()).await
    }

    async fn begin(&self, machine: i64, name: &str) -> EngineResult<Own> {
        let session = self.pulse().await?;
        warn_of(&session).await;
        let begun = session.begin(machine, name).await;
        self.pulsed(session, begun).await
    }

    async fn ask(&self, own: Own) -> EngineResult<(Option<i64>, Point)> {
        let writer = self.writer().await?;
        let asked = writer.session.ask(own).await;
        self.written(writer, asked).await
    }

    async fn share(&self, own: Own) -> EngineResult<()> {
        let writer = self.writer().await?;
        let shared = writer.session.share(own).await;
        self.written(writer, shared).await
    }

    async fn beat(&self, own: Own, took_in: i64) -> EngineResult<bool> {
        let session = self.pulse().await?;
        let lives = session.beat(own, took_in).await;
        self.pulsed(session, lives).await
    }

    async fn sessions(&self) -> EngineResult<Vec<(SessionRecord, i64)>> {
        let session = self.pulse().await?;
        let sessions = session.sessions().await;
        self.pulsed(session, sessions).await
    }

    async fn end(&self, own: Own) -> EngineResult<()> {
        let writer = self.writer().await?;
        let ended = writer.session.end(own).await;
        self.written(writer, ended).await
    }

    async fn end_other(&self, id: i64, beat: Option<i64>) -> EngineResult<bool> {
        let session = self.pulse().await?;
        let ended = session.end_other(id, beat).await;
        self.pulsed(session, ended).await
    }

    async fn trim(&self, _own: Own) -> EngineResult<()> {
        let writer = self.writer().await?;
        let trimmed = writer.session.trim().await;
        self.written(writer, trimmed).await
    }

    async fn page(&self, since: Since, range: &Range<Bytes>, count: i64) -> EngineResult<Page> {
        self.readers.page(since, range, count).await
    }

    async fn news(&self, since: Since) -> EngineResult<News> {
        self.readers.news(since).await
    }

    async fn change(&self, since: Since, batch: &Batch) -> EngineResult<(Outcome, News)> {
        let writer = self.writer().await?;
        let changed = writer.change(since, batch).await;
        self.written(writer, changed).await
    }

    async fn freeze(&self) -> EngineResult<Box<dyn Pages>> {
        let reader = Reader::connect(&self.connector).await?;
        // Nobody waits for it.
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
                     SET LOCAL idle_in_transaction_session_timeout = 0";
        reader.session.all(begin).await?;
        Ok(Box::new(reader))
    }
}

#[async_trait]
impl Pages for Reader {
    async fn page(&mut self, since: Since, range: &Range<Bytes>, count: i64) -> EngineResult<Page> {
        Reader::page(self, since, range, count).await
    }
}

/// Says what of a server is not as it should be.
async fn warn_of(session: &Session) {
    if session.setting("fsync").await.as_deref() == Some("off") {
        tracing::warn!(
            "the database runs with fsync=off: what was synced may be gone when its machine fails"
        );
    }
    if session.setting("full_page_writes").await.as_deref() == Some("off") {
        tracing::warn!(
            "the database runs with full_page_writes=off: a failure of its machine can damage it"
        );
    }
    let version = session.setting("server_version_num").await;
    let version = version.and_then(|version| version.parse::<u32>().ok());
    if version.is_none_or(|version| version < SERVER_VERSION) {
        tracing::warn!("the database is no PostgreSQL 15 or later: this was not tried");
    }
}
