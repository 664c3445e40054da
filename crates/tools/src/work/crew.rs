//! Threads that do tasks, of which each may lead to others.
//!
//! One queue serves all. Taken from its new end ([`Order::Newest`]) a tree is walked depth first: what waits is
//! bounded by a page for each level and thread. Taken from its old end ([`Order::Oldest`]) tasks are done as they came, for
//! who waits for them in order. A producer outside waits for room ([`Crew::submit`]); a task never does, for it
//! may be what makes room.
//!
//! Changes of names in one directory exclude each other, in the kernel as in most file systems. So a thread takes the
//! newest task of a directory in which no other works ([`Task::place`]), and joins another only where there is none.
//! Newer is what is deeper or was entered later (`queue.rs`).

use std::{
    sync::{Condvar, MutexGuard, PoisonError},
    thread::Scope,
    time::Duration,
};

use penstock_base::Mutex;

use super::{
    Stop, Threads,
    parallelism::Parallelism,
    queue::{Place, Queue},
};

/// How often throughput is measured.
const INTERVAL: Duration = Duration::from_millis(100);
/// Tasks that wait for each thread before a producer outside does.
const WAITING_PER_THREAD: usize = 8;

/// A piece of work.
pub(crate) trait Task: Send {
    /// The directory in which it works; none if it is of no directory.
    fn place(&self) -> Option<Place> {
        None
    }
}

/// What a crew does.
pub(crate) trait Job: Sync {
    /// A piece of it.
    type Task: Task;

    /// Does one piece. What follows from it goes to `crew`.
    fn run(&self, task: Self::Task, crew: &Crew<Self::Task>);

    /// How much was done so far, in any unit that compares intervals.
    fn work(&self) -> u64;
}

/// Which of the waiting tasks is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Depth first.
    Newest,
    /// As they came.
    Oldest,
}

/// The queue that threads share.
pub(crate) struct Crew<T> {
    shared: Mutex<Shared<T>>,
    /// There is work, or none will come: for threads that may work.
    work: Condvar,
    /// None will come, or more threads may work: for the others, and for who leads.
    aside: Condvar,
    /// The queue is shorter, or nobody works.
    room: Condvar,
    stop: Stop,
    order: Order,
}

struct Shared<T> {
    queue: Queue<T>,
    /// Where the tasks in hand work.
    in_hand: Vec<Option<Place>>,
    /// Threads that may work.
    limit: usize,
    /// No more work will come from outside.
    is_closed: bool,
    /// The most that ever waited.
    peak: usize,
}

impl<T: Task> Crew<T> {
    /// Does `job` with `threads`. `produce` gives the crew its first tasks; the call returns its result when
    /// all is done, or when `stop` is set and what was in hand has ended.
    pub(crate) fn run<J: Job<Task = T>, R>(
        job: &J,
        threads: Threads,
        order: Order,
        stop: &Stop,
        produce: impl FnOnce(&Self) -> R,
    ) -> R {
        let parallelism = Parallelism::new(threads);
        let crew = Self {
            shared: Mutex::new(Shared {
                queue: Queue::default(),
                in_hand: Vec::new(),
                limit: parallelism.limit(),
                is_closed: false,
                peak: 0,
            }),
            work: Condvar::new(),
            aside: Condvar::new(),
            room: Condvar::new(),
            stop: stop.clone(),
            order,
        };
        std::thread::scope(|scope| {
            let crew = &crew;
            scope.spawn(move || crew.lead(scope, job, parallelism));
            // Threads end also if the producer panics.
            let closing = Closing(crew);
            let result = produce(crew);
            crew.wait();
            drop(closing);
            result
        })
    }

    /// Adds a task from within another one. Never waits.
    pub(crate) fn push(&self, task: T) {
        let mut shared = self.shared.lock();
        shared.queue.push(task.place(), task);
        shared.peak = shared.peak.max(shared.queue.len());
        drop(shared);
        self.work.notify_one();
    }

    /// Adds a task from outside; waits until there is room. Says whether it was taken: not when the work ends.
    pub(crate) fn submit(&self, task: T) -> bool {
        let mut shared = self.shared.lock();
        while shared.queue.len() >= shared.limit * WAITING_PER_THREAD && !self.stop.is_set() {
            shared = self.wait_for_room(shared);
        }
        if self.stop.is_set() {
            return false;
        }
        drop(shared);
        self.push(task);
        true
    }

    /// Waits until there is nothing left to do. Only from outside.
    pub(crate) fn wait(&self) {
        let mut shared = self.shared.lock();
        while !shared.is_idle() {
            shared = self.wait_for_room(shared);
        }
    }

    /// How many threads may work now.
    pub(crate) fn limit(&self) -> usize {
        self.shared.lock().limit
    }

    /// The most tasks that ever waited.
    #[cfg(test)]
    pub(crate) fn peak(&self) -> usize {
        self.shared.lock().peak
    }

