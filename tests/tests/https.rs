//! Mounts over HTTPS whose certificates change.

#![allow(clippy::disallowed_methods)]

use std::fs;

use penstock_devserver::{Fault, FaultRule, Faults, Operation};
use penstock_tests::{Bucket, Kind, Mount, Patience, Scratch, penstock, run_within};

const PATIENCE: Patience = Patience::seconds(30);

#[test]
fn a_certificate_that_is_renewed_in_place_is_used_by_a_mount_that_is_up() {
    let bucket = Bucket::secure(Kind::S3);
    bucket.put_outside("before", b"1");
    let options = bucket.options().option("attr-timeout", "0s");
    let mount = bucket.mount_with(&options);
    assert_eq!(fs::read(mount.join("before")).expect("a read"), b"1");
    fs::write(bucket.ca_file(), bucket.change_identity()).expect("writable");
    bucket.put_outside("after", b"2");
    assert_eq!(fs::read(mount.join("after")).expect("a read"), b"2");
    assert!(mount.log().contains("certificates were read again"));

    // A file that cannot be used changes nothing, and is told once.
    fs::write(bucket.ca_file(), "nonsense").expect("writable");
    bucket.without_server(|| {});
    for name in ["one", "two"] {
        bucket.put_outside(name, b"3");
        assert_eq!(fs::read(mount.join(name)).expect("a read"), b"3");
        bucket.without_server(|| {});
    }
    let log = mount.unmount();
    assert_eq!(
        log.matches("what was there before stays in use").count(),
        1,
        "{log}"
    );
}

/// A mount of staged files that saves none of them before it is unmounted.
fn idle(bucket: &Bucket, scratch: &Scratch) -> Mount {
    let options = bucket
        .staged_options(&scratch.folder("staging"))
        .option("save", "behind")
        .option("save-after", "1h")
        .option("unsaved-age", "1h");
    bucket.mount_with(&options)
}

/// What an unmount says that leaves a file unsaved after `change`.
fn told_after(bucket: &Bucket, change: impl FnOnce()) -> String {
    let scratch = Scratch::new();
    let mount = idle(bucket, &scratch);
    fs::write(mount.join("file"), b"content").expect("a write");
    change();
    let ended = run_within(PATIENCE, penstock().arg("umount").arg(mount.path()));
    assert_eq!(ended.code, Some(3), "{ended:?}");
    ended.stderr
}

#[test]
fn an_unmount_that_cannot_save_tells_what_the_store_said_last() {
    let bucket = Bucket::secure(Kind::S3);
    let told = told_after(&bucket, || drop(bucket.change_identity()));
    let said = told.matches("signed by nobody who is trusted here").count();
    assert_eq!(said, 1, "{told}");

    let bucket = Bucket::new(Kind::S3);
    let refused = Fault::Status {
        status: 403,
        code: "AccessDenied".to_owned(),
    };
    let rule = FaultRule::new(refused).on(&[Operation::PutObject]);
    let told = told_after(&bucket, || bucket.fail(Faults::rule(rule)));
    for part in [
        "the last error of the store, ",
        "(AccessDenied) [status 403]",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}
