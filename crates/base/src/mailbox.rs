//! What many threads have ready for one thread that sleeps in the kernel.
//!
//! The thread of an io_uring waits for completions, so no condition variable can wake it: what
//! others have for it must come as a completion too. Hence a bell, an eventfd that the thread has
//! the ring read.
//!
//! ```text
//! any thread:  put ---> list ---> take  :the thread that sleeps
//!               |                  ^
//!               +- if it sleeps -> bell
//! ```
//!
//! - **Who sleeps**: one thread, the owner of the ring. It says that it will, looks at the list
//!   once more ([`Mailbox::may_sleep`]), sleeps only if that is empty, says that it is awake
//!   ([`Mailbox::woke`]) and then takes all there is ([`Mailbox::take`]).
//! - **Who rings**: whoever puts something in while the thread sleeps or is about to. Ringing is a
//!   system call for both sides, and while requests keep coming the thread comes round to the list
//!   by itself: then nobody rings. Of several who find it asleep only the first one does.
//! - **Why nothing is missed**: the last look and the addition hold the same lock, so one comes
//!   first. If it is the addition, the thread sees what was put in and stays awake. If it is the
//!   look, the thread had said before that it sleeps, and who puts something in reads that after
//!   the lock, and rings. The bell keeps its ringing until it is read, so it may be rung before the
//!   thread is quite asleep.
//! - **What may happen in vain**: a ringing. The thread may have found the list by itself, woken by
//!   something else, before who found it asleep comes to ring. So a bell that rang means "look",
//!   not "there is something".
//!
//! Nothing here limits the list. Those who put things in have a place each, of a queue that is
//! limited.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::event::{EventfdFlags, eventfd};

use crate::Mutex;

/// A list of what is ready for one thread, and a bell that wakes it.
#[derive(Debug)]
pub struct Mailbox<T> {
    ready: Mutex<Vec<T>>,
    asleep: AtomicBool,
    bell: OwnedFd,
}

impl<T> Mailbox<T> {
    /// An empty one, whose thread is awake. Fails when there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            ready: Mutex::default(),
            asleep: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC)?,
        })
    }

    /// The descriptor that becomes readable when the bell is rung. Eight bytes are to be read from
    /// it, which silence it; without a ringing that waits.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Wakes the thread, whatever it does: it may have something else to look at.
    pub fn ring(&self) {
        // It could fail only after it was rung 2^64 times in vain.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Adds something, and wakes the thread if it sleeps.
    pub fn put(&self, item: T) {
        self.ready.lock().push(item);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.ring();
        }
    }

    /// Takes all that is ready, in the order in which it was put in.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.ready.lock())
    }

    /// The thread wants to sleep: whether it may, because nothing is ready. To be called by that
    /// thread alone, which says afterwards that it [`woke`](Self::woke).
    pub fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let empty = self.ready.lock().is_empty();
        if !empty {
            self.woke();
        }
        empty
    }

    /// The thread is awake, so nobody needs to ring. To be called before it takes what is ready.
    pub fn woke(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        hint,
        sync::{Arc, mpsc},
        thread,
    };

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Questions of each thread that asks.
    const ROUNDS: usize = 50_000;

    /// Lengths of the pause before a question.
    const DELAYS: usize = 64;

    /// Seconds that a thread sleeps before its wake-up is lost. It counts them one by one: when the
    /// process is stopped for a while, only one is over at once.
    const SLEEP_MAX: usize = 60;

    /// How often the bell was rung, if it is within so many seconds.
    fn listen<T>(mailbox: &Mailbox<T>, seconds: i64) -> Option<u64> {
        let within = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let bell = mailbox.bell();
        let mut looks = [PollFd::new(&bell, PollFlags::IN)];
        if poll(&mut looks, Some(&within)).expect("a descriptor") == 0 {
            return None;
        }
        let mut count = [0; 8];
        rustix::io::read(bell, &mut count).expect("it was rung");
        Some(u64::from_ne_bytes(count))
    }

    /// What the thread of a ring does, until there is something.
    fn wait<T>(mailbox: &Mailbox<T>) -> Vec<T> {
        loop {
            if mailbox.may_sleep() {
                let rung = (0..SLEEP_MAX).find_map(|_| listen(mailbox, 1));
                rung.expect("a wake-up was lost");
            }
            mailbox.woke();
            let ready = mailbox.take();
            if !ready.is_empty() {
                return ready;
            }
        }
    }

    /// Waits without sleeping, so as to go on at once. False if nobody will answer.
    fn is_answered(answered: &mpsc::Receiver<()>) -> bool {
        loop {
            match answered.try_recv() {
                Ok(()) => return true,
                Err(mpsc::TryRecvError::Empty) => thread::yield_now(),
                Err(mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Puts something in and waits for the answer, over and over: then nobody makes good for a
    /// wake-up that is lost. Each time a little later after the answer, so that it falls into every
    /// place of the other thread's way to sleep.
    fn ask(mailbox: &Mailbox<usize>, asker: usize, answered: &mpsc::Receiver<()>) {
        for round in 0..ROUNDS {
            (0..round % DELAYS).for_each(|_| hint::spin_loop());
            mailbox.put(asker);
            if !is_answered(answered) {
                return;
            }
        }
    }

    fn ask_and_answer(askers: usize) {
        let mailbox = Arc::new(Mailbox::new().expect("an event counter"));
        let begin = |asker: usize| {
            let (answer, answered) = mpsc::channel();
            let theirs = Arc::clone(&mailbox);
            let asking = thread::spawn(move || ask(&theirs, asker, &answered));
            (answer, asking)
        };
        let (answers, asking): (Vec<_>, Vec<_>) = (0..askers).map(begin).unzip();
        let mut left = ROUNDS * askers;
        while left > 0 {
            for asker in wait(&mailbox) {
                answers[asker].send(()).expect("who asked listens");
                left -= 1;
            }
        }
        for asking in asking {
            asking.join().expect("all were answered");
        }
        assert!(mailbox.may_sleep());
    }

    #[test]
    fn no_wake_up_of_one_thread_by_another_is_lost() {
        ask_and_answer(1);
    }

    #[test]
    fn no_wake_up_is_lost_among_many() {
        ask_and_answer(3);
    }

    #[test]
    fn nobody_sleeps_while_something_is_ready() {
        let mailbox = Mailbox::new().expect("an event counter");
        assert!(mailbox.may_sleep());
        mailbox.woke();
        mailbox.put(7);
        mailbox.put(8);
        assert!(!mailbox.may_sleep());
        assert_eq!(mailbox.take(), [7, 8]);
        assert!(mailbox.may_sleep());
    }

    #[test]
    fn the_bell_is_rung_once_for_who_sleeps_and_never_for_who_is_awake() {
        let mailbox = Mailbox::new().expect("an event counter");
        mailbox.put(1);
        assert!(!mailbox.may_sleep());
        mailbox.put(2);
        assert_eq!(listen(&mailbox, 0), None);
        mailbox.take();
        assert!(mailbox.may_sleep());
        mailbox.put(3);
        mailbox.put(4);
        assert_eq!(listen(&mailbox, 0), Some(1));
        mailbox.woke();
        mailbox.put(5);
        assert_eq!(listen(&mailbox, 0), None);
        assert_eq!(mailbox.take(), [3, 4, 5]);
    }

    #[test]
    fn the_bell_can_be_rung_with_nothing_ready() {
        let mailbox = Mailbox::<u8>::new().expect("an event counter");
        mailbox.ring();
        mailbox.ring();
        assert_eq!(listen(&mailbox, 0), Some(2));
        assert_eq!(mailbox.take(), []);
    }
}
