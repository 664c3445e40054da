//! One who does what is done to the file system as a whole: snapshots come and go, the bucket is looked through, the trash is
//! emptied, settings change, and hours go by.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fastrand::Rng;
use penstock_base::{FsResult, Mutex, clock};
use penstock_fileset::{compression::Compression, garbage::Sweep};
use penstock_vfs::{Inode, Volume};

use crate::{
    client::{Served, passes},
    look::{found, reach},
    model::{Model, Picture},
    support::name,
};

/// Snapshots that there are at most at the same time.
const SNAPSHOTS_MAX: usize = 2;

/// Whether a snapshot is there after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Sure,
    Unsure,
}

/// What a snapshot shows of each client.
#[derive(Debug)]
struct Snapshot {
    presence: Presence,
    pictures: Vec<(String, Picture)>,
}

/// See the module.
pub struct Director {
    chance: Rng,
    snapshots: BTreeMap<String, Snapshot>,
    taken: u64,
    /// Removed files stay for so many days; 0 for not at all.
    pub trash_days: u32,
}

/// Clients by their names.
pub type Models = Vec<(String, Arc<Mutex<Model>>)>;

impl Director {
    pub fn new(seed: u64, trash_days: u32) -> Self {
        Self {
            chance: Rng::with_seed(seed),
            snapshots: BTreeMap::new(),
            taken: 0,
            trash_days,
        }
    }

    pub async fn act(&mut self, served: &Served, models: &Models, steps: usize) {
        for _ in 0..steps {
            let pause = Duration::from_millis(self.chance.u64(0..3_000));
            clock::sleep(pause).await;
            self.step(served, models).await;
        }
    }

    async fn step(&mut self, served: &Served, models: &Models) {
        match self.chance.u8(0..12) {
            0..3 if self.snapshots.len() < SNAPSHOTS_MAX => self.take(served, models).await,
            3..5 => self.drop_one(served).await,
            5..8 => self.sweep(served).await,
            8 if self.trash_days > 0 => {
                served.record.note("the trash is emptied");
                let emptied = served.place.volume.purge_some(None).await;
                emptied.expect("no store is asked");
            }
            9 => self.compress(served).await,
            10 => {
                let minutes = self.chance.u64(1..180);
                served.record.note(format_args!("{minutes} minutes go by"));
                clock::sleep(Duration::from_secs(60 * minutes)).await;
            }
            _ => {}
        }
    }

    async fn take(&mut self, served: &Served, models: &Models) {
        let _all = served.gate.write().await;
        self.taken += 1;
        let text = format!("snapshot-{}", self.taken);
        served.record.note(format_args!("{text} is taken"));
        let pictures = models.iter();
        let pictures = pictures.map(|(name, model)| (name.clone(), model.lock().picture()));
        let snapshot = Snapshot {
            presence: Presence::Unsure,
            pictures: pictures.collect(),
        };
        self.snapshots.insert(text.clone(), snapshot);
        let applied = served.disk.applied();
        let taken = served.place.volume.take_snapshot(&name(&text)).await;
        if was_done(&taken) {
            served.acknowledge(applied);
            let snapshot = self.snapshots.get_mut(&text).expect("it was put there");
            snapshot.presence = Presence::Sure;
            for (_, model) in models {
                model.lock().durable();
            }
        } else {
            self.snapshots.remove(&text);
        }
    }

    async fn drop_one(&mut self, served: &Served) {
        let Some(text) = self.chance.choice(self.snapshots.keys()).cloned() else {
            return;
        };
        self.drop_this(served, &text).await;
    }

    async fn drop_this(&mut self, served: &Served, text: &str) {
        served.record.note(format_args!("{text} is removed"));
        let snapshot = self.snapshots.get_mut(text).expect("it is there");
        snapshot.presence = Presence::Unsure;
        let removed = served.place.volume.remove_snapshot(&name(text)).await;
        removed.expect("it is there, and no store is asked");
        self.snapshots.remove(text);
    }

    async fn sweep(&mut self, served: &Served) {
        served.record.note("the bucket is looked through");
        let sweep = Sweep {
            grace: Duration::ZERO,
            dry_run: false,
        };
        was_done(&served.place.volume.sweep(sweep).await);
    }

    async fn compress(&mut self, served: &Served) {
        let compression = match self.chance.u8(0..3) {
            0 => Compression::None,
            1 => Compression::Lz4,
            _ => Compression::Zstd(1),
        };
        served.record.note(format_args!("{compression:?}"));
        let set = served.place.volume.set_compression(compression).await;
        set.expect("no store is asked");
    }

    /// Compares all snapshots with what they must show. One of which nobody was told that it is there, or gone, may be either.
    pub async fn compare(&mut self, served: &Served) {
        let shelf = reach(&served.place, Inode::ROOT, ".snapshot").await;
        let mut gone = Vec::new();
        for (text, snapshot) in &mut self.snapshots {
            let Ok(root) = served.place.find(shelf, text).await else {
                assert_eq!(snapshot.presence, Presence::Unsure, "{text} is gone");
                gone.push(text.clone());
                continue;
            };
            snapshot.presence = Presence::Sure;
            for (client, picture) in &snapshot.pictures {
                let top = reach(&served.place, root.inode, client).await;
                let shown = found(&served.place, top).await;
                assert!(picture.is(&shown), "{text} differs for {client}");
                served.place.volume.forget(top, 1);
            }
            served.place.volume.forget(root.inode, 1);
        }
        served.place.volume.forget(shelf, 1);
        gone.iter()
            .for_each(|text| drop(self.snapshots.remove(text)));
    }

    /// Removes all snapshots, and what is in the trash.
    pub async fn remove_all(&mut self, served: &Served) {
        for text in self.snapshots.keys().cloned().collect::<Vec<_>>() {
            self.drop_this(served, &text).await;
        }
        while !served
            .place
            .volume
            .purge_some(None)
            .await
            .expect("it works")
            .is_done
        {}
    }
}

/// Whether something was done that the store may have kept from being done.
fn was_done<T: std::fmt::Debug>(outcome: &FsResult<T>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(error) => {
            assert!(passes(error), "{error}");
            false
        }
    }
}
