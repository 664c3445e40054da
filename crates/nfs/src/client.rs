//! Clients: which program they call, by which rule, and a call of NFS on its way.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use bytes::Bytes;
use penstock_base::{ChecksumKind, Payload, Summing, clock};
use penstock_vfs::CallId;

use crate::{
    callbacks::Host,
    duplicates::CallKey,
    pace::Pace,
    protocol::{
        mount3,
        nfs3::{self, Effect, Request},
        nlm4, nsm,
        rpc::{AuthStatus, Call, Credential, Refusal, Refused, Reply, Transport},
    },
    service::{Asked, Changing, Service},
    target::Target,
    target_type::Cost,
    transport::{Admitted, Answering, Peer, Share, Work},
};

/// One client's calls.
pub(crate) struct Client {
    pub(crate) target: Arc<Target>,
    pub(crate) address: SocketAddr,
    transport: Transport,
    /// How it is called.
    pub(crate) host: Host,
}

impl Client {
    /// Who answers a client. The sender of a datagram may be invented: who has no rule is not answered.
    pub(crate) fn greeted(target: &Arc<Target>, peer: Peer) -> Option<Arc<dyn Answering>> {
        let Peer {
            address, transport, ..
        } = peer;
        if transport == Transport::Datagram && !target.knows(address.ip()) {
            return None;
        }
        Some(Arc::new(Self {
            target: Arc::clone(target),
            address,
            transport,
            host: Host::of(&peer),
        }))
    }

    pub(crate) fn refuse(&self, xid: u32, refusal: Refusal) -> (Work, u64) {
        self.target.metrics.refused.increment();
        (Work::Done(Reply::refused(Refused { xid, refusal })), 0)
    }

    /// The address and the port that it calls from.
    pub(crate) fn place(&self) -> (IpAddr, u16) {
        (self.address.ip(), self.address.port())
    }

    /// The volumes of which the client may use an export, here or elsewhere.
    pub(crate) fn volumes(&self, credential: Option<&Credential>) -> Vec<Arc<Service>> {
        self.target.volumes.of_client(self.place(), credential)
    }

    /// What a volume remembers of a call that changes names.
    fn call_id(&self, (xid, procedure): (u32, u32), asked: &Asked, arguments: &[u8]) -> CallId {
        let mut sum = Summing::new(ChecksumKind::Crc64Nvme);
        for number in [procedure, asked.by.uid, asked.by.gid] {
            sum.add(&number.to_be_bytes());
        }
        sum.add(arguments);
        let client = match self.address.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        CallId {
            client: client.octets(),
            number: xid,
            sum: sum.checksum().value(),
        }
    }

    /// The share of the volume of a handle.
    fn share_of(&self, handle: &[u8]) -> Option<Share> {
        let exports = self.target.exports();
        Some(exports.of_handle(handle)?.service.share.clone())
    }

    /// The volume of a handle, and for whom a call of its file is carried out.
    pub(crate) fn asked(
        &self,
        credential: &Credential,
        handle: &[u8],
    ) -> Result<(Arc<Service>, Asked), AuthStatus> {
        let exports = self.target.exports();
        let (exported, asked) = exports.asked(self.place(), (credential, handle))?;
        Ok((Arc::clone(&exported.service), asked))
    }

