//! Holding clients to what a mount target delivers, fairly.
//!
//! Each rate has a bucket that fills with time, for a tenth of a second at most, and from which a call takes what it
//! costs. A call begins at once while the bucket is not overdrawn and nobody waits, and may overdraw it: so large calls
//! pass, and are made up for by waiting. Calls that wait go in the order in which they would end if the rate were shared
//! evenly among the clients that wait (start-time fair queueing): who asks with many calls at once gets no more than who
//! asks with few. A client is an address.
//!
//! What waits is bounded by the calls under way ([`crate::limits`]).

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use penstock_base::{
    Mutex,
    clock::{self, Instant},
};
use tokio::sync::{Notify, oneshot};

use crate::target_type::{Cost, TargetType};

/// For how long a rate that nobody uses is saved up.
const SAVED_UP: f64 = 0.1;
/// Waiting calls are looked at no more often.
const LOOK: Duration = Duration::from_millis(1);

/// The rates of a mount target.
#[derive(Debug)]
pub(crate) struct Pace {
    operations: Arc<Bucket>,
    read: Arc<Bucket>,
    written: Arc<Bucket>,
}

impl Pace {
    /// That of a type; none where nothing is limited.
    pub(crate) fn of(kind: TargetType) -> Option<Self> {
        let rates = kind.rates()?;
        Some(Self {
            operations: Bucket::new(rates.operations),
            read: Bucket::new(rates.read),
            written: Bucket::new(rates.written),
        })
    }

    /// Waits until a call of a client may begin that costs so much. Returns for how long it waited.
    pub(crate) async fn pass(&self, client: IpAddr, cost: Cost) -> Duration {
        let begun = clock::now();
        // The bandwidth first: who waits for it takes no operation from others.
        self.read.take(client, cost.read).await;
        self.written.take(client, cost.written).await;
        self.operations.take(client, cost.operations).await;
        begun.elapsed()
    }

    /// Gives back what a call was expected to cost and did not.
    pub(crate) fn give_back(&self, expected: Cost, cost: Cost) {
        let spared = |expected: u64, cost| expected.saturating_sub(cost);
        self.read.put(spared(expected.read, cost.read));
        self.operations
            .put(spared(expected.operations, cost.operations));
    }
}

/// A rate.
#[derive(Debug)]
struct Bucket {
    per_second: f64,
    state: Mutex<State>,
    /// Rings when something is given back.
    more: Notify,
}

#[derive(Debug)]
struct State {
    /// What may be taken; less than nothing when more was taken.
    level: f64,
    /// When the level was so.
    at: Instant,
    /// By where they begin, in what each client was given by then; among those that begin together the first comes first.
    waiting: BTreeMap<(u64, u64), Waiting>,
    /// When the last call of a client ends that came while others waited, in what each client was given by then.
    ends: HashMap<IpAddr, u64>,
    /// What each client was given that waits: where the last call began that was let go.
    given: u64,
    /// Calls that had to wait so far.
    count: u64,
    is_looked_after: bool,
}

/// A call that waits.
#[derive(Debug)]
struct Waiting {
    cost: u64,
    go: oneshot::Sender<()>,
}

impl State {
    fn fill(&mut self, per_second: f64) {
        let now = clock::now();
        let since = now.duration_since(self.at).as_secs_f64();
        self.level = (self.level + since * per_second).min(SAVED_UP * per_second);
        self.at = now;
    }

    fn wait(&mut self, client: IpAddr, cost: u64) -> oneshot::Receiver<()> {
        let (go, gone) = oneshot::channel();
        let end = self.ends.entry(client).or_default();
        let begin = self.given.max(*end);
        *end = begin + cost;
        self.count += 1;
        let waiting = Waiting { cost, go };
        self.waiting.insert((begin, self.count), waiting);
        gone
    }

    /// Lets calls go while the bucket is not overdrawn. Says whether others wait.
    fn let_go(&mut self) -> bool {
        while let Some(next) = self.waiting.first_entry() {
            // Who does not wait any more takes nothing.
            let is_wanted = !next.get().go.is_closed();
            if is_wanted && self.level < 0.0 {
                return true;
            }
            let ((begin, _), next) = next.remove_entry();
            if next.go.send(()).is_ok() {
                self.given = begin;
                self.level -= next.cost as f64;
            }
        }
        self.ends.clear();
        false
    }
}

impl Bucket {
    fn new(per_second: u64) -> Arc<Self> {
        let per_second = per_second as f64;
        let state = State {
            level: SAVED_UP * per_second,
            at: clock::now(),
            waiting: BTreeMap::new(),
            ends: HashMap::new(),
            given: 0,
            count: 0,
            is_looked_after: false,
        };
        Arc::new(Self {
            per_second,
            state: Mutex::new(state),
            more: Notify::new(),
        })
    }

    async fn take(self: &Arc<Self>, client: IpAddr, cost: u64) {
        if cost == 0 {
            return;
        }
        if let Some(gone) = self.take_or_wait(client, cost) {
            // Its sender is dropped by nobody who has not sent.
            let _ = gone.await;
        }
    }

