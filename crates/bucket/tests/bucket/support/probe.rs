//! Counts requests on their way to a store, and makes some of them fail or wait.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use penstock_base::{Payload, clock};
use penstock_object::*;
use tokio::sync::Semaphore;

/// Counts requests, and makes some of them fail or wait.
#[derive(Debug)]
pub(crate) struct Probe {
    inner: Arc<dyn Store>,
    counts: Mutex<BTreeMap<&'static str, usize>>,
    faults: Mutex<Vec<Fault>>,
    holds: Mutex<Vec<Hold>>,
    waiting: AtomicUsize,
    /// Whether entries of a page come in reverse.
    disorder: AtomicBool,
    /// Whether pages come in reverse.
    disorder_of_pages: AtomicBool,
    /// Whether listings begin at their beginning wherever they are asked to.
    deaf: AtomicBool,
    slow: AtomicBool,
    /// The most pages that were ever asked for at once.
    most: AtomicUsize,
    inside: AtomicUsize,
}

#[derive(Debug, Clone)]
struct Hold {
    operation: Operation,
    /// Hold the answer back instead of the request.
    late: bool,
    permits: Arc<Semaphore>,
}

#[derive(Debug)]
struct Fault {
    operation: Operation,
    kind: ErrorKind,
    /// Requests to let through first.
    skip: usize,
    /// Requests to fail.
    times: usize,
    /// Fail after the request was carried out.
    late: bool,
}

