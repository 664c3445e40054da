//! Mounts by somebody who is not root, with the help of `fusermount3`.

#![allow(clippy::panic, clippy::unwrap_used)]

mod support;

use std::{
    fs,
    os::unix::fs::MetadataExt,
    process::{Command, Stdio},
};

use penstock_base::MIB;
use penstock_fuse::MountError;
use support::{MemoryVolume, TestMount, can_mount, pattern};

/// Whether fusermount3 is installed; says so if not.
fn has_helper() -> bool {
    let present = Command::new("fusermount3")
        .arg("-V")
        .stdout(Stdio::null())
        .status()
        .is_ok();
    if !present {
        penstock_skips::skipped("fusermount3 is missing");
    }
    present
}

/// Makes a `/dev/fuse` that everybody may open, as most systems have it, and becomes nobody. It
/// is seen in a mount name space of its own, so the system stays as it is.
const BECOME_NOBODY: &str = "mknod $0/fuse c 10 229 && chmod 666 $0/fuse && \
    mount --bind $0/fuse /dev/fuse && \
    exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";

/// Runs `body` as somebody who is not root: root runs the test once more as nobody.
fn as_ordinary_user(test: &str, body: impl FnOnce()) {
    if !can_mount() || !has_helper() {
        return;
    }
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return body();
    }
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", BECOME_NOBODY])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test])
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn an_ordinary_user_mounts_writes_and_unmounts() {
    as_ordinary_user("an_ordinary_user_mounts_writes_and_unmounts", || {
        let volume = MemoryVolume::with_direct(true);
        let mount = TestMount::new(volume.clone());
        let bytes = pattern(3 << 20, 5);
        fs::write(mount.path("file"), &bytes).unwrap();
        assert!(fs::read(mount.path("file")).unwrap() == bytes);
        assert_eq!(mount.session().negotiated().read_ahead_kib, None);
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let ours = mount.root().to_str().unwrap();
        let line = table.lines().find(|line| line.contains(ours)).unwrap();
        assert!(line.contains("nosuid,nodev") && line.contains("fuse.penstock memory"));
        mount.finish(&volume);
    });
}

fn refusal(place: Option<&str>, allow_other: bool) -> MountError {
    let mounted = TestMount::with_memory(MemoryVolume::new(), 64 * MIB, |settings| {
        settings.allow_other = allow_other;
        settings.nonempty = true;
        if let Some(place) = place {
            settings.mount_point = place.into();
        }
    });
    mounted.err().expect("refused")
}

#[test]
fn the_helper_is_quoted_when_it_refuses() {
    as_ordinary_user("the_helper_is_quoted_when_it_refuses", || {
        let error = refusal(Some("/usr"), false);
        assert!(matches!(error, MountError::Helper(_)), "{error}");
        let allowed = fs::read_to_string("/etc/fuse.conf")
            .is_ok_and(|text| text.contains("\nuser_allow_other"));
        if !allowed {
            let text = refusal(None, true).to_string();
            assert!(text.contains("user_allow_other"), "{text}");
        }
    });
}
