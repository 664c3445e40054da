//! Operations of which the engine said that it did not hear of them in time, and that it makes later: garbage that such a one
//! refers to is none any more.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::clock;
use penstock_fileset::{
    check::check,
    engine::{
        Engine, EngineError, EngineResult, Operation, Query, Reads, Transaction, Verdict, Visitor,
    },
};
use penstock_vfs::{Inode, OpenOptions, RemoveKind, Volume, WritePlace};

use support::{Place, ROOT, file, name};

/// An engine that is late with one operation: it says so, as an engine on a database does, and makes it with the next sync.
#[derive(Debug)]
struct Late {
    inner: Arc<dyn Engine>,
    /// The next operation that writes a chunk of this file is the one.
    file: Mutex<Option<Inode>>,
    late: Mutex<Option<Shared>>,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Operation>>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl Late {
    fn is_made(&self) -> bool {
        self.file.lock().unwrap().is_none() && self.late.lock().unwrap().is_none()
    }
}

/// Notes whether a chunk of a file is written.
struct Watched<'a> {
    below: &'a mut dyn Transaction,
    prefix: Vec<u8>,
    is_it: bool,
}

impl Reads for Watched<'_> {
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        self.below.get(key)
    }

    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        self.below.scan(range, visit)
    }
}

impl Transaction for Watched<'_> {
    fn put(&mut self, key: &[u8], value: Bytes) {
        self.is_it |= key.starts_with(&self.prefix);
        self.below.put(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.below.delete(key);
    }
}

#[async_trait]
impl Engine for Late {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        self.inner.run_query(query).await
    }

    async fn run(&self, operation: Operation) -> EngineResult<()> {
        let Some(file) = *self.file.lock().unwrap() else {
            return self.inner.run(operation).await;
        };
        let shared = Shared(Arc::new(Mutex::new(operation)));
        let (again, is_late) = (shared.clone(), Arc::new(AtomicBool::new(false)));
        let noted = Arc::clone(&is_late);
        let prefix = [&b"C"[..], &file.0.to_be_bytes()].concat();
        let watched = move |below: &mut dyn Transaction| {
            let mut watched = Watched {
                below,
                prefix: prefix.clone(),
                is_it: false,
            };
            let verdict = (shared.0.lock().unwrap())(&mut watched);
            match watched.is_it {
                true => {
                    noted.store(true, Ordering::SeqCst);
                    Verdict::Discard
                }
                false => verdict,
            }
        };
        self.inner.run(Box::new(watched)).await?;
        if is_late.load(Ordering::SeqCst) {
            *self.file.lock().unwrap() = None;
            *self.late.lock().unwrap() = Some(again);
            return Err(EngineError::Database("not done within 60s".to_owned()));
        }
        Ok(())
    }

    async fn sync(&self) -> EngineResult<()> {
        let late = self.late.lock().unwrap().take();
        if let Some(Shared(late)) = late {
            let make = move |below: &mut dyn Transaction| (late.lock().unwrap())(below);
            self.inner.run(Box::new(make)).await?;
        }
        self.inner.sync().await
    }

    async fn close(&self) -> EngineResult<()> {
        self.inner.close().await
    }
}

/// Two files are saved into one object. The operation of the one is late, and the other one is removed meanwhile: with that
/// the object is garbage until the late one is made, between the look at garbage and its deletion.
#[tokio::test]
async fn an_object_to_which_a_late_operation_refers_is_not_deleted() {
    let mut made = None;
    let place = Place::around(|inner| {
        let late = Arc::new(Late {
            inner,
            file: Mutex::new(None),
            late: Mutex::new(None),
        });
        made = Some(Arc::clone(&late));
        late
    })
    .await;
    let late = made.unwrap();
    let mut handles = Vec::new();
    for (number, text) in ["first", "removed", "kept"].into_iter().enumerate() {
        let inode = place.make(ROOT, text, file(0o644)).await.unwrap();
        let handle = place.open(inode, OpenOptions::WRITE).await.unwrap();
        let bytes = [number as u8 + 1; 100];
        let written = place.write(handle, WritePlace::At(0), &bytes).await;
        written.unwrap();
        handles.push((inode, handle));
    }
    let (removed, kept) = (handles[1], handles[2].0);
    *late.file.lock().unwrap() = Some(kept);
    // Saves all at once; the one that is late is told.
    let taken = place.volume.take_snapshot(&name("in-vain")).await;
    assert!(taken.is_err(), "{taken:?}");
    assert!(late.late.lock().unwrap().is_some());
    let gone = place.remove(ROOT, "removed", RemoveKind::File).await;
    gone.unwrap();
    place.volume.release(removed.1).await;
    place.forget_all(removed.0);
    place.until(async || late.is_made()).await;
    clock::sleep(Duration::from_millis(200)).await;
    let report = check(&*place.engine, &*place.bucket, None).await.unwrap();
    assert!(report.is_clean(), "{report:#?}");
}
