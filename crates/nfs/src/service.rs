//! Calls as calls of a volume.

mod attributes;
mod data;
mod directory;
mod facts;
mod listing;
mod lock_calls;
mod locking;
mod make;
mod mounting;
mod names;
mod restarts;
mod waiting;

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use penstock_base::{FsResult, Mutex, Payload, clock, metrics::Registry, random};
use penstock_vfs::{
    Access, AccessMask, Attributes, Change, Features, FileKind, Identity, Inode, Volume, permission,
};
use tracing::debug;

use crate::{
    NfsSettings, Rule,
    callbacks::{Callbacks, Host},
    duplicates::{Arrival, CallKey, Duplicates},
    export::Export,
    handles::Handles,
    lockers::Lockers,
    metrics::NfsMetrics,
    monitored::Monitored,
    nodes::{Node, Nodes},
    open_files::OpenFiles,
    pace::Pace,
    places::Places,
    protocol::{
        mount3,
        nfs3::{self, Effect, FileId, Request, Status},
        nlm4, nsm,
        rpc::{AuthStatus, Call, Credential, Refusal, Refused, Reply, Transport},
        xdr::Encoder,
    },
    target_type::Cost,
    transport::{Answering, Peer, Work},
    waiters::Waiters,
};
use make::Exclusives;
use mounting::Mounted;
use restarts::GracePeriod;

/// What all connections share.
pub(crate) struct Service {
    volume: Arc<dyn Volume>,
    features: Features,
    nodes: Nodes,
    files: OpenFiles,
    places: Places,
    /// Calls that changed names or attributes.
    changes: Duplicates,
    /// Calls that wrote, which come so often that they would drive out the others.
    writes: Duplicates,
    /// Calls for locks, which clients that do nothing else could make drive out the others.
    lock_calls: Duplicates,
    exclusives: Exclusives,
    export: Export,
    system: FileId,
    mounted: Mutex<Mounted>,
    lockers: Lockers,
    waiters: Waiters,
    /// That locks were given.
    callbacks: Callbacks,
    /// That the server was started.
    notices: Callbacks,
    monitored: Monitored,
    grace_period: GracePeriod,
    /// What clients are held to, if to anything.
    pace: Option<Pace>,
    pub(crate) metrics: NfsMetrics,
    /// Calls that change something and are not answered yet.
    changing: AtomicU64,
}

/// For whom a call is carried out.
#[derive(Debug)]
struct Asked {
    by: Identity,
    read_only: bool,
}

impl Asked {
    /// Fails where nothing may be changed.
    fn may_change(&self) -> Result<(), Status> {
        match self.read_only {
            true => Err(Status::READ_ONLY),
            false => Ok(()),
        }
    }

    fn check(&self, file: &Attributes, wanted: AccessMask) -> Result<(), Status> {
        Ok(permission::check(file, &self.by, wanted)?)
    }

    /// Who opened a file may go on reading or writing it whatever its mode is by then; a server that was never told of
    /// opening lets the owner do so.
    fn check_content(&self, file: &Attributes, wanted: &[AccessMask]) -> Result<(), Status> {
        match file.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Status::IS_DIRECTORY),
            _ => return Err(Status::INVALID),
        }
        let allowed = permission::allowed(file, &self.by);
        let is_allowed = wanted.iter().any(|wanted| allowed.contains(*wanted));
        match is_allowed || file.uid == self.by.uid {
            true => Ok(()),
            false => Err(Status::ACCESS),
        }
    }
}

impl Service {
    /// Of clients that hold locks `monitored` takes note.
    pub(crate) fn new(
        volume: Arc<dyn Volume>,
        settings: NfsSettings,
        (registry, monitored): (&Registry, Monitored),
    ) -> Self {
        let is_reclaimed = volume.locks().is_some() && !monitored.untold().is_empty();
        let metrics = NfsMetrics::new(registry);
        let handles = Handles::new(&settings.key, settings.export_id, random::number());
        Self {
            features: volume.features(),
            nodes: Nodes::new(Arc::clone(&volume), handles),
            files: OpenFiles::new(Arc::clone(&volume)),
            volume,
            places: Places::default(),
            changes: Duplicates::default(),
            writes: Duplicates::default(),
            lock_calls: Duplicates::default(),
            exclusives: Exclusives::default(),
            export: settings.export,
            system: FileId(settings.export_id.0.into()),
            mounted: Mutex::default(),
            lockers: Lockers::default(),
            waiters: Waiters::new(Arc::clone(&metrics.waiting_locks)),
            callbacks: Callbacks::new(settings.port_mappers_of_clients),
            notices: Callbacks::new(settings.port_mappers_of_clients),
            monitored,
            grace_period: GracePeriod::begin(settings.grace_period, is_reclaimed),
            pace: Pace::of(settings.target_type),
            metrics,
            changing: AtomicU64::new(0),
        }
    }

