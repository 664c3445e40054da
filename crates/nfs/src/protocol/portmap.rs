//! Portmap, version 2, and rpcbind, versions 3 and 4 (RFC 1833): where programs listen.
//!
//! What registers programs, and what passes calls on to them (CALLIT, BCAST, INDIRECT), is not served: the first is none
//! of a client's business, and the second makes a server call whomever a stranger names.

use std::net::{IpAddr, SocketAddr};

use super::{
    rpc::Transport,
    xdr::{Decoded, Decoder, Encoder},
};

/// The number of the program.
pub const PROGRAM: u32 = 100_000;
/// Portmap.
pub const PORTMAP: u32 = 2;
/// The versions of rpcbind, which tell addresses where portmap tells ports.
pub const RPCBIND: [u32; 2] = [3, 4];
/// The port at which every client expects it.
pub const PORT: u16 = 111;

/// GETPORT of portmap, GETADDR of rpcbind.
pub(crate) const FIND: u32 = 3;
const SET: u32 = 1;
const UNSET: u32 = 2;
const DUMP: u32 = 4;
/// GETVERSADDR, of version 4 alone: GETADDR that takes no other version instead.
const FIND_VERSION: u32 = 9;
/// Bytes in the longest name of a transport, address or owner.
const NAME_MAX: usize = 256;
/// Whom programs are said to belong to.
const OWNER: &[u8] = b"penstock";
/// The numbers that portmap knows transports by.
const TCP: u32 = 6;
const UDP: u32 = 17;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Nothing.
    Null,
    /// To register a program, or that one is forgotten.
    Register,
    /// Where a program listens.
    Find(Wanted),
    /// All that is known.
    List,
}

/// A program with how it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Which program.
    pub program: u32,
    /// In which version.
    pub version: u32,
    /// Nothing where the client names one that is not known here.
    pub transport: Option<Transport>,
}

impl Request {
    /// The arguments of a procedure; nothing where there is no such procedure.
    pub fn decode(
        (version, procedure): (u32, u32),
        arguments: &mut Decoder,
    ) -> Option<Decoded<Self>> {
        let wanted = match version {
            PORTMAP => wanted_by_number,
            _ => wanted_by_name,
        };
        let request = match procedure {
            0 => Ok(Self::Null),
            SET | UNSET => Ok(Self::Register),
            FIND => wanted(arguments).map(Self::Find),
            DUMP => Ok(Self::List),
            FIND_VERSION if version == RPCBIND[1] => wanted(arguments).map(Self::Find),
            _ => return None,
        };
        Some(request)
    }
}

fn wanted_by_number(arguments: &mut Decoder) -> Decoded<Wanted> {
    let (program, version) = (arguments.u32()?, arguments.u32()?);
    let transport = match arguments.u32()? {
        TCP => Some(Transport::Stream),
        UDP => Some(Transport::Datagram),
        _ => None,
    };
    let _port = arguments.u32()?;
    Ok(Wanted {
        program,
        version,
        transport,
    })
}

fn wanted_by_name(arguments: &mut Decoder) -> Decoded<Wanted> {
    let (program, version) = (arguments.u32()?, arguments.u32()?);
    let name = arguments.opaque(NAME_MAX)?;
    let (_address, _owner) = (arguments.opaque(NAME_MAX)?, arguments.opaque(NAME_MAX)?);
    let transport = match name.as_ref() {
        b"tcp" | b"tcp6" => Some(Transport::Stream),
        b"udp" | b"udp6" => Some(Transport::Datagram),
        _ => None,
    };
    Ok(Wanted {
        program,
        version,
        transport,
    })
}

/// A program where it listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) transport: Transport,
    pub(crate) address: SocketAddr,
}

