use std::{collections::BTreeMap, fs, path::PathBuf};

use proptest::prelude::*;

use super::*;
use crate::{ObjectSource, Placement, SnapshotObject};

/// An object as a refresh compares it.
type Listed = (Vec<u8>, u64, Timestamp, String);

/// Keys with sizes.
type Objects = BTreeMap<String, u64>;

struct Written {
    _folder: tempfile::TempDir,
    path: PathBuf,
    places: Vec<BlockAddress>,
}

fn etag_of(key: &str) -> String {
    match key.len() % 3 {
        0 => format!("{:032x}", key.len() * 7919),
        1 => format!("{:032X}", key.len() * 104_729),
        _ => format!("tag-{key}"),
    }
}

fn time_of(size: u64) -> Timestamp {
    Timestamp {
        seconds: 1_700_000_000 + size as i64,
        nanoseconds: (size % 1000) as u32 * 1_000_000,
    }
}

fn write(objects: &Objects, disks: u16) -> Written {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("map");
    let mut writer = ObjectMapWriter::create(&path).expect("created");
    let mut placement = Placement::new(disks);
    let mut places = Vec::new();
    for (key, size) in objects {
        let start = placement.place(*size);
        let object = SnapshotObject {
            key: key.as_bytes(),
            size: *size,
            modified: time_of(*size),
            etag: &etag_of(key),
            target: "",
        };
        writer.add(&object, start).expect("added");
        places.push(start);
    }
    writer.finish().expect("finished");
    let left = fs::read_dir(folder.path()).expect("listed").count();
    assert_eq!(left, 1, "only the map is left");
    Written {
        _folder: folder,
        path,
        places,
    }
}

fn some(count: u64) -> Objects {
    (0..count)
        .map(|index| {
            (
                format!("dir{:03}/file{index:07}", index / 100),
                index * 977 % 20_000,
            )
        })
        .collect()
}

/// Every object, by reading all of the map, as a refresh does.
fn list(map: &ObjectMap) -> Result<Vec<Listed>, SnapshotError> {
    let mut source = map.objects();
    let mut found = Vec::new();
    while let Some(object) = source.next_object()? {
        let SnapshotObject { key, size, .. } = object;
        found.push((key.to_vec(), size, object.modified, object.etag.to_owned()));
    }
    Ok(found)
}

fn expected(objects: &Objects) -> Vec<Listed> {
    objects
        .iter()
        .map(|(key, size)| {
            (
                key.clone().into_bytes(),
                *size,
                time_of(*size),
                etag_of(key),
            )
        })
        .collect()
}

/// What a damaged map may do is refuse; it must not say anything else than before.
fn ask_everything(path: &Path, objects: &Objects, places: &[BlockAddress]) -> bool {
    let Ok(map) = ObjectMap::open(path) else {
        return false;
    };
    let listed = list(&map);
    let mut is_sound = listed.is_ok();
    if let Ok(listed) = listed {
        assert_eq!(listed, expected(objects));
    }
    for ((key, size), place) in objects.iter().zip(places) {
        match map.find(*place) {
            Ok(found) if *size > 0 => {
                assert_eq!(
                    found.map(|object| object.key).as_deref(),
                    Some(key.as_bytes())
                );
            }
            Ok(_) => {}
            Err(_) => is_sound = false,
        }
    }
    is_sound
}

#[test]
fn an_empty_map_has_no_objects() {
    let written = write(&Objects::new(), 1);
    let map = ObjectMap::open(&written.path).expect("whole");
    assert_eq!((map.objects_count(), map.disks()), (0, 0));
    let address = BlockAddress { disk: 0, block: 0 };
    assert_eq!(map.find(address).expect("sound"), None);
    assert!(map.object(0).is_err());
    assert_eq!(list(&map).expect("sound"), []);
}

#[test]
fn every_block_leads_to_its_object() {
    let objects = some(1000);
    let written = write(&objects, 3);
    let map = ObjectMap::open(&written.path).expect("whole");
    assert_eq!((map.objects_count(), map.disks()), (1000, 3));
    for (number, ((key, size), place)) in objects.iter().zip(&written.places).enumerate() {
        let object = map.object(number as u32).expect("sound");
        assert_eq!((&object.key[..], object.size), (key.as_bytes(), *size));
        for block in place.block..place.block + object.blocks() {
            let address = BlockAddress { block, ..*place };
            assert_eq!(map.find(address).expect("sound").as_ref(), Some(&object));
        }
    }
    for disk in 0..3 {
        let block = map.disk_blocks(disk);
        let behind = BlockAddress { disk, block };
        assert_eq!(map.find(behind).expect("sound"), None);
    }
    assert_eq!(list(&map).expect("sound"), expected(&objects));
}

