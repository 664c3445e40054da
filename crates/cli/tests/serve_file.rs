//! `penstock serve --config FILE`: several volumes, mount targets and exports, which change while they are served.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods, clippy::panic)]

#[path = "support/nfs.rs"]
mod nfs;
mod support;

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Command, Stdio},
};

use nfs::{Client, free_address, libnfs, mount};
use nfs3_client::nfs3_types::nfs3::{CREATE3args, Nfs3Result, createhow3, nfsstat3};
use support::{Background, Scratch, succeed, wait_until};

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

    /// A client of a directory; the status where it cannot be mounted.
    async fn mount(&self, target: usize, path: &str) -> Result<Client, u32> {
        mount(self.addresses[target], path).await
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

#[test]
fn a_process_that_serves_several_filesets_obeys_orders_to_each() {
    let scratch = Scratch::new();
    let name = |which: &str| format!("serve-{which}-{}", std::process::id());
    let names = [name("one"), name("other")];
    let mut text = format!(
        "state-dir = \"{}\"\n[target.t]\nlisten = \"{}\"\n",
        scratch.path("state").display(),
        free_address()
    );
    for (index, name) in names.iter().enumerate() {
        let store = format!(
            "file://{}",
            scratch.folder(&format!("store-{index}")).display()
        );
        let mut create = scratch.penstock();
        succeed(create.args(["fileset", "create", name, "--store", &store]));
        text += &format!(
            "[volume.v{index}]\nsource = \"fileset://{name}\"\n\
             [[export]]\npath = \"/{index}\"\nvolume = \"v{index}\"\n"
        );
    }
    let file = scratch.file("serve.toml", &text);
    let mut serve = scratch.penstock();
    serve
        .args(["serve", "--config"])
        .arg(&file)
        .stderr(Stdio::null());
    let process = Background(serve.spawn().expect("it was just built"));
    let place = format!("/nfs{}", file.display());
    wait_until("it serves", || {
        let told = support::run(scratch.penstock().args(["stats", &place]));
        told.out.contains("serving") || told.out.contains("/1")
    });
    let fileset = |arguments: &[&str]| {
        let mut command = scratch.penstock();
        succeed(command.arg("fileset").args(arguments))
    };
    for (name, snapshot) in names.iter().zip(["first", "second"]) {
        fileset(&["snapshot", "create", &format!("{name}@{snapshot}")]);
    }
    let listed = names
        .each_ref()
        .map(|name| fileset(&["snapshot", "list", name]));
    assert!(
        listed[0].contains("first") && !listed[0].contains("second"),
        "{listed:?}"
    );
    assert!(
        listed[1].contains("second") && !listed[1].contains("first"),
        "{listed:?}"
    );
    drop(process);
    for name in &names {
        fileset(&["destroy", name, "--yes"]);
    }
}
