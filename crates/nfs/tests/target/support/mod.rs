//! A mount target over a volume in memory, and clients.

pub mod called;
pub mod locks;
mod raw;
mod shaped;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use nfs3_client::{MountClient, MountError, Nfs3Client, tokio::TokioIo};
use nfs3_types::{
    mount::dirpath,
    nfs3::*,
    rpc::{auth_unix, opaque_auth},
    xdr_codec::Opaque,
};
use penstock_base::{BufferPool, MemoryBudget, metrics::Registry};
use penstock_nfs::{
    Export, HandleKey, NfsServer, NfsSettings, Rule, ServedVolume, Squash, StartError,
    TargetSettings, TargetStatus, TargetType,
};
use tokio::net::TcpStream;

pub use raw::{RawClient, call_bytes, record};
pub use shaped::{Shape, Shaped};

/// A client of NFS.
pub type Client = Nfs3Client<TokioIo<TcpStream>>;

/// A file system that is told apart from others by this.
const NAME: &str = "the file system of the tests";

/// What exports call the volume and the target.
const VOLUME: &str = "volume";
const TARGET: &str = "target";

/// An export of the only volume at the only target.
pub fn export(path: &str, rules: Vec<Rule>) -> Export {
    Export {
        path: path.to_owned(),
        volume: VOLUME.to_owned(),
        targets: vec![TARGET.to_owned()],
        rules,
    }
}

/// A mount target.
pub struct Target {
    pub server: NfsServer,
    pub volume: Arc<Shaped>,
    pub registry: Arc<Registry>,
    directory: Arc<tempfile::TempDir>,
}

/// What a target is made of.
pub struct Making {
    pub rule: Rule,
    pub path: &'static str,
    pub name: &'static str,
    pub memory: u64,
    pub target_type: TargetType,
    pub address: SocketAddr,
    pub portmap: Option<SocketAddr>,
    pub port_mappers_of_clients: u16,
    pub grace_period: Duration,
}

impl Default for Making {
    fn default() -> Self {
        Self {
            rule: open_to_all(),
            path: "/",
            name: NAME,
            memory: 64 << 20,
            target_type: TargetType::Unlimited,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            portmap: None,
            // Nobody listens there.
            port_mappers_of_clients: 1,
            grace_period: Duration::from_secs(45),
        }
    }
}

/// A target of which no client reclaims a lock.
pub fn without_grace_period() -> Making {
    Making {
        grace_period: Duration::ZERO,
        ..Making::default()
    }
}

/// A target that tells its ports at an address.
pub fn with_portmap(address: &str) -> Making {
    Making {
        portmap: Some(address.parse().unwrap()),
        ..Making::default()
    }
}

/// Everybody may do all, root too.
pub fn open_to_all() -> Rule {
    Rule {
        squash: Squash::None,
        ..Rule::default()
    }
}

impl Target {
    /// One that lets everybody do all.
    pub async fn new() -> Self {
        Self::made(Making::default(), Arc::default()).await
    }

    pub async fn with_rule(rule: Rule) -> Self {
        let making = Making {
            rule,
            ..Making::default()
        };
        Self::made(making, Arc::default()).await
    }

    pub async fn over(volume: Arc<Shaped>) -> Self {
        Self::made(Making::default(), volume).await
    }

