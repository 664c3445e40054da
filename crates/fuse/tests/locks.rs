//! Locks of a volume that has some, through the kernel: two mounts of it see each other's.

#![allow(clippy::panic, clippy::unwrap_used)]

mod support;

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{BufRead, BufReader, Write},
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use async_trait::async_trait;
use penstock_base::{FsError, FsResult, clock};
use penstock_vfs::{Given, Inode, Lock, LockFamily, LockOwner, LockTable, Locks, Waiting, Watcher};
use support::{MemoryVolume, Stop, TestMount, can_mount, eventually, pause};

/// How late locks are given back that are.
const LATE: Duration = Duration::from_millis(50);

/// A program that locks ranges of a file as it is told: `lock KIND START LENGTH`, `try ...`, `close`.
struct Locker {
    process: Child,
    said: BufReader<ChildStdout>,
}

const SCRIPT: &str = "import errno, fcntl, sys\n\
    kinds = {'shared': fcntl.LOCK_SH, 'exclusive': fcntl.LOCK_EX, 'none': fcntl.LOCK_UN}\n\
    file = open(sys.argv[1], 'r+b')\n\
    for line in sys.stdin:\n    \
        word, *rest = line.split()\n    \
        try:\n        \
            if word == 'close':\n            \
                file.close()\n        \
            else:\n            \
                flags = kinds[rest[0]] | (fcntl.LOCK_NB if word == 'try' else 0)\n            \
                fcntl.lockf(file, flags, int(rest[2]), int(rest[1]))\n        \
            print('ok', flush=True)\n    \
        except OSError as error:\n        \
            print(errno.errorcode[error.errno], flush=True)\n";

impl Locker {
    fn of(path: &Path) -> Self {
        Self::running(SCRIPT, path)
    }

    fn running(script: &str, path: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(path);
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = started.unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        Self { process, said }
    }

    fn ask(&mut self, what: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{what}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn tell(&mut self, what: &str) -> String {
        self.ask(what);
        self.answer()
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("-V").output().is_ok();
    if !found {
        penstock_skips::skipped("there is no python3");
    }
    found
}

/// Locks that are given back late, as over a network.
#[derive(Debug, Default)]
struct LateReleases(LockTable);

#[async_trait]
impl Locks for LateReleases {
    async fn conflict(
        &self,
        inode: Inode,
        family: LockFamily,
        wanted: &Lock,
    ) -> FsResult<Option<Lock>> {
        self.0.conflict(inode, family, wanted).await
    }

    async fn acquire(
        &self,
        inode: Inode,
        family: LockFamily,
        wanted: Lock,
        waiting: Waiting,
    ) -> FsResult<Given> {
        self.0.acquire(inode, family, wanted, waiting).await
    }

    async fn release(&self, inode: Inode, family: LockFamily, held: (LockOwner, Range<u64>)) {
        clock::sleep(LATE).await;
        self.0.release(inode, family, held).await;
    }

    async fn release_client(&self, client: u64) {
        self.0.release_client(client).await;
    }
}

/// Two mounts of a volume with locks, and one file in each.
fn mounts() -> ([TestMount; 2], [PathBuf; 2]) {
    mounts_of(&MemoryVolume::with_locks())
}

fn mounts_of(volume: &Arc<MemoryVolume>) -> ([TestMount; 2], [PathBuf; 2]) {
    volume.add_file("file", vec![0; 100]);
    let mounts = [(); 2].map(|()| TestMount::new(Arc::clone(volume) as _));
    let paths = [&mounts[0], &mounts[1]].map(|mount| mount.path("file"));
    (mounts, paths)
}

#[test]
fn a_range_that_is_locked_through_one_mount_is_locked_through_the_other() {
    if !can_mount() || !has_python() {
        return;
    }
    let (_mounts, paths) = mounts();
    let [mut one, mut other] = [&paths[0], &paths[1]].map(|path| Locker::of(path));
    assert_eq!(one.tell("try exclusive 0 10"), "ok");
    assert_eq!(other.tell("try exclusive 5 10"), "EAGAIN");
    assert_eq!(other.tell("try exclusive 10 0"), "ok", "to the end");
    assert_eq!(one.tell("try shared 90 1"), "EAGAIN");
    assert_eq!(one.tell("lock none 0 5"), "ok");
    assert_eq!(other.tell("try shared 0 5"), "ok");
    assert_eq!(other.tell("try shared 5 1"), "EAGAIN");
    assert_eq!(one.tell("close"), "ok");
    assert_eq!(other.tell("try exclusive 0 10"), "ok", "a close unlocks");
    drop(other);
    let mut one = Locker::of(&paths[0]);
    assert_eq!(
        one.tell("lock exclusive 0 0"),
        "ok",
        "so does the end of a process"
    );
}

#[test]
fn who_waits_for_a_range_gets_it_or_hears_of_a_deadlock() {
    if !can_mount() || !has_python() {
        return;
    }
    let (_mounts, paths) = mounts();
    let [mut one, mut other] = [&paths[0], &paths[1]].map(|path| Locker::of(path));
    assert_eq!(one.tell("lock exclusive 0 10"), "ok");
    assert_eq!(other.tell("lock exclusive 10 10"), "ok");
    other.ask("lock exclusive 0 10");
    pause();
    assert_eq!(
        one.tell("lock exclusive 10 10"),
        "EDEADLOCK",
        "as Python calls it"
    );
    assert_eq!(one.tell("lock none 0 10"), "ok");
    assert_eq!(other.answer(), "ok");
    // A program that is killed while it waits leaves nothing behind.
    one.ask("lock exclusive 0 1");
    pause();
    drop(one);
    drop(other);
    let mut one = Locker::of(&paths[0]);
    assert_eq!(one.tell("lock exclusive 0 0"), "ok");
}

#[test]
fn locks_of_whole_files_belong_to_what_is_open() {
    if !can_mount() {
        return;
    }
    let (_mounts, paths) = mounts();
    let open = |path: &Path| -> File {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        opened.unwrap()
    };
    let (one, other) = (open(&paths[0]), open(&paths[1]));
    one.lock_shared().unwrap();
    other.try_lock_shared().unwrap();
    other.unlock().unwrap();
    assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| other.lock());
        pause();
        assert!(!waiter.is_finished());
        drop(one);
        waiter.join().unwrap().unwrap();
    });
    let again = open(&paths[0]);
    assert!(matches!(again.try_lock(), Err(TryLockError::WouldBlock)));
}

