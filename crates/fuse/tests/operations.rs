//! Every operation through the kernel, on a real mount.

#![allow(unsafe_code, clippy::panic, clippy::unwrap_used)]

mod support;

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::{
            ffi::OsStrExt,
            fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
        },
    },
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, SystemTime},
};

use penstock_base::FileName;
use penstock_vfs::{HeldFile, Inode, Watcher};
use support::{MemoryVolume, Stop, TestMount, can_mount, eventually, pattern, pause, writes_of};

const PAGE: usize = 4096;

fn errno(error: &std::io::Error) -> i32 {
    error.raw_os_error().expect("a system error")
}

#[test]
fn a_file_is_written_read_and_removed() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    let mount = TestMount::new(volume.clone());
    let path = mount.path("file");
    fs::write(&path, b"hello").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"hello");
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.len(), metadata.blocks()), (5, 1));
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o644);
    fs::remove_file(&path).unwrap();
    assert_eq!(errno(&fs::metadata(&path).unwrap_err()), libc::ENOENT);
    mount.finish(&volume);
}

#[test]
fn every_operation_works_as_a_task_too() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    volume.hooks.set_latency(Duration::from_millis(2));
    let mount = TestMount::new(volume.clone());
    let path = mount.path("file");
    let bytes = pattern(3_000_000, 1);
    fs::write(&path, &bytes).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    fs::remove_file(&path).unwrap();
    assert!(mount.counted("fuse_requests_deferred_total", None) > 5);
    mount.finish(&volume);
}

#[test]
fn five_thousand_names_are_listed_once_each() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    for number in 0..5000 {
        volume.add_file(&format!("entry-with-a-longer-name-{number:05}"), vec![1; 3]);
    }
    let mount = TestMount::new(volume.clone());
    let mut names: Vec<_> = fs::read_dir(mount.root())
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            assert!(entry.file_type().unwrap().is_file());
            assert_eq!(entry.metadata().unwrap().len(), 3);
            entry.file_name().into_string().unwrap()
        })
        .collect();
    names.sort();
    let expected: Vec<_> = (0..5000)
        .map(|number| format!("entry-with-a-longer-name-{number:05}"))
        .collect();
    assert_eq!(names, expected);
    assert_eq!(mount.counted("fuse_requests_total", Some("lookup")), 0);
    assert_eq!(mount.counted("fuse_requests_total", Some("readdir")), 0);
    mount.finish(&volume);
}

#[test]
fn a_listing_goes_on_where_it_was_left() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    for number in 0..300 {
        volume.add_file(&format!("{number:03}"), Vec::new());
    }
    let mount = TestMount::new(volume);
    let path = std::ffi::CString::new(mount.root().as_os_str().as_bytes()).unwrap();
    let next_name = |stream: *mut libc::DIR| {
        // SAFETY: the stream is open; the entry is copied before the next call.
        let entry = unsafe { libc::readdir64(stream).as_ref() }?;
        // SAFETY: `d_name` is NUL-terminated.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.d_name.as_ptr()) };
        Some(name.to_str().unwrap().to_owned())
    };
    // SAFETY: a valid path; the stream is closed below.
    let stream = unsafe { libc::opendir(path.as_ptr()) };
    assert!(!stream.is_null());
    let first: Vec<_> = (0..150).map_while(|_| next_name(stream)).collect();
    assert_eq!(first[..3], [".", "..", "000"]);
    // SAFETY: the stream is open.
    let position = unsafe { libc::telldir(stream) };
    let rest: Vec<_> = std::iter::from_fn(|| next_name(stream)).collect();
    assert_eq!((first.len(), rest.len()), (150, 152));
    // SAFETY: the position came from this stream.
    unsafe { libc::seekdir(stream, position) };
    let again: Vec<_> = std::iter::from_fn(|| next_name(stream)).collect();
    assert_eq!(rest, again);
    // SAFETY: opened above, closed once.
    unsafe { libc::closedir(stream) };
}

#[test]
fn directories_are_made_listed_and_removed() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new(MemoryVolume::new());
    let (outer, inner) = (mount.path("outer"), mount.path("outer/inner"));
    fs::create_dir(&outer).unwrap();
    fs::create_dir(&inner).unwrap();
    assert_eq!(errno(&fs::create_dir(&inner).unwrap_err()), libc::EEXIST);
    assert!(fs::metadata(&inner).unwrap().is_dir());
    assert_eq!(errno(&fs::remove_dir(&outer).unwrap_err()), libc::ENOTEMPTY);
    fs::remove_dir(&inner).unwrap();
    fs::remove_dir(&outer).unwrap();
    assert_eq!(fs::read_dir(mount.root()).unwrap().count(), 0);
}

