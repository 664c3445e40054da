//! Sealed objects: what comes out is what went in, or an error.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{Payload, metrics::Registry};
use penstock_object::{
    ErrorKind, GetOptions, Got, HeadOptions, Key, ListOptions, ObjectResult, Operation, PutOptions,
    RetrySettings, Store, WriteCondition,
    layers::standard,
    sealed::{DataKey, FRAME_PLAIN, Sealed, UserKey, sealed_length},
};
use penstock_object_testing::{Fault, Faults, Faulty, MemoryStore};
use proptest::{prelude::*, sample::Index};

const MEMORY: u64 = 1 << 20;
const FRAME: usize = FRAME_PLAIN as usize;
/// The same with what is added to it.
const SEALED: usize = FRAME + 32;

async fn open() -> ((), Arc<dyn Store>) {
    let key = DataKey::random().unwrap();
    let bucket = Arc::new(MemoryStore::new());
    ((), Arc::new(Sealed::new(bucket, key, MEMORY)))
}

mod contracts {
    use super::open;

    penstock_object_testing::conformance_tests!(
        open,
        except a_write_can_insist_on_a_version,
        copies_have_content_and_metadata,
        copies_can_be_described_anew,
        copies_can_be_pinned_to_a_version,
        a_copy_can_insist_on_a_free_key,
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
    );
}

/// A bucket, and how one with the key sees it.
struct Pair {
    bucket: Arc<dyn Store>,
    sealed: Sealed,
    key: DataKey,
}

impl Pair {
    fn new() -> Self {
        let bucket: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let key = DataKey::random().unwrap();
        let sealed = Sealed::new(Arc::clone(&bucket), key.clone(), MEMORY);
        Self {
            bucket,
            sealed,
            key,
        }
    }

    /// What the bucket has under a name after a body was written there.
    async fn sealed(&self, name: &str, body: &[u8]) -> Vec<u8> {
        put(&self.sealed, name, body).await;
        read(&*self.bucket, name, None).await.unwrap().1
    }