/// The kernel tells late that a file is closed, and names the next one as it did this one.
#[test]
fn the_late_end_of_a_file_takes_no_lock_from_the_next_one() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::with_locks_of(LateReleases::default());
    let (_mounts, paths) = mounts_of(&volume);
    let other = File::open(&paths[1]).unwrap();
    for round in 0..30 {
        let file = File::open(&paths[0]).unwrap();
        file.lock().unwrap();
        // Longer than what is late.
        (0..10).for_each(|_| pause());
        let taken = other.try_lock();
        assert!(
            matches!(taken, Err(TryLockError::WouldBlock)),
            "{taken:?} in round {round}"
        );
        if round % 2 == 0 {
            file.unlock().unwrap();
        }
    }
}

/// To a program the lock is free when its close returned, of which the kernel tells late.
#[test]
fn who_closed_a_locked_file_can_lock_it_again_at_once() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::with_locks_of(LateReleases::default());
    let (_mounts, paths) = mounts_of(&volume);
    for _ in 0..30 {
        let file = File::open(&paths[0]).unwrap();
        file.try_lock().unwrap();
        drop(file);
        pause();
    }
}

#[test]
fn a_mount_that_ends_holds_nothing() {
    if !can_mount() {
        return;
    }
    let (mounts, paths) = mounts();
    let held = File::open(&paths[0]).unwrap();
    held.lock().unwrap();
    let [one, _other] = mounts;
    let other = File::open(&paths[1]).unwrap();
    assert!(other.try_lock().is_err());
    drop(held);
    one.end();
    other.lock().unwrap();
}