#[test]
fn names_move_with_and_without_replacing() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new(MemoryVolume::new());
    let (one, two) = (mount.path("one"), mount.path("two"));
    fs::write(&one, b"1").unwrap();
    fs::write(&two, b"2").unwrap();
    assert_eq!(
        rename_with(&one, &two, libc::RENAME_NOREPLACE),
        libc::EEXIST
    );
    assert_eq!(rename_with(&one, &two, libc::RENAME_EXCHANGE), 0);
    assert_eq!(fs::read(&one).unwrap(), b"2");
    assert_eq!(rename_with(&one, &two, libc::RENAME_WHITEOUT), libc::EINVAL);
    fs::rename(&one, &two).unwrap();
    assert_eq!(fs::read(&two).unwrap(), b"2");
    assert!(!one.exists());
}

fn rename_with(from: &std::path::Path, to: &std::path::Path, flags: u32) -> i32 {
    let text = |path: &std::path::Path| std::ffi::CString::new(path.as_os_str().as_bytes());
    let (from, to) = (text(from).unwrap(), text(to).unwrap());
    // SAFETY: both are NUL-terminated strings.
    let status = unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            flags,
        )
    };
    match status {
        0 => 0,
        _ => errno(&std::io::Error::last_os_error()),
    }
}

#[test]
fn attributes_change_and_files_are_truncated() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new(MemoryVolume::new());
    let path = mount.path("file");
    fs::write(&path, b"0123456789").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(4).unwrap();
    for before_1970 in [false, true] {
        let span = Duration::new(1000, 5);
        let time = match before_1970 {
            false => SystemTime::UNIX_EPOCH + span,
            true => SystemTime::UNIX_EPOCH - span,
        };
        file.set_modified(time).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), time);
    }
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (12, 34));
    assert_eq!(metadata.mode() & 0o7777, 0o600);
    assert_eq!(fs::read(&path).unwrap(), b"0123");
    File::create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn appends_go_to_the_end() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new(MemoryVolume::new());
    let path = mount.path("log");
    fs::write(&path, b"one ").unwrap();
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"two ").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(b"three").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one two three");
}

#[test]
fn links_are_symbolic_only() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new(MemoryVolume::new());
    let (target, link) = (mount.path("target"), mount.path("link"));
    fs::write(&target, b"x").unwrap();
    symlink("target", &link).unwrap();
    assert_eq!(fs::read_link(&link).unwrap(), OsStr::new("target"));
    assert_eq!(fs::read(&link).unwrap(), b"x");
    let hard = fs::hard_link(&target, mount.path("hard")).unwrap_err();
    assert_eq!(errno(&hard), libc::EPERM);
}

#[test]
fn nodes_are_regular_files_only() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new(MemoryVolume::new());
    let make = |name: &str, kind: u32| {
        let path = mount.path(name);
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a NUL-terminated string.
        unsafe { libc::mknod(path.as_ptr(), kind | 0o640, 0) }
    };
    assert_eq!(make("plain", libc::S_IFREG), 0);
    assert_eq!(fs::metadata(mount.path("plain")).unwrap().len(), 0);
    assert_eq!(make("pipe", libc::S_IFIFO), -1);
    assert_eq!(errno(&std::io::Error::last_os_error()), libc::EPERM);
}

#[test]
fn what_is_absent_is_remembered_for_its_ttl() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    let mount = TestMount::new(volume.clone());
    let path = mount.path("later");
    for _ in 0..10 {
        assert!(!path.exists());
    }
    assert_eq!(mount.counted("fuse_requests_total", Some("lookup")), 1);
    volume.add_file("later", b"here".to_vec());
    (0..25).for_each(|_| pause());
    assert_eq!(fs::read(&path).unwrap(), b"here");
}

#[test]
fn names_that_cannot_be_are_refused() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new(MemoryVolume::new());
    let create = |name: &[u8]| {
        let path = mount.root().join(OsStr::from_bytes(name));
        errno(&File::create(path).unwrap_err())
    };
    assert_eq!(create(&[b'x'; 256]), libc::ENAMETOOLONG);
    assert_eq!(create(b"\xff\xfe"), libc::EILSEQ);
    let path = mount.root().join(OsStr::from_bytes(b"\xff"));
    assert_eq!(errno(&fs::create_dir(&path).unwrap_err()), libc::EILSEQ);
    assert!(!path.exists());
}

