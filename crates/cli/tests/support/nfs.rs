//! A client of a mount target that is not ours (`nfs3_client`), and programs of libnfs.

// Each test uses a part of this.
#![allow(dead_code, unreachable_pub)]

use std::{
    net::{SocketAddr, TcpListener},
    process::Command,
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
        xdr_codec::Opaque,
    },
    tokio::TokioIo,
};

use crate::support::{Ended, run};

pub type Io = TokioIo<tokio::net::TcpStream>;

/// A port that nobody listens on.
pub fn free_address() -> SocketAddr {
    let probe = TcpListener::bind("127.0.0.1:0").expect("a free port");
    probe.local_addr().expect("bound")
}
/// `nfs3_client` with the handle of the root.
pub struct Client {
    pub nfs: Nfs3Client<Io>,
    pub root: nfs_fh3,
}

impl Client {
    pub fn place(&self, name: &str) -> diropargs3<'static> {
        diropargs3 {
            dir: self.root.clone(),
            name: name.as_bytes().to_vec().into(),
        }
    }

    pub async fn create(&mut self, name: &str) -> nfs_fh3 {
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

    pub async fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        bytes: &[u8],
    ) -> (stable_how, [u8; 8]) {
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

    pub async fn commit(&mut self, file: &nfs_fh3) -> [u8; 8] {
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

    pub async fn lookup(&mut self, name: &str) -> Option<nfs_fh3> {
        let args = LOOKUP3args {
            what: self.place(name),
        };
        match self.nfs.lookup(&args).await.expect("answered") {
            Nfs3Result::Ok(found) => Some(found.object),
            Nfs3Result::Err(_) => None,
        }
    }

    pub async fn status(&mut self, file: &nfs_fh3) -> nfsstat3 {
        let args = GETATTR3args {
            object: file.clone(),
        };
        match self.nfs.getattr(&args).await.expect("answered") {
            Nfs3Result::Ok(_) => nfsstat3::NFS3_OK,
            Nfs3Result::Err((status, _)) => status,
        }
    }

    pub async fn read(&mut self, file: &nfs_fh3, length: usize) -> Vec<u8> {
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

/// A program of libnfs; says what is missing without it.
pub fn libnfs(program: &str, arguments: &[&str]) -> Option<Ended> {
    if run(Command::new("which").arg(program)).code != Some(0) {
        penstock_skips::skipped(format!(
            "{program} is missing: apt-get install libnfs-utils"
        ));
        return None;
    }
    Some(run(Command::new(program).args(arguments)))
}

pub async fn connect(address: SocketAddr) -> Io {
    let stream = tokio::net::TcpStream::connect(address).await;
    TokioIo::new(stream.expect("it listens"))
}

/// A client of a directory; the status where it cannot be mounted.
pub async fn mount(address: SocketAddr, path: &str) -> Result<Client, u32> {
    mount_as(address, path, &auth_unix::default()).await
}

/// The same for calls of somebody.
pub async fn mount_as(address: SocketAddr, path: &str, caller: &auth_unix) -> Result<Client, u32> {
    let credential = || opaque_auth::auth_unix(caller);
    let io = connect(address).await;
    let mut mounts = MountClient::new_with_auth(io, credential(), opaque_auth::default());
    let path = dirpath(Opaque::owned(path.as_bytes().to_vec()));
    let root = match mounts.mnt(path).await {
        Ok(mounted) => mounted.fhandle.0.to_vec(),
        Err(nfs3_client::MountError::Denied(status)) => return Err(status as u32),
        Err(error) => panic!("{error}"),
    };
    let io = connect(address).await;
    Ok(Client {
        nfs: Nfs3Client::new_with_auth(io, credential(), opaque_auth::default()),
        root: nfs_fh3 {
            data: Opaque::owned(root),
        },
    })
}