    fn nfs(&self, mut call: Call, data: Option<Bytes>) -> (Work, u64) {
        let (xid, procedure) = (call.xid, call.procedure);
        if call.version != nfs3::VERSION {
            return self.refuse(xid, Refusal::ProgramMismatch([nfs3::VERSION; 2]));
        }
        let arguments = call.arguments.rest().clone();
        let apart = data.clone();
        let request = match Request::decode(procedure, &mut call.arguments, data) {
            None => return self.refuse(xid, Refusal::ProcedureUnavailable),
            Some(Err(_)) => return self.refuse(xid, Refusal::GarbageArguments),
            Some(Ok(request)) => request,
        };
        let Some(file) = request.file() else {
            let reply = Reply::finished(Reply::begin(xid), Payload::new());
            return (Work::Done(reply), 0);
        };
        let (service, mut asked) = match self.asked(&call.credential, file) {
            Ok(found) => found,
            Err(status) => return self.refuse(xid, Refusal::Denied(status)),
        };
        if request.effect() == Effect::Changes {
            asked.by.call = Some(self.call_id((xid, procedure), &asked, &arguments));
        }
        let answer = Call3 {
            target: Arc::clone(&self.target),
            service: Arc::clone(&service),
            asked,
            client: self.address.ip(),
            id: (xid, procedure),
        };
        let content = request.content_of_answer();
        let work = match request.effect() {
            Effect::None => Work::Looks(Box::pin(answer.each_time(request))),
            Effect::Saves => Work::Changes(Box::pin(answer.each_time(request))),
            effect => {
                let duplicates = service.duplicates(effect);
                let all = (&arguments[..], apart.as_deref());
                let key = duplicates.key(self.address.ip(), (xid, procedure), all);
                Work::Changes(Box::pin(answer.once(key, request)))
            }
        };
        (work, content)
    }
}

impl Answering for Client {
    fn begin(&self, call: Call, data: Option<Bytes>) -> (Work, u64) {
        match (call.program, self.transport) {
            (nfs3::PROGRAM, Transport::Stream) => self.nfs(call, data),
            (mount3::PROGRAM, _) => self.mount(call),
            (nlm4::PROGRAM, Transport::Stream) => self.lock_manager(call),
            (nsm::PROGRAM, _) => self.status_monitor(call),
            _ => self.refuse(call.xid, Refusal::ProgramUnavailable),
        }
    }

    /// Who has no rule could have all the memory that there is for content, and keep clients from theirs.
    fn admits(&self, file: &[u8]) -> Admitted {
        match self.target.knows(self.address.ip()) {
            true => Admitted::Yes(self.share_of(file)),
            false => Admitted::No,
        }
    }

    /// Each call of NFS but NULL begins with the handle of a file.
    fn share(&self, call: &Call) -> Option<Share> {
        let is_nfs = (call.program, call.version) == (nfs3::PROGRAM, nfs3::VERSION);
        let handle = is_nfs.then(|| call.arguments.clone().opaque(nfs3::HANDLE_MAX).ok());
        self.share_of(&handle??)
    }

    fn refused(&self) {
        self.target.metrics.refused.increment();
    }
}

/// A call of NFS on its way.
struct Call3 {
    target: Arc<Target>,
    service: Arc<Service>,
    asked: Asked,
    client: IpAddr,
    /// Its number and that of its procedure.
    id: (u32, u32),
}

impl Call3 {
    async fn carry_out(self, request: Request) -> Reply {
        let expected = Cost::of(&request);
        let pace = self.target.wait_for_turn(self.client, expected).await;
        let begun = clock::now();
        let received = request.content_received();
        let looks = request.effect() == Effect::None;
        let _changing = (!looks).then(|| Changing::new(&self.service));
        let mut out = Reply::begin(self.id.0);
        let payload = self.service.perform(&self.asked, request, &mut out).await;
        let reply = Reply::finished(out, payload);
        let metrics = &self.target.metrics;
        metrics.answered(self.id.1, begun, (&reply, received));
        self.settle_cost((pace, expected), reply.payload.len() as u64);
        reply
    }

    /// Counts what a call cost that was expected to cost so much, and gives back what a READ beyond the end did not.
    fn settle_cost(&self, (pace, expected): (Option<Arc<Pace>>, Cost), given: u64) {
        let cost = match expected.read {
            0 => expected,
            _ => Cost::of_read(given),
        };
        if let Some(pace) = pace {
            pace.give_back(expected, cost);
        }
        self.target.metrics.operations.add(cost.operations);
    }

    /// The answer of a call that may be carried out again.
    async fn each_time(self, request: Request) -> Option<Reply> {
        Some(self.carry_out(request).await)
    }

    /// The answer of a call that is carried out once.
    async fn once(self, key: CallKey, request: Request) -> Option<Reply> {
        let (target, service) = (Arc::clone(&self.target), Arc::clone(&self.service));
        let xid = self.id.0;
        let duplicates = service.duplicates(request.effect());
        let answer = self.carry_out(request);
        target.once((duplicates, key), xid, answer).await
    }
}
