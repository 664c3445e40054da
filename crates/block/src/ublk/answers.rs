//! Answers on their way from the tasks that read to the thread of a queue.

use std::sync::Arc;

use penstock_base::Mailbox;

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
pub(super) type Answers = Mailbox<Answer>;

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

    fn answers() -> Arc<Answers> {
        Arc::new(Answers::new().expect("an event counter"))
    }

    #[test]
    fn what_a_task_gives_is_the_answer() {
        let answers = answers();
        Owed::new(&answers, 7, 1).give(4096);
        let expected = Answer {
            tag: 7,
            number: 1,
            result: 4096,
        };
        assert_eq!(answers.take(), [expected]);
    }

    #[test]
    fn a_request_whose_task_ends_before_its_time_has_failed() {
        let answers = answers();
        drop(Owed::new(&answers, 3, 9));
        let expected = Answer {
            tag: 3,
            number: 9,
            result: -libc::EIO,
        };
        assert_eq!(answers.take(), [expected]);
    }
}