    pub async fn made(making: Making, volume: Arc<Shaped>) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        Self::started(making, volume, directory).await.unwrap()
    }

    /// Another target of the same volume, with the same key: as after a restart.
    pub async fn again(&self, making: Making) -> Self {
        self.try_again(making).await.unwrap()
    }

    pub async fn try_again(&self, making: Making) -> Result<Self, StartError> {
        let directory = Arc::clone(&self.directory);
        Self::started(making, Arc::clone(&self.volume), directory).await
    }

    async fn started(
        making: Making,
        volume: Arc<Shaped>,
        directory: Arc<tempfile::TempDir>,
    ) -> Result<Self, StartError> {
        let registry = Registry::new();
        let served = ServedVolume {
            name: VOLUME.to_owned(),
            identity: making.name.to_owned(),
            volume: Arc::clone(&volume) as _,
            registry: Arc::clone(&registry),
        };
        let target = TargetSettings {
            name: TARGET.to_owned(),
            address: making.address,
            portmap: making.portmap,
            target_type: making.target_type,
            lockers: directory.path().join("lockers"),
            registry: Arc::clone(&registry),
        };
        let settings = NfsSettings {
            volumes: vec![served],
            targets: vec![target],
            exports: vec![export(making.path, vec![making.rule])],
            key: HandleKey::kept_in(&directory.path().join("key")).unwrap(),
            port_mappers_of_clients: making.port_mappers_of_clients,
            grace_period: making.grace_period,
        };
        let pool = BufferPool::new(MemoryBudget::new(making.memory));
        let server = NfsServer::start(settings, pool);
        Ok(Self {
            server: server.await?,
            volume,
            registry,
            directory,
        })
    }

    /// The only target of the server.
    fn status(&self) -> TargetStatus {
        self.server.status().remove(0)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.status().address
    }

    /// Where it tells its ports.
    pub fn port_mapper(&self) -> Option<SocketAddr> {
        self.status().port_mapper
    }

    /// Where it keeps what outlives it.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// A client whose user is root.
    pub async fn root(&self) -> Client {
        self.user(0, 0).await
    }

    pub async fn user(&self, uid: u32, gid: u32) -> Client {
        let io = TokioIo::new(self.connect().await);
        Nfs3Client::new_with_auth(io, credential(uid, gid, &[]), opaque_auth::default())
    }

    pub async fn user_of(&self, uid: u32, gid: u32, groups: &[u32]) -> Client {
        let io = TokioIo::new(self.connect().await);
        Nfs3Client::new_with_auth(io, credential(uid, gid, groups), opaque_auth::default())
    }

    pub async fn nobody(&self) -> Client {
        Nfs3Client::new(TokioIo::new(self.connect().await))
    }

    pub async fn mounts(&self) -> MountClient<TokioIo<TcpStream>> {
        let io = TokioIo::new(self.connect().await);
        MountClient::new_with_auth(io, credential(0, 0, &[]), opaque_auth::default())
    }

    /// The handle of a directory.
    pub async fn mount(&self, path: &str) -> Result<nfs_fh3, u32> {
        let path = dirpath(Opaque::owned(path.as_bytes().to_vec()));
        match self.mounts().await.mnt(path).await {
            Ok(mounted) => Ok(handle(mounted.fhandle.0.as_ref())),
            Err(MountError::Denied(status)) => Err(status as u32),
            Err(MountError::Rpc(error)) => panic!("{error}"),
        }
    }

    /// The handle of the root.
    pub async fn handle(&self) -> nfs_fh3 {
        self.mount("/").await.unwrap()
    }

    /// The value of a metric, over all its labels.
    pub fn metric(&self, name: &str) -> u64 {
        let samples = self.registry.prometheus();
        let name = format!("penstock_{name}");
        let lines = samples.lines().filter(|line| line.starts_with(&name));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }
}

pub fn credential(uid: u32, gid: u32, groups: &[u32]) -> opaque_auth<'static> {
    opaque_auth::auth_unix(&auth_unix {
        stamp: 1,
        machinename: Opaque::borrowed(b"client"),
        uid,
        gid,
        gids: groups.to_vec(),
    })
}

pub fn handle(bytes: &[u8]) -> nfs_fh3 {
    nfs_fh3 {
        data: Opaque::owned(bytes.to_vec()),
    }
}

pub fn name(text: &str) -> filename3<'static> {
    text.as_bytes().to_vec().into()
}

pub fn place(directory: &nfs_fh3, text: &str) -> diropargs3<'static> {
    diropargs3 {
        dir: directory.clone(),
        name: name(text),
    }
}

/// No attributes.
pub fn nothing() -> sattr3 {
    sattr3 {
        mode: Nfs3Option::None,
        uid: Nfs3Option::None,
        gid: Nfs3Option::None,
        size: Nfs3Option::None,
        atime: set_atime::DONT_CHANGE,
        mtime: set_mtime::DONT_CHANGE,
    }
}

pub fn mode(mode: u32) -> sattr3 {
    sattr3 {
        mode: Nfs3Option::Some(mode),
        ..nothing()
    }
}

