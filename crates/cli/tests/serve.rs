//! `penstock serve`: mount targets over a bucket and over a fileset, asked by clients that are not ours, killed and
//! started again.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods, clippy::panic)]

mod support;

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nfs3_client::{
    MountClient, Nfs3Client,
    nfs3_types::{
        mount::dirpath,
        nfs3::{
            COMMIT3args, CREATE3args, GETATTR3args, LOOKUP3args, Nfs3Option, Nfs3Result, READ3args,
            WRITE3args, createhow3, diropargs3, nfs_fh3, nfsstat3, sattr3, set_atime, set_mtime,
            stable_how,
        },
        rpc::{auth_unix, opaque_auth},
        xdr_codec::{Opaque, Pack},
    },
    tokio::TokioIo,
};
use support::{Background, Ended, Scratch, run, succeed, wait_until};

type Io = TokioIo<tokio::net::TcpStream>;

/// A port that nobody listens on.
fn free_address() -> SocketAddr {
    let probe = TcpListener::bind("127.0.0.1:0").expect("a free port");
    probe.local_addr().expect("bound")
}

/// A mount target of a source.
struct Target {
    scratch: Scratch,
    source: String,
    address: SocketAddr,
    fileset: Option<String>,
    process: Option<Background>,
}

impl Target {
    fn of_bucket(options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let source = format!("file://{}", scratch.folder("bucket").display());
        Self::started(scratch, source, None, options)
    }

    fn of_fileset(what: &str) -> Self {
        let scratch = Scratch::new();
        let name = format!("serve-{what}-{}", std::process::id());
        let store = format!("file://{}", scratch.folder("bucket").display());
        let mut create = scratch.penstock();
        succeed(create.args(["fileset", "create", &name, "--store", &store]));
        let source = format!("fileset://{name}");
        Self::started(scratch, source, Some(name), &[])
    }

    fn started(
        scratch: Scratch,
        source: String,
        fileset: Option<String>,
        options: &[&str],
    ) -> Self {
        let mut target = Self {
            scratch,
            source,
            address: free_address(),
            fileset,
            process: None,
        };
        target.start(options);
        target
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = self.scratch.penstock();
        command
            .args(["serve", &self.source, "--squash", "none", "--listen"])
            .arg(self.address.to_string())
            .arg("--state-dir")
            .arg(self.scratch.path("state"))
            .args(options);
        command
    }

    fn start(&mut self, options: &[&str]) {
        let child = self.command(options).stderr(Stdio::null()).spawn();
        self.process = Some(Background(child.expect("it was just built")));
        wait_until("it listens", || TcpStream::connect(self.address).is_ok());
    }

    /// Kills the process, so that it can save nothing.
    fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Asks it to end, and waits until it has.
    #[allow(unsafe_code)]
    fn terminate(&mut self) {
        let mut process = self.process.take().expect("started");
        let pid = libc::pid_t::try_from(process.0.id()).expect("a process id");
        // SAFETY: the process is our own child, which was not waited for yet.
        let sent = unsafe { libc::kill(pid, libc::SIGTERM) };
        assert_eq!(sent, 0, "the process is there");
        let mut status = None;
        wait_until("it ends", || {
            status = process.0.try_wait().expect("our own child");
            status.is_some()
        });
        assert!(
            status.is_some_and(|status| status.success()),
            "{}",
            self.scratch.log()
        );
    }

    /// A path on it as libnfs writes it.
    fn url(&self, path: &str) -> String {
        let port = self.address.port();
        format!("nfs://127.0.0.1/{path}?nfsport={port}&mountport={port}")
    }

    async fn connect(&self) -> Io {
        let stream = tokio::net::TcpStream::connect(self.address).await;
        TokioIo::new(stream.expect("it listens"))
    }

