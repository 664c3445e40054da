//! Some small files with numbers, and what is in them.

use penstock_object::ErrorKind;
use penstock_object_testing::Fault;

use super::{Place, ROOT};

/// Bytes of each.
pub const LENGTH: usize = 4096;

/// What is in a file.
pub fn content(number: usize) -> Vec<u8> {
    (number + 1)
        .to_le_bytes()
        .repeat(LENGTH / size_of::<usize>())
}

/// How it is called.
pub fn name(number: usize) -> String {
    format!("file-{number}")
}

/// Stores the first of them, one after the other.
pub async fn store_some(place: &Place, count: usize) {
    for number in 0..count {
        let stored = place.store(ROOT, &name(number), &content(number)).await;
        stored.unwrap();
    }
}

/// Fails unless the first of them are there with all their bytes.
pub async fn expect_some(place: &Place, count: usize) {
    for number in 0..count {
        let read = place.content(ROOT, &name(number)).await.unwrap();
        assert!(read == content(number), "file {number}");
    }
}

/// The bucket answers nothing any more.
pub fn away(place: &Place) {
    let fault = Fault::fail(ErrorKind::Unavailable);
    place.faults.rate(None, 1.0, fault);
}
