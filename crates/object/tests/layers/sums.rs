//! A body is summed up once on its way.

use async_trait::async_trait;
use penstock_base::{Checksum, Mutex};

use super::*;

/// A store that asks the sink for its sum when the body is there.
#[derive(Debug)]
struct Asking {
    inner: Arc<dyn Store>,
    heard: Mutex<Vec<Option<Checksum>>>,
}

#[async_trait]
impl Store for Asking {
    fn below(&self) -> Below<'_> {
        Below::Store(&*self.inner)
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let got = self.inner.get(key, options, sink).await;
        self.heard.lock().push(sink.summed());
        got
    }
}

#[tokio::test]
async fn a_store_need_not_sum_up_what_the_layers_around_it_do() {
    let asking = Arc::new(Asking {
        inner: Arc::new(MemoryStore::new()),
        heard: Mutex::default(),
    });
    put(&*asking, "a", b"123456789").await;
    let stores = [asking.clone() as Arc<dyn Store>, asking.clone()];
    let [main, reads] = stores;
    let split = Arc::new(Split::new(main, reads, &Registry::default()));
    let store = standard(split, 16, &RetrySettings::default(), &Registry::default());
    assert_eq!(read(&*store, "a").await.expect("it is there"), b"123456789");
    let options = GetOptions {
        range: Some(1..3),
        ..GetOptions::default()
    };
    let got = store.get(&key("a"), options, &mut Vec::new()).await;
    got.expect("it is there");
    let whole = store.head(&key("a"), HeadOptions {}).await;
    let whole = whole.expect("it is there").checksum;
    assert!(whole.is_some());
    assert_eq!(*asking.heard.lock(), [whole, None]);
}
