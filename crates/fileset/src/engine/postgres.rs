//! An engine whose keys are in a PostgreSQL database, for one machine at a time.
//!
//! ```text
//!   operation ──► what waits, in memory ──► one statement for all that wait ──► database
//!        │                                       `write`: if the epoch is ours and the number is the next one
//!        └─ reads ─► what is known ─► `read`: a page from the key on that is not known yet
//! ```
//!
//! | part | what it does |
//! |---|---|
//! | `state` | all keys as operations see them: what waits, above what is known |
//! | `known` | what is known of the database, within bounds |
//! | `worker` | makes operations durable, in groups, one after the other; sends again what may be lost |
//! | `session`, `readers` | connections, and the trips on them |
//! | `snapshot` | a look at all keys, page by page, that keeps none of them |
//! | `statements` | all SQL that there is, and which databases have what it is made of |
//! | `address`, `password`, `tls` | which database, who one is, and who it is |
//!
//! One machine has the file system, and nobody else changes its keys: so operations run here, one after the other,
//! against what is known, and the database is not asked to keep them apart. What an operation reads and nobody knows
//! yet ends it; it is fetched, with what is near it, and the operation runs again. The price of a create so is a share
//! of one statement, and of a look at what was seen before nothing. That the machine still is the one is checked where
//! it counts: in the statement that writes, by the database, and in each trip that reads. `docs/decisions/fileset.md`
//! says what that was weighed against.

mod address;
mod known;
mod password;
mod readers;
mod session;
mod snapshot;
mod state;
mod statements;
mod tls;
mod worker;

use std::{
    fmt::Debug,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use penstock_base::{
    DirectoryLock, DirectoryLockError, Mutex, Secret, make_private_directory, random, run_blocking,
};
use tokio::task::JoinHandle;

pub use self::{address::PostgresAddress, password::password_in};
use self::{
    known::Known,
    readers::Readers,
    session::{Connector, Owner, Session, Writer},
    state::{Ran, State},
    worker::{Shared, Worker},
};
use super::{Engine, EngineError, EngineResult, Operation, Query};

/// The file that says which machine this is to the database.
const HOLDER: &str = "holder";
/// Misses of one look, after which it goes over a snapshot instead.
const MISSES_MAX: u32 = 24;
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
}

impl PostgresSettings {
    /// Connections that read, usually.
    pub const CONNECTIONS: usize = 4;
    /// How long an operation waits, usually.
    pub const PATIENCE: Duration = Duration::from_secs(60);

    fn connector(&self) -> EngineResult<Connector> {
        run_blocking(|| Connector::new(&self.address, self.password.as_ref(), self.identity))
    }

    fn lock(&self) -> EngineResult<DirectoryLock> {
        let directory = &self.directory;
        let made = make_private_directory(directory);
        made.map_err(|error| failure(directory, &error))?;
        DirectoryLock::take(directory).map_err(|error| match error {
            DirectoryLockError::InUse { pid } => EngineError::InUse { pid },
            DirectoryLockError::Io(error) => failure(directory, &error),
        })
    }

    /// The number of this machine, if it has one.
    fn holder(&self) -> EngineResult<Option<i64>> {
        let path = self.directory.join(HOLDER);
        match fs::read_to_string(&path) {
            Ok(text) => match text.trim().parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(EngineError::Corrupt(path.display().to_string())),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failure(&path, &error)),
        }
    }

    fn write_holder(&self, number: i64) -> EngineResult<()> {
        let path = self.directory.join(HOLDER);
        let begun = path.with_extension("new");
        let write = || {
            fs::write(&begun, number.to_string())?;
            fs::File::open(&begun)?.sync_all()?;
            fs::rename(&begun, &path)?;
            fs::File::open(&self.directory)?.sync_all()
        };
        write().map_err(|error: std::io::Error| failure(&path, &error))
    }
}

fn failure(path: &Path, error: &std::io::Error) -> EngineError {
    EngineError::Io(format!("{}: {error}", path.display()))
}

/// See the module.
pub struct PostgresEngine {
    shared: Arc<Shared>,
    worker: Mutex<Option<JoinHandle<()>>>,
    lock: Mutex<Option<DirectoryLock>>,
}

impl PostgresEngine {
    /// Makes the tables of a new file system. Fails with `Fenced` where there are some.
    pub async fn create(settings: &PostgresSettings) -> EngineResult<Self> {
        let lock = run_blocking(|| settings.lock())?;
        let connector = settings.connector()?;
        let holder = random::number() as i64;
        let session = connector.connect().await?;
        warn_of(&session).await;
        session.all(&connector.statements.create(holder)).await?;
        run_blocking(|| settings.write_holder(holder))?;
        let owner = Self::claim(&session, &connector.statements.claim(), holder).await?;
        Self::start(settings, (connector, lock), owner).await
    }

