//! However many wait, whoever wants to die can, and whoever can be served is.

#![allow(clippy::disallowed_methods, clippy::panic, clippy::unwrap_used)]

mod support;

use std::{
    env,
    fs::{self, File},
    os::unix::fs::FileExt,
    process::{Child, Command, Stdio},
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use penstock_base::{MIB, clock};
use support::{MemoryVolume, Stop, TestMount, can_mount, eventually};

/// More threads than requests may be under way, of whatever kind.
const CROWD: usize = 4096 + 1024 + 300;
const STACK_SIZE: usize = 64 << 10;
const CROWD_FILE: &str = "PENSTOCK_TEST_CROWD_FILE";

/// What [`crowd`] runs in a process of its own. Does nothing in an ordinary run of the tests.
#[test]
fn the_crowd_itself() {
    let Some(path) = env::var_os(CROWD_FILE) else {
        return;
    };
    let file = Arc::new(File::open(path).unwrap());
    let readers: Vec<_> = (0..CROWD)
        .map(|_| {
            let file = Arc::clone(&file);
            let reader = move || file.read_at(&mut [0; 10], 0).is_ok();
            let builder = thread::Builder::new().stack_size(STACK_SIZE);
            builder.spawn(reader).unwrap()
        })
        .collect();
    for reader in readers {
        assert!(reader.join().unwrap());
    }
}

fn crowd(mount: &TestMount, name: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "the_crowd_itself"])
        .env(CROWD_FILE, mount.path(name))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn gated_mount() -> (Arc<MemoryVolume>, TestMount) {
    let volume = MemoryVolume::gated(true);
    let mount = TestMount::new(volume.clone());
    (volume, mount)
}

fn kill(mut process: Child) {
    let begun = clock::now();
    process.kill().unwrap();
    process.wait().unwrap();
    let spent = begun.elapsed();
    assert!(spent < Duration::from_secs(3), "it died after {spent:?}");
}

fn all_wait(mount: &TestMount) -> impl Fn() -> bool {
    || mount.counted("fuse_requests_waiting", None) == CROWD as u64
}

#[test]
fn a_process_with_more_waiting_threads_than_task_places_can_be_killed() {
    if !can_mount() {
        return;
    }
    let (volume, mount) = gated_mount();
    let crowd = crowd(&mount, "gated");
    eventually("all of the crowd wait", all_wait(&mount));
    assert!(volume.hooks.waited_at_gate.load(Ordering::SeqCst) < CROWD as u64);
    // One that stands in line can die, too, while all places are taken.
    let late = Command::new("cat")
        .arg(mount.path("gated"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let one_more = || mount.counted("fuse_requests_waiting", None) > CROWD as u64;
    eventually("one more waits", one_more);
    kill(late);
    kill(crowd);
    let none = || mount.counted("fuse_requests_waiting", None) == 0;
    eventually("nobody waits any more", none);
    fs::write(mount.path("alive"), b"yes").unwrap();
    volume.hooks.open_gate();
    assert_eq!(fs::read(mount.path("gated")).unwrap(), [7; 100]);
    mount.finish(&volume);
}

#[test]
fn those_who_stand_in_line_are_served_when_places_become_free() {
    if !can_mount() {
        return;
    }
    let (volume, mount) = gated_mount();
    let open = File::create(mount.path("open")).unwrap();
    let mut crowd = crowd(&mount, "gated");
    eventually("all of the crowd wait", all_wait(&mount));
    // Closing does not stand behind those who ask for something.
    drop(open);
    volume.hooks.open_gate();
    assert!(crowd.wait().unwrap().success());
    assert!(mount.counted("fuse_requests_queued_total", None) >= 300);
    mount.finish(&volume);
}

/// Memory for writes may be out while it is a close that would free it.
#[test]
fn writers_that_wait_for_memory_keep_nobody_else_from_being_served() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::with_direct(true);
    let mount = TestMount::with_memory(volume.clone(), 12 * MIB, |_| {}).expect("mounted");
    let names: Vec<_> = (0..64).map(|number| format!("gated-{number}")).collect();
    for name in &names {
        volume.add_file(name, Vec::new());
        volume.hooks.stop(name, Stop::Gate);
    }
    let budget = mount.pool.budget();
    let everything = budget.try_reserve(budget.available());
    thread::scope(|scope| {
        for name in &names {
            let path = mount.path(name);
            scope.spawn(move || {
                let file = File::options().write(true).open(path).unwrap();
                file.write_all_at(&[1; MIB as usize], 0).unwrap();
            });
        }
        eventually("all writers wait", || {
            mount.counted("fuse_requests_waiting", None) == 64
        });
        let begun = clock::now();
        fs::write(mount.path("empty"), b"").unwrap();
        assert_eq!(fs::read(mount.path("empty")).unwrap(), b"");
        assert!(begun.elapsed() < Duration::from_secs(2));
        drop(everything);
        volume.hooks.open_gate();
    });
    for name in &names {
        assert!(fs::read(mount.path(name)).unwrap() == [1; MIB as usize]);
    }
    mount.finish(&volume);
}
