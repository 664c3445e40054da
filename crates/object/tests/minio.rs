//! The S3 backend against a MinIO server, over a real socket.
//!
//! The server is found in `PENSTOCK_TEST_MINIO`, on the `PATH` or in `~/go/bin`; without one
//! these tests only say that they were skipped.

#![allow(clippy::disallowed_methods)]

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use penstock_base::{Secret, clock, metrics::Registry};
use penstock_object::{
    Store, StoreSettings,
    credentials::{CredentialSettings, Credentials},
    open, open_backend,
};
use tempfile::TempDir;

const KEY_ID: &str = "penstock-test";
const SECRET: &str = "penstock-test-secret";

/// How long the server may take to start on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that is stopped when the last test that uses it ends.
struct Minio {
    process: Child,
    directory: TempDir,
    endpoint: String,
    buckets: AtomicU32,
}

impl Drop for Minio {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("PENSTOCK_TEST_MINIO").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join("minio"));
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    named
        .into_iter()
        .chain(on_path)
        .chain([home.join("go/bin/minio")])
        .find(|candidate| candidate.is_file())
}

impl Minio {
    /// The server that runs already, or a new one.
    async fn shared(binary: &Path) -> Arc<Self> {
        static RUNNING: Mutex<Weak<Minio>> = Mutex::new(Weak::new());
        let server = {
            let mut running = RUNNING.lock().expect("no test panics in here");
            match running.upgrade() {
                Some(server) => server,
                None => {
                    let server = Arc::new(Self::start(binary));
                    *running = Arc::downgrade(&server);
                    server
                }
            }
        };
        clock::deadline(START_TIMEOUT, server.answers())
            .await
            .expect("the server starts");
        server
    }

    fn start(binary: &Path) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("bound").to_string();
        drop(free);
        let process = Command::new(binary)
            .args(["server", "--quiet", "--address", &address])
            .arg(directory.path())
            .env_clear()
            .env("HOME", directory.path())
            .env("MINIO_ROOT_USER", KEY_ID)
            .env("MINIO_ROOT_PASSWORD", SECRET)
            .env("MINIO_BROWSER", "off")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server can be run");
        Self {
            process,
            directory,
            endpoint: format!("http://{address}"),
            buckets: AtomicU32::new(0),
        }
    }

    async fn answers(&self) {
        let address = self.endpoint.trim_start_matches("http://");
        while tokio::net::TcpStream::connect(address).await.is_err() {
            clock::sleep(Duration::from_millis(50)).await;
        }
        let url = format!("s3://{}", self.bucket());
        let url = url.parse().expect("a valid URL");
        // While it starts it asks for patience, which a store with its layers would have.
        let store = open_backend(&url, &self.settings(), &Registry::new());
        let store = store.expect("valid settings");
        while store.list(Default::default()).await.is_err() {
            clock::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A new bucket: on a single disk it is a directory.
    fn bucket(&self) -> String {
        let name = format!("bucket-{}", self.buckets.fetch_add(1, Ordering::Relaxed));
        std::fs::create_dir(self.directory.path().join(&name)).expect("a new directory");
        name
    }

    fn settings(&self) -> StoreSettings {
        StoreSettings {
            endpoint: Some(self.endpoint.clone()),
            credentials: CredentialSettings {
                fixed: Some(Credentials {
                    key_id: KEY_ID.to_owned(),
                    secret: Secret::new(SECRET),
                    token: None,
                    expires: None,
                }),
                ..CredentialSettings::default()
            },
            ..StoreSettings::default()
        }
    }

    fn store(&self, bucket: &str, settings: &StoreSettings) -> Arc<dyn Store> {
        let url = format!("s3://{bucket}").parse().expect("a valid URL");
        open(&url, settings, &Registry::new()).expect("valid settings")
    }
}

async fn server() -> Option<Arc<Minio>> {
    match binary() {
        Some(binary) => Some(Minio::shared(&binary).await),
        None => {
            penstock_skips::skipped("no minio in PENSTOCK_TEST_MINIO, on the PATH or in ~/go/bin");
            None
        }
    }
}

async fn bucket() -> Option<(Arc<Minio>, Arc<dyn Store>)> {
    let server = server().await?;
    let store = server.store(&server.bucket(), &server.settings());
    Some((server, store))
}

// Left out is what MinIO cannot keep: a key that is also a prefix of other keys (in the listing
// contracts too), empty and dot components, and components of more than 255 bytes.
penstock_object_testing::conformance_tests!(
    bucket,
    except dot_components_are_kept,
    empty_components_are_kept,
    long_keys_are_kept,
    a_key_may_be_a_prefix_of_others,
    keys_may_look_like_a_stores_own_names,
    listings_are_in_byte_order,
    listings_keep_to_the_prefix,
    delimited_listings_roll_up,
    listings_page_without_gaps,
    listings_start_after_a_key,
    a_key_is_listed_next_to_its_prefix
);
