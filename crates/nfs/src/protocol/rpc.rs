//! ONC RPC, version 2 (RFC 5531): calls, who makes them, and replies.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::Payload;
use smallvec::SmallVec;

use super::xdr::{Decoded, Decoder, Encoder, Malformed, padding};

pub(super) const RPC_VERSION: u32 = 2;
pub(super) const CALL: u32 = 0;
pub(super) const REPLY: u32 = 1;
pub(super) const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;
/// Bytes in the longest credential or verifier.
pub(super) const AUTH_LENGTH_MAX: usize = 400;
/// Bytes in the longest name of a machine.
const MACHINE_NAME_MAX: usize = 255;
/// Groups that AUTH_SYS has room for.
const GROUPS_MAX: usize = 16;
/// Bytes of a record mark.
pub(super) const MARK: usize = 4;
/// Set in the mark of a record's last fragment.
pub(super) const LAST_FRAGMENT: u32 = 1 << 31;
/// Bytes of most replies.
const REPLY_CAPACITY: usize = 256;

/// AUTH_NONE.
pub(crate) const AUTH_NONE: u32 = 0;
/// AUTH_SYS.
pub(crate) const AUTH_SYS: u32 = 1;

/// How calls come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Stream,
    /// UDP.
    Datagram,
}

/// Who a client says that its user is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// Nobody in particular.
    None,
    /// A user of the client's machine.
    System {
        /// User.
        uid: u32,
        /// First group.
        gid: u32,
        /// Further groups, at most 16.
        groups: Arc<[u32]>,
    },
}

impl Credential {
    /// Reads what a call brings. Fails with `None` where the flavor is unknown.
    fn decode(flavor: u32, body: Bytes) -> Result<Self, AuthStatus> {
        match flavor {
            AUTH_NONE => Ok(Self::None),
            AUTH_SYS => Self::system(body).map_err(|_| AuthStatus::BadCredential),
            _ => Err(AuthStatus::RejectedCredential),
        }
    }

    fn system(body: Bytes) -> Decoded<Self> {
        let mut body = Decoder::new(body);
        let _stamp = body.u32()?;
        let _machine = body.opaque(MACHINE_NAME_MAX)?;
        let (uid, gid) = (body.u32()?, body.u32()?);
        let count = body.u32()? as usize;
        if count > GROUPS_MAX {
            return Err(Malformed);
        }
        let groups: Decoded<SmallVec<[u32; GROUPS_MAX]>> = (0..count).map(|_| body.u32()).collect();
        body.end()?;
        let groups = Arc::from(&groups?[..]);
        Ok(Self::System { uid, gid, groups })
    }
}

/// Why a call is not answered for whoever makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthStatus {
    BadCredential = 1,
    RejectedCredential = 2,
    TooWeak = 5,
}

/// Why a call is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    ProgramUnavailable,
    /// With the lowest and the highest version that there is.
    ProgramMismatch([u32; 2]),
    ProcedureUnavailable,
    GarbageArguments,
    Denied(AuthStatus),
    RpcMismatch,
}

/// A call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Which call of this client, so that it knows the reply.
    pub xid: u32,
    /// Of which program.
    pub program: u32,
    /// In which version.
    pub version: u32,
    /// What.
    pub procedure: u32,
    /// For whom.
    pub credential: Credential,
    /// What the procedure makes its arguments of.
    pub arguments: Decoder,
}

/// What a message is that is no call that can be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallError {
    /// No call: the other side does not speak the protocol.
    Malformed,
    /// A call that is answered with a refusal.
    Refused(Refused),
}

/// A refusal of the call with this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    pub(crate) xid: u32,
    pub(crate) refusal: Refusal,
}

impl From<Malformed> for CallError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl Call {
    /// Reads the header of a call; what follows are its arguments.
    pub fn decode(message: Bytes) -> Result<Self, CallError> {
        let mut message = Decoder::new(message);
        let xid = message.u32()?;
        if message.u32()? != CALL {
            return Err(CallError::Malformed);
        }
        let refused = |refusal| CallError::Refused(Refused { xid, refusal });
        if message.u32()? != RPC_VERSION {
            return Err(refused(Refusal::RpcMismatch));
        }
        let (program, version, procedure) = (message.u32()?, message.u32()?, message.u32()?);
        let (flavor, body) = (message.u32()?, message.opaque(AUTH_LENGTH_MAX)?);
        let _verifier = (message.u32()?, message.opaque(AUTH_LENGTH_MAX)?);
        let credential = Credential::decode(flavor, body);
        let credential = credential.map_err(|status| refused(Refusal::Denied(status)))?;
        Ok(Self {
            xid,
            program,
            version,
            procedure,
            credential,
            arguments: message,
        })
    }
}

/// A reply as it is sent, with the mark of its record: bytes that were written for it, and then bytes that a volume
/// gave, which are sent from where they lie.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) head: Bytes,
    pub(crate) payload: Payload,
}

