//! A mount that fails leaves nothing behind. Alone in its process, so that every device is its own.

#![allow(clippy::disallowed_methods, clippy::panic)]

#[allow(unused_imports)]
mod support;

use penstock_block::{BlockError, FileSystem, tagged_devices};

use support::{Rig, wait_until};

#[test]
fn a_volume_that_cannot_be_mounted_leaves_nothing() {
    let rig = Rig::raw(2);
    let error = rig
        .try_mount(FileSystem::Ext4)
        .expect_err("no file system on it");
    assert!(matches!(error, BlockError::Refused { .. }), "{error}");
    assert_eq!(rig.state_files(), 0);
    let prefix = format!("penstock-{}-", std::process::id());
    wait_until("its loop devices are gone", || {
        tagged_devices(&prefix).is_empty()
    });
}
