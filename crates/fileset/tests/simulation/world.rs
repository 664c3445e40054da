//! A run: some processes, one after the other, on one bucket and one disk. Each is opened on what the one before left, which is
//! looked at first, and ends by a crash or by an unmount.

use std::{
    cell::Cell,
    sync::{
        Arc, Once,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use futures_util::future::{join, join_all};
use penstock_base::{BufferPool, MemoryBudget, clock, random};
use penstock_fileset::{
    Durability, FilesetVolume, Format, Inlined, Label,
    check::check_data,
    engine::Engine,
    garbage::{Count, Sweep, collect_garbage},
    trash,
};
use penstock_object::{ListOptions, Store};
use penstock_object_testing::MemoryStore;
use penstock_transfer::Transfer;
use penstock_vfs::{Identity, Inode, Volume};
use tokio::{runtime::Builder, sync::RwLock};

use crate::{
    client::{Client, Served},
    director::{Director, Models},
    disk::{Disk, DiskEngine},
    look::{found, reach},
    network::Network,
    power::Power,
    record::{self, Record},
    support::{Place, Small, directory},
};

/// Steps of a process in which the power may go, about as many as one takes.
const STEPS: u64 = 4_000;
/// Requests of a thousand that fail, in some runs.
const FAILING: [u64; 4] = [0, 10, 40, 150];

thread_local! {
    /// Something panicked that was not asked.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// See the module.
struct World {
    chance: Rng,
    bucket: Arc<dyn Store>,
    disk: Arc<Disk>,
    record: Arc<Record>,
    clients: Vec<Client>,
    director: Director,
    failing: u64,
    /// Where small files are first.
    small: Small,
    /// Since the run began.
    elapsed: Duration,
    acknowledged: Arc<AtomicU64>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Crashed,
    ShutDown,
}

/// Runs a seed and returns what happened, line by line. Panics, with what happened last, if something is not as it must be.
pub fn run(seed: u64) -> Vec<String> {
    watch_for_panics();
    random::seed(seed);
    let mut world = World::new(seed);
    let record = Arc::clone(&world.record);
    let telling = Telling { seed, record };
    let processes = world.chance.usize(2..5);
    world.process(World::make);
    for _ in 0..processes {
        world.process(World::live);
    }
    world.process(World::remove_all);
    assert!(!PANICKED.get(), "a task panicked");
    telling.record.lines()
}

/// Tasks that panic behind a volume must not go unnoticed.
fn watch_for_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panicked| {
            PANICKED.set(true);
            before(panicked);
        }));
    });
}

/// Tells of a run that fails.
struct Telling {
    seed: u64,
    record: Arc<Record>,
}

impl Drop for Telling {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, record } = self;
            let end = record.end();
            eprintln!(
                "{end}\nseed {seed} failed; it fails again with\n\n  {}\n",
                again(*seed)
            );
        }
    }
}

