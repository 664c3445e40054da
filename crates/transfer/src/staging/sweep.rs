//! Removing staging files that are not needed any more, on a thread that may wait for a disk.
//!
//! A file is closed by the thread that happens to let go of it last: one that receives requests, or
//! one that holds the lock of a tree of names. Removing a large file takes long even on an idle disk. So
//! they hand it to the *sweeper*, which does one thing after the other on one thread of those that may
//! block. A thread that makes another staging file waits for a place there first, so that what a disk is
//! slow to remove does not grow without bound.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use penstock_base::{FsError, FsResult};
use tokio::runtime::Handle;

use crate::{
    lock::lock,
    staging::{
        folder::{FileId, Folder},
        space::Payment,
    },
};

/// Chores that may wait while another staging file is made.
const QUEUE_MAX: usize = 4096;
/// How long to wait for a place, or for what is being removed: the next mount removes the rest.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// What is to be done once.
type Chore = Box<dyn FnOnce() + Send>;

/// The files of a staged file that is closed, and the space that they occupy until they are removed. The
/// sweeper does that after this is dropped.
#[derive(Debug)]
pub(crate) struct Remains {
    sweeper: Arc<Sweeper>,
    files: Option<(Folder, FileId)>,
    payment: Option<Payment>,
}

impl Remains {
    /// The files `id` in `folder`, which `payment` is for, left to `sweeper`.
    pub(crate) fn new(
        sweeper: &Arc<Sweeper>,
        folder: &Folder,
        id: FileId,
        payment: Option<Payment>,
    ) -> Self {
        Self {
            sweeper: Arc::clone(sweeper),
            files: Some((folder.clone(), id)),
            payment,
        }
    }

    /// Spares the files, and gives back what was paid: their next owner pays.
    pub(crate) fn spare(mut self) {
        self.files = None;
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        let Some((folder, id)) = self.files.take() else {
            return;
        };
        let payment = self.payment.take();
        self.sweeper.sweep(move || {
            folder.remove(&id);
            drop(payment);
        });
    }
}

/// Removes what is not needed any more. See the module.
#[derive(Default)]
pub(crate) struct Sweeper {
    queue: Mutex<Queue>,
    /// There is a place, or no thread is at work.
    moved: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Chore>,
    is_running: bool,
    /// Chores that were handed over, and of these those that are done.
    taken: u64,
    done: u64,
}

/// The right to work at the queue. Given back also by a runtime that ends before it begins.
struct Turn(Option<Arc<Sweeper>>);

impl Turn {
    fn run(mut self) {
        if let Some(sweeper) = self.0.clone() {
            sweeper.drain();
        }
        // Only a chore that panics leaves it to be given back.
        self.0 = None;
    }
}

/// Counts a chore on drop, also one that panics.
struct Done<'sweeper>(&'sweeper Sweeper);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.lock().done += 1;
        self.0.moved.notify_all();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(sweeper) = self.0.take() {
            sweeper.lock().is_running = false;
            sweeper.moved.notify_all();
        }
    }
}

