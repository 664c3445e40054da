//! What the process of a mount answers those who ask through its socket.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::UNIX_EPOCH,
};

use penstock_base::clock::{self, Instant};
use penstock_transfer::DiskCache;

use super::{Plan, stage::Stage};
use crate::{
    control::{Memory, Metric, Refusal, Status, protocol::Dropped, server},
    resources::Resources,
    system,
};

/// What a mount knows of itself, from its first step on.
#[derive(Debug)]
pub(super) struct Answers {
    source: String,
    mountpoint: PathBuf,
    resources: Resources,
    pub stage: Stage,
    /// Seconds of Unix time.
    started: u64,
    begun: Instant,
    /// The cache, once it is open.
    pub cache: OnceLock<Arc<DiskCache>>,
}

impl Answers {
    pub(super) fn new(plan: &Plan, resources: &Resources) -> Arc<Self> {
        let since_epoch = clock::wall_time().duration_since(UNIX_EPOCH);
        Arc::new(Self {
            source: plan.volume.source.clone(),
            mountpoint: plan.volume.mountpoint.clone(),
            resources: resources.clone(),
            stage: Stage::new(plan.volume.mountpoint.clone()),
            started: since_epoch.map_or(0, |since| since.as_secs()),
            begun: clock::now(),
            cache: OnceLock::new(),
        })
    }
}

impl server::Daemon for Answers {
    fn status(&self) -> Status {
        let Resources { pool, registry } = &self.resources;
        let budget = pool.budget();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            source: self.source.clone(),
            mountpoint: self.mountpoint.clone(),
            phase: self.stage.phase(),
            started: self.started,
            uptime: self.begun.elapsed().as_secs(),
            memory: Memory {
                used: budget.used(),
                peak: budget.peak(),
                total: budget.total(),
                resident: system::resident_bytes(),
            },
            metrics: registry.samples().into_iter().map(Metric::from).collect(),
        }
    }

    fn drop_cached(&self, prefix: &str) -> Result<Dropped, Refusal> {
        let Some(cache) = self.cache.get() else {
            return Err(Refusal {
                cause: "the mount has no disk cache".to_owned(),
                remedy: "mount with --cache-dir".to_owned(),
            });
        };
        let removed = cache.remove(prefix);
        Ok(Dropped {
            objects: removed.objects,
            bytes: removed.bytes,
        })
    }
}
