//! Compares a mounted tree with the objects that it was made of, byte for byte.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use penstock_stream::{BlockAddress, Timestamp};

use crate::sample::{Places, Sample};

const BLOCK: u64 = 4096;

/// The only block contents that tests need: each word names its disk and its place.
fn pattern(disk: u16, block: u64) -> Vec<u8> {
    let word = |index: u64| ((u64::from(disk) + 1) << 56) | (block * 512 + index);
    (0..512)
        .flat_map(|index| word(index).to_le_bytes())
        .collect()
}

/// Disks of their full sizes whose blocks show the pattern where objects lie. Of a long object
/// only the first and the last block are there.
pub(crate) fn write_disks(
    folder: &Path,
    (sample, places): (&Sample, &Places),
    blocks: &[u64],
) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = (0..blocks.len())
        .map(|disk| folder.join(format!("disk{disk}")))
        .collect();
    let files: Vec<File> = paths
        .iter()
        .zip(blocks)
        .map(|(path, blocks)| {
            let file = File::create(path).expect("a disk");
            file.set_len((*blocks).max(1) * BLOCK)
                .expect("a sparse disk");
            file
        })
        .collect();
    for (disk, file) in files.iter().enumerate() {
        write_disk((file, 0), disk as u16, (sample, places));
    }
    paths
}

/// Writes the pattern of a disk that begins at a block of `file`.
pub(crate) fn write_disk(
    (file, first): (&File, u64),
    disk: u16,
    (sample, places): (&Sample, &Places),
) {
    let here = places.0.iter().filter(|(_, start)| start.disk == disk);
    for (key, start) in here {
        for block in blocks_with_contents(sample.objects[key].0) {
            let at = start.block + block;
            file.write_all_at(&pattern(disk, at), (first + at) * BLOCK)
                .expect("written");
        }
    }
}

fn blocks_with_contents(size: u64) -> impl Iterator<Item = u64> {
    let blocks = size.div_ceil(BLOCK);
    (0..blocks).filter(move |block| *block < 16 || block + 1 == blocks)
}

/// Everything below `root`: the key of each file, and of each directory with a slash behind it.
pub(crate) fn walk(root: &Path) -> BTreeMap<Vec<u8>, fs::Metadata> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(root.to_owned(), Vec::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a directory") {
            let entry = entry.expect("an entry");
            let mut key = prefix.clone();
            key.extend_from_slice(entry.file_name().as_bytes());
            // Looked up by its name, not by what the directory says.
            let metadata = fs::symlink_metadata(entry.path()).expect("what is listed is there");
            assert_eq!(metadata.file_type(), entry.file_type().expect("a type"));
            if metadata.is_dir() {
                key.push(b'/');
                folders.push((entry.path(), key.clone()));
            }
            assert!(found.insert(key, metadata).is_none(), "a name comes once");
        }
    }
    found
}

/// Compares each file below `root` with its object and its disk's pattern. Returns how many
/// directories there are, without the root.
pub(crate) fn compare(root: &Path, sample: &Sample, places: &Places) -> usize {
    let found = walk(root);
    for (key, metadata) in found.iter().filter(|(key, _)| !key.ends_with(b"/")) {
        let (size, modified) = sample.objects[key];
        assert_eq!(metadata.len(), size, "{key:?}");
        assert_eq!(time_of(metadata), modified, "{key:?}");
        assert_eq!(metadata.nlink(), 1);
        let path = root.join(std::ffi::OsStr::from_bytes(key));
        compare_contents(&path, size, places.0[key]);
    }
    for key in sample.objects.keys() {
        let shown = found.contains_key(key) || found.contains_key(&[key, &b"/"[..]].concat());
        assert!(shown, "{key:?} is missing");
    }
    found.keys().filter(|key| key.ends_with(b"/")).count()
}

fn compare_contents(path: &Path, size: u64, start: BlockAddress) {
    let mut file = File::open(path).expect("a file");
    if size <= 16 * BLOCK {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("readable");
        let mut expected: Vec<u8> = (0..size.div_ceil(BLOCK))
            .flat_map(|block| pattern(start.disk, start.block + block))
            .collect();
        expected.truncate(size as usize);
        assert_eq!(bytes, expected, "{}", path.display());
        return;
    }
    for block in blocks_with_contents(size) {
        let mut bytes = vec![0; (size - block * BLOCK).min(BLOCK) as usize];
        file.read_exact_at(&mut bytes, block * BLOCK)
            .expect("readable");
        let expected = pattern(start.disk, start.block + block);
        assert_eq!(bytes, expected[..bytes.len()], "{} {block}", path.display());
    }
}

pub(crate) fn time_of(metadata: &fs::Metadata) -> Timestamp {
    Timestamp {
        seconds: metadata.mtime(),
        nanoseconds: metadata.mtime_nsec() as u32,
    }
}
