//! FUSE requests as calls of a [`Volume`].
//!
//! [`Adapter::start`] turns a request into a future that owns all it needs; what becomes of the
//! future is [`crate::session`]'s business. One file per family of operations; each operation is
//! a few lines. What a volume cannot do in any case is answered here at once: see [`refused`].

mod answer;
mod attributes;
mod data;
mod descriptors;
mod directory;
mod local;
mod locks;
mod names;
mod overlaps;
mod ranges;
mod refused;
mod writers;
mod xattrs;

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{FileName, clock, random};
use penstock_vfs::{
    Access, Detail, Features, HandleId, Identity, Inode, NewKind, OpenOptions, Opened, RemoveKind,
    Volume, Watcher, WritePlace,
};
use tracing::warn;

use crate::{
    Notifier,
    errno::{Errno, errno_of_name},
    protocol::{
        DescriptorTable, Message, Opcode, Request, RequestHeader, Transfer, encode::OpenReply,
    },
    system::SAVE,
    transport::WriteData,
};

use locks::{Endings, RecordLocks};
use names::NewMode;
use overlaps::{By, Overlaps, Sent};
use writers::{Closed, Source, Writers};

pub(crate) use answer::{Answer, Failure, Outcome, Reply, Undo};
pub(crate) use descriptors::MountId;
pub(crate) use local::LocalFiles;
pub(crate) use overlaps::WriteUnderWay;

/// How long the end of a mount waits until its locks are given back.
const UNLOCK_MAX: Duration = Duration::from_secs(60);

/// An operation under way.
pub(crate) type Operation = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// FUSE requests as calls of a volume. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Adapter(Arc<Serving>);

/// What the operations of a mount share.
pub(crate) struct Serving {
    volume: Arc<dyn Volume>,
    features: Features,
    writers: Writers,
    overlaps: Arc<Overlaps>,
    local_files: Option<LocalFiles>,
    gathers_writes: bool,
    notifier: Arc<Notifier>,
    record_locks: RecordLocks,
    endings: Endings,
    /// Who this mount is among the owners of locks.
    client: u64,
}

impl std::ops::Deref for Adapter {
    type Target = Serving;

    fn deref(&self) -> &Serving {
        &self.0
    }
}

/// What the kernel does by itself on a connection.
#[derive(Default)]
pub(crate) struct KernelDoes {
    /// It reads these.
    pub(crate) local_files: Option<LocalFiles>,
    /// It gathers writes in its page cache.
    pub(crate) gathers_writes: bool,
}

/// Who asks, and about which inode.
#[derive(Debug, Clone)]
struct Subject {
    by: Identity,
    /// The thread that waits; 0 if it cannot be seen from here.
    thread: u32,
    node: Inode,
    sent: Sent,
}

impl Subject {
    /// The kernel has checked what `caller` may do, or lets nobody in whose business it is not.
    fn of(header: &RequestHeader) -> Self {
        let caller = header.caller;
        Self {
            by: Identity::trusted(caller.uid, caller.gid),
            thread: caller.pid,
            node: header.node,
            sent: sent(header),
        }
    }
}

impl Adapter {
    /// `mount` is where the volume is mounted.
    pub(crate) fn new(
        volume: Arc<dyn Volume>,
        mount: MountId,
        (kernel, notifier): (KernelDoes, Notifier),
    ) -> Self {
        Self(Arc::new(Serving {
            notifier: Arc::new(notifier),
            features: volume.features(),
            volume,
            writers: Writers::new(mount),
            overlaps: Arc::default(),
            local_files: kernel.local_files,
            gathers_writes: kernel.gathers_writes,
            record_locks: RecordLocks::default(),
            endings: Endings::default(),
            client: random::number(),
        }))
    }

    pub(crate) fn volume(&self) -> &Arc<dyn Volume> {
        &self.volume
    }

    /// What the volume tells of changes, as long as anything is served.
    pub(crate) fn watcher(&self) -> Weak<dyn Watcher> {
        let notifier: Weak<Notifier> = Arc::downgrade(&self.notifier);
        notifier
    }

    /// Gives back what the kernel never heard of.
    pub(crate) async fn undo(self, undo: Undo) {
        if let Undo::Release(handle) | Undo::ForgetAndRelease(_, handle) = &undo {
            self.note_closed(*handle);
        }
        undo.run(self.volume.as_ref()).await;
    }

    /// Gives back the locks of the mount, which has ended. What takes too long goes on behind.
    pub(crate) async fn unlock_all(&self) {
        if let Some(locks) = self.volume.locks() {
            let released = locks.release_client(self.client);
            if clock::deadline(UNLOCK_MAX, released).await.is_err() {
                warn!("the locks of a mount that has ended are not given back yet");
            }
        }
    }

