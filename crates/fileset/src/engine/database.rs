//! An engine whose keys are in a database, for any number of machines at a time.
//!
//! ```text
//!   operation ──► what waits, in memory ──► one batch of all that wait ──► database
//!        │                                     `change`: if nobody else changed what they build on
//!        └─ reads ─► what is known ─► `page`: a page from the key on that is not known yet, and what others changed
//! ```
//!
//! | part | what it does |
//! |---|---|
//! | `driver` | what a database does for the engine: each kind of them is driven behind this seam |
//! | `state` | all keys as operations see them: what waits, above what is known |
//! | `edits`, `grounds` | what operations change, and what they build on |
//! | `known` | what is known of the database, within bounds |
//! | `feed` | what others changed, in its order |
//! | `worker` | makes operations durable, in groups, one after the other; sends again what may be lost |
//! | `pulse` | says that this session is alive, and knows how long it certainly is |
//! | `lives`, `peers` | which sessions there are, and what is told of them |
//! | `snapshot` | a look at all keys, page by page, that keeps none of them |
//!
//! Operations run here, one after the other, against what is known. What one reads and nobody knows yet ends it; it is
//! fetched, with what is near it, and the operation runs again. All changes of all machines have one order, that of one
//! row in the database which every change moves on: in the step that moves it the database compares what a group of operations
//! builds on with what others changed since it was known, and refuses the group if they meet. The price of a create so
//! is a share of one trip, and of a look at what was seen before nothing, however many machines there are.
//!
//! A machine that has the keys alone need not wait for the database before an operation is done. It lets others in as
//! soon as they ask. `docs/decisions/fileset.md` says what that was weighed against.

mod driver;
mod edits;
mod feed;
mod grounds;
mod known;
mod lives;
mod peers;
mod pulse;
mod snapshot;
mod state;
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
    DirectoryLock, DirectoryLockError, Mutex, clock, make_private_directory, random, run_blocking,
};
use tokio::task::JoinHandle;

