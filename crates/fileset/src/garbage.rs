//! Objects in the bucket that no file needs, and what is to become of them.
//!
//! | what | why | what happens |
//! |---|---|---|
//! | garbage | the last file that referred to it went, and a key says so | deleted once that is durable |
//! | held | the same, and a snapshot needs it | garbage once the last such snapshot is removed |
//! | leaked | stored, and no operation ever referred to it: a crash or a failed save came between | found by listing the bucket, deleted when it is older than the grace |
//!
//! A listing is compared with the metadata page by page. What a save has under way is neither: a process knows its own
//! ([`Objects::uncommitted`]), other machines that have the file system at the same time say which objects are theirs
//! ([`machines::living_writers`]), and the grace covers what another process had that wrote to this bucket a moment ago.

use std::{collections::BTreeSet, ops::AddAssign, sync::Arc, time::Duration};

use penstock_base::{FsResult, clock};
use penstock_object::{ListOptions, ListedObject};
use penstock_transfer::Transfer;
use serde::Serialize;

use crate::{
    data::{self, DATA, ObjectId, Objects},
    engine::{Engine, Reads, Transaction, query, transact},
    errors::object_failure,
    machines, operations,
    schema::{self, ObjectUse},
    snapshots::{self, Preserving},
    trash,
};

/// How old an object must be before nothing can be about to refer to it: longer than any upload takes.
pub const LEAK_GRACE: Duration = Duration::from_secs(60 * 60);

/// How a file system's objects are looked through.
#[derive(Debug, Clone, Copy)]
pub struct Sweep {
    /// Objects that nothing refers to are leaked when they are older: [`LEAK_GRACE`].
    pub grace: Duration,
    /// Nothing is deleted.
    pub dry_run: bool,
}

/// Some objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// How many.
    pub objects: u64,
    /// Bytes in them.
    pub bytes: u64,
}

impl AddAssign<u64> for Count {
    /// One more, of so many bytes.
    fn add_assign(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }
}

/// What the bucket holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Garbage {
    /// Objects that files refer to.
    pub live: Count,
    /// Objects that only snapshots need.
    pub held: Count,
    /// Bytes of the live ones that no file refers to any more, at least: what several files show of an object counts for
    /// each of them.
    pub unused_bytes: u64,
    /// To be deleted, or too young to tell.
    pub pending: Count,
    /// Nothing refers to them, and nothing will.
    pub leaked: Count,
    /// Leaked objects that were deleted.
    pub deleted: u64,
    /// Files in the trash, whose objects are among the live ones.
    pub trash: trash::State,
}

/// What the metadata says of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Files need so many of its bytes.
    Used(u64),
    /// No file needs it, and a snapshot does.
    Held,
    Garbage,
    Unknown,
}

/// Removes all that no file needs of a file system, and says what there was. If others have it open they remove what is
/// garbage, and only what leaked is removed here.
pub async fn collect_garbage(
    engine: Arc<dyn Engine>,
    transfer: Arc<Transfer>,
    sweep: Sweep,
) -> FsResult<Garbage> {
    // Those who have the file system open collect what nobody holds.
    let is_alone = match engine.peers() {
        Some(peers) => peers.sessions().await?.len() <= 1,
        None => true,
    };
    let (engine, objects) = (&Preserving::new(engine), Objects::new(transfer));
    if !sweep.dry_run && is_alone {
        snapshots::clear(engine).await?;
        for orphan in query(engine, |reads| operations::orphans(reads)).await? {
            if let Err(error) = collect(engine, orphan).await {
                tracing::warn!(inode = orphan.0, %error, "a removed file could not be cleared away");
            }
        }
        while delete_garbage(engine, &objects).await? {}
    }
    sweep_bucket(engine, &objects, sweep).await
}

/// Collects a file without a name that nobody holds.
pub(crate) async fn collect(engine: &Preserving, inode: penstock_vfs::Inode) -> FsResult<()> {
    let step = move |transaction: &mut dyn Transaction| operations::collect(transaction, inode);
    while !transact(engine, step).await? {}
    Ok(())
}

/// Deletes some garbage; returns whether there may be more.
pub(crate) async fn delete_garbage(engine: &dyn Engine, objects: &Objects) -> FsResult<bool> {
    // Before the look: see there.
    let uncommitted = objects.uncommitted();
    let mut garbage = query(engine, |reads| operations::garbage(reads, &mut |_| true)).await?;
    garbage.retain(|object| !uncommitted.contains(object) && !objects.is_ahead(*object));
    delete(engine, objects, garbage).await
}

/// Deletes objects to which nothing refers and nothing will; returns whether there may be more.
pub(crate) async fn delete(
    engine: &dyn Engine,
    objects: &Objects,
    mut garbage: Vec<ObjectId>,
) -> FsResult<bool> {
    if garbage.is_empty() {
        return Ok(false);
    }
    // A crash must not bring back what refers to them.
    engine.sync().await?;
    // Somebody may read what it became since, or refer to it: an operation that nobody heard of in time is made late.
    let read = objects.uncommitted();
    garbage.retain(|object| !read.contains(object));
    let mut garbage = still(engine, garbage, is_garbage).await?;
    let kept = objects.delete(&garbage).await?;
    let all_went = kept.is_empty() && !garbage.is_empty();
    garbage.retain(|object| !kept.contains(object));
    transact(engine, move |transaction| {
        operations::drop_garbage(transaction, &garbage)
    })
    .await?;
    Ok(all_went)
}

