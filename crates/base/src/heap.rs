//! Memory of the allocator that nobody uses.
//!
//! glibc keeps what was freed, for the next who asks. Of millions of small things that went, a
//! process would look for ever as large as it once was.

/// Gives back to the system what was freed and not taken again. Takes milliseconds for each
/// hundred mebibytes, so it is for a thread that may wait, after much was freed.
#[cfg(target_env = "gnu")]
pub fn give_back_freed() {
    // SAFETY: it takes a number and touches only the allocator's own lists, under their locks.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators give memory back by themselves.
#[cfg(not(target_env = "gnu"))]
pub fn give_back_freed() {}