    /// Whether the volume has a say in `request`.
    pub(crate) fn serves(&self, request: &Request<'_>) -> bool {
        let features = &self.features;
        match request {
            Request::Other | Request::Init(_) => false,
            Request::Link { .. } => features.links_max > 1,
            Request::Seek { .. } => features.finds_holes,
            Request::CopyRange(_) => features.copies_ranges,
            Request::SyncDirectory { .. } => features.saves_names_behind,
            Request::Control { command } => features.saves_names_behind && *command == SAVE,
            Request::GetLock(_) | Request::SetLock { .. } => self.volume.locks().is_some(),
            Request::GetXattr { .. }
            | Request::ListXattr { .. }
            | Request::SetXattr { .. }
            | Request::RemoveXattr { .. } => features.xattrs,
            _ => true,
        }
    }

    /// Notes that `message` came, which may be begun much later.
    pub(crate) fn arrive(&self, message: &Message<'_>) -> Option<WriteUnderWay> {
        let Request::Write {
            transfer,
            is_direct,
            ..
        } = &message.request
        else {
            return None;
        };
        let place = (message.header.node, transfer.range());
        let by = By {
            sent: sent(&message.header),
            is_direct: *is_direct,
        };
        self.overlaps.write(place, by)
    }

    /// Begins what `message` asks for; `data` and what was noted when it arrived belong to a WRITE.
    pub(crate) fn start(
        &self,
        message: &Message<'_>,
        arrived: Option<WriteUnderWay>,
        data: WriteData,
    ) -> Result<Operation, Errno> {
        if !self.serves(&message.request) {
            let opcode = Opcode::from_number(message.header.opcode);
            return Err(refused::errno(opcode));
        }
        let subject = Subject::of(&message.header);
        self.clone()
            .operation(subject, &message.request, (data, arrived))
    }

    /// The table of all requests. What cannot be asked for is told at once.
    #[allow(clippy::too_many_lines, reason = "one row for each request")]
    fn operation(
        self,
        of: Subject,
        request: &Request<'_>,
        written: (WriteData, Option<WriteUnderWay>),
    ) -> Result<Operation, Errno> {
        match *request {
            Request::Read {
                transfer,
                is_direct,
            } => begin(data::read(self, of, (transfer, is_direct))),
            Request::Write {
                transfer,
                appends,
                is_direct,
                table,
                ..
            } => begin(data::write(
                self.note_write(&transfer, table, of.thread),
                of,
                (transfer, appends, is_direct),
                written,
            )),
            Request::Lookup { name: b"." } => begin(names::hold(self, of)),
            Request::Lookup { name: b".." } => begin(names::parent(self, of)),
            Request::Lookup { name } => begin(names::lookup(self, of, name_to_find(name)?)),
            Request::GetAttributes => begin(attributes::get(self, of)),
            Request::SetAttributes(changes) => begin(attributes::set(self, of, changes)),
            Request::ReadSymlink => begin(attributes::read_symlink(self, of)),
            Request::Statistics => begin(attributes::statistics(self, of)),
            Request::Open { flags } => begin(data::open(self, of, flags)),
            Request::Create {
                name,
                flags,
                mode,
                umask,
            } => begin(names::create(
                self,
                of,
                name_to_make(name)?,
                (NewMode::of(mode, umask), flags),
            )),
            Request::MakeNode {
                name,
                mode,
                umask,
                device,
            } => begin(names::make(
                self,
                of,
                name_to_make(name)?,
                (names::node_kind(mode, device)?, NewMode::of(mode, umask)),
            )),
            Request::MakeDirectory { name, mode, umask } => begin(names::make(
                self,
                of,
                name_to_make(name)?,
                (NewKind::Directory, NewMode::of(mode, umask)),
            )),
            Request::MakeSymlink { name, target } => begin(names::make_symlink(
                self,
                of,
                name_to_make(name)?,
                owned(target),
            )),
            Request::Link { node, name } => begin(names::link(self, of, node, name_to_make(name)?)),
            Request::Unlink { name } => begin(names::remove(
                self,
                of,
                name_to_find(name)?,
                RemoveKind::File,
            )),
            Request::RemoveDirectory { name } => begin(names::remove(
                self,
                of,
                name_to_find(name)?,
                RemoveKind::Directory,
            )),
            Request::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => begin(names::rename(
                self,
                of,
                (name_to_find(name)?, (new_parent, name_to_make(new_name)?)),
                names::rename_mode(flags)?,
            )),
            Request::Flush { handle, table } => begin(data::flush(self, of, handle, table)),
            Request::Sync { handle, data_only } => begin(data::sync(self, handle, data_only)),
            Request::Release { handle, unlocks } => begin(data::release(self, of, handle, unlocks)),
            Request::Allocate {
                handle,
                offset,
                length,
                mode,
            } => begin(ranges::allocate(
                self,
                of,
                handle,
                (ranges::range(offset, length)?, ranges::allocation(mode)?),
            )),
            Request::Seek {
                handle,
                offset,
                whence,
            } => begin(ranges::seek(
                self,
                (handle, offset),
                ranges::wanted(whence)?,
            )),
            Request::CopyRange(copy) => begin(ranges::copy(self, of, copy)),
            Request::GetLock(lock) => begin(locks::get(self, of.node, lock)),
            Request::SetLock { lock, waits } => begin(locks::set(self, of.node, lock, waits)),
            Request::OpenDirectory => begin(directory::open(self, of)),
            Request::ReadDirectory(transfer) => {
                begin(directory::read(self, of, transfer, Detail::Names))
            }
            Request::ReadDirectoryPlus(transfer) => {
                begin(directory::read(self, of, transfer, Detail::Attributes))
            }
            Request::SyncDirectory { handle } => begin(directory::sync(self, handle)),
            Request::Control { .. } => begin(attributes::save(self, of)),
            Request::ReleaseDirectory { handle } => begin(directory::release(self, handle)),
            Request::GetXattr { name, size } => begin(xattrs::get(self, of, owned(name), size)),
            Request::ListXattr { size } => begin(xattrs::list(self, of, size)),
            Request::SetXattr {
                name,
                value,
                flags,
                drops_set_gid,
            } => begin(xattrs::set(
                self,
                of,
                (owned(name), owned(value)),
                xattrs::mode(flags, drops_set_gid)?,
            )),
            Request::RemoveXattr { name } => begin(xattrs::remove(self, of, owned(name))),
            // The session answers these itself, or the kernel wants to hear nothing but that all is well.
            Request::Init(_)
            | Request::Forget { .. }
            | Request::BatchForget(_)
            | Request::Interrupt { .. }
            | Request::Destroy
            | Request::Other => begin(std::future::ready(Ok(Answer::done()))),
        }
    }