/// Writes all that is known, as a version tells it.
pub(crate) fn write_list(out: &mut Encoder, version: u32, mappings: &[Mapping]) {
    for mapping in mappings {
        out.bool(true);
        out.u32(mapping.program);
        out.u32(mapping.version);
        match version {
            PORTMAP => {
                out.u32(number_of(mapping.transport));
                out.u32(mapping.address.port().into());
            }
            _ => {
                out.opaque(name_of(mapping.transport, mapping.address.ip()));
                out.opaque(universal_address(mapping.address).as_bytes());
                out.opaque(OWNER);
            }
        }
    }
    out.bool(false);
}

/// Writes where a program listens, as a version tells it; nothing is told as port 0, and as no address.
pub(crate) fn write_place(out: &mut Encoder, version: u32, place: Option<SocketAddr>) {
    match version {
        PORTMAP => out.u32(place.map_or(0, |place| place.port().into())),
        _ => out.opaque(place.map(universal_address).unwrap_or_default().as_bytes()),
    }
}

/// Writes for what a client asks that wants to know where a program listens at whoever it asks.
pub(crate) fn write_wanted(out: &mut Encoder, version: u32, wanted: &Mapping) {
    out.u32(wanted.program);
    out.u32(wanted.version);
    match version {
        PORTMAP => {
            out.u32(number_of(wanted.transport));
            out.u32(0);
        }
        _ => {
            out.opaque(name_of(wanted.transport, wanted.address.ip()));
            out.opaque(universal_address(wanted.address).as_bytes());
            out.opaque(OWNER);
        }
    }
}

/// The port that an answer to [`FIND`] tells; nothing where the program is not there.
pub fn read_place(version: u32, results: &mut Decoder) -> Decoded<Option<u16>> {
    let port = match version {
        PORTMAP => u16::try_from(results.u32()?).unwrap_or(0),
        _ => port_of(&results.opaque(NAME_MAX)?).unwrap_or(0),
    };
    Ok((port > 0).then_some(port))
}

fn number_of(transport: Transport) -> u32 {
    match transport {
        Transport::Stream => TCP,
        Transport::Datagram => UDP,
    }
}

fn name_of(transport: Transport, address: IpAddr) -> &'static [u8] {
    match (transport, address.is_ipv4()) {
        (Transport::Stream, true) => b"tcp",
        (Transport::Stream, false) => b"tcp6",
        (Transport::Datagram, true) => b"udp",
        (Transport::Datagram, false) => b"udp6",
    }
}

/// An address as text (section 5.2.3.3 of RFC 5665): that of the host, and the bytes of the port.
fn universal_address(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

/// The port of an address as text.
fn port_of(text: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(text).ok()?;
    let mut parts = text.rsplitn(3, '.');
    let (low, high) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(u16::from_be_bytes([high, low]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_text_with_the_bytes_of_their_port() {
        for (address, text) in [
            ("10.0.0.5:2049", "10.0.0.5.8.1"),
            ("[fd00::1]:111", "fd00::1.0.111"),
        ] {
            let address: SocketAddr = address.parse().expect("an address");
            assert_eq!(universal_address(address), text);
            assert_eq!(port_of(text.as_bytes()), Some(address.port()));
        }
        for wrong in ["", "1", "256.1", "a.b", "1.-1", "\u{fffd}.1"] {
            assert_eq!(port_of(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_place_is_read_as_it_is_written_and_nowhere_is_no_port() {
        let place: SocketAddr = "10.0.0.5:2049".parse().expect("an address");
        for version in [PORTMAP, RPCBIND[0], RPCBIND[1]] {
            for (place, port) in [(Some(place), Some(2049)), (None, None)] {
                let mut out = Encoder::default();
                write_place(&mut out, version, place);
                let mut results = Decoder::new(out.into_bytes().into());
                assert_eq!(read_place(version, &mut results), Ok(port));
            }
        }
        let mut beyond = Decoder::new(bytes::Bytes::from_static(&[0, 1, 0, 0]));
        assert_eq!(read_place(PORTMAP, &mut beyond), Ok(None));
    }
}
