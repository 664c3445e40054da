//! Names: finding, making, moving and removing them.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{FileName, FsError, FsResult};
use penstock_vfs::{
    Access, Caller, Device, Entry, HandleId, Inode, Lookup, OpenOptions, RemoveKind, RenameMode,
    SpecialFile, Volume,
};
use smallvec::smallvec;

use super::{Adapter, Answer, Outcome, Subject, Undo};
use crate::{errno::Errno, protocol::encode};

pub(super) async fn lookup(adapter: Adapter, subject: Subject, name: FileName) -> Outcome {
    let found = adapter.volume.lookup(subject.caller, subject.node, &name);
    match found.await? {
        Lookup::Found(entry) => Ok(found_entry(&entry)),
        Lookup::Absent(ttl) if ttl.is_zero() => Err(FsError::NotFound.into()),
        Lookup::Absent(ttl) => Ok(Answer::body(|body| encode::absent(body, ttl))),
    }
}

fn found_entry(entry: &Entry) -> Answer {
    let undo = Undo::Forget(smallvec![entry.attributes.inode]);
    Answer::body(|body| encode::entry(body, entry)).or_undo(undo)
}

pub(super) async fn make_symlink(
    adapter: Adapter,
    subject: Subject,
    name: FileName,
    target: Bytes,
) -> Outcome {
    let (caller, parent) = (subject.caller, subject.node);
    let made = adapter.volume.make_symlink(caller, parent, &name, &target);
    Ok(found_entry(&made.await?))
}

pub(super) async fn make_directory(
    adapter: Adapter,
    subject: Subject,
    name: FileName,
    permissions: u16,
) -> Outcome {
    let (caller, parent) = (subject.caller, subject.node);
    let made = adapter
        .volume
        .make_directory(caller, parent, &name, permissions);
    Ok(found_entry(&made.await?))
}

/// What `mknod` is to make; `None` for a regular file.
pub(super) fn special_file(mode: u32, device: u32) -> Result<Option<SpecialFile>, Errno> {
    let device = Device(device);
    Ok(Some(match mode & libc::S_IFMT {
        libc::S_IFREG => return Ok(None),
        libc::S_IFIFO => SpecialFile::Pipe,
        libc::S_IFSOCK => SpecialFile::Socket,
        libc::S_IFCHR => SpecialFile::CharacterDevice(device),
        libc::S_IFBLK => SpecialFile::BlockDevice(device),
        _ => return Err(Errno(libc::EINVAL)),
    }))
}

/// `mknod` of a pipe, a socket or a device.
pub(super) async fn make_special(
    adapter: Adapter,
    subject: Subject,
    name: FileName,
    special: (SpecialFile, u16),
) -> Outcome {
    let (caller, parent) = (subject.caller, subject.node);
    let made = adapter.volume.make_special(caller, parent, &name, special);
    Ok(found_entry(&made.await?))
}

/// `mknod` of a regular file, which is created and closed.
pub(super) async fn make_file(
    adapter: Adapter,
    subject: Subject,
    name: FileName,
    permissions: u16,
) -> Outcome {
    let options = OpenOptions {
        access: Access::Write,
        append: false,
        truncate: false,
        exclusive: true,
    };
    let volume = &adapter.volume;
    let (caller, parent) = (subject.caller, subject.node);
    let created = volume
        .create(caller, parent, &name, permissions, options)
        .await?;
    let reference = TakenBack {
        volume: Arc::clone(volume),
        inode: Some(created.entry.attributes.inode),
    };
    close(volume, created.opened.handle).await?;
    reference.pass_on();
    Ok(found_entry(&created.entry))
}

/// Closes a file that only we know of, in a task of its own: if the caller is interrupted nobody
/// else would do it.
async fn close(volume: &Arc<dyn Volume>, handle: HandleId) -> FsResult<()> {
    let volume = Arc::clone(volume);
    let closed = tokio::spawn(async move {
        let flushed = volume.flush(handle).await;
        volume.release(handle).await;
        flushed
    });
    let broken = |error| FsError::Io(format!("closing a new file broke off: {error}"));
    closed.await.unwrap_or_else(|error| Err(broken(error)))
}

/// A reference that goes back to the volume unless it is passed on.
struct TakenBack {
    volume: Arc<dyn Volume>,
    inode: Option<Inode>,
}

impl TakenBack {
    fn pass_on(mut self) {
        self.inode = None;
    }
}

impl Drop for TakenBack {
    fn drop(&mut self) {
        if let Some(inode) = self.inode {
            self.volume.forget(inode, 1);
        }
    }
}

pub(super) async fn create(
    adapter: Adapter,
    subject: Subject,
    name: FileName,
    (permissions, flags): (u16, u32),
) -> Outcome {
    let options = adapter.open_options(flags);
    let (caller, parent) = (subject.caller, subject.node);
    let created = adapter
        .volume
        .create(caller, parent, &name, permissions, options)
        .await?;
    let inode = created.entry.attributes.inode;
    let file = Subject {
        caller,
        node: inode,
    };
    let reply = adapter.note_open(file, &created.opened, flags);
    let answer = Answer::body(|body| {
        encode::entry(body, &created.entry);
        encode::opened(body, &reply);
    });
    Ok(answer.or_undo(Undo::ForgetAndRelease(inode, created.opened.handle)))
}

pub(super) async fn remove(
    adapter: Adapter,
    subject: Subject,
    name: FileName,
    kind: RemoveKind,
) -> Outcome {
    let (caller, parent) = (subject.caller, subject.node);
    adapter.volume.remove(caller, parent, &name, kind).await?;
    Ok(Answer::done())
}

/// The flags of `renameat2`. Whiteouts are for overlay file systems.
pub(super) fn rename_mode(flags: u32) -> Result<RenameMode, Errno> {
    match flags {
        0 => Ok(RenameMode::Replace),
        libc::RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
        libc::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        _ => Err(Errno(libc::EINVAL)),
    }
}

type Place = (Inode, FileName);

pub(super) async fn rename(
    adapter: Adapter,
    caller: Caller,
    (source, target): (Place, Place),
    mode: RenameMode,
) -> Outcome {
    let (source, target) = ((source.0, &source.1), (target.0, &target.1));
    adapter.volume.rename(caller, source, target, mode).await?;
    Ok(Answer::done())
}
