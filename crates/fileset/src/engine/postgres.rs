//! An engine whose keys are in a PostgreSQL database, for any number of machines at a time.
//!
//! ```text
//!   operation ──► what waits, in memory ──► one trip for all that wait ──► database
//!        │                                     `change`: if nobody else changed what they build on
//!        └─ reads ─► what is known ─► `page`: a page from the key on that is not known yet, and what others changed
//! ```
//!
//! | part | what it does |
//! |---|---|
//! | `state` | all keys as operations see them: what waits, above what is known |
//! | `edits`, `grounds` | what operations change, and what they build on |
//! | `known` | what is known of the database, within bounds |
//! | `feed` | what others changed, in its order |
//! | `worker` | makes operations durable, in groups, one after the other; sends again what may be lost |
//! | `pulse` | says that this session is alive, and knows how long it certainly is |
//! | `lives`, `peers` | which sessions there are, and what is told of them |
//! | `session`, `readers`, `together` | connections, the trips on them, and which of these several share |
//! | `snapshot` | a look at all keys, page by page, that keeps none of them |
//! | `statements` | all SQL that there is, and which databases have what it is made of |
//! | `address`, `password`, `tls` | which database, who one is, and who it is |
//!
//! Operations run here, one after the other, against what is known. What one reads and nobody knows yet ends it; it is
//! fetched, with what is near it, and the operation runs again. All changes of all machines have one order, that of one
//! row in the database which every change locks: behind the lock the database compares what a group of operations
//! builds on with what others changed since it was known, and refuses the group if they meet. The price of a create so
//! is a share of one trip, and of a look at what was seen before nothing, however many machines there are.
//!
//! A machine that has the keys alone need not wait for the database before an operation is done. It lets others in as
//! soon as they ask. `docs/decisions/fileset.md` says what that was weighed against.

mod address;
mod edits;
mod feed;
mod grounds;
mod known;
mod lives;
mod paging;
mod password;
mod peers;
mod pulse;
mod readers;
mod session;
mod snapshot;
mod state;
mod statements;
mod tls;
mod together;
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
    DirectoryLock, DirectoryLockError, Mutex, Secret, clock, make_private_directory, random,
    run_blocking,
};
use tokio::task::JoinHandle;

pub use self::{address::PostgresAddress, password::password_in, peers::PostgresSessions};
use self::{
    feed::{Feed, Point},
    known::Known,
    lives::Lives,
    paging::Paging,
    pulse::{Life, Pulse, awake},
    readers::Readers,
    session::{Connector, Own, Session, Writer, over},
    state::{Mode, Ran, State},
    worker::{BEATS, Shared, Worker},
};
use super::{Engine, EngineError, EngineResult, Frozen, Operation, Peers, Query};

/// The file that says which machine this is to the database.
const MACHINE: &str = "machine";
/// How often a session that begins asks for the keys that another one has alone.
const ASK_INTERVAL: Duration = Duration::from_millis(20);
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
    /// How long a session lives of which nothing is heard.
    pub lease: Duration,
    /// Whether others may have the file system at the same time.
    pub is_shared: bool,
}

impl PostgresSettings {
    /// Connections that read, usually.
    pub const CONNECTIONS: usize = 4;
    /// How long an operation waits, usually.
    pub const PATIENCE: Duration = Duration::from_secs(60);
    /// How long a session lives of which nothing is heard, usually.
    pub const LEASE: Duration = Duration::from_secs(30);

    fn connector(&self) -> EngineResult<Connector> {
        run_blocking(|| {
            Connector::new(
                &self.address,
                self.password.as_ref(),
                (self.identity, self.lease),
            )
        })
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

    /// The number of this machine, which it has for good.
    fn machine(&self) -> EngineResult<i64> {
        let path = self.directory.join(MACHINE);
        match fs::read_to_string(&path) {
            Ok(text) => match text.trim().parse() {
                Ok(number) => Ok(number),
                Err(_) => Err(EngineError::Corrupt(path.display().to_string())),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.become_machine(random::number().cast_signed())
            }
            Err(error) => Err(failure(&path, &error)),
        }
    }

    fn become_machine(&self, number: i64) -> EngineResult<i64> {
        let path = self.directory.join(MACHINE);
        let begun = path.with_extension("new");
        let write = || {
            fs::write(&begun, number.to_string())?;
            fs::File::open(&begun)?.sync_all()?;
            fs::rename(&begun, &path)?;
            fs::File::open(&self.directory)?.sync_all()
        };
        write().map_err(|error: std::io::Error| failure(&path, &error))?;
        Ok(number)
    }
}

/// What others are told of this process.
fn own_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} (process {})", host.trim(), std::process::id())
}

fn failure(path: &Path, error: &std::io::Error) -> EngineError {
    EngineError::Io(format!("{}: {error}", path.display()))
}

/// The way to the database, for the one process of this machine that has it.
struct Way {
    connector: Connector,
    session: Session,
    lock: DirectoryLock,
}

impl Way {
    async fn to(settings: &PostgresSettings) -> EngineResult<Self> {
        let lock = run_blocking(|| settings.lock())?;
        let connector = settings.connector()?;
        let session = connector.connect().await?;
        warn_of(&session).await;
        Ok(Self {
            connector,
            session,
            lock,
        })
    }
}

/// See the module.
pub struct PostgresEngine {
    shared: Arc<Shared>,
    worker: Mutex<Option<JoinHandle<()>>>,
    lock: Mutex<Option<DirectoryLock>>,
}