impl Reply {
    /// A refusal.
    pub(crate) fn refused(Refused { xid, refusal }: Refused) -> Self {
        let mut out = Encoder::with_capacity(REPLY_CAPACITY);
        out.u32(0);
        out.u32(xid);
        out.u32(REPLY);
        match refusal {
            Refusal::RpcMismatch => {
                for word in [DENIED, RPC_MISMATCH, RPC_VERSION, RPC_VERSION] {
                    out.u32(word);
                }
            }
            Refusal::Denied(status) => {
                for word in [DENIED, AUTH_ERROR, status as u32] {
                    out.u32(word);
                }
            }
            Refusal::ProgramUnavailable => accepted(&mut out, 1),
            Refusal::ProgramMismatch(versions) => {
                accepted(&mut out, 2);
                versions.into_iter().for_each(|version| out.u32(version));
            }
            Refusal::ProcedureUnavailable => accepted(&mut out, 3),
            Refusal::GarbageArguments => accepted(&mut out, 4),
        }
        Self::finished(out, Payload::new())
    }

    /// What a procedure writes its results behind.
    pub(crate) fn begin(xid: u32) -> Encoder {
        let mut out = Encoder::with_capacity(REPLY_CAPACITY);
        out.u32(0);
        out.u32(xid);
        out.u32(REPLY);
        accepted(&mut out, 0);
        out
    }

    /// What is sent in a datagram, which has no mark.
    pub(crate) fn into_datagram(self) -> Bytes {
        let head = self.head.slice(MARK..);
        match self.payload.is_empty() {
            true => head,
            false => [&head[..], &self.payload.to_vec()].concat().into(),
        }
    }

    /// The results that were written, then `payload` as an opaque's bytes, whose length was written.
    pub(crate) fn finished(mut out: Encoder, mut payload: Payload) -> Self {
        payload.push(Bytes::from_static(&[0; MARK]).slice(..padding(payload.len())));
        let length = out.len() - MARK + payload.len();
        out.set_u32(0, LAST_FRAGMENT | length as u32);
        Self {
            head: out.into_bytes().into(),
            payload,
        }
    }
}

/// An accepted call, with an empty verifier and this outcome.
fn accepted(out: &mut Encoder, outcome: u32) {
    for word in [ACCEPTED, AUTH_NONE, 0, outcome] {
        out.u32(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(flavor: u32, body: &[u8]) -> Encoder {
        let mut out = Encoder::default();
        for word in [77, CALL, RPC_VERSION, 100_003, 3, 1, flavor] {
            out.u32(word);
        }
        out.opaque(body);
        out.u32(AUTH_NONE);
        out.opaque(b"");
        out
    }

    fn decode(out: Encoder) -> Result<Call, CallError> {
        Call::decode(out.into_bytes().into())
    }

    fn system(groups: u32) -> Vec<u8> {
        let mut body = Encoder::default();
        body.u32(0);
        body.opaque(b"machine");
        body.u32(1000);
        body.u32(100);
        body.u32(groups);
        (0..groups).for_each(|group| body.u32(group));
        body.into_bytes()
    }

    fn refusal(outcome: Result<Call, CallError>) -> Refusal {
        match outcome {
            Err(CallError::Refused(refused)) => refused.refusal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_says_who_asks_for_what() {
        let mut out = call(AUTH_SYS, &system(3));
        out.u32(5);
        let call = decode(out).expect("a call");
        assert_eq!((call.xid, call.program, call.version), (77, 100_003, 3));
        let Credential::System { uid, gid, groups } = call.credential else {
            panic!("a user");
        };
        assert_eq!((uid, gid, &groups[..]), (1000, 100, &[0, 1, 2][..]));
        assert_eq!(&call.arguments.rest()[..], [0, 0, 0, 5]);
    }

    #[test]
    fn credentials_that_are_wrong_or_unknown_are_refused() {
        let denied = Refusal::Denied(AuthStatus::BadCredential);
        assert_eq!(refusal(decode(call(AUTH_SYS, &system(17)))), denied);
        assert_eq!(refusal(decode(call(AUTH_SYS, b"abc"))), denied);
        let denied = Refusal::Denied(AuthStatus::RejectedCredential);
        assert_eq!(refusal(decode(call(6, b""))), denied);
        let long = decode(call(AUTH_NONE, &[0; 401]));
        assert!(matches!(long, Err(CallError::Malformed)));
    }

    #[test]
    fn another_version_of_rpc_is_answered() {
        let mut bytes = call(AUTH_NONE, b"").into_bytes();
        bytes[11] = 3;
        assert_eq!(refusal(Call::decode(bytes.into())), Refusal::RpcMismatch);
        let reply = Reply::refused(Refused {
            xid: 1,
            refusal: Refusal::RpcMismatch,
        });
        assert_eq!(reply.head.len(), 4 + 6 * 4);
        assert_eq!(reply.head[..4], [0x80, 0, 0, 24]);
    }

    #[test]
    fn a_payload_is_padded_and_counted_in_the_mark() {
        let mut out = Reply::begin(9);
        out.u32(5);
        let reply = Reply::finished(out, Payload::from(b"abcde".to_vec()));
        let body = 6 * 4 + 4 + 8;
        assert_eq!(reply.head[..4], (LAST_FRAGMENT | body).to_be_bytes());
        assert_eq!(reply.payload.to_vec(), b"abcde\0\0\0");
    }
}
