use std::{collections::BTreeSet, time::Duration};

use penstock_base::{clock, metrics::Registry};
use penstock_object::{ErrorKind, Key, Operation, PutOptions, layers::Retry};
use penstock_object_testing::{Fault, Faults, Faulty, MemoryStore};
use proptest::prelude::*;

use super::*;
use crate::{ObjectSource, SpoolSettings};

/// How long a page takes in tests that look at time, which is not the real one.
const PAGE_TIME: Duration = Duration::from_millis(50);

async fn filled(keys: impl IntoIterator<Item = &String>) -> Arc<dyn Store> {
    let store = Arc::new(MemoryStore::new());
    for key in keys {
        put(store.as_ref(), key).await;
    }
    store
}

async fn put(store: &dyn Store, key: &str) {
    let key = Key::new(key).expect("a key");
    let body = penstock_base::Payload::from(key.as_str().as_bytes().to_vec());
    let stored = store.put(&key, body, PutOptions::default()).await;
    stored.expect("memory takes it");
}

struct Bed {
    faults: Arc<Faults>,
    store: Arc<dyn Store>,
    directory: tempfile::TempDir,
    settings: ListingSettings,
}

impl Bed {
    fn new(store: Arc<dyn Store>, settings: ListingSettings) -> Self {
        let faults = Faults::new(1);
        Self {
            store: Arc::new(Faulty::new(store, Arc::clone(&faults))),
            faults,
            directory: tempfile::tempdir().expect("a directory"),
            settings,
        }
    }

    fn spool(&self) -> Spool {
        let settings = SpoolSettings::new(self.directory.path().join("spool"), "test");
        Spool::open(&settings).expect("opens")
    }

    async fn list(&self) -> Result<Vec<String>, SnapshotError> {
        let progress = Arc::new(ListingProgress::default());
        let source = list_all(&self.store, self.spool(), &self.settings, &progress).await?;
        let (objects, mut source) = (source.objects(), source);
        let keys = drain(&mut source);
        assert_eq!(objects, keys.len() as u64);
        assert_eq!(progress.status().keys, objects);
        source.into_spool().discard().expect("removable");
        Ok(keys)
    }
}

fn drain(source: &mut SpoolSource) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    while let Some(object) = source.next_object().expect("intact") {
        let key = String::from_utf8(object.key.to_vec()).expect("UTF-8");
        assert_eq!(object.size, key.len() as u64);
        assert!(keys.last().is_none_or(|last| *last < key), "{key}");
        keys.push(key);
    }
    keys
}

fn small_pages() -> ListingSettings {
    ListingSettings {
        concurrency: 16,
        page_keys: 10,
        run_keys: 200,
        ..ListingSettings::default()
    }
}

