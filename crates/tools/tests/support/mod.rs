//! Trees made of chance, and what they are in words.

#![allow(dead_code, clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{Seek, SeekFrom, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags},
    process::{Gid, Uid},
};

/// Which kinds of files and attributes a tree has besides files, directories and links.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variety {
    /// Attributes in `user.`.
    pub(crate) attributes: bool,
    /// Access lists, where there are attributes.
    pub(crate) lists: bool,
    /// Files with several names.
    pub(crate) hard_links: bool,
    /// FIFOs, sockets, devices, other owners: for root.
    pub(crate) special: bool,
    /// Symbolic links that lead out of the tree.
    pub(crate) outside: bool,
    /// Names that are no UTF-8.
    pub(crate) raw_names: bool,
    /// Sockets, which no archive can hold.
    pub(crate) sockets: bool,
    /// Bytes of a path, from the root of the tree, below which a directory may lie.
    pub(crate) deep: usize,
}

pub(crate) const EVERYTHING: Variety = Variety {
    attributes: true,
    lists: true,
    hard_links: true,
    special: true,
    outside: true,
    raw_names: true,
    sockets: true,
    deep: 1900,
};

/// Whether this process may do everything.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Does something as another user: threads that are begun there are that user's, too. Nothing is done where this process
/// may not become another.
pub(crate) fn as_user<T: Send>(user: u32, work: impl FnOnce() -> T + Send) -> Option<T> {
    if !is_root() {
        penstock_skips::skipped("only root becomes another user");
        return None;
    }
    std::thread::scope(|scope| {
        let done = scope.spawn(|| {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            work()
        });
        Some(done.join().unwrap())
    })
}

/// Fills `root` with `count` entries.
pub(crate) fn fill(root: &Path, count: usize, seed: u64, variety: Variety) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut directories = vec![root.to_path_buf()];
    let mut files: Vec<PathBuf> = Vec::new();
    for number in 0..count {
        let parent = directories[random.usize(..directories.len())].clone();
        let path = parent.join(name(&mut random, number, variety));
        let depth = path.as_os_str().len() - root.as_os_str().len();
        match random.u32(0..20) {
            0..=3 if depth < variety.deep => {
                fs::create_dir(&path).unwrap();
                directories.push(path.clone());
            }
            4 | 5 => {
                let target = match random.u32(0..4) {
                    0 if variety.outside => "/etc/passwd".into(),
                    1 if variety.outside => "../../../../outside".into(),
                    2 => "x".repeat(random.usize(1..300)),
                    _ => format!("nowhere-{number}"),
                };
                symlink(target, &path).unwrap();
            }
            6 if variety.hard_links && !files.is_empty() => {
                fs::hard_link(&files[random.usize(..files.len())], &path).unwrap();
                continue;
            }
            7 if variety.special && is_root() => special(&path, &mut random, variety),
            8 => sparse(&path, &mut random),
            _ => {
                let size = random.usize(0..3) * random.usize(0..20_000);
                fs::write(&path, content(&mut random, size)).unwrap();
                files.push(path.clone());
            }
        }
        decorate(&path, &mut random, variety);
    }
    // Times of directories change as they are filled.
    for path in directories.iter().rev() {
        date(path, &mut random);
    }
}

fn name(random: &mut fastrand::Rng, number: usize, variety: Variety) -> std::ffi::OsString {
    let mut bytes = format!("{number}-").into_bytes();
    match random.u32(0..8) {
        0 if variety.raw_names => bytes.extend([0xff, 0xfe, b'x', 0x80]),
        1 => bytes.extend("näme mit\nZeile 名".bytes()),
        2 => bytes.extend("long".repeat(random.usize(20..60)).bytes()),
        3 => bytes.extend(b" -*?[\\"),
        _ => bytes.extend(b"plain"),
    }
    OsStr::from_bytes(&bytes).to_owned()
}

fn content(random: &mut fastrand::Rng, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    random.fill(&mut bytes);
    bytes
}

