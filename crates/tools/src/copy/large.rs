//! A large file, copied in ranges by several threads.
//!
//! Who is free takes the next range. The last one gives the copy its name.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use penstock_base::Mutex;
use rustix::fs::{self, Stat};

use super::{
    branch::{Branch, Item},
    file::is_same_version,
    job::{Copying, Task},
};
use crate::{
    local::{Segments, Temporary, copy_range},
    work::Crew,
};

/// Bytes that one task copies.
const RANGE_BYTES: u64 = 16 << 20;
/// Threads that copy one file at most.
const THREADS_MAX: u64 = 64;

/// A large file on its way.
pub(super) struct Large {
    branch: Branch,
    item: Item,
    source: OwnedFd,
    stat: Stat,
    existing: Option<Stat>,
    /// Taken by who ends it.
    copy: Mutex<Option<Arc<Temporary>>>,
    /// Where the next range begins.
    next: AtomicU64,
    /// Tasks that are not over.
    tasks: AtomicUsize,
    failure: Mutex<Option<io::Error>>,
}

impl Large {
    /// Begins to copy `source` into `copy`, which has its size.
    pub(super) fn begin(
        copying: &Copying<'_>,
        (branch, item): (&Branch, &Item),
        (source, copy): (OwnedFd, Temporary),
        (stat, existing): (&Stat, Option<&Stat>),
        crew: &Crew<Task>,
    ) {
        let size = stat.st_size.cast_unsigned();
        // Shared extents are a copy of any size at once.
        let is_cloned = fs::ioctl_ficlone(&copy, &source).is_ok();
        if is_cloned {
            copying.report.bytes.add(size);
        }
        let tasks = match is_cloned {
            true => 1,
            false => size.div_ceil(RANGE_BYTES).clamp(1, THREADS_MAX),
        };
        let large = Arc::new(Self {
            branch: branch.enter(),
            item: item.clone(),
            source,
            stat: *stat,
            existing: existing.copied(),
            copy: Mutex::new(Some(Arc::new(copy))),
            next: AtomicU64::new(if is_cloned { size } else { 0 }),
            tasks: AtomicUsize::new(tasks as usize),
            failure: Mutex::new(None),
        });
        for _ in 0..tasks {
            crew.push(Task::Range(Arc::clone(&large)));
        }
    }

    /// The directory that it is in.
    pub(super) fn branch(&self) -> &Branch {
        &self.branch
    }

    fn copy_next(&self, copying: &Copying<'_>) -> io::Result<bool> {
        let size = self.stat.st_size.cast_unsigned();
        let begin = self.next.fetch_add(RANGE_BYTES, Ordering::Relaxed);
        if begin >= size || self.failure.lock().is_some() {
            return Ok(false);
        }
        let Some(copy) = self.copy.lock().clone() else {
            return Ok(false);
        };
        let end = (begin + RANGE_BYTES).min(size);
        for range in Segments::of(self.source.as_fd(), &self.stat, begin, end) {
            let count = |count| copying.report.bytes.add(count);
            copy_range(
                self.source.as_fd(),
                (*copy).as_fd(),
                range,
                copying.stop,
                &count,
            )?;
        }
        Ok(true)
    }

    fn end(&self, copying: &Copying<'_>) -> io::Result<()> {
        let copy = self.copy.lock().take();
        if let Some(error) = self.failure.lock().take() {
            return Err(error);
        }
        let Some(copy) = copy.and_then(Arc::into_inner) else {
            return Err(io::ErrorKind::Interrupted.into());
        };
        if !is_same_version(&self.stat, &fs::fstat(&self.source)?) {
            copying
                .report
                .note_change(&self.branch.path_of(&self.item.name));
        }
        let stats = (&self.stat, self.existing.as_ref());
        copying.complete(&self.branch, &self.item, stats, (&self.source, copy))
    }
}

impl Copying<'_> {
    /// Copies the next range of a large file; the last task gives the copy its name.
    pub(super) fn copy_range(&self, large: Arc<Large>, crew: &Crew<Task>) {
        match large.copy_next(self) {
            Ok(true) => return crew.push(Task::Range(large)),
            Ok(false) => {}
            Err(error) => *large.failure.lock() = Some(error),
        }
        if large.tasks.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let done = large.end(self);
        let is_there = done.is_ok();
        if let Err(error) = done {
            self.fail_to_copy(&large.branch, &large.item, error);
        }
        if self.settings.preserve.links && large.stat.st_nlink > 1 {
            self.tell_links(&large.branch, &large.item, &large.stat, is_there, crew);
        }
        self.leave(Arc::clone(&large.branch));
    }
}
