//! Calls that go out, and the replies to them.

use bytes::Bytes;

use super::{
    rpc::{ACCEPTED, AUTH_LENGTH_MAX, AUTH_NONE, CALL, LAST_FRAGMENT, MARK, REPLY, RPC_VERSION},
    xdr::{Decoded, Decoder, Encoder, Malformed},
};

/// Which procedure: of which program, in which version, and its number.
pub(crate) type Procedure = (u32, u32, u32);

/// Begins a call of nobody in particular, behind the place of its mark.
pub(crate) fn begin(xid: u32, (program, version, procedure): Procedure) -> Encoder {
    let mut out = Encoder::default();
    for word in [0, xid, CALL, RPC_VERSION, program, version, procedure] {
        out.u32(word);
    }
    for _credential_and_verifier in 0..2 {
        out.u32(AUTH_NONE);
        out.opaque(b"");
    }
    out
}

/// The record of a call whose arguments were written.
pub(crate) fn finished(mut out: Encoder) -> Bytes {
    let length = out.len() - MARK;
    out.set_u32(0, LAST_FRAGMENT | length as u32);
    out.into_bytes().into()
}

/// The bytes of a record with this mark; nothing where others follow that belong to it, or there are more than `limit`.
pub(crate) fn length_of(mark: [u8; MARK], limit: usize) -> Option<usize> {
    let mark = u32::from_be_bytes(mark);
    let length = (mark & !LAST_FRAGMENT) as usize;
    (mark & LAST_FRAGMENT != 0 && length <= limit).then_some(length)
}

/// What the procedure of a call writes, if `reply` says that it was carried out.
pub fn results(xid: u32, reply: Bytes) -> Decoded<Decoder> {
    let mut reply = Decoder::new(reply);
    let mut expect = |expected| match reply.u32() {
        Ok(word) if word == expected => Ok(()),
        _ => Err(Malformed),
    };
    for word in [xid, REPLY, ACCEPTED] {
        expect(word)?;
    }
    let _verifier = (reply.u32()?, reply.opaque(AUTH_LENGTH_MAX)?);
    match reply.u32()? {
        0 => Ok(reply),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use penstock_base::Payload;

    use super::*;
    use crate::protocol::rpc::{Call, Refusal, Refused, Reply};

    #[test]
    fn a_call_is_read_as_it_is_written() {
        let mut out = begin(7, (100_021, 4, 5));
        out.u32(9);
        let record = finished(out);
        let mark = record[..MARK].try_into().expect("four bytes");
        assert_eq!(length_of(mark, 100), Some(record.len() - MARK));
        assert_eq!(length_of(mark, 10), None);
        assert_eq!(length_of([0, 0, 0, 8], 100), None, "not the last");
        let call = Call::decode(record.slice(MARK..)).expect("a call");
        assert_eq!((call.xid, call.program, call.procedure), (7, 100_021, 5));
        assert_eq!(call.arguments.rest()[..], [0, 0, 0, 9]);
    }

    #[test]
    fn only_the_reply_to_the_call_that_was_carried_out_has_results() {
        let mut out = Reply::begin(7);
        out.u32(5);
        let good = Reply::finished(out, Payload::new()).into_datagram();
        let read = |xid, reply: &Bytes| results(xid, reply.clone()).and_then(|mut of| of.u32());
        assert_eq!(read(7, &good), Ok(5));
        assert_eq!(read(8, &good), Err(Malformed));
        for length in 0..good.len() {
            assert_eq!(read(7, &good.slice(..length)), Err(Malformed));
        }
        for refusal in [Refusal::ProgramUnavailable, Refusal::RpcMismatch] {
            let refused = Reply::refused(Refused { xid: 7, refusal });
            assert_eq!(read(7, &refused.into_datagram()), Err(Malformed));
        }
    }
}