    /// Puts bytes into the bucket itself, and reads a range of what they are sealed for.
    async fn read_of(
        &self,
        bytes: &[u8],
        range: Option<std::ops::Range<u64>>,
    ) -> ObjectResult<Vec<u8>> {
        put(&*self.bucket, "object", bytes).await;
        Ok(read(&self.sealed, "object", range).await?.1)
    }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

async fn put(store: &dyn Store, name: &str, body: &[u8]) {
    let mut payload = Payload::new();
    for slice in body.chunks(50_001) {
        payload.push(Bytes::copy_from_slice(slice));
    }
    let name = key(name);
    let put = store.put(&name, payload, PutOptions::default());
    put.await.unwrap();
}

async fn read(
    store: &dyn Store,
    name: &str,
    range: Option<std::ops::Range<u64>>,
) -> ObjectResult<(Got, Vec<u8>)> {
    let options = GetOptions {
        range,
        ..GetOptions::default()
    };
    let mut bytes = Vec::new();
    let got = store.get(&key(name), options, &mut bytes).await?;
    Ok((got, bytes))
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(work)
}

/// Bodies of some frames, with ends where frames end and elsewhere.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let near = (0..4_usize, -2..3_isize)
        .prop_map(|(frames, more)| (frames * FRAME).saturating_add_signed(more));
    let length = prop_oneof![near, 0..3 * FRAME];
    (length, any::<u8>()).prop_map(|(length, seed)| {
        let byte = |at: usize| (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ seed;
        (0..length).map(byte).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_range_of_each_body_is_its_plaintext(
        body in bodies(),
        ranges in prop::collection::vec((any::<Index>(), any::<Index>()), 1..8),
    ) {
        let pair = Pair::new();
        run(async {
            let there = pair.sealed("object", &body).await;
            assert_eq!(there.len() as u64, sealed_length(body.len() as u64));
            let (got, whole) = read(&pair.sealed, "object", None).await.unwrap();
            assert!(whole == body && got.info.size == body.len() as u64);
            for (start, end) in ranges {
                let (start, end) = (start.index(body.len() + 1), end.index(body.len() + 9));
                if start >= body.len() || end <= start {
                    continue;
                }
                let wanted = Some(start as u64..end as u64);
                let (got, bytes) = read(&pair.sealed, "object", wanted).await.unwrap();
                let end = end.min(body.len());
                assert!(bytes == body[start..end], "{start}..{end}");
                assert_eq!(got.range, start as u64..end as u64);
            }
        });
    }

    #[test]
    fn a_byte_that_was_flipped_is_noticed(body in bodies(), at: Index, bit in 0..8_u8) {
        let pair = Pair::new();
        run(async {
            let mut there = pair.sealed("object", &body).await;
            let at = at.index(there.len());
            there[at] ^= 1 << bit;
            let start = (at / SEALED * FRAME) as u64;
            if !body.is_empty() {
                let frame = pair.read_of(&there, Some(start..start + 1)).await.unwrap_err();
                assert_eq!(frame.kind, ErrorKind::ChecksumMismatch);
            }
            let whole = pair.read_of(&there, None).await.unwrap_err();
            assert_eq!(whole.kind, ErrorKind::ChecksumMismatch);
        });
    }

    #[test]
    fn what_was_cut_or_extended_opens_nowhere(body in bodies(), to: Index, more in 1..2 * SEALED) {
        let pair = Pair::new();
        run(async {
            let there = pair.sealed("object", &body).await;
            let cut = &there[..to.index(there.len())];
            let extended = [&there[..], &vec![0; more]].concat();
            for changed in [cut, &extended] {
                for range in [None, Some(0..1)] {
                    assert!(pair.read_of(changed, range).await.is_err());
                }
            }
        });
    }
}

#[tokio::test]
async fn frames_that_were_swapped_or_repeated_or_left_out_are_noticed() {
    let pair = Pair::new();
    let body = vec![7; 3 * FRAME];
    let there = pair.sealed("object", &body).await;
    let frame = |number: usize| there[number * SEALED..(number + 1) * SEALED].to_vec();
    for order in [
        &[1, 0, 2][..],
        &[0, 2, 1],
        &[0, 0, 2],
        &[0, 1],
        &[0, 1, 2, 2],
    ] {
        let changed = order
            .iter()
            .flat_map(|number| frame(*number))
            .collect::<Vec<_>>();
        let error = pair.read_of(&changed, None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::ChecksumMismatch, "{order:?}");
    }
    assert_eq!(pair.read_of(&there, None).await.unwrap(), body);
}

#[tokio::test]
async fn a_frame_of_an_earlier_body_of_the_same_name_is_noticed() {
    let pair = Pair::new();
    let earlier = pair.sealed("object", &vec![1; 2 * FRAME]).await;
    let later = pair.sealed("object", &vec![2; 2 * FRAME]).await;
    let mixed = [&earlier[..SEALED], &later[SEALED..]].concat();
    let error = pair.read_of(&mixed, None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::ChecksumMismatch);
}

#[tokio::test]
async fn an_object_of_another_name_or_another_key_is_noticed() {
    let pair = Pair::new();
    let other = pair.sealed("other", b"of another name").await;
    let stranger = Pair::new().sealed("object", b"of another key").await;
    for bytes in [other, stranger, b"of nobody".to_vec(), Vec::new()] {
        let error = pair.read_of(&bytes, None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::ChecksumMismatch);
    }
}

#[tokio::test]
async fn the_same_body_is_never_sealed_in_the_same_way() {
    let pair = Pair::new();
    let first = pair.sealed("object", &[0; 100]).await;
    assert_ne!(first, pair.sealed("object", &[0; 100]).await);
}

#[tokio::test]
async fn a_small_read_receives_one_frame_alone() {
    let pair = Pair::new();
    let body: Vec<u8> = (0..5 * FRAME).map(|at| (at / 1000) as u8).collect();
    let mut there = pair.sealed("object", &body).await;
    // So that it is noticed if any other is touched.
    for number in [0, 1, 3, 4] {
        there[number * SEALED + 100] ^= 1;
    }
    let range = 2 * FRAME_PLAIN..3 * FRAME_PLAIN;
    let bytes = pair.read_of(&there, Some(range)).await.unwrap();
    assert!(bytes == body[2 * FRAME..3 * FRAME]);
}

#[tokio::test]
async fn a_put_can_insist_on_a_version() {
    let pair = Pair::new();
    pair.sealed("object", b"first").await;
    let seen = pair.sealed.head(&key("object"), HeadOptions {}).await;
    let options = PutOptions {
        condition: WriteCondition::IfMatch(seen.unwrap().etag),
        ..PutOptions::default()
    };
    let object = key("object");
    let write = |body: &'static [u8]| {
        let payload = Payload::from(body.to_vec());
        pair.sealed.put(&object, payload, options.clone())
    };
    write(b"second").await.unwrap();
    let refused = write(b"third").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::PreconditionFailed);
    let (_, there) = read(&pair.sealed, "object", None).await.unwrap();
    assert_eq!(there, b"second");
}

#[tokio::test]
async fn a_body_that_is_cut_below_goes_on_where_it_stopped() {
    let pair = Pair::new();
    let body: Vec<u8> = (0..3 * FRAME).map(|at| (at / 999) as u8).collect();
    pair.sealed("object", &body).await;
    let faults = Faults::new(1);
    let faulty = Faulty::new(Arc::clone(&pair.bucket), Arc::clone(&faults));
    let retrying = standard(
        Arc::new(faulty),
        4,
        &RetrySettings::default(),
        &Registry::new(),
    );
    let sealed = Sealed::new(retrying, pair.key.clone(), MEMORY);
    faults.queue(
        Operation::Get,
        [1, 70_000, 16].map(|after| Fault::Cut { after }),
    );
    let range = 5..body.len() as u64 - 1;
    let (_, bytes) = read(&sealed, "object", Some(range.clone())).await.unwrap();
    assert!(bytes == body[range.start as usize..range.end as usize]);
}

#[tokio::test]
async fn foreign_objects_are_listed_and_not_described() {
    let pair = Pair::new();
    put(&*pair.bucket, "foreign", b"short").await;
    pair.sealed("own", &vec![3; FRAME + 5]).await;
    let page = pair.sealed.list(ListOptions::default()).await.unwrap();
    let sizes: Vec<_> = page.objects.iter().map(|object| object.size).collect();
    assert_eq!(sizes, [0, FRAME_PLAIN + 5]);
    let head = pair.sealed.head(&key("foreign"), HeadOptions {}).await;
    assert_eq!(head.unwrap_err().kind, ErrorKind::ChecksumMismatch);
}

#[tokio::test]
async fn what_needs_several_requests_is_unsupported() {
    let pair = Pair::new();
    pair.sealed("object", b"body").await;
    let (object, other) = (key("object"), key("other"));
    let begun = pair.sealed.create_upload(&object, PutOptions::default());
    let appended = pair
        .sealed
        .append(&object, 4, Payload::new(), PutOptions::default());
    let copied = pair.sealed.copy(&object, &other, Default::default());
    let kinds = [
        begun.await.unwrap_err().kind,
        appended.await.unwrap_err().kind,
        copied.await.unwrap_err().kind,
    ];
    assert_eq!(kinds, [ErrorKind::Unsupported; 3]);
}

#[tokio::test]
async fn writers_wait_for_memory_and_one_that_is_too_large_is_alone() {
    let pair = Pair::new();
    let sealed = Arc::new(Sealed::new(
        Arc::clone(&pair.bucket),
        pair.key.clone(),
        1 << 16,
    ));
    let writers = (0..8).map(|number| {
        let sealed = Arc::clone(&sealed);
        tokio::spawn(
            async move { put(&*sealed, &format!("{number}"), &vec![number; 300_000]).await },
        )
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert!(read(&*sealed, "7", None).await.unwrap().1 == [7; 300_000]);
}

#[tokio::test]
async fn nothing_that_is_printed_has_a_key_in_it() {
    let user = UserKey::parse(&[b'K'; 32]).unwrap();
    let pair = Pair::new();
    let printed = format!("{user:?} {:?} {:?}", pair.key, pair.sealed);
    assert!(printed.contains("UserKey(***) DataKey(***)") && !printed.contains("KKKK"));
}
