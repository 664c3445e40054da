//! A store whose clock differs from this machine's.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use penstock_base::{Secret, clock, metrics::Registry};
use penstock_object::{
    ErrorKind, Key, ListOptions, Store, StoreSettings, credentials::Credentials, open,
};
use reqsign_core::time::Timestamp;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// More than a day, since the test server looks at the day only.
const MUCH: Duration = Duration::from_secs(3600 * 30);

/// The heads of the requests that came.
type Seen = Arc<Mutex<Vec<String>>>;

/// A store that refuses what is not signed on `today`, and its requests.
async fn store(today: SystemTime, follows: bool) -> (Arc<dyn Store>, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let seen = Seen::default();
    let requests = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 64 << 10];
            while let Ok(count @ 1..) = stream.read(&mut request).await {
                let head = String::from_utf8_lossy(&request[..count]).into_owned();
                let answer = answer(&head, today);
                requests.lock().expect("no panic").push(head);
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    });
    let mut settings = StoreSettings {
        endpoint: Some(format!("http://{address}")),
        region: Some("region-1".to_owned()),
        follow_store_clock: follows,
        ..StoreSettings::default()
    };
    settings.credentials.fixed = Some(Credentials {
        key_id: "id".to_owned(),
        secret: Secret::new("secret"),
        token: None,
        expires: None,
    });
    let url = "s3://bucket".parse().expect("valid");
    let store = open(&url, &settings, &Registry::new()).expect("valid settings");
    (store, seen)
}

fn answer(head: &str, today: SystemTime) -> String {
    let since = today.duration_since(UNIX_EPOCH).expect("after 1970");
    let today = Timestamp::from_second(since.as_secs() as i64).expect("a date");
    let signed = head.contains(&format!("x-amz-date: {}", today.format_date()));
    let (status, body) = match signed {
        true => ("200 OK", "<ListBucketResult></ListBucketResult>"),
        false => (
            "403 Forbidden",
            "<Error><Code>RequestTimeTooSkewed</Code><Message>no</Message></Error>",
        ),
    };
    format!(
        "HTTP/1.1 {status}\r\ndate: {}\r\netag: \"e\"\r\ncontent-length: {}\r\n\r\n{body}",
        today.format_http_date(),
        body.len()
    )
}

#[tokio::test]
async fn a_clock_that_went_wrong_is_corrected_by_the_store() {
    for today in [clock::wall_time() + MUCH, clock::wall_time() - MUCH] {
        let (store, seen) = store(today, true).await;
        store.list(ListOptions::default()).await.expect("corrected");
        assert_eq!(seen.lock().expect("no panic").len(), 2);
        // From now on the first attempt is right.
        store.list(ListOptions::default()).await.expect("known");
        assert_eq!(seen.lock().expect("no panic").len(), 3);
        let key = Key::new("k").expect("valid");
        let body = penstock_base::Payload::from(b"text".to_vec());
        let put = store.put(&key, body, penstock_object::PutOptions::default());
        put.await.expect("known for writes, too");
    }
}

#[tokio::test]
async fn who_does_not_follow_is_told_by_how_many_seconds() {
    let (store, seen) = store(clock::wall_time() + MUCH, false).await;
    let refused = store.list(ListOptions::default()).await;
    let error = refused.expect_err("a wrong clock");
    assert_eq!(error.kind, ErrorKind::ClockSkew);
    assert!(error.message.contains("s behind the store's"), "{error}");
    assert_eq!(seen.lock().expect("no panic").len(), 1, "it tried again");
}