/// Four of them would keep every thread that hears the kernel busy.
#[test]
fn many_who_wait_for_a_whole_file_hold_up_nobody() {
    if !can_mount() {
        return;
    }
    let (_mounts, paths) = mounts();
    let open = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(&paths[0])
            .unwrap()
    };
    let held = open();
    held.lock().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..16).map(|_| scope.spawn(|| open().lock())).collect();
        pause();
        let spent = || std::fs::read_to_string("/proc/self/stat").unwrap();
        let ticks = |stat: String| -> u64 {
            let fields = stat.rsplit(')').next().unwrap().split_whitespace();
            fields
                .skip(11)
                .take(2)
                .map(|field| field.parse::<u64>().unwrap())
                .sum()
        };
        let before = ticks(spent());
        (0..50).for_each(|_| pause());
        let busy = ticks(spent()) - before;
        assert!(busy < 25, "{busy} ticks while everybody waits");
        std::fs::write(paths[0].with_file_name("another"), "served").unwrap();
        held.unlock().unwrap();
        for waiter in waiters {
            waiter.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_lock_that_belongs_to_what_is_open_ends_with_it() {
    if !can_mount() || !has_python() {
        return;
    }
    let (_mounts, paths) = mounts();
    const SCRIPT: &str = "import fcntl, struct, sys, time\n\
        F_OFD_SETLK = 37\n\
        wanted = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)\n\
        one, other = open(sys.argv[1], 'r+b'), open(sys.argv[1], 'r+b')\n\
        fcntl.fcntl(one, F_OFD_SETLK, wanted)\n\
        try:\n    \
            fcntl.fcntl(other, F_OFD_SETLK, wanted)\n    \
            sys.exit('it was not locked')\n\
        except BlockingIOError:\n    \
            pass\n\
        one.close()\n\
        for attempt in range(50):\n    \
            try:\n        \
                fcntl.fcntl(other, F_OFD_SETLK, wanted)\n        \
                sys.exit(0)\n    \
            except BlockingIOError:\n        \
                time.sleep(0.1)\n\
        sys.exit('it is locked for ever')\n";
    let mut python = Command::new("python3");
    let ended = python.args(["-c", SCRIPT]).arg(&paths[0]).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
}

/// The kernel closes the descriptor, and takes back what it knows to be locked: nothing yet.
#[test]
fn a_lock_that_comes_after_its_descriptor_was_closed_ends_with_the_file() {
    if !can_mount() || !has_python() {
        return;
    }
    let (_mounts, paths) = mounts();
    const SCRIPT: &str = "import fcntl, os, sys, threading, time\n\
        file = os.open(sys.argv[1], os.O_RDWR)\n\
        def wait():\n    \
            try:\n        \
                fcntl.lockf(file, fcntl.LOCK_EX)\n    \
            except OSError:\n        \
                pass\n\
        waiter = threading.Thread(target=wait)\n\
        waiter.start()\n\
        time.sleep(0.3)\n\
        os.close(file)\n\
        print('closed', flush=True)\n\
        waiter.join()\n\
        print('waited', flush=True)\n\
        sys.stdin.read()\n";
    let mut holder = Locker::of(&paths[1]);
    assert_eq!(holder.tell("lock exclusive 0 0"), "ok");
    let mut closer = Locker::running(SCRIPT, &paths[0]);
    assert_eq!(closer.answer(), "closed");
    assert_eq!(holder.tell("lock none 0 0"), "ok");
    assert_eq!(closer.answer(), "waited");
    let is_free = (0..50).any(|_| {
        pause();
        holder.tell("try exclusive 0 0") == "ok"
    });
    assert!(is_free, "it is locked for ever");
}

#[test]
fn who_gets_a_lock_reads_nothing_that_the_kernel_kept_of_what_was_before() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::with_locks();
    let inode = volume.add_file("file", b"before".to_vec());
    let mount = TestMount::new(Arc::clone(&volume) as _);
    let file = File::open(mount.path("file")).unwrap();
    let read = || {
        let mut bytes = [0; 6];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    assert_eq!(&read(), b"before");
    volume.replace(inode, b"behind".to_vec());
    assert_eq!(&read(), b"before", "cached");
    // The kernel is told of much else first.
    let session = mount.session();
    let notifier = session.notifier();
    for _ in 0..4000 {
        notifier.attributes_changed(Inode(4711));
    }
    notifier.content_changed(inode);
    file.lock_shared().unwrap();
    assert_eq!(&read(), b"behind");
}

/// Keeps a mount from hearing that the kernel acted on what it is told: the kernel waits for a page that is being read.
/// So a lock is given there, and its owner does not hear of it until the gate is opened.
fn keeps_silent(volume: &MemoryVolume, mount: &TestMount) {
    let gated = volume.add_file("gated", vec![7; 100]);
    volume.hooks.stop("gated", Stop::Gate);
    let path = mount.path("gated");
    thread::spawn(move || std::fs::read(path));
    eventually("the read waits", || {
        volume.hooks.waited_at_gate.load(Ordering::SeqCst) > 0
    });
    mount.session().notifier().content_changed(gated);
}

const SIGNALLED: &str = "import fcntl, os, signal, sys\n\
    file = open(sys.argv[1], 'r+b')\n\
    def caught(number, frame):\n    \
        if sys.stdin.readline().strip() == 'give up':\n        \
            raise InterruptedError()\n\
    signal.signal(signal.SIGUSR1, caught)\n\
    print(os.getpid(), flush=True)\n\
    for line in sys.stdin:\n    \
        try:\n        \
            fcntl.lockf(file, fcntl.LOCK_EX, int(line.split()[1]), int(line.split()[0]))\n        \
            print('ok', flush=True)\n    \
        except InterruptedError:\n        \
            print('EINTR', flush=True)\n";

/// A signal ends the wait for a lock in the moment in which it is given.
fn is_signalled(locker: &Locker, process: &str) {
    (0..20).for_each(|_| pause());
    let process = rustix::process::Pid::from_raw(process.parse().unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::USR1).unwrap();
    assert_eq!(locker.process.id(), process.as_raw_nonzero().get() as u32);
    // Longer than what is late.
    (0..20).for_each(|_| pause());
}

#[test]
fn who_asks_again_for_a_lock_that_was_given_as_a_signal_came_keeps_it() {
    if !can_mount() || !has_python() {
        return;
    }
    let volume = MemoryVolume::with_locks_of(LateReleases::default());
    let (mounts, paths) = mounts_of(&volume);
    let mut one = Locker::running(SIGNALLED, &paths[0]);
    let process = one.answer();
    keeps_silent(&volume, &mounts[0]);
    one.ask("0 10");
    one.ask("go on");
    is_signalled(&one, &process);
    volume.hooks.open_gate();
    assert_eq!(one.answer(), "ok");
    let mut other = Locker::of(&paths[1]);
    assert_eq!(other.tell("try exclusive 0 10"), "EAGAIN");
}

#[test]
fn a_lock_that_a_signal_ended_leaves_what_was_held_before() {
    if !can_mount() || !has_python() {
        return;
    }
    let volume = MemoryVolume::with_locks();
    let (mounts, paths) = mounts_of(&volume);
    let mut one = Locker::running(SIGNALLED, &paths[0]);
    let process = one.answer();
    assert_eq!(one.tell("0 10"), "ok");
    keeps_silent(&volume, &mounts[0]);
    one.ask("5 20");
    one.ask("give up");
    is_signalled(&one, &process);
    assert_eq!(one.answer(), "EINTR");
    volume.hooks.open_gate();
    let mut other = Locker::of(&paths[1]);
    assert_eq!(other.tell("try exclusive 10 10"), "ok", "never held");
    assert_eq!(other.tell("try exclusive 0 5"), "EAGAIN", "untouched");
    assert_eq!(other.tell("try exclusive 5 5"), "EAGAIN", "held before");
}

/// The same as of a process that has locked nothing else, whose lock goes with the handle.
#[test]
fn a_late_lock_ends_with_its_file_whatever_else_its_process_has_locked() {
    if !can_mount() || !has_python() {
        return;
    }
    const SCRIPT: &str = "import fcntl, os, sys, threading, time\n\
        file = os.open(sys.argv[1], os.O_RDWR)\n\
        another = os.open(os.path.dirname(sys.argv[1]) + '/another', os.O_RDWR)\n\
        fcntl.lockf(another, fcntl.LOCK_EX)\n\
        def wait():\n    \
            try:\n        \
                fcntl.lockf(file, fcntl.LOCK_EX)\n    \
            except OSError:\n        \
                pass\n\
        waiter = threading.Thread(target=wait)\n\
        waiter.start()\n\
        time.sleep(0.3)\n\
        os.close(file)\n\
        print('closed', flush=True)\n\
        waiter.join()\n\
        print('waited', flush=True)\n\
        sys.stdin.read()\n";
    let volume = MemoryVolume::with_locks();
    volume.add_file("another", vec![0; 100]);
    let (_mounts, paths) = mounts_of(&volume);
    let mut holder = Locker::of(&paths[1]);
    assert_eq!(holder.tell("lock exclusive 0 0"), "ok");
    let mut closer = Locker::running(SCRIPT, &paths[0]);
    assert_eq!(closer.answer(), "closed");
    assert_eq!(holder.tell("lock none 0 0"), "ok");
    assert_eq!(closer.answer(), "waited");
    let is_free = (0..50).any(|_| {
        pause();
        holder.tell("try exclusive 0 0") == "ok"
    });
    assert!(is_free, "it is locked as long as the other file");
}

#[test]
fn a_process_that_is_killed_in_a_close_loses_its_locks_though_another_has_the_file_open() {
    if !can_mount() || !has_python() {
        return;
    }
    const SCRIPT: &str = "import fcntl, os, sys\n\
        file = open(sys.argv[1], 'r+b')\n\
        fcntl.lockf(file, fcntl.LOCK_EX)\n\
        if os.fork() == 0:\n    \
            sys.stdin.read()\n    \
            os._exit(0)\n\
        print('closes', flush=True)\n\
        file.close()\n";
    let volume = MemoryVolume::with_locks();
    volume.add_file("slow-to-close", vec![0; 100]);
    volume.hooks.stop("slow-to-close", Stop::Gate);
    let (mounts, _) = mounts_of(&volume);
    let [path, elsewhere] = [&mounts[0], &mounts[1]].map(|mount| mount.path("slow-to-close"));
    let mut closer = Locker::running(SCRIPT, &path);
    assert_eq!(closer.answer(), "closes");
    eventually("the close waits", || {
        volume.hooks.waited_at_gate.load(Ordering::SeqCst) > 0
    });
    let mut other = Locker::of(&elsewhere);
    assert_eq!(other.tell("try exclusive 0 0"), "EAGAIN");
    closer.process.kill().unwrap();
    let is_free = (0..100).any(|_| {
        pause();
        other.tell("try exclusive 0 0") == "ok"
    });
    volume.hooks.open_gate();
    assert!(
        is_free,
        "it is locked as long as the other has the file open"
    );
}

#[test]
fn a_lock_is_broken_into_so_many_pieces_and_no_more() {
    if !can_mount() || !has_python() {
        return;
    }
    const SCRIPT: &str = "import errno, fcntl, sys\n\
        file = open(sys.argv[1], 'r+b')\n\
        fcntl.lockf(file, fcntl.LOCK_EX)\n\
        for piece in range(1, 10000):\n    \
            try:\n        \
                fcntl.lockf(file, fcntl.LOCK_UN, 1, 2 * piece)\n    \
            except OSError as error:\n        \
                print(piece, errno.errorcode[error.errno], flush=True)\n        \
                break\n\
        fcntl.lockf(file, fcntl.LOCK_UN)\n\
        print('ok', flush=True)\n\
        sys.stdin.read()\n";
    let (_mounts, paths) = mounts();
    let mut one = Locker::running(SCRIPT, &paths[0]);
    assert_eq!(one.answer(), "4096 ENOLCK");
    assert_eq!(one.answer(), "ok");
    let mut other = Locker::of(&paths[1]);
    assert_eq!(other.tell("try exclusive 0 0"), "ok");
}

/// Locks that a database keeps which is away.
#[derive(Debug, Default)]
struct AwayLocks;

#[async_trait]
impl Locks for AwayLocks {
    async fn conflict(&self, _: Inode, _: LockFamily, _: &Lock) -> FsResult<Option<Lock>> {
        Err(FsError::Io("it is away".to_owned()))
    }

    async fn acquire(&self, _: Inode, _: LockFamily, _: Lock, _: Waiting) -> FsResult<Given> {
        Err(FsError::Io("it is away".to_owned()))
    }

    async fn release(&self, _: Inode, _: LockFamily, _: (LockOwner, Range<u64>)) {}

    async fn release_client(&self, _: u64) {}
}

#[test]
fn a_lock_that_cannot_be_asked_for_is_a_failure_of_locking() {
    if !can_mount() || !has_python() {
        return;
    }
    let (_mounts, paths) = mounts_of(&MemoryVolume::with_locks_of(AwayLocks));
    let mut one = Locker::of(&paths[0]);
    assert_eq!(one.tell("try exclusive 0 10"), "ENOLCK");
    assert_eq!(one.tell("lock exclusive 0 10"), "ENOLCK");
    let file = File::open(&paths[0]).unwrap();
    let error = file.lock().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOLCK));
}
