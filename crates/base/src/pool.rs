//! Memory for bytes in flight.
//!
//! A [`Buffer`] is filled once, from front to back, by a socket or by the kernel, and is then
//! read where it lies: [`Buffer::share`] splits it into one [`BufferWriter`] and any number of
//! [`BufferView`]s, which may hand out what is filled already while the rest still arrives. Each
//! slice that a view hands out keeps the buffer alive; when the last is gone the memory returns
//! to the pool and its [`Reservation`] to the budget.
//!
//! Large buffers are blocks of one mebibyte, carved from 2 MiB aligned regions that ask for huge
//! pages (a quarter to a third less CPU per byte, see `docs/measurements/`) and reused last in,
//! first out, so that a block is still in the CPU's cache. Up to [`HEAP_BUFFER_MAX`] bytes come
//! from the heap in the exact size, so that many small requests do not hold a block each.
//!
//! A block is mapped only for a granted reservation and only when none is free, so the pool never
//! occupies more than the budget.

use std::{
    fs::File,
    io,
    mem::MaybeUninit,
    ops::Range,
    ptr::NonNull,
    slice,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use rustix::io::{Errno, pread};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{FsResult, MIB, MemoryBudget, Mutex, Reservation, budget::PAGE};

/// Bytes in a pooled block: one read or write request of the kernel at its largest.
pub const BLOCK_SIZE: usize = MIB as usize;

/// Bytes up to which a buffer comes from the heap instead of the pool.
pub const HEAP_BUFFER_MAX: usize = 128 << 10;

/// A region is one huge page of x86-64 and aarch64.
const REGION_SIZE: usize = 2 << 20;
const BLOCKS_PER_REGION: usize = REGION_SIZE / BLOCK_SIZE;

/// Hands out [`Buffer`]s within a [`MemoryBudget`].
pub struct BufferPool {
    budget: Arc<MemoryBudget>,
    free: Mutex<FreeBlocks>,
}

/// Blocks that nobody uses.
#[derive(Default)]
struct FreeBlocks {
    /// Blocks whose pages are in memory, most recently used last.
    warm: Vec<BlockAddress>,
    /// Blocks whose pages were given back to the system.
    cold: Vec<BlockAddress>,
    /// The fewest warm blocks since the last trim: what was not needed in all that time.
    warm_low_water: usize,
    regions: Vec<BlockAddress>,
}

/// The start of a block. It is plain memory without thread affinity, owned by whoever holds the
/// address, hence `Send`.
#[derive(Clone, Copy)]
struct BlockAddress(NonNull<u8>);

// SAFETY: see `BlockAddress`.
unsafe impl Send for BlockAddress {}

impl BufferPool {
    /// A pool that draws from `budget`.
    pub fn new(budget: Arc<MemoryBudget>) -> Arc<Self> {
        Arc::new(Self {
            budget,
            free: Mutex::default(),
        })
    }

    /// The budget that the pool draws from.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Bytes of the budget that a buffer of `capacity` bytes occupies: whole pages, so that several can be paid for at
    /// once.
    pub fn cost(capacity: usize) -> u64 {
        if capacity <= HEAP_BUFFER_MAX {
            (capacity as u64).next_multiple_of(PAGE)
        } else {
            BLOCK_SIZE as u64
        }
    }

    /// A buffer of at least `capacity` bytes (at most [`BLOCK_SIZE`]) if the budget has room now.
    pub fn try_take(self: &Arc<Self>, capacity: usize) -> Option<Buffer> {
        let reservation = self.budget.try_reserve(Self::cost(capacity))?;
        Some(self.take_reserved(capacity, reservation))
    }

    /// A buffer of at least `capacity` bytes (at most [`BLOCK_SIZE`]), waiting for the budget.
    pub async fn take(self: &Arc<Self>, capacity: usize) -> FsResult<Buffer> {
        let reservation = self.budget.reserve(Self::cost(capacity)).await?;
        Ok(self.take_reserved(capacity, reservation))
    }

    /// A buffer of at least `capacity` bytes, paid for by `reservation`, which should hold
    /// [`BufferPool::cost`] of it.
    pub fn take_reserved(self: &Arc<Self>, capacity: usize, reservation: Reservation) -> Buffer {
        self.take_with_room(capacity, 0, reservation)
    }

    /// The same with `room` bytes behind a buffer of the heap, which are not paid for: little, for what arrives longer than
    /// it is.
    pub fn take_with_room(
        self: &Arc<Self>,
        capacity: usize,
        room: usize,
        reservation: Reservation,
    ) -> Buffer {
        assert!(capacity <= BLOCK_SIZE, "a buffer has at most one block");
        let memory = if capacity <= HEAP_BUFFER_MAX {
            let memory = Box::<[u8]>::new_uninit_slice(capacity + room);
            Memory::Heap(NonNull::from(Box::leak(memory)))
        } else {
            Memory::Block(self.free_block(), Arc::clone(self))
        };
        Buffer {
            memory,
            reservation,
        }
    }

    /// Gives blocks that were not needed since the last call back to the system. Call it every
    /// few seconds.
    pub fn trim(&self) {
        let mut free = self.free.lock();
        let surplus = free.warm_low_water.min(free.warm.len());
        let idle: Vec<_> = free.warm.drain(..surplus).collect();
        idle.iter().for_each(|block| release_pages(*block));
        free.cold.extend(idle);
        free.warm_low_water = free.warm.len();
    }

    /// Bytes of free blocks that are still in memory.
    pub fn idle_bytes(&self) -> u64 {
        (self.free.lock().warm.len() * BLOCK_SIZE) as u64
    }

    fn free_block(&self) -> BlockAddress {
        let mut free = self.free.lock();
        if free.warm.is_empty() && free.cold.is_empty() {
            free.add_region();
        }
        let block = free
            .warm
            .pop()
            .or_else(|| free.cold.pop())
            .expect("a region was added");
        free.warm_low_water = free.warm_low_water.min(free.warm.len());
        block
    }

    fn give_back(&self, block: BlockAddress) {
        self.free.lock().warm.push(block);
    }
}

impl FreeBlocks {
    fn add_region(&mut self) {
        let region = map_region();
        self.regions.push(region);
        for index in (0..BLOCKS_PER_REGION).rev() {
            // SAFETY: the region holds `BLOCKS_PER_REGION` blocks.
            self.cold
                .push(BlockAddress(unsafe { region.0.add(index * BLOCK_SIZE) }));
        }
    }
}

impl Drop for FreeBlocks {
    fn drop(&mut self) {
        for region in &self.regions {
            // SAFETY: every block holds an `Arc` of the pool, so none is in use any more.
            unsafe { libc::munmap(region.0.as_ptr().cast(), REGION_SIZE) };
        }
    }
}

impl std::fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BufferPool")
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

/// Maps an aligned region: twice the size is mapped and the ends are cut off.
///
/// Aborts like any failed allocation when the system has no address space.
fn map_region() -> BlockAddress {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing else, and
    // only the ends of this very mapping are unmapped again.
    unsafe {
        let start = libc::mmap(
            std::ptr::null_mut(),
            2 * REGION_SIZE,
            protection,
            flags,
            -1,
            0,
        );
        assert!(
            start != libc::MAP_FAILED,
            "no address space left for buffers"
        );
        let lead = start.align_offset(REGION_SIZE);
        if lead > 0 {
            libc::munmap(start, lead);
        }
        let region = start.add(lead);
        libc::munmap(region.add(REGION_SIZE), REGION_SIZE - lead);
        // Without huge pages the region works the same, only slower.
        libc::madvise(region, REGION_SIZE, libc::MADV_HUGEPAGE);
        BlockAddress(NonNull::new(region.cast()).expect("mmap never returns null"))
    }
}

fn release_pages(block: BlockAddress) {
    // SAFETY: the block is free, so nobody relies on what it holds.
    unsafe { libc::madvise(block.0.as_ptr().cast(), BLOCK_SIZE, libc::MADV_DONTNEED) };
}

/// Memory of one buffer.
enum Memory {
    Heap(NonNull<[MaybeUninit<u8>]>),
    Block(BlockAddress, Arc<BufferPool>),
}

impl Memory {
    fn start(&self) -> *mut u8 {
        match self {
            Self::Heap(memory) => memory.as_ptr().cast(),
            Self::Block(block, _) => block.0.as_ptr(),
        }
    }

    fn capacity(&self) -> usize {
        match self {
            Self::Heap(memory) => memory.len(),
            Self::Block(..) => BLOCK_SIZE,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self {
            // SAFETY: the box was leaked in `take_reserved` and this is its only owner.
            Self::Heap(memory) => drop(unsafe { Box::from_raw(memory.as_ptr()) }),
            Self::Block(block, pool) => pool.give_back(*block),
        }
    }
}

// SAFETY: the memory is owned and has no thread affinity.
unsafe impl Send for Memory {}
// SAFETY: shared access goes through `Shared`, which orders it.
unsafe impl Sync for Memory {}

/// Memory that nobody has filled yet. Fields drop in order: first the memory returns to the
/// pool, then the reservation to the budget, so the pool never holds more than was granted.
pub struct Buffer {
    memory: Memory,
    reservation: Reservation,
}

impl Buffer {
    /// Bytes that fit.
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// Splits the buffer into the end that fills it and the end that reads what is filled.
    pub fn share(self) -> (BufferWriter, BufferView) {
        let shared = Arc::new(Shared {
            memory: self.memory,
            filled: AtomicUsize::new(0),
            _reservation: self.reservation,
        });
        (
            BufferWriter {
                shared: Arc::clone(&shared),
                filled: 0,
            },
            BufferView { shared },
        )
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("capacity", &self.capacity())
            .field("reserved", &self.reservation.bytes())
            .finish()
    }
}

struct Shared {
    memory: Memory,
    /// Bytes from the front that are initialised and will never change again.
    filled: AtomicUsize,
    _reservation: Reservation,
}

/// The end of a buffer that fills it.
pub struct BufferWriter {
    shared: Arc<Shared>,
    filled: usize,
}

impl BufferWriter {
    /// Bytes filled so far.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// The memory behind what is filled.
    pub fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        let memory = &self.shared.memory;
        // SAFETY: only this writer touches bytes from `filled` on (views stop there), it cannot
        // be cloned, and it is borrowed mutably.
        unsafe {
            let start = memory.start().add(self.filled).cast();
            slice::from_raw_parts_mut(start, memory.capacity() - self.filled)
        }
    }

    /// Publishes the next `count` bytes to the views.
    ///
    /// # Safety
    ///
    /// The first `count` bytes of [`BufferWriter::unfilled`] must be initialised.
    pub unsafe fn advance(&mut self, count: usize) {
        assert!(
            count <= self.shared.memory.capacity() - self.filled,
            "advanced past the end"
        );
        self.filled += count;
        self.shared.filled.store(self.filled, Ordering::Release);
    }

    /// Reads the next `length` bytes, for which there must be room, from `offset` of a file. Returns
    /// how many there were; less than `length` only at the end of the file. Blocks.
    pub fn read_from(&mut self, file: &File, offset: u64, length: usize) -> io::Result<usize> {
        let read = read_into(file, &mut self.unfilled()[..length], offset)?;
        // SAFETY: that many were just read.
        unsafe { self.advance(read) };
        Ok(read)
    }

    /// Receives some of the next `length` bytes, for which there must be room, and returns how many; none at the end of
    /// what is sent. A future that is dropped has received nothing.
    pub async fn receive_from(
        &mut self,
        source: &mut (impl AsyncRead + Unpin),
        length: usize,
    ) -> io::Result<usize> {
        let mut room = &mut self.unfilled()[..length];
        let received = source.read_buf(&mut room).await?;
        // SAFETY: `read_buf` initialised that many at the front of `room`.
        unsafe { self.advance(received) };
        Ok(received)
    }

    /// Adds `count` bytes of `value`, for which there must be room.
    pub fn fill(&mut self, value: u8, count: usize) {
        self.unfilled()[..count].fill(MaybeUninit::new(value));
        // SAFETY: that many were just set.
        unsafe { self.advance(count) };
    }

    /// Copies in as much of `bytes` as fits and returns how much that was.
    pub fn copy_from(&mut self, bytes: &[u8]) -> usize {
        let room = self.unfilled();
        let count = room.len().min(bytes.len());
        // SAFETY: `room` is exclusive and has `count` bytes, which are initialised by the copy.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.as_mut_ptr().cast(), count);
            self.advance(count);
        }
        count
    }
}

