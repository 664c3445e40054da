//! What is said of every object that is written, as it goes over the wire.

use std::sync::{Arc, Mutex};

use penstock_base::{Payload, metrics::Registry};
use penstock_object::{
    CopyOptions, Description, Encryption, GetOptions, Key, ListOptions, ListVersion, PutOptions,
    Store, StoreSettings, WriteSettings, open,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

const COPIED: &str = "<CopyObjectResult><ETag>&quot;a&quot;</ETag></CopyObjectResult>";
const BEGUN: &str = "<InitiateMultipartUploadResult><UploadId>u</UploadId>\
                     </InitiateMultipartUploadResult>";

/// The heads of requests, in the order in which they came.
type Heads = Arc<Mutex<Vec<String>>>;

/// A store that notes what it is asked and gives one answer.
async fn store(scheme: &str, body: &str, settings: StoreSettings) -> (Arc<dyn Store>, Heads) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let heads = Heads::default();
    let (noted, length) = (Arc::clone(&heads), body.len());
    let answer =
        format!("HTTP/1.1 200 OK\r\netag: \"a\"\r\ncontent-length: {length}\r\n\r\n{body}");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 64 << 10];
            while let Ok(count @ 1..) = stream.read(&mut request).await {
                let text = String::from_utf8_lossy(&request[..count]).to_lowercase();
                noted.lock().expect("nobody panics").push(text);
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    });
    let mut settings = StoreSettings {
        endpoint: Some(format!("http://{address}")),
        anonymous: true,
        ..settings
    };
    settings.retry.attempts_max = 1;
    let url = format!("{scheme}://bucket").parse().expect("valid");
    let store = open(&url, &settings, &Registry::new()).expect("valid settings");
    (store, heads)
}

fn key(text: &str) -> Key {
    Key::new(text).expect("valid")
}

async fn put(store: &Arc<dyn Store>) {
    let put = store
        .put(&key("k"), Payload::new(), PutOptions::default())
        .await;
    put.expect("it is answered well");
}

fn last(heads: &Heads) -> String {
    let mut heads = heads.lock().expect("nobody panics");
    let last = heads.last().cloned().unwrap_or_default();
    heads.clear();
    last
}

#[track_caller]
fn assert_says(head: &str, lines: &[&str]) {
    for line in lines {
        assert!(
            head.contains(&format!("\r\n{line}\r\n")),
            "{line} in {head}"
        );
    }
}

fn settings(encryption: Encryption) -> StoreSettings {
    StoreSettings {
        requester_pays: true,
        writes: WriteSettings {
            encryption,
            storage_class: Some("IA".to_owned()),
            acl: Some("public-read".to_owned()),
            upload_limit: Some(819_200),
            download_limit: Some(900_000),
        },
        ..StoreSettings::default()
    }
}

#[tokio::test]
async fn every_object_of_s3_is_written_as_the_settings_say() {
    let kms = Encryption::Kms {
        key: Some("Key-1".to_owned()),
    };
    let common = [
        "x-amz-storage-class: ia",
        "x-amz-acl: public-read",
        "x-amz-request-payer: requester",
    ];
    let (store, heads) = store("s3", COPIED, settings(kms)).await;
    put(&store).await;
    let head = last(&heads);
    assert_says(&head, &common);
    assert_says(
        &head,
        &[
            "x-amz-server-side-encryption: aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id: key-1",
        ],
    );
    assert!(!head.contains("traffic-limit"));
    let options = CopyOptions {
        description: Some(Description::default()),
        ..CopyOptions::default()
    };
    let copied = store.copy(&key("k"), &key("k"), options).await;
    copied.expect("it is answered well");
    let head = last(&heads);
    assert_says(&head, &common);
    assert_says(&head, &["x-amz-metadata-directive: replace"]);
    let mut sink = Vec::new();
    let _ = store.get(&key("k"), GetOptions::default(), &mut sink).await;
    let head = last(&heads);
    assert!(
        !head.contains("encryption") && !head.contains("acl"),
        "{head}"
    );
}

#[tokio::test]
async fn every_object_of_oss_is_written_as_the_settings_say() {
    let mut chosen = settings(Encryption::Aes256);
    chosen.region = Some("cn-test".to_owned());
    let (store, heads) = store("oss", BEGUN, chosen).await;
    let begun = store.create_upload(&key("k"), PutOptions::default()).await;
    begun.expect("it is answered well");
    let head = last(&heads);
    assert_says(
        &head,
        &[
            "x-oss-storage-class: ia",
            "x-oss-object-acl: public-read",
            "x-oss-request-payer: requester",
            "x-oss-server-side-encryption: aes256",
        ],
    );
    assert!(!head.contains("traffic-limit"), "{head}");
    put(&store).await;
    assert_says(&last(&heads), &["x-oss-traffic-limit: 819200"]);
    let mut sink = Vec::new();
    let _ = store.get(&key("k"), GetOptions::default(), &mut sink).await;
    assert_says(&last(&heads), &["x-oss-traffic-limit: 900000"]);
}

#[tokio::test]
async fn a_class_of_all_that_is_written_is_stronger_than_that_of_the_object() {
    let metadata = [(":storage-class", "STANDARD_IA"), (":expires", "0")];
    let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let options = PutOptions {
        metadata: metadata.map(pair).into(),
        ..PutOptions::default()
    };
    for (settings, class) in [
        (settings(Encryption::ByStore), "x-amz-storage-class: ia"),
        (StoreSettings::default(), "x-amz-storage-class: standard_ia"),
    ] {
        let (store, heads) = store("s3", "", settings).await;
        let put = store.put(&key("k"), Payload::new(), options.clone()).await;
        put.expect("it is answered well");
        let head = last(&heads);
        assert_says(&head, &[class, "expires: 0"]);
        assert_eq!(head.matches("storage-class").count(), 1, "{head}");
    }
}

#[tokio::test]
async fn nothing_is_said_by_default() {
    let (store, heads) = store("s3", "", StoreSettings::default()).await;
    put(&store).await;
    let head = last(&heads);
    for word in [
        "encryption",
        "x-amz-acl",
        "storage-class",
        "payer",
        "traffic",
    ] {
        assert!(!head.contains(word), "{word} in {head}");
    }
}

#[tokio::test]
async fn listings_of_the_first_version_go_on_after_the_last_key() {
    let page = "<ListBucketResult><Marker></Marker><IsTruncated>true</IsTruncated>\
                <Contents><Key>a</Key><Size>1</Size><LastModified>2020-05-18T05:45:54.000Z\
                </LastModified></Contents></ListBucketResult>";
    let first_version = StoreSettings {
        listing: ListVersion::V1,
        ..StoreSettings::default()
    };
    let (store, heads) = store("s3", page, first_version).await;
    let page = store.list(ListOptions::default()).await;
    let continuation = page.expect("it is answered well").continuation;
    assert_eq!(continuation.as_deref(), Some("a"));
    assert!(!last(&heads).contains("list-type"));
    let options = ListOptions {
        start_after: Some("b".to_owned()),
        ..ListOptions::default()
    };
    store.list(options).await.expect("it is answered well");
    assert!(last(&heads).contains("marker=b"));
}
