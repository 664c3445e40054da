//! Every layer and all together keep the contracts of the store within.

use tempfile::TempDir;

use super::*;

/// A store in a directory.
fn local() -> (TempDir, Arc<dyn Store>) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let settings = LocalSettings {
        durable: false,
        ..LocalSettings::default()
    };
    let store = LocalStore::open(directory.path(), settings).expect("the bucket opens");
    (directory, Arc::new(store))
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

fn all(store: Arc<dyn Store>) -> Arc<dyn Store> {
    let settings = RetrySettings::default();
    standard(store, 16, &settings, &Registry::default())
}

mod metered {
    use super::*;

    async fn open() -> ((), Arc<dyn Store>) {
        ((), Arc::new(Metered::new(memory(), &Registry::default())))
    }

    penstock_object_testing::conformance_tests!(open);
}

mod deadline {
    use super::*;

    async fn open() -> ((), Arc<dyn Store>) {
        (
            (),
            Arc::new(Deadline::new(memory(), Duration::from_secs(60))),
        )
    }

    penstock_object_testing::conformance_tests!(open);
}

mod retry {
    use super::*;

    async fn open() -> ((), Arc<dyn Store>) {
        ((), Arc::new(Retry::new(memory(), 3, &Registry::default())))
    }

    penstock_object_testing::conformance_tests!(open);
}

mod concurrency {
    use super::*;

    async fn open() -> ((), Arc<dyn Store>) {
        ((), Arc::new(ConcurrencyLimit::new(memory(), 2)))
    }

    penstock_object_testing::conformance_tests!(open);
}

mod faultless {
    use super::*;

    async fn open() -> ((), Arc<dyn Store>) {
        ((), Arc::new(Faulty::new(memory(), Faults::new(1))))
    }

    penstock_object_testing::conformance_tests!(open);
}

mod standard_over_memory {
    use super::*;

    async fn open() -> ((), Arc<dyn Store>) {
        ((), Arc::new(Prefixed::new(all(memory()), "mounted/")))
    }

    penstock_object_testing::conformance_tests!(open);
}

mod standard_over_local {
    use super::*;

    async fn open() -> (TempDir, Arc<dyn Store>) {
        let (directory, store) = local();
        (directory, Arc::new(Prefixed::new(all(store), "mounted/")))
    }

    penstock_object_testing::conformance_tests!(open);
}

/// Faults all the time, and still every contract is kept.
mod standard_over_faults {
    use super::*;

    fn trouble() -> Arc<Faults> {
        let faults = Faults::new(7);
        faults.rate(None, 0.05, Fault::fail(ErrorKind::Throttled));
        for operation in Operation::ALL {
            // An upload whose name got lost stays behind, as documented.
            if operation != Operation::CreateUpload {
                let lost = Fault::LoseAnswer(ErrorKind::Interrupted);
                faults.rate(Some(operation), 0.1, lost);
            }
        }
        faults
    }

    mod memory {
        use super::{super::*, trouble};

        async fn open() -> ((), Arc<dyn Store>) {
            (
                (),
                all(Arc::new(Faulty::new(super::super::memory(), trouble()))),
            )
        }

        penstock_object_testing::conformance_tests!(open);
    }

    mod local {
        use super::{super::*, trouble};

        async fn open() -> (TempDir, Arc<dyn Store>) {
            let (directory, store) = super::super::local();
            (directory, all(Arc::new(Faulty::new(store, trouble()))))
        }

        penstock_object_testing::conformance_tests!(open);
    }
}

/// Reads go to an endpoint of their own that leads to the same objects and fails in every way.
mod split_over_faults {
    use super::*;

    async fn open() -> ((), Arc<dyn Store>) {
        let main = memory();
        let faults = Faults::new(11);
        for fault in [
            Fault::fail(ErrorKind::Throttled),
            Fault::Cut { after: 3 },
            Fault::fail(ErrorKind::Unavailable),
        ] {
            faults.rate(Some(Operation::Get), 0.2, fault);
        }
        let reads = Arc::new(Faulty::new(Arc::clone(&main), faults));
        ((), all(Arc::new(Split::new(main, reads, &Registry::new()))))
    }

    penstock_object_testing::conformance_tests!(open);
}

/// Reads go to an endpoint of their own that has none of the objects.
mod split_over_nothing {
    use super::*;

    async fn open() -> ((), Arc<dyn Store>) {
        let split = Split::new(memory(), memory(), &Registry::new());
        ((), all(Arc::new(split)))
    }

    penstock_object_testing::conformance_tests!(open);
}

/// The suite as one function, each contract under a prefix of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_contracts_can_share_a_bucket() {
    let bucket = memory();
    penstock_object_testing::conformance::all(&bucket).await;
}
