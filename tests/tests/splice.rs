//! Reads past all memory: `--splice` delivers the same bytes, whatever order programs read them in and
//! whatever the server does.

#![allow(clippy::disallowed_methods)]

use std::{fs::File, os::unix::fs::FileExt, path::Path, thread};

use penstock_devserver::{Faults, Operation};
use penstock_tests::{
    Bucket, Kind, MountOptions,
    data::{digest, digest_of, noise},
    faults::{cut_body, passing_faults},
    soak::Chance,
    stats::metric,
    system,
};

const MIB: usize = 1 << 20;
/// Not a whole number of pages, so that no border of requests is one of pages.
const SIZE: usize = 48 * MIB + 12_345;
/// Bytes of a body that arrive before it is reset or cut.
const RESET_AFTER: u64 = 1_300_001;

/// A bucket whose object `large` has the content that is returned with it.
fn filled(kind: Kind, seed: u64) -> (Bucket, Vec<u8>) {
    let bucket = Bucket::new(kind);
    let content = noise(seed, SIZE);
    bucket.put_outside("large", &content);
    (bucket, content)
}

fn options(bucket: &Bucket) -> MountOptions {
    bucket.options().option("splice", "true")
}

/// Reads pieces of up to 3 MiB, each near where the last one ended, and compares.
fn read_about(path: &Path, content: &[u8], seed: u64) {
    let mut random = Chance::new(seed);
    let file = File::open(path).expect("opened");
    let mut position = random.below(content.len());
    let mut piece = vec![0; 3 * MIB];
    for _ in 0..60 {
        let length = 1 + random.below(piece.len());
        let end = content.len().min(position + length);
        let piece = &mut piece[..end - position];
        file.read_exact_at(piece, position as u64).expect("read");
        assert!(
            *piece == content[position..end],
            "wrong bytes at {position}"
        );
        system::forget_pages(&file);
        let jumps = random.below(4) == 0 || end == content.len();
        position = if jumps {
            random.below(content.len())
        } else {
            end
        };
    }
}

#[test]
fn large_files_go_from_socket_to_kernel() {
    for kind in [Kind::S3, Kind::Oss] {
        let (bucket, content) = filled(kind, 1);
        let mount = bucket.mount_with(&options(&bucket));
        let read = digest(&mount.join("large")).expect("read");
        assert_eq!(read, digest_of(&content), "{kind:?}");
        let piped = metric(&mount, "transfer_piped_bytes_total", "");
        assert!(piped > SIZE as u64 / 2, "{piped} of {SIZE} bytes, {kind:?}");
        mount.unmount();
    }
}

#[test]
fn readers_that_jump_and_overtake_one_another_see_the_same_bytes() {
    let (bucket, content) = filled(Kind::S3, 2);
    let mount = bucket.mount_with(&options(&bucket));
    let path = mount.join("large");
    thread::scope(|readers| {
        for seed in 0..6 {
            let (path, content) = (&path, &content);
            readers.spawn(move || read_about(path, content, seed));
        }
    });
    assert!(metric(&mount, "transfer_piped_bytes_total", "") > 0);
    mount.unmount();
}

#[test]
fn what_a_failing_server_delivers_piecemeal_is_whole() {
    let (bucket, content) = filled(Kind::S3, 3);
    let cases = passing_faults(RESET_AFTER).into_iter();
    for (name, fault) in cases.chain([cut_body(RESET_AFTER)]) {
        let impatient = options(&bucket).option("request-timeout", "2s");
        let mount = bucket.mount_with(&impatient);
        bucket.fail(Faults::rule(fault.on(&[Operation::GetObject])));
        let read = digest(&mount.join("large"));
        bucket.heal();
        assert_eq!(read.expect(name), digest_of(&content), "{name}");
        mount.unmount();
    }
}