    fn take_or_wait(self: &Arc<Self>, client: IpAddr, cost: u64) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state.lock();
        state.fill(self.per_second);
        if !state.let_go() && state.level >= 0.0 {
            state.level -= cost as f64;
            return None;
        }
        let gone = state.wait(client, cost);
        if !std::mem::replace(&mut state.is_looked_after, true) {
            tokio::spawn(Arc::clone(self).look_after());
        }
        Some(gone)
    }

    fn put(&self, amount: u64) {
        if amount > 0 {
            self.state.lock().level += amount as f64;
            self.more.notify_one();
        }
    }

    /// Lets calls go that wait, until none does.
    async fn look_after(self: Arc<Self>) {
        while let Some(pause) = self.look() {
            // Passed or not, it is looked again.
            let _ = clock::deadline(pause, self.more.notified()).await;
        }
    }

    /// Returns when to look again.
    fn look(&self) -> Option<Duration> {
        let mut state = self.state.lock();
        state.fill(self.per_second);
        if state.let_go() {
            let missing = -state.level / self.per_second;
            return Some(Duration::from_secs_f64(missing.max(0.0)).max(LOOK));
        }
        state.is_looked_after = false;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const STANDARD: Option<Cost> = Some(Cost {
        operations: 5_000,
        read: 125_000_000,
        written: 62_500_000,
    });

    fn client(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    /// Asks `callers` at a time, each as soon as its last call was let go; returns what was let go in `during`.
    async fn given(pace: &Arc<Pace>, callers: &[(u8, usize, Cost)], during: Duration) -> Vec<u64> {
        let counts: Vec<_> = callers
            .iter()
            .map(|_| Arc::new(AtomicU64::new(0)))
            .collect();
        let mut tasks = tokio::task::JoinSet::new();
        for (count, (number, many, cost)) in counts.iter().zip(callers) {
            for _ in 0..*many {
                let (pace, count, cost, number) =
                    (Arc::clone(pace), Arc::clone(count), *cost, *number);
                tasks.spawn(async move {
                    loop {
                        pace.pass(client(number), cost).await;
                        count.fetch_add(1, Ordering::Relaxed);
                        // So that a caller who need not wait lets time pass.
                        tokio::task::yield_now().await;
                    }
                });
            }
        }
        clock::sleep(during).await;
        tasks.shutdown().await;
        counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect()
    }

    fn is_near(found: u64, expected: f64, tolerance: f64) -> bool {
        (found as f64 - expected).abs() <= expected * tolerance
    }

    #[tokio::test(start_paused = true)]
    async fn a_standard_target_delivers_what_it_should_for_a_minute() {
        assert_eq!(TargetType::Standard.rates(), STANDARD);
        let minute = Duration::from_secs(60);
        let removal = Cost {
            operations: 8,
            ..Cost::default()
        };
        let read = Cost::of_read(1 << 20);
        for (cost, many, per_second) in [
            (removal, 64, 625.0),
            (removal, 1, 625.0),
            (read, 32, 125_000_000.0 / f64::from(1 << 20)),
        ] {
            let pace = Arc::new(Pace::of(TargetType::Standard).unwrap());
            let let_go = given(&pace, &[(1, many, cost)], minute).await[0];
            assert!(is_near(let_go, per_second * 60.0, 0.02), "{let_go}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clients_share_evenly_however_much_they_ask_for() {
        let look = Cost {
            operations: 1,
            ..Cost::default()
        };
        let removal = Cost {
            operations: 8,
            ..look
        };
        let pace = Arc::new(Pace::of(TargetType::Standard).unwrap());
        let callers = [(1, 200, look), (2, 8, look), (3, 100, removal)];
        let given = given(&pace, &callers, Duration::from_secs(30)).await;
        let third = 5_000.0 * 30.0 / 3.0;
        for (let_go, cost) in given.iter().zip([1, 1, 8]) {
            assert!(is_near(let_go * cost, third, 0.1), "{given:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_wait_for_bandwidth_keep_nobody_else_waiting() {
        let pace = Arc::new(Pace::of(TargetType::Standard).unwrap());
        let look = Cost {
            operations: 1,
            ..Cost::default()
        };
        let write = Cost {
            operations: 4,
            read: 0,
            written: 10 << 20,
        };
        let writer = Arc::clone(&pace);
        let writing = tokio::spawn(async move {
            for _ in 0..100 {
                writer.pass(client(1), write).await;
            }
        });
        clock::sleep(Duration::from_secs(1)).await;
        assert_eq!(pace.pass(client(1), look).await, Duration::ZERO);
        assert!(!writing.is_finished());
        writing.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_no_more_takes_nothing_and_what_was_not_read_is_given_back() {
        let pace = Arc::new(Pace::of(TargetType::Standard).unwrap());
        let large = Cost::of_read(125_000_000);
        pace.pass(client(1), large).await;
        for _ in 0..100 {
            let waits =
                clock::deadline(Duration::from_millis(1), pace.pass(client(2), large)).await;
            assert!(waits.is_err());
        }
        let waited = pace.pass(client(3), large).await;
        assert!(waited < Duration::from_secs(1), "{waited:?}");
        // It was at the end of the file.
        pace.give_back(large, Cost::of_read(0));
        clock::sleep(Duration::from_millis(1)).await;
        let waited = pace.pass(client(3), Cost::of_read(1)).await;
        assert!(waited <= LOOK, "{waited:?}");
    }
}
