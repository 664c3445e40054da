//! What goes wrong in a volume or with a process costs that request, never the mount.

#![allow(unsafe_code, clippy::panic, clippy::unwrap_used)]

mod support;

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, fs::MetadataExt, thread::JoinHandleExt},
    },
    process::{Command, Stdio},
    sync::{Arc, Barrier, atomic::Ordering},
    thread,
    time::Duration,
};

use penstock_base::{FsError, MIB, clock};
use penstock_fuse::{InterruptPolicy, MountError, UnmountError, UnmountMode, errno::errno_of};
use support::{MemoryVolume, Stop, TestMount, can_mount, eventually, pattern};

fn every_error() -> Vec<FsError> {
    vec![
        FsError::NotFound,
        FsError::AlreadyExists,
        FsError::NotADirectory,
        FsError::IsADirectory,
        FsError::DirectoryNotEmpty,
        FsError::PermissionDenied,
        FsError::NotPermitted("x"),
        FsError::InvalidArgument("x"),
        FsError::NameTooLong,
        FsError::NameNotUtf8,
        FsError::FileTooLarge,
        FsError::NoSpace,
        FsError::QuotaExceeded,
        FsError::OutOfMemory,
        FsError::LimitReached("x"),
        FsError::Busy("x"),
        FsError::ReadOnly,
        FsError::Unsupported("x"),
        FsError::CrossDevice,
        FsError::WouldBlock,
        FsError::Deadlock,
        FsError::NotSynchronized,
        FsError::TooManyLinks,
        FsError::NoSuchPlace,
        FsError::BadHandle,
        FsError::Interrupted,
        FsError::TimedOut("x".into()),
        FsError::Corrupt("x".into()),
        FsError::Io("x".into()),
        FsError::Stale,
    ]
}

#[test]
fn every_error_reaches_the_program_as_its_number() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    let mount = TestMount::new(volume.clone());
    for (number, error) in every_error().into_iter().enumerate() {
        let name = format!("fails-{number}");
        volume.hooks.stop(&name, Stop::Error(error.clone()));
        let seen = fs::metadata(mount.path(&name)).unwrap_err();
        assert_eq!(seen.raw_os_error(), Some(errno_of(&error).0), "{error:?}");
    }
    fs::write(mount.path("alive"), b"yes").unwrap();
}

#[test]
fn a_panic_costs_one_request() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    volume.hooks.stop("bad", Stop::Panic);
    volume.hooks.stop("late", Stop::LatePanic);
    let mount = TestMount::new(volume.clone());
    // More often than there are threads, so that a dead thread would be missed.
    for _ in 0..20 {
        for name in ["bad", "late"] {
            let error = fs::metadata(mount.path(name)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO));
        }
    }
    fs::write(mount.path("alive"), b"yes").unwrap();
    assert_eq!(fs::read(mount.path("alive")).unwrap(), b"yes");
    mount.finish(&volume);
}

#[test]
fn a_process_that_waits_can_be_killed() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::gated(true);
    let mount = TestMount::new(volume.clone());
    for round in 1..=3 {
        assert!(kill_reader(&mount, &volume, round) < Duration::from_secs(1));
    }
    let dropped = || volume.hooks.dropped_at_gate.load(Ordering::SeqCst) == 3;
    eventually("the reads are dropped", dropped);
    fs::write(mount.path("alive"), b"yes").unwrap();
    volume.hooks.open_gate();
    assert_eq!(fs::read(mount.path("gated")).unwrap(), [7; 100]);
    mount.finish(&volume);
}

/// Starts a process that reads the gated file, kills it and tells how long it took to die.
fn kill_reader(mount: &TestMount, volume: &MemoryVolume, round: u64) -> Duration {
    let mut reader = Command::new("cat");
    let reader = reader.arg(mount.path("gated")).stdout(Stdio::null());
    let mut reader = reader.spawn().unwrap();
    let reached = || volume.hooks.waited_at_gate.load(Ordering::SeqCst) == round;
    eventually("the read waits", reached);
    let begun = clock::now();
    reader.kill().unwrap();
    reader.wait().unwrap();
    begun.elapsed()
}

