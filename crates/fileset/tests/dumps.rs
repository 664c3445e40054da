//! A dump is one whole state or refused, and what is brought from one engine to another is the same there.

#![allow(clippy::unwrap_used)]

#[path = "database/mod.rs"]
mod database;
mod support;
mod trees;

use std::{ops::ControlFlow, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{FsError, FsResult};
use penstock_fileset::{
    Durability, Format, Label,
    dumps::{
        self, DumpObject, DumpObjectSource, FrozenPages, Head, Page, Pages, Reading, Sink, Source,
        Summary, carry,
    },
    engine::{
        ALL, EmbeddedEngine, EmbeddedSettings, Engine, EngineResult, MemoryEngine, query, transact,
    },
    snapshots,
};
use penstock_vfs::{AttributeChanges, Inode, New, NewKind, RemoveKind, RenameMode, XattrMode};

use support::{Place, ROOT, directory, file, name};
use trees::tree;

/// Bytes in memory.
#[derive(Default)]
struct Memory(Vec<Bytes>);

#[async_trait]
impl Sink for Memory {
    async fn write(&mut self, bytes: Bytes) -> FsResult<()> {
        self.0.push(bytes);
        Ok(())
    }
}

/// The same, some at a time.
struct Pieces(Bytes, usize);

#[async_trait]
impl Source for Pieces {
    async fn read(&mut self) -> FsResult<Option<Bytes>> {
        let length = self.1.min(self.0.len());
        Ok((length > 0).then(|| self.0.split_to(length)))
    }
}

fn head() -> Head {
    Head {
        label: Label::new("home", &Format::new(1), Durability::Local),
        dump: 77,
        taken: 1,
        engine: "embedded".to_owned(),
    }
}

/// The lines of a dump.
async fn dumped(engine: &dyn Engine) -> Vec<Bytes> {
    let (mut memory, mut pages) = (Memory::default(), FrozenPages::of(engine).await.unwrap());
    let written = dumps::write(&head(), &mut pages, (&mut memory, &|_: Summary| {})).await;
    let bytes: usize = memory.0.iter().map(Bytes::len).sum();
    assert_eq!(written.unwrap().bytes, bytes as u64);
    memory.0
}

async fn read(bytes: Bytes) -> FsResult<u64> {
    let mut source = Pieces(bytes, 100_000);
    let mut reading = Reading::begin(&mut source).await?;
    while reading.next().await?.is_some() {}
    Ok(reading.digest().count())
}

/// Brings a dump into an engine and makes it visible.
async fn load(bytes: Bytes, target: &dyn Engine) -> FsResult<u64> {
    let mut source = Pieces(bytes, 10_000);
    let mut reading = Reading::begin(&mut source).await?;
    let of = reading.head().dump;
    let carried = carry(&mut reading, (target, of), &|_| {}).await?;
    let keys = carried.keys();
    carried.publish(target, 0).await.map(|()| keys)
}

async fn all(engine: &dyn Engine) -> Vec<(Bytes, Bytes)> {
    let mut found = Vec::new();
    query(engine, |reads| -> EngineResult<()> {
        found.clear();
        reads.scan(ALL, &mut |key, value| {
            found.push((Bytes::copy_from_slice(key), value.clone()));
            ControlFlow::Continue(())
        })
    })
    .await
    .unwrap();
    found
}

/// An engine with more keys than a page has.
async fn filled(count: u32) -> MemoryEngine {
    let engine = MemoryEngine::default();
    transact(&engine, move |transaction| -> EngineResult<()> {
        transaction.put(b"F", all_of_a_head());
        for number in 0..count {
            let key = [&b"I"[..], &u64::from(number).to_be_bytes()].concat();
            let value = number.wrapping_mul(2_654_435_761).to_le_bytes().repeat(16);
            transaction.put(&key, value.into());
        }
        Ok(())
    })
    .await
    .unwrap();
    engine
}

fn all_of_a_head() -> Bytes {
    let mut head = 1_u32.to_le_bytes().to_vec();
    head.extend(1_u64.to_le_bytes());
    head.extend((4_u64 << 20).to_le_bytes());
    head.into()
}

#[tokio::test]
async fn a_dump_that_was_damaged_or_cut_anywhere_is_refused() {
    let lines = dumped(&filled(20_000).await).await;
    assert!(lines.len() > 4, "several blocks: {}", lines.len());
    let whole = Bytes::from(lines.concat());
    assert_eq!(read(whole.clone()).await.unwrap(), 20_001);
    // Each end of a line and the bytes about it, and all over the last lines.
    let mut ends = vec![0];
    ends.extend(lines.iter().scan(0, |end, line| {
        *end += line.len();
        Some(*end)
    }));
    let near = ends.iter().flat_map(|end| end.saturating_sub(25)..end + 25);
    for at in near.chain((0..whole.len()).step_by(4_099)) {
        if at < whole.len() {
            assert!(read(whole.slice(..at)).await.is_err(), "cut at {at}");
            let mut bytes = whole.to_vec();
            bytes[at] ^= 1 << (at % 8);
            assert!(read(bytes.into()).await.is_err(), "damaged at {at}");
        }
    }
    for (one, other) in [(1, 2), (2, 1)] {
        let mut lines = lines.clone();
        lines[one] = lines[other].clone();
        assert!(read(lines.concat().into()).await.is_err(), "exchanged");
    }
    let mut left_out = lines.clone();
    left_out.remove(1);
    assert!(read(left_out.concat().into()).await.is_err(), "left out");
    let more = [&whole[..], b"x"].concat();
    assert!(read(more.into()).await.is_err(), "more behind its end");
}

#[tokio::test]
async fn a_small_dump_that_was_cut_or_damaged_at_any_byte_is_refused() {
    let whole = Bytes::from(dumped(&filled(20).await).await.concat());
    for at in 0..whole.len() {
        assert!(read(whole.slice(..at)).await.is_err(), "cut at {at}");
        for bit in 0..8 {
            let mut bytes = whole.to_vec();
            bytes[at] ^= 1 << bit;
            assert!(read(bytes.into()).await.is_err(), "bit {bit} at {at}");
        }
    }
}

/// Numbers that look random, the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Makes what comes to mind, and takes some of it away.
async fn grow(place: &Place, seed: u64) {
    let (mut numbers, mut directories) = (Numbers(seed * 7_919 + 1), vec![ROOT]);
    for step in 0..60 {
        let parent = directories[numbers.below(directories.len())];
        let text = format!("name {seed} {step}");
        match numbers.below(6) {
            0 => directories.push(place.make(parent, &text, directory(0o750)).await.unwrap()),
            1 => {
                let target = NewKind::Symlink(b"elsewhere");
                let new = New {
                    kind: target,
                    ..file(0o777)
                };
                place.make(parent, &text, new).await.unwrap();
            }
            2 => {
                let _ = place
                    .remove(
                        parent,
                        &format!("name {seed} {}", step / 2),
                        RemoveKind::File,
                    )
                    .await;
            }
            3 => {
                let source = format!("name {seed} 3");
                let old = (parent, &source[..]);
                let _ = place
                    .rename(old, (parent, &text), RenameMode::Replace)
                    .await;
            }
            _ => {
                let content = vec![step as u8; 1 + numbers.below(300_000)];
                place.store(parent, &text, &content).await.unwrap();
                let made: Inode = place.find(parent, &text).await.unwrap().inode;
                let xattr = place.set_xattr(made, "user.step", text.as_bytes(), XattrMode::Set);
                xattr.await.unwrap();
                let changes = AttributeChanges {
                    permissions: Some(0o640),
                    ..Default::default()
                };
                place.change(made, changes).await.unwrap();
                let list = trees::list(&[(step as u32, 6)]);
                let list = place.set_xattr(made, trees::ACCESS, &list, XattrMode::Set);
                list.await.unwrap();
            }
        }
    }
}

/// Engines into which a file system is brought.
async fn targets(directories: &[tempfile::TempDir; 2]) -> Vec<Arc<dyn Engine>> {
    let settings = EmbeddedSettings {
        directory: directories[0].path().to_owned(),
        memory: 16 << 20,
    };
    let embedded: Arc<dyn Engine> = Arc::new(EmbeddedEngine::open(&settings).unwrap());
    let mut targets = vec![embedded];
    if let Some(engine) = database::new_engine(directories[1].path()).await {
        targets.push(engine);
    }
    targets
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_dumped_and_loaded_has_the_same_names_attributes_and_bytes() {
    for seed in 0..4 {
        let place = Place::new().await;
        grow(&place, seed).await;
        snapshots::take(&*place.engine, &name("then"))
            .await
            .unwrap();
        let wanted = tree(&place, ROOT).await;
        let bytes = Bytes::from(dumped(&*place.engine).await.concat());
        let directories = [database::place(), database::place()];
        for target in targets(&directories).await {
            load(bytes.clone(), &*target).await.unwrap();
            assert_eq!(all(&*target).await, all(&*place.engine).await, "all keys");
            let again = load(bytes.clone(), &*target).await;
            assert!(matches!(again, Err(FsError::AlreadyExists)), "{again:?}");
            // From one engine to the other, too.
            let mut pages = FrozenPages::of(&*target).await.unwrap();
            let onward = MemoryEngine::default();
            let carried = carry(&mut pages, (&onward, 1), &|_| {}).await.unwrap();
            carried.publish(&onward, 0).await.unwrap();
            assert_eq!(all(&onward).await, all(&*place.engine).await);
            let loaded = Place::sharing(target, Arc::clone(&place.bucket)).await;
            assert_eq!(tree(&loaded, ROOT).await, wanted, "seed {seed}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_is_one_state_while_the_file_system_changes() {
    let place = Place::new().await;
    grow(&place, 9).await;
    let before = all(&*place.engine).await;
    let mut pages = FrozenPages::of(&*place.engine).await.unwrap();
    grow(&place.clone(), 10).await;
    let mut found = Page::new();
    while let Some(page) = pages.next().await.unwrap() {
        found.extend(page);
    }
    assert_eq!(found, before);
}

/// Pages of which those behind the first ones never come.
struct Cut<'a>(Reading<'a>, usize);

#[async_trait]
impl Pages for Cut<'_> {
    async fn next(&mut self) -> FsResult<Option<Page>> {
        let left = self.1.checked_sub(1);
        self.1 = left.ok_or_else(|| FsError::Io("as it was told".to_owned()))?;
        self.0.next().await
    }
}

#[tokio::test]
async fn a_load_that_was_interrupted_goes_on_and_shows_nothing_before() {
    let engine = filled(40_000).await;
    let bytes = Bytes::from(dumped(&engine).await.concat());
    let target = MemoryEngine::default();
    for pages in 0..6 {
        let mut source = Pieces(bytes.clone(), 10_000);
        let reading = Reading::begin(&mut source).await.unwrap();
        let cut = carry(&mut Cut(reading, pages), (&target, 77), &|_| {}).await;
        assert!(cut.is_err() && penstock_fileset::format_of(&target).await.is_err());
    }
    // What another dump brought goes first.
    let other = filled(10).await;
    let mut pages = FrozenPages::of(&other).await.unwrap();
    drop(carry(&mut pages, (&target, 78), &|_| {}).await.unwrap());
    assert!(penstock_fileset::format_of(&target).await.is_err());
    load(bytes, &target).await.unwrap();
    assert_eq!(all(&target).await, all(&engine).await);
}

#[tokio::test]
async fn what_belongs_to_machines_is_not_loaded() {
    let engine = filled(3).await;
    transact(&engine, |transaction| -> EngineResult<()> {
        let number = 9_u64.to_be_bytes();
        for kind in [b'R', b'A', b'M', b'O', b'w'] {
            transaction.put(
                &[&[kind], &number[..]].concat(),
                Bytes::from_static(b"\x01old"),
            );
        }
        Ok(())
    })
    .await
    .unwrap();
    let target = MemoryEngine::default();
    load(dumped(&engine).await.concat().into(), &target)
        .await
        .unwrap();
    let orphan = [&b"O"[..], &9_u64.to_be_bytes()].concat();
    let there = all(&target).await;
    assert!(
        there.contains(&(orphan.into(), Bytes::new())),
        "nobody holds it"
    );
    assert!(!there.iter().any(|(key, _)| b"RAMZw".contains(&key[0])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_of_an_encrypted_fileset_tells_no_names_in_the_bucket() {
    let place = Place::encrypted_with_memory(128 << 20).await;
    place
        .store(ROOT, "a very secret name", b"content")
        .await
        .unwrap();
    let mut pages = FrozenPages::of(&*place.engine).await.unwrap();
    let mut object = DumpObject::create(&place.transfer(), "now").unwrap();
    let written = dumps::write(&head(), &mut pages, (&mut object, &|_: Summary| {})).await;
    let keys = written.unwrap().keys;
    object.finish().await.unwrap();
    let mut raw = DumpObjectSource::open(&place.raw, "now").unwrap();
    assert!(Reading::begin(&mut raw).await.is_err(), "without the key");
    let mut source = DumpObjectSource::open(&place.bucket, "now").unwrap();
    let mut reading = Reading::begin(&mut source).await.unwrap();
    while reading.next().await.unwrap().is_some() {}
    assert_eq!(reading.digest().count(), keys);
    assert_eq!(dumps::list(&*place.raw).await.unwrap().len(), 1);
    dumps::remove(&*place.raw, "now").await.unwrap();
    assert!(dumps::list(&*place.raw).await.unwrap().is_empty());
}

/// The bucket has them before anybody sees the dump, and who loads it could not read them elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_with_the_metadata_are_in_no_dump() {
    let place = Place::inlined().await;
    place.store(ROOT, "small", b"small").await.unwrap();
    assert_ne!(place.waiting(), (0, 0));
    let (dump, target) = (dumped(&*place.engine).await, MemoryEngine::default());
    load(dump.concat().into(), &target).await.unwrap();
    let has_content = |keys: &[(Bytes, Bytes)]| keys.iter().any(|(key, _)| key[0] == b'd');
    assert!(has_content(&all(&*place.engine).await));
    assert!(!has_content(&all(&target).await));
}