fn special(path: &Path, random: &mut fastrand::Rng, variety: Variety) {
    let kinds = [
        (FileType::Fifo, 0),
        (FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        (FileType::BlockDevice, rustix::fs::makedev(7, 200)),
        (FileType::Socket, 0),
    ];
    let kinds = &kinds[..if variety.sockets { 4 } else { 3 }];
    let (kind, device) = kinds[random.usize(..kinds.len())];
    rustix::fs::mknodat(CWD, path, kind, Mode::from(0o640), device).unwrap();
}

fn sparse(path: &Path, random: &mut fastrand::Rng) {
    let mut file = fs::File::create(path).unwrap();
    for _ in 0..random.u32(0..6) {
        let size = random.usize(0..9000);
        file.write_all(&content(random, size)).unwrap();
        file.seek(SeekFrom::Current(random.i64(0..300_000)))
            .unwrap();
    }
    let size = file.stream_position().unwrap() + random.u64(0..50_000);
    file.set_len(size).unwrap();
}

fn decorate(path: &Path, random: &mut fastrand::Rng, variety: Variety) {
    let kind = fs::symlink_metadata(path).unwrap().file_type();
    if variety.special && is_root() && random.bool() {
        let ids = (random.u32(0..3_000_000), random.u32(0..5000));
        std::os::unix::fs::lchown(path, Some(ids.0), Some(ids.1)).unwrap();
    }
    if !kind.is_symlink() {
        let bits = if kind.is_dir() { 0o700 } else { 0 };
        let mode = bits | random.u32(0..0o10000);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    if variety.attributes && (kind.is_file() || kind.is_dir()) && random.u32(0..3) == 0 {
        let size = random.usize(0..200);
        let value = content(random, size);
        let attribute = format!("user.a{}", random.u32(0..5));
        rustix::fs::setxattr(path, attribute, &value, XattrFlags::empty()).unwrap();
        if random.bool() && variety.lists {
            // u::rwx,u:7:r-x,g::r--,m::r-x,o::---
            let entry = |tag: u16, bits: u16, id: u32| {
                [
                    &tag.to_le_bytes()[..],
                    &bits.to_le_bytes(),
                    &id.to_le_bytes(),
                ]
                .concat()
            };
            let any = u32::MAX;
            let list = [
                2u32.to_le_bytes().to_vec(),
                entry(1, 7, any),
                entry(2, 5, 7),
                entry(4, 4, any),
                entry(0x10, 5, any),
                entry(0x20, 0, any),
            ]
            .concat();
            let name = match kind.is_dir() && random.bool() {
                true => "system.posix_acl_default",
                false => "system.posix_acl_access",
            };
            rustix::fs::setxattr(path, name, &list, XattrFlags::empty()).unwrap();
        }
    }
    date(path, random);
}

fn date(path: &Path, random: &mut fastrand::Rng) {
    let time = Timespec {
        tv_sec: random.i64(1..2_000_000_000),
        tv_nsec: random.i64(0..1_000_000_000),
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// What is said of every entry of a tree, by path.
pub(crate) type Description = BTreeMap<Vec<u8>, String>;

/// What every entry of a tree is, by path: kind, mode, owners, time, links, content and attributes.
pub(crate) fn describe(root: &Path) -> Description {
    let mut found = Description::new();
    let mut links: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let key = path.strip_prefix(root).unwrap().as_os_str().as_bytes();
        found.insert(key.to_vec(), String::new());
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            waiting.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    let keys: Vec<_> = found.keys().cloned().collect();
    for key in keys {
        let path = root.join(OsStr::from_bytes(&key));
        let metadata = fs::symlink_metadata(&path).unwrap();
        let first = links.entry(metadata.ino()).or_insert_with(|| key.clone());
        let words = in_words(&path, &metadata);
        let first = String::from_utf8_lossy(first).into_owned();
        let link = if metadata.nlink() > 1 && !metadata.is_dir() {
            first
        } else {
            String::new()
        };
        found.insert(key, format!("{words} first={link:?}"));
    }
    found
}

fn in_words(path: &Path, metadata: &fs::Metadata) -> String {
    let kind = metadata.file_type();
    let content = if kind.is_symlink() {
        format!("{:?}", fs::read_link(path).unwrap())
    } else if kind.is_file() {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        fs::read(path).unwrap().hash(&mut hasher);
        format!("{} {:x}", metadata.len(), hasher.finish())
    } else if kind.is_char_device() || kind.is_block_device() {
        format!("{:x}", metadata.rdev())
    } else {
        String::new()
    };
    let mut names = vec![0; 65536];
    let size = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let mut attributes: Vec<String> = names[..size]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 65536];
            let size = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            format!("{}={:?}", String::from_utf8_lossy(name), &value[..size])
        })
        .collect();
    attributes.sort();
    format!(
        "{:o} {}:{} {}.{:09} {content} {attributes:?}",
        metadata.mode(),
        metadata.uid(),
        metadata.gid(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    )
}

/// Fails with the first differences of two trees.
pub(crate) fn assert_same(left: &Path, right: &Path) {
    assert_alike(&describe(left), &describe(right));
}

/// Fails with the first differences of what is said of two trees.
pub(crate) fn assert_alike(left: &Description, right: &Description) {
    let mut differences = Vec::new();
    for key in left.keys().chain(right.keys()) {
        if left.get(key) != right.get(key) && differences.len() < 5 {
            differences.push(format!(
                "{}:\n  {:?}\n  {:?}",
                String::from_utf8_lossy(key),
                left.get(key),
                right.get(key)
            ));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Lets two names change places again and again.
pub(crate) fn swap_until(is_over: &AtomicBool, left: &Path, right: &Path) {
    while !is_over.load(Ordering::Relaxed) {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(CWD, left, CWD, right, flags).unwrap();
    }
}