    /// Waits for a change, or for an interval, after which the stop is looked at again.
    fn wait_for_room<'a>(&self, shared: MutexGuard<'a, Shared<T>>) -> MutexGuard<'a, Shared<T>> {
        let waited = self.room.wait_timeout(shared, INTERVAL);
        let mut shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        if self.stop.is_set() {
            shared.queue.clear();
        }
        shared
    }

    /// Starts threads as they are wanted, and measures what they do, until no more work comes.
    fn lead<'scope, J: Job<Task = T>>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        job: &'scope J,
        mut parallelism: Parallelism,
    ) {
        let mut started = 0;
        let mut before = job.work();
        loop {
            while started < parallelism.limit() {
                let number = started;
                scope.spawn(move || self.work_as(number, job));
                started += 1;
            }
            debug_assert!(started <= parallelism.maximum());
            if self.is_over_after_interval() {
                return;
            }
            let now = job.work();
            parallelism.observe(now - before);
            before = now;
            self.set_limit(parallelism.limit());
        }
    }

    fn set_limit(&self, limit: usize) {
        let previous = std::mem::replace(&mut self.shared.lock().limit, limit);
        if previous != limit {
            self.work.notify_all();
            self.aside.notify_all();
        }
    }

    fn is_over_after_interval(&self) -> bool {
        let shared = self.shared.lock();
        let waited = self
            .aside
            .wait_timeout_while(shared, INTERVAL, |shared| !shared.is_closed);
        let (shared, _) = waited.unwrap_or_else(PoisonError::into_inner);
        shared.is_closed
    }

    fn work_as<J: Job<Task = T>>(&self, number: usize, job: &J) {
        while let Some(task) = self.take(number) {
            let running = Running(self, task.place());
            job.run(task, self);
            drop(running);
        }
    }

    /// The next task for the thread of this number; none when no more will come.
    fn take(&self, number: usize) -> Option<T> {
        let mut shared = self.shared.lock();
        loop {
            if self.stop.is_set() {
                shared.queue.clear();
            }
            if number < shared.limit
                && let Some(task) = shared.take(self.order)
            {
                return Some(task);
            }
            if shared.is_closed && shared.is_idle() {
                return None;
            }
            let waiting = match number < shared.limit {
                true => &self.work,
                false => &self.aside,
            };
            let waited = waiting.wait(shared);
            shared = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T: Task> Shared<T> {
    fn take(&mut self, order: Order) -> Option<T> {
        let task = match order {
            Order::Newest => self.queue.pop_newest(&self.in_hand),
            Order::Oldest => self.queue.pop_oldest(),
        };
        self.in_hand.extend(task.as_ref().map(Task::place));
        task
    }
}

impl<T> Shared<T> {
    fn is_idle(&self) -> bool {
        self.in_hand.is_empty() && self.queue.is_empty()
    }

    fn put_down(&mut self, place: Option<Place>) {
        if let Some(index) = self.in_hand.iter().position(|it| *it == place) {
            self.in_hand.swap_remove(index);
        }
    }
}

impl<T> Crew<T> {
    fn wake_all(&self) {
        self.work.notify_all();
        self.aside.notify_all();
    }
}

/// A task in hand, with its place; dropped, it no longer is.
struct Running<'a, T>(&'a Crew<T>, Option<Place>);

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        let mut shared = self.0.shared.lock();
        shared.put_down(self.1);
        let is_idle = shared.is_idle();
        drop(shared);
        self.0.room.notify_all();
        if is_idle {
            self.0.wake_all();
        }
    }
}

/// No more work comes from outside once it is dropped.
struct Closing<'a, T>(&'a Crew<T>);

