//! Bytes and trees of files to copy about.

use std::{
    fs,
    hash::{DefaultHasher, Hasher},
    io::{self, Read},
    path::Path,
};

const MIB: usize = 1 << 20;

/// `length` bytes that look random and are the same for the same `seed`.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A digest of a file's bytes, read in pieces.
pub fn digest(path: &Path) -> io::Result<u64> {
    let mut file = fs::File::open(path)?;
    let mut hasher = DefaultHasher::new();
    let mut buffer = vec![0; MIB];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            count => hasher.write(&buffer[..count]),
        }
    }
}

/// The digest that [`digest`] gives for `bytes`.
pub fn digest_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for piece in bytes.chunks(MIB) {
        hasher.write(piece);
    }
    hasher.finish()
}

/// Fills `root` with a tree of files of many sizes, with nesting and with names that need care.
pub fn make_tree(root: &Path) {
    const SIZES: [usize; 8] = [0, 1, 511, 4096, 65_537, 131_072, MIB + 1, 9 * MIB];
    const FOLDERS: [&str; 5] = ["", "one", "one/two/three", "with space", "ünï+c%de&<x>"];
    for (number, folder) in FOLDERS.iter().enumerate() {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).expect("the target is writable");
        for (at, size) in SIZES.iter().enumerate() {
            let seed = (number * SIZES.len() + at) as u64;
            let name = format!("file {at} of #{number}?.bin");
            fs::write(folder.join(name), noise(seed, *size)).expect("the target is writable");
        }
    }
    for number in 0..200 {
        let text = format!("small file {number}\n");
        let path = root.join("one").join(format!("{number:04}.txt"));
        fs::write(path, text).expect("the target is writable");
    }
}