    /// Notes who writes, before it happens: the kernel tells the table of descriptors of writes that go past its cache,
    /// of the others the thread.
    fn note_write(self, transfer: &Transfer, table: Option<DescriptorTable>, thread: u32) -> Self {
        match table {
            Some(table) => self.writers.wrote(transfer.handle, Source::Table(table)),
            // Of what it writes back by itself it names nobody.
            None if thread == 0 => {}
            None => self.writers.wrote(transfer.handle, Source::Thread(thread)),
        }
        self
    }
}

fn begin(operation: impl Future<Output = Outcome> + Send + 'static) -> Result<Operation, Errno> {
    Ok(Box::pin(operation))
}

fn owned(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

impl Serving {
    /// The flags of `open(2)` as a volume is to see them. A kernel that gathers writes reads what
    /// surrounds them in a page, and finds the end of the file itself.
    fn open_options(&self, flags: u32) -> OpenOptions {
        let mut options = open_options(flags);
        if self.gathers_writes {
            options.append = false;
            if options.access == Access::Write {
                options.access = Access::ReadWrite;
            }
        }
        options
    }

    /// Has the kernel drop what it keeps of a file's content.
    pub(crate) fn drop_pages(&self, inode: Inode) {
        self.notifier.content_changed(inode);
    }

    /// Where the bytes of a WRITE go. A kernel that gathers writes finds the end of the file itself.
    fn write_place(&self, offset: u64, appends: bool, in_pieces: bool) -> WritePlace {
        match (appends && !self.gathers_writes, in_pieces) {
            (false, _) => WritePlace::At(offset),
            (true, false) => WritePlace::End(offset),
            (true, true) => WritePlace::EndInPieces(offset),
        }
    }

    /// Remembers a handle that was opened with these `flags`, and says how it shall be read and written.
    fn note_open(&self, subject: &Subject, opened: &Opened, flags: u32) -> OpenReply {
        let writes = open_options(flags).access.writes();
        if writes && self.features.saves_on_close {
            self.writers.opened(opened.handle, subject.thread);
        }
        let mut reply = match &self.local_files {
            Some(local_files) => local_files.opened(subject.node, opened),
            None => OpenReply::of(opened),
        };
        // Else the kernel sends all pieces of a call at once, which then arrive in any order, and only it
        // knows where the first one begins.
        let both = libc::O_APPEND | libc::O_DIRECT;
        reply.direct |= flags.cast_signed() & both == both;
        // The kernel tells with it that locks are given back.
        reply.skip_flush &= self.volume.locks().is_none();
        if writes && !reply.direct {
            self.overlaps.keep_written();
        }
        reply
    }

    /// Forgets a handle that the kernel is done with.
    fn note_closed(&self, handle: HandleId) {
        self.writers.closed(handle);
        if let Some(local_files) = &self.local_files {
            local_files.closed(handle);
        }
    }
}

/// A name under which something is looked for. What cannot be a name leads nowhere.
fn name_to_find(name: &[u8]) -> Result<FileName, Errno> {
    FileName::new(name).map_err(errno_of_name)
}

/// A name under which something is made.
fn name_to_make(name: &[u8]) -> Result<FileName, Errno> {
    FileName::new(name).map_err(errno_of_name)
}

/// Numbers grow in the order of sending; a request that is sent again has a mark beside its own.
fn sent(header: &RequestHeader) -> Sent {
    const SENT_AGAIN: u64 = 1 << 63;
    header.unique & !SENT_AGAIN
}

fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

fn open_options(flags: u32) -> OpenOptions {
    let flags = flags.cast_signed();
    let access = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Access::Read,
        libc::O_WRONLY => Access::Write,
        _ => Access::ReadWrite,
    };
    OpenOptions {
        access,
        append: flags & libc::O_APPEND != 0,
        truncate: flags & libc::O_TRUNC != 0,
        unnoted: flags & libc::O_NOATIME != 0,
    }
}
