//! Answers that are well-formed and wrong. Each must come out as an error: what is believed here
//! becomes the content of files, or their absence.

use std::sync::Arc;

use penstock_base::metrics::Registry;
use penstock_object::{
    ErrorKind, GetOptions, Key, ListOptions, ObjectError, Store, StoreSettings, open,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// A store that gives the same answer to whatever it is asked.
async fn store(answer: String) -> Arc<dyn Store> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 64 << 10];
            while stream.read(&mut request).await.is_ok_and(|count| count > 0) {
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    });
    let mut settings = StoreSettings {
        endpoint: Some(format!("http://{address}")),
        anonymous: true,
        ..StoreSettings::default()
    };
    settings.retry.attempts_max = 1;
    let url = "s3://bucket".parse().expect("valid");
    open(&url, &settings, &Registry::new()).expect("valid settings")
}

async fn get(head: &str, body: &str, options: GetOptions) -> Result<Vec<u8>, ObjectError> {
    let store = store(format!("HTTP/1.1 {head}\r\netag: \"a\"\r\n\r\n{body}")).await;
    let mut memory = Vec::new();
    let key = Key::new("k").expect("valid");
    store.get(&key, options, &mut memory).await?;
    Ok(memory)
}

fn first(bytes: u64) -> GetOptions {
    GetOptions {
        range: Some(0..bytes),
        ..GetOptions::default()
    }
}

async fn xml(body: &str) -> Arc<dyn Store> {
    let length = body.len();
    store(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
    ))
    .await
}

#[tokio::test]
async fn a_body_shorter_than_its_range_is_cut_off() {
    let head = "206 X\r\ncontent-length: 5\r\ncontent-range: bytes 0-9/100";
    let error = get(head, "hello", first(10)).await.expect_err("5 of 10");
    assert_eq!(error.kind, ErrorKind::Interrupted, "{error}");
    let head = "204 X\r\ncontent-length: 5";
    let error = get(head, "", GetOptions::default()).await;
    assert_eq!(error.expect_err("0 of 5").kind, ErrorKind::Interrupted);
}

#[tokio::test]
async fn a_range_shorter_than_asked_for_is_refused() {
    let head = "206 X\r\ncontent-length: 5\r\ncontent-range: bytes 0-4/100";
    for options in [first(10), GetOptions::default()] {
        let error = get(head, "hello", options).await.expect_err("5 of 100");
        assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
    }
    let clipped = "206 X\r\ncontent-length: 5\r\ncontent-range: bytes 0-4/5";
    let body = get(clipped, "hello", first(10)).await;
    assert_eq!(body.expect("all there is"), b"hello");
}

#[tokio::test]
async fn a_failure_to_delete_is_not_lost_with_its_key() {
    let keys = [Key::new("a").expect("valid"), Key::new("b").expect("valid")];
    for key in ["<Key>c</Key>", ""] {
        let body = format!(
            "<DeleteResult><Error>{key}<Code>AccessDenied</Code><Message>no</Message></Error>\
             </DeleteResult>"
        );
        let outcome = xml(&body).await.delete_many(&keys).await;
        let error = outcome.expect_err("something is still there");
        assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
    }
}

#[tokio::test]
async fn a_listing_that_goes_in_circles_ends() {
    let body = "<ListBucketResult><IsTruncated>true</IsTruncated>\
        <NextContinuationToken>t</NextContinuationToken></ListBucketResult>";
    let store = xml(body).await;
    let page = store.list(ListOptions::default()).await.expect("a page");
    let again = ListOptions {
        continuation: page.continuation,
        ..ListOptions::default()
    };
    let error = store.list(again).await.expect_err("the same page");
    assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
}

#[tokio::test]
async fn a_listing_of_uploads_that_goes_in_circles_ends() {
    let body = "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>\
        <NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>i</NextUploadIdMarker>\
        </ListMultipartUploadsResult>";
    let store = xml(body).await;
    for prefix in ["", "p"] {
        let page = store.list_uploads(prefix, None).await.expect("a page");
        let again = page.continuation.as_deref();
        let error = store.list_uploads(prefix, again).await;
        let error = error.expect_err("the same page");
        assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
    }
}
