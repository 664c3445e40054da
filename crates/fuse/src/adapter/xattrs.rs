//! Extended attributes.

use bytes::Bytes;
use penstock_vfs::XattrMode;

use super::{Adapter, Answer, Outcome, Reply, Subject};
use crate::errno::Errno;

/// The flags of `setxattr(2)`, and whether an access list takes the set-group-id bit away.
pub(super) fn mode(flags: u32, drops_set_gid: bool) -> Result<XattrMode, Errno> {
    match flags.cast_signed() {
        0 if drops_set_gid => Ok(XattrMode::SetByStranger),
        0 => Ok(XattrMode::Set),
        libc::XATTR_CREATE => Ok(XattrMode::Create),
        libc::XATTR_REPLACE => Ok(XattrMode::Replace),
        _ => Err(Errno(libc::EINVAL)),
    }
}

pub(super) async fn get(adapter: Adapter, subject: Subject, name: Bytes, room: u32) -> Outcome {
    let value = adapter.volume.xattr(&subject.by, subject.node, &name);
    fitting(&value.await?, room)
}

pub(super) async fn list(adapter: Adapter, subject: Subject, room: u32) -> Outcome {
    let names = adapter.volume.xattrs(&subject.by, subject.node).await?;
    let mut list = Vec::new();
    for name in names {
        list.extend_from_slice(&name);
        list.push(0);
    }
    fitting(&list, room)
}

pub(super) async fn set(
    adapter: Adapter,
    subject: Subject,
    (name, value): (Bytes, Bytes),
    mode: XattrMode,
) -> Outcome {
    adapter
        .volume
        .set_xattr(&subject.by, subject.node, &name, &value, mode)
        .await?;
    Ok(Answer::done())
}

pub(super) async fn remove(adapter: Adapter, subject: Subject, name: Bytes) -> Outcome {
    adapter
        .volume
        .remove_xattr(&subject.by, subject.node, &name)
        .await?;
    Ok(Answer::done())
}

/// What was asked for, if the caller has room for it, or how much room it needs.
fn fitting(bytes: &[u8], room: u32) -> Outcome {
    let length = u32::try_from(bytes.len()).map_err(|_| Errno(libc::E2BIG))?;
    match room {
        0 => Ok(Answer::body(|body| {
            body.u32(length).u32(0);
        })),
        room if room < length => Err(Errno(libc::ERANGE).into()),
        _ => Ok(Reply::Bytes(bytes.to_vec()).into()),
    }
}