/// Fills `room` from its front and returns how far; less than all only at the end of the file.
fn read_into(file: &File, room: &mut [MaybeUninit<u8>], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < room.len() {
        match pread(file, &mut room[read..], offset + read as u64) {
            Ok(([], _)) => break,
            Ok((bytes, _)) => read += bytes.len(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(read)
}

/// The end of a buffer that reads what is filled. Cheap to clone.
#[derive(Clone)]
pub struct BufferView {
    shared: Arc<Shared>,
}

impl BufferView {
    /// Bytes that can be read now.
    pub fn filled(&self) -> usize {
        self.shared.filled.load(Ordering::Acquire)
    }

    /// Bytes that fit.
    pub fn capacity(&self) -> usize {
        self.shared.memory.capacity()
    }

    /// The bytes of `range`, without a copy. Panics when they are not filled yet.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        assert!(
            range.start <= range.end && range.end <= self.filled(),
            "slice of unfilled bytes"
        );
        Bytes::from_owner(FilledSlice {
            shared: Arc::clone(&self.shared),
            range,
        })
    }
}

impl std::fmt::Debug for BufferView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufferView({} of {})", self.filled(), self.capacity())
    }
}

struct FilledSlice {
    shared: Arc<Shared>,
    range: Range<usize>,
}

