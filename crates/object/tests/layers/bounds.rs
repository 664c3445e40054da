//! Deadlines, concurrency and counters.

use futures_util::future::join_all;

use super::*;

#[tokio::test(start_paused = true)]
async fn what_takes_too_long_fails_in_time() {
    let (store, faults, _) = faulty();
    let total = Duration::from_secs(30);
    let store = Deadline::new(store, total);
    faults.queue(Operation::Head, [Fault::Hang, Fault::Delay(total / 2)]);
    let started = clock::now();
    let error = store
        .head(&key("a"), HeadOptions {})
        .await
        .expect_err("it hangs");
    assert_eq!(
        (error.kind, error.key),
        (ErrorKind::Timeout, Some(key("a")))
    );
    assert_eq!(started.elapsed().as_secs(), 30);
    let error = store
        .head(&key("a"), HeadOptions {})
        .await
        .expect_err("it is not there");
    assert_eq!(error.kind, ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn bodies_and_work_within_the_store_get_more_time() {
    let (store, faults, memory) = faulty();
    let total = Duration::from_secs(10);
    let store = Deadline::new(store, total);
    let body_time = Duration::from_secs(8);
    let large = vec![7; (body_time.as_secs() * BODY_RATE_MIN) as usize];
    faults.queue(
        Operation::Put,
        [Fault::Delay(Duration::from_secs(17)), Fault::Hang],
    );
    put(&store, "a", &large).await;
    let started = clock::now();
    let hung = store
        .put(&key("a"), body(&large), PutOptions::default())
        .await;
    assert_eq!(hung.expect_err("it hangs").kind, ErrorKind::Timeout);
    assert_eq!(started.elapsed(), total + body_time);
    put(&*memory, "a", b"x").await;
    faults.queue(Operation::Copy, [Fault::Delay(total * (LONG_FACTOR - 1))]);
    let copied = store
        .copy(&key("a"), &key("b"), CopyOptions::default())
        .await;
    copied.expect("copies may take longer");
}

/// A store whose bodies arrive slowly.
#[derive(Debug)]
struct Trickle;

impl Around for Trickle {
    async fn around<T: Send>(&self, _: &Call<'_>, work: Work<'_, T>) -> ObjectResult<T> {
        let result = work.await;
        clock::sleep(Duration::from_secs(15)).await;
        result
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_gets_time_for_the_length_that_the_answer_announces() {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    put(&*memory, "small", b"x").await;
    put(&*memory, "large", &vec![7; 8 * BODY_RATE_MIN as usize]).await;
    let slow = Arc::new(Layer::of(memory, Trickle));
    let store = Deadline::new(slow, Duration::from_secs(10));
    read(&store, "large").await.expect("eight seconds more");
    let error = read(&store, "small").await.expect_err("too slow");
    assert_eq!(error.kind, ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn transfers_leave_places_for_lookups() {
    let (store, faults, _) = faulty();
    let second = Duration::from_secs(1);
    faults.rate(Some(Operation::Put), 1.0, Fault::Delay(second));
    faults.rate(Some(Operation::List), 1.0, Fault::Delay(second));
    let store = ConcurrencyLimit::new(store, 8);
    let started = clock::now();
    let puts = join_all((0..12).map(|index| {
        let name = format!("{index}");
        let store = &store;
        async move { put(store, &name, b"x").await }
    }));
    let lists = join_all((0..4).map(|_| store.list(ListOptions::default())));
    let listed = async {
        lists.await;
        started.elapsed()
    };
    let (_, listed) = tokio::join!(puts, listed);
    // Six places for twelve puts, two for four lists.
    assert_eq!(started.elapsed().as_secs(), 2);
    assert_eq!(listed.as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_gives_up_the_place() {
    let (store, faults, _) = faulty();
    faults.queue(Operation::Get, [Fault::Hang]);
    let store = ConcurrencyLimit::new(store, 2);
    let hung = clock::deadline(Duration::from_secs(1), read(&store, "a")).await;
    hung.expect_err("it hangs");
    let error = read(&store, "a").await.expect_err("it is not there");
    assert_eq!(error.kind, ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn operations_are_counted_by_outcome() {
    let (store, faults, _) = faulty();
    let registry = Registry::default();
    let store = Metered::new(store, &registry);
    put(&store, "a", &[7; 1000]).await;
    read(&store, "a").await.expect("it is there");
    read(&store, "b").await.expect_err("it is not there");
    faults.queue(
        Operation::Get,
        [
            Fault::Cut { after: 10 },
            Fault::fail(ErrorKind::Throttled),
            Fault::Hang,
        ],
    );
    read(&store, "a").await.expect_err("cut");
    read(&store, "a").await.expect_err("throttled");
    let second = Duration::from_secs(1);
    clock::deadline(second, read(&store, "a"))
        .await
        .expect_err("it hangs");
    for (outcome, count) in [
        ("ok", 1),
        ("not_found", 1),
        ("failed", 1),
        ("throttled", 1),
        ("cancelled", 1),
        ("refused", 0),
    ] {
        let labels = ["operation=get", &format!("outcome={outcome}")];
        assert_eq!(
            metric(&registry, "object_operations_total", &labels),
            count,
            "{outcome}"
        );
    }
    assert_eq!(metric(&registry, "object_received_bytes_total", &[]), 1010);
    assert_eq!(metric(&registry, "object_sent_bytes_total", &[]), 1000);
    assert_eq!(metric(&registry, "object_operations_in_flight", &[]), 0);
    let labels = ["operation=get"];
    let time = metric(&registry, "object_operation_microseconds_total", &labels);
    assert_eq!(time, 1_000_000);
}

#[tokio::test(start_paused = true)]
async fn retries_show_in_the_counters() {
    let (store, faults, memory) = faulty();
    let registry = Registry::default();
    let settings = RetrySettings::default();
    let store = standard(store, 8, &settings, &registry);
    put(&*memory, "a", &[7; 1000]).await;
    faults.queue(
        Operation::Get,
        [Fault::Cut { after: 10 }, Fault::fail(ErrorKind::Throttled)],
    );
    read(&*store, "a").await.expect("it is whole in the end");
    assert_eq!(metric(&registry, "object_retries_total", &[]), 2);
    assert_eq!(metric(&registry, "object_resumed_reads_total", &[]), 1);
    let labels = ["operation=get", "outcome=ok"];
    assert_eq!(metric(&registry, "object_operations_total", &labels), 1);
    assert_eq!(metric(&registry, "object_received_bytes_total", &[]), 1000);
}

#[tokio::test(start_paused = true)]
async fn a_flipped_bit_changes_one_byte() {
    let (store, faults, _) = faulty();
    let flip = |at| [Fault::Flip { at }];
    faults.queue(Operation::Put, flip(3));
    let mut sliced = body(&[0; 2]);
    sliced.append(body(&[0; 4]));
    let stored = store.put(&key("a"), sliced, PutOptions::default()).await;
    stored.expect("nobody notices");
    assert_eq!(
        read(&*store, "a").await.expect("it is there"),
        [0, 0, 0, 1, 0, 0]
    );
    faults.queue(Operation::Get, flip(5));
    assert_eq!(
        read(&*store, "a").await.expect("nobody notices"),
        [0, 0, 0, 1, 0, 1]
    );
}
