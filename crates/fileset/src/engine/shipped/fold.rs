//! Checkpoints in the bucket, so that the log there stays short.
//!
//! A checkpoint is a manifest that names parts: first those that have all keys as they were once, then one for what
//! each stretch of the log changed since. Each time the log has grown long, its groups, read back where memory has them no more, become one more
//! part; when those parts together are as large as [`FULL_SHARE`] says, all keys are written anew, from the tree. Parts come first, the manifest
//! last and where none is; then what no manifest needs any more is deleted.
//!
//! A writer that was shut out may not know it yet and go on here. So a checkpoint never goes farther than the log that was
//! acknowledged, which makes it true for whoever has the file system now; and nobody deletes anything unless he has the log
//! still, after his manifest is there: who takes it over later begins with that manifest, and needs nothing else. What the
//! one who was shut out adds after that counts for nothing once his successor has a checkpoint, which deletes its parts.

use std::{
    ops::ControlFlow,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use penstock_base::{clock, run_blocking};

use super::{
    bucket::{Bucket, Created},
    chain::{self, Chain, Link},
    format::{Manifest, Part, encode_part},
    names::{MANIFESTS, ManifestName, PARTS, PartName},
    shipping::{FOLD_BYTES, FOLD_GROUPS, Shipping, is_foldable},
};
use crate::engine::{
    EngineError, EngineResult, Reads,
    embedded::{EmbeddedEngine, TreeState},
    layers::{Changes, Layered},
    record::{self, Tip},
};

/// Bytes of a part of all keys, about.
const PART_BYTES: usize = 4 << 20;
/// All keys are written anew when what was changed since is larger than one in so many of them.
const FULL_SHARE: u64 = 2;
/// But not before it has so many bytes,
const FULL_MIN: u64 = 32 << 20;
/// unless it has so many parts.
const SINCE_PARTS_MAX: usize = 256;
/// How long one that failed waits.
const RETRY: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Folder {
    pub(super) engine: Weak<EmbeddedEngine>,
    pub(super) shipping: Arc<Shipping>,
    /// Parts written so far.
    parts: u64,
    /// What was written last, once that is known.
    manifest: Option<Manifest>,
}

impl Folder {
    pub(super) fn new(engine: Weak<EmbeddedEngine>, shipping: Arc<Shipping>) -> Self {
        Self {
            engine,
            shipping,
            parts: 0,
            manifest: None,
        }
    }

    /// Makes checkpoints whenever there is enough for one.
    pub(super) async fn run(mut self) {
        loop {
            while is_foldable(&self.shipping.log.lock()) && self.shipping.is_going_on() {
                if let Err(error) = self.fold().await {
                    tracing::warn!(%error, "the log in the bucket could not be shortened; it is tried again");
                    clock::sleep(RETRY).await;
                }
            }
            self.shipping.foldable.notified().await;
        }
    }

    async fn fold(&mut self) -> EngineResult<()> {
        if self.manifest.is_none() {
            let newest = newest(&self.shipping.bucket).await?;
            self.manifest = newest.map(|(_, manifest)| manifest);
        }
        let manifest = match self.manifest.clone() {
            Some(manifest) if !is_due_anew(&manifest) => self.go_on(manifest).await?,
            _ => self.anew().await?,
        };
        self.publish(manifest).await
    }

    /// One part more, of the oldest groups of the log.
    async fn go_on(&mut self, mut manifest: Manifest) -> EngineResult<Manifest> {
        let links = self.shipping.log.lock().clone();
        let links = some_of(chain::from(&links, manifest.place()));
        let mut changes = Changes::new();
        let mut tip = manifest.tip();
        let known = |name| self.shipping.kept(name);
        chain::visit_known(&self.shipping.bucket, (links, &known), |before, record| {
            if record.sequence <= tip.sequence {
                return Ok(());
            }
            let next = before.behind(&record).filter(|_| before == tip);
            let lacking = || {
                let text = format!("operation {} is not in the bucket", tip.sequence + 1);
                EngineError::Corrupt(text)
            };
            let next = next.ok_or_else(lacking)?;
            record::redo(record.changes, &mut changes).ok_or_else(lacking)?;
            tip = next;
            Ok(())
        })
        .await?;
        let mut body = BytesMut::new();
        for (key, value) in &changes {
            record::append_change(&mut body, key, value.as_deref());
        }
        if let Some(link) = links.last() {
            manifest.log = (link.name.epoch, link.name.number + 1);
        }
        (manifest.sequence, manifest.history) = (tip.sequence, tip.history);
        let part = self.put_part(tip.sequence, body.freeze()).await?;
        manifest.parts.push(part);
        Ok(manifest)
    }

    /// All keys as they are now.
    async fn anew(&mut self) -> EngineResult<Manifest> {
        let closed = || EngineError::Io("the engine is closed".to_owned());
        let snapshot = self.engine.upgrade().ok_or_else(closed)?.snapshot().await;
        let (tree, Tip { sequence, history }) = snapshot?;
        // Not before all of it is acknowledged.
        self.shipping.shipped(sequence).await?;
        let mut parts = Vec::new();
        let mut from = Bytes::new();
        while let Some((body, next)) = run_blocking(|| some_keys(&tree, &from))? {
            parts.push(self.put_part(sequence, body).await?);
            from = next;
        }
        Ok(Manifest {
            version: Manifest::VERSION,
            sequence,
            history,
            log: self.behind(sequence),
            full: parts.len(),
            parts,
        })
    }

    /// Where the log goes on behind what was applied up to `sequence`. What was there at the opening is before that.
    fn behind(&self, sequence: u64) -> (u64, u64) {
        let log = self.shipping.log.lock();
        let next = log.iter().find(|link| link.last > sequence);
        let name = next.map(|link| link.name);
        let name = name.or_else(|| log.last().map(|link| link.name.next()));
        name.map_or((0, 1), |name| (name.epoch, name.number))
    }

    async fn put_part(&mut self, sequence: u64, body: Bytes) -> EngineResult<Part> {
        self.parts += 1;
        let name = PartName {
            sequence,
            epoch: self.shipping.epoch(),
            number: self.parts,
        };
        let key = name.to_string();
        let body = encode_part(self.shipping.bucket.identity, body);
        let bytes = body.len() as u64;
        match self.shipping.bucket.create(&key, body).await? {
            Created::Done => Ok(Part { key, bytes }),
            Created::Taken(_) => Err(EngineError::Store(format!("{key} is there already"))),
        }
    }

    /// Writes the manifest, and deletes what is of no use then.
    async fn publish(&mut self, manifest: Manifest) -> EngineResult<()> {
        let bucket = &self.shipping.bucket;
        let name = ManifestName {
            sequence: manifest.sequence,
            epoch: self.shipping.epoch(),
        };
        let key = name.to_string();
        let manifest = match bucket
            .create(&key, manifest.encode(bucket.identity))
            .await?
        {
            Created::Done => manifest,
            // An attempt whose answer was lost.
            Created::Taken(there) => Manifest::decode(there, bucket.identity, &key)?,
        };
        tracing::debug!(
            sequence = manifest.sequence,
            parts = manifest.parts.len(),
            "a checkpoint of the metadata is in the bucket"
        );
        let epoch = self.shipping.epoch();
        let place = manifest.place();
        self.shipping.forget_before(place);
        let needed = Needed {
            name,
            manifest: &manifest,
        };
        let collected = needed.collect(bucket, epoch).await;
        self.manifest = Some(manifest);
        collected
    }
}

/// Whether it is better to write all keys than one part more.
fn is_due_anew(manifest: &Manifest) -> bool {
    let (full, since) = manifest.bytes();
    since > FULL_MIN.max(full / FULL_SHARE)
        || manifest.parts.len() - manifest.full > SINCE_PARTS_MAX
}

/// The first of `links`, as many as one part is made of.
fn some_of(links: &[Link]) -> &[Link] {
    let mut bytes = 0;
    let fits = |link: &&Link| {
        bytes += link.bytes;
        bytes <= FOLD_BYTES
    };
    let count = links.iter().take(FOLD_GROUPS).take_while(fits).count();
    &links[..count.max(1).min(links.len())]
}

/// Keys from `from` on, encoded, and where to go on; nothing behind the last.
fn some_keys(tree: &TreeState, from: &Bytes) -> EngineResult<Option<(Bytes, Bytes)>> {
    let mut body = BytesMut::new();
    let mut last = None;
    // Keys are not longer than this.
    let end = [u8::MAX; crate::engine::KEY_LENGTH_MAX];
    Layered(vec![tree]).scan(from..&end[..], &mut |key, value| {
        record::append_change(&mut body, key, Some(value));
        last = Some(Bytes::copy_from_slice(key));
        match body.len() < PART_BYTES {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    let next = last.map(|key| [&key[..], &[0]].concat().into());
    Ok(next.map(|next| (body.freeze(), next)))
}

/// The newest manifest in the bucket, if there is one.
pub(super) async fn newest(bucket: &Bucket) -> EngineResult<Option<(ManifestName, Manifest)>> {
    let listed = bucket.list(MANIFESTS).await?;
    let names = listed
        .iter()
        .filter_map(|(key, _)| ManifestName::of_key(key));
    let Some(name) = names.max() else {
        return Ok(None);
    };
    let key = name.to_string();
    let Some(bytes) = bucket.read(&key).await? else {
        return Err(EngineError::Store(format!("{key} is gone")));
    };
    let manifest = Manifest::decode(bytes, bucket.identity, &key)?;
    match manifest.sequence == name.sequence {
        true => Ok(Some((name, manifest))),
        false => Err(super::format::damaged(key)),
    }
}

/// What must not be deleted.
struct Needed<'a> {
    name: ManifestName,
    manifest: &'a Manifest,
}

impl Needed<'_> {
    /// Deletes all else, but for claims, if `epoch` goes on still.
    async fn collect(&self, bucket: &Bucket, epoch: u64) -> EngineResult<()> {
        let log = Chain::read(bucket).await?;
        if log.epoch() != epoch {
            return Ok(());
        }
        let mut useless = self.useless_log(&log, epoch);
        for (key, _) in bucket.list(MANIFESTS).await? {
            let is_old = |name: ManifestName| name < self.name && name.epoch <= epoch;
            if ManifestName::of_key(&key).is_some_and(is_old) {
                useless.push(key);
            }
        }
        for (key, _) in bucket.list(PARTS).await? {
            let is_named = || self.manifest.parts.iter().any(|part| part.key == key);
            let is_old =
                |name: PartName| name.sequence <= self.name.sequence && name.epoch <= epoch;
            if PartName::of_key(&key).is_some_and(is_old) && !is_named() {
                useless.push(key);
            }
        }
        bucket.delete(&useless).await
    }

    /// Groups that the checkpoint has, but for the last ones of all, see [`Chain`], and what was left behind claims.
    fn useless_log(&self, chain: &Chain, epoch: u64) -> Vec<String> {
        let place = self.manifest.place();
        let spared = chain.groups.len().saturating_sub(chain::IN_FLIGHT_MAX);
        let groups = chain.groups[..spared].iter().map(|link| link.name);
        let useless = groups.filter(|name| *name < place && name.epoch <= epoch);
        let dead = chain.dead.iter().copied();
        let dead = dead.filter(|name| name.epoch < epoch || (*name < place && name.epoch == epoch));
        useless.chain(dead).map(|name| name.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use penstock_object::Operation;
    use penstock_object_testing::{Faults, Faulty, MemoryStore};

    use super::*;
    use crate::engine::shipped::names::LogName;
    use crate::engine::{
        EmbeddedSettings, Engine, ShippedEngine, ShippedSettings, query, transact,
    };

    fn settings(directory: &tempfile::TempDir, bucket: &Arc<MemoryStore>) -> ShippedSettings {
        ShippedSettings {
            local: EmbeddedSettings {
                directory: directory.path().to_owned(),
                memory: 8 << 20,
            },
            store: Arc::<MemoryStore>::clone(bucket),
            identity: 7,
        }
    }

    async fn attached(directory: &tempfile::TempDir, bucket: &Arc<MemoryStore>) -> ShippedEngine {
        let attached = ShippedEngine::attach(&settings(directory, bucket), &|_| ()).await;
        attached.expect("the bucket has all")
    }

    fn folder(engine: &ShippedEngine) -> Folder {
        Folder::new(Arc::downgrade(&engine.local), Arc::clone(&engine.shipping))
    }

    /// A checkpoint of all groups but the last.
    async fn fold_but_last(folder: &mut Folder) -> EngineResult<()> {
        let last = folder.shipping.log.lock().pop();
        let folded = folder.fold().await;
        folder.shipping.log.lock().extend(last);
        folded
    }

    async fn put(engine: &ShippedEngine, key: &'static [u8]) -> EngineResult<()> {
        let put = transact(engine, move |transaction| -> EngineResult<()> {
            transaction.put(key, Bytes::new());
            Ok(())
        });
        put.await?;
        engine.sync().await
    }

    /// Each group was read back, a request for each close of a file.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_checkpoint_asks_for_no_group_that_was_just_sent() {
        let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let bucket = Arc::new(MemoryStore::new());
        let faults = Faults::new(1);
        let way = Faulty::new(Arc::<MemoryStore>::clone(&bucket), Arc::clone(&faults));
        let settings = ShippedSettings {
            store: Arc::new(way),
            ..settings(&directories[0], &bucket)
        };
        let engine = ShippedEngine::create(&settings).await;
        let engine = engine.expect("the bucket is empty");
        let mut folder = folder(&engine);
        put(&engine, b"one").await.expect("it works");
        folder.fold().await.expect("it works");
        put(&engine, b"two").await.expect("it works");
        put(&engine, b"three").await.expect("it works");
        let before = faults.calls(Operation::Get);
        folder.fold().await.expect("it works");
        assert_eq!(faults.calls(Operation::Get) - before, 0);
        assert!(
            folder
                .shipping
                .kept(LogName {
                    epoch: 1,
                    number: 2
                })
                .is_none()
        );

        let other = attached(&directories[1], &bucket).await;
        for key in [&b"one"[..], b"two", b"three"] {
            let value = query(&other, |reads| reads.get(key)).await;
            assert_eq!(value, Ok(Some(Bytes::new())), "{key:?}");
        }
    }

    /// It was shut out and does not know, and goes on from its own checkpoint, whose parts the other one deleted.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_was_shut_out_makes_no_checkpoint_that_others_begin_with() {
        let directories = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
        let bucket = Arc::new(MemoryStore::new());
        let first = ShippedEngine::create(&settings(&directories[0], &bucket)).await;
        let first = first.expect("the bucket is empty");
        let mut late = folder(&first);
        put(&first, b"one").await.expect("it works");
        late.fold().await.expect("it works");
        put(&first, b"two").await.expect("it works");
        put(&first, b"three").await.expect("it works");

        let second = attached(&directories[1], &bucket).await;
        let mut own = folder(&second);
        let found = newest(&second.shipping.bucket).await.expect("it is read");
        own.manifest = found.map(|(_, manifest)| manifest);
        fold_but_last(&mut late).await.expect("it works");
        fold_but_last(&mut own).await.expect("it works");
        late.fold().await.expect("it works");

        let third = attached(&directories[2], &bucket).await;
        for key in [&b"one"[..], b"two", b"three"] {
            let value = query(&third, |reads| reads.get(key)).await;
            assert_eq!(value, Ok(Some(Bytes::new())), "{key:?}");
        }
    }
}