impl PostgresEngine {
    /// Makes the tables of a new file system. Fails with `Fenced` where there are some already.
    pub async fn create(settings: &PostgresSettings) -> EngineResult<Self> {
        let way = Way::to(settings).await?;
        way.session.all(&way.connector.statements.create()).await?;
        Self::begin(settings, way).await
    }

    /// Begins a session. Fails with `Fenced` if another machine has one and nobody else may, and with `InUse` while
    /// another process of this machine has one.
    pub async fn open(settings: &PostgresSettings) -> EngineResult<Self> {
        Self::begin(settings, Way::to(settings).await?).await
    }

    async fn begin(settings: &PostgresSettings, way: Way) -> EngineResult<Self> {
        let Way {
            connector,
            session,
            lock,
        } = way;
        let machine = run_blocking(|| settings.machine())?;
        let own = session.begin(machine, &own_name()).await?;
        let granted = match ask(&session, own, settings).await {
            Ok(granted) => Writer::connect(&connector)
                .await
                .map(|writer| (granted, writer)),
            Err(error) => Err(error),
        };
        let ((mode, seen, life), writer) = match granted {
            Ok(granted) => granted,
            Err(error) => {
                // One that cannot be told now is ended by others.
                let _ = session.end(own).await;
                return Err(error);
            }
        };
        let state = State::new(mode, Known::new(settings.memory as usize), Feed::new(seen));
        let readers = Readers::new(connector.clone(), settings.connections);
        let life = (own, life, settings.patience);
        let shared = Arc::new(Shared::new(connector, (state, readers), life));
        let pulse = Pulse::new(Arc::clone(&shared), session);
        let worker = Worker::new(Arc::clone(&shared), writer).run(pulse);
        Ok(Self {
            shared,
            worker: Mutex::new(Some(tokio::spawn(worker))),
            lock: Mutex::new(Some(lock)),
        })
    }

    /// A look at all keys that keeps none of them: at one state that is durable.
    async fn look_at_all(&self, query: Query<'_>) -> EngineResult<()> {
        self.sync().await?;
        let connector = self.shared.connector.clone();
        let (since, patience) = (self.shared.since(), self.shared.patience);
        let news = run_blocking(|| snapshot::look(connector, (since, patience), query))?;
        if let Some(news) = news {
            self.shared.learn(|state| state.go_on(news));
        }
        Ok(())
    }
}

/// Asks to have the keys alone, and waits for one who has them to let others in. Returns how this session has them, the
/// latest change, and how long it lives.
async fn ask(
    session: &Session,
    own: Own,
    settings: &PostgresSettings,
) -> EngineResult<(Mode, Point, Life)> {
    let began = clock::now();
    let mut lives = Lives::of(own.id, settings.lease);
    let (mut next_beat, mut sent) = (began, awake());
    loop {
        if clock::now() >= next_beat {
            next_beat = clock::now() + settings.lease / BEATS;
            sent = beat(session, own).await?;
            let others = lives.look(session).await?;
            // Of two that came at the same time the earlier one goes on.
            if others.is_earlier_alive && !settings.is_shared {
                return Err(EngineError::Fenced("another machine has it".to_owned()));
            }
        }
        let (alone, seen) = session.ask(own).await?;
        let life = || Life::new(settings.lease, sent);
        match alone {
            Some(alone) if alone == own.id => return Ok((Mode::Alone, seen, life())),
            None if settings.is_shared => return Ok((Mode::Shared, seen, life())),
            _ => {}
        }
        // One that is dead is over by then, and one that is alive has had its time to save what it changed.
        if clock::now().duration_since(began) > settings.patience.max(settings.lease * 2) {
            return Err(EngineError::Database(
                "another machine has it alone, and does not let others in".to_owned(),
            ));
        }
        clock::sleep(ASK_INTERVAL).await;
    }
}

/// Says that a session is alive that took nothing in so far, and returns when that was sent.
async fn beat(session: &Session, own: Own) -> EngineResult<Duration> {
    let sent = awake();
    match session.beat(own, 0).await? {
        true => Ok(sent),
        false => Err(over()),
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
            .field("session", &self.shared.own.id)
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
        let mut paging = Paging::new();
        for _ in 0..MISSES_MAX {
            let ran = self.shared.look(query)?;
            match ran {
                Ran::Missed(want) => drop(self.shared.fetch(want, &mut paging).await?),
                Ran::Uncertain => self.shared.certain().await?,
                _ => return Ok(()),
            }
        }
        self.look_at_all(query).await
    }

    async fn ready(&self) -> EngineResult<()> {
        self.shared.room().await
    }

    async fn run(&self, mut operation: Operation) -> EngineResult<()> {
        self.shared.run(&mut operation).await
    }

    async fn sync(&self) -> EngineResult<()> {
        let applied = {
            let state = self.shared.read();
            state.check()?;
            state.applied()
        };
        self.shared.committed(applied).await
    }

    async fn freeze(&self) -> EngineResult<Frozen> {
        self.sync().await?;
        let (since, patience) = (self.shared.since(), self.shared.patience);
        let connector = self.shared.connector.clone();
        Ok(Box::new(snapshot::Snapshot::begin(
            connector, since, patience,
        )))
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

    fn peers(&self) -> Option<&dyn Peers> {
        Some(self)
    }
}
