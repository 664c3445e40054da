//! Machines with an engine and a bucket that they share.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{FileName, clock, random};
use penstock_fileset::{
    Coherence, FilesetVolume, Format,
    engine::{
        Changed, Engine, EngineError, EngineResult, MemorySession, Moment, Operation, Peers,
        PostgresEngine, PostgresSettings, Query, Reads, SessionId, SessionRecord, Transaction,
        Visitor,
    },
};
use penstock_object::Store;
use penstock_object_testing::MemoryStore;
use penstock_vfs::{HeldFile, Identity, Inode, Volume, Watcher};
use tempfile::TempDir;
use tokio::sync::{Mutex, watch};

use crate::{
    database::{Server, settings},
    support::Place,
};

/// A session whose follower can be kept from hearing of anything: so its machine does not know what others do.
#[derive(Debug)]
pub struct Deaf {
    inner: Arc<dyn Engine>,
    hears: watch::Sender<bool>,
    operates: watch::Sender<bool>,
    /// It is told that any key may have changed.
    forgets: AtomicBool,
    /// How often it was asked how far others are, or who they are.
    asked: AtomicU64,
    /// Its operations are made and answered later.
    answers: watch::Sender<bool>,
    /// Its operations are made, and it hears that the database did not answer.
    loses_answers: AtomicBool,
    /// Its looks at all garbage wait.
    looks: watch::Sender<bool>,
    looking: AtomicU64,
    /// Operations that it may begin.
    allowed: watch::Sender<u64>,
    /// How often operations ran, those among them that ran again.
    ran: Arc<AtomicU64>,
    /// Its queries wait.
    queries: watch::Sender<bool>,
    querying: AtomicU64,
}

/// Finds out what a look scans.
struct Probe(AtomicBool);

impl Reads for Probe {
    fn get(&self, _key: &[u8]) -> EngineResult<Option<Bytes>> {
        Ok(None)
    }

    fn scan(&self, range: std::ops::Range<&[u8]>, _visit: Visitor<'_>) -> EngineResult<()> {
        if range.start == b"G" {
            self.0.store(true, Ordering::SeqCst);
        }
        Ok(())
    }
}

impl Deaf {
    pub fn new(inner: Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            hears: watch::Sender::new(true),
            operates: watch::Sender::new(true),
            forgets: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            answers: watch::Sender::new(true),
            loses_answers: AtomicBool::new(false),
            looks: watch::Sender::new(true),
            looking: AtomicU64::new(0),
            allowed: watch::Sender::new(u64::MAX),
            ran: Arc::default(),
            queries: watch::Sender::new(true),
            querying: AtomicU64::new(0),
        })
    }

    /// Its operations are made, and answered when it is told to.
    pub fn answer(&self, answers: bool) {
        self.answers.send_replace(answers);
    }

    /// Its operations are made, and it hears that the database did not answer in time.
    pub fn lose_answers(&self, loses: bool) {
        self.loses_answers.store(loses, Ordering::SeqCst);
    }

    /// Its looks at garbage wait.
    pub fn look(&self, looks: bool) {
        self.looks.send_replace(looks);
    }

    pub fn is_looking(&self) -> bool {
        self.looking.load(Ordering::SeqCst) > 0
    }

    /// Its queries wait.
    pub fn query(&self, queries: bool) {
        self.queries.send_replace(queries);
    }

    pub fn is_querying(&self) -> bool {
        self.querying.load(Ordering::SeqCst) > 0
    }

    /// It may begin so many operations.
    pub fn allow(&self, operations: u64) {
        self.allowed.send_replace(operations);
    }

    /// How often it was asked how far others are, or who they are.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// How often operations ran, those among them that ran again.
    pub fn ran(&self) -> u64 {
        self.ran.load(Ordering::SeqCst)
    }

    fn inner(&self) -> &dyn Peers {
        self.inner.peers().unwrap()
    }

    pub fn hear(&self, hears: bool) {
        self.hears.send_replace(hears);
    }

    /// Its operations wait until it may operate.
    pub fn operate(&self, operates: bool) {
        self.operates.send_replace(operates);
    }

    /// From now on it is not told which keys changed.
    pub fn forget(&self) {
        self.forgets.store(true, Ordering::SeqCst);
    }
}

