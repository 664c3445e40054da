//! Answers on their way from the tasks that read to the thread of a queue.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::event::{EventfdFlags, eventfd};

/// What a request gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// The place that the request is in.
    pub(super) tag: u16,
    /// Which request of that place it is.
    pub(super) number: u64,
    /// Bytes, or a negative errno.
    pub(super) result: i32,
}

/// Answers that are ready. At most one for each place of a queue.
///
/// The bell is rung only when the thread sleeps or is about to: it says so, looks once more and
/// only then sleeps, so nothing is missed.
#[derive(Debug)]
pub(super) struct Answers {
    ready: Mutex<Vec<Answer>>,
    asleep: AtomicBool,
    bell: OwnedFd,
}

impl Answers {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            ready: Mutex::default(),
            asleep: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC)?,
        }))
    }

    /// The descriptor that becomes readable when the bell is rung.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Wakes the thread, whatever it does.
    pub(super) fn ring(&self) {
        // It could fail only after it was rung 2^64 times in vain.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Takes all that is ready.
    pub(super) fn take(&self) -> Vec<Answer> {
        std::mem::take(&mut *self.list())
    }

    /// The thread wants to sleep: whether it may, because nothing is ready.
    pub(super) fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let empty = self.list().is_empty();
        if !empty {
            self.asleep.store(false, Ordering::SeqCst);
        }
        empty
    }

    /// The thread is awake, so nobody needs to ring.
    pub(super) fn woke(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    fn put(&self, answer: Answer) {
        self.list().push(answer);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.ring();
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Answer>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The duty to answer a request. Who drops it answers that it failed, so that none is forgotten when
/// a task is.
#[derive(Debug)]
pub(super) struct Owed {
    answers: Arc<Answers>,
    answer: Answer,
}

impl Owed {
    pub(super) fn new(answers: &Arc<Answers>, tag: u16, number: u64) -> Self {
        Self {
            answers: Arc::clone(answers),
            answer: Answer {
                tag,
                number,
                result: -libc::EIO,
            },
        }
    }

    /// Answers with `result`: bytes, or a negative errno.
    pub(super) fn give(mut self, result: i32) {
        self.answer.result = result;
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.answers.put(self.answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_sleeps_while_an_answer_is_ready_and_who_sleeps_is_woken() {
        let answers = Answers::new().expect("an event counter");
        assert!(answers.may_sleep());
        Owed::new(&answers, 7, 1).give(4096);
        let mut rung = [0; 8];
        rustix::io::read(answers.bell(), &mut rung).expect("rung");
        assert_eq!(u64::from_ne_bytes(rung), 1);
        assert!(!answers.may_sleep());
        let expected = Answer {
            tag: 7,
            number: 1,
            result: 4096,
        };
        assert_eq!(answers.take(), [expected]);
        assert!(answers.may_sleep());
    }

    #[test]
    fn a_request_whose_task_ends_before_its_time_has_failed() {
        let answers = Answers::new().expect("an event counter");
        drop(Owed::new(&answers, 3, 9));
        let expected = Answer {
            tag: 3,
            number: 9,
            result: -libc::EIO,
        };
        assert_eq!(answers.take(), [expected]);
    }
}
