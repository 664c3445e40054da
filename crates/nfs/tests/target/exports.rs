//! Several volumes, several mount targets, and exports that change.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use nfs3_client::{MountClient, MountError, Nfs3Client, RpcError, tokio::TokioIo};
use nfs3_types::{
    mount::{dirpath, mountstat3},
    nfs3::*,
    rpc::opaque_auth,
    xdr_codec::Opaque,
};
use penstock_base::{BufferPool, MemoryBudget, metrics::Registry};
use penstock_nfs::{
    Authentication, Export, ExportError, HandleKey, NfsServer, NfsSettings, Rule, ServedVolume,
    Squash, TargetSettings, TargetType,
};
use proptest::prelude::*;
use tokio::net::TcpStream;

use crate::support::{
    Client, RawClient, Shape, Shaped, attributes, call_bytes, create, credential, handle,
    locks::{self, DENIED, GRANTED, LockClient, of},
    lookup, make_directory, names, open_to_all, place, read, record, remove, status, until, write,
};

/// The volumes `home` and `data` behind the targets `a` and `b`.
pub struct Served {
    pub server: NfsServer,
    pub home: Arc<Shaped>,
    pub data: Arc<Shaped>,
    registry: Arc<Registry>,
    directory: tempfile::TempDir,
}

impl Served {
    pub async fn new(exports: Vec<Export>) -> Self {
        Self::over(exports, Arc::default(), Arc::default()).await
    }