impl<T> Drop for Closing<'_, T> {
    fn drop(&mut self) {
        self.0.shared.lock().is_closed = true;
        self.0.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Node;
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    impl Task for u32 {}
    impl Task for u64 {}
    impl Task for () {}

    /// Counts to the leaves of a tree with this many branches at each node.
    struct Count {
        branches: u32,
        leaves: AtomicU64,
    }

    impl Job for Count {
        type Task = u32;

        fn run(&self, depth: u32, crew: &Crew<u32>) {
            if depth == 0 {
                self.leaves.fetch_add(1, Ordering::Relaxed);
            } else {
                (0..self.branches).for_each(|_| crew.push(depth - 1));
            }
        }

        fn work(&self) -> u64 {
            self.leaves.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_tree_is_done_whole_and_what_waits_is_a_page_a_level() {
        let job = Count {
            branches: 10,
            leaves: AtomicU64::new(0),
        };
        let threads = 4;
        let peak = Crew::run(
            &job,
            Threads::Fixed(threads),
            Order::Newest,
            &Stop::default(),
            |crew| {
                crew.push(5);
                crew.wait();
                crew.peak()
            },
        );
        assert_eq!(job.work(), 100_000);
        assert!(peak <= 10 * 5 * threads, "{peak} tasks waited");
    }

    /// Sets its stop at the first task.
    struct Ending(Stop, AtomicU64);

    impl Job for Ending {
        type Task = ();

        fn run(&self, (): (), crew: &Crew<()>) {
            self.0.set();
            self.1.fetch_add(1, Ordering::Relaxed);
            crew.push(());
        }

        fn work(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_stop_ends_what_would_go_on_for_ever() {
        let stop = Stop::default();
        let job = Ending(stop.clone(), AtomicU64::new(0));
        Crew::run(&job, Threads::Fixed(3), Order::Newest, &stop, |crew| {
            crew.push(());
        });
        assert!(job.1.load(Ordering::Relaxed) <= 3);
    }

    /// Holds each task until it is told to go on.
    struct Slow(AtomicU64);

    impl Job for Slow {
        type Task = u64;

        fn run(&self, number: u64, _: &Crew<u64>) {
            let expected = self.0.fetch_add(1, Ordering::SeqCst);
            assert_eq!(number, expected, "one thread does them as they came");
        }

        fn work(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_producer_waits_for_room() {
        let job = Slow(AtomicU64::new(0));
        let peak = Crew::run(
            &job,
            Threads::Fixed(1),
            Order::Oldest,
            &Stop::default(),
            |crew| {
                (0..10_000).for_each(|number| assert!(crew.submit(number)));
                crew.wait();
                crew.peak()
            },
        );
        assert_eq!(job.work(), 10_000);
        assert!(peak <= WAITING_PER_THREAD, "{peak} tasks waited");
    }

    /// Walks a tree as the tools do: lists a page of each directory at a time, goes into the directories of it, and opens
    /// its files, each of which is closed by a task of its own.
    #[derive(Default)]
    struct Walk {
        closed: AtomicU64,
        /// Files that are open, and the most that ever were.
        open: AtomicU64,
        open_max: AtomicU64,
    }

    type Level = Arc<Node<u32>>;

    enum Step {
        Enter(Level),
        /// With the pages that are left.
        List(Level, u32),
        Open(Level),
        Close(Level),
    }

    impl Task for Step {
        fn place(&self) -> Option<Place> {
            match self {
                Self::List(level, _) | Self::Open(level) => Some(Place::of(level)),
                Self::Enter(level) | Self::Close(level) => Some(Place::beside(level)),
            }
        }
    }

    /// Directories in a page, and as many files.
    const PAGE: u32 = 5;
    /// Pages of the directories of a level.
    const PAGES: [u32; 3] = [2, 100, 1];

    impl Job for Walk {
        type Task = Step;

        fn run(&self, step: Step, crew: &Crew<Step>) {
            match step {
                Step::Enter(above) => {
                    let depth = above.data + 1;
                    let level = Node::new(Some(above), c"directory".to_owned(), depth);
                    crew.push(Step::List(level, PAGES[depth as usize]));
                }
                Step::List(_, 0) => {}
                Step::List(level, left) => {
                    crew.push(Step::List(Arc::clone(&level), left - 1));
                    for _ in 0..PAGE {
                        crew.push(Step::Open(Arc::clone(&level)));
                    }
                    for _ in 0..PAGE {
                        if level.data + 1 < PAGES.len() as u32 {
                            crew.push(Step::Enter(Arc::clone(&level)));
                        }
                    }
                }
                Step::Open(level) => {
                    let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
                    self.open_max.fetch_max(open, Ordering::Relaxed);
                    crew.push(Step::Close(level));
                }
                Step::Close(_) => {
                    self.open.fetch_sub(1, Ordering::Relaxed);
                    self.closed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }

        fn work(&self) -> u64 {
            self.closed.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_directory_of_many_pages_waits_a_page_at_a_time() {
        for threads in [1, 4] {
            let job = Walk::default();
            let root = Node::new(None, c"root".to_owned(), 0);
            let fixed = Threads::Fixed(threads);
            let peak = Crew::run(&job, fixed, Order::Newest, &Stop::default(), |crew| {
                crew.push(Step::List(root, PAGES[0]));
                crew.wait();
                crew.peak()
            });
            let directories = PAGES[0] * PAGE * (1 + PAGES[1] * PAGE);
            let pages = PAGES[0] + PAGES[0] * PAGE * PAGES[1] + (directories - PAGES[0] * PAGE);
            assert_eq!(job.work(), u64::from(pages * PAGE));
            let levels = PAGES.len() * threads;
            let page = 2 * PAGE as usize + 1;
            assert!(
                peak <= page * levels,
                "{peak} tasks waited, {threads} threads"
            );
            let open = job.open_max.load(Ordering::Relaxed);
            assert!(
                open <= levels as u64,
                "{open} files were open, {threads} threads"
            );
        }
    }
}