/// Those objects of which that is so by now.
async fn still(
    engine: &dyn Engine,
    objects: Vec<ObjectId>,
    is_so: fn(&dyn Reads, ObjectId) -> FsResult<bool>,
) -> FsResult<Vec<ObjectId>> {
    let look = |reads: &dyn Reads| {
        let found = objects.iter().map(|object| is_so(reads, *object));
        found.collect::<FsResult<Vec<_>>>()
    };
    let found = query(engine, look).await?;
    let found = objects.into_iter().zip(found);
    Ok(found
        .filter_map(|(object, is_so)| is_so.then_some(object))
        .collect())
}

/// Whether an object is garbage: it is asked of the key that made it known, and none with a use has that.
fn is_garbage(reads: &dyn Reads, object: ObjectId) -> FsResult<bool> {
    Ok(reads.get(&schema::garbage(object))?.is_some())
}

fn is_unknown(reads: &dyn Reads, object: ObjectId) -> FsResult<bool> {
    Ok(standing(reads, object)? == Standing::Unknown)
}

/// Compares the bucket with the metadata, and deletes what leaked.
pub(crate) async fn sweep_bucket(
    engine: &dyn Engine,
    objects: &Objects,
    sweep: Sweep,
) -> FsResult<Garbage> {
    let mut found = Garbage {
        trash: trash::state(engine).await?,
        ..Garbage::default()
    };
    let mut options = ListOptions {
        prefix: DATA.to_owned(),
        ..ListOptions::default()
    };
    loop {
        let page = objects.transfer().store().list(options.clone()).await;
        let page = page.map_err(|error| object_failure(&error))?;
        // Behind the listing and before the look.
        let under_way = UnderWay {
            uncommitted: objects.uncommitted(),
            writers: machines::living_writers(engine).await?,
        };
        let leaked = judge(engine, &page.objects, (&under_way, sweep), &mut found).await?;
        if !sweep.dry_run && !leaked.is_empty() {
            if found.deleted == 0 {
                // What is not found in damaged metadata may be what a file needs.
                engine.verify().await?;
            }
            confirm_ownership(engine).await?;
            // What was late is made by now.
            let leaked = still(engine, leaked, is_unknown).await?;
            let kept = objects.delete(&leaked).await?;
            found.deleted += (leaked.len() - kept.len()) as u64;
        }
        if page.continuation.is_none() {
            return Ok(found);
        }
        options.continuation = page.continuation;
    }
}

/// Fails unless the metadata here still is the one of the file system. What another writer stored is not ours to
/// judge, and cannot have been in a listing that came before an operation that became durable here.
async fn confirm_ownership(engine: &dyn Engine) -> FsResult<()> {
    transact(engine, |transaction| {
        transaction.advance(schema::LAST_SWEEP, 0)
    })
    .await?;
    Ok(engine.sync().await?)
}

/// Objects to which somebody may be about to refer.
struct UnderWay {
    /// Here.
    uncommitted: data::UnderWay,
    /// Who stores others elsewhere.
    writers: BTreeSet<u64>,
}

impl UnderWay {
    fn has(&self, object: ObjectId) -> bool {
        self.uncommitted.contains(&object) || self.writers.contains(&object.writer)
    }
}

/// Counts listed objects, and returns those that leaked.
async fn judge(
    engine: &dyn Engine,
    listed: &[ListedObject],
    (under_way, sweep): (&UnderWay, Sweep),
    found: &mut Garbage,
) -> FsResult<Vec<ObjectId>> {
    let known = listed
        .iter()
        .filter_map(|listed| Some((ObjectId::of_key(&listed.key)?, listed)));
    let known: Vec<_> = known.collect();
    let look = |reads: &dyn Reads| {
        let objects = known.iter().map(|(object, _)| standing(reads, *object));
        objects.collect::<FsResult<Vec<_>>>()
    };
    let standings = query(engine, look).await?;
    let mut leaked = Vec::new();
    for ((object, listed), standing) in known.into_iter().zip(standings) {
        match standing {
            Standing::Used(used) => {
                found.live += listed.size;
                found.unused_bytes += listed.size.saturating_sub(used);
            }
            Standing::Held => found.held += listed.size,
            Standing::Garbage => found.pending += listed.size,
            Standing::Unknown if under_way.has(object) => found.pending += listed.size,
            Standing::Unknown if !is_old(listed, sweep.grace) => found.pending += listed.size,
            Standing::Unknown => {
                found.leaked += listed.size;
                leaked.push(object);
            }
        }
    }
    Ok(leaked)
}

/// What the metadata says of an object.
pub(crate) fn standing(reads: &dyn Reads, object: ObjectId) -> FsResult<Standing> {
    if let Some(value) = reads.get(&schema::object(object))? {
        let known = ObjectUse::decode(&value)?;
        return Ok(match known.died {
            0 => Standing::Used(known.needed()),
            _ => Standing::Held,
        });
    }
    Ok(match reads.get(&schema::garbage(object))? {
        Some(_) => Standing::Garbage,
        None => Standing::Unknown,
    })
}

/// Whether an object is older than that. One from the future, by this clock, is not.
fn is_old(listed: &ListedObject, grace: Duration) -> bool {
    let age = clock::wall_time().duration_since(listed.modified);
    age.is_ok_and(|age| age >= grace)
}