#[async_trait]
impl Engine for Deaf {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        if !*self.queries.borrow() {
            self.querying.fetch_add(1, Ordering::SeqCst);
            let mut queries = self.queries.subscribe();
            queries.wait_for(|queries| *queries).await.unwrap();
            self.querying.fetch_sub(1, Ordering::SeqCst);
        }
        if !*self.looks.borrow() {
            let probe = Probe(AtomicBool::new(false));
            query(&probe);
            if probe.0.load(Ordering::SeqCst) {
                self.looking.fetch_add(1, Ordering::SeqCst);
                let mut looks = self.looks.subscribe();
                looks.wait_for(|looks| *looks).await.unwrap();
                self.looking.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.inner.run_query(query).await
    }

    async fn ready(&self) -> EngineResult<()> {
        self.inner.ready().await
    }

    async fn run(&self, mut operation: Operation) -> EngineResult<()> {
        let mut operates = self.operates.subscribe();
        operates.wait_for(|operates| *operates).await.unwrap();
        loop {
            let mut allowed = self.allowed.subscribe();
            allowed.wait_for(|allowed| *allowed > 0).await.unwrap();
            let took = self.allowed.send_if_modified(|allowed| {
                let may = *allowed > 0;
                *allowed = allowed.saturating_sub(1);
                may
            });
            if took {
                break;
            }
        }
        let ran = Arc::clone(&self.ran);
        let counted = move |transaction: &mut dyn Transaction| {
            ran.fetch_add(1, Ordering::SeqCst);
            operation(transaction)
        };
        let outcome = self.inner.run(Box::new(counted)).await;
        let mut answers = self.answers.subscribe();
        answers.wait_for(|answers| *answers).await.unwrap();
        match self.loses_answers.load(Ordering::SeqCst) {
            true => Err(EngineError::Database("no answer".to_owned())),
            false => outcome,
        }
    }

    async fn sync(&self) -> EngineResult<()> {
        self.inner.sync().await
    }

    async fn close(&self) -> EngineResult<()> {
        self.inner.close().await
    }

    fn peers(&self) -> Option<&dyn Peers> {
        Some(self)
    }
}

#[async_trait]
impl Peers for Deaf {
    fn session(&self) -> SessionId {
        self.inner().session()
    }

    async fn catch_up(&self) -> EngineResult<Moment> {
        self.inner().catch_up().await
    }

    fn changed_until(&self) -> Moment {
        self.inner().changed_until()
    }

    async fn changes(&self) -> EngineResult<Changed> {
        let mut hears = self.hears.subscribe();
        loop {
            hears.wait_for(|hears| *hears).await.unwrap();
            tokio::select! {
                biased;
                _ = hears.wait_for(|hears| !*hears) => {}
                changed = self.inner().changes() => {
                    let changed = changed?;
                    let keys = changed.keys.filter(|_| !self.forgets.load(Ordering::SeqCst));
                    return Ok(Changed { keys, ..changed });
                }
            }
        }
    }

    fn took_in(&self, moment: Moment) {
        self.inner().took_in(moment);
    }

    async fn taken_in_by_all(&self) -> EngineResult<Moment> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.inner().taken_in_by_all().await
    }

    async fn sessions(&self) -> EngineResult<Vec<SessionRecord>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.inner().sessions().await
    }

    async fn evict(&self, session: SessionId) -> EngineResult<bool> {
        self.inner().evict(session).await
    }
}

/// What a door was told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Told {
    Content(Inode),
    Attributes(Inode),
    Name(Inode, String),
}

/// A door that takes note of what it is told.
#[derive(Debug, Default)]
pub struct Door(std::sync::Mutex<Vec<Told>>);

impl Door {
    fn note(&self, told: Told) {
        self.0.lock().unwrap().push(told);
    }

    pub fn heard(&self, told: &Told) -> bool {
        self.0.lock().unwrap().contains(told)
    }
}

impl Watcher for Door {
    fn references_wanted(&self, _held: Vec<HeldFile>) {}

    fn content_changed(&self, inode: Inode) {
        self.note(Told::Content(inode));
    }

    fn attributes_changed(&self, inode: Inode) {
        self.note(Told::Attributes(inode));
    }

    fn name_changed(&self, parent: Inode, name: &FileName) {
        self.note(Told::Name(parent, name.to_string()));
    }
}

