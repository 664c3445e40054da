//! What the process of a mount answers those who ask through its socket.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::UNIX_EPOCH,
};

use penstock_base::{
    FsError, FsResult,
    clock::{self, Instant},
    metrics::Sample,
};
use penstock_fileset::{FilesetVolume, snapshots::Holding};
use tokio::runtime::Handle;

use super::{Plan, stage::Stage};
use crate::{
    commands::fileset::{compression, dump, quota, schedule, snapshot, trash},
    control::{
        DumpItem, Memory, Metric, QuotaItem, QuotaOrder, Refusal, Sharing, SnapshotItem,
        SnapshotOrder, Status, TrashAnswer, TrashOrder, Unsaved, UnsavedItem, UnsavedKind,
        protocol::Dropped, server,
    },
    resources::Resources,
    serving::Live,
    sharing, system,
    volumes::OpenedVolumes,
};

/// What a mount knows of itself, from its first step on.
pub(super) struct Answers {
    source: String,
    /// What options are set to.
    options: BTreeMap<String, String>,
    resources: Resources,
    pub stage: Stage,
    /// Seconds of Unix time.
    started: u64,
    begun: Instant,
    /// What is mounted, once it is open.
    pub volumes: OnceLock<OpenedVolumes>,
    /// What mount targets serve, once they do.
    pub live: OnceLock<Arc<Live>>,
}

impl Answers {
    pub(super) fn new(plan: &Plan, resources: &Resources) -> Arc<Self> {
        let since_epoch = clock::wall_time().duration_since(UNIX_EPOCH);
        Arc::new(Self {
            source: plan.volume.source.clone(),
            options: sharing::told(&plan.volume.values),
            resources: resources.clone(),
            stage: Stage::new(plan.volume.mountpoint.clone()),
            started: since_epoch.map_or(0, |since| since.as_secs()),
            begun: clock::now(),
            volumes: OnceLock::new(),
            live: OnceLock::new(),
        })
    }

    /// What another mount point needs to know, if there can be one.
    fn sharing(&self) -> Option<Sharing> {
        let places = self.stage.places()?;
        let mut all = places
            .list()
            .unwrap_or_else(|_| vec![self.stage.mountpoint()]);
        // JSON has no room for other names; who would have such a mount point is refused.
        all.retain(|place| place.to_str().is_some());
        Some(Sharing {
            device: places.device().to_owned(),
            tree: sharing::own_tree(),
            places: all,
            options: self.options.clone(),
        })
    }

    /// The fileset with a name; without one, the only one.
    fn fileset(&self, name: Option<&str>) -> Result<&Arc<FilesetVolume>, Refusal> {
        let filesets = self.volumes.get().map(OpenedVolumes::filesets);
        meant(&filesets.unwrap_or_default(), name)
    }
}

/// Which of `filesets` an order is for.
fn meant<T: Copy>(filesets: &[(&str, T)], name: Option<&str>) -> Result<T, Refusal> {
    let (cause, remedy) = match (filesets, name) {
        ([], _) => (
            "what is mounted is no fileset, or not open yet".to_owned(),
            "see `penstock stats`",
        ),
        ([(_, only)], None) => return Ok(*only),
        (_, None) => (
            "the process serves several filesets, and an order does not say which it is for"
                .to_owned(),
            "order it with the program of the same version",
        ),
        (filesets, Some(name)) => match filesets.iter().find(|(known, _)| *known == name) {
            Some((_, named)) => return Ok(*named),
            None => (
                format!("the process does not serve the fileset `{name}`"),
                "see `penstock stats`",
            ),
        },
    };
    Err(Refusal {
        cause,
        remedy: remedy.to_owned(),
    })
}

fn refusal(error: &FsError) -> Refusal {
    Refusal {
        cause: error.to_string(),
        remedy: "the mount's log says more".to_owned(),
    }
}

/// The same in the words of who knows why, if somebody does.
fn refused(error: &FsError, known: Option<(String, String)>) -> Refusal {
    known.map_or_else(
        || refusal(error),
        |(cause, remedy)| Refusal { cause, remedy },
    )
}

/// Those that are one number each.
fn plain(samples: Vec<Sample>) -> Vec<Metric> {
    let plain = samples
        .into_iter()
        .filter(|sample| sample.distribution.is_none());
    plain.map(Metric::from).collect()
}

/// What waits, as it is told.
fn told(item: penstock_vfs::UnsavedItem) -> UnsavedItem {
    UnsavedItem {
        path: item.path,
        kind: match item.kind {
            penstock_vfs::UnsavedKind::File => UnsavedKind::File,
            penstock_vfs::UnsavedKind::Name => UnsavedKind::Name,
            penstock_vfs::UnsavedKind::Removal => UnsavedKind::Removal,
        },
        bytes: item.bytes,
        age: item.age.map(|age| age.as_secs()),
        reason: item.failure.map(|failure| failure.to_string()),
    }
}