    /// Whether a client may ask for anything.
    pub(crate) fn knows(&self, client: IpAddr) -> bool {
        self.export.is_known(client)
    }

    /// Closes what is idle.
    pub(crate) async fn sweep(&self) {
        self.files.sweep().await;
        self.nodes.sweep();
        self.lockers.sweep();
        self.monitored.sweep(&self.lockers.addresses()).await;
    }

    /// Gives all locks back, closes all files, and shuts the volume down. Returns the paths of files that could not be saved.
    pub(crate) async fn shut_down(&self) -> Vec<(String, penstock_base::FsError)> {
        let failed = self.files.close_all().await;
        self.free_everything().await;
        let mut unsaved = self.volume.shut_down().await;
        if unsaved.is_empty() {
            let named = |(inode, error): (Inode, _)| (format!("inode {}", inode.0), error);
            unsaved.extend(failed.into_iter().map(named));
        }
        unsaved
    }

    /// The calls among which a repeat of one with this effect is found.
    fn duplicates(&self, effect: Effect) -> &Duplicates {
        match effect {
            Effect::Writes => &self.writes,
            Effect::None | Effect::Changes | Effect::Saves => &self.changes,
        }
    }

    /// Calls under way that change something.
    pub(crate) fn changing(&self) -> u64 {
        self.changing.load(Ordering::Acquire)
    }

    /// Carries out a call, and returns the bytes that belong behind what it wrote.
    async fn perform(&self, asked: &Asked, request: Request, out: &mut Encoder) -> Payload {
        match request {
            Request::Null => {}
            Request::GetAttributes { file } => self.get_attributes(asked, &file, out).await,
            Request::SetAttributes { file, new, guard } => {
                self.set_attributes(asked, &file, (new, guard), out).await;
            }
            Request::Lookup(place) => self.lookup(asked, &place, out).await,
            Request::Access { file, wanted } => self.access(asked, (&file, wanted), out).await,
            Request::ReadLink { file } => self.read_link(asked, &file, out).await,
            Request::Read {
                file,
                offset,
                count,
            } => {
                return self.read(asked, &file, (offset, count), out).await;
            }
            Request::Write {
                file,
                offset,
                stability,
                data,
            } => {
                self.write(asked, &file, (offset, stability, data), out)
                    .await;
            }
            Request::Create(place, how) => self.create(asked, &place, how, out).await,
            Request::MakeDirectory(place, new) => {
                self.make_directory(asked, &place, &new, out).await;
            }
            Request::MakeSymlink { place, new, target } => {
                self.make_symlink(asked, &place, (&new, &target), out).await;
            }
            Request::MakeNode(place, kind) => self.make_node(asked, &place, kind, out).await,
            Request::Remove(place) => self.remove(asked, &place, out).await,
            Request::RemoveDirectory(place) => self.remove_directory(asked, &place, out).await,
            Request::Rename { source, target } => {
                self.rename(asked, (&source, &target), out).await;
            }
            Request::Link { file, place } => self.link(asked, (&file, &place), out).await,
            Request::ReadDirectory {
                directory,
                cookie,
                verifier,
                bytes,
            } => {
                let from = (cookie, verifier);
                self.read_directory(asked, &directory, (from, bytes), out)
                    .await;
            }
            Request::ReadDirectoryPlus {
                directory,
                cookie,
                verifier,
                bytes,
            } => {
                let from = (cookie, verifier);
                self.read_directory_plus(asked, &directory, (from, bytes), out)
                    .await;
            }
            Request::Statistics { file } => self.statistics(asked, &file, out).await,
            Request::Facts { file } => self.facts(asked, &file, out).await,
            Request::PathFacts { file } => self.path_facts(asked, &file, out).await,
            Request::Commit { file, range } => self.commit(asked, &file, range, out).await,
        }
        Payload::new()
    }

    /// What a file looks like now; nothing if it is gone.
    async fn attributes_of(&self, asked: &Asked, inode: Inode) -> Option<Attributes> {
        let entry = self.volume.attributes(&asked.by, inode).await.ok()?;
        Some(entry.attributes)
    }

