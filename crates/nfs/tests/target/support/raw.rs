//! A client of bytes.

use nfs3_types::{
    rpc::{RPC_VERSION_2, call_body, msg_body, opaque_auth, rpc_msg},
    xdr_codec::Pack,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::Target;

/// A connection on which anything can be sent.
pub struct RawClient(pub TcpStream);

/// A call, without the mark of its record.
pub fn call_bytes(
    xid: u32,
    (program, version, procedure): (u32, u32, u32),
    credential: opaque_auth<'static>,
    arguments: &impl Pack,
) -> Vec<u8> {
    let message = rpc_msg {
        xid,
        body: msg_body::CALL(call_body {
            rpcvers: RPC_VERSION_2,
            prog: program,
            vers: version,
            proc: procedure,
            cred: credential,
            verf: opaque_auth::default(),
        }),
    };
    let mut bytes = Vec::new();
    message.pack(&mut bytes).unwrap();
    arguments.pack(&mut bytes).unwrap();
    bytes
}

/// The bytes as a record of one fragment.
pub fn record(bytes: &[u8]) -> Vec<u8> {
    let mark = 0x8000_0000 | bytes.len() as u32;
    [&mark.to_be_bytes()[..], bytes].concat()
}

impl RawClient {
    pub async fn new(target: &Target) -> Self {
        Self(target.connect().await)
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// The next reply without its mark; nothing when the server has closed the connection.
    pub async fn receive(&mut self) -> Option<Vec<u8>> {
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark).await.ok()?;
        let length = u32::from_be_bytes(mark) & 0x7fff_ffff;
        let mut reply = vec![0; length as usize];
        self.0.read_exact(&mut reply).await.ok()?;
        Some(reply)
    }

    /// The next reply in words.
    pub async fn words(&mut self) -> Vec<u32> {
        let reply = self.receive().await.expect("an answer");
        let words = reply.chunks_exact(4);
        words
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect()
    }
}