/// Key sets of the shapes that buckets have.
fn shape(name: &str, count: u64) -> BTreeSet<String> {
    let mixed = |index: u64| {
        let bits = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    let deep = "very/long/and/deep/prefix/of/all/the/keys/that-are-there";
    let key = |index: u64| match name {
        "directories" => format!("d{:04}/f{:06}", index / 200, index),
        "flat digits" => format!("{index:09}"),
        "hash" => format!("{:016x}", mixed(index)),
        "deep" => format!("{deep}/part-{index:07}.parquet"),
        "skewed" => {
            let directory = (1u64 << (mixed(index) % 12)).min(mixed(index / 2) % 4096);
            format!("{directory}/x{index}")
        }
        "dates" => {
            let (day, second) = (index / 500, index % 500);
            let (year, month) = (2019 + day / 336, day / 28 % 12 + 1);
            format!("logs/{year}/{month:02}/{:02}/{second:06}.gz", day % 28 + 1)
        }
        "names" => {
            let words = ["aé", "b-", "Zo", "漢字", " ", "~", "!x", "0"];
            let word = |at: u32| words[(mixed(index) >> (3 * at)) as usize % 8];
            format!("{}{}/{}{}{index}", word(0), word(1), word(2), word(3))
        }
        _ => format!("one/{:x}", mixed(index) >> 40),
    };
    (0..count).map(key).collect()
}

const SHAPES: [&str; 8] = [
    "directories",
    "flat digits",
    "hash",
    "deep",
    "skewed",
    "dates",
    "names",
    "one",
];

/// Lists each shape with pages that take time, and returns pages, requests and round trips.
async fn cost(name: &str, count: u64, settings: ListingSettings) -> (u64, u64, f64) {
    let keys = shape(name, count);
    let bed = Bed::new(filled(&keys).await, settings);
    bed.faults
        .rate(Some(Operation::List), 1.0, Fault::Delay(PAGE_TIME));
    let begun = clock::now();
    let listed = bed.list().await.expect("nothing fails");
    let round_trips = begun.elapsed().as_secs_f64() / PAGE_TIME.as_secs_f64();
    assert!(listed.iter().eq(keys.iter()), "{name}");
    let pages = (keys.len() as u64).div_ceil(u64::from(settings.page_keys));
    (pages, bed.faults.calls(Operation::List), round_trips)
}

#[tokio::test(start_paused = true)]
async fn every_shape_is_listed_in_few_round_trips() {
    let settings = small_pages();
    for name in SHAPES {
        let (pages, requests, round_trips) = cost(name, 8000, settings).await;
        println!("{name}: {pages} pages, {requests} requests, {round_trips:.1} round trips");
        let extra = limits::EXTRA_PER_CONCURRENCY * 16 + scout::SCOUT_REQUESTS_MAX as u64;
        assert!(requests <= pages * 16 / 10 + extra + 16, "{name}");
        let ideal = pages as f64 / 16.0;
        assert!(round_trips < 3.0 * ideal + 10.0, "{name}: {round_trips}");
    }
}

#[tokio::test]
async fn small_and_empty_paths_cost_little() {
    for count in [0, 1, 9, 10, 11] {
        let keys = shape("hash", count);
        let bed = Bed::new(filled(&keys).await, small_pages());
        let listed = bed.list().await.expect("nothing fails");
        assert!(listed.iter().eq(keys.iter()));
        let requests = bed.faults.calls(Operation::List);
        assert!(requests <= 2 + 16 * count / 10, "{requests} for {count}");
    }
}

#[tokio::test(start_paused = true)]
async fn throttling_costs_time_but_no_key() {
    let keys = shape("directories", 4000);
    let bed = Bed::new(filled(&keys).await, small_pages());
    let throttled = Fault::fail(ErrorKind::Throttled);
    bed.faults.rate(Some(Operation::List), 0.3, throttled);
    let listed = bed.list().await.expect("it gets through");
    assert!(listed.iter().eq(keys.iter()));
    assert!(bed.faults.injected() > 50);
}

#[tokio::test(start_paused = true)]
async fn failures_are_repeated_below() {
    let keys = shape("hash", 3000);
    let mut bed = Bed::new(filled(&keys).await, small_pages());
    let unavailable = Fault::fail(ErrorKind::Unavailable);
    bed.faults.rate(Some(Operation::List), 0.2, unavailable);
    bed.store = Arc::new(Retry::new(Arc::clone(&bed.store), 10, &Registry::default()));
    assert!(bed.list().await.expect("retried").iter().eq(keys.iter()));
}

#[tokio::test(start_paused = true)]
async fn gives_up_when_nothing_succeeds() {
    let bed = Bed::new(filled(&shape("hash", 100)).await, small_pages());
    let unavailable = Fault::fail(ErrorKind::Unavailable);
    bed.faults.rate(Some(Operation::List), 1.0, unavailable);
    let error = bed.list().await.expect_err("nothing succeeds");
    assert!(matches!(error, SnapshotError::Store(error) if error.kind == ErrorKind::Unavailable));
    bed.faults.clear();
    let denied = Fault::fail(ErrorKind::PermissionDenied);
    bed.faults.rate(Some(Operation::List), 1.0, denied);
    bed.list().await.expect_err("there is no permission");
    assert!(bed.faults.calls(Operation::List) < 64);
}

#[tokio::test]
async fn requests_are_bounded() {
    let settings = ListingSettings {
        requests_max: 50,
        ..small_pages()
    };
    let bed = Bed::new(filled(&shape("hash", 2000)).await, settings);
    let error = bed.list().await.expect_err("200 pages do not fit");
    assert!(error.to_string().contains("50 requests"), "{error}");
    assert!(bed.faults.calls(Operation::List) <= 50);
}

#[tokio::test]
async fn requests_for_links_are_bounded_with_those_for_pages() {
    const LINKS: u64 = 200;
    let store = filled(["target".to_owned()].iter()).await;
    let target = Key::new("target").expect("a key");
    for index in 0..LINKS {
        let link = Key::new(format!("link{index:04}")).expect("a key");
        let made = store.put_symlink(&link, &target, PutOptions::default());
        made.await.expect("memory has links");
    }
    let bed = |requests_max| {
        let settings = ListingSettings {
            requests_max,
            page_keys: 1000,
            ..small_pages()
        };
        Bed::new(Arc::clone(&store), settings)
    };
    let scarce = bed(100);
    let error = scarce.list().await.expect_err("there are 200 links");
    assert!(error.to_string().contains("100 requests"), "{error}");
    let asked = |bed: &Bed| bed.faults.calls(Operation::GetSymlink);
    assert!(asked(&scarce) <= 100, "{}", asked(&scarce));
    let enough = bed(LINKS + 100);
    let progress = Arc::new(ListingProgress::default());
    let listed = list_all(&enough.store, enough.spool(), &enough.settings, &progress).await;
    assert_eq!(listed.expect("enough").objects(), LINKS + 1);
    assert_eq!(asked(&enough), LINKS);
    assert!(progress.status().requests >= LINKS);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_listing_goes_on_where_it_was() {
    let keys = shape("directories", 8000);
    let bed = Bed::new(filled(&keys).await, small_pages());
    bed.faults
        .rate(Some(Operation::List), 1.0, Fault::Delay(PAGE_TIME));
    let listing = clock::deadline(PAGE_TIME * 35, bed.list()).await;
    assert!(listing.is_err(), "it takes 50 round trips at least");
    let before = bed.faults.calls(Operation::List);
    let kept = bed.spool().objects();
    assert!(kept > 2000, "only {kept} keys were kept");
    assert!(bed.list().await.expect("it goes on").iter().eq(keys.iter()));
    let pages = bed.faults.calls(Operation::List) - before;
    let missing = (8000 - kept) / 10;
    assert!(pages < missing * 16 / 10 + 100, "{pages} for {missing}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stays_is_listed_once_while_other_keys_come_and_go() {
    let keys: Vec<String> = shape("directories", 6000).into_iter().collect();
    let (stay, go): (Vec<_>, Vec<_>) = keys
        .iter()
        .partition(|key| key.len() % 2 == 0 || key.ends_with('7'));
    let bed = Bed::new(filled(&keys).await, small_pages());
    bed.faults.rate(
        Some(Operation::List),
        1.0,
        Fault::Delay(Duration::from_millis(1)),
    );
    let changes = async {
        for (index, key) in go.iter().enumerate() {
            let gone = Key::new(key).expect("a key");
            bed.store.delete(&gone).await.expect("deleted");
            put(bed.store.as_ref(), &format!("{}+{index}", keys[index])).await;
            tokio::task::yield_now().await;
        }
    };
    let (listed, ()) = tokio::join!(bed.list(), changes);
    let listed: BTreeSet<String> = listed.expect("nothing fails").into_iter().collect();
    assert!(stay.iter().all(|key| listed.contains(*key)));
}

#[tokio::test]
async fn descriptions_survive() {
    let store = filled(&BTreeSet::from(["a".to_owned(), "b/c".to_owned()])).await;
    let expected = store.list_flat(Default::default()).await.expect("it lists");
    let bed = Bed::new(store, ListingSettings::default());
    let progress = Arc::new(ListingProgress::default());
    let source = list_all(&bed.store, bed.spool(), &bed.settings, &progress).await;
    let mut source = source.expect("nothing fails");
    for object in expected.objects() {
        let found = source.next_object().expect("intact").expect("there");
        assert_eq!(found.key, object.key.as_bytes());
        assert_eq!((found.size, found.etag), (object.size, object.etag));
        let modified = (found.modified.seconds, found.modified.nanoseconds);
        assert_eq!(
            modified,
            (object.modified.seconds, object.modified.nanoseconds)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_keys_are_listed_once_and_in_order(
        keys in prop::collection::btree_set(
            prop_oneof!["[ab/é]{1,8}", "x/y/z/[0-9]{1,5}", "[!-~]{1,6}", "\\PC{1,4}"],
            0..400,
        ),
        concurrency in 1..40usize,
        page_keys in 1..20u32,
        run_keys in 1..50u64,
        failing in 0..2u8,
    ) {
        let settings = ListingSettings {
            concurrency,
            page_keys,
            run_keys,
            ..ListingSettings::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let listed = runtime.block_on(async {
            let bed = Bed::new(filled(&keys).await, settings);
            let rate = 0.2 * f64::from(failing);
            bed.faults.rate(Some(Operation::List), rate, Fault::fail(ErrorKind::Throttled));
            bed.list().await.expect("it gets through")
        });
        prop_assert!(listed.iter().eq(keys.iter()));
    }
}
