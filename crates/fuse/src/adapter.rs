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
mod names;
mod overlaps;
mod refused;
mod writers;
mod xattrs;

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use penstock_base::FileName;
use penstock_vfs::{
    Access, Caller, HandleId, Inode, OpenOptions, Opened, RemoveKind, Volume, WritePlace,
};

use crate::{
    Notifier,
    errno::{Errno, errno_of_name},
    protocol::{Message, Opcode, Request, encode::OpenReply},
    transport::WriteData,
};

use overlaps::Overlaps;
use writers::{Closed, Writers};

pub(crate) use answer::{Answer, Failure, Outcome, Reply, Undo};
pub(crate) use descriptors::MountId;
pub(crate) use local::LocalFiles;
pub(crate) use overlaps::WriteUnderWay;

/// An operation under way.
pub(crate) type Operation = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// FUSE requests as calls of a volume.
#[derive(Clone)]
pub(crate) struct Adapter {
    volume: Arc<dyn Volume>,
    writers: Arc<Writers>,
    overlaps: Arc<Overlaps>,
    local_files: Option<Arc<LocalFiles>>,
    gathers_writes: bool,
    notifier: Notifier,
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
#[derive(Debug, Clone, Copy)]
struct Subject {
    caller: Caller,
    node: Inode,
}

impl Adapter {
    /// `mount` is where the volume is mounted.
    pub(crate) fn new(
        volume: Arc<dyn Volume>,
        mount: MountId,
        (kernel, notifier): (KernelDoes, Notifier),
    ) -> Self {
        Self {
            notifier,
            volume,
            writers: Arc::new(Writers::new(mount)),
            overlaps: Arc::default(),
            local_files: kernel.local_files.map(Arc::new),
            gathers_writes: kernel.gathers_writes,
        }
    }

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

    pub(crate) fn volume(&self) -> &Arc<dyn Volume> {
        &self.volume
    }