#[test]
fn eight_threads_move_data_that_stays_intact() {
    if !can_mount() {
        return;
    }
    for (direct, latency) in [
        (false, None),
        (true, None),
        (false, Some(1)),
        (true, Some(1)),
    ] {
        let volume = MemoryVolume::with_direct(direct);
        if let Some(latency) = latency {
            volume.hooks.set_latency(Duration::from_millis(latency));
        }
        let mount = TestMount::new(volume.clone());
        thread::scope(|scope| {
            for number in 0..8_u64 {
                let path = mount.path(&format!("file-{number}"));
                scope.spawn(move || move_data(&path, number));
            }
        });
        mount.finish(&volume);
    }
}

fn move_data(path: &std::path::Path, seed: u64) {
    let bytes = pattern(5 * 1024 * 1024 + 321, seed);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .unwrap();
    let step = [1 << 20, 128 << 10, 100_000, (1 << 20) + 4096][seed as usize % 4];
    for (index, chunk) in bytes.chunks(step).enumerate() {
        file.write_all_at(chunk, (index * step) as u64).unwrap();
    }
    file.sync_all().unwrap();
    let mut read = Vec::new();
    file.read_to_end(&mut read).unwrap();
    assert!(read == bytes, "thread {seed} reads what it wrote");
    let mut middle = vec![0; 70_000];
    file.read_exact_at(&mut middle, 1_000_001).unwrap();
    assert!(middle == bytes[1_000_001..1_070_001]);
}

#[test]
fn large_writes_arrive_whole_and_aligned() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::with_direct(true);
    let mount = TestMount::new(volume.clone());
    let bytes = pattern(4 << 20, 9);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DIRECT)
        .open(mount.path("big"))
        .unwrap();
    // Aligned memory lets the kernel take 256 whole pages.
    let layout = std::alloc::Layout::from_size_align(bytes.len(), 4096).unwrap();
    // SAFETY: allocated with this layout, filled before it is read, freed once.
    let sent = unsafe {
        let memory = std::alloc::alloc(layout);
        memory.copy_from(bytes.as_ptr(), bytes.len());
        let sent = file.write(std::slice::from_raw_parts(memory, bytes.len()));
        std::alloc::dealloc(memory, layout);
        sent.unwrap()
    };
    assert_eq!(sent, bytes.len());
    file.write_all(b"small").unwrap();
    drop(file);
    let writes = volume.writes.lock().unwrap().clone();
    assert_eq!(
        writes.iter().map(|seen| seen.length).collect::<Vec<_>>(),
        [1 << 20, 1 << 20, 1 << 20, 1 << 20, 5]
    );
    assert!(writes[..4].iter().all(|seen| seen.address % 4096 == 0));
    assert!(fs::read(mount.path("big")).unwrap().starts_with(&bytes));
}

#[test]
fn what_has_no_meaning_here_is_answered_as_programs_expect() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new(MemoryVolume::new());
    let path = mount.path("file");
    fs::write(&path, b"0123").unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
    let text = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let last = || errno(&std::io::Error::last_os_error());
    // SAFETY: an open descriptor, valid strings and no buffer.
    unsafe {
        assert_eq!(libc::fallocate(descriptor, 0, 0, 100), -1);
        assert_eq!(last(), libc::EOPNOTSUPP);
        let name = c"user.x".as_ptr();
        assert_eq!(
            libc::getxattr(text.as_ptr(), name, std::ptr::null_mut(), 0),
            -1
        );
        assert_eq!(last(), libc::EOPNOTSUPP);
        assert_eq!(libc::lseek(descriptor, 1, libc::SEEK_DATA), 1);
        assert_eq!(libc::flock(descriptor, libc::LOCK_EX), 0);
        assert_eq!(libc::access(text.as_ptr(), libc::W_OK), 0);
    }
    for _ in 0..5 {
        // SAFETY: as above.
        unsafe { libc::getxattr(text.as_ptr(), c"user.y".as_ptr(), std::ptr::null_mut(), 0) };
    }
    assert_eq!(mount.counted("fuse_requests_total", Some("getxattr")), 1);
    fs::copy(&path, mount.path("copy")).unwrap();
    assert_eq!(fs::read(mount.path("copy")).unwrap(), b"0123");
    // SAFETY: zeros are a valid value, and the call fills it.
    let shown = unsafe {
        let mut shown: libc::statvfs = std::mem::zeroed();
        assert_eq!(libc::statvfs(text.as_ptr(), &raw mut shown), 0);
        shown
    };
    assert_eq!(
        (
            shown.f_blocks,
            shown.f_bfree,
            shown.f_bavail,
            shown.f_namemax
        ),
        (1000, 600, 500, 255)
    );
}

