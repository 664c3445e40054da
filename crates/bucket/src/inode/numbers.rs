//! Tables by inode number.
//!
//! The numbers are given out here, one after the other, so nobody can choose them to collide. Each
//! entry of a listing asks such a table several times.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use penstock_vfs::Inode;

/// A table by inode number.
pub(super) type ByInode<T> = HashMap<Inode, T, BuildHasherDefault<NumberHasher>>;

/// An odd number whose bits are spread evenly: 2^64 over the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads a single number.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // Tables use the lowest and the highest bits.
        let product = (self.0 ^ number).wrapping_mul(SPREAD);
        self.0 = product ^ (product >> 32);
    }
}