/// The command that runs a seed alone.
fn again(seed: u64) -> String {
    let variables = format!(
        "{}=1 {}={seed}",
        crate::SEEDS_VARIABLE,
        crate::SEED_VARIABLE
    );
    format!("{variables} cargo test -p penstock-fileset --test simulation all_seeds")
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Rng::with_seed(seed);
        let clients = 1..=chance.usize(1..4);
        let clients = clients.map(|number| Client::new(number, chance.u64(..)));
        let clients = clients.collect();
        let trash_days = chance.u32(0..2);
        let small = match chance.bool() {
            true => Small::Inlined,
            false => Small::Stored,
        };
        Self {
            small,
            director: Director::new(chance.u64(..), trash_days),
            failing: FAILING[chance.usize(0..FAILING.len())],
            clients,
            bucket: Arc::new(MemoryStore::new()),
            disk: Arc::default(),
            record: Arc::default(),
            elapsed: Duration::ZERO,
            acknowledged: Arc::default(),
            chance,
        }
    }

    /// A process with a runtime of its own, in whose time nothing goes on by itself. It ends when the power goes.
    fn process(&mut self, work: impl AsyncFnOnce(&mut Self, (Arc<Power>, Arc<Network>))) {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime");
        let power = Arc::new(Power::default());
        let end = runtime.block_on(async {
            clock::pretend_wall_time(record::BEGUN + self.elapsed);
            let (record, seed) = (Arc::clone(&self.record), self.chance.u64(..));
            let network = Network::new(Arc::clone(&power), record, seed);
            let crash = power.gone();
            tokio::select! {
                biased;
                () = crash => End::Crashed,
                () = work(self, (Arc::clone(&power), network)) => End::ShutDown,
            }
        });
        let elapsed = runtime.block_on(async { record::elapsed() });
        // All that is under way goes at once.
        drop(runtime);
        self.elapsed = elapsed;
        if end == End::Crashed {
            self.disk.lose(&mut self.chance);
            self.clients.iter_mut().for_each(Client::crashed);
        }
    }

    /// Makes the file system.
    async fn make(&mut self, (power, _): (Arc<Power>, Arc<Network>)) {
        let engine = DiskEngine::open(Arc::clone(&self.disk), power, 0).await;
        let format = Format::new(1);
        let label = Label::new("simulated", &format, Durability::Store);
        let made = FilesetVolume::format(&*engine, &Identity::root(), format).await;
        made.expect("there is none yet");
        label.write(&*self.bucket).await.expect("it is empty");
        trash::set(&*engine, self.director.trash_days)
            .await
            .expect("it works");
        let place = Place::sharing(Arc::clone(&engine), Arc::clone(&self.bucket)).await;
        for client in &self.clients {
            let made = place.make(Inode::ROOT, &client.name, directory(0o755));
            made.await.expect("it is new");
        }
        assert!(place.volume.shut_down().await.is_empty());
    }

    /// Opens what the last process left, compares it with what must be there, and goes on until the power goes.
    async fn live(&mut self, means: (Arc<Power>, Arc<Network>)) {
        let (power, network) = (Arc::clone(&means.0), Arc::clone(&means.1));
        let served = self.open(means).await;
        network.fail(self.failing);
        if self.chance.u8(0..5) > 0 {
            power.cut_at(self.chance.u64(1..STEPS));
        }
        let models = self.models();
        let deeds = self.chance.usize(10..60);
        let clients = self.clients.iter_mut();
        let clients = join_all(clients.map(|client| client.act(&served, deeds)));
        join(clients, self.director.act(&served, &models, deeds / 5)).await;
        power.cut_at(0);
        network.fail(0);
        self.shut_down(&served).await;
    }

    fn models(&self) -> Models {
        let clients = self.clients.iter();
        clients
            .map(|client| (client.name.clone(), Arc::clone(&client.model)))
            .collect()
    }

    async fn open(&mut self, (power, network): (Arc<Power>, Arc<Network>)) -> Served {
        let kept = self.disk.applied();
        self.record
            .note(format_args!("{kept} operations are on the disk"));
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        assert!(acknowledged <= kept, "{acknowledged} were acknowledged");
        let (disk, seed) = (Arc::clone(&self.disk), self.chance.u64(..));
        let engine = DiskEngine::open(disk, power, seed).await;
        self.check(&engine).await;
        // What recovery adds is not what was kept.
        let way = network.to(Arc::clone(&self.bucket));
        let place = Place::sharing_with(engine, way, self.small).await;
        let served = Served {
            place,
            disk: Arc::clone(&self.disk),
            record: Arc::clone(&self.record),
            network,
            gate: RwLock::new(()),
            acknowledged: Arc::clone(&self.acknowledged),
        };
        for client in &self.clients {
            let top = reach(&served.place, Inode::ROOT, &client.name).await;
            let found = found(&served.place, top).await;
            served.place.volume.forget(top, 1);
            let admitted = client.model.lock().go_on_with(found, kept);
            admitted.unwrap_or_else(|why| panic!("{}: {why}", client.name));
        }
        self.director.compare(&served).await;
        served
    }

    /// All of it fits together, before and after what a crash left is removed.
    async fn check(&mut self, engine: &Arc<dyn Engine>) {
        self.is_whole(engine).await;
        if self.chance.bool() {
            self.collect(engine).await;
            self.is_whole(engine).await;
        }
    }

    /// As a command reads it.
    async fn transfer(&self, engine: &Arc<dyn Engine>) -> Arc<Transfer> {
        let pool = BufferPool::new(MemoryBudget::new(64 << 20));
        let way = Arc::clone(&self.bucket);
        let inlined = Inlined::open(Arc::clone(engine), way).await;
        Transfer::new(inlined.expect("its keys are sound"), pool)
    }

    async fn is_whole(&self, engine: &Arc<dyn Engine>) {
        let report = check_data(&**engine, self.transfer(engine).await, None).await;
        let report = report.expect("the store works");
        assert!(
            report.is_clean() && report.damaged.is_empty(),
            "{report:#?}"
        );
    }

    /// Nothing is left that nobody refers to.
    async fn collect(&self, engine: &Arc<dyn Engine>) {
        for dry_run in [false, true] {
            let grace = Duration::ZERO;
            let sweep = Sweep { grace, dry_run };
            let left =
                collect_garbage(Arc::clone(engine), self.transfer(engine).await, sweep).await;
            let left = left.expect("the store works");
            if dry_run {
                assert_eq!(
                    (left.leaked, left.pending),
                    (Count::default(), Count::default())
                );
            }
        }
    }

    /// Ends in peace: nothing is lost.
    async fn shut_down(&mut self, served: &Served) {
        for client in &mut self.clients {
            client.close_all(served).await;
        }
        let failed = served.place.volume.shut_down().await;
        assert!(failed.is_empty(), "{failed:?}");
        for client in &self.clients {
            client.model.lock().durable();
        }
        self.is_whole(&served.place.engine).await;
    }

    /// Removes all that there is: then nothing is left in the bucket.
    async fn remove_all(&mut self, means: (Arc<Power>, Arc<Network>)) {
        let served = self.open(means).await;
        for client in &mut self.clients {
            client.remove_all(&served).await;
        }
        self.director.remove_all(&served).await;
        self.shut_down(&served).await;
        self.collect(&served.place.engine).await;
        let listed = self.bucket.list(ListOptions::default()).await;
        let objects = listed.expect("the store works").objects;
        let left = objects
            .iter()
            .filter(|object| object.key.starts_with("data/"));
        let left: Vec<_> = left.map(|object| &object.key).collect();
        assert!(left.is_empty(), "nobody refers to {left:?}");
    }
}