#[test]
fn an_error_at_close_reaches_the_program() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new(MemoryVolume::new());
    let file = File::create(mount.path("no-space-at-close")).unwrap();
    let descriptor = std::os::fd::IntoRawFd::into_raw_fd(file);
    // SAFETY: the descriptor is ours and closed once.
    assert_eq!(unsafe { libc::close(descriptor) }, -1);
    assert_eq!(errno(&std::io::Error::last_os_error()), libc::ENOSPC);
}

#[test]
fn the_kernel_hears_of_changes_behind_its_back() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    let inode = volume.add_file("file", b"before".to_vec());
    let mount = TestMount::new(volume.clone());
    let file = File::open(mount.path("file")).unwrap();
    let mut bytes = [0; 6];
    file.read_exact_at(&mut bytes, 0).unwrap();
    volume.replace(inode, b"behind".to_vec());
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"before", "cached");
    mount.session().notifier().content_changed(inode);
    let changed = (0..100).any(|_| {
        pause();
        file.read_exact_at(&mut bytes, 0).unwrap();
        &bytes == b"behind"
    });
    assert!(changed);
}

#[test]
fn names_that_changed_behind_the_kernels_back_are_asked_for_anew() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    volume.is_believed();
    volume.add_file("old", b"content".to_vec());
    let mount = TestMount::new(volume.clone());
    let is_there = |name: &str| mount.path(name).exists();
    assert!(is_there("old") && !is_there("new"));
    volume.rename_behind("old", "new");
    assert!(is_there("old") && !is_there("new"), "cached");
    for name in ["old", "new"] {
        let name = FileName::new(name.as_bytes()).unwrap();
        mount.session().notifier().name_changed(Inode::ROOT, &name);
    }
    eventually("both are asked for", || !is_there("old") && is_there("new"));
    mount.finish(&volume);
}

#[test]
fn a_directory_whose_name_is_asked_for_anew_stays_what_it_is_to_those_who_are_in_it() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    volume.is_believed();
    let mount = TestMount::new(volume.clone());
    std::fs::create_dir(mount.path("directory")).unwrap();
    let held = File::open(mount.path("directory")).unwrap();
    let before = mount.counted("fuse_requests_total", Some("lookup"));
    let name = FileName::new(b"directory").unwrap();
    mount.session().notifier().name_changed(Inode::ROOT, &name);
    eventually("it is asked for", || {
        mount.path("directory").is_dir()
            && mount.counted("fuse_requests_total", Some("lookup")) > before
    });
    let place = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
    let place = std::fs::read_link(place).unwrap();
    assert_eq!(place, mount.path("directory"));
    drop(held);
    mount.finish(&volume);
}

#[test]
fn attributes_that_changed_behind_the_kernels_back_are_asked_for_anew_and_content_is_kept() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    volume.is_believed();
    let inode = volume.add_file("file", b"before".to_vec());
    let mount = TestMount::new(volume.clone());
    let file = File::open(mount.path("file")).unwrap();
    let mut bytes = [0; 6];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let size = || file.metadata().unwrap().len();
    assert_eq!(size(), 6);
    volume.replace(inode, b"behind it".to_vec());
    assert_eq!(size(), 6, "cached");
    mount.session().notifier().attributes_changed(inode);
    eventually("the size is asked for", || size() == 9);
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"before", "content is told of by itself");
    drop(file);
    mount.finish(&volume);
}

#[test]
fn the_kernel_gives_back_what_a_volume_asks_for() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    let files = ["open", "closed", "other"];
    let held: Vec<HeldFile> = files
        .iter()
        .map(|name| HeldFile {
            inode: volume.add_file(name, b"content".to_vec()),
            parent: Inode::ROOT,
            name: FileName::new(name.as_bytes()).unwrap(),
            is_directory: false,
        })
        .collect();
    let mount = TestMount::new(volume.clone());
    let open = File::open(mount.path("open")).unwrap();
    let before = volume.references();
    for name in &files[1..] {
        std::fs::metadata(mount.path(name)).unwrap();
    }
    assert_eq!(volume.references(), before + 2);
    mount.session().notifier().references_wanted(held);
    let given_back = (0..100).any(|_| {
        pause();
        volume.references() == before
    });
    assert!(given_back, "{} of {before}", volume.references());
    let mut bytes = [0; 7];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(volume.violations(), [""; 0]);
}

