//! How work is shared among threads.

mod crew;
mod node;
mod parallelism;
mod queue;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

pub(crate) use crew::{Crew, Job, Order, Task};
pub(crate) use node::Node;
pub use parallelism::{THREADS_MAX, Threads};
pub(crate) use queue::Place;

/// Tells everybody who works on something to end. Set once, for good.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Ends the work: tasks in hand come to a point where nothing is half done, others are dropped.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
