//! `penstock serve SOURCE`: mount targets over a bucket and over a fileset, asked by clients that are not ours, killed and
//! started again.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods, clippy::panic)]

#[path = "support/nfs.rs"]
mod nfs;
mod support;

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nfs::{Client, free_address, libnfs, mount};
use nfs3_client::nfs3_types::{
    nfs3::{Nfs3Result, READ3args, WRITE3args, nfs_fh3, nfsstat3, stable_how},
    rpc::{auth_unix, opaque_auth},
    xdr_codec::{Opaque, Pack},
};
use support::{Background, Scratch, run, succeed, wait_until};

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

    async fn client(&self) -> Client {
        mount(self.address, "/").await.expect("mounted")
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

/// An access list as its extended attribute says it: tag, rights and number of each entry.
fn list(entries: &[(u16, u16, u32)]) -> String {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, may, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(may.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_list_of_a_fileset_decides_for_users_and_groups_of_clients() {
    const ANY: u32 = u32::MAX;
    let mut target = Target::of_fileset("lists");
    target.kill();
    let place = target.scratch.folder("mnt");
    let mut command = target.scratch.penstock();
    let mounted = run(command.args(["mount", &target.source]).arg(&place));
    if mounted.code != Some(0) {
        return penstock_skips::skipped(format!("nothing can be mounted: {mounted:?}"));
    }
    // Root's, as the mode says; user 1000 may read it, and group 200 change it.
    let file = list(&[
        (1, 6, ANY),
        (2, 4, 1000),
        (4, 0, ANY),
        (8, 6, 200),
        (0x10, 6, ANY),
        (0x20, 0, ANY),
    ]);
    let program = "import os, sys\n\
        path = sys.argv[1] + '/file'\n\
        open(path, 'w').write('secret')\n\
        os.setxattr(path, 'system.posix_acl_access', bytes.fromhex(sys.argv[2]))\n\
        os.chmod(sys.argv[1], 0o755)\n";
    succeed(
        Command::new("python3")
            .args(["-c", program])
            .arg(&place)
            .arg(&file),
    );
    // It waits until the process that had it mounted has ended.
    succeed(target.scratch.penstock().arg("umount").arg(&place));
    target.start(&[]);
    let may = async |uid: u32, groups: &[u32]| {
        let caller = auth_unix {
            uid,
            gid: uid,
            gids: groups.to_vec(),
            ..auth_unix::default()
        };
        let client = nfs::mount_as(target.address, "/", &caller).await;
        let mut client = client.expect("mounted");
        let file = client.lookup("file").await.expect("there");
        let read = READ3args {
            file: file.clone(),
            offset: 0,
            count: 6,
        };
        let write = WRITE3args {
            file,
            offset: 0,
            count: 6,
            stable: stable_how::FILE_SYNC,
            data: Opaque::borrowed(b"secret"),
        };
        let read = client.nfs.read(&read).await.expect("answered");
        let write = client.nfs.write(&write).await.expect("answered");
        [
            matches!(read, Nfs3Result::Ok(_)),
            matches!(write, Nfs3Result::Ok(_)),
        ]
    };
    assert_eq!(may(1000, &[]).await, [true, false]);
    assert_eq!(may(3000, &[7, 200]).await, [true, true]);
    assert_eq!(may(3000, &[7]).await, [false, false]);
    assert_eq!(may(0, &[]).await, [true, true]);
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