/// One of the machines.
#[derive(Clone)]
pub struct Machine {
    pub place: Place,
    pub session: Arc<Deaf>,
    pub door: Arc<Door>,
}

impl Machine {
    async fn new(engine: Arc<dyn Engine>, bucket: Arc<dyn Store>, coherence: Coherence) -> Self {
        let session = Deaf::new(engine);
        let place = match coherence {
            Coherence::CloseToOpen => Place::sharing(session.clone(), bucket).await,
            Coherence::Strict => Place::sharing_strictly(session.clone(), bucket).await,
        };
        let door = Arc::new(Door::default());
        let watcher: Weak<Door> = Arc::downgrade(&door);
        place.volume.watch(watcher);
        Self {
            place,
            session,
            door,
        }
    }

    /// Ends its session, as somebody else does who has not heard of it.
    pub async fn is_evicted_by(&self, other: &Self) {
        let session = self.session.session();
        assert!(other.session.evict(session).await.unwrap());
    }

    /// Returns when it has heard of all that was done before, as a door asks that opens nothing.
    pub async fn catch_up(&self) {
        let volume = &self.place.volume;
        let root = volume.node_id(Inode::ROOT).unwrap();
        volume.resolve(&Identity::root(), &root).await.unwrap();
        volume.forget(Inode::ROOT, 1);
    }

    pub async fn hears(&self, told: Told) {
        let waited = clock::deadline(Duration::from_secs(30), async {
            while !self.door.heard(&told) {
                clock::sleep(Duration::from_millis(1)).await;
            }
        });
        waited
            .await
            .unwrap_or_else(|_| panic!("{told:?} was not told"));
    }
}

enum Keys {
    Memory(Arc<MemorySession>),
    Postgres(Box<PostgresSettings>, Mutex<Vec<TempDir>>),
}

/// What machines share.
pub struct Ground {
    keys: Keys,
    first: Mutex<Option<Arc<dyn Engine>>>,
    pub bucket: Arc<dyn Store>,
}

impl Ground {
    async fn new(keys: Keys, first: Arc<dyn Engine>) -> Self {
        FilesetVolume::format(&*first, &Identity::root(), Format::new(1))
            .await
            .unwrap();
        Self {
            keys,
            first: Mutex::new(Some(first)),
            bucket: Arc::new(MemoryStore::new()),
        }
    }

    pub async fn in_memory() -> Self {
        let session = Arc::new(MemorySession::first());
        Self::new(Keys::Memory(session.clone()), session).await
    }

    /// `None` where there is no server.
    pub async fn on_postgres() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = settings(Server::shared()?, directory.path(), random::number());
        settings.lease = Duration::from_secs(5);
        let first = Arc::new(PostgresEngine::create(&settings).await.unwrap());
        let keys = Keys::Postgres(Box::new(settings), Mutex::new(vec![directory]));
        Some(Self::new(keys, first).await)
    }

    /// One more session.
    pub async fn session(&self) -> Arc<dyn Engine> {
        if let Some(first) = self.first.lock().await.take() {
            return first;
        }
        match &self.keys {
            Keys::Memory(session) => Arc::new(session.another()),
            Keys::Postgres(settings, directories) => {
                let directory = tempfile::tempdir().unwrap();
                let mut settings = (**settings).clone();
                settings.directory = directory.path().to_owned();
                directories.lock().await.push(directory);
                Arc::new(PostgresEngine::open(&settings).await.unwrap())
            }
        }
    }

    /// One more machine.
    pub async fn machine(&self) -> Machine {
        let bucket = Arc::clone(&self.bucket);
        Machine::new(self.session().await, bucket, Coherence::CloseToOpen).await
    }

    /// One more with strict coherence.
    pub async fn strict_machine(&self) -> Machine {
        let bucket = Arc::clone(&self.bucket);
        Machine::new(self.session().await, bucket, Coherence::Strict).await
    }

    pub async fn two(&self) -> [Machine; 2] {
        [self.machine().await, self.machine().await]
    }

    pub async fn three(&self) -> [Machine; 3] {
        [
            self.machine().await,
            self.machine().await,
            self.machine().await,
        ]
    }
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
                    if let Some(ground) = $crate::ground::Ground::on_postgres().await {
                        super::$name(ground).await;
                    }
                }
            )*
        }
    };
}

pub(crate) use on_each_engine;
