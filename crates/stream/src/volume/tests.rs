use std::{collections::BTreeMap, fs, path::PathBuf, sync::Mutex};

use penstock_base::{BufferPool, MIB, MemoryBudget, metrics::Registry};
use penstock_object::{Key, PutOptions, Store};
use penstock_object_testing::MemoryStore;
use penstock_transfer::Transfer;
use penstock_vfs::{Exclusivity, New, NewKind};
use proptest::prelude::*;

use super::*;
use crate::{
    BuildParts, BuildProgress, DataSettings, ObjectMap, ObjectMapWriter, ObjectSource, Placement,
    SnapshotError, SnapshotObject, Timestamp, build_index,
};

/// Keys with what the objects hold.
type Objects = BTreeMap<String, Vec<u8>>;

/// Objects one after the other.
struct Listing<'a> {
    objects: std::collections::btree_map::Iter<'a, String, Vec<u8>>,
    tags: &'a BTreeMap<String, String>,
}

impl ObjectSource for Listing<'_> {
    fn next_object(&mut self) -> Result<Option<SnapshotObject<'_>>, SnapshotError> {
        Ok(self.objects.next().map(|(key, body)| SnapshotObject {
            key: key.as_bytes(),
            size: body.len() as u64,
            modified: time_of(key),
            etag: self.tags.get(key).map_or("none", String::as_str),
            target: "",
        }))
    }
}

fn time_of(key: &str) -> Timestamp {
    Timestamp {
        seconds: 1_600_000_000 + key.len() as i64,
        nanoseconds: 5_000_000,
    }
}

struct Built {
    _folder: tempfile::TempDir,
    tree: PathBuf,
    map: PathBuf,
}

fn build(objects: &Objects, tags: &BTreeMap<String, String>) -> Built {
    let folder = tempfile::tempdir().expect("a folder");
    let (tree, map) = (folder.path().join("tree"), folder.path().join("map"));
    let mut writer = ObjectMapWriter::create(&map).expect("created");
    let image = DirectoryIndexWriter::create(&tree).expect("created");
    let mut source = Listing {
        objects: objects.iter(),
        tags,
    };
    build_index(BuildParts {
        source: &mut source,
        placement: Placement::new(2),
        image: Box::new(image),
        objects: &mut writer,
        progress: &BuildProgress::default(),
    })
    .expect("built");
    writer.finish().expect("finished");
    Built {
        _folder: folder,
        tree,
        map,
    }
}

fn objects(keys: &[&str]) -> Objects {
    let body = |key: &str| key.as_bytes().repeat(key.len() * 100 % 5000);
    keys.iter()
        .map(|key| ((*key).to_owned(), body(key)))
        .collect()
}

async fn volume(objects: &Objects, direct: bool) -> (Built, StreamVolume) {
    let store = MemoryStore::like_s3();
    let mut tags = BTreeMap::new();
    for (text, body) in objects {
        let key = Key::new(text).expect("valid");
        let stored = store
            .put(&key, body.clone().into(), PutOptions::default())
            .await
            .expect("stored");
        tags.insert(text.clone(), stored.etag.as_str().to_owned());
    }
    let built = build(objects, &tags);
    let map = Arc::new(ObjectMap::open(&built.map).expect("whole"));
    let pool = BufferPool::new(MemoryBudget::new(32 * MIB));
    let settings = DataSettings {
        direct,
        ..DataSettings::within(32 * MIB)
    };
    let transfer = Transfer::new(Arc::new(store), pool);
    let data = DataPath::new(map, transfer, settings, &Registry::new());
    let index = DirectoryIndex::open(&built.tree).expect("whole");
    let permissions = Permissions::with_umask(7, 8, 0o022);
    (built, StreamVolume::new(index, data, permissions))
}

const READ: OpenOptions = OpenOptions::READ;

/// Whoever asks.
fn anybody() -> Identity {
    Identity::new(1, 1, [])
}

fn name(text: &str) -> FileName {
    FileName::new(text.as_bytes()).expect("valid")
}

fn at(handle: HandleId, offset: u64) -> Position {
    Position { handle, offset }
}

async fn look_up(volume: &StreamVolume, parent: Inode, text: &str) -> FsResult<Lookup> {
    let name = name(text);
    volume.lookup(&anybody(), Dentry::new(parent, &name)).await
}

/// Takes so many entries at a time.
struct Page {
    left: usize,
    taken: Mutex<Vec<(u64, String, Entry)>>,
}

