//! Bytes and trees of files to copy about.
//!
//! A run makes and compares gigabytes. `ring` has assembly for that, which is as fast in a debug build.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use ring::{
    aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    digest::{Context, Digest, SHA256},
};

const MIB: usize = 1 << 20;

/// `length` bytes that look random and are the same for the same `seed`: what encrypts nothing.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let key = UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("keys have 16 bytes");
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&seed.to_le_bytes());
    let mut bytes = vec![0; length];
    let nonce = Nonce::assume_unique_for_key(nonce);
    let sealed = LessSafeKey::new(key).seal_in_place_separate_tag(nonce, Aad::empty(), &mut bytes);
    assert!(sealed.is_ok(), "it is no secret, and short enough");
    bytes
}

/// `length` bytes that can be compressed, are the same for the same `seed` and others at each place.
pub fn lines(seed: u64, length: usize) -> Vec<u8> {
    let lines = (0..length.div_ceil(32)).map(|line| format!("{seed:016x}{line:015x}\n"));
    let mut bytes = lines.collect::<String>().into_bytes();
    bytes.truncate(length);
    bytes
}

/// A digest of a file's bytes, read in pieces.
pub fn digest(path: &Path) -> io::Result<u64> {
    let mut file = fs::File::open(path)?;
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; MIB];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(number_of(context.finish())),
            count => context.update(&buffer[..count]),
        }
    }
}

/// The digest that [`digest`] gives for `bytes`.
pub fn digest_of(bytes: &[u8]) -> u64 {
    number_of(ring::digest::digest(&SHA256, bytes))
}

fn number_of(digest: Digest) -> u64 {
    let first = digest.as_ref().first_chunk();
    u64::from_le_bytes(*first.expect("it has 32 bytes"))
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