    async fn client(&self) -> Client {
        let credential = opaque_auth::auth_unix(&auth_unix::default());
        let none = opaque_auth::default();
        let mut mounts = MountClient::new_with_auth(self.connect().await, credential, none);
        let mounted = mounts
            .mnt(dirpath(Opaque::borrowed(b"/")))
            .await
            .expect("mounted");
        let credential = opaque_auth::auth_unix(&auth_unix::default());
        let none = opaque_auth::default();
        Client {
            nfs: Nfs3Client::new_with_auth(self.connect().await, credential, none),
            root: nfs_fh3 {
                data: Opaque::owned(mounted.fhandle.0.to_vec()),
            },
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.kill();
        if let Some(name) = &self.fileset {
            run(self
                .scratch
                .penstock()
                .args(["fileset", "destroy", name, "--yes"]));
        }
    }
}

/// `nfs3_client` with the handle of the root.
struct Client {
    nfs: Nfs3Client<Io>,
    root: nfs_fh3,
}

impl Client {
    fn place(&self, name: &str) -> diropargs3<'static> {
        diropargs3 {
            dir: self.root.clone(),
            name: name.as_bytes().to_vec().into(),
        }
    }

    async fn create(&mut self, name: &str) -> nfs_fh3 {
        let new = sattr3 {
            mode: Nfs3Option::Some(0o644),
            uid: Nfs3Option::None,
            gid: Nfs3Option::None,
            size: Nfs3Option::None,
            atime: set_atime::DONT_CHANGE,
            mtime: set_mtime::DONT_CHANGE,
        };
        let args = CREATE3args {
            where_: self.place(name),
            how: createhow3::UNCHECKED(new),
        };
        self.nfs
            .create(&args)
            .await
            .expect("answered")
            .unwrap()
            .obj
            .unwrap()
    }

    async fn write(&mut self, file: &nfs_fh3, offset: u64, bytes: &[u8]) -> (stable_how, [u8; 8]) {
        let args = WRITE3args {
            file: file.clone(),
            offset,
            count: bytes.len() as u32,
            stable: stable_how::UNSTABLE,
            data: Opaque::owned(bytes.to_vec()),
        };
        let written = self.nfs.write(&args).await.expect("answered").unwrap();
        (written.committed, written.verf.0)
    }

    async fn commit(&mut self, file: &nfs_fh3) -> [u8; 8] {
        let args = COMMIT3args {
            file: file.clone(),
            offset: 0,
            count: 0,
        };
        self.nfs
            .commit(&args)
            .await
            .expect("answered")
            .unwrap()
            .verf
            .0
    }

    async fn lookup(&mut self, name: &str) -> Option<nfs_fh3> {
        let args = LOOKUP3args {
            what: self.place(name),
        };
        match self.nfs.lookup(&args).await.expect("answered") {
            Nfs3Result::Ok(found) => Some(found.object),
            Nfs3Result::Err(_) => None,
        }
    }

    async fn status(&mut self, file: &nfs_fh3) -> nfsstat3 {
        let args = GETATTR3args {
            object: file.clone(),
        };
        match self.nfs.getattr(&args).await.expect("answered") {
            Nfs3Result::Ok(_) => nfsstat3::NFS3_OK,
            Nfs3Result::Err((status, _)) => status,
        }
    }

    async fn read(&mut self, file: &nfs_fh3, length: usize) -> Vec<u8> {
        let mut content = Vec::new();
        while content.len() < length {
            let args = READ3args {
                file: file.clone(),
                offset: content.len() as u64,
                count: 1 << 20,
            };
            let read = self.nfs.read(&args).await.expect("answered").unwrap();
            content.extend_from_slice(&read.data);
            if read.eof {
                break;
            }
        }
        content
    }
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 % 251) as u8).collect()
}

/// Writes a file in pieces, commits it, and writes another one that is not committed.
async fn write_two(client: &mut Client, all: &[u8]) -> (nfs_fh3, nfs_fh3, [u8; 8]) {
    let committed = client.create("committed").await;
    let mut verifiers = Vec::new();
    for (index, piece) in all.chunks(1 << 20).enumerate() {
        let (how, verifier) = client.write(&committed, (index << 20) as u64, piece).await;
        assert_eq!(how, stable_how::UNSTABLE, "a kill would lose it");
        verifiers.push(verifier);
    }
    verifiers.push(client.commit(&committed).await);
    assert!(verifiers.iter().all(|verifier| *verifier == verifiers[0]));
    let lost = client.create("lost").await;
    client.write(&lost, 0, b"not committed").await;
    (committed, lost, verifiers[0])
}

