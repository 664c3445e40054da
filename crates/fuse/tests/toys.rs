//! A volume that nobody wrote for FUSE, behind a kernel mount.

#![allow(clippy::panic, clippy::unwrap_used)]

mod support;

use std::{
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use penstock_base::clock;
use penstock_toys::GeneratedVolume;
use support::{TestMount, can_mount};

#[test]
fn generated_files_are_read_through_the_kernel_and_never_changed() {
    if !can_mount() {
        return;
    }
    let times = AtomicU64::new(0);
    let count = move || format!("{:08}\n", times.fetch_add(1, Ordering::Relaxed)).into();
    let volume = GeneratedVolume::new(clock::wall_time())
        .with("squares/12", Box::new(|| "144\n".into()))
        .and_then(|volume| volume.with("counter", Box::new(count)))
        .unwrap();
    let mount = TestMount::new(Arc::new(volume));
    assert_eq!(
        fs::read_to_string(mount.path("squares/12")).unwrap(),
        "144\n"
    );
    let read = || fs::read_to_string(mount.path("counter")).unwrap();
    assert_ne!(read(), read(), "nothing of it is kept");
    let listed = fs::read_dir(mount.root()).unwrap();
    let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["counter", "squares"]);
    for refused in [
        fs::write(mount.path("counter"), "1"),
        fs::remove_file(mount.path("squares/12")),
        fs::create_dir(mount.path("cubes")),
    ] {
        assert_eq!(
            refused.unwrap_err().kind(),
            io::ErrorKind::ReadOnlyFilesystem
        );
    }
    mount.end();
}