async fn ordered(fileset: &FilesetVolume, order: &SnapshotOrder) -> FsResult<Vec<SnapshotItem>> {
    match order {
        SnapshotOrder::List => {
            let (listed, holding) = fileset.list_snapshots().await?;
            Ok(snapshot::items(listed, &holding))
        }
        SnapshotOrder::Create { name } => {
            let taken = fileset.take_snapshot(&snapshot::file_name(name)?).await?;
            Ok(snapshot::items(vec![taken], &Holding::default()))
        }
        SnapshotOrder::Remove { name } => {
            let name = snapshot::file_name(name)?;
            fileset.remove_snapshot(&name).await.map(|()| Vec::new())
        }
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
            mountpoint: self.stage.mountpoint(),
            phase: self.stage.phase(),
            started: self.started,
            uptime: self.begun.elapsed().as_secs(),
            unsaved: self.volumes.get().map(|volumes| {
                let penstock_vfs::Unsaved { files, bytes, .. } = volumes.unsaved();
                Unsaved { files, bytes }
            }),
            memory: Memory {
                used: budget.used(),
                peak: budget.peak(),
                total: budget.total(),
                resident: system::resident_bytes(),
            },
            sharing: self.sharing(),
            targets: self.live.get().map_or(Vec::new(), |live| live.targets()),
            configuration: self.live.get().and_then(|live| live.configuration()),
            metrics: plain(registry.samples()),
        }
    }

    fn drop_cached(&self, prefix: &str) -> Result<Dropped, Refusal> {
        let caches = self.volumes.get().map(OpenedVolumes::caches);
        let caches = caches.unwrap_or_default();
        if caches.is_empty() {
            return Err(Refusal {
                cause: "the mount has no disk cache".to_owned(),
                remedy: "mount with --cache-dir".to_owned(),
            });
        }
        let mut dropped = Dropped {
            objects: 0,
            bytes: 0,
        };
        for removed in caches.iter().map(|cache| cache.remove(prefix)) {
            dropped.objects += removed.objects;
            dropped.bytes += removed.bytes;
        }
        Ok(dropped)
    }

    fn snapshots(
        &self,
        fileset: Option<&str>,
        order: &SnapshotOrder,
    ) -> Result<Vec<SnapshotItem>, Refusal> {
        let done = Handle::current().block_on(ordered(self.fileset(fileset)?, order));
        done.map_err(|error| refused(&error, snapshot::refusal(order, &error)))
    }

    fn quotas(&self, fileset: Option<&str>, order: &QuotaOrder) -> Result<Vec<QuotaItem>, Refusal> {
        let done = Handle::current().block_on(quota::ordered(&**self.fileset(fileset)?, order));
        done.map_err(|error| refused(&error, quota::refusal(order, &error)))
    }

    fn schedule(
        &self,
        fileset: Option<&str>,
        changes: &BTreeMap<String, u32>,
    ) -> Result<BTreeMap<String, u32>, Refusal> {
        let setting = self
            .fileset(fileset)?
            .set_schedule(schedule::understood(changes));
        let keep = Handle::current().block_on(setting);
        keep.map(|keep| schedule::told(&keep))
            .map_err(|error| refusal(&error))
    }

    fn trash(&self, fileset: Option<&str>, order: &TrashOrder) -> Result<TrashAnswer, Refusal> {
        let done = Handle::current().block_on(trash::ordered(&**self.fileset(fileset)?, order));
        done.map_err(|error| refused(&error, trash::refusal(order, &error)))
    }

    fn compression(&self, fileset: Option<&str>, change: Option<&str>) -> Result<String, Refusal> {
        let done =
            Handle::current().block_on(compression::ordered(&**self.fileset(fileset)?, change));
        done.map(|setting| setting.to_string())
            .map_err(|error| refused(&error, compression::refusal(&error)))
    }

    fn dump(&self, fileset: Option<&str>, keep: u64) -> Result<DumpItem, Refusal> {
        let made = Handle::current().block_on(self.fileset(fileset)?.dump(keep));
        made.map(dump::item).map_err(|error| refusal(&error))
    }

    fn unsaved(&self) -> Vec<UnsavedItem> {
        let items = self.volumes.get().map(OpenedVolumes::unsaved_items);
        items.into_iter().flatten().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_for_a_fileset_that_is_not_served_is_carried_out_on_no_other() {
        let several = [("home", 1), ("work", 2)];
        assert_eq!(meant(&several, Some("work")), Ok(2));
        assert_eq!(meant(&several[..1], None), Ok(1));
        let refused = |filesets, name| meant::<i32>(filesets, name).expect_err("none is meant");
        let other = refused(&several[..1], Some("work"));
        assert_eq!(other.cause, "the process does not serve the fileset `work`");
        assert!(refused(&several, None).cause.contains("does not say which"));
        assert!(refused(&[], Some("home")).cause.contains("no fileset"));
    }
}
