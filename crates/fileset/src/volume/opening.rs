//! Making a file system and opening it.

use std::sync::Arc;

use penstock_base::{FsError, FsResult, metrics::Registry, random, run_blocking};
use penstock_transfer::Transfer;
use penstock_vfs::Identity;

use super::{AccessTimes, Coherence, FilesetVolume, Parts, asked};
use crate::{
    calls::Calls,
    collector,
    data::{Ahead, Objects},
    engine::{Engine, Reads, Transaction, query, transact},
    files::Files,
    garbage::{Garbage, Sweep, sweep_bucket},
    held::Held,
    listings::Listings,
    machines::{Machines, VolumeLocks},
    metrics::{self, Failures},
    numbers::Numbers,
    operations,
    schedule::Scheduler,
    schema::Format,
    snapshots::Preserving,
    uploads,
    usage::format_of,
};

/// How a file system is served.
#[derive(Debug, Default)]
pub struct Opening {
    /// What waits for the bucket, through which the transfer reads. A spool is a barrier of the engine: a save of a small file
    /// then waits for no request, and closing a file for no disk. With [`Ahead::Inlined`] a save of a small file waits for no
    /// request before that of the log.
    pub ahead: Option<Ahead>,
    /// When reading sets times.
    pub access_times: AccessTimes,
    /// How soon what other machines change is seen.
    pub coherence: Coherence,
}

impl FilesetVolume {
    /// Makes an empty file system whose root belongs to `by`. Fails with `AlreadyExists` if there is one.
    pub async fn format(engine: &dyn Engine, by: &Identity, format: Format) -> FsResult<()> {
        let asked = asked(by);
        transact(engine, move |transaction| {
            operations::format(transaction, &asked, &format)
        })
        .await?;
        Ok(engine.sync().await?)
    }

    /// Serves the file system whose metadata is in `engine` and whose objects are behind `transfer`. What files
    /// without a name left, whose holder died, is collected. Fails with `NotFound` where there is none.
    pub async fn open(engine: Arc<dyn Engine>, transfer: Arc<Transfer>) -> FsResult<Arc<Self>> {
        Self::open_with(engine, transfer, Opening::default()).await
    }

    /// The same, served as `how` says.
    pub async fn open_with(
        engine: Arc<dyn Engine>,
        transfer: Arc<Transfer>,
        Opening {
            ahead,
            access_times,
            coherence,
        }: Opening,
    ) -> FsResult<Arc<Self>> {
        if let Some(peers) = engine.peers() {
            peers.catch_up().await?;
        }
        let identity = format_of(&*engine).await?.identity;
        if ahead.is_some() && engine.peers().is_some() {
            return Err(FsError::InvalidArgument(
                "where several machines have a file system nothing is kept on the disk of one: durability is `store`",
            ));
        }
        match &ahead {
            Some(Ahead::Spool(spool)) => run_blocking(|| spool.note_boot()),
            Some(Ahead::Inlined(_)) => {
                let raise = |transaction: &mut dyn Transaction| {
                    operations::raise_format(transaction, Format::with_content)
                };
                transact(&*engine, raise).await?;
            }
            None => {}
        }
        let objects = Arc::new(Objects::with_ahead(transfer, ahead));
        let engine = Arc::new(Preserving::new(engine));
        let held: Arc<Held> = Arc::default();
        let failures: Arc<Failures> = Arc::default();
        let files = Files::new(
            Arc::clone(&engine),
            Arc::clone(&objects),
            Arc::clone(&held),
            Arc::clone(&failures),
        );
        let parts = Arc::new(Parts {
            files,
            machines: Machines::new(&engine, coherence),
            engine,
            objects,
            held,
            calls: Calls::default(),
            failures,
        });
        match &parts.machines {
            Some(machines) => {
                machines.begin(parts.objects.writer()).await?;
                machines.find_orphans().await?;
                parts.files.tell(Arc::downgrade(&parts));
                machines.follow(Arc::downgrade(&parts));
                parts.held.bell.notify_one();
            }
            None => {
                let look = |reads: &dyn Reads| operations::orphans(reads);
                for orphan in query(&*parts.engine, look).await? {
                    parts.held.orphaned(orphan);
                }
            }
        }
        tokio::spawn(collector::run(Arc::downgrade(&parts)));
        tokio::spawn(uploads::run(Arc::downgrade(&parts)));
        Ok(Arc::new(Self {
            locks: VolumeLocks::new(&parts),
            scheduler: Scheduler::start(&Arc::downgrade(&parts)),
            parts,
            numbers: Numbers::default(),
            listings: Listings::default(),
            access_times,
            epoch: random::number(),
            identity,
        }))
    }

    /// Shows how it goes among the metrics of `registry`, until that or the volume is gone.
    pub fn show_in(&self, registry: &Registry) {
        metrics::register(registry, &self.parts);
    }

    /// Looks through the bucket for objects that leaked, as it does by itself once a day.
    pub async fn sweep(&self, how: Sweep) -> FsResult<Garbage> {
        sweep_bucket(&*self.parts.engine, &self.parts.objects, how).await
    }
}