#[tokio::test]
async fn a_killed_target_of_a_fileset_comes_back_with_its_handles_and_all_that_was_committed() {
    let mut target = Target::of_fileset("kill");
    let mut client = target.client().await;
    let root = client.root.clone();
    let all = content(5_000_000);
    let (committed, lost, verifier) = write_two(&mut client, &all).await;
    target.kill();
    target.start(&[]);
    let mut client = target.client().await;
    assert_eq!(client.root, root);
    assert_eq!(client.lookup("committed").await, Some(committed.clone()));
    assert!(client.read(&committed, all.len()).await == all);
    assert_eq!(
        client.lookup("lost").await,
        Some(lost.clone()),
        "its name was durable"
    );
    assert_ne!(
        client.commit(&lost).await,
        verifier,
        "its client writes it once more"
    );
    client.write(&lost, 0, b"once more").await;
    client.commit(&lost).await;
    target.terminate();
    target.start(&[]);
    let mut client = target.client().await;
    assert_eq!(client.read(&lost, 9).await, b"once more");
}

/// Asks for an exclusive lock of all of a file, and returns the status of the answer.
fn lock(target: &Target, file: &nfs_fh3, reclaims: bool) -> u32 {
    let mut call = Vec::new();
    let word = |word: u32, call: &mut Vec<u8>| call.extend(word.to_be_bytes());
    let credential = opaque_auth::auth_unix(&auth_unix::default());
    for header in [7, 0, 2, 100_021, 4, 2] {
        word(header, &mut call);
    }
    for part in [credential, opaque_auth::default()] {
        part.pack(&mut call).expect("in memory");
    }
    let opaque = |bytes: &[u8], call: &mut Vec<u8>| {
        Opaque::borrowed(bytes).pack(call).expect("in memory");
    };
    opaque(b"", &mut call);
    [0, 1].into_iter().for_each(|flag| word(flag, &mut call));
    opaque(b"client", &mut call);
    opaque(file.data.as_ref(), &mut call);
    opaque(b"owner", &mut call);
    // The process, a range from 0 to the end, and the state of the client.
    for argument in [1, 0, 0, 0, 0, reclaims.into(), 1] {
        word(argument, &mut call);
    }
    let mut stream = TcpStream::connect(target.address).expect("it listens");
    let mark = 0x8000_0000 | u32::try_from(call.len()).expect("short");
    let record = [&mark.to_be_bytes()[..], &call].concat();
    stream.write_all(&record).expect("sent");
    let mut answer = [0; 36];
    stream.read_exact(&mut answer).expect("answered");
    let status = answer.last_chunk().expect("36 bytes");
    u32::from_be_bytes(*status)
}

#[tokio::test]
async fn who_held_a_lock_of_a_target_that_was_killed_reclaims_it() {
    const GRANTED: u32 = 0;
    const GRACE_PERIOD: u32 = 4;
    let mut target = Target::of_fileset("lock");
    let file = target.client().await.create("file").await;
    assert_eq!(lock(&target, &file, false), GRANTED);
    target.kill();
    target.start(&["--grace-period", "60s"]);
    assert_eq!(lock(&target, &file, false), GRACE_PERIOD);
    assert_eq!(lock(&target, &file, true), GRANTED);
    target.kill();
    target.start(&["--grace-period", "0"]);
    assert_eq!(lock(&target, &file, false), GRANTED);
}

#[tokio::test]
async fn a_killed_target_of_a_bucket_comes_back_with_all_that_was_committed() {
    let mut target = Target::of_bucket(&[]);
    let mut client = target.client().await;
    let root = client.root.clone();
    let all = content(5_000_000);
    let (committed, _, verifier) = write_two(&mut client, &all).await;
    target.kill();
    assert!(fs::read(target.scratch.path("bucket/committed")).expect("there") == all);
    target.start(&[]);
    let mut client = target.client().await;
    assert_eq!(client.root, root, "the root is the root");
    assert_eq!(client.status(&committed).await, nfsstat3::NFS3ERR_STALE);
    let found = client.lookup("committed").await.expect("there");
    assert!(client.read(&found, all.len()).await == all);
    assert_ne!(client.commit(&found).await, verifier);
}

#[tokio::test]
async fn what_a_client_writes_and_leaves_is_saved_when_the_target_ends() {
    let mut target = Target::of_bucket(&[]);
    let mut client = target.client().await;
    let file = client.create("file").await;
    client.write(&file, 0, b"never committed").await;
    // Another client reads it meanwhile: what is not saved is saved for it.
    let mut other = target.client().await;
    assert_eq!(other.read(&file, 15).await, b"never committed");
    client.write(&file, 15, b", nor this").await;
    target.terminate();
    let saved = fs::read(target.scratch.path("bucket/file")).expect("there");
    assert_eq!(saved, b"never committed, nor this");
}

