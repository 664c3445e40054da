//! Mount targets, and mounts of them by the NFS client of the kernel.

use std::{
    ffi::CString,
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{Patience, Scratch, system};

const PATIENCE: Patience = Patience::seconds(120);

/// A mount target in a process of its own.
pub struct MountTarget {
    scratch: Scratch,
    command: Box<dyn Fn() -> Command>,
    address: SocketAddr,
    process: Child,
}

impl MountTarget {
    /// Starts what `command` says with an address of its own.
    pub fn new(command: impl Fn() -> Command + 'static) -> Self {
        let scratch = Scratch::new();
        let address = free_address();
        let command = Box::new(command);
        let process = serve(&command, address, scratch.path());
        Self {
            scratch,
            command,
            address,
            process,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process.kill().expect("it lives");
        self.process.wait().expect("our own child");
    }

    /// Starts it again.
    pub fn start(&mut self) {
        self.process = serve(&self.command, self.address, self.scratch.path());
    }
}

impl Drop for MountTarget {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A mount target and a mount of it.
pub struct NfsMount {
    target: MountTarget,
    place: PathBuf,
}

impl NfsMount {
    /// Whether the kernel can mount such a file system; else says that a test is skipped.
    pub fn is_possible() -> bool {
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let has_client = known.lines().any(|line| line.ends_with("\tnfs"));
        // SAFETY: it only tells a number.
        #[allow(unsafe_code)]
        let is_root = unsafe { libc::geteuid() } == 0;
        if !has_client || !is_root {
            penstock_skips::skipped("the kernel's NFS client and root are needed");
        }
        has_client && is_root
    }

    /// Starts what `command` says with an address of its own, and mounts it.
    pub fn new(command: impl Fn() -> Command + 'static) -> Self {
        let target = MountTarget::new(command);
        let place = target.scratch.folder("mnt");
        mount(target.address, &place);
        Self { target, place }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.place
    }

    /// Kills the target and starts it again; programs wait meanwhile.
    pub fn kill_and_start(&mut self) {
        self.target.kill();
        self.target.start();
    }
}

impl Drop for NfsMount {
    fn drop(&mut self) {
        system::detach(&self.place);
    }
}

/// An address that nobody listens at.
pub fn free_address() -> SocketAddr {
    let probe = TcpListener::bind("127.0.0.1:0").expect("a free port");
    probe.local_addr().expect("bound")
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