#[test]
fn holes_belong_to_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("map");
    let mut writer = ObjectMapWriter::create(&path).expect("created");
    for (key, block) in [(b"a", 10), (b"b", 20)] {
        let object = SnapshotObject {
            key,
            size: BLOCK_SIZE + 1,
            modified: Timestamp::default(),
            etag: "x",
            target: "",
        };
        writer
            .add(&object, BlockAddress { disk: 1, block })
            .expect("added");
    }
    writer.finish().expect("finished");
    let map = ObjectMap::open(&path).expect("whole");
    let at = |block| map.find(BlockAddress { disk: 1, block }).expect("sound");
    for hole in [0, 9, 12, 19, 22] {
        assert_eq!(at(hole), None, "block {hole}");
    }
    assert_eq!(at(11).map(|object| object.number), Some(0));
    let all = map.overlapping(1, 0..100).expect("sound");
    assert_eq!(
        all.iter().map(|placed| placed.block).collect::<Vec<_>>(),
        [10, 20]
    );
    assert_eq!(map.overlapping(1, 12..20).expect("sound").len(), 0);
    assert_eq!((map.disk_blocks(0), map.disk_blocks(1)), (0, 22));
}

#[test]
fn what_cannot_be_mapped_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut writer = ObjectMapWriter::create(&folder.path().join("map")).expect("created");
    let mut add = |key: &str, size, block| {
        let object = SnapshotObject {
            key: key.as_bytes(),
            size,
            modified: Timestamp::default(),
            etag: "x",
            target: "",
        };
        writer.add(&object, BlockAddress { disk: 0, block })
    };
    add("b", 2 * BLOCK_SIZE, 0).expect("the first");
    for (key, size, block, why) in [
        ("b", 1, 2, "do not rise"),
        ("a", 1, 2, "do not rise"),
        ("c", 1, 1, "taken"),
        ("d", 1, 1 << 32, "full"),
    ] {
        let error = add(key, size, block).expect_err("refused").to_string();
        assert!(error.contains(why), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_map_says_what_was_added(
        objects in prop::collection::btree_map("[a-c/é]{1,8}", 0..50_000u64, 0..80),
        disks in 1..5u16,
    ) {
        let written = write(&objects, disks);
        prop_assert!(ask_everything(&written.path, &objects, &written.places));
    }

    #[test]
    fn a_changed_byte_never_changes_an_answer(
        count in 1..600u64,
        at: prop::sample::Index,
        flip in 1..=255u8,
    ) {
        let objects = some(count);
        let written = write(&objects, 2);
        let mut bytes = fs::read(&written.path).expect("read");
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        fs::write(&written.path, &bytes).expect("written");
        prop_assert!(!ask_everything(&written.path, &objects, &written.places));
    }

    #[test]
    fn a_cut_map_is_refused(count in 1..600u64, cut: prop::sample::Index) {
        let written = write(&some(count), 2);
        let bytes = fs::read(&written.path).expect("read");
        fs::write(&written.path, &bytes[..cut.index(bytes.len())]).expect("written");
        prop_assert!(ObjectMap::open(&written.path).is_err());
    }

    /// A body that is not damaged, but nonsense: bounds alone protect.
    #[test]
    fn a_body_that_lies_does_no_harm(count in 1..100u64, at: prop::sample::Index, lie: u64) {
        use std::io::Write as _;
        let written = write(&some(count), 2);
        let whole = CheckedFile::open(&written.path, MAGIC).expect("whole");
        let mut body = whole.bytes(0..whole.length()).expect("sound").to_vec();
        drop(whole);
        let at = at.index(body.len().saturating_sub(8).max(1));
        let end = body.len().min(at + 8);
        body[at..end].copy_from_slice(&lie.to_le_bytes()[..end - at]);
        let mut writer = crate::checked_file::CheckedWriter::create(&written.path).expect("created");
        writer.write_all(&body).expect("written");
        writer.finish(MAGIC).expect("finished");
        if let Ok(map) = ObjectMap::open(&written.path) {
            let _ = list(&map);
            for disk in 0..map.disks().min(4) {
                for block in 0..50 {
                    let _ = map.find(BlockAddress { disk, block });
                }
            }
        }
    }
}
