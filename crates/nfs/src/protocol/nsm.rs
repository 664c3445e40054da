//! NSM, version 1 (the Open Group's XNFS, chapter 11): who was started again.
//!
//! What a machine asks its own monitor (MON, UNMON, SIMU_CRASH) is not served: a mount target watches its clients itself.

use bytes::Bytes;

use super::{
    outgoing::Procedure,
    xdr::{Decoded, Decoder, Encoder},
};

/// The number of the program.
pub(crate) const PROGRAM: u32 = 100_024;
/// The only version.
pub(crate) const VERSION: u32 = 1;
/// The procedure that tells a machine that another one was started.
pub(crate) const NOTIFY: Procedure = (PROGRAM, VERSION, 6);
/// The monitor does not watch whom it is asked about.
const FAIL: u32 = 1;
/// Bytes in the longest name of a machine.
const NAME_MAX: usize = 1024;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Nothing.
    Null,
    /// The state of the server.
    State,
    /// The machine with this name was started, and has this state now.
    Notify(Bytes, u32),
}

impl Request {
    /// The arguments of a procedure; nothing where there is no such procedure.
    pub fn decode(procedure: u32, arguments: &mut Decoder) -> Option<Decoded<Self>> {
        let request = match procedure {
            0 => Ok(Self::Null),
            1 => arguments.opaque(NAME_MAX).map(|_| Self::State),
            6 => notice(arguments),
            _ => return None,
        };
        Some(request)
    }
}

fn notice(arguments: &mut Decoder) -> Decoded<Request> {
    Ok(Request::Notify(
        arguments.opaque(NAME_MAX)?,
        arguments.u32()?,
    ))
}

/// Writes that the machine with this name was started.
pub(crate) fn write_notice(out: &mut Encoder, name: &str, state: u32) {
    out.opaque(name.as_bytes());
    out.u32(state);
}

/// Writes the state of the server.
pub(crate) fn write_state(out: &mut Encoder, state: u32) {
    out.u32(FAIL);
    out.u32(state);
}
