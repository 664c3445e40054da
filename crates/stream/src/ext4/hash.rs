//! The hash of names by which the kernel finds them in an indexed directory: TEA over the name in
//! pieces of 16 bytes, each mixed into what came before. The lowest bit of a hash is used by the
//! index, and the largest one means the end of a directory.

/// The number of this hash in superblocks and directories.
pub(super) const VERSION: u8 = 2;

/// What hashing begins with: any numbers do, as long as the superblock tells them.
pub(super) const SEED: [u32; 4] = [0x5045_4e53, 0x544f_434b, 0x7374_7265, 0x616d_7631];

/// The hash, as large numbers as the kernel never makes.
const END: u32 = 0x7fff_ffff << 1;

/// What TEA adds in each round.
const DELTA: u32 = 0x9e37_79b9;
const ROUNDS: u32 = 16;

/// Bytes that sort names by their hashes, equal hashes by the rest of them.
pub(super) fn sorting_key(name: &[u8]) -> [u8; 8] {
    let (major, minor) = hash(name);
    let mut key = [0; 8];
    key[..4].copy_from_slice(&major.to_be_bytes());
    key[4..].copy_from_slice(&minor.to_be_bytes());
    key
}

/// The hash that sorting made a key of.
pub(super) fn of_sorting_key(key: &[u8]) -> u32 {
    let bytes = key.first_chunk().expect("keys are 8 bytes long");
    u32::from_be_bytes(*bytes)
}

fn hash(name: &[u8]) -> (u32, u32) {
    let mut state = [SEED[0], SEED[1]];
    let mut rest = name;
    loop {
        mix(&mut state, words(rest));
        if rest.len() <= 16 {
            break;
        }
        rest = &rest[16..];
    }
    let major = match state[0] & !1 {
        END => END - 2,
        major => major,
    };
    (major, state[1])
}

fn mix(state: &mut [u32; 2], key: [u32; 4]) {
    let [mut left, mut right] = *state;
    let mut sum = 0_u32;
    let round = |half: u32, sum: u32, keys: [u32; 2]| {
        (half << 4).wrapping_add(keys[0])
            ^ half.wrapping_add(sum)
            ^ (half >> 5).wrapping_add(keys[1])
    };
    for _ in 0..ROUNDS {
        sum = sum.wrapping_add(DELTA);
        left = left.wrapping_add(round(right, sum, [key[0], key[1]]));
        right = right.wrapping_add(round(left, sum, [key[2], key[3]]));
    }
    state[0] = state[0].wrapping_add(left);
    state[1] = state[1].wrapping_add(right);
}

/// Up to 16 bytes as big-endian numbers. What is missing is filled with the length of the rest.
fn words(rest: &[u8]) -> [u32; 4] {
    let filling = u32::from_ne_bytes([rest.len() as u8; 4]);
    let mut words = [filling; 4];
    let piece = &rest[..rest.len().min(16)];
    for (word, bytes) in words.iter_mut().zip(piece.chunks(4)) {
        *word = bytes.iter().fold(filling, |word, byte| {
            (word << 8).wrapping_add(u32::from(*byte))
        });
    }
    words
}
