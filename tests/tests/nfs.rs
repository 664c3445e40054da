//! Mount targets mounted by the NFS client of the kernel. Where the kernel has none they say so; `make guest-test` runs
//! them in a guest that has.

#![allow(clippy::disallowed_methods)]

use std::{
    ffi::CString,
    fs,
    io::{Read, Seek, SeekFrom, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use penstock_tests::{Bucket, Fileset, Kind, Patience, Scratch, system};

const PATIENCE: Patience = Patience::seconds(120);

/// Whether the kernel can mount such a file system.
fn has_client() -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has = known.lines().any(|line| line.ends_with("\tnfs"));
    if !has || !penstock_is_root() {
        penstock_skips::skipped("the kernel's NFS client and root are needed");
    }
    has && penstock_is_root()
}

fn penstock_is_root() -> bool {
    // SAFETY: it only tells a number.
    #[allow(unsafe_code)]
    unsafe {
        libc::geteuid() == 0
    }
}

/// A mount target and a mount of it.
struct Mounted {
    scratch: Scratch,
    command: Box<dyn Fn() -> Command>,
    address: SocketAddr,
    process: Child,
    place: PathBuf,
}

impl Mounted {
    fn new(command: impl Fn() -> Command + 'static) -> Self {
        let scratch = Scratch::new();
        let probe = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = probe.local_addr().expect("bound");
        drop(probe);
        let command = Box::new(command);
        let process = serve(&command, address, scratch.path());
        let place = scratch.folder("mnt");
        mount(address, &place);
        Self {
            scratch,
            command,
            address,
            process,
            place,
        }
    }

    /// Kills the target and starts it again; programs wait meanwhile.
    fn kill_and_start(&mut self) {
        self.process.kill().expect("it lives");
        self.process.wait().expect("our own child");
        self.process = serve(&self.command, self.address, self.scratch.path());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        system::detach(&self.place);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(command: &dyn Fn() -> Command, address: SocketAddr, state: &Path) -> Child {
    let mut command = command();
    command
        .args(["--squash", "none", "--listen", &address.to_string()])
        .arg("--state-dir")
        .arg(state.join("state"))
        .stderr(Stdio::null());
    let child = command.spawn().expect("it was just built");
    PATIENCE.until("it listens", || TcpStream::connect(address).is_ok());
    child
}

/// Mounts without a helper: the kernel takes its options as text, with the address in it.
#[allow(unsafe_code)]
fn mount(address: SocketAddr, place: &Path) {
    let (ip, port) = (address.ip(), address.port());
    let options = format!(
        "vers=3,proto=tcp,mountproto=tcp,port={port},mountport={port},nolock,hard,timeo=50,nconnect=4,\
         addr={ip},mountaddr={ip}"
    );
    let text = |text: &str| CString::new(text).expect("no NUL");
    let (source, kind, options) = (text(&format!("{ip}:/")), text("nfs"), text(&options));
    let target = text(place.to_str().expect("plain"));
    // SAFETY: all are text that ends with NUL and outlives the call.
    let outcome = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            0,
            options.as_ptr().cast(),
        )
    };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 % 251) as u8).collect()
}

/// What every target does.
fn copies_and_lists(place: &Path) {
    let all = content(9_000_001);
    fs::create_dir(place.join("directory")).expect("made");
    fs::write(place.join("directory/file"), &all).expect("written");
    assert!(fs::read(place.join("directory/file")).expect("read") == all);
    for number in 0..300 {
        fs::write(place.join(format!("directory/{number:03}")), b"small").expect("written");
    }
    let listed = fs::read_dir(place.join("directory"))
        .expect("listed")
        .count();
    assert_eq!(listed, 301);
    fs::rename(place.join("directory/000"), place.join("directory/moved")).expect("moved");
    assert_eq!(
        fs::read(place.join("directory/moved")).expect("read"),
        b"small"
    );
    fs::remove_dir_all(place.join("directory")).expect("removed");
    assert!(!place.join("directory").exists());
}

#[test]
fn the_kernel_mounts_a_fileset_as_a_posix_file_system() {
    if !has_client() {
        return;
    }
    let fileset = std::rc::Rc::new(Fileset::new("nfs"));
    let served = std::rc::Rc::clone(&fileset);
    let mut mounted = Mounted::new(move || served.command("serve"));
    let place = mounted.place.clone();
    copies_and_lists(&place);
    let (file, other) = (place.join("file"), place.join("other"));
    fs::write(&file, content(200_000)).expect("written");
    fs::hard_link(&file, &other).expect("linked");
    symlink("file", place.join("link")).expect("linked");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("set");
    let seen = fs::metadata(place.join("link")).expect("there");
    assert_eq!(
        (seen.nlink(), seen.mode() & 0o7777, seen.len()),
        (2, 0o640, 200_000)
    );
    let mut open = fs::File::options()
        .read(true)
        .write(true)
        .open(&file)
        .expect("opened");
    open.write_all_at(b"over", 100_000).expect("written");
    open.set_len(150_000).expect("cut");
    open.sync_all().expect("synced");
    fs::remove_file(&file).expect("removed while it is open");
    fs::remove_file(&other).expect("removed");
    let mut bytes = [0; 4];
    open.seek(SeekFrom::Start(100_000)).expect("sought");
    open.read_exact(&mut bytes)
        .expect("it lives until it is closed");
    assert_eq!(&bytes, b"over");
    drop(open);
    let mut appended = fs::File::options()
        .append(true)
        .create(true)
        .open(&file)
        .expect("new");
    for number in 0..20 {
        writeln!(appended, "line {number}").expect("appended");
    }
    appended.sync_all().expect("synced");
    mounted.kill_and_start();
    writeln!(appended, "and one after the kill").expect("appended");
    appended.sync_all().expect("synced");
    let text = fs::read_to_string(&file).expect("the same handle");
    assert_eq!(text.lines().count(), 21);
}

#[test]
fn what_programs_write_while_a_target_is_killed_is_all_there() {
    if !has_client() {
        return;
    }
    let fileset = std::rc::Rc::new(Fileset::new("nfs-kill"));
    let served = std::rc::Rc::clone(&fileset);
    let mut mounted = Mounted::new(move || served.command("serve"));
    let place = mounted.place.clone();
    let writing = std::thread::spawn(move || {
        for number in 0..60 {
            let bytes = content(100_000 + number);
            fs::write(place.join(format!("file {number}")), &bytes).expect("written");
        }
        let mut large = fs::File::create(place.join("large")).expect("made");
        for piece in content(20_000_000).chunks(100_000) {
            large.write_all(piece).expect("written");
        }
        large.sync_all().expect("synced");
        place
    });
    let mut kills = 0;
    while !writing.is_finished() && kills < 5 {
        std::thread::sleep(std::time::Duration::from_secs(2));
        mounted.kill_and_start();
        kills += 1;
    }
    let place = writing.join().expect("no program saw an error");
    for number in 0..60 {
        let found = fs::read(place.join(format!("file {number}"))).expect("read");
        assert!(found == content(100_000 + number), "file {number}");
    }
    assert!(fs::read(place.join("large")).expect("read") == content(20_000_000));
}

#[test]
fn the_kernel_mounts_a_bucket_and_writes_files_from_front_to_back() {
    if !has_client() {
        return;
    }
    let bucket = std::rc::Rc::new(Bucket::new(Kind::S3));
    let served = std::rc::Rc::clone(&bucket);
    let mounted = Mounted::new(move || served.command("serve"));
    copies_and_lists(&mounted.place);
}