    /// What a change did to a file, with what can be seen of it now where the volume does not tell.
    async fn told(&self, asked: &Asked, inode: Inode, change: Change) -> Change {
        match change.after {
            Some(_) => change,
            None => Change {
                before: None,
                after: self.attributes_of(asked, inode).await,
            },
        }
    }

    /// Makes a change of names in a directory durable, where it is not already.
    async fn settle(&self, directory: Inode) -> FsResult<()> {
        if !self.features.saves_names_behind {
            return Ok(());
        }
        let root = Identity::root();
        let handle = self.volume.open_directory(&root, directory).await?;
        let synced = self.volume.sync_directory(handle).await;
        self.volume.release_directory(handle).await;
        synced
    }

    /// The same for a change of a file.
    async fn settle_file(&self, file: &Attributes) -> FsResult<()> {
        if !self.features.saves_names_behind {
            return Ok(());
        }
        match file.kind {
            FileKind::Regular => {
                let writer = self.files.writer(file.inode);
                let handle = match writer {
                    Some(writer) => writer,
                    None => self.files.open(file, Access::Read).await?,
                };
                self.volume.sync(handle.id, 0..u64::MAX, false).await
            }
            FileKind::Directory => self.settle(file.inode).await,
            // What cannot be opened is made durable with all names.
            FileKind::Symlink | FileKind::Special(_) => self.settle(Inode::ROOT).await,
        }
    }

    async fn directory(&self, asked: &Asked, handle: &Bytes) -> Result<Node, Status> {
        self.nodes.find(&asked.by, handle).await?.directory()
    }
}

/// Writes a status, and says whether it is one of success.
fn status<T>(out: &mut Encoder, outcome: Result<T, Status>) -> Option<T> {
    match outcome {
        Ok(done) => {
            out.u32(Status::OK.0);
            Some(done)
        }
        Err(Status(number)) => {
            out.u32(number);
            None
        }
    }
}

/// One client's calls.
pub(crate) struct Client {
    service: Arc<Service>,
    address: SocketAddr,
    transport: Transport,
    /// How it is called.
    host: Host,
}

impl Client {
    /// Who answers a client. The sender of a datagram may be invented: who has no rule is not answered.
    pub(crate) fn greeted(service: &Arc<Service>, peer: Peer) -> Option<Arc<dyn Answering>> {
        let Peer {
            address, transport, ..
        } = peer;
        if transport == Transport::Datagram && !service.knows(address.ip()) {
            return None;
        }
        let service = Arc::clone(service);
        Some(Arc::new(Self {
            service,
            address,
            transport,
            host: Host::of(&peer),
        }))
    }

    fn refuse(&self, xid: u32, refusal: Refusal) -> (Work, u64) {
        self.service.metrics.refused.increment();
        (Work::Done(Reply::refused(Refused { xid, refusal })), 0)
    }

    /// The rule for this client, and for whom it asks.
    fn asked(&self, credential: &Credential) -> Result<Asked, AuthStatus> {
        let rule = self.rule().ok_or(AuthStatus::BadCredential)?;
        let by = rule.identity(credential).ok_or(AuthStatus::TooWeak)?;
        let read_only = rule.read_only;
        Ok(Asked { by, read_only })
    }

    fn rule(&self) -> Option<&Rule> {
        let export = &self.service.export;
        export.rule(self.address.ip(), self.address.port())
    }

    fn nfs(&self, mut call: Call, data: Option<Bytes>) -> (Work, u64) {
        let (xid, procedure) = (call.xid, call.procedure);
        if call.version != nfs3::VERSION {
            return self.refuse(xid, Refusal::ProgramMismatch([nfs3::VERSION; 2]));
        }
        let arguments = call.arguments.rest().clone();
        let request = match Request::decode(procedure, &mut call.arguments, data) {
            None => return self.refuse(xid, Refusal::ProcedureUnavailable),
            Some(Err(_)) => return self.refuse(xid, Refusal::GarbageArguments),
            Some(Ok(request)) => request,
        };
        if request == Request::Null {
            let reply = Reply::finished(Reply::begin(xid), Payload::new());
            return (Work::Done(reply), 0);
        }
        let asked = match self.asked(&call.credential) {
            Ok(asked) => asked,
            Err(status) => return self.refuse(xid, Refusal::Denied(status)),
        };
        let answer = Call3 {
            service: Arc::clone(&self.service),
            asked,
            client: self.address.ip(),
            id: (xid, procedure),
        };
        let content = request.content_of_answer();
        let work = match request.effect() {
            Effect::None => Work::Looks(Box::pin(answer.each_time(request))),
            Effect::Saves => Work::Changes(Box::pin(answer.each_time(request))),
            effect => {
                let duplicates = self.service.duplicates(effect);
                let key = duplicates.key(self.address.ip(), (xid, procedure), &arguments);
                Work::Changes(Box::pin(answer.once(key, request)))
            }
        };
        (work, content)
    }