/// The kernel sends no INTERRUPT for what it reads into its own cache; nobody waits for it there.
#[test]
fn a_process_that_waits_for_the_page_cache_can_be_killed() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::gated(false);
    let mount = TestMount::new(volume.clone());
    assert!(kill_reader(&mount, &volume, 1) < Duration::from_secs(1));
    assert_eq!(volume.hooks.dropped_at_gate.load(Ordering::SeqCst), 0);
    volume.hooks.open_gate();
    assert_eq!(fs::read(mount.path("gated")).unwrap(), [7; 100]);
}

#[test]
fn many_waiting_threads_die_together() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::gated(true);
    let mount = TestMount::new(volume.clone());
    let script = "for i in $(seq 64); do cat \"$0\" & done; wait";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(mount.path("gated"));
    std::os::unix::process::CommandExt::process_group(&mut shell, 0);
    let mut shell = shell.stdout(Stdio::null()).spawn().unwrap();
    let reached = || volume.hooks.waited_at_gate.load(Ordering::SeqCst) == 64;
    eventually("all reads wait", reached);
    let begun = clock::now();
    // SAFETY: the group is our own child's.
    unsafe { libc::kill(-(shell.id() as i32), libc::SIGKILL) };
    shell.wait().unwrap();
    let dropped = || volume.hooks.dropped_at_gate.load(Ordering::SeqCst) == 64;
    eventually("all reads are dropped", dropped);
    assert!(begun.elapsed() < Duration::from_secs(1));
    fs::write(mount.path("alive"), b"yes").unwrap();
}

extern "C" fn ignore_signal(_: i32) {}

fn handle_user_signal() {
    let handler: extern "C" fn(i32) = ignore_signal;
    // SAFETY: the handler does nothing, so it is safe at any time.
    unsafe { libc::signal(libc::SIGUSR1, handler as usize) };
}

/// Reads a gated file on a thread, signals that thread and tells what the read came to.
fn read_under_signal(policy: InterruptPolicy) -> std::io::Result<usize> {
    handle_user_signal();
    let volume = MemoryVolume::gated(true);
    let mount = TestMount::with(volume.clone(), |settings| settings.interrupts = policy);
    let mut file = File::open(mount.path("gated")).unwrap();
    let reader = thread::spawn(move || file.read(&mut [0; 200]));
    let reached = || volume.hooks.waited_at_gate.load(Ordering::SeqCst) == 1;
    eventually("the read waits", reached);
    // SAFETY: the thread has not been joined, so its number is its own.
    unsafe { libc::pthread_kill(reader.as_pthread_t(), libc::SIGUSR1) };
    eventually("the kernel tells of the signal", || {
        mount.counted("fuse_interrupts_total", None) > 0
    });
    if policy == InterruptPolicy::WhenFatal {
        volume.hooks.open_gate();
    }
    reader.join().unwrap()
}

#[test]
fn a_signal_that_is_handled_does_not_end_a_wait() {
    if can_mount() {
        assert_eq!(read_under_signal(InterruptPolicy::WhenFatal).unwrap(), 100);
    }
}

#[test]
fn every_signal_ends_a_wait_if_so_wished() {
    if can_mount() {
        let error = read_under_signal(InterruptPolicy::Always).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINTR));
    }
}

#[test]
fn a_handled_signal_does_not_hide_a_deadly_one() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::gated(true);
    let mount = TestMount::new(volume.clone());
    // The shell handles USR1 and reads by itself, so it is the process that waits.
    let script = "trap : USR1; read -r line < \"$0\"";
    let mut reader = Command::new("sh")
        .args(["-c", script])
        .arg(mount.path("gated"))
        .spawn()
        .unwrap();
    let reached = || volume.hooks.waited_at_gate.load(Ordering::SeqCst) == 1;
    eventually("the read waits", reached);
    // SAFETY: our own child, not waited for yet.
    unsafe { libc::kill(reader.id() as i32, libc::SIGUSR1) };
    eventually("the kernel tells of the signal", || {
        mount.counted("fuse_interrupts_total", None) > 0
    });
    assert_eq!(volume.hooks.dropped_at_gate.load(Ordering::SeqCst), 0);
    let begun = clock::now();
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[test]
fn an_open_file_keeps_a_plain_unmount_away_and_outlives_a_lazy_one() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    volume.add_file("file", b"content".to_vec());
    let mount = TestMount::new(volume.clone());
    let mut file = File::open(mount.path("file")).unwrap();
    let session = mount.session();
    let unmount = |mode| mount.runtime.block_on(session.unmount(mode));
    assert!(matches!(
        unmount(UnmountMode::Plain),
        Err(UnmountError::Busy(_))
    ));
    unmount(UnmountMode::Lazy).unwrap();
    assert!(!mount.path("file").exists());
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "content");
    drop(file);
    let end = clock::deadline(Duration::from_secs(5), session.wait());
    mount.runtime.block_on(end).expect("it ends");
}

