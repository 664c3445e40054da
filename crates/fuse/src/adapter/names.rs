//! Names: finding, making, moving and removing them.

use bytes::Bytes;
use penstock_base::{FileName, FsError};
use penstock_vfs::{
    Dentry, Device, Entry, Exclusivity, Inode, Lookup, New, NewKind, RemoveKind, RenameMode,
    SpecialFile,
};
use smallvec::smallvec;

use super::{Adapter, Answer, Outcome, Subject, Undo, permissions};
use crate::{errno::Errno, protocol::encode};

/// What is asked for of who may use a new file.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewMode {
    permissions: u16,
    umask: u16,
}

impl NewMode {
    pub(super) fn of(mode: u32, umask: u32) -> Self {
        Self {
            permissions: permissions(mode),
            umask: permissions(umask),
        }
    }
}

pub(super) async fn lookup(adapter: Adapter, subject: Subject, name: FileName) -> Outcome {
    let dentry = Dentry::new(subject.node, &name);
    let found = adapter.volume.lookup(&subject.by, dentry);
    match found.await? {
        Lookup::Found(entry) => Ok(found_entry(&entry)),
        Lookup::Absent(ttl) if ttl.is_zero() => Err(FsError::NotFound.into()),
        Lookup::Absent(ttl) => Ok(Answer::body(|body| encode::absent(body, ttl))),
    }
}

/// LOOKUP of `.`: a server of this mount to other machines has a handle of an inode that the kernel forgot.
pub(super) async fn hold(adapter: Adapter, subject: Subject) -> Outcome {
    let held = adapter.volume.hold(&subject.by, subject.node).await?;
    Ok(found_entry(&held))
}

/// LOOKUP of `..`, for the same.
pub(super) async fn parent(adapter: Adapter, subject: Subject) -> Outcome {
    let parent = adapter.volume.parent(&subject.by, subject.node).await?;
    Ok(found_entry(&parent))
}

fn found_entry(entry: &Entry) -> Answer {
    let undo = Undo::Forget(smallvec![entry.attributes.inode]);
    Answer::body(|body| encode::entry(body, entry)).or_undo(undo)
}

pub(super) async fn make(
    adapter: Adapter,
    subject: Subject,
    name: FileName,
    (kind, mode): (NewKind<'static>, NewMode),
) -> Outcome {
    let new = New {
        kind,
        permissions: mode.permissions,
        umask: mode.umask,
        exclusivity: Exclusivity::New,
    };
    let dentry = Dentry::new(subject.node, &name);
    let made = adapter.volume.make(&subject.by, dentry, new, None);
    Ok(found_entry(&made.await?.entry))
}

pub(super) async fn make_symlink(
    adapter: Adapter,
    subject: Subject,
    name: FileName,
    target: Bytes,
) -> Outcome {
    let new = New {
        kind: NewKind::Symlink(&target),
        permissions: 0o777,
        umask: 0,
        exclusivity: Exclusivity::New,
    };
    let dentry = Dentry::new(subject.node, &name);
    let made = adapter.volume.make(&subject.by, dentry, new, None);
    Ok(found_entry(&made.await?.entry))
}

/// What `mknod` is to make.
pub(super) fn node_kind(mode: u32, device: u32) -> Result<NewKind<'static>, Errno> {
    let device = Device(device);
    let special = match mode & libc::S_IFMT {
        libc::S_IFREG => return Ok(NewKind::Regular),
        libc::S_IFIFO => SpecialFile::Pipe,
        libc::S_IFSOCK => SpecialFile::Socket,
        libc::S_IFCHR => SpecialFile::CharacterDevice(device),
        libc::S_IFBLK => SpecialFile::BlockDevice(device),
        _ => return Err(Errno(libc::EINVAL)),
    };
    Ok(NewKind::Special(special))
}

pub(super) async fn create(
    adapter: Adapter,
    subject: Subject,
    name: FileName,
    (mode, flags): (NewMode, u32),
) -> Outcome {
    let options = adapter.open_options(flags);
    let exclusivity = if flags.cast_signed() & libc::O_EXCL != 0 {
        Exclusivity::New
    } else {
        Exclusivity::TakeExisting
    };
    let new = New {
        kind: NewKind::Regular,
        permissions: mode.permissions,
        umask: mode.umask,
        exclusivity,
    };
    let dentry = Dentry::new(subject.node, &name);
    let made = adapter.volume.make(&subject.by, dentry, new, Some(options));
    let made = made.await?;
    let opened = made.opened.ok_or_else(|| {
        FsError::Io("a file was created and not opened, against the rules of volumes".to_owned())
    })?;
    let inode = made.entry.attributes.inode;
    let file = Subject {
        node: inode,
        ..subject
    };
    let reply = adapter.note_open(&file, &opened, flags);
    let answer = Answer::body(|body| {
        encode::entry(body, &made.entry);
        encode::opened(body, &reply);
    });
    Ok(answer.or_undo(Undo::ForgetAndRelease(inode, opened.handle)))
}

/// LINK: the head of the request names the directory.
pub(super) async fn link(
    adapter: Adapter,
    subject: Subject,
    node: Inode,
    name: FileName,
) -> Outcome {
    let dentry = Dentry::new(subject.node, &name);
    let linked = adapter.volume.link(&subject.by, node, dentry).await?;
    Ok(found_entry(&linked.entry))
}

pub(super) async fn remove(
    adapter: Adapter,
    subject: Subject,
    name: FileName,
    kind: RemoveKind,
) -> Outcome {
    let dentry = Dentry::new(subject.node, &name);
    adapter.volume.remove(&subject.by, dentry, kind).await?;
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

pub(super) async fn rename(
    adapter: Adapter,
    subject: Subject,
    (name, (new_parent, new_name)): (FileName, (Inode, FileName)),
    mode: RenameMode,
) -> Outcome {
    let source = Dentry::new(subject.node, &name);
    let target = Dentry::new(new_parent, &new_name);
    let renamed = adapter.volume.rename(&subject.by, source, target, mode);
    renamed.await?;
    Ok(Answer::done())
}