/// A handle of a file as the kernel makes it for a server that exports the mount, `name_to_handle_at(2)`.
#[repr(C)]
struct KernelHandle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    handle: [u8; 128],
}

impl KernelHandle {
    fn of(path: &std::path::Path) -> Self {
        let mut handle = Self {
            bytes: 128,
            kind: 0,
            handle: [0; 128],
        };
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        let mut mount = 0;
        // SAFETY: the structure is laid out as the kernel's and has the room that it says.
        let made = unsafe {
            let place = std::ptr::from_mut(&mut handle).cast();
            libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), place, &raw mut mount, 0)
        };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        handle
    }

    fn open(&mut self, mount: &File) -> std::io::Result<File> {
        // SAFETY: the handle is one that the kernel filled; the descriptor that it returns is new.
        unsafe {
            let place = std::ptr::from_mut(self).cast();
            match libc::open_by_handle_at(mount.as_raw_fd(), place, libc::O_RDONLY) {
                -1 => Err(std::io::Error::last_os_error()),
                opened => Ok(File::from_raw_fd(opened)),
            }
        }
    }
}

#[test]
fn an_inode_that_the_kernel_forgot_is_found_again_by_its_handle() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    let mount = TestMount::new(volume.clone());
    fs::create_dir(mount.path("directory")).unwrap();
    fs::write(mount.path("directory/file"), b"content").unwrap();
    let inode = |name: &str| Inode(fs::metadata(mount.path(name)).unwrap().ino());
    let held = |parent, name: &str, path: &str| HeldFile {
        inode: inode(path),
        parent,
        name: FileName::new(name.as_bytes()).unwrap(),
        is_directory: path == "directory",
    };
    let directory = held(Inode::ROOT, "directory", "directory");
    let file = held(directory.inode, "file", "directory/file");
    let mut handles =
        ["directory/file", "directory"].map(|name| KernelHandle::of(&mount.path(name)));
    let before = volume.references();
    mount
        .session()
        .notifier()
        .references_wanted(vec![file, directory]);
    let is_forgotten = || volume.references() + 2 <= before;
    let forgot = (0..100).any(|_| {
        pause();
        is_forgotten()
    });
    let root = File::open(mount.root()).unwrap();
    let [file, directory] = &mut handles;
    let mut content = String::new();
    let mut opened = file.open(&root).unwrap();
    opened.read_to_string(&mut content).unwrap();
    assert_eq!(content, "content");
    let found = directory.open(&root).unwrap().metadata().unwrap();
    assert!(found.is_dir());
    // Kernels before Linux 6.18 keep directories.
    if forgot {
        assert!(mount.counted("fuse_requests_total", Some("lookup")) > 0);
    }
    drop((opened, root));
    mount.finish(&volume);
}

#[test]
fn many_small_requests_in_flight() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    volume.hooks.set_latency(Duration::from_millis(50));
    let mount = Arc::new(TestMount::new(volume));
    let begun = penstock_base::clock::now();
    thread::scope(|scope| {
        for number in 0..100 {
            let path = mount.path(&format!("absent-{number}"));
            scope.spawn(move || assert!(!path.exists()));
        }
    });
    let spent = begun.elapsed();
    assert!(
        spent < Duration::from_secs(2),
        "100 waits of 50 ms took {spent:?}"
    );
}

/// An open makes the kernel drop a page that is being written. Who reads it then must not be shown, and the
/// kernel not left with, what was there before.
#[test]
fn a_page_that_is_dropped_while_it_is_written_is_read_anew() {
    if !can_mount() {
        return;
    }
    let volume = MemoryVolume::new();
    volume.add_file("file", vec![0; PAGE]);
    volume.hooks.stop(&writes_of("file"), Stop::Gate);
    let mount = TestMount::new(volume.clone());
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).open(mount.path("file"));
    let file = file.unwrap();
    let read = || {
        let mut bytes = vec![0; PAGE];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let written = vec![0xc1; PAGE];
    thread::scope(|scope| {
        let writer = scope.spawn(|| file.write_all_at(&written, 0));
        eventually("the write is under way", || {
            volume.hooks.waited_at_gate.load(Ordering::SeqCst) == 1
        });
        File::open(mount.path("file")).unwrap();
        let reader = scope.spawn(read);
        // The answer to the READ is what must not come too early.
        pause();
        volume.hooks.open_gate();
        writer.join().unwrap().unwrap();
        assert!(reader.join().unwrap() == written);
    });
    assert!(read() == written, "what the kernel keeps");
    drop(file);
    mount.finish(&volume);
}