    pub async fn over(exports: Vec<Export>, home: Arc<Shaped>, data: Arc<Shaped>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let registry = Registry::new();
        let volume = |name: &str, volume: &Arc<Shaped>| ServedVolume {
            name: name.to_owned(),
            identity: format!("the file system {name}"),
            volume: Arc::clone(volume) as _,
            registry: registry.scope(&[("volume", name)]),
        };
        let target = |name: &str| TargetSettings {
            name: name.to_owned(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            portmap: None,
            target_type: TargetType::Unlimited,
            lockers: directory.path().join(name),
            registry: registry.scope(&[("target", name)]),
        };
        let settings = NfsSettings {
            volumes: vec![volume("home", &home), volume("data", &data)],
            targets: vec![target("a"), target("b")],
            exports,
            key: HandleKey::kept_in(&directory.path().join("key")).unwrap(),
            grace_period: Duration::ZERO,
            port_mappers_of_clients: 1,
        };
        let pool = BufferPool::new(MemoryBudget::new(64 << 20));
        let server = NfsServer::start(settings, pool).await.unwrap();
        Self {
            server,
            home,
            data,
            registry,
            directory,
        }
    }

    fn address(&self, target: &str) -> SocketAddr {
        let mut all = self.server.status().into_iter();
        all.find(|one| one.name == target).unwrap().address
    }

    async fn io(&self, target: &str) -> TokioIo<TcpStream> {
        let stream = TcpStream::connect(self.address(target)).await.unwrap();
        TokioIo::new(stream)
    }

    async fn user(&self, target: &str, uid: u32) -> Client {
        let credential = credential(uid, uid, &[]);
        let io = self.io(target).await;
        Nfs3Client::new_with_auth(io, credential, opaque_auth::default())
    }

    pub async fn root(&self, target: &str) -> Client {
        self.user(target, 0).await
    }

    async fn nobody(&self, target: &str) -> Client {
        Nfs3Client::new(self.io(target).await)
    }

    async fn mounts(&self, target: &str) -> MountClient<TokioIo<TcpStream>> {
        let io = self.io(target).await;
        MountClient::new_with_auth(io, credential(0, 0, &[]), opaque_auth::default())
    }

    /// The handle of a directory, and the flavors with which it may be used.
    async fn mounted(&self, target: &str, path: &str) -> Result<(nfs_fh3, Vec<u32>), u32> {
        let path = dirpath(Opaque::owned(path.as_bytes().to_vec()));
        match self.mounts(target).await.mnt(path).await {
            Ok(found) => Ok((handle(found.fhandle.0.as_ref()), found.auth_flavors)),
            Err(MountError::Denied(status)) => Err(status as u32),
            Err(MountError::Rpc(error)) => panic!("{error}"),
        }
    }

    pub async fn mount(&self, target: &str, path: &str) -> Result<nfs_fh3, u32> {
        Ok(self.mounted(target, path).await?.0)
    }

    pub fn change(&self, exports: &[Export]) {
        self.server.change(exports, &[]).unwrap();
    }
}

pub fn export(path: &str, volume: &str, targets: &[&str], rules: Vec<Rule>) -> Export {
    Export {
        path: path.to_owned(),
        volume: volume.to_owned(),
        targets: targets.iter().map(|name| (*name).to_owned()).collect(),
        rules,
    }
}

pub fn open(path: &str, volume: &str, targets: &[&str]) -> Export {
    export(path, volume, targets, vec![open_to_all()])
}

fn read_only() -> Rule {
    Rule {
        read_only: true,
        ..open_to_all()
    }
}

const NO_ENTRY: u32 = mountstat3::MNT3ERR_NOENT as u32;
const NO_ACCESS: u32 = mountstat3::MNT3ERR_ACCES as u32;

#[tokio::test(flavor = "multi_thread")]
async fn a_target_has_several_exports_and_the_longest_path_is_the_one_that_is_mounted() {
    let exports = vec![
        open("/srv", "data", &["a"]),
        open("/srv/home/all", "home", &["a", "b"]),
    ];
    let served = Served::new(exports).await;
    let mut client = served.root("a").await;
    let data = served.mount("a", "/srv").await.unwrap();
    let home = served.mount("a", "//srv/home/all/").await.unwrap();
    assert_ne!(data, home);
    let below = make_directory(&mut client, &home, "me").await;
    assert_eq!(served.mount("a", "/srv/home/all/me").await, Ok(below));
    // What the other volume has there is not what is mounted.
    let hidden = make_directory(&mut client, &data, "home").await;
    let hidden = make_directory(&mut client, &hidden, "all").await;
    make_directory(&mut client, &hidden, "other").await;
    assert_eq!(
        served.mount("a", "/srv/home/all/other").await,
        Err(NO_ENTRY)
    );
    assert!(served.mount("a", "/srv/home").await.is_ok());
    for elsewhere in ["/", "/sr", "/srvs", "/srv/home/al"] {
        assert_eq!(
            served.mount("a", elsewhere).await,
            Err(NO_ENTRY),
            "{elsewhere}"
        );
    }
    assert_eq!(
        served.mount("b", "/srv").await,
        Err(NO_ENTRY),
        "only of the other target"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_of_two_targets_has_the_same_handles_at_both_and_open_files_and_locks_are_shared()
{
    let served = Served::new(vec![open("/home", "home", &["a", "b"])]).await;
    let root = served.mount("a", "/home").await.unwrap();
    assert_eq!(served.mount("b", "/home").await, Ok(root.clone()));
    let (mut one, mut other) = (served.root("a").await, served.root("b").await);
    let file = create(&mut one, &root, "file").await;
    write(&mut one, &file, (0, b"seen"), stable_how::UNSTABLE)
        .await
        .unwrap();
    assert_eq!(
        read(&mut other, &file, 0, 9).await,
        Ok((b"seen".to_vec(), true))
    );
}

/// Waits until a lock of a file is given.
async fn until_given(locks: &mut LockClient, (file, asked): (&nfs_fh3, &locks::Asked)) {
    let begun = std::time::Instant::now();
    while locks.lock(file, asked).await != GRANTED {
        let waited = begun.elapsed();
        assert!(waited < std::time::Duration::from_secs(20), "in vain");
    }
}

impl Served {
    pub async fn locks(&self, target: &str) -> LockClient {
        let stream = TcpStream::connect(self.address(target)).await.unwrap();
        LockClient::over(stream, 0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_belong_to_the_volume_whichever_target_they_are_asked_of() {
    let exports = vec![
        open("/home", "home", &["a", "b"]),
        open("/data", "data", &["a"]),
    ];
    let served = Served::new(exports).await;
    let root = served.mount("a", "/home").await.unwrap();
    let other = served.mount("a", "/data").await.unwrap();
    let mut client = served.root("a").await;
    let file = create(&mut client, &root, "file").await;
    let other = create(&mut client, &other, "file").await;
    let (mut one, mut two) = (served.locks("a").await, served.locks("b").await);
    assert_eq!(one.lock(&file, &of(1, (0, 10))).await, GRANTED);
    assert_eq!(two.lock(&file, &of(2, (0, 10))).await, DENIED);
    assert_eq!(
        one.lock(&other, &of(2, (0, 10))).await,
        GRANTED,
        "another volume"
    );
    assert_eq!(
        two.unlock(&file, &of(1, (0, 10))).await,
        GRANTED,
        "the same client"
    );
    assert_eq!(two.lock(&file, &of(2, (0, 10))).await, GRANTED);
    assert_eq!(one.lock(&other, &of(1, (5, 6))).await, DENIED);
    // It holds nothing any more of any volume.
    two.free_all(b"client").await;
    assert_eq!(one.lock(&file, &of(1, (0, 10))).await, GRANTED);
    assert_eq!(one.lock(&other, &of(1, (5, 6))).await, GRANTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_in_an_export_that_is_gone_are_given_back() {
    let both = [open("/home", "home", &["a"]), open("/same", "home", &["b"])];
    let served = Served::new(both.to_vec()).await;
    let root = served.mount("a", "/home").await.unwrap();
    let same = served.mount("b", "/same").await.unwrap();
    let file = create(&mut served.root("a").await, &root, "file").await;
    let seen = lookup(&mut served.root("b").await, &same, "file")
        .await
        .unwrap();
    let (mut one, mut two) = (served.locks("a").await, served.locks("b").await);
    assert_eq!(one.lock(&file, &of(1, (0, 10))).await, GRANTED);
    assert_eq!(two.lock(&seen, &of(2, (20, 30))).await, GRANTED);
    assert_eq!(two.lock(&seen, &of(9, (0, 10))).await, DENIED);
    served.change(&both);
    assert_eq!(
        two.lock(&seen, &of(9, (0, 10))).await,
        DENIED,
        "nothing is gone"
    );
    served.change(&both[1..]);
    until_given(&mut two, (&seen, &of(9, (0, 10)))).await;
    assert_eq!(
        two.lock(&seen, &of(8, (20, 30))).await,
        DENIED,
        "of what is there it stays"
    );
    served.change(&both);
    let elsewhere = Rule {
        clients: vec!["10.0.0.0/8".parse().unwrap()],
        ..open_to_all()
    };
    let [home, _] = both;
    let same = export("/same", "home", &["b"], vec![elsewhere]);
    served.change(&[home, same]);
    until_given(&mut one, (&file, &of(3, (20, 30)))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_is_not_of_the_target_is_stale_there() {
    let exports = vec![
        open("/home", "home", &["a"]),
        open("/data", "data", &["a", "b"]),
    ];
    let served = Served::new(exports).await;
    let home = served.mount("a", "/home").await.unwrap();
    let mut client = served.root("b").await;
    let stale = Some(nfsstat3::NFS3ERR_STALE);
    assert_eq!(attributes(&mut client, &home).await.err(), stale);
    let mut forged = home.data.to_vec();
    *forged.last_mut().unwrap() ^= 1;
    let bad = Some(nfsstat3::NFS3ERR_BADHANDLE);
    assert_eq!(attributes(&mut client, &handle(&forged)).await.err(), bad);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_handle_lets_a_client_do_is_decided_by_the_export_that_it_is_of() {
    let exports = vec![
        open("/all", "home", &["a"]),
        export("/look", "home", &["a"], vec![read_only()]),
    ];
    let served = Served::new(exports).await;
    let all = served.mount("a", "/all").await.unwrap();
    let look = served.mount("a", "/look").await.unwrap();
    assert_ne!(all, look, "one file system under two paths");
    let mut client = served.root("a").await;
    let file = create(&mut client, &all, "file").await;
    let seen = lookup(&mut client, &look, "file").await.unwrap();
    let of = async |client: &mut Client, file: &nfs_fh3| {
        let found = attributes(client, file).await.unwrap();
        (found.fsid, found.fileid)
    };
    assert_eq!(of(&mut client, &file).await, of(&mut client, &seen).await);
    let refused = write(&mut client, &seen, (0, b"x"), stable_how::UNSTABLE).await;
    assert_eq!(refused, Err(nfsstat3::NFS3ERR_ROFS));
    write(&mut client, &file, (0, b"x"), stable_how::UNSTABLE)
        .await
        .unwrap();
    // Bytes of the one do not become a handle of the other.
    let mut mixed = file.data.to_vec();
    mixed[1..5].copy_from_slice(&seen.data[1..5]);
    let bad = Some(nfsstat3::NFS3ERR_BADHANDLE);
    assert_eq!(attributes(&mut client, &handle(&mixed)).await.err(), bad);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_moved_or_linked_from_one_export_to_another() {
    let exports = vec![
        open("/all", "home", &["a"]),
        open("/same", "home", &["a"]),
        open("/data", "data", &["a"]),
    ];
    let served = Served::new(exports).await;
    let mut client = served.root("a").await;
    let all = served.mount("a", "/all").await.unwrap();
    let file = create(&mut client, &all, "file").await;
    for other in ["/same", "/data"] {
        let other = served.mount("a", other).await.unwrap();
        let moved = RENAME3args {
            from: place(&all, "file"),
            to: place(&other, "moved"),
        };
        let moved = status(&client.rename(&moved).await.unwrap());
        assert_eq!(moved, nfsstat3::NFS3ERR_XDEV);
        let linked = LINK3args {
            file: file.clone(),
            link: place(&other, "linked"),
        };
        let linked = status(&client.link(&linked).await.unwrap());
        assert_eq!(linked, nfsstat3::NFS3ERR_XDEV);
    }
    assert_eq!(names(&mut client, &all, 4096).await, [".", "..", "file"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_those_of_the_first_rule_that_is_for_the_client_at_each_call() {
    let rule = |clients: &str, rule: Rule| Rule {
        clients: vec![clients.parse().unwrap()],
        ..rule
    };
    let home = |rules: Vec<Rule>| vec![export("/home", "home", &["a", "b"], rules)];
    let served = Served::new(home(vec![open_to_all()])).await;
    let root = served.mount("a", "/home").await.unwrap();
    let mut client = served.root("a").await;
    let file = create(&mut client, &root, "file").await;
    served.change(&home(vec![
        rule("127.0.0.0/8", read_only()),
        rule("127.0.0.1", open_to_all()),
    ]));
    let write = async |client: &mut Client| {
        write(client, &file, (0, b"x"), stable_how::UNSTABLE)
            .await
            .err()
    };
    assert_eq!(write(&mut client).await, Some(nfsstat3::NFS3ERR_ROFS));
    served.change(&home(vec![
        rule("127.0.0.1", open_to_all()),
        rule("127.0.0.0/8", read_only()),
    ]));
    assert_eq!(write(&mut client).await, None, "over the same connection");
    let squashed = Rule {
        squash: Squash::All,
        ..open_to_all()
    };
    served.change(&home(vec![rule("127.0.0.1", squashed)]));
    assert_eq!(write(&mut client).await, Some(nfsstat3::NFS3ERR_ACCES));
    served.change(&home(vec![rule("10.0.0.0/8", open_to_all())]));
    let args = GETATTR3args {
        object: file.clone(),
    };
    let refused = client.getattr(&args).await;
    assert!(matches!(refused, Err(RpcError::Auth(_))), "{refused:?}");
    assert_eq!(served.mount("a", "/home").await.err(), Some(NO_ACCESS));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_says_how_callers_may_say_who_they_are_and_mounting_tells_it() {
    let only = |authentication| Rule {
        authentication,
        ..open_to_all()
    };
    let served = Served::new(vec![
        export("/sys", "home", &["a"], vec![only(Authentication::System)]),
        export("/none", "data", &["a"], vec![only(Authentication::None)]),
        export("/both", "data", &["a"], vec![only(Authentication::Both)]),
    ])
    .await;
    let (system, flavors) = served.mounted("a", "/sys").await.unwrap();
    assert_eq!(flavors, [1]);
    let (both, flavors) = served.mounted("a", "/both").await.unwrap();
    assert_eq!(flavors, [1, 0]);
    assert_eq!(served.mount("a", "/none").await.err(), Some(NO_ACCESS));
    let nothing = dirpath(Opaque::borrowed(b"/none"));
    let mut mounts = MountClient::new(served.io("a").await);
    let mounted = mounts.mnt(nothing).await.unwrap();
    assert_eq!(mounted.auth_flavors, [0]);
    let none = handle(mounted.fhandle.0.as_ref());
    let (mut user, mut nobody) = (served.root("a").await, served.nobody("a").await);
    let mut denied = HashSet::new();
    for (name, client) in [("user", &mut user), ("nobody", &mut nobody)] {
        for (path, root) in [("sys", &system), ("none", &none), ("both", &both)] {
            let args = GETATTR3args {
                object: root.clone(),
            };
            match client.getattr(&args).await {
                Ok(answer) => assert_eq!(status(&answer), nfsstat3::NFS3_OK),
                Err(RpcError::Auth(_)) => drop(denied.insert((name, path))),
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(denied, HashSet::from([("user", "none"), ("nobody", "sys")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_of_an_export_that_is_gone_are_stale_and_good_again_when_it_is_back() {
    let both = [open("/home", "home", &["a"]), open("/data", "data", &["a"])];
    let served = Served::new(both.to_vec()).await;
    let home = served.mount("a", "/home").await.unwrap();
    let mut client = served.root("a").await;
    let file = create(&mut client, &home, "file").await;
    served.change(&both[1..]);
    let stale = Some(nfsstat3::NFS3ERR_STALE);
    assert_eq!(attributes(&mut client, &file).await.err(), stale);
    assert_eq!(served.mount("a", "/home").await, Err(NO_ENTRY));
    served.change(&both);
    assert!(attributes(&mut client, &file).await.is_ok());
    served.change(&[open("/elsewhere", "home", &["a"])]);
    assert_eq!(
        attributes(&mut client, &file).await.err(),
        stale,
        "under another path"
    );
    let moved = served.mount("a", "/elsewhere").await.unwrap();
    assert!(lookup(&mut client, &moved, "file").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_that_cannot_be_change_nothing() {
    let home = open("/home", "home", &["a"]);
    let served = Served::new(vec![home.clone()]).await;
    let root = served.mount("a", "/home").await.unwrap();
    let with = |other: Export| [home.clone(), other];
    for (wrong, error) in [
        (open("data", "data", &["a"]), "does not begin with `/`"),
        (open("/data", "dta", &["a"]), "the volume `dta`"),
        (open("/data", "data", &["c"]), "the mount target `c`"),
        (
            open("/home/", "data", &["a", "b"]),
            "exported twice by the mount target `a`",
        ),
    ] {
        let refused: ExportError = served.server.change(&with(wrong), &[]).unwrap_err();
        assert!(refused.to_string().contains(error), "{refused}");
        assert_eq!(served.mount("a", "/home").await, Ok(root.clone()));
        assert_eq!(served.mount("b", "/home").await, Err(NO_ACCESS));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_becomes_of_another_type_while_clients_use_it() {
    let exports = [open("/home", "home", &["a", "b"])];
    let served = Served::new(exports.to_vec()).await;
    let root = served.mount("a", "/home").await.unwrap();
    let mut client = served.root("a").await;
    let throttled = |name: &str| {
        let line = format!("penstock_nfs_throttled_total{{target=\"{name}\"}} ");
        let text = served.registry.prometheus();
        let mut found = text.lines().filter_map(|told| told.strip_prefix(&line));
        found
            .next()
            .map(|count| count.parse::<u64>().unwrap())
            .unwrap()
    };
    let types = |name: &str, target_type| [(name.to_owned(), target_type)];
    let change = |types: &[_]| served.server.change(&exports, types).unwrap();
    change(&types("a", TargetType::Standard));
    let status = served.server.status();
    assert_eq!(status[0].target_type, TargetType::Standard);
    assert_eq!(
        status[1].target_type,
        TargetType::Unlimited,
        "of the other it stays"
    );
    // A REMOVE costs 8 operations, of which a Standard target has saved up 500.
    let remove_often = async |client: &mut Client| {
        for _ in 0..200 {
            assert_eq!(remove(client, &root, "none").await, nfsstat3::NFS3ERR_NOENT);
        }
    };
    remove_often(&mut client).await;
    assert!(throttled("a") > 0);
    assert_eq!(throttled("b"), 0);
    change(&types("a", TargetType::Unlimited));
    let before = throttled("a");
    remove_often(&mut client).await;
    assert_eq!(throttled("a"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_exports_are_told_with_the_networks_of_their_rules() {
    let limited = Rule {
        clients: vec!["10.0.0.0/8".parse().unwrap(), "127.0.0.1".parse().unwrap()],
        ..open_to_all()
    };
    let exports = vec![
        export("/home", "home", &["a"], vec![limited]),
        open("/data", "data", &["a", "b"]),
    ];
    let served = Served::new(exports).await;
    let told = async |target: &str| {
        let list = served
            .mounts(target)
            .await
            .export()
            .await
            .unwrap()
            .into_inner();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let told = list.iter().map(|one| {
            let groups = one.ex_groups.0.iter().map(|name| text(name.0.as_ref()));
            (text(one.ex_dir.0.as_ref()), groups.collect::<Vec<_>>())
        });
        told.collect::<Vec<_>>()
    };
    let networks = vec!["10.0.0.0/8".to_owned(), "127.0.0.1/32".to_owned()];
    let all = ("/data".to_owned(), Vec::new());
    let expected = [("/home".to_owned(), networks), all.clone()];
    assert_eq!(told("a").await, expected);
    assert_eq!(told("b").await, [all]);
}

#[test]
fn the_export_of_a_path_is_the_one_of_a_naive_search() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _within = runtime.enter();
    let served = runtime.block_on(Served::new(vec![open("/a", "home", &["a"])]));
    let path = prop::collection::vec(prop::sample::select(vec!["a", "b", "aa"]), 0..4);
    let paths = prop::collection::hash_set(path.clone(), 1..6);
    let config = ProptestConfig::with_cases(40);
    proptest!(config, |(exported in paths, wanted in path)| {
        let text = |path: &[&str]| format!("/{}", path.join("/"));
        let exports: Vec<_> = exported.iter().map(|path| open(&text(path), "home", &["a"])).collect();
        served.change(&exports);
        let longest = (0..=wanted.len()).rev().map(|end| &wanted[..end]);
        let longest = longest.into_iter().find(|path| exported.contains(*path));
        let mounted = runtime.block_on(served.mount("a", &text(&wanted)));
        // The volume is empty: below an export there is nothing.
        let expected = longest.is_some_and(|path| path.len() == wanted.len());
        prop_assert_eq!(mounted.is_ok(), expected);
        if let Some(path) = longest {
            let above = runtime.block_on(served.mount("a", &text(path))).unwrap();
            if let Ok(mounted) = mounted {
                prop_assert_eq!(mounted, above);
            }
        }
    });
    drop(served.directory);
}

/// A volume that accepts what is written.
fn accepting() -> Arc<Shaped> {
    let shape = Shape {
        accepts: true,
        ..Shape::default()
    };
    Arc::new(Shaped::new(shape))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_store_is_away_keeps_no_other_from_saving_at_the_end() {
    let exports = vec![open("/home", "home", &["a"]), open("/data", "data", &["a"])];
    let served = Served::over(exports, accepting(), accepting()).await;
    let mut client = served.root("a").await;
    for path in ["/home", "/data"] {
        let root = served.mount("a", path).await.unwrap();
        let file = create(&mut client, &root, "file").await;
        write(&mut client, &file, (0, b"content"), stable_how::UNSTABLE)
            .await
            .unwrap();
    }
    served.home.hold_syncs(true);
    let (home, data) = (Arc::clone(&served.home), Arc::clone(&served.data));
    let leaving = tokio::spawn(async move { served.server.leave(Duration::ZERO).await });
    let count = |volume: &Shaped| volume.syncs.load(Ordering::SeqCst);
    until("both are being saved", || {
        count(&home) > 0 && count(&data) > 0
    })
    .await;
    until("the other one is closed", || {
        data.releases.load(Ordering::SeqCst) > 0
    })
    .await;
    assert!(!leaving.is_finished());
    home.hold_syncs(false);
    assert!(leaving.await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_a_volume_that_hangs_leave_room_for_those_of_others() {
    let exports = vec![open("/home", "home", &["a"]), open("/data", "data", &["a"])];
    let served = Served::new(exports).await;
    let mut client = served.root("a").await;
    let mut files = Vec::new();
    for path in ["/home", "/data"] {
        let root = served.mount("a", path).await.unwrap();
        files.push(create(&mut client, &root, "file").await);
    }
    served.home.hold_reads(true);
    let hanging = READ3args {
        file: files[0].clone(),
        offset: 0,
        count: 1 << 20,
    };
    let mut clients = Vec::new();
    for _ in 0..4 {
        let stream = TcpStream::connect(served.address("a")).await.unwrap();
        let mut raw = RawClient(stream);
        for xid in 0..16 {
            let call = call_bytes(xid, (100_003, 3, 6), credential(0, 0, &[]), &hanging);
            raw.send(&record(&call)).await;
        }
        clients.push(raw);
    }
    // Two connections are enough for as much as the server bears, if nothing is left.
    until("as many hang as may", || {
        served.home.begun.load(Ordering::SeqCst) >= 12
    })
    .await;
    let reading = read(&mut client, &files[1], 0, 1 << 20);
    let answer = tokio::time::timeout(Duration::from_secs(10), reading).await;
    assert_eq!(answer, Ok(Ok((Vec::new(), true))));
    let written = vec![1; 1 << 20];
    let writing = write(&mut client, &files[1], (0, &written), stable_how::UNSTABLE);
    let answer = tokio::time::timeout(Duration::from_secs(10), writing).await;
    assert!(matches!(answer, Ok(Ok(_))), "{answer:?}");
    served.home.hold_reads(false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_store_is_away_keeps_files_of_no_other_open() {
    let exports = vec![open("/home", "home", &["a"]), open("/data", "data", &["a"])];
    let served = Served::new(exports).await;
    let mut client = served.root("a").await;
    for path in ["/home", "/data"] {
        let root = served.mount("a", path).await.unwrap();
        let file = create(&mut client, &root, "file").await;
        read(&mut client, &file, 0, 1).await.unwrap();
    }
    served.home.hold_releases(true);
    for volume in [&served.home, &served.data] {
        until("its reader is closed", || {
            volume.releases.load(Ordering::SeqCst) == 1
        })
        .await;
    }
    served.home.hold_releases(false);
}
