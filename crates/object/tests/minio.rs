//! The S3 backend against a MinIO server, over a real socket.
//!
//! The server is found in `PENSTOCK_TEST_MINIO`, on the `PATH` or in `~/go/bin`; without one
//! these tests only say that they were skipped.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

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
    Store, StoreSettings, conformance as contracts,
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
            println!("skipped: no minio in PENSTOCK_TEST_MINIO, on the PATH or in ~/go/bin");
            None
        }
    }
}

macro_rules! contracts {
    ($($contract:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $contract() {
                let Some(server) = server().await else { return };
                let store = server.store(&server.bucket(), &server.settings());
                contracts::$contract(&store).await;
            }
        )+
    };
}

// Left out is what MinIO cannot keep: a key that is also a prefix of other keys (in the listing
// contracts too), empty and dot components, and components of more than 255 bytes.
contracts!(
    get_returns_what_was_put,
    what_is_missing_is_not_found,
    head_describes_the_object,
    a_sink_learns_what_it_receives,
    ranges_deliver_their_bytes_and_are_clipped,
    ranges_beyond_the_end_are_refused,
    reads_can_be_pinned_to_a_version,
    empty_objects_are_objects,
    a_full_sink_ends_the_read,
    sinks_may_hand_out_memory_in_pieces,
    metadata_comes_back,
    overwriting_replaces_everything,
    other_content_has_another_tag,
    a_write_can_insist_on_a_free_key,
    a_write_can_insist_on_a_version,
    concurrent_puts_leave_one_whole_body,
    a_dropped_put_is_whole_or_nothing,
    printable_keys_are_kept,
    copies_have_content_and_metadata,
    copies_can_be_pinned_to_a_version,
    a_copy_can_insist_on_a_free_key,
    deleting_is_idempotent,
    many_are_deleted_at_once,
    listings_describe_objects,
    delimited_listings_page_without_gaps,
    a_listing_goes_on_when_its_last_key_is_gone,
    parts_become_an_object,
    parts_can_be_sent_again,
    parts_can_be_copied,
    nothing_is_visible_before_completion,
    completion_refuses_what_does_not_fit,
    small_parts_are_refused_where_the_store_says_so,
    completion_can_insist_on_a_free_key,
    aborting_is_idempotent,
    finished_uploads_are_gone,
    unfinished_uploads_are_listed,
    appends_grow_an_object,
    appends_check_the_position,
    only_appendable_objects_grow,
    links_lead_to_their_target,
    links_are_replaced_and_deleted_like_objects,
);