    fn mount(&self, mut call: Call) -> (Work, u64) {
        let (xid, procedure) = (call.xid, call.procedure);
        let versions = [mount3::OLD_VERSION, mount3::VERSION];
        if !versions.contains(&call.version) {
            return self.refuse(xid, Refusal::ProgramMismatch(versions));
        }
        let which = (call.version, procedure);
        match mount3::Request::decode(which, &mut call.arguments) {
            None => self.refuse(xid, Refusal::ProcedureUnavailable),
            Some(Err(_)) => self.refuse(xid, Refusal::GarbageArguments),
            Some(Ok(request)) => {
                let asked = self.asked(&call.credential).ok();
                let (service, address) = (Arc::clone(&self.service), self.address);
                let answer = async move {
                    let mut out = Reply::begin(xid);
                    service
                        .mounting(asked, (address.ip(), request), &mut out)
                        .await;
                    Some(Reply::finished(out, Payload::new()))
                };
                (Work::Looks(Box::pin(answer)), 0)
            }
        }
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

    fn refused(&self) {
        self.service.metrics.refused.increment();
    }
}

/// A call of NFS on its way.
struct Call3 {
    service: Arc<Service>,
    asked: Asked,
    client: IpAddr,
    /// Its number and that of its procedure.
    id: (u32, u32),
}

impl Call3 {
    async fn carry_out(self, request: Request) -> Reply {
        let expected = Cost::of(&request);
        self.service.wait_for_turn(self.client, expected).await;
        let begun = clock::now();
        let received = request.content_received();
        let looks = request.effect() == Effect::None;
        let _changing = (!looks).then(|| Changing::new(&self.service));
        let mut out = Reply::begin(self.id.0);
        let payload = self.service.perform(&self.asked, request, &mut out).await;
        let reply = Reply::finished(out, payload);
        let metrics = &self.service.metrics;
        metrics.answered(self.id.1, begun, (&reply, received));
        self.settle_cost(expected, reply.payload.len() as u64);
        reply
    }

    /// Counts what a call cost that was expected to cost so much, and gives back what a READ beyond the end did not.
    fn settle_cost(&self, expected: Cost, given: u64) {
        let cost = match expected.read {
            0 => expected,
            _ => Cost::of_read(given),
        };
        if let Some(pace) = &self.service.pace {
            pace.give_back(expected, cost);
        }
        self.service.metrics.operations.add(cost.operations);
    }

    /// The answer of a call that may be carried out again.
    async fn each_time(self, request: Request) -> Option<Reply> {
        Some(self.carry_out(request).await)
    }

    /// The answer of a call that is carried out once.
    async fn once(self, key: CallKey, request: Request) -> Option<Reply> {
        let (service, xid) = (Arc::clone(&self.service), self.id.0);
        let duplicates = service.duplicates(request.effect());
        let answer = self.carry_out(request);
        service.once((duplicates, key), xid, answer).await
    }
}

impl Service {
    /// Waits as long as the target delivers no more to a client.
    async fn wait_for_turn(&self, client: IpAddr, expected: Cost) {
        if let Some(pace) = &self.pace {
            let waited = pace.pass(client, expected).await;
            self.metrics.waited(waited);
        }
    }

    /// Carries a call out, unless it was carried out before: then it has the answer that it had. A repeat of one that is
    /// still carried out is not answered: a client takes whatever comes for the answer to both.
    async fn once(
        &self,
        (duplicates, key): (&Duplicates, CallKey),
        xid: u32,
        answer: impl Future<Output = Reply>,
    ) -> Option<Reply> {
        match duplicates.arrive(key).await {
            Arrival::First(running) => {
                let reply = answer.await;
                running.answered(reply.head.clone());
                Some(reply)
            }
            Arrival::Repeat(head) => {
                self.metrics.repeated.increment();
                Some(Reply {
                    head,
                    payload: Payload::new(),
                })
            }
            Arrival::Late => {
                debug!(xid, "a call that is still carried out was repeated");
                None
            }
        }
    }
}

/// A call that changes something, while it is carried out.
struct Changing(Arc<Service>);

impl Changing {
    fn new(service: &Arc<Service>) -> Self {
        service.changing.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(service))
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.changing.fetch_sub(1, Ordering::AcqRel);
    }
}
