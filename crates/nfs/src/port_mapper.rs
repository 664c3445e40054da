//! Where the programs of a mount target listen, told at the port at which every client asks for that.
//!
//! It has a listener of its own, over TCP and UDP, and knows the programs of its own mount target alone. Of datagrams
//! anybody can write any sender, so who has no rule in any export is not answered at all.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use bytes::Bytes;
use penstock_base::Payload;

use crate::{
    protocol::{
        mount3, nfs3, nlm4, nsm,
        portmap::{self, Mapping, PORTMAP, RPCBIND, Request, Wanted},
        rpc::{Call, Refusal, Refused, Reply, Transport},
    },
    target::Target,
    transport::{Admitted, Answering, Peer, Share, Work},
};

/// A program of the mount target: its number, its versions, and how it is reached.
type Program = (u32, &'static [u32], &'static [Transport]);

const STREAM: &[Transport] = &[Transport::Stream];
const BOTH: &[Transport] = &[Transport::Stream, Transport::Datagram];
/// The programs that listen where the mount target does.
const PROGRAMS: [Program; 4] = [
    (nfs3::PROGRAM, &[nfs3::VERSION], STREAM),
    (
        mount3::PROGRAM,
        &[mount3::OLD_VERSION, mount3::VERSION],
        BOTH,
    ),
    (nlm4::PROGRAM, &[nlm4::VERSION], STREAM),
    (nsm::PROGRAM, &[nsm::VERSION], BOTH),
];
/// What tells where they are.
const ITSELF: Program = (portmap::PROGRAM, &[PORTMAP, RPCBIND[0], RPCBIND[1]], BOTH);

/// The addresses that a port mapper tells.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    /// Its own.
    pub(crate) own: SocketAddr,
    /// That of the mount target.
    pub(crate) target: SocketAddr,
}

impl Places {
    /// All programs as they are reached from `client`.
    fn mappings(self, client: &Peer) -> Vec<Mapping> {
        let host = |listening: SocketAddr| {
            let host = match listening.ip().is_unspecified() {
                true => client.local.or_else(|| address_towards(client.address)),
                false => Some(listening.ip()),
            };
            SocketAddr::new(host.unwrap_or(listening.ip()), listening.port())
        };
        let (own, target) = (host(self.own), host(self.target));
        let mut mappings = at(own, ITSELF);
        mappings.extend(PROGRAMS.into_iter().flat_map(|program| at(target, program)));
        mappings
    }
}

fn at(address: SocketAddr, (program, versions, transports): Program) -> Vec<Mapping> {
    let of_version = |version: u32| {
        transports.iter().map(move |transport| Mapping {
            program,
            version,
            transport: *transport,
            address,
        })
    };
    versions.iter().copied().flat_map(of_version).collect()
}

/// The address of this machine from which it reaches `client`.
fn address_towards(client: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match client.is_ipv4() {
        true => [0; 4].into(),
        false => [0_u16; 8].into(),
    };
    // Connecting a datagram socket sends nothing.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(client).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// One client's questions.
pub(crate) struct PortMapper {
    pub(crate) target: std::sync::Arc<Target>,
    pub(crate) places: Places,
    pub(crate) client: Peer,
}

impl PortMapper {
    fn answer(&self, call: &Call, request: &Request) -> Reply {
        let mut out = Reply::begin(call.xid);
        match request {
            Request::Null => {}
            Request::Register => out.bool(false),
            Request::Find(wanted) => {
                let found = self.find(*wanted);
                portmap::write_place(&mut out, call.version, found);
            }
            Request::List => {
                let mappings = self.places.mappings(&self.client);
                portmap::write_list(&mut out, call.version, &mappings);
            }
        }
        Reply::finished(out, Payload::new())
    }

    fn find(&self, wanted: Wanted) -> Option<SocketAddr> {
        let mappings = self.places.mappings(&self.client);
        let is_it = |known: &&Mapping| {
            (known.program, known.version) == (wanted.program, wanted.version)
                && Some(known.transport) == wanted.transport
        };
        mappings.iter().find(is_it).map(|found| found.address)
    }
}

impl Answering for PortMapper {
    fn begin(&self, mut call: Call, _data: Option<Bytes>) -> (Work, u64) {
        let (program, versions, _) = ITSELF;
        let request = Request::decode((call.version, call.procedure), &mut call.arguments);
        let refusal = match request {
            _ if call.program != program => Refusal::ProgramUnavailable,
            _ if !versions.contains(&call.version) => {
                Refusal::ProgramMismatch([PORTMAP, RPCBIND[1]])
            }
            None => Refusal::ProcedureUnavailable,
            Some(Err(_)) => Refusal::GarbageArguments,
            Some(Ok(request)) => return (Work::Done(self.answer(&call, &request)), 0),
        };
        self.refused();
        let xid = call.xid;
        (Work::Done(Reply::refused(Refused { xid, refusal })), 0)
    }

    fn admits(&self, _file: &[u8]) -> Admitted {
        Admitted::No
    }

    fn share(&self, _call: &Call) -> Option<Share> {
        None
    }

    fn refused(&self) {
        self.target.metrics.refused.increment();
    }
}