    /// Remembers a handle that was opened with these `flags`, and says how it shall be read and written.
    fn note_open(&self, subject: Subject, opened: &Opened, flags: u32) -> OpenReply {
        let writes = open_options(flags).access.writes();
        if writes {
            self.writers.opened(opened.handle, subject.caller.pid);
        }
        let mut reply = match &self.local_files {
            Some(local_files) => local_files.opened(subject.node, opened),
            None => OpenReply::of(opened),
        };
        // Else the kernel sends all pieces of a call at once, which then arrive in any order, and only it
        // knows where the first one begins.
        let both = libc::O_APPEND | libc::O_DIRECT;
        reply.direct |= flags.cast_signed() & both == both;
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

    /// Gives back what the kernel never heard of.
    pub(crate) async fn undo(self, undo: Undo) {
        if let Undo::Release(handle) | Undo::ForgetAndRelease(_, handle) = &undo {
            self.note_closed(*handle);
        }
        undo.run(self.volume.as_ref()).await;
    }

    /// Whether the volume has a say in `request`.
    pub(crate) fn serves(request: &Request<'_>) -> bool {
        !matches!(request, Request::Other | Request::Link | Request::Init(_))
    }

    /// Notes that `message` came, which may be begun much later.
    pub(crate) fn arrive(&self, message: &Message<'_>) -> Option<WriteUnderWay> {
        let Request::Write { transfer, .. } = &message.request else {
            return None;
        };
        self.overlaps.write(message.header.node, transfer.range())
    }

    /// Begins what `message` asks for; `data` and what was noted when it arrived belong to a WRITE.
    pub(crate) fn start(
        &self,
        message: &Message<'_>,
        arrived: Option<WriteUnderWay>,
        data: WriteData,
    ) -> Result<Operation, Errno> {
        let subject = Subject {
            caller: message.header.caller,
            node: message.header.node,
        };
        match &message.request {
            request if !Self::serves(request) => {
                Err(refused::errno(Opcode::from_number(message.header.opcode)))
            }
            Request::Write {
                transfer,
                appends,
                in_pieces,
                table,
                ..
            } => {
                self.writers.wrote(transfer.handle, *table);
                // A kernel that gathers writes finds the end of the file itself.
                let place = match (*appends && !self.gathers_writes, *in_pieces) {
                    (false, _) => WritePlace::At,
                    (true, false) => WritePlace::End,
                    (true, true) => WritePlace::EndInPieces,
                };
                let target = (subject.node, transfer.handle, place(transfer.offset));
                Ok(Box::pin(data::write(self.clone(), target, (data, arrived))))
            }
            request => self.start_named(subject, request),
        }
    }

    /// Operations on names; the rest is for [`Self::start_open`].
    fn start_named(&self, subject: Subject, request: &Request<'_>) -> Result<Operation, Errno> {
        let adapter = self.clone();
        Ok(match *request {
            Request::Lookup { name } => {
                Box::pin(names::lookup(adapter, subject, name_to_find(name)?))
            }
            Request::MakeSymlink { name, target } => {
                let target = Bytes::copy_from_slice(target);
                Box::pin(names::make_symlink(
                    adapter,
                    subject,
                    name_to_make(name)?,
                    target,
                ))
            }
            Request::MakeNode { name, mode, device } => {
                let name = name_to_make(name)?;
                match names::special_file(mode, device)? {
                    None => Box::pin(names::make_file(adapter, subject, name, permissions(mode))),
                    Some(special) => {
                        let special = (special, permissions(mode));
                        Box::pin(names::make_special(adapter, subject, name, special))
                    }
                }
            }
            Request::MakeDirectory { name, mode } => Box::pin(names::make_directory(
                adapter,
                subject,
                name_to_make(name)?,
                permissions(mode),
            )),
            Request::Unlink { name } => {
                let name = name_to_find(name)?;
                Box::pin(names::remove(adapter, subject, name, RemoveKind::File))
            }
            Request::RemoveDirectory { name } => {
                let name = name_to_find(name)?;
                Box::pin(names::remove(adapter, subject, name, RemoveKind::Directory))
            }
            Request::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => {
                let source = (subject.node, name_to_find(name)?);
                let target = (new_parent, name_to_make(new_name)?);
                let mode = names::rename_mode(flags)?;
                Box::pin(names::rename(
                    adapter,
                    subject.caller,
                    (source, target),
                    mode,
                ))
            }
            Request::Create { name, flags, mode } => Box::pin(names::create(
                adapter,
                subject,
                name_to_make(name)?,
                (permissions(mode), flags),
            )),
            _ => return self.start_open(subject, request),
        })
    }

    /// Operations on inodes and handles.
    fn start_open(&self, subject: Subject, request: &Request<'_>) -> Result<Operation, Errno> {
        let adapter = self.clone();
        Ok(match *request {
            Request::GetAttributes => Box::pin(attributes::get(adapter, subject)),
            Request::SetAttributes(changes) => Box::pin(attributes::set(adapter, subject, changes)),
            Request::ReadSymlink => Box::pin(attributes::read_symlink(adapter, subject)),
            Request::Statistics => Box::pin(attributes::statistics(adapter)),
            Request::Open { flags } => Box::pin(data::open(adapter, subject, flags)),
            Request::Read(transfer) => Box::pin(data::read(adapter, subject.node, transfer)),
            Request::Flush { handle, table } => {
                let closed = Closed {
                    handle,
                    inode: subject.node,
                    table,
                    thread: subject.caller.pid,
                };
                Box::pin(data::flush(adapter, closed))
            }
            Request::Sync { handle, data_only } => Box::pin(data::sync(adapter, handle, data_only)),
            Request::Release { handle } => Box::pin(data::release(adapter, handle)),
            Request::Allocate {
                handle,
                offset,
                length,
                mode,
            } => {
                let range = data::range(offset, length)?;
                let allocation = data::allocation(mode)?;
                Box::pin(data::allocate(adapter, handle, range, allocation))
            }
            Request::OpenDirectory => Box::pin(directory::open(adapter, subject)),
            Request::ReadDirectory(transfer) => Box::pin(directory::read(
                adapter,
                subject.node,
                transfer,
                directory::Detail::Names,
            )),
            Request::ReadDirectoryPlus(transfer) => Box::pin(directory::read(
                adapter,
                subject.node,
                transfer,
                directory::Detail::Attributes,
            )),
            Request::ReleaseDirectory { handle } => Box::pin(directory::release(adapter, handle)),
            _ => return self.start_xattr(subject, request),
        })
    }

    /// Operations on extended attributes. A volume without them is not asked, nor by the kernel
    /// any more.
    fn start_xattr(&self, subject: Subject, request: &Request<'_>) -> Result<Operation, Errno> {
        let adapter = self.clone();
        let owned = Bytes::copy_from_slice;
        let operation: Operation = match *request {
            Request::GetXattr { name, size } => {
                Box::pin(xattrs::get(adapter, subject, owned(name), size))
            }
            Request::ListXattr { size } => Box::pin(xattrs::list(adapter, subject, size)),
            Request::SetXattr { name, value, flags } => {
                let mode = xattrs::mode(flags)?;
                let attribute = (owned(name), owned(value));
                Box::pin(xattrs::set(adapter, subject, attribute, mode))
            }
            Request::RemoveXattr { name } => {
                Box::pin(xattrs::remove(adapter, subject, owned(name)))
            }
            _ => return Ok(Box::pin(std::future::ready(Ok(Answer::done())))),
        };
        if self.volume.keeps_xattrs() {
            Ok(operation)
        } else {
            Err(Errno(libc::ENOSYS))
        }
    }
}

/// A name under which something is looked for. What cannot be a name leads nowhere.
fn name_to_find(name: &[u8]) -> Result<FileName, Errno> {
    FileName::from_bytes(name).map_err(|error| match errno_of_name(error) {
        Errno(libc::EILSEQ) => Errno(libc::ENOENT),
        errno => errno,
    })
}

/// A name under which something is made.
fn name_to_make(name: &[u8]) -> Result<FileName, Errno> {
    FileName::from_bytes(name).map_err(errno_of_name)
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
        exclusive: flags & libc::O_EXCL != 0,
    }
}
