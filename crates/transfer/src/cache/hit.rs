//! Reading blocks from the disk straight into a sink.
//!
//! Nothing is given out before its checksum was compared. A block that the reader wants whole is
//! read into the sink's own memory and summed up there, while it is in the processor's cache; only
//! at the ends of a range, and where the sink's memory ends within a block, it takes a detour.

use std::{io, mem::MaybeUninit, ops::Range, os::unix::fs::FileExt};

use penstock_object::BodySink;
use rustix::io::{Errno, pread};

use super::{
    block::{self, BLOCK},
    entry::Entry,
};

/// How reading a block ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    /// All that was wanted is in the sink.
    Delivered,
    /// The sink is full; this much of what was wanted is in it.
    Full(u64),
    /// The bytes are not those that were written, or cannot be read.
    Damaged,
}

/// Gives the part `wanted` of block `index`, whose checksum should be `sum`, to `sink`.
pub(super) fn deliver(
    entry: &Entry,
    index: u64,
    sum: u32,
    wanted: &Range<u64>,
    sink: &mut dyn BodySink,
) -> Block {
    let whole = block::range_of(index, entry.info().size);
    let length = (whole.end - whole.start) as usize;
    let room = sink.unfilled();
    if room.is_empty() {
        return Block::Full(0);
    }
    if *wanted == whole && room.len() >= length {
        let outcome = deliver_whole(entry, whole.start, sum, length, sink);
        if outcome == Block::Delivered {
            entry.compared(index);
        }
        return outcome;
    }
    let mut bytes = vec![0; length];
    let read = entry.data().read_exact_at(&mut bytes, whole.start);
    if read.is_err() || block::sum(&bytes) != sum {
        return Block::Damaged;
    }
    entry.compared(index);
    let wanted = (wanted.start - whole.start) as usize..(wanted.end - whole.start) as usize;
    let length = wanted.len();
    let copied = sink.copy_from(&bytes[wanted]);
    if copied < length {
        Block::Full(copied as u64)
    } else {
        Block::Delivered
    }
}

fn deliver_whole(
    entry: &Entry,
    start: u64,
    sum: u32,
    length: usize,
    sink: &mut dyn BodySink,
) -> Block {
    debug_assert!(length as u64 <= BLOCK, "one block at a time");
    let room = &mut sink.unfilled()[..length];
    match read_into(entry, room, start) {
        Ok(bytes) if bytes.len() == length && block::sum(bytes) == sum => {}
        Ok(_) | Err(_) => return Block::Damaged,
    }
    // SAFETY: the first `length` bytes of what `unfilled` returned were read.
    #[allow(unsafe_code)]
    unsafe {
        sink.advance(length);
    }
    Block::Delivered
}

/// Reads as much as there is; less than `room` only at the end of the file.
fn read_into<'a>(
    entry: &Entry,
    room: &'a mut [MaybeUninit<u8>],
    start: u64,
) -> io::Result<&'a [u8]> {
    let mut read = 0;
    while read < room.len() {
        match pread(entry.data(), &mut room[read..], start + read as u64) {
            Ok(([], _)) => break,
            Ok((bytes, _)) => read += bytes.len(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // SAFETY: pread initialised this much from the front.
    #[allow(unsafe_code)]
    Ok(unsafe { room[..read].assume_init_ref() })
}
