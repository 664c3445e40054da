//! The superblock and the table of data disks.

use penstock_base::{ChecksumKind, Summing};

use super::{ROOT_POSITION, SLOT_SIZE};
use crate::{
    BLOCK_SIZE, Timestamp,
    image::{name_field, uuid},
};

/// Where the superblock lies.
const START: usize = 1024;
const SIZE: usize = 128;
const MAGIC: u32 = 0xe0f5_e1e2;

/// Compatible features: the checksum of the superblock, and inodes with the time of modification.
const COMPATIBLE: u32 = 0x1 | 0x2;
/// Features that a kernel must know: files in chunks, more than one device.
const INCOMPATIBLE: u32 = 0x4 | 0x8;

/// Bytes of an entry of the device table, which begins at a multiple of it.
const DEVICE_SIZE: u64 = 128;

/// The blocks are 2^12 bytes.
const BLOCK_BITS: u8 = BLOCK_SIZE.trailing_zeros() as u8;

/// Where the device table begins: behind the superblock if it fits there, else behind the root.
pub(super) fn device_table_start(disks: u16) -> u64 {
    let behind = (START + SIZE) as u64;
    if behind + table_size(disks) <= BLOCK_SIZE {
        behind
    } else {
        ROOT_POSITION + BLOCK_SIZE
    }
}

/// Where inodes can begin: behind the root's block and the table.
pub(super) fn header_end(disks: u16) -> u64 {
    let table_end = device_table_start(disks) + table_size(disks);
    table_end
        .max(ROOT_POSITION + BLOCK_SIZE)
        .next_multiple_of(BLOCK_SIZE)
}

fn table_size(disks: u16) -> u64 {
    u64::from(disks) * DEVICE_SIZE
}

/// The table of disks that have so many blocks.
pub(super) fn device_table(disk_blocks: &[u64]) -> Vec<u8> {
    let mut table = Vec::with_capacity(disk_blocks.len() * DEVICE_SIZE as usize);
    for blocks in disk_blocks {
        let mut slot = [0; DEVICE_SIZE as usize];
        slot[64..68].copy_from_slice(&(*blocks as u32).to_le_bytes());
        table.extend_from_slice(&slot);
    }
    table
}

/// What the head of an image says.
#[derive(Debug)]
pub(super) struct Superblock<'a> {
    /// Blocks of the image itself.
    pub(super) blocks: u64,
    pub(super) inodes: u64,
    pub(super) built: Timestamp,
    /// What the volume's UUID is made of.
    pub(super) uuid: [u8; 16],
    pub(super) volume_name: &'a str,
    pub(super) disks: u16,
}

impl Superblock<'_> {
    /// The first block, which has the device table in it when that fits.
    pub(super) fn encode(&self, table: &[u8]) -> Vec<u8> {
        let table_start = device_table_start(self.disks);
        let mut block = vec![0; BLOCK_SIZE as usize];
        if table_start < BLOCK_SIZE {
            block[table_start as usize..][..table.len()].copy_from_slice(table);
        }
        self.put_fields(&mut block[START..], table_start);
        let checksum = checksum(&block[START..]);
        block[START + 4..START + 8].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    fn put_fields(&self, superblock: &mut [u8], table_start: u64) {
        let mut put =
            |at: usize, field: &[u8]| superblock[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC.to_le_bytes());
        put(8, &COMPATIBLE.to_le_bytes());
        put(12, &[BLOCK_BITS]);
        put(14, &((ROOT_POSITION / SLOT_SIZE) as u16).to_le_bytes());
        put(16, &self.inodes.to_le_bytes());
        put(24, &self.built.seconds.to_le_bytes());
        put(32, &self.built.nanoseconds.to_le_bytes());
        put(36, &(self.blocks as u32).to_le_bytes());
        put(48, &uuid(self.uuid));
        put(64, name_field(self.volume_name, 15));
        put(80, &INCOMPATIBLE.to_le_bytes());
        put(86, &self.disks.to_le_bytes());
        put(88, &((table_start / DEVICE_SIZE) as u16).to_le_bytes());
    }
}

/// The CRC-32C of the block from the superblock on, without the inversion at the end.
fn checksum(bytes: &[u8]) -> u32 {
    let mut summing = Summing::new(ChecksumKind::Crc32c);
    summing.add(bytes);
    !(summing.checksum().value() as u32)
}
