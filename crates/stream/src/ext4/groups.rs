//! Group descriptors and bitmaps.

use std::io;

use super::geometry::{DESCRIPTOR_SIZE, GROUP_BLOCKS, Geometry};
use crate::{BLOCK_SIZE, image::output::Output};

/// What the groups are told by.
pub(super) struct Groups<'a> {
    pub(super) geometry: &'a Geometry,
    /// Runs of used blocks of the data disk.
    pub(super) data: Vec<(u64, u64)>,
    /// Directories of each group.
    pub(super) directories: &'a [u32],
}

impl Groups<'_> {
    /// Writes descriptors and bitmaps; says how many blocks are free.
    pub(super) fn write(&self, output: &mut Output) -> io::Result<u64> {
        let geometry = self.geometry;
        let mut descriptors = Vec::with_capacity((geometry.groups * DESCRIPTOR_SIZE) as usize);
        let mut runs = Runs::new(self.used_runs());
        let mut free_blocks = 0;
        output.skip_to(geometry.block_bitmaps_start * BLOCK_SIZE)?;
        for group in 0..geometry.groups {
            let (bitmap, used) = block_bitmap(geometry, group, &mut runs);
            output.write(&bitmap)?;
            let first = group * GROUP_BLOCKS;
            let free = (geometry.blocks - first).min(GROUP_BLOCKS) - used;
            free_blocks += free;
            descriptors.extend_from_slice(&self.descriptor(group, free));
        }
        for group in 0..geometry.groups {
            let used = geometry.inodes_used_in(group);
            let mut bitmap = vec![0; BLOCK_SIZE as usize];
            set(&mut bitmap, 0, used);
            set(&mut bitmap, geometry.group_inodes, 8 * BLOCK_SIZE);
            output.write(&bitmap)?;
        }
        output.patch(BLOCK_SIZE, &descriptors)?;
        Ok(free_blocks)
    }

    fn descriptor(&self, group: u64, free_blocks: u64) -> [u8; DESCRIPTOR_SIZE as usize] {
        let geometry = self.geometry;
        let free_inodes = geometry.group_inodes - geometry.inodes_used_in(group);
        let directories = self.directories[group as usize];
        let mut bytes = [0; DESCRIPTOR_SIZE as usize];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let places = [
            geometry.block_bitmaps_start + group,
            geometry.inode_bitmaps_start + group,
            geometry.table(group),
        ];
        for (index, block) in places.into_iter().enumerate() {
            put(4 * index, &(block as u32).to_le_bytes());
            put(32 + 4 * index, &((block >> 32) as u32).to_le_bytes());
        }
        put(12, &(free_blocks as u16).to_le_bytes());
        put(14, &(free_inodes as u16).to_le_bytes());
        put(16, &(directories as u16).to_le_bytes());
        bytes
    }

    /// All used blocks, as runs in order.
    fn used_runs(&self) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let geometry = self.geometry;
        let front = [
            (0, 1 + geometry.descriptor_blocks()),
            (super::geometry::FIRST_DIRECTORY, geometry.metadata_end),
        ];
        let start = geometry.data_start;
        let data = self.data.iter();
        front
            .into_iter()
            .chain(data.map(move |(first, end)| (start + first, start + end)))
    }
}

/// The bitmap of a group's blocks, and how many of them are used. `runs` are consumed as far as
/// the group reaches, but for what of the last one belongs to the next group.
fn block_bitmap(
    geometry: &Geometry,
    group: u64,
    runs: &mut Runs<impl Iterator<Item = (u64, u64)>>,
) -> (Vec<u8>, u64) {
    let first = group * GROUP_BLOCKS;
    let end = (first + GROUP_BLOCKS).min(geometry.blocks);
    let mut bitmap = vec![0; BLOCK_SIZE as usize];
    let mut used = 0;
    while let Some((run_start, run_end)) = runs.before(end) {
        set(&mut bitmap, run_start - first, run_end - first);
        used += run_end - run_start;
    }
    set(&mut bitmap, end - first, GROUP_BLOCKS);
    (bitmap, used)
}

/// Runs in order, given out in pieces.
struct Runs<I> {
    runs: I,
    current: Option<(u64, u64)>,
}

impl<I: Iterator<Item = (u64, u64)>> Runs<I> {
    fn new(mut runs: I) -> Self {
        let current = runs.next();
        Self { runs, current }
    }

    /// The next piece that lies before `limit`, if there is one.
    fn before(&mut self, limit: u64) -> Option<(u64, u64)> {
        let (start, end) = self.current.filter(|(start, _)| *start < limit)?;
        if end > limit {
            self.current = Some((limit, end));
            return Some((start, limit));
        }
        self.current = self.runs.next();
        Some((start, end))
    }
}

/// Sets bits from `first` up to `end`.
fn set(bitmap: &mut [u8], first: u64, end: u64) {
    let mut bit = first;
    while bit < end {
        let byte = &mut bitmap[(bit / 8) as usize];
        if bit.is_multiple_of(8) && end - bit >= 8 {
            *byte = 0xff;
            bit += 8;
        } else {
            *byte |= 1 << (bit % 8);
            bit += 1;
        }
    }
}