#[test]
fn a_forced_unmount_frees_those_who_wait() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::gated(false);
    let mount = TestMount::new(volume.clone());
    let path = mount.path("gated");
    let reader = thread::spawn(move || fs::read(path));
    let reached = || volume.hooks.waited_at_gate.load(Ordering::SeqCst) == 1;
    eventually("the read waits", reached);
    let session = mount.session();
    mount
        .runtime
        .block_on(session.unmount(UnmountMode::Force))
        .unwrap();
    let error = reader.join().unwrap().unwrap_err();
    let error = error.raw_os_error().unwrap();
    assert!(
        [libc::ECONNABORTED, libc::ENOTCONN, libc::EIO].contains(&error),
        "{error}"
    );
    volume.hooks.open_gate();
    let end = clock::deadline(Duration::from_secs(5), session.wait());
    mount.runtime.block_on(end).expect("it ends");
}

#[test]
fn leaving_waits_for_open_files_no_longer_than_told() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    volume.add_file("file", b"content".to_vec());
    let mount = TestMount::new(volume);
    let file = File::open(mount.path("file")).unwrap();
    let begun = clock::now();
    let leave = mount.session().leave(Duration::from_millis(300));
    assert!(mount.runtime.block_on(leave).is_empty());
    let spent = begun.elapsed();
    assert!((300..3000).contains(&spent.as_millis()), "{spent:?}");
    drop(file);
}

#[test]
fn bad_mount_points_are_refused_with_the_reason() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    fs::write(place("file"), b"").unwrap();
    fs::create_dir(place("full")).unwrap();
    fs::write(place("full/entry"), b"").unwrap();
    let refusal = |place: std::path::PathBuf| {
        let mount = TestMount::with(MemoryVolume::new(), |_| {});
        drop(mount);
        TestMount::with_memory(MemoryVolume::new(), 64 * MIB, |settings| {
            settings.mount_point = place;
        })
        .err()
        .expect("refused")
    };
    assert!(matches!(refusal(place("none")), MountError::Missing(_)));
    assert!(matches!(
        refusal(place("file")),
        MountError::NotADirectory(_)
    ));
    assert!(matches!(
        refusal(place("file/x")),
        MountError::NotADirectory(_)
    ));
    assert!(matches!(refusal(place("full")), MountError::NotEmpty(_)));
    let mounted = TestMount::new(MemoryVolume::new());
    let busy = refusal(mounted.root().to_path_buf());
    assert!(matches!(busy, MountError::Busy { .. }), "{busy}");
    let text = refusal(place("none")).to_string();
    assert!(text.contains("does not exist: create"), "{text}");
}

#[test]
fn a_mount_whose_daemon_died_is_recognised() {
    if !can_mount() || fs::metadata("/proc/self").unwrap().uid() != 0 {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let text = std::ffi::CString::new(place.as_os_str().as_bytes()).unwrap();
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .unwrap();
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0\0",
        device.as_raw_fd()
    );
    // SAFETY: all strings are NUL-terminated.
    let status = unsafe {
        let (source, kind) = (c"dead".as_ptr(), c"fuse".as_ptr());
        libc::mount(source, text.as_ptr(), kind, 0, options.as_ptr().cast())
    };
    assert_eq!(status, 0);
    drop(device);
    let refused = TestMount::with_memory(MemoryVolume::new(), 64 * MIB, |settings| {
        settings.mount_point = place.to_path_buf();
    });
    // SAFETY: a NUL-terminated string.
    unsafe { libc::umount2(text.as_ptr(), libc::MNT_DETACH) };
    let error = refused.err().expect("refused");
    assert!(matches!(error, MountError::Dead(_)), "{error}");
    assert!(error.to_string().contains("umount -l"));
}