/// The status of an answer.
pub fn status<T, E>(answer: &Nfs3Result<T, E>) -> nfsstat3 {
    match answer {
        Nfs3Result::Ok(_) => nfsstat3::NFS3_OK,
        Nfs3Result::Err((status, _)) => *status,
    }
}

/// Makes a file, and returns its handle.
pub async fn create(client: &mut Client, directory: &nfs_fh3, text: &str) -> nfs_fh3 {
    let args = CREATE3args {
        where_: place(directory, text),
        how: createhow3::UNCHECKED(mode(0o644)),
    };
    client.create(&args).await.unwrap().unwrap().obj.unwrap()
}

pub async fn make_directory(client: &mut Client, directory: &nfs_fh3, text: &str) -> nfs_fh3 {
    let args = MKDIR3args {
        where_: place(directory, text),
        attributes: mode(0o755),
    };
    client.mkdir(&args).await.unwrap().unwrap().obj.unwrap()
}

pub async fn lookup(
    client: &mut Client,
    directory: &nfs_fh3,
    text: &str,
) -> Result<nfs_fh3, nfsstat3> {
    let args = LOOKUP3args {
        what: place(directory, text),
    };
    match client.lookup(&args).await.unwrap() {
        Nfs3Result::Ok(found) => Ok(found.object),
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

pub async fn attributes(client: &mut Client, file: &nfs_fh3) -> Result<fattr3, nfsstat3> {
    let args = GETATTR3args {
        object: file.clone(),
    };
    match client.getattr(&args).await.unwrap() {
        Nfs3Result::Ok(found) => Ok(found.obj_attributes),
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

/// Writes, and returns how durable that is with the verifier.
pub async fn write(
    client: &mut Client,
    file: &nfs_fh3,
    (offset, bytes): (u64, &[u8]),
    stable: stable_how,
) -> Result<(stable_how, [u8; 8]), nfsstat3> {
    let args = WRITE3args {
        file: file.clone(),
        offset,
        count: bytes.len() as u32,
        stable,
        data: Opaque::owned(bytes.to_vec()),
    };
    match client.write(&args).await.unwrap() {
        Nfs3Result::Ok(written) => {
            assert_eq!(written.count as usize, bytes.len());
            Ok((written.committed, written.verf.0))
        }
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

/// Reads, and returns the bytes with whether the file ends behind them.
pub async fn read(
    client: &mut Client,
    file: &nfs_fh3,
    offset: u64,
    count: u32,
) -> Result<(Vec<u8>, bool), nfsstat3> {
    let args = READ3args {
        file: file.clone(),
        offset,
        count,
    };
    match client.read(&args).await.unwrap() {
        Nfs3Result::Ok(read) => {
            assert_eq!(read.count as usize, read.data.len());
            Ok((read.data.to_vec(), read.eof))
        }
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

pub async fn commit(client: &mut Client, file: &nfs_fh3) -> Result<[u8; 8], nfsstat3> {
    let args = COMMIT3args {
        file: file.clone(),
        offset: 0,
        count: 0,
    };
    match client.commit(&args).await.unwrap() {
        Nfs3Result::Ok(committed) => Ok(committed.verf.0),
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

pub async fn remove(client: &mut Client, directory: &nfs_fh3, text: &str) -> nfsstat3 {
    let args = REMOVE3args {
        object: place(directory, text),
    };
    status(&client.remove(&args).await.unwrap())
}

/// Every name in a directory, read in answers of so many bytes.
pub async fn names(client: &mut Client, directory: &nfs_fh3, bytes: u32) -> Vec<String> {
    let (mut names, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
    loop {
        let args = READDIR3args {
            dir: directory.clone(),
            cookie,
            cookieverf: cookieverf3(verifier),
            count: bytes,
        };
        let page = client.readdir(&args).await.unwrap().unwrap();
        verifier = page.cookieverf.0;
        let entries = page.reply.entries.into_inner();
        for entry in &entries {
            names.push(String::from_utf8(entry.name.0.to_vec()).unwrap());
            cookie = entry.cookie;
        }
        if page.reply.eof {
            return names;
        }
        assert!(!entries.is_empty());
    }
}

/// Waits until something holds.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(20), "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
