//! What a server sends once hands are shaken, over a real socket: what a client reads of it was sealed, in order, and whole
//! only if the server said so.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use penstock_object::fuzzing::TlsPeers;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::NamedTempFile;
use tokio::runtime::{Builder, Runtime};

static PEERS: LazyLock<TlsPeers> = LazyLock::new(|| {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let file = NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), cert.pem()).expect("written");
    TlsPeers::new(cert.der(), &signing_key.into(), file.path())
});

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
});

fuzz_target!(|script: &[u8]| RUNTIME.block_on(PEERS.play(script)));
