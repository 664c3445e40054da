//! Objects of an encrypted bucket as anybody may write them: an error for whoever reads them, and no bytes.

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use penstock_base::Payload;
use penstock_object::{
    GetOptions, HeadOptions, Key, ListOptions, PutOptions, Store,
    sealed::{DataKey, Sealed, plain_length},
};
use penstock_object_testing::MemoryStore;

static KEY: LazyLock<DataKey> = LazyLock::new(|| DataKey::random().expect("random bytes"));

async fn look(bytes: &[u8]) {
    let bucket: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let key = Key::new("object").expect("a valid key");
    let payload = Payload::from(bytes.to_vec());
    let put = bucket.put(&key, payload, PutOptions::default());
    put.await.expect("memory takes it");
    let sealed = Sealed::new(bucket, KEY.clone(), 1 << 20);
    for start in [None, Some(0), Some(70_000), Some(u64::MAX - 1)] {
        let options = GetOptions {
            range: start.map(|start| start..u64::MAX),
            ..GetOptions::default()
        };
        let mut read = Vec::new();
        let got = sealed.get(&key, options, &mut read).await;
        assert!(got.is_err() && read.is_empty());
    }
    let head = sealed.head(&key, HeadOptions {}).await;
    assert_eq!(head.ok().map(|info| info.size), plain_length(bytes.len() as u64));
    let page = sealed.list(ListOptions::default()).await;
    assert_eq!(page.expect("it lists").objects.len(), 1);
}

fuzz_target!(|bytes: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(look(bytes));
});
