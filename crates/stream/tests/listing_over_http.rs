//! Listings of a real server, over HTTP.

use std::{sync::Arc, time::Duration};

use penstock_base::metrics::Registry;
use penstock_devserver::{Crowd, Fault, FaultRule, Faults, Operation, Server, Settings};
use penstock_object::{Store, StoreSettings, open};
use penstock_stream::{
    ListingProgress, ListingSettings, ObjectSource, Spool, SpoolSettings, list_all,
};

const COUNT: u64 = 30_000;

fn crowd(prefix: &str, directories: u64) -> Crowd {
    Crowd {
        bucket: "bucket".into(),
        prefix: prefix.into(),
        count: COUNT,
        size: 1234,
        directories,
    }
}

fn server(crowds: Vec<Crowd>, latency: Duration) -> Server {
    let settings = Settings {
        crowds,
        faults: Faults::latency(latency),
        ..Settings::with_bucket("bucket")
    };
    Server::start(settings).expect("it starts")
}

fn store(server: &Server, source: &str, anonymous: bool) -> Arc<dyn Store> {
    let mut settings = StoreSettings {
        endpoint: Some(server.url()),
        region: Some("cn-hangzhou".into()),
        ..StoreSettings::default()
    };
    settings.anonymous = anonymous;
    let url = source.parse().expect("a source");
    open(&url, &settings, &Arc::new(Registry::default())).expect("it opens")
}

/// Lists and checks that the keys are exactly those of the crowd; returns the requests.
async fn list(store: &Arc<dyn Store>, crowd: &Crowd, below: &str) -> u64 {
    let directory = tempfile::tempdir().expect("a directory");
    let spool = Spool::open(&SpoolSettings::new(directory.path().join("s"), below));
    let progress = Arc::new(ListingProgress::default());
    let settings = ListingSettings::default();
    let listed = list_all(store, spool.expect("opens"), &settings, &progress).await;
    let mut source = listed.expect("it lists");
    assert_eq!(source.objects(), COUNT);
    for index in 0..COUNT {
        let object = source.next_object().expect("intact").expect("not the end");
        let key = crowd.key(index);
        assert_eq!(
            Some(std::str::from_utf8(object.key).expect("UTF-8")),
            key.strip_prefix(below)
        );
        assert_eq!((object.size, object.etag.len()), (1234, 34));
        assert!(object.modified.seconds > 1_600_000_000);
    }
    assert!(source.next_object().expect("intact").is_none());
    progress.status().requests
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_is_listed_in_both_dialects() {
    let crowd = crowd("p/", 40);
    let server = server(vec![crowd.clone()], Duration::from_millis(2));
    for source in ["s3://bucket/p", "oss://bucket/p"] {
        let requests = list(&store(&server, source, true), &crowd, "p/").await;
        assert!(requests < COUNT / 1000 * 2 + 6 * 64, "{requests}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_in_passing_cost_no_key() {
    let crowd = crowd("flat-", 0);
    let server = server(vec![crowd.clone()], Duration::from_millis(1));
    let slow_down = FaultRule::new(Fault::SlowDown { retry_after: None });
    server
        .faults()
        .add(slow_down.on(&[Operation::ListObjectsV2]).rate(0.1));
    list(&store(&server, "s3://bucket", true), &crowd, "").await;
    assert!(server.counters().status(503) > 5);
}
