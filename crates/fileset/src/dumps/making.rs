//! A dump on its way into the bucket of its file system, with the snapshot that keeps the objects to which it refers.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use jiff::{Timestamp, fmt::strtime};
use penstock_base::{FileName, FsError, FsResult, clock, random};
use penstock_object::Store;
use penstock_transfer::Transfer;

use super::{DumpObject, FrozenPages, Head, Summary, bucket, write};
use crate::{
    Durability, Label,
    engine::Engine,
    snapshots::{self, Snapshot},
};

/// What the name of the snapshot begins with that keeps the objects of a dump.
const SNAPSHOT: &str = "dump-";
/// How dumps are called: when they were begun, so that names sort.
const NAME: &str = "%Y-%m-%dT%H-%M-%SZ";
/// No dump takes longer: a snapshot of one that is older and not there was left by a process that was killed.
const MAKING_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A dump that is to be made.
#[derive(Debug, Clone)]
pub struct NewDump {
    /// What it is called.
    pub name: String,
    /// What it says of itself.
    pub head: Head,
}

impl NewDump {
    /// Of the file system of this label, begun now.
    pub fn now(label: Label) -> Self {
        let now = clock::wall_time();
        let since = now.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            name: named(now),
            head: Head {
                dump: random::number(),
                taken: since.map_or(0, |since| since.as_secs()),
                engine: kind_of_engine(&label).to_owned(),
                label,
            },
        }
    }
}

fn named(now: SystemTime) -> String {
    let now = Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH);
    now.strftime(NAME).to_string()
}

fn kind_of_engine(label: &Label) -> &'static str {
    match (&label.engine, label.durability) {
        (Some(address), _) if address.starts_with("tikv://") => "tikv",
        (Some(_), _) => "postgresql",
        (None, Durability::Store) => "shipped",
        (None, Durability::Local) => "embedded",
    }
}

/// A dump in the bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// What it is called.
    pub name: String,
    /// What is in it.
    pub summary: Summary,
}

/// A dump of which all is written, and which nobody sees yet.
pub struct Making {
    name: String,
    object: DumpObject,
    summary: Summary,
}

impl Making {
    /// Takes the snapshot, and writes one state of all keys. `tell` is told how much is written.
    pub async fn begin(
        engine: &dyn Engine,
        transfer: &Arc<Transfer>,
        (new, tell): (&NewDump, &(dyn Fn(Summary) + Sync)),
    ) -> FsResult<Self> {
        let kept = snapshot_of(&new.name)?;
        snapshots::take(engine, &kept).await?;
        let written = write_object(engine, transfer, (new, tell)).await;
        if written.is_err() {
            forget(engine, &kept).await;
        }
        let (object, summary) = written?;
        Ok(Self {
            name: new.name.clone(),
            object,
            summary,
        })
    }

    /// Lets everybody see it.
    pub async fn publish(self, engine: &dyn Engine) -> FsResult<Made> {
        let Self {
            name,
            object,
            summary,
        } = self;
        if let Err(error) = object.finish().await {
            forget(engine, &snapshot_of(&name)?).await;
            return Err(error);
        }
        Ok(Made { name, summary })
    }
}

/// A dump that was begun under a name is not published: nothing is kept for it.
pub(crate) async fn give_up(engine: &dyn Engine, name: &str) {
    if let Ok(kept) = snapshot_of(name) {
        forget(engine, &kept).await;
    }
}

async fn write_object(
    engine: &dyn Engine,
    transfer: &Arc<Transfer>,
    (new, tell): (&NewDump, &(dyn Fn(Summary) + Sync)),
) -> FsResult<(DumpObject, Summary)> {
    let mut object = DumpObject::create(transfer, &new.name)?;
    let mut pages = FrozenPages::of(engine).await?;
    let summary = write(&new.head, &mut pages, (&mut object, tell)).await?;
    Ok((object, summary))
}

fn snapshot_of(dump: &str) -> FsResult<FileName> {
    let name = FileName::new(format!("{SNAPSHOT}{dump}").as_bytes());
    name.map_err(|_| FsError::InvalidArgument("this is no name for a dump"))
}

/// There is no dump for it. What cannot be removed now is removed with the next dump after a day.
async fn forget(engine: &dyn Engine, snapshot: &FileName) {
    if let Err(error) = snapshots::remove(engine, snapshot).await {
        tracing::debug!(%error, "the snapshot of a dump that was not made is removed later");
    }
}

/// Removes all dumps but the newest `keep`, each before the snapshot that keeps its objects, and snapshots without a dump.
/// Returns the names of the dumps.
pub async fn remove_older(
    engine: &dyn Engine,
    bucket: &dyn Store,
    keep: u64,
) -> FsResult<Vec<String>> {
    let mut dumps = bucket::list(bucket).await?;
    let surplus = dumps.len().saturating_sub(keep as usize);
    let mut removed = Vec::new();
    for dump in dumps.drain(..surplus) {
        bucket::remove(bucket, &dump.name).await?;
        removed.push(dump.name);
    }
    let names: Vec<_> = dumps.into_iter().map(|dump| dump.name).collect();
    let snapshots = snapshots::list(engine).await?;
    let lonely = snapshots.iter().filter_map(|one| {
        let dump = dump_of(one)?;
        let is_there = names.contains(&dump);
        let is_old = age(one) > MAKING_MAX || removed.contains(&dump);
        (!is_there && is_old).then_some(dump)
    });
    let lonely: Vec<_> = lonely.collect();
    for dump in &lonely {
        match snapshots::remove(engine, &snapshot_of(dump)?).await {
            Ok(()) | Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    if !lonely.is_empty() {
        snapshots::clear(engine).await?;
    }
    Ok(removed)
}

fn age(snapshot: &Snapshot) -> Duration {
    let age = clock::wall_time().duration_since(snapshot.taken);
    age.unwrap_or(Duration::ZERO)
}

/// The dump whose objects a snapshot keeps, if it is there for one.
fn dump_of(snapshot: &Snapshot) -> Option<String> {
    let dump = snapshot.name.strip_prefix(SNAPSHOT)?;
    let is_one = !snapshot.is_removed && strtime::parse(NAME, dump).is_ok();
    is_one.then(|| dump.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_of_a_dump_is_known_by_its_name() {
        let snapshot = |name: &str, is_removed| Snapshot {
            number: 1,
            name: name.to_owned(),
            taken: SystemTime::UNIX_EPOCH,
            is_removed,
        };
        let name = named(SystemTime::UNIX_EPOCH);
        assert_eq!(name, "1970-01-01T00-00-00Z");
        let one = format!("dump-{name}");
        assert_eq!(dump_of(&snapshot(&one, false)), Some(name));
        for (name, is_removed) in [
            (&*one, true),
            ("dump-of-mine", false),
            ("daily-1970-01-01", false),
        ] {
            assert_eq!(dump_of(&snapshot(name, is_removed)), None);
        }
    }
}