/// A program of libnfs; says what is missing without it.
fn libnfs(program: &str, arguments: &[&str]) -> Option<Ended> {
    if run(Command::new("which").arg(program)).code != Some(0) {
        penstock_skips::skipped(format!(
            "{program} is missing: apt-get install libnfs-utils"
        ));
        return None;
    }
    Some(run(Command::new(program).args(arguments)))
}

fn copied_and_listed(target: &Target, original: &Path) -> Option<()> {
    let text = |path: &Path| path.to_str().expect("plain").to_owned();
    let copied = libnfs("nfs-cp", &[&text(original), &target.url("/copy")])?;
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let listed = libnfs("nfs-ls", &[&target.url("")])?;
    assert!(listed.out.contains("9000000 copy"), "{listed:?}");
    let back: PathBuf = target.scratch.path("back");
    let fetched = libnfs("nfs-cp", &[&target.url("/copy"), &text(&back)])?;
    assert_eq!(fetched.code, Some(0), "{fetched:?}");
    let expected = fs::read(original).expect("ours");
    assert!(fs::read(back).expect("fetched") == expected);
    Some(())
}

#[test]
fn programs_of_libnfs_copy_and_list_on_a_bucket_and_on_a_fileset() {
    for mut target in [Target::of_bucket(&[]), Target::of_fileset("libnfs")] {
        let original = target.scratch.path("original");
        fs::write(&original, content(9_000_000)).expect("scratch is writable");
        if copied_and_listed(&target, &original).is_none() {
            return;
        }
        target.terminate();
    }
}

#[test]
fn a_target_without_an_address_or_with_wrong_clients_is_refused() {
    let scratch = Scratch::new();
    let source = format!("file://{}", scratch.folder("bucket").display());
    let address = free_address().to_string();
    let refused = |arguments: &[&str]| {
        let ended = run(scratch.penstock().args(["serve", &source]).args(arguments));
        (ended.code, ended.err)
    };
    let (code, text) = refused(&[]);
    assert!(code == Some(2) && text.contains("--listen"), "{text}");
    let (code, text) = refused(&["--listen", &address, "--clients", "10.0.0.0/40"]);
    assert!(code == Some(2) && text.contains("10.0.0.0/40"), "{text}");
    let (code, text) = refused(&["--listen", &address, "--allow-other"]);
    assert!(code == Some(2) && text.contains("--allow-other"), "{text}");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = listener.local_addr().expect("bound").to_string();
    let state = scratch.path("state").display().to_string();
    let (code, text) = refused(&["--listen", &taken, "--state-dir", &state]);
    assert!(code == Some(1) && text.contains("cannot listen"), "{text}");
    let arguments = [
        "--listen",
        &address,
        "--portmap",
        &taken,
        "--state-dir",
        &state,
    ];
    let (code, text) = refused(&arguments);
    assert!(code == Some(1) && text.contains(&taken), "{text}");
    assert!(
        text.contains("rpcbind") && text.contains("nolock"),
        "{text}"
    );
}

/// Mount targets of a file.
struct Served {
    scratch: Scratch,
    /// Of the targets `a` and `b`.
    addresses: [SocketAddr; 2],
    process: Option<Background>,
}

impl Served {
    /// Two buckets behind two targets, with these exports.
    fn new(exports: &str) -> Self {
        let scratch = Scratch::new();
        for bucket in ["home", "data"] {
            fs::write(scratch.folder(bucket).join("file"), bucket).expect("scratch is writable");
        }
        let addresses = [free_address(), free_address()];
        let mut served = Self {
            scratch,
            addresses,
            process: None,
        };
        served.write(exports);
        let child = served.command(&[]).stderr(Stdio::null()).spawn();
        served.process = Some(Background(child.expect("it was just built")));
        for address in addresses {
            wait_until("it listens", || TcpStream::connect(address).is_ok());
        }
        served
    }

    fn file(&self) -> PathBuf {
        self.scratch.path("serve.toml")
    }

