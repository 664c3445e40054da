//! The S3 backend over HTTPS against the development server, whose side of TLS is rustls' own.

use std::{net::Ipv4Addr, sync::Arc};

use futures_util::future::join_all;
use penstock_base::{Payload, Secret, metrics::Registry};
use penstock_devserver::{Identity, Server, Settings};
use penstock_object::{
    Key, PutOptions, Store, StoreSettings,
    credentials::{CredentialSettings, Credentials},
    open,
};
use tempfile::NamedTempFile;

const BUCKET: &str = "test-bucket";

/// Files that are stored at a time.
const TOGETHER: usize = 16;

struct Bed {
    server: Server,
    store: Arc<dyn Store>,
    _ca_file: NamedTempFile,
}

impl Bed {
    fn new() -> Self {
        let identity = Identity::generate(Ipv4Addr::LOCALHOST.into()).expect("an identity");
        let ca_file = NamedTempFile::new().expect("a file");
        std::fs::write(ca_file.path(), identity.authority()).expect("written");
        let server = Server::start(Settings {
            identity: Some(identity),
            ..Settings::with_bucket(BUCKET)
        });
        let server = server.expect("a port is free");
        let credentials = Credentials {
            key_id: "key".to_owned(),
            secret: Secret::new("secret"),
            token: None,
            expires: None,
        };
        let settings = StoreSettings {
            endpoint: Some(server.url()),
            region: Some("test-region".to_owned()),
            ca_file: Some(ca_file.path().to_owned()),
            credentials: CredentialSettings {
                fixed: Some(credentials),
                ..CredentialSettings::default()
            },
            ..StoreSettings::default()
        };
        let url = format!("s3://{BUCKET}").parse().expect("valid");
        let store = open(&url, &settings, &Registry::new()).expect("valid settings");
        Self {
            server,
            store,
            _ca_file: ca_file,
        }
    }

    async fn put(&self, name: String) {
        let key = Key::new(name).expect("valid");
        let body = Payload::from(vec![7; 1000]);
        let put = self.store.put(&key, body, PutOptions::default());
        put.await.expect("it is stored");
    }
}

#[tokio::test]
async fn small_files_pay_a_handshake_for_each_connection_and_not_for_each_file() {
    let bed = Bed::new();
    for index in 0..50 {
        bed.put(format!("one/{index}")).await;
    }
    let counters = bed.server.counters();
    assert_eq!((counters.handshakes, counters.resumptions), (1, 0));
    for round in 0..4 {
        let puts = (0..TOGETHER).map(|index| bed.put(format!("{round}/{index}")));
        join_all(puts).await;
    }
    let counters = bed.server.counters();
    let shaken = counters.handshakes + counters.resumptions;
    assert_eq!(shaken, counters.connections, "{counters:?}");
    assert!(shaken <= TOGETHER as u64, "{counters:?}");
    assert!(
        counters.connections == 1 || counters.resumptions > 0,
        "tickets are used: {counters:?}"
    );
}