impl AsRef<[u8]> for FilledSlice {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range was filled when the slice was made, and filled bytes never change.
        unsafe {
            let start = self.shared.memory.start().add(self.range.start);
            slice::from_raw_parts(start, self.range.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(blocks: u64) -> Arc<BufferPool> {
        BufferPool::new(MemoryBudget::new(blocks * MIB))
    }

    #[test]
    fn views_read_what_is_filled_while_the_rest_arrives() {
        let (mut writer, view) = pool(1).try_take(BLOCK_SIZE).expect("free").share();
        assert_eq!(writer.copy_from(b"abc"), 3);
        let early = view.slice(0..3);
        assert_eq!(writer.copy_from(b"def"), 3);
        assert_eq!(
            (&early[..], &view.slice(2..6)[..]),
            (&b"abc"[..], &b"cdef"[..])
        );
    }

    #[test]
    fn memory_returns_when_the_last_slice_is_gone() {
        let pool = pool(1);
        let (mut writer, view) = pool.try_take(BLOCK_SIZE).expect("free").share();
        writer.copy_from(b"abc");
        let slice = view.slice(1..2);
        drop((writer, view));
        assert!(pool.try_take(BLOCK_SIZE).is_none());
        drop(slice);
        assert_eq!(pool.budget().used(), 0);
        assert!(pool.try_take(BLOCK_SIZE).is_some());
    }

    #[test]
    fn small_buffers_cost_what_they_hold() {
        let pool = pool(1);
        let small = pool.try_take(4096).expect("free");
        assert_eq!((small.capacity(), pool.budget().used()), (4096, 4096));
    }

    #[test]
    fn trim_releases_only_what_lay_idle_since_the_last_trim() {
        let pool = pool(4);
        drop([pool.try_take(BLOCK_SIZE), pool.try_take(BLOCK_SIZE)]);
        pool.trim();
        assert_eq!(pool.idle_bytes(), 2 * MIB);
        pool.trim();
        assert_eq!(pool.idle_bytes(), 0);
        assert!(pool.try_take(BLOCK_SIZE).is_some());
    }

    #[test]
    #[should_panic(expected = "slice of unfilled bytes")]
    fn a_view_refuses_bytes_that_have_not_arrived() {
        let (_writer, view) = pool(1).try_take(BLOCK_SIZE).expect("free").share();
        view.slice(0..1);
    }
}