    fn text(&self, exports: &str) -> String {
        let [a, b] = self.addresses;
        let source = |bucket: &str| format!("file://{}", self.scratch.path(bucket).display());
        let (home, data) = (source("home"), source("data"));
        let state = self.scratch.path("state");
        format!(
            "state-dir = \"{}\"\n\
             [volume.home]\nsource = \"{home}\"\n[volume.data]\nsource = \"{data}\"\n\
             [target.a]\nlisten = \"{a}\"\n[target.b]\nlisten = \"{b}\"\n{exports}",
            state.display()
        )
    }

    /// Puts another file in the place of the one that is there.
    fn write_text(&self, text: &str) {
        let new = self.scratch.file("serve.toml.new", text);
        fs::rename(new, self.file()).expect("scratch is writable");
    }

    fn write(&self, exports: &str) {
        self.write_text(&self.text(exports));
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = self.scratch.penstock();
        command.arg("serve").arg("--config").arg(self.file());
        command.args(options);
        command
    }

    #[allow(unsafe_code)]
    fn signal(&self, signal: libc::c_int) {
        let process = self.process.as_ref().expect("started");
        let pid = libc::pid_t::try_from(process.0.id()).expect("a process id");
        // SAFETY: the process is our own child, which was not waited for yet.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0, "the process is there");
    }

    fn reload(&self) {
        self.signal(libc::SIGHUP);
    }

    /// What `penstock stats` says of it.
    fn stats(&self) -> String {
        let place = format!("/nfs{}", self.file().display());
        succeed(self.scratch.penstock().args(["stats", &place]))
    }

    fn status(&self) -> serde_json::Value {
        let place = format!("/nfs{}", self.file().display());
        let told = succeed(self.scratch.penstock().args(["stats", "--json", &place]));
        serde_json::from_str(&told).expect("JSON")
    }

    fn fault(&self) -> Option<String> {
        let status = self.status();
        let fault = &status["configuration"]["fault"];
        fault.as_str().map(ToOwned::to_owned)
    }

    async fn connect(&self, target: usize) -> Io {
        let stream = tokio::net::TcpStream::connect(self.addresses[target]).await;
        TokioIo::new(stream.expect("it listens"))
    }

    /// A client of a directory; the status where it cannot be mounted.
    async fn mount(&self, target: usize, path: &str) -> Result<Client, u32> {
        let credential = || opaque_auth::auth_unix(&auth_unix::default());
        let io = self.connect(target).await;
        let mut mounts = MountClient::new_with_auth(io, credential(), opaque_auth::default());
        let path = dirpath(Opaque::owned(path.as_bytes().to_vec()));
        let root = match mounts.mnt(path).await {
            Ok(mounted) => mounted.fhandle.0.to_vec(),
            Err(nfs3_client::MountError::Denied(status)) => return Err(status as u32),
            Err(error) => panic!("{error}"),
        };
        let io = self.connect(target).await;
        Ok(Client {
            nfs: Nfs3Client::new_with_auth(io, credential(), opaque_auth::default()),
            root: nfs_fh3 {
                data: Opaque::owned(root),
            },
        })
    }
}

/// The file of a mount that says which bucket it is.
async fn content_of(client: &mut Client) -> Vec<u8> {
    let file = client.lookup("file").await.expect("there");
    client.read(&file, 4).await
}

fn export_of(path: &str, volume: &str, rule: &str) -> String {
    format!(
        "[[export]]\npath = \"{path}\"\nvolume = \"{volume}\"\ntargets = [\"a\", \"b\"]\n\
         [[export.rule]]\nidentity-squash = \"none\"\n{rule}\n"
    )
}

#[tokio::test]
async fn one_process_serves_the_volumes_targets_and_exports_of_a_file() {
    let both =
        export_of("/srv/home", "home", "") + &export_of("/data", "data", "access = \"read-only\"");
    let mut served = Served::new(&both);
    for target in [0, 1] {
        let mut home = served.mount(target, "/srv/home").await.expect("mounted");
        let mut data = served.mount(target, "/data").await.expect("mounted");
        assert_eq!(content_of(&mut home).await, b"home");
        assert_eq!(content_of(&mut data).await, b"data");
        home.create(&format!("new-{target}")).await;
        assert_eq!(served.mount(target, "/").await.err(), Some(2));
    }
    let stats = served.stats();
    for told in [
        "/srv/home",
        "read-only squash=none",
        &served.addresses[1].to_string(),
        "volume=home",
    ] {
        assert!(stats.contains(told), "{told}\n{stats}");
    }
    let status = served.status();
    let export = &status["targets"][1]["exports"][1];
    assert_eq!(export["path"], "/data");
    assert_eq!(export["rules"][0]["access"], "read-only");
    assert_eq!(export["rules"][0]["anonymous-uid"], 65534);
    assert_eq!(served.fault(), None);
    let port = served.addresses[0].port();
    let url = format!("nfs://127.0.0.1/srv/home?nfsport={port}&mountport={port}");
    if let Some(listed) = libnfs("nfs-ls", &[&url]) {
        assert!(listed.out.contains("new-1"), "{listed:?}");
    }
    served.signal(libc::SIGTERM);
    let mut process = served.process.take().expect("started");
    let mut status = None;
    wait_until("it ends", || {
        status = process.0.try_wait().expect("our own child");
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()));
    assert!(served.scratch.path("home/new-0").exists(), "saved");
}