impl Sweeper {
    /// Does `chore` soon; at once where there is no runtime.
    pub(crate) fn sweep(self: &Arc<Self>, chore: impl FnOnce() + Send + 'static) {
        let mut queue = self.lock();
        queue.waiting.push_back(Box::new(chore));
        queue.taken += 1;
        if std::mem::replace(&mut queue.is_running, true) {
            return;
        }
        drop(queue);
        let turn = Turn(Some(Arc::clone(self)));
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(|| turn.run())),
            Err(_) => turn.run(),
        }
    }

    /// Waits until everything is done that was handed over so far. Returns whether that is so after a
    /// while. Blocks.
    pub(crate) fn finish(&self) -> bool {
        let taken = self.lock().taken;
        let ended = self.wait_while(|queue| queue.is_running && queue.done < taken);
        if ended && !self.lock().is_running {
            // What a runtime that ended has left.
            self.drain();
        }
        ended
    }

    /// Waits until few enough chores wait that there may be more. Blocks, mostly not.
    pub(crate) fn wait_for_place(&self) -> FsResult<()> {
        let is_full = |queue: &mut Queue| queue.is_running && queue.waiting.len() >= QUEUE_MAX;
        if self.wait_while(is_full) {
            return Ok(());
        }
        let text = "the staging directory: its disk does not remove what is to go; check it";
        Err(FsError::TimedOut(text.to_owned()))
    }

    fn wait_while(&self, condition: impl FnMut(&mut Queue) -> bool) -> bool {
        let waited = self
            .moved
            .wait_timeout_while(self.lock(), WAIT_MAX, condition);
        let (_queue, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        !timeout.timed_out()
    }

    fn drain(&self) {
        while let Some(chore) = self.next() {
            let _done = Done(self);
            chore();
        }
    }

    /// What comes next. After the last no thread is at work until more is handed over.
    fn next(&self) -> Option<Chore> {
        let mut queue = self.lock();
        let next = queue.waiting.pop_front();
        queue.is_running &= next.is_some();
        self.moved.notify_all();
        next
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

impl fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.lock().waiting.len();
        f.debug_struct("Sweeper")
            .field("waiting", &waiting)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{self, Receiver, Sender},
        thread,
    };

    use super::*;

    /// Lasts until it is let go on, and tells where it took place.
    fn slow() -> (Sender<()>, impl FnOnce() + Send, Receiver<thread::ThreadId>) {
        let (go_on, waits) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let chore = move || {
            let _ = waits.recv();
            let _ = tell.send(thread::current().id());
        };
        (go_on, chore, told)
    }

    #[tokio::test]
    async fn whoever_hands_something_over_does_not_wait_for_its_end() {
        let sweeper = Arc::<Sweeper>::default();
        let (first, second) = (slow(), slow());
        sweeper.sweep(first.1);
        sweeper.sweep(second.1);
        drop(second.0);
        assert!(second.2.try_recv().is_err(), "one after the other");
        drop(first.0);
        assert!(sweeper.finish());
        let ended: Vec<_> = first.2.iter().chain(&second.2).collect();
        assert_eq!(ended.len(), 2);
        assert!(!ended.contains(&thread::current().id()));
    }

    #[tokio::test]
    #[allow(clippy::disallowed_methods)]
    async fn whoever_makes_another_file_waits_while_too_much_is_to_be_removed() {
        let sweeper = Arc::<Sweeper>::default();
        let (go_on, chore, _told) = slow();
        sweeper.sweep(chore);
        for _ in 1..QUEUE_MAX {
            sweeper.sweep(|| ());
        }
        assert_eq!(sweeper.wait_for_place(), Ok(()));
        sweeper.sweep(|| ());
        sweeper.sweep(|| ());
        let waiting = {
            let sweeper = Arc::clone(&sweeper);
            thread::spawn(move || sweeper.wait_for_place())
        };
        thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        drop(go_on);
        assert_eq!(waiting.join().expect("no panic"), Ok(()));
        assert!(sweeper.finish());
    }

    #[tokio::test]
    async fn a_chore_that_panics_ends_no_other() {
        let sweeper = Arc::<Sweeper>::default();
        sweeper.sweep(|| panic!("a chore that fails"));
        assert!(sweeper.finish());
        let (go_on, chore, told) = slow();
        drop(go_on);
        sweeper.sweep(chore);
        assert!(sweeper.finish());
        assert!(told.recv().is_ok());
    }

    #[test]
    fn what_a_runtime_that_ends_did_not_begin_is_done_at_the_end() {
        let sweeper = Arc::<Sweeper>::default();
        let (go_on, chore, told) = slow();
        drop(go_on);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .expect("a runtime");
        let (free, busy) = mpsc::channel::<()>();
        runtime.spawn_blocking(move || busy.recv());
        runtime.block_on(async { sweeper.sweep(chore) });
        runtime.shutdown_background();
        drop(free);
        assert!(sweeper.finish());
        assert!(told.try_recv().is_ok());
    }

    #[test]
    fn without_a_runtime_a_chore_is_done_at_once() {
        let (go_on, chore, told) = slow();
        drop(go_on);
        Arc::<Sweeper>::default().sweep(chore);
        assert_eq!(told.recv(), Ok(thread::current().id()));
    }
}
