//! How many processors there are, for whatever follows from their number.

use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// More processors than this are worth no more threads: these mostly wait for the kernel.
pub const PROCESSORS_MAX: usize = 32;

/// What [`pretend`] was told; 0 for nothing.
static PRETENDED: AtomicUsize = AtomicUsize::new(0);

/// The processors that this process may use, of which [`PROCESSORS_MAX`] count.
pub fn count() -> usize {
    let machine = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let count = match PRETENDED.load(Ordering::Relaxed) {
        0 => machine(),
        pretended => pretended,
    };
    count.min(PROCESSORS_MAX)
}

/// Lets this process go on as on a machine with so many processors: one machine has every test.
pub fn pretend(count: NonZeroUsize) {
    PRETENDED.store(count.get(), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_machine_can_be_shown_and_only_so_much_of_it_counts() {
        let machine = count();
        assert!((1..=PROCESSORS_MAX).contains(&machine));
        for (pretended, counted) in [(2, 2), (4, 4), (16, 16), (64, PROCESSORS_MAX)] {
            pretend(NonZeroUsize::new(pretended).expect("not 0"));
            assert_eq!(count(), counted);
        }
    }
}
