//! A client of NLM.

use nfs3_types::{
    nfs3::nfs_fh3,
    xdr_codec::{Opaque, Pack},
};

use super::*;

pub const NLM: u32 = 100_021;
pub const TEST: u32 = 1;
pub const LOCK: u32 = 2;
pub const CANCEL: u32 = 3;
pub const UNLOCK: u32 = 4;
pub const SHARE: u32 = 20;
pub const FREE_ALL: u32 = 23;

pub const GRANTED: u32 = 0;
pub const DENIED: u32 = 1;
pub const NO_LOCKS: u32 = 2;
pub const BLOCKED: u32 = 3;
pub const GRACE_PERIOD: u32 = 4;
pub const DEADLOCK: u32 = 5;
pub const READ_ONLY: u32 = 6;
pub const STALE: u32 = 7;
pub const TOO_BIG: u32 = 8;
pub const FAILED: u32 = 9;

/// A lock as a client asks for it.
#[derive(Clone)]
pub struct Asked {
    pub caller: &'static [u8],
    pub owner: &'static [u8],
    pub process: u32,
    pub is_exclusive: bool,
    pub waits: bool,
    pub reclaims: bool,
    pub range: (u64, u64),
    /// In which of its starts the client asks.
    pub state: u32,
}

/// An exclusive lock of a process.
pub fn of(process: u32, range: (u64, u64)) -> Asked {
    Asked {
        caller: b"client",
        owner: b"owner",
        process,
        is_exclusive: true,
        waits: false,
        reclaims: false,
        range,
        state: 1,
    }
}

pub fn opaque(bytes: &[u8], out: &mut Vec<u8>) {
    Opaque::borrowed(bytes).pack(out).unwrap();
}

pub fn flag(value: bool, out: &mut Vec<u8>) {
    u32::from(value).pack(out).unwrap();
}

impl Asked {
    pub fn arguments(&self, procedure: u32, file: &nfs_fh3) -> Vec<u8> {
        let mut out = Vec::new();
        opaque(b"\xffcookie", &mut out);
        if [LOCK, CANCEL].contains(&procedure) {
            flag(self.waits, &mut out);
        }
        if procedure != UNLOCK {
            flag(self.is_exclusive, &mut out);
        }
        opaque(self.caller, &mut out);
        opaque(file.data.as_ref(), &mut out);
        opaque(self.owner, &mut out);
        self.process.pack(&mut out).unwrap();
        self.range.0.pack(&mut out).unwrap();
        self.range.1.pack(&mut out).unwrap();
        if procedure == LOCK {
            flag(self.reclaims, &mut out);
            self.state.pack(&mut out).unwrap();
        }
        out
    }
}

/// A client of NLM.
pub struct LockClient {
    pub raw: RawClient,
    pub user: u32,
    /// The number of the last call.
    pub xid: u32,
}

impl LockClient {
    pub async fn new(target: &Target, user: u32) -> Self {
        Self::over(target.connect().await, user)
    }

    pub fn over(stream: tokio::net::TcpStream, user: u32) -> Self {
        let raw = RawClient(stream);
        let xid = 0x1000;
        Self { raw, user, xid }
    }

    pub async fn free_all(&mut self, caller: &[u8]) {
        self.begin_free_all(caller).await;
        assert_eq!(self.end().await, [0], "no result");
    }

    pub async fn begin_free_all(&mut self, caller: &[u8]) {
        let mut notice = Vec::new();
        opaque(caller, &mut notice);
        flag(false, &mut notice);
        self.xid += 1;
        self.begin(self.xid, FREE_ALL, &notice).await;
    }

    /// The words of an answer behind its header.
    pub async fn send(&mut self, procedure: u32, arguments: &[u8]) -> Vec<u32> {
        self.xid += 1;
        self.begin(self.xid, procedure, arguments).await;
        self.end().await
    }

    pub async fn begin(&mut self, xid: u32, procedure: u32, arguments: &[u8]) {
        let credential = credential(self.user, self.user, &[]);
        let nothing = nfs3_types::xdr_codec::Void;
        let mut bytes = call_bytes(xid, (NLM, 4, procedure), credential, &nothing);
        bytes.extend_from_slice(arguments);
        self.raw.send(&record(&bytes)).await;
    }

    pub async fn end(&mut self) -> Vec<u32> {
        let words = self.raw.words().await;
        assert_eq!(words[1..5], [1, 0, 0, 0]);
        words[5..].to_vec()
    }

    /// What is behind the cookie, which comes back as it was sent.
    pub async fn ask(&mut self, procedure: u32, file: &nfs_fh3, asked: &Asked) -> Vec<u32> {
        let words = self
            .send(procedure, &asked.arguments(procedure, file))
            .await;
        assert_eq!(words[..4], [0, 7, 0xff63_6f6f, 0x6b69_6500]);
        words[4..].to_vec()
    }

    pub async fn lock(&mut self, file: &nfs_fh3, asked: &Asked) -> u32 {
        self.ask(LOCK, file, asked).await[0]
    }

    pub async fn unlock(&mut self, file: &nfs_fh3, asked: &Asked) -> u32 {
        self.ask(UNLOCK, file, asked).await[0]
    }
}

pub async fn file_of(target: &Target) -> nfs_fh3 {
    let root = target.handle().await;
    create(&mut target.root().await, &root, "file").await
}
