//! Which reads follow one another.

use std::{collections::VecDeque, ops::Range};

use penstock_base::clock::Instant;

use super::{Ahead, pace::Pace};

/// Streams, and beginnings of streams, that are told apart.
const STREAMS_MAX: usize = 128;

/// By how many numbers a read may be ahead of its stream, and behind it: threads that take turns
/// overtake one another, and one of them may sleep for a while.
const AHEAD_MAX: u32 = 64;
const BEHIND_MAX: u32 = 256;

/// Objects of which a stream must have read most before anything is fetched ahead.
const EVIDENCE: u32 = 4;

/// Reads elsewhere, for each stream, after which a stream was given up.
const SILENCE_MAX: u64 = 32;

/// All streams, the least recently read first.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: Vec<Stream>,
    reads: u64,
}

#[derive(Debug)]
pub(super) struct Stream {
    /// The number that was read first, and the lowest one.
    first: u32,
    lowest: u32,
    /// Behind the highest number that was read.
    frontier: u32,
    /// Which of the numbers below the frontier were read, the highest in the lowest bit.
    seen: u64,
    /// The read that was its last.
    last_read: u64,
    pace: Pace,
    /// Behind the last object that was fetched ahead.
    pub(super) scheduled: u32,
    /// What was fetched ahead and may be on its way.
    pub(super) ahead: VecDeque<Ahead>,
}

impl Streams {
    /// Takes in that an object is read. Returns its stream if that is certain.
    pub(super) fn touch(&mut self, number: u32, waits: bool, now: Instant) -> Option<&mut Stream> {
        self.reads += 1;
        let found = self
            .streams
            .iter()
            .rposition(|stream| stream.reaches(number));
        match found {
            Some(index) => self.streams[index..].rotate_left(1),
            None => self.streams.push(Stream::new(number, now)),
        }
        self.give_up();
        let reads = self.reads;
        let stream = self.streams.last_mut().expect("the touched stream is last");
        stream.take_in(number, waits, now);
        stream.last_read = reads;
        stream.is_certain().then_some(stream)
    }

    /// Drops streams that nobody follows any more, with what is on its way for them.
    fn give_up(&mut self) {
        let certain = self.streams.iter().filter(|stream| stream.is_certain());
        let silence = SILENCE_MAX * (certain.count() as u64).max(1);
        let reads = self.reads;
        let others = self.streams.len() - 1;
        let silent = self.streams[..others]
            .iter()
            .take_while(|stream| reads - stream.last_read > silence)
            .count();
        let surplus = self.streams.len().saturating_sub(STREAMS_MAX);
        self.streams.drain(..silent.max(surplus));
    }
}

impl Stream {
    fn new(number: u32, now: Instant) -> Self {
        Self {
            first: number,
            lowest: number,
            frontier: number,
            seen: 0,
            last_read: 0,
            pace: Pace::new(now),
            scheduled: number,
            ahead: VecDeque::new(),
        }
    }

    /// The numbers that are to be fetched now, of `count` objects in all.
    pub(super) fn wanted(&self, count: u32) -> Range<u32> {
        let end = self.frontier.saturating_add(self.pace.window());
        self.scheduled.max(self.frontier)..end.min(count)
    }

    fn reaches(&self, number: u32) -> bool {
        let ahead = self.frontier.saturating_add(AHEAD_MAX);
        (self.frontier.saturating_sub(BEHIND_MAX)..ahead).contains(&number)
    }

    fn take_in(&mut self, number: u32, waits: bool, now: Instant) {
        let frontier = self.frontier.max(number.saturating_add(1));
        let advanced = frontier - self.frontier;
        self.seen = self.seen.checked_shl(advanced).unwrap_or(0);
        self.lowest = self.lowest.min(number);
        self.frontier = frontier;
        self.seen |= 1u64.checked_shl(frontier - 1 - number).unwrap_or(0);
        if advanced > 0 && self.is_certain() {
            self.pace.read(advanced, waits, now);
        }
        // What is behind has arrived or will soon, and may be read late.
        while self
            .ahead
            .front()
            .is_some_and(|ahead| ahead.number < frontier)
        {
            self.ahead.pop_front();
        }
    }

    /// Whether most numbers of late were read, and in rising order by and large.
    fn is_certain(&self) -> bool {
        let span = (self.frontier - self.lowest).min(u64::BITS);
        let count = self.seen.count_ones();
        let rises = self.frontier - self.first >= EVIDENCE;
        rises && count >= EVIDENCE && count * 2 >= span
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        for ahead in &self.ahead {
            ahead.get.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_base::clock;
    use tokio::task::AbortHandle;

    use super::*;

    /// What is wanted after each of these reads.
    fn wanted(reads: impl IntoIterator<Item = u32>) -> Vec<Range<u32>> {
        let mut streams = Streams::default();
        let now = clock::now();
        let reads = reads.into_iter();
        reads
            .filter_map(|number| {
                let stream = streams.touch(number, false, now)?;
                let wanted = stream.wanted(u32::MAX);
                stream.scheduled = wanted.end;
                Some(wanted)
            })
            .collect()
    }

    #[test]
    fn a_rising_order_is_a_stream_after_a_few_reads() {
        assert_eq!(wanted(10..16), [14..18, 18..19, 19..20]);
    }

    #[test]
    fn reads_of_the_same_object_prove_nothing() {
        assert_eq!(wanted([7; 100]), []);
    }

    #[test]
    fn random_reads_are_no_stream() {
        let numbers = (0..1000u32).map(|index| index.wrapping_mul(2_654_435_761));
        assert_eq!(wanted(numbers), []);
    }

    #[test]
    fn backward_and_strided_reads_are_no_stream() {
        assert_eq!(wanted((0..100).rev()), []);
        assert_eq!(wanted((0..100).map(|index| index * 7)), []);
    }

    #[test]
    fn threads_that_take_turns_are_one_stream() {
        let turns = (0..200u32).map(|index| index ^ 5);
        let wanted = wanted(turns);
        assert!(wanted.len() > 180);
        let ends: Vec<u32> = wanted.iter().map(|range| range.end).collect();
        assert!(ends.is_sorted() && *ends.last().expect("some") >= 200);
    }

    #[test]
    fn two_readers_are_two_streams() {
        let both = (0..50u32).flat_map(|index| [1000 + index, 90_000 + index]);
        assert_eq!(wanted(both).len(), 2 * 47);
    }

    #[tokio::test]
    async fn a_stream_that_was_given_up_takes_its_gets_with_it() {
        let mut streams = Streams::default();
        let now = clock::now();
        for number in 0..10 {
            if let Some(stream) = streams.touch(number, false, now) {
                let get = tokio::spawn(std::future::pending::<()>()).abort_handle();
                stream.ahead.push_back(Ahead { number: 11, get });
            }
        }
        let gets: Vec<_> = streams.streams[0]
            .ahead
            .iter()
            .map(|ahead| ahead.get.clone())
            .collect();
        assert_eq!(gets.len(), 7);
        for number in 0..40u32 {
            streams.touch(number * 7919 + 100_000, false, now);
        }
        tokio::task::yield_now().await;
        assert!(gets.iter().all(AbortHandle::is_finished));
    }
}