pub use self::{
    driver::{Batch, Database, Limits, Outcome, Own, Page, Pages, Since, over, put_back},
    edits::{Count, Edit, Edits, number},
    feed::{ChangedKey, News, Point, moment},
    grounds::Grounds,
    peers::DatabaseSessions,
};
use self::{
    feed::Feed,
    known::Known,
    lives::Lives,
    pulse::{Life, Pulse, awake},
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

/// How long an operation waits for a database that does not answer, usually.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a session lives of which nothing is heard, usually.
pub const LEASE: Duration = Duration::from_secs(30);

/// What a file system on a database of any kind is opened with.
#[derive(Debug, Clone)]
pub struct Tenancy {
    /// A directory of this user's, which is made: one process at a time has it, and it says which machine this is.
    pub directory: PathBuf,
    /// Bytes of memory for what is known of the keys.
    pub memory: u64,
    /// How long an operation waits for a database that does not answer.
    pub patience: Duration,
    /// How long a session lives of which nothing is heard.
    pub lease: Duration,
    /// Whether others may have the file system at the same time.
    pub is_shared: bool,
}

/// The settings of one kind of database.
pub trait DatabaseSettings: Debug + Send + Sync {
    /// What of them is for all kinds.
    fn tenancy(&self) -> Tenancy;

    /// The way to the database, on which nothing was sent yet. Blocks on the disk.
    fn database(&self) -> EngineResult<Arc<dyn Database>>;
}

impl Tenancy {
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

/// See the module.
pub struct DatabaseEngine {
    shared: Arc<Shared>,
    worker: Mutex<Option<JoinHandle<()>>>,
    lock: Mutex<Option<DirectoryLock>>,
}

impl DatabaseEngine {
    /// Begins a new file system. Fails with `Fenced` where there is one already.
    pub async fn create(settings: &dyn DatabaseSettings) -> EngineResult<Self> {
        let tenancy = settings.tenancy();
        let lock = run_blocking(|| tenancy.lock())?;
        let database = run_blocking(|| settings.database())?;
        database.create().await?;
        Self::begin(&tenancy, (database, lock)).await
    }

    /// Begins a session. Fails with `Fenced` if another machine has one and nobody else may, and with `InUse` while
    /// another process of this machine has one.
    pub async fn open(settings: &dyn DatabaseSettings) -> EngineResult<Self> {
        let tenancy = settings.tenancy();
        let lock = run_blocking(|| tenancy.lock())?;
        let database = run_blocking(|| settings.database())?;
        Self::begin(&tenancy, (database, lock)).await
    }

    async fn begin(
        tenancy: &Tenancy,
        (database, lock): (Arc<dyn Database>, DirectoryLock),
    ) -> EngineResult<Self> {
        let machine = run_blocking(|| tenancy.machine())?;
        let own = database.begin(machine, &own_name()).await?;
        let (mode, seen, life) = match ask(&*database, own, tenancy).await {
            Ok(granted) => granted,
            Err(error) => {
                // One that cannot be told now is ended by others.
                let _ = database.end(own).await;
                return Err(error);
            }
        };
        let known = (Known::new(tenancy.memory as usize), Feed::new(seen));
        let state = State::new(mode, known, database.limits());
        let life = (own, life, tenancy.patience);
        let shared = Arc::new(Shared::new(database, state, life));
        let pulse = Pulse::new(Arc::clone(&shared));
        let worker = Worker::new(Arc::clone(&shared)).run(pulse);
        Ok(Self {
            shared,
            worker: Mutex::new(Some(tokio::spawn(worker))),
            lock: Mutex::new(Some(lock)),
        })
    }

    /// A look at all keys that keeps none of them: at one state that is durable.
    async fn look_at_all(&self, query: Query<'_>) -> EngineResult<()> {
        self.sync().await?;
        let database = Arc::clone(&self.shared.database);
        let (since, patience) = (self.shared.since(), self.shared.patience);
        let news = run_blocking(|| snapshot::look(database, (since, patience), query))?;
        if let Some(news) = news {
            self.shared.learn(|state| state.go_on(news));
        }
        Ok(())
    }
}

/// Asks to have the keys alone, and waits for one who has them to let others in. Returns how this session has them, the
/// latest change, and how long it lives.
async fn ask(
    database: &dyn Database,
    own: Own,
    tenancy: &Tenancy,
) -> EngineResult<(Mode, Point, Life)> {
    let began = clock::now();
    let mut lives = Lives::of(own.id, tenancy.lease);
    let (mut next_beat, mut sent) = (began, awake());
    loop {
        if clock::now() >= next_beat {
            next_beat = clock::now() + tenancy.lease / BEATS;
            sent = beat(database, own).await?;
            let others = lives.look(database).await?;
            // Of two that came at the same time the earlier one goes on.
            if others.is_earlier_alive && !tenancy.is_shared {
                return Err(EngineError::Fenced("another machine has it".to_owned()));
            }
        }
        let (alone, seen) = database.ask(own).await?;
        let life = || Life::new(tenancy.lease, sent);
        match alone {
            Some(alone) if alone == own.id => return Ok((Mode::Alone, seen, life())),
            None if tenancy.is_shared => return Ok((Mode::Shared, seen, life())),
            _ => {}
        }
        // One that is dead is over by then, and one that is alive has had its time to save what it changed.
        if clock::now().duration_since(began) > tenancy.patience.max(tenancy.lease * 2) {
            return Err(EngineError::Database(
                "another machine has it alone, and does not let others in".to_owned(),
            ));
        }
        clock::sleep(ASK_INTERVAL).await;
    }
}

/// Says that a session is alive that took nothing in so far, and returns when that was sent.
async fn beat(database: &dyn Database, own: Own) -> EngineResult<Duration> {
    let sent = awake();
    match database.beat(own, 0).await? {
        true => Ok(sent),
        false => Err(over()),
    }
}

/// Whether a database keeps something for this file system.
pub async fn has_database(settings: &dyn DatabaseSettings) -> EngineResult<bool> {
    let database = run_blocking(|| settings.database())?;
    database.is_there().await
}

/// Removes all that a database keeps for a file system, which this machine must have and nobody has open.
pub async fn remove_database(settings: &dyn DatabaseSettings) -> EngineResult<()> {
    let _lock = run_blocking(|| settings.tenancy().lock())?;
    let database = run_blocking(|| settings.database())?;
    database.remove().await
}

impl Debug for DatabaseEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatabaseEngine")
            .field("session", &self.shared.own.id)
            .finish_non_exhaustive()
    }
}

impl Drop for DatabaseEngine {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.lock().take() {
            worker.abort();
        }
    }
}

#[async_trait]
impl Engine for DatabaseEngine {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        for misses in 0..MISSES_MAX {
            let ran = self.shared.look(query)?;
            match ran {
                Ran::Missed(want) => drop(self.shared.fetch(want, misses).await?),
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
        let database = Arc::clone(&self.shared.database);
        Ok(Box::new(snapshot::Snapshot::begin(
            database, since, patience,
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
