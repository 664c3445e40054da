//! Bytes that wait in the kernel.
//!
//! What goes from a socket into a [`Pipe`] and from there to another descriptor is never copied into the
//! program: the pipe holds references to the pages that the network filled. A pipe is read from
//! front to back, once.
//!
//! A mount has few pipes ([`Pipes`]). Whoever finds none left, or one that is full too early, receives
//! into memory instead, so nothing depends on them.
//!
//! A pipe has places, each for what one page of the network holds: 4 KiB from a server on the same
//! machine, as little as 1,448 bytes from a network with small packets. That, and not bytes, is what it
//! runs out of.

use std::{
    fmt,
    io::{self, ErrorKind},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::Reservation;

/// Bytes that one pipe is used for at most, and that a door which answers from pipes should be asked for
/// at once. In whole pages they take half the places of the largest pipe that every program may have
/// (fs/pipe-max-size, 256 places), which leaves some for the header of an answer and for pages that
/// are not full.
pub const PIPED_MAX: usize = 512 << 10;

/// What a pipe is asked to hold, in whole pages: 512 places, enough for packets of 1,448 bytes, which
/// take CAP_SYS_RESOURCE (pipe(7)), or else 256.
const CAPACITIES: [usize; 2] = [2 << 20, 1 << 20];

/// Empty pipes that are kept for the next who wants one.
const KEPT_MAX: usize = 16;

/// Pipes that may be full too early before no more are given out.
const MISSES_MAX: usize = 8;

/// A bounded supply of pipes.
pub struct Pipes {
    max: usize,
    open: AtomicUsize,
    missed: AtomicUsize,
    empty: Mutex<Vec<Ends>>,
}

/// One pipe and what is known about it.
pub struct Pipe {
    /// `None` only while it is dropped.
    ends: Option<Ends>,
    /// Bytes inside.
    inside: AtomicU64,
    pays: Mutex<Option<Reservation>>,
    supply: Weak<Pipes>,
}

#[derive(Debug)]
struct Ends {
    front: OwnedFd,
    back: OwnedFd,
}

impl Ends {
    fn open() -> io::Result<Self> {
        let (front, back) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let mut sizes = CAPACITIES.into_iter();
        let granted = sizes.any(|size| fcntl_setpipe_size(&back, size).is_ok());
        if !granted {
            return Err(ErrorKind::PermissionDenied.into());
        }
        Ok(Self { front, back })
    }
}

impl Pipes {
    /// A supply of at most `max` pipes at a time. `None` if the system does not grant this program
    /// pipes of the size that is needed.
    pub fn new(max: usize) -> Option<Arc<Self>> {
        let first = Ends::open().ok()?;
        Some(Arc::new(Self {
            max,
            open: AtomicUsize::new(1),
            missed: AtomicUsize::new(0),
            empty: Mutex::new(vec![first]),
        }))
    }

    /// A pipe was full too early, or could not be used. When that happens again and again it does for
    /// all, and pipes are not worth having.
    pub fn missed(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// An empty pipe, if there is one left.
    pub fn take(self: &Arc<Self>) -> Option<Pipe> {
        if self.missed.load(Ordering::Relaxed) >= MISSES_MAX {
            return None;
        }
        let kept = self.lock().pop();
        let ends = kept.or_else(|| self.open_another())?;
        Some(Pipe {
            ends: Some(ends),
            inside: AtomicU64::new(0),
            pays: Mutex::default(),
            supply: Arc::downgrade(self),
        })
    }

    fn open_another(&self) -> Option<Ends> {
        if self.open.fetch_add(1, Ordering::Relaxed) < self.max
            && let Ok(ends) = Ends::open()
        {
            return Some(ends);
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn take_back(&self, ends: Ends, is_empty: bool) {
        let mut empty = self.lock();
        if is_empty && empty.len() < KEPT_MAX {
            empty.push(ends);
        } else {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Ends>> {
        self.empty.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pipe {
    /// Bytes inside.
    pub fn len(&self) -> u64 {
        self.inside.load(Ordering::Acquire)
    }

    /// Whether nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An empty pipe from where this one came from, if there is one left.
    pub fn another(&self) -> Option<Self> {
        self.supply.upgrade()?.take()
    }

    /// Keeps `memory` until the pipe is gone.
    pub fn pay(&self, memory: Reservation) {
        *self.payment() = Some(memory);
    }

    /// Gives back what it was to keep.
    pub fn stop_paying(&self) -> Option<Reservation> {
        self.payment().take()
    }

    fn payment(&self) -> MutexGuard<'_, Option<Reservation>> {
        self.pays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves up to `length` bytes in from a socket that does not block; 0 at its end. Fails with
    /// `WouldBlock` when the socket has nothing and with `StorageFull` when the pipe has no room.
    pub fn fill(&self, socket: BorrowedFd<'_>, length: usize) -> io::Result<usize> {
        let moved = self.fill_once(socket, length);
        if !is_blocked(&moved) || rustix::io::ioctl_fionread(socket)? == 0 {
            return moved;
        }
        // Something is there, but it may have come just now.
        let moved = self.fill_once(socket, length);
        if is_blocked(&moved) {
            return Err(ErrorKind::StorageFull.into());
        }
        moved
    }

    fn fill_once(&self, socket: BorrowedFd<'_>, length: usize) -> io::Result<usize> {
        self.count_in(splice_now(socket, self.back(), length))
    }

    /// Copies as much of `bytes` in as there is room for.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.count_in(rustix::io::write(self.back(), bytes).map_err(io::Error::from))
    }

    /// Moves `length` bytes, which must be inside, into `other`. Fails with `StorageFull` when that has
    /// no room; then some may have moved.
    pub fn move_to(&self, other: &Self, length: u64) -> io::Result<()> {
        let mut left = length;
        while left > 0 {
            let moved = splice_now(self.front(), other.back(), to_usize(left));
            if is_blocked(&moved) {
                return Err(ErrorKind::StorageFull.into());
            }
            let moved = other.count_in(self.count_out(moved))? as u64;
            left -= at_least_one(moved)?;
        }
        Ok(())
    }

    /// Moves everything inside to `device` in one message.
    pub fn send(&self, device: BorrowedFd<'_>) -> io::Result<()> {
        let length = self.len();
        let sent = splice(
            self.front(),
            None,
            device,
            None,
            to_usize(length),
            SpliceFlags::empty(),
        );
        let sent = self.count_out(sent.map_err(io::Error::from))?;
        if sent as u64 == length {
            return Ok(());
        }
        Err(io::Error::other("the kernel took a part of a message"))
    }

    /// Takes `length` bytes, which must be inside, out into memory of their own.
    pub fn read(&self, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; to_usize(length)];
        let mut filled = 0;
        while filled < bytes.len() {
            let read = rustix::io::read(self.front(), &mut bytes[filled..]);
            let count = self.count_out(read.map_err(io::Error::from))?;
            filled += to_usize(at_least_one(count as u64)?);
        }
        Ok(bytes)
    }

    fn count_in(&self, moved: io::Result<usize>) -> io::Result<usize> {
        let count = moved?;
        self.inside.fetch_add(count as u64, Ordering::AcqRel);
        Ok(count)
    }

    fn count_out(&self, moved: io::Result<usize>) -> io::Result<usize> {
        let count = moved?;
        self.inside.fetch_sub(count as u64, Ordering::AcqRel);
        Ok(count)
    }

    fn front(&self) -> BorrowedFd<'_> {
        self.ends().front.as_fd()
    }

    fn back(&self) -> BorrowedFd<'_> {
        self.ends().back.as_fd()
    }

    fn ends(&self) -> &Ends {
        self.ends.as_ref().expect("it is not dropped yet")
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let (Some(ends), Some(supply)) = (self.ends.take(), self.supply.upgrade()) {
            supply.take_back(ends, *self.inside.get_mut() == 0);
        }
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe")
            .field("inside", &self.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Pipes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipes")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

fn splice_now(from: BorrowedFd<'_>, to: BorrowedFd<'_>, length: usize) -> io::Result<usize> {
    Ok(splice(from, None, to, None, length, SpliceFlags::NONBLOCK)?)
}

fn is_blocked(moved: &io::Result<usize>) -> bool {
    matches!(moved, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

fn at_least_one(count: u64) -> io::Result<u64> {
    if count == 0 {
        return Err(io::Error::other("a pipe holds less than was put in"));
    }
    Ok(count)
}

fn to_usize(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::net::UnixStream};

    use super::*;

    const PAGE: usize = 4 << 10;

    fn pipes(max: usize) -> Arc<Pipes> {
        Pipes::new(max).expect("pipes of one mebibyte")
    }

    fn full_of(pipe: &Pipe, byte: u8) -> u64 {
        while pipe.write(&[byte; PAGE]).is_ok() {}
        pipe.len()
    }

    #[test]
    fn bytes_come_out_in_order_and_once() {
        let pipes = pipes(3);
        let (pipe, other) = (pipes.take().expect("one"), pipes.take().expect("another"));
        pipe.write(b"header").expect("room");
        pipe.write(b"abcdef").expect("room");
        assert_eq!(pipe.read(6).expect("it is there"), b"header");
        pipe.move_to(&other, 4).expect("room");
        assert_eq!((pipe.len(), other.len()), (2, 4));
        assert_eq!(other.read(4).expect("it is there"), b"abcd");
        assert_eq!(pipe.read(2).expect("it is there"), b"ef");
        assert!(pipe.is_empty() && other.is_empty());
    }

    #[test]
    fn what_does_not_fit_stays_where_it_was() {
        let pipes = pipes(3);
        let (pipe, other) = (pipes.take().expect("one"), pipes.take().expect("another"));
        let length = full_of(&pipe, 1);
        other.write(&[2; PAGE]).expect("room");
        let refused = pipe.move_to(&other, length).expect_err("one place too few");
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
        assert_eq!(pipe.len() + other.len(), length + PAGE as u64);
        let first = other.read(other.len()).expect("it is there");
        let rest = pipe.read(pipe.len()).expect("it is there");
        assert!(first.starts_with(&[2; PAGE]));
        let moved = first[PAGE..].iter().chain(&rest);
        assert!(moved.copied().eq(std::iter::repeat_n(1, length as usize)));
    }

    #[test]
    fn a_socket_without_data_is_told_from_a_pipe_without_room() {
        let pipe = pipes(1).take().expect("one");
        let (near, mut far) = UnixStream::pair().expect("a pair");
        near.set_nonblocking(true).expect("a socket");
        let kind = |filled: io::Result<usize>| filled.expect_err("nothing moves").kind();
        assert_eq!(kind(pipe.fill(near.as_fd(), PAGE)), ErrorKind::WouldBlock);
        far.write_all(b"abc").expect("it is buffered");
        assert_eq!(pipe.fill(near.as_fd(), PAGE).expect("moved"), 3);
        full_of(&pipe, 0);
        far.write_all(b"def").expect("it is buffered");
        assert_eq!(kind(pipe.fill(near.as_fd(), PAGE)), ErrorKind::StorageFull);
        drop(far);
        let pipe = pipes(1).take().expect("one");
        assert_eq!(pipe.fill(near.as_fd(), PAGE).expect("moved"), 3);
        assert_eq!(pipe.fill(near.as_fd(), PAGE).expect("the end"), 0);
    }

    #[test]
    fn the_supply_is_bounded_and_gives_out_only_empty_pipes() {
        let pipes = pipes(2);
        let (first, second) = (pipes.take().expect("one"), pipes.take().expect("another"));
        assert!(pipes.take().is_none());
        first.write(b"secret").expect("room");
        drop(first);
        let third = pipes.take().expect("in place of the first");
        assert!(third.read(1).is_err(), "nothing of the first is in it");
        drop((second, third));
        assert!(pipes.take().is_some());
    }

    #[test]
    fn pipes_that_are_full_too_early_again_and_again_are_given_up() {
        let pipes = pipes(2);
        for _ in 0..MISSES_MAX {
            assert!(pipes.take().is_some());
            pipes.missed();
        }
        assert!(pipes.take().is_none());
    }

    #[tokio::test]
    async fn memory_is_paid_for_until_the_pipe_is_gone() {
        let budget = crate::MemoryBudget::new(crate::MIB);
        let pipe = pipes(1).take().expect("one");
        pipe.pay(budget.try_reserve(crate::MIB).expect("all of it"));
        assert_eq!(budget.available(), 0);
        drop(pipe);
        assert_eq!(budget.available(), crate::MIB);
    }
}