impl Probe {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            counts: Mutex::default(),
            faults: Mutex::default(),
            holds: Mutex::default(),
            waiting: AtomicUsize::new(0),
            disorder: AtomicBool::new(false),
            disorder_of_pages: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
            slow: AtomicBool::new(false),
            most: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
        })
    }

    /// The requests since the last call, such as `get 1, list 2`.
    pub(crate) fn requests(&self) -> String {
        let counts = std::mem::take(&mut *self.counts.lock().unwrap());
        let counts: Vec<String> = counts
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        counts.join(", ")
    }

    /// Fails the next `times` requests of a kind.
    pub(crate) fn fail(&self, operation: Operation, kind: ErrorKind, times: usize) {
        self.fail_after(0, operation, kind, times);
    }

    /// Lets `skip` requests of a kind through and fails the next `times`.
    pub(crate) fn fail_after(
        &self,
        skip: usize,
        operation: Operation,
        kind: ErrorKind,
        times: usize,
    ) {
        let fault = Fault {
            operation,
            kind,
            skip,
            times,
            late: false,
        };
        self.faults.lock().unwrap().push(fault);
    }

    /// Lets `skip` requests of a kind through and fails the next one, carried out if `late`.
    pub(crate) fn plan(&self, skip: usize, operation: Operation, kind: ErrorKind, late: bool) {
        let fault = Fault {
            operation,
            kind,
            skip,
            times: 1,
            late,
        };
        self.faults.lock().unwrap().push(fault);
    }

    /// Lets everything succeed from now on.
    pub(crate) fn mend(&self) {
        self.faults.lock().unwrap().clear();
    }

    /// Carries out the next request of a kind and reports a failure all the same.
    pub(crate) fn fail_late(&self, operation: Operation, kind: ErrorKind) {
        let fault = Fault {
            operation,
            kind,
            skip: 0,
            times: 1,
            late: true,
        };
        self.faults.lock().unwrap().push(fault);
    }

    /// Lets requests of a kind wait until the semaphore has permits for them.
    pub(crate) fn hold(&self, operation: Operation) -> Arc<Semaphore> {
        self.add_hold(operation, false)
    }

    /// Carries out requests of a kind and holds their answers back until the semaphore has
    /// permits for them.
    pub(crate) fn hold_late(&self, operation: Operation) -> Arc<Semaphore> {
        self.add_hold(operation, true)
    }

    /// Lets later requests pass; those that wait go on waiting.
    pub(crate) fn release_all(&self) {
        self.holds.lock().unwrap().clear();
    }

    /// Lists in reverse from now on.
    pub(crate) fn disorder(&self) {
        self.disorder.store(true, Ordering::SeqCst);
    }

    /// Lists the last page first from now on, each in order.
    pub(crate) fn disorder_of_pages(&self) {
        self.disorder_of_pages.store(true, Ordering::SeqCst);
    }

    /// Lists from the beginning from now on, wherever a listing is asked to begin.
    pub(crate) fn deafen(&self) {
        self.deaf.store(true, Ordering::SeqCst);
    }

    /// Lets each page take a moment from now on.
    pub(crate) fn slow_pages(&self) {
        self.slow.store(true, Ordering::SeqCst);
    }

    /// The most slow pages that were ever asked for at once.
    pub(crate) fn most_pages(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    async fn measure(&self) {
        if !self.slow.load(Ordering::SeqCst) {
            return;
        }
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        penstock_base::clock::sleep(std::time::Duration::from_millis(1)).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    /// The page before the one that was asked for, or the last one.
    async fn reversed(&self, options: ListOptions) -> ObjectResult<ListPage> {
        let asked = options.continuation.clone();
        let first = ListOptions {
            continuation: None,
            ..options
        };
        let mut pages = vec![self.inner.list(first.clone()).await?];
        while let Some(continuation) = pages.last().and_then(|page| page.continuation.clone()) {
            let next = ListOptions {
                continuation: Some(continuation),
                ..first.clone()
            };
            pages.push(self.inner.list(next).await?);
        }
        let number = asked.map_or(0, |asked| asked.parse::<usize>().unwrap());
        let last = pages.len() - 1;
        let continuation = (number < last).then(|| (number + 1).to_string());
        let page = pages.swap_remove(last - number);
        Ok(ListPage {
            continuation,
            ..page
        })
    }

    /// Returns once a request is held.
    pub(crate) async fn until_held(&self) {
        while self.waiting() == 0 {
            clock::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Requests that are held now.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    fn add_hold(&self, operation: Operation, late: bool) -> Arc<Semaphore> {
        let permits = Arc::new(Semaphore::new(0));
        let hold = Hold {
            operation,
            late,
            permits: Arc::clone(&permits),
        };
        self.holds.lock().unwrap().push(hold);
        permits
    }

    async fn wait(&self, operation: Operation, late: bool) {
        let hold = {
            let holds = self.holds.lock().unwrap();
            holds
                .iter()
                .find(|hold| hold.operation == operation && hold.late == late)
                .cloned()
        };
        if let Some(hold) = hold {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            hold.permits.acquire().await.unwrap().forget();
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    async fn pass(&self, operation: Operation) -> ObjectResult<()> {
        *self
            .counts
            .lock()
            .unwrap()
            .entry(operation.name())
            .or_default() += 1;
        self.wait(operation, false).await;
        self.fault(operation, false)
    }

    fn fault(&self, operation: Operation, late: bool) -> ObjectResult<()> {
        let mut faults = self.faults.lock().unwrap();
        let planned = faults
            .iter_mut()
            .find(|fault| fault.operation == operation && fault.times > 0 && fault.late == late);
        match planned {
            Some(fault) if fault.skip > 0 => fault.skip -= 1,
            Some(fault) => {
                fault.times -= 1;
                return Err(ObjectError::new(fault.kind, operation, "made to fail"));
            }
            None => {}
        }
        Ok(())
    }

    async fn end<T>(&self, operation: Operation, outcome: ObjectResult<T>) -> ObjectResult<T> {
        self.wait(operation, true).await;
        self.fault(operation, true)?;
        outcome
    }
}

#[async_trait]
impl Store for Probe {
    fn below(&self) -> Below<'_> {
        Below::Store(&*self.inner)
    }

    async fn head(&self, key: &Key, options: HeadOptions) -> ObjectResult<ObjectInfo> {
        self.pass(Operation::Head).await?;
        let outcome = self.inner.head(key, options).await;
        self.end(Operation::Head, outcome).await
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        self.pass(Operation::Get).await?;
        let outcome = self.inner.get(key, options, sink).await;
        self.end(Operation::Get, outcome).await
    }

    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        self.pass(Operation::Put).await?;
        let outcome = self.inner.put(key, body, options).await;
        self.end(Operation::Put, outcome).await
    }

    async fn append(
        &self,
        key: &Key,
        position: u64,
        body: Payload,
        options: PutOptions,
    ) -> ObjectResult<Appended> {
        self.pass(Operation::Append).await?;
        let outcome = self.inner.append(key, position, body, options).await;
        self.end(Operation::Append, outcome).await
    }

    async fn copy(&self, source: &Key, target: &Key, options: CopyOptions) -> ObjectResult<Stored> {
        self.pass(Operation::Copy).await?;
        let outcome = self.inner.copy(source, target, options).await;
        self.end(Operation::Copy, outcome).await
    }

    async fn delete(&self, key: &Key) -> ObjectResult<()> {
        self.pass(Operation::Delete).await?;
        let outcome = self.inner.delete(key).await;
        self.end(Operation::Delete, outcome).await
    }

    async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        self.pass(Operation::DeleteMany).await?;
        let outcome = self.inner.delete_many(keys).await;
        self.end(Operation::DeleteMany, outcome).await
    }

    async fn list(&self, mut options: ListOptions) -> ObjectResult<ListPage> {
        self.measure().await;
        if self.deaf.load(Ordering::SeqCst) {
            options.start_after = None;
        }
        self.pass(Operation::List).await?;
        let reverse = self.disorder_of_pages.load(Ordering::SeqCst);
        let mut outcome = if reverse {
            self.reversed(options).await
        } else {
            self.inner.list(options).await
        };
        if let Ok(page) = &mut outcome
            && self.disorder.load(Ordering::SeqCst)
        {
            page.objects.reverse();
            page.common_prefixes.reverse();
        }
        self.end(Operation::List, outcome).await
    }

    async fn create_upload(&self, key: &Key, options: PutOptions) -> ObjectResult<UploadId> {
        self.pass(Operation::CreateUpload).await?;
        let outcome = self.inner.create_upload(key, options).await;
        self.end(Operation::CreateUpload, outcome).await
    }

    async fn upload_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        body: Payload,
    ) -> ObjectResult<Part> {
        self.pass(Operation::UploadPart).await?;
        let outcome = self.inner.upload_part(key, upload, number, body).await;
        self.end(Operation::UploadPart, outcome).await
    }

    async fn copy_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        copy: PartCopy,
    ) -> ObjectResult<Part> {
        self.pass(Operation::CopyPart).await?;
        let outcome = self.inner.copy_part(key, upload, number, copy).await;
        self.end(Operation::CopyPart, outcome).await
    }

    async fn complete_upload(
        &self,
        key: &Key,
        upload: &UploadId,
        parts: &[Part],
        options: CompleteOptions,
    ) -> ObjectResult<Stored> {
        self.pass(Operation::CompleteUpload).await?;
        let outcome = self
            .inner
            .complete_upload(key, upload, parts, options)
            .await;
        self.end(Operation::CompleteUpload, outcome).await
    }

    async fn abort_upload(&self, key: &Key, upload: &UploadId) -> ObjectResult<()> {
        self.pass(Operation::AbortUpload).await?;
        let outcome = self.inner.abort_upload(key, upload).await;
        self.end(Operation::AbortUpload, outcome).await
    }

    async fn list_uploads(
        &self,
        prefix: &str,
        continuation: Option<&str>,
    ) -> ObjectResult<UploadPage> {
        self.pass(Operation::ListUploads).await?;
        let outcome = self.inner.list_uploads(prefix, continuation).await;
        self.end(Operation::ListUploads, outcome).await
    }

    async fn put_symlink(
        &self,
        key: &Key,
        target: &Key,
        options: PutOptions,
    ) -> ObjectResult<Stored> {
        self.pass(Operation::PutSymlink).await?;
        let outcome = self.inner.put_symlink(key, target, options).await;
        self.end(Operation::PutSymlink, outcome).await
    }

    async fn get_symlink(&self, key: &Key) -> ObjectResult<Key> {
        self.pass(Operation::GetSymlink).await?;
        let outcome = self.inner.get_symlink(key).await;
        self.end(Operation::GetSymlink, outcome).await
    }
}