impl DirectorySink for Page {
    fn push(&mut self, next: u64, name: &FileName, entry: &Entry) -> std::ops::ControlFlow<()> {
        if self.left == 0 {
            return std::ops::ControlFlow::Break(());
        }
        self.left -= 1;
        let taken = (next, name.to_string(), entry.clone());
        self.taken.lock().expect("free").push(taken);
        std::ops::ControlFlow::Continue(())
    }
}

async fn list(volume: &StreamVolume, directory: Inode, page: usize) -> Vec<(String, Entry)> {
    let handle = volume
        .open_directory(&anybody(), directory)
        .await
        .expect("open");
    let (mut position, mut found) = (0, Vec::new());
    loop {
        let mut sink = Page {
            left: page,
            taken: Mutex::default(),
        };
        let from = ListFrom::Position(position);
        let listed = volume.read_directory(handle, from, &mut sink).await;
        listed.expect("listed");
        let taken = sink.taken.into_inner().expect("free");
        let Some(last) = taken.last() else {
            return found;
        };
        position = last.0;
        found.extend(taken.into_iter().map(|(_, name, entry)| (name, entry)));
    }
}

/// Every file of the volume by its path, as its content.
async fn walk(volume: &StreamVolume, page: usize) -> Objects {
    let mut found = Objects::new();
    let mut open = vec![(String::new(), Inode::ROOT)];
    while let Some((path, inode)) = open.pop() {
        let entries = list(volume, inode, page).await;
        assert!(entries.is_sorted_by_key(|(name, _)| name.clone()));
        for (text, entry) in entries {
            let attributes = &entry.attributes;
            let looked_up = look_up(volume, inode, &text).await;
            assert_eq!(looked_up, Ok(Lookup::Found(entry.clone())));
            let again = volume.attributes(&anybody(), attributes.inode).await;
            assert_eq!(again.as_ref(), Ok(&entry));
            let path = format!("{path}{text}");
            match attributes.kind {
                FileKind::Directory => open.push((format!("{path}/"), attributes.inode)),
                _ => drop(found.insert(path, read(volume, attributes.inode).await)),
            }
        }
    }
    found
}

async fn read(volume: &StreamVolume, inode: Inode) -> Vec<u8> {
    let opened = volume.open(&anybody(), inode, READ).await.expect("opened");
    let mut content = Vec::new();
    loop {
        let offset = content.len() as u64;
        let part = volume
            .read(&anybody(), at(opened.handle, offset), 3000)
            .await
            .expect("read");
        if part.is_empty() {
            return content;
        }
        content.extend(part.to_vec());
    }
}

#[tokio::test]
async fn the_tree_shows_every_object_once() {
    let keys = ["a-x", "a/b/c", "a/y", "b", "empty", "z/-x", "z/.x", "é/ü"];
    let mut objects = objects(&keys);
    objects.insert("empty".to_owned(), Vec::new());
    for direct in [false, true] {
        let (_built, volume) = volume(&objects, direct).await;
        for page in [1, 2, 1000] {
            assert_eq!(walk(&volume, page).await, objects);
        }
    }
}

#[tokio::test]
async fn keys_without_a_place_are_hidden_as_in_an_image() {
    let all = objects(&["a", "a-x", "a/b", "a/", "c//d", "e/../f", "g"]);
    let (_built, volume) = volume(&all, false).await;
    let seen = walk(&volume, 100).await;
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["a-x", "a/b", "g"]);
    let names: Vec<_> = list(&volume, Inode::ROOT, 100).await;
    let names: Vec<_> = names.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "a-x", "c", "e", "g"]);
}

#[tokio::test]
async fn attributes_are_those_of_the_snapshot() {
    let (_built, volume) = volume(&objects(&["dir/file"]), false).await;
    let Ok(Lookup::Found(directory)) = look_up(&volume, Inode::ROOT, "dir").await else {
        panic!("there is a directory");
    };
    let directory = directory.attributes;
    let Ok(Lookup::Found(file)) = look_up(&volume, directory.inode, "file").await else {
        panic!("there is a file");
    };
    let time = std::time::UNIX_EPOCH + Duration::from_millis(1_600_000_008_005);
    let file = file.attributes;
    assert_eq!(
        (file.size, file.permissions, file.modified),
        (8 * 800, 0o755, time)
    );
    assert_eq!((directory.permissions, directory.modified), (0o755, time));
    assert_eq!((file.uid, directory.gid), (7, 8));
    let absent = look_up(&volume, Inode::ROOT, "file").await;
    assert_eq!(absent, Ok(Lookup::Absent(TTL)));
}