#[test]
fn entries_may_be_hidden_when_that_is_wished() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("hidden"), b"").unwrap();
    let mount = TestMount::with(MemoryVolume::new(), |settings| {
        settings.mount_point = directory.path().to_path_buf();
        settings.nonempty = true;
    });
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    drop(mount);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_read_only_mount_refuses_changes() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::with(MemoryVolume::new(), |settings| settings.read_only = true);
    let error = fs::write(mount.path("file"), b"x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
}

#[test]
fn a_budget_without_room_is_said_to_be_so() {
    if !can_mount() {
        return;
    }
    let refused = TestMount::with_memory(MemoryVolume::new(), 2 * MIB, |_| {});
    assert!(matches!(refused.err(), Some(MountError::Memory(_))));
}

#[test]
fn writers_wait_for_memory_and_go_on_when_it_returns() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::with_direct(true);
    let mount = TestMount::with_memory(volume, 12 * MIB, |_| {}).expect("mounted");
    let budget = mount.pool.budget();
    let everything = budget.try_reserve(budget.available()).expect("all is free");
    let bytes = Arc::new(pattern(MIB as usize, 3));
    thread::scope(|scope| {
        for number in 0..16 {
            let (path, bytes) = (mount.path(&format!("f{number}")), Arc::clone(&bytes));
            scope.spawn(move || {
                for _ in 0..4 {
                    fs::write(&path, &*bytes).unwrap();
                }
            });
        }
    });
    drop(everything);
    for number in 0..16 {
        assert!(fs::read(mount.path(&format!("f{number}"))).unwrap() == *bytes);
    }
    mount.unmount();
}

#[test]
fn what_a_short_write_leaves_is_written_next() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::with_direct(true);
    volume.hooks.set_latency(Duration::from_millis(20));
    let mount = TestMount::with_memory(volume, 12 * MIB, |_| {}).expect("mounted");
    let budget = mount.pool.budget();
    let _everything = budget.try_reserve(budget.available());
    let all_are_open = Barrier::new(16);
    thread::scope(|scope| {
        for number in 0..16 {
            let path = mount.path(&format!("f{number}"));
            let bytes = pattern(3 * MIB as usize + 100, number);
            let all_are_open = &all_are_open;
            scope.spawn(move || {
                let mut file = File::create(&path).unwrap();
                all_are_open.wait();
                file.write_all(&bytes).unwrap();
                assert!(fs::read(&path).unwrap() == bytes);
            });
        }
    });
    assert!(mount.counted("fuse_writes_shortened_total", None) > 0);
}

#[test]
fn all_memory_returns_when_a_mount_ends() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new(MemoryVolume::with_direct(true));
    fs::write(mount.path("file"), pattern(10 << 20, 1)).unwrap();
    let pool = Arc::clone(&mount.pool);
    assert!(pool.budget().used() > 0);
    mount.unmount();
    drop(mount);
    eventually("memory returns", || pool.budget().used() == 0);
}

#[test]
fn a_writer_that_waits_for_memory_can_be_killed() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::with_direct(true);
    let mount = TestMount::with_memory(volume.clone(), 12 * MIB, |_| {}).expect("mounted");
    // Four in hand, 32 short ones, and all threads that wait for more.
    let names: Vec<_> = (0..44).map(|number| format!("gated-{number}")).collect();
    for name in &names {
        volume.add_file(name, Vec::new());
        volume.hooks.stop(name, Stop::Gate);
    }
    let budget = mount.pool.budget();
    let _everything = budget.try_reserve(budget.available());
    let mut writers: Vec<_> = names
        .iter()
        .map(|name| {
            let output = format!("of={}", mount.path(name).display());
            let mut writer = Command::new("dd");
            let writer = writer.args(["if=/dev/zero", "bs=1M", "count=1", "conv=notrunc"]);
            writer.arg(output).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    eventually("as many as possible wait in the volume", || {
        volume.hooks.waited_at_gate.load(Ordering::SeqCst) >= 36
    });
    let begun = clock::now();
    writers.iter_mut().for_each(|writer| writer.kill().unwrap());
    for writer in &mut writers {
        writer.wait().unwrap();
    }
    let spent = begun.elapsed();
    assert!(spent < Duration::from_secs(2), "they died after {spent:?}");
    fs::write(mount.path("alive"), b"yes").unwrap();
}
