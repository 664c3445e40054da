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
mod unserved;
mod waiting;

use std::{
    collections::HashSet,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use penstock_base::{FsResult, Payload, metrics::Registry};
use penstock_vfs::{
    Access, AccessMask, Attributes, Change, Features, FileKind, Identity, Inode, Volume, permission,
};

use crate::{
    Rule, ServedVolume,
    audience::Audience,
    callbacks::Callbacks,
    duplicates::Duplicates,
    export::Export,
    handles::{ExportId, Handles},
    lockers::Lockers,
    metrics::LockMetrics,
    nodes::{Node, Nodes},
    open_files::OpenFiles,
    places::Places,
    protocol::{
        nfs3::{Effect, FileId, Request, Status},
        rpc::Credential,
        xdr::Encoder,
    },
    transport::Share,
    waiters::Waiters,
};
use make::Exclusives;

pub(crate) use restarts::GracePeriod;

/// A volume as all mount targets that export it share it: its open files, its locks, and what clients may ask for twice.
pub(crate) struct Service {
    /// What exports call it.
    pub(crate) name: String,
    /// Which file system it is.
    identity: String,
    /// For whom it is exported.
    audience: Arc<Audience>,
    volume: Arc<dyn Volume>,
    features: Features,
    /// What may be under way of it.
    pub(crate) share: Share,
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
    system: FileId,
    lockers: Lockers,
    waiters: Waiters,
    /// That locks were given.
    callbacks: Callbacks,
    grace_period: GracePeriod,
    /// The addresses of clients that held locks before the start.
    before: Arc<HashSet<IpAddr>>,
    metrics: LockMetrics,
    /// The metrics go with it.
    _registry: Arc<Registry>,
    /// Calls that change something and are not answered yet.
    changing: AtomicU64,
}

/// For whom a call is carried out.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) by: Identity,
    /// The export that its files are of.
    export: ExportId,
    read_only: bool,
}

impl Asked {
    /// For whom a call with a credential is carried out by the rule of an export; nothing where it is refused.
    pub(crate) fn by(credential: &Credential, (export, rule): (ExportId, &Rule)) -> Option<Self> {
        Some(Self {
            by: rule.identity(credential)?,
            export,
            read_only: rule.read_only,
        })
    }

    /// Fails where nothing may be changed.
    fn may_change(&self) -> Result<(), Status> {
        match self.read_only {
            true => Err(Status::READ_ONLY),
            false => Ok(()),
        }
    }

    /// Fails with `OTHER_DEVICE` where a second handle is of another export.
    fn check_same_export(&self, handle: &[u8]) -> Result<(), Status> {
        match ExportId::told(handle) {
            Some(other) if other != self.export => Err(Status::OTHER_DEVICE),
            _ => Ok(()),
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
    /// Clients that held locks before the start, at these addresses, reclaim them for as long as `grace_period` says.
    pub(crate) fn new(
        (served, share): (ServedVolume, Share),
        (handles, port_mappers): (&Arc<Handles>, u16),
        audience: &Arc<Audience>,
        (before, grace_period): (&Arc<HashSet<IpAddr>>, GracePeriod),
    ) -> Self {
        let volume = served.volume;
        let metrics = LockMetrics::new(&served.registry);
        let system = ExportId::of(&served.identity, []);
        Self {
            name: served.name,
            identity: served.identity,
            audience: Arc::clone(audience),
            features: volume.features(),
            share,
            nodes: Nodes::new(Arc::clone(&volume), Arc::clone(handles)),
            files: OpenFiles::new(Arc::clone(&volume)),
            volume,
            places: Places::default(),
            changes: Duplicates::default(),
            writes: Duplicates::default(),
            lock_calls: Duplicates::default(),
            exclusives: Exclusives::default(),
            system: FileId(system.0.into()),
            lockers: Lockers::default(),
            waiters: Waiters::new(Arc::clone(&metrics.waiting)),
            callbacks: Callbacks::new(port_mappers),
            grace_period,
            before: Arc::clone(before),
            metrics,
            _registry: served.registry,
            changing: AtomicU64::new(0),
        }
    }

    /// The number of an export of this volume.
    pub(crate) fn export_id(&self, export: &Export) -> ExportId {
        ExportId::of(&self.identity, export.components())
    }

    /// What was found before a change. It may be wrong because the names that the call changes were changed when it came first,
    /// to this target or another one: the volume knows that and makes no change.
    async fn unless_carried_out<T>(
        &self,
        asked: &Asked,
        checked: Result<T, Status>,
    ) -> Result<(), Status> {
        let (Err(wrong), Some(call)) = (&checked, asked.by.call) else {
            return checked.map(drop);
        };
        let remembers = self.features.remembers_calls;
        match remembers && self.volume.knows_call(&call).await? {
            true => Ok(()),
            false => Err(*wrong),
        }
    }

    /// The file of a handle.
    async fn find(&self, asked: &Asked, handle: &Bytes) -> Result<Node, Status> {
        self.nodes.find((&asked.by, asked.export), handle).await
    }

    /// Closes what is idle.
    pub(crate) async fn sweep(&self) {
        self.files.sweep().await;
        self.nodes.sweep();
        self.lockers.sweep();
    }

    /// The addresses of clients that hold locks.
    pub(crate) fn lockers(&self) -> HashSet<IpAddr> {
        self.lockers.addresses()
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
    pub(crate) fn duplicates(&self, effect: Effect) -> &Duplicates {
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
    pub(crate) async fn perform(
        &self,
        asked: &Asked,
        request: Request,
        out: &mut Encoder,
    ) -> Payload {
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
        self.find(asked, handle).await?.directory()
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

/// A call that changes something, while it is carried out.
pub(crate) struct Changing(Arc<Service>);

impl Changing {
    pub(crate) fn new(service: &Arc<Service>) -> Self {
        service.changing.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(service))
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.changing.fetch_sub(1, Ordering::AcqRel);
    }
}