#[tokio::test]
async fn exports_and_rules_change_on_a_signal_and_a_faulty_file_changes_nothing() {
    let home = export_of("/home", "home", "");
    let data = export_of("/data", "data", "");
    let served = Served::new(&(home.clone() + &data));
    let mut client = served.mount(0, "/home").await.expect("mounted");
    let file = client.lookup("file").await.expect("there");
    served.write(
        &(export_of("/home", "home", "access = \"read-only\"") + &export_of("/more", "data", "")),
    );
    served.reload();
    wait_until("the new exports are told", || {
        served.stats().contains("/more")
    });
    let place = CREATE3args {
        where_: client.place("new"),
        how: createhow3::EXCLUSIVE(nfs3_client::nfs3_types::nfs3::createverf3([7; 8])),
    };
    let made = client
        .nfs
        .create(&place)
        .await
        .expect("over the same connection");
    assert!(matches!(made, Nfs3Result::Err((nfsstat3::NFS3ERR_ROFS, _))));
    assert!(served.mount(0, "/data").await.is_err());
    assert!(served.mount(0, "/more").await.is_ok());

    served.write(&export_of("/home", "home", "acces = \"read-write\""));
    served.reload();
    wait_until("the fault is told", || served.fault().is_some());
    let fault = served.fault().expect("told");
    assert!(fault.contains("`acces` is no key of a rule"), "{fault}");
    assert!(served.stats().contains(&fault), "{}", served.stats());
    assert!(
        served
            .scratch
            .log()
            .contains("the exports stay as they are")
    );
    assert!(served.mount(0, "/more").await.is_ok(), "nothing changed");

    // Of a file that asks for what only a start can do nothing is applied.
    let elsewhere = served
        .text(&(home.clone() + &data))
        .replace("/data\"\n[target", "/other\"\n[target");
    served.scratch.folder("other");
    served.write_text(&elsewhere);
    served.reload();
    wait_until("the source is told", || {
        served
            .fault()
            .is_some_and(|fault| fault.contains("[volume.data] has another source"))
    });
    assert!(served.mount(0, "/data").await.is_err());

    served.write(&home.replace("targets = [\"a\", \"b\"]", "targets = [\"b\"]"));
    served.reload();
    wait_until("a target without exports is told", || {
        served
            .fault()
            .is_some_and(|fault| fault.contains("[target.a] exports nothing"))
    });
    served.write(&(home + &data));
    served.reload();
    wait_until("all is well again", || served.fault().is_none());
    assert_eq!(client.status(&file).await, nfsstat3::NFS3_OK);
    client.create("new").await;
}

#[tokio::test]
async fn exports_change_when_the_file_does() {
    let home = export_of("/home", "home", "");
    let served = Served::new(&home);
    let mut client = served.mount(0, "/home").await.expect("mounted");
    let root = client.root.clone();
    served.write(&export_of("/elsewhere", "home", ""));
    wait_until("the new path is told", || {
        served.stats().contains("/elsewhere")
    });
    assert_eq!(client.status(&root).await, nfsstat3::NFS3ERR_STALE);
    served.write(&home);
    wait_until("the old path is told", || {
        !served.stats().contains("/elsewhere")
    });
    assert_eq!(client.status(&root).await, nfsstat3::NFS3_OK);
}

/// Runs `serve --check` on a file that says this.
fn check(scratch: &Scratch, text: &str) -> Ended {
    let file = scratch.file("serve.toml", text);
    run(scratch
        .penstock()
        .args(["serve", "--check", "--config"])
        .arg(file))
}

