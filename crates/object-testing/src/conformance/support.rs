//! What contracts are written with.

use std::{fmt::Debug, mem::MaybeUninit, sync::Arc};

use bytes::Bytes;
use penstock_base::Payload;

use penstock_object::{
    BodySink, ErrorKind, GetOptions, Got, HeadOptions, Key, ListOptions, ListPage, ObjectInfo,
    ObjectResult, PutOptions, Store, Stored, WriteCondition,
};

/// Pages that a contract follows before it gives up on a listing that never ends.
const PAGES_MAX: usize = 10_000;

pub(super) fn key(text: &str) -> Key {
    Key::new(text).expect("contracts use valid keys")
}

/// `length` bytes that differ from place to place and from seed to seed.
pub(super) fn pattern(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut bytes = Vec::with_capacity(length);
    for _ in 0..length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.push((state >> 24) as u8);
    }
    bytes
}

/// `bytes` in slices of `piece` bytes.
pub(super) fn sliced(bytes: &[u8], piece: usize) -> Payload {
    let mut payload = Payload::new();
    for slice in bytes.chunks(piece) {
        payload.push(Bytes::copy_from_slice(slice));
    }
    payload
}

pub(super) async fn put(store: &Arc<dyn Store>, name: &str, body: &[u8]) -> Stored {
    let payload = Payload::from(body.to_vec());
    let stored = store.put(&key(name), payload, PutOptions::default()).await;
    stored.expect("a plain put succeeds")
}

pub(super) async fn read(store: &Arc<dyn Store>, name: &str) -> Vec<u8> {
    read_with(store, name, GetOptions::default()).await.1
}

pub(super) async fn read_with(
    store: &Arc<dyn Store>,
    name: &str,
    options: GetOptions,
) -> (Got, Vec<u8>) {
    let mut body = Vec::new();
    let got = store.get(&key(name), options, &mut body).await;
    (got.expect("the object can be read"), body)
}

pub(super) async fn try_read(
    store: &Arc<dyn Store>,
    name: &str,
    options: GetOptions,
) -> ObjectResult<Got> {
    store.get(&key(name), options, &mut Vec::new()).await
}

pub(super) async fn head(store: &Arc<dyn Store>, name: &str) -> ObjectResult<ObjectInfo> {
    store.head(&key(name), HeadOptions::default()).await
}

pub(super) async fn exists(store: &Arc<dyn Store>, name: &str) -> bool {
    match head(store, name).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::NotFound, "head of `{name}`: {error}");
            false
        }
    }
}

/// Every page of a listing.
pub(super) async fn pages(store: &Arc<dyn Store>, options: &ListOptions) -> Vec<ListPage> {
    let mut options = options.clone();
    let mut pages = Vec::new();
    loop {
        let page = store.list(options.clone()).await.expect("listing works");
        options.continuation.clone_from(&page.continuation);
        pages.push(page);
        if options.continuation.is_none() {
            return pages;
        }
        assert!(pages.len() < PAGES_MAX, "the listing never ends");
    }
}

/// The keys of a listing over all its pages.
pub(super) async fn keys(store: &Arc<dyn Store>, options: &ListOptions) -> Vec<String> {
    let pages = pages(store, options).await;
    let objects = pages.into_iter().flat_map(|page| page.objects);
    objects.map(|object| object.key).collect()
}

/// The keys under `prefix`.
pub(super) async fn keys_under(store: &Arc<dyn Store>, prefix: &str) -> Vec<String> {
    let options = ListOptions {
        prefix: prefix.to_owned(),
        ..ListOptions::default()
    };
    keys(store, &options).await
}

pub(super) fn only_if_absent() -> PutOptions {
    PutOptions {
        condition: WriteCondition::IfAbsent,
        ..PutOptions::default()
    }
}

pub(super) fn assert_fails<T: Debug>(result: ObjectResult<T>, kind: ErrorKind, what: &str) {
    let error = result.expect_err(what);
    assert_eq!(error.kind, kind, "{what}: {error}");
}

/// A sink that remembers how it was used and hands out little memory.
pub(super) struct Recorder {
    pub(super) body: Vec<u8>,
    pub(super) begun: Vec<Got>,
    /// Bytes that it hands out at once.
    pub(super) piece: usize,
    /// Bytes that it takes in all.
    pub(super) limit: usize,
}

impl Recorder {
    pub(super) fn new(piece: usize, limit: usize) -> Self {
        Self {
            body: Vec::new(),
            begun: Vec::new(),
            piece,
            limit,
        }
    }
}

// SAFETY: `unfilled` is the same memory until it is advanced over.
#[allow(unsafe_code)]
unsafe impl BodySink for Recorder {
    fn begin(&mut self, got: &Got) {
        assert!(self.body.is_empty(), "begin comes before the first byte");
        self.begun.push(got.clone());
    }

    fn filled(&self) -> u64 {
        self.body.len() as u64
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        let room = self.piece.min(self.limit - self.body.len());
        let memory = self.body.unfilled();
        let room = room.min(memory.len());
        &mut memory[..room]
    }

    unsafe fn advance(&mut self, count: usize) {
        assert!(count <= self.piece, "advanced past what was handed out");
        // SAFETY: the caller initialised `count` bytes of what `unfilled` returned, which is the
        // front of the vector's own unfilled memory.
        unsafe { self.body.advance(count) }
    }
}