#[tokio::test]
async fn nothing_can_be_changed_or_mistaken() {
    let (_built, volume) = volume(&objects(&["dir/file"]), true).await;
    let file = name("dir");
    let opened = volume.open(&anybody(), Inode::ROOT, READ).await;
    assert_eq!(opened.err(), Some(FsError::IsADirectory));
    let entries = list(&volume, Inode::ROOT, 1).await;
    let directory = entries[0].1.attributes.inode;
    let inode = list(&volume, directory, 1).await[0].1.attributes.inode;
    let write = OpenOptions::READ_WRITE;
    let refused = volume.open(&anybody(), inode, write).await;
    assert_eq!(refused.err(), Some(FsError::ReadOnly));
    assert!(
        volume
            .open(&anybody(), inode, READ)
            .await
            .expect("opened")
            .passes_once
    );
    let listed = volume.open_directory(&anybody(), inode).await;
    assert_eq!(listed, Err(FsError::NotADirectory));
    let new = New {
        kind: NewKind::Directory,
        permissions: 0o755,
        umask: 0,
        exclusivity: Exclusivity::New,
    };
    let made = volume
        .make(&anybody(), Dentry::new(Inode::ROOT, &file), new, None)
        .await;
    assert_eq!(made.err(), Some(FsError::ReadOnly));
    let read = volume
        .read(&anybody(), at(HandleId(directory.0), 0), 10)
        .await;
    assert_eq!(read.err(), Some(FsError::BadHandle));
    let read = volume.read(&anybody(), at(HandleId(u64::MAX), 0), 10).await;
    assert!(read.is_err());
}

#[tokio::test]
async fn links_keep_their_targets() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tree");
    let mut writer = Box::new(DirectoryIndexWriter::create(&path).expect("created"));
    let modified = Timestamp::default();
    crate::ImageWriter::symlink(&mut *writer, b"link", b"some/where", modified).expect("added");
    crate::ImageWriter::finish(writer, modified, &[0]).expect("finished");
    let index = DirectoryIndex::open(&path).expect("whole");
    let root = index.node(index.root()).expect("sound");
    let (_, link) = index.lookup(&root, b"link").expect("sound").expect("there");
    assert_eq!(
        index.target(&link).expect("sound"),
        Some(&b"some/where"[..])
    );
    assert_eq!(index.target(&root).expect("sound"), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_name_is_found(keys in prop::collection::btree_set("[ab/.-]{1,6}", 0..60)) {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let objects = objects(&keys);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let (_built, volume) = volume(&objects, false).await;
            for (path, content) in walk(&volume, 7).await {
                assert_eq!(objects.get(&path), Some(&content), "{path}");
            }
        });
    }

    #[test]
    fn a_changed_byte_never_changes_the_tree(
        count in 1..300usize,
        at: prop::sample::Index,
        flip in 1..=255u8,
    ) {
        let keys: Vec<String> = (0..count).map(|key| format!("d{}/f{key}", key % 7)).collect();
        let objects: Objects = keys.into_iter().map(|key| (key, vec![1])).collect();
        let built = build(&objects, &BTreeMap::new());
        let mut bytes = fs::read(&built.tree).expect("read");
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        fs::write(&built.tree, &bytes).expect("written");
        if let Ok(index) = DirectoryIndex::open(&built.tree) {
            prop_assert!(look(&index, index.root()).is_err());
        }
    }
}

/// Visits everything.
fn look(index: &DirectoryIndex, slot: u64) -> Result<(), SnapshotError> {
    let node = index.node(slot)?;
    if node.kind != FileKind::Directory {
        return Ok(());
    }
    for position in 0..node.size {
        let (_, slot) = index.entry(&node, position)?;
        look(index, slot)?;
    }
    Ok(())
}

mod conformance {
    use penstock_vfs_conformance::{FILES, Ground, conformance_tests};

    use super::*;

    async fn open() -> Ground {
        let files = FILES.iter();
        let objects: Objects = files
            .map(|(path, content)| ((*path).to_owned(), content.to_vec()))
            .collect();
        let (built, volume) = volume(&objects, false).await;
        let index = DirectoryIndex::open(&built.tree).expect("whole");
        let permissions = Permissions::with_umask(7, 8, 0o022);
        let again = StreamVolume::new(index, Arc::clone(&volume.data), permissions);
        Ground::filled(Arc::new(volume))
            .served_again_by(Arc::new(again))
            .keeping(built)
    }

    conformance_tests!(open);
}