/// A file without a fault.
fn sound(bucket: &str) -> String {
    format!(
        "[volume.a]\nsource = \"{bucket}\"\n[target.t]\nlisten = \"127.0.0.1:1\"\n\
         [[export]]\npath = \"/a\"\nvolume = \"a\"\n"
    )
}

#[test]
fn a_check_tells_every_fault_in_a_line_and_serves_nothing() {
    let scratch = Scratch::new();
    let bucket = format!("file://{}", scratch.folder("bucket").display());
    let check = |text: &str| check(&scratch, text);
    let sound = sound(&bucket);
    let ended = check(&sound);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.out.contains("1 export of 1 volume at 1 mount target"),
        "{ended:?}"
    );

    let faulty = format!(
        "squash = \"all\"\n{sound}readonly = true\n[[export]]\npath = \"/b\"\nvolume = \"c\"\n\
         [[export.rule]]\nsource = \"10.0.0.0/40\"\n"
    );
    let ended = check(&faulty);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let lines: Vec<_> = ended.err.lines().collect();
    assert_eq!(lines.len(), 5, "{ended:?}");
    for (line, told) in lines.iter().zip([
        "serve.toml:9: `readonly` is no key of an export; ",
        "serve.toml:10: `/b` exports the volume `c`, which is not there; ",
        "serve.toml:14: `source`: `10.0.0.0/40` is neither an address",
        "`squash` (from ",
        "4 faults in what `",
    ]) {
        assert!(line.contains(told), "{told}\n{line}");
    }
    let ended = check(&sound.replace(&bucket, "fileset://no-such-fileset"));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains("[volume.a]: "), "{ended:?}");
    let twice = sound.replace(
        "[target.t]",
        &format!("[volume.b]\nsource = \"{bucket}\"\n[target.t]"),
    );
    let ended = check(&(twice + "[[export]]\npath = \"/b\"\nvolume = \"b\"\n"));
    assert!(
        ended
            .err
            .contains("[volume.a] and [volume.b] have the same source"),
        "{ended:?}"
    );
    let ended = check(&format!("memory = \"1K\"\n{sound}"));
    let told = ended.err.matches("`memory` cannot be `1K`").count();
    assert_eq!(told, 1, "{ended:?}");
    let ended = check("");
    assert!(
        ended.err.contains("has no [target.NAME] and no [[export]]"),
        "{ended:?}"
    );
    let file = scratch.file("serve.toml", &sound);
    let mut both = scratch.penstock();
    both.args(["serve", &bucket, "--listen", "127.0.0.1:1", "--config"])
        .arg(file);
    let ended = run(&mut both);
    assert!(
        ended.code == Some(2) && ended.err.contains("and so does SOURCE"),
        "{ended:?}"
    );
}

#[test]
fn volumes_that_name_the_same_directory_are_a_fault_of_a_file() {
    let scratch = Scratch::new();
    let bucket = format!("file://{}", scratch.folder("bucket").display());
    let sound = sound(&bucket);
    let another = scratch.folder("another");
    let two = sound.replace(
        "[target.t]",
        &format!(
            "[volume.b]\nsource = \"file://{}\"\n[target.t]",
            another.display()
        ),
    ) + "[[export]]\npath = \"/b\"\nvolume = \"b\"\n";
    for shared in [
        "cache-dir = \"/d\"\n",
        "mode = \"staged\"\nstaging-dir = \"/d\"\n",
    ] {
        let ended = check(&scratch, &format!("{shared}{two}"));
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(
            ended
                .err
                .contains("[volume.a] and [volume.b] have the same directory `/d`"),
            "{ended:?}"
        );
    }
    let read_only = format!("mode = \"staged\"\nstaging-dir = \"/d\"\nread-only = true\n{two}");
    let ended = check(&scratch, &read_only);
    assert_eq!(
        ended.code,
        Some(0),
        "what changes nothing stages nothing: {ended:?}"
    );
}

#[tokio::test]
async fn the_target_of_a_source_is_told_in_stats_by_its_address() {
    let target = Target::of_bucket(&["--clients", "127.0.0.0/8"]);
    drop(target.client().await);
    let place = format!("/nfs/{}", target.address);
    let told = succeed(target.scratch.penstock().args(["stats", &place]));
    assert!(
        told.contains("127.0.0.0/8 read-write squash=none"),
        "{told}"
    );
}