    /// Goes on with what this machine has. Fails with `Fenced` if another one has it, and with `InUse` while another
    /// process of this machine has it open.
    pub async fn open(settings: &PostgresSettings) -> EngineResult<Self> {
        let lock = run_blocking(|| settings.lock())?;
        let holder = run_blocking(|| settings.holder())?.ok_or_else(|| {
            EngineError::Fenced("it was never attached to this machine".to_owned())
        })?;
        let connector = settings.connector()?;
        let session = connector.connect().await?;
        warn_of(&session).await;
        let owner = Self::claim(&session, &connector.statements.claim(), holder).await?;
        Self::start(settings, (connector, lock), owner).await
    }

    /// Takes the file system from whoever has it: nothing that is written there is acknowledged any more.
    pub async fn attach(settings: &PostgresSettings) -> EngineResult<Self> {
        let lock = run_blocking(|| settings.lock())?;
        let connector = settings.connector()?;
        let holder = random::number() as i64;
        let session = connector.connect().await?;
        warn_of(&session).await;
        let owner = Self::claim(&session, &connector.statements.take(), holder).await?;
        run_blocking(|| settings.write_holder(holder))?;
        Self::start(settings, (connector, lock), owner).await
    }

    async fn claim(session: &Session, claim: &str, holder: i64) -> EngineResult<Owner> {
        let claimed = session.claim(claim, holder).await?;
        claimed.ok_or_else(|| EngineError::Fenced("another machine has it".to_owned()))
    }

    async fn start(
        settings: &PostgresSettings,
        (connector, lock): (Connector, DirectoryLock),
        owner: Owner,
    ) -> EngineResult<Self> {
        let writer = Writer::connect(&connector).await?;
        let state = State::new(Known::new(settings.memory as usize));
        let readers = Readers::new(connector.clone(), settings.connections);
        let life = (owner.epoch, settings.patience);
        let shared = Arc::new(Shared::new(connector, (state, readers), life));
        let worker = Worker {
            shared: Arc::clone(&shared),
            writer: Some(writer),
            sequence: owner.sequence,
        };
        Ok(Self {
            shared,
            worker: Mutex::new(Some(tokio::spawn(worker.run()))),
            lock: Mutex::new(Some(lock)),
        })
    }

    /// A look at all keys that keeps none of them: at one state that is durable.
    async fn look_at_all(&self, query: Query<'_>) -> EngineResult<()> {
        self.sync().await?;
        let connector = self.shared.connector.clone();
        let (epoch, patience) = (self.shared.epoch, self.shared.patience);
        run_blocking(|| snapshot::look(connector, (epoch, patience), query))
    }
}

/// Whether a database has tables of this file system.
pub async fn has_tables(settings: &PostgresSettings) -> EngineResult<bool> {
    let connector = settings.connector()?;
    let session = connector.connect().await?;
    session.has_schema().await
}

/// Removes the tables of a file system, which this machine must have and nobody has open.
pub async fn remove_tables(settings: &PostgresSettings) -> EngineResult<()> {
    let _lock = run_blocking(|| settings.lock())?;
    let connector = settings.connector()?;
    let session = connector.connect().await?;
    session.all(&connector.statements.drop()).await
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

impl Debug for PostgresEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresEngine")
            .field("epoch", &self.shared.epoch)
            .finish_non_exhaustive()
    }
}

impl Drop for PostgresEngine {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.lock().take() {
            worker.abort();
        }
    }
}

#[async_trait]
impl Engine for PostgresEngine {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        for misses in 0..MISSES_MAX {
            let ran = self.shared.read().look(query)?;
            match ran {
                Ran::Done => return Ok(()),
                Ran::Missed(want) => self.shared.fetch(want, misses).await?,
            }
        }
        self.look_at_all(query).await
    }

    async fn ready(&self) -> EngineResult<()> {
        self.shared.room().await
    }

    async fn run(&self, mut operation: Operation) -> EngineResult<()> {
        for misses in 0.. {
            self.shared.room().await?;
            let ran = self.shared.write().run(&mut operation)?;
            match ran {
                Ran::Done => break,
                Ran::Missed(want) => self.shared.fetch(want, misses).await?,
            }
        }
        self.shared.ring();
        Ok(())
    }

    async fn sync(&self) -> EngineResult<()> {
        let applied = {
            let state = self.shared.read();
            state.check()?;
            state.applied()
        };
        self.shared.committed(applied).await
    }

    async fn close(&self) -> EngineResult<()> {
        let closed = self.shared.close().await;
        let worker = self.worker.lock().take();
        if let Some(worker) = worker {
            worker.abort();
            // What it has under way ends with its connection.
            let _ = worker.await;
        }
        self.lock.lock().take();
        closed
    }
}
