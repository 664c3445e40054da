//! Bytes to requests.

use penstock_vfs::{HandleId, Inode};

use super::{
    CopyRange, DescriptorTable, Forgotten, InitRequest, LockRequest, Message, Opcode, ParseError,
    REQUEST_HEADER_SIZE, Request, RequestHeader, Transfer, WriteOrigin, attributes::set_attributes,
    fields::Fields,
};

/// Bytes of a `WRITE` before its data.
pub const WRITE_HEAD_SIZE: usize = REQUEST_HEADER_SIZE + 40;

/// Bit of a `SETXATTR` whose access list takes the set-group-id bit away (`FUSE_SETXATTR_ACL_KILL_SGID`).
const SETXATTR_KILLS_SET_GID: u32 = 1;
/// Bit of an `FSYNC` that asks for data without metadata.
const SYNC_DATA_ONLY: u32 = 1;

/// Bit of a `RELEASE` that gives back a lock of flock(2) (`FUSE_RELEASE_FLOCK_UNLOCK`).
const RELEASE_UNLOCKS: u32 = 1 << 1;
/// Bit of a lock that is one of flock(2) (`FUSE_LK_FLOCK`).
const LOCK_IS_WHOLE: u32 = 1;

/// Where a `WRITE` has its flags: behind handle, offset and size.
const WRITE_FLAGS_AT: usize = REQUEST_HEADER_SIZE + 20;
/// Where it has those of its file: behind these and the descriptor table.
const FILE_FLAGS_AT: usize = WRITE_FLAGS_AT + 12;

/// Bit of a `WRITE` that the kernel makes of its page cache (`FUSE_WRITE_CACHE`).
const WRITE_FROM_CACHE: u32 = 1;

/// Bit of a `WRITE` whose field for the descriptor table is filled.
const WRITE_TELLS_TABLE: u32 = 2;

/// Whose bytes a `WRITE` brings, told from its head, so that the data can be received accordingly.
pub fn write_origin(head: &[u8; WRITE_HEAD_SIZE]) -> WriteOrigin {
    let number = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().expect("four bytes"));
    origin(number(WRITE_FLAGS_AT), number(FILE_FLAGS_AT).cast_signed())
}

/// The pieces of a direct write that appends come one after the other: see `Adapter::note_open`.
fn origin(flags: u32, file_flags: i32) -> WriteOrigin {
    let is_direct = file_flags & (libc::O_DIRECT | libc::O_APPEND) == libc::O_DIRECT;
    match (flags & WRITE_FROM_CACHE != 0, is_direct) {
        (true, _) => WriteOrigin::PageCache,
        (false, true) => WriteOrigin::Direct,
        (false, false) => WriteOrigin::Program,
    }
}

/// Parses one request. Never panics, whatever the bytes.
pub fn parse(bytes: &[u8]) -> Result<Message<'_>, ParseError> {
    parse_detached(bytes, 0)
}

/// Parses a request of which the last `detached` bytes lie elsewhere: the data of a `WRITE`.
pub fn parse_detached(bytes: &[u8], detached: usize) -> Result<Message<'_>, ParseError> {
    let header = RequestHeader::parse(bytes)?;
    let (said, received) = (header.length as usize, bytes.len() + detached);
    if said != received {
        return Err(ParseError::WrongLength { said, received });
    }
    let opcode = Opcode::from_number(header.opcode);
    let body = &bytes[REQUEST_HEADER_SIZE..];
    let length = body
        .len()
        .checked_sub(header.extension_length)
        .ok_or(ParseError::Truncated(header.opcode))?;
    let fields = Fields::new(&body[..length], header.opcode);
    let request = match opcode {
        Some(Opcode::Write) => write(fields, detached)?,
        Some(opcode) => names(opcode, fields)?,
        None => Request::Other,
    };
    Ok(Message { header, request })
}

/// Requests that name files; the rest is for [`handles`].
fn names(opcode: Opcode, mut fields: Fields<'_>) -> Result<Request<'_>, ParseError> {
    Ok(match opcode {
        Opcode::Lookup => Request::Lookup {
            name: fields.name()?,
        },
        Opcode::MakeSymlink => Request::MakeSymlink {
            name: fields.name()?,
            target: fields.name()?,
        },
        Opcode::MakeNode => make_node(fields)?,
        Opcode::MakeDirectory => {
            let (mode, umask) = (fields.u32()?, fields.u32()?);
            let name = fields.name()?;
            Request::MakeDirectory { name, mode, umask }
        }
        Opcode::Unlink => Request::Unlink {
            name: fields.name()?,
        },
        Opcode::RemoveDirectory => Request::RemoveDirectory {
            name: fields.name()?,
        },
        Opcode::Rename => rename(fields, false)?,
        Opcode::RenameWithFlags => rename(fields, true)?,
        Opcode::Create => create(fields)?,
        other => return handles(other, fields),
    })
}

/// Requests about inodes and open handles; the rest is for [`xattrs`].
fn handles(opcode: Opcode, mut fields: Fields<'_>) -> Result<Request<'_>, ParseError> {
    Ok(match opcode {
        Opcode::GetAttributes => Request::GetAttributes,
        Opcode::SetAttributes => Request::SetAttributes(set_attributes(fields)?),
        Opcode::ReadSymlink => Request::ReadSymlink,
        Opcode::Link => Request::Link {
            node: Inode(fields.u64()?),
            name: fields.name()?,
        },
        Opcode::Open => Request::Open {
            flags: fields.u32()?,
        },
        Opcode::OpenDirectory => Request::OpenDirectory,
        Opcode::Read => read(fields)?,
        Opcode::ReadDirectory => Request::ReadDirectory(transfer(&mut fields)?),
        Opcode::ReadDirectoryPlus => Request::ReadDirectoryPlus(transfer(&mut fields)?),
        Opcode::Flush => flush(fields)?,
        Opcode::Sync => Request::Sync {
            handle: handle(&mut fields)?,
            data_only: fields.u32()? & SYNC_DATA_ONLY != 0,
        },
        Opcode::Release => release(fields)?,
        Opcode::Allocate => Request::Allocate {
            handle: handle(&mut fields)?,
            offset: fields.u64()?,
            length: fields.u64()?,
            mode: fields.u32()?,
        },
        Opcode::SyncDirectory => Request::SyncDirectory {
            handle: handle(&mut fields)?,
        },
        Opcode::ReleaseDirectory => Request::ReleaseDirectory {
            handle: handle(&mut fields)?,
        },
        Opcode::Control => {
            handle(&mut fields)?;
            fields.skip(4)?;
            let command = fields.u32()?;
            Request::Control { command }
        }
        other => return locks(other, fields),
    })
}

/// Requests about locks and ranges of open files; the rest is for [`xattrs`].
fn locks(opcode: Opcode, mut fields: Fields<'_>) -> Result<Request<'_>, ParseError> {
    Ok(match opcode {
        Opcode::GetLock => Request::GetLock(lock(fields)?),
        Opcode::SetLock | Opcode::SetLockWait => Request::SetLock {
            lock: lock(fields)?,
            waits: opcode == Opcode::SetLockWait,
        },
        Opcode::Seek => Request::Seek {
            handle: handle(&mut fields)?,
            offset: fields.u64()?,
            whence: fields.u32()?,
        },
        Opcode::CopyRange | Opcode::CopyRange64 => {
            let is_wide = opcode == Opcode::CopyRange64;
            Request::CopyRange(copy_range(fields, is_wide)?)
        }
        other => return xattrs(other, fields),
    })
}

/// Requests about extended attributes; the rest is for [`session`].
fn xattrs(opcode: Opcode, mut fields: Fields<'_>) -> Result<Request<'_>, ParseError> {
    Ok(match opcode {
        Opcode::GetXattr => {
            let size = fields.u32()?;
            fields.skip(4)?;
            let name = fields.name()?;
            Request::GetXattr { name, size }
        }
        Opcode::ListXattr => Request::ListXattr {
            size: fields.u32()?,
        },
        Opcode::SetXattr => set_xattr(fields)?,
        Opcode::RemoveXattr => Request::RemoveXattr {
            name: fields.name()?,
        },
        other => return session(other, fields),
    })
}

/// A kernel with `SETXATTR_EXT` sends flags of its own and a gap of zeros in front of the name, whose second byte is none.
fn set_xattr(mut fields: Fields<'_>) -> Result<Request<'_>, ParseError> {
    let (size, flags) = (fields.u32()?, fields.u32()?);
    let mut own_flags = 0;
    if fields.rest().get(1) == Some(&0) {
        own_flags = fields.u32()?;
        fields.skip(4)?;
    }
    let name = fields.name()?;
    let value = fields.take(size as usize)?;
    Ok(Request::SetXattr {
        name,
        value,
        flags,
        drops_set_gid: own_flags & SETXATTR_KILLS_SET_GID != 0,
    })
}

/// Requests about the mount as a whole, and what nobody here looks at.
fn session(opcode: Opcode, mut fields: Fields<'_>) -> Result<Request<'_>, ParseError> {
    Ok(match opcode {
        Opcode::Init => Request::Init(InitRequest::parse(fields)?),
        Opcode::Forget => Request::Forget {
            count: fields.u64()?,
        },
        Opcode::BatchForget => {
            let count = fields.u32()? as usize;
            fields.skip(4)?;
            let pairs = fields.take(count.saturating_mul(16))?;
            Request::BatchForget(Forgotten { pairs })
        }
        Opcode::Interrupt => Request::Interrupt {
            victim: fields.u64()?,
        },
        Opcode::Statistics => Request::Statistics,
        Opcode::Destroy => Request::Destroy,
        _ => Request::Other,
    })
}

fn handle(fields: &mut Fields<'_>) -> Result<HandleId, ParseError> {
    fields.u64().map(HandleId)
}

fn transfer(fields: &mut Fields<'_>) -> Result<Transfer, ParseError> {
    Ok(Transfer {
        handle: handle(fields)?,
        offset: fields.u64()?,
        size: fields.u32()?,
    })
}

fn read(mut fields: Fields<'_>) -> Result<Request<'_>, ParseError> {
    let transfer = transfer(&mut fields)?;
    // What the kernel knows of the request, and the owner that its locks have.
    fields.skip(4 + 8)?;
    let file_flags = fields.u32()?.cast_signed();
    Ok(Request::Read {
        transfer,
        is_direct: file_flags & libc::O_DIRECT != 0,
    })
}

fn write(mut fields: Fields<'_>, detached: usize) -> Result<Request<'_>, ParseError> {
    let transfer = transfer(&mut fields)?;
    let flags = fields.u32()?;
    let table = DescriptorTable(fields.u64()?);
    let file_flags = fields.u32()?.cast_signed();
    fields.skip(4)?;
    let data = fields.rest();
    if data.len() + detached != transfer.size as usize {
        return Err(ParseError::Truncated(Opcode::Write as u32));
    }
    let table = (flags & WRITE_TELLS_TABLE != 0).then_some(table);
    let appends = file_flags & libc::O_APPEND != 0 && flags & WRITE_FROM_CACHE == 0;
    Ok(Request::Write {
        transfer,
        appends,
        is_direct: file_flags & libc::O_DIRECT != 0,
        table,
        data,
    })
}

fn release(mut fields: Fields<'_>) -> Result<Request<'_>, ParseError> {
    let handle = handle(&mut fields)?;
    fields.skip(4)?;
    let flags = fields.u32()?;
    // The owner that the lock had for the kernel.
    fields.skip(8)?;
    Ok(Request::Release {
        handle,
        unlocks: flags & RELEASE_UNLOCKS != 0,
    })
}

fn lock(mut fields: Fields<'_>) -> Result<LockRequest, ParseError> {
    let (handle, owner) = (handle(&mut fields)?, DescriptorTable(fields.u64()?));
    let (start, last) = (fields.u64()?, fields.u64()?);
    let (kind, process) = (fields.u32()?.cast_signed(), fields.u32()?);
    Ok(LockRequest {
        handle,
        owner,
        start,
        last,
        kind,
        process,
        whole: fields.u32()? & LOCK_IS_WHOLE != 0,
    })
}

fn copy_range(mut fields: Fields<'_>, is_wide: bool) -> Result<CopyRange, ParseError> {
    let (source, source_offset) = (handle(&mut fields)?, fields.u64()?);
    fields.skip(8)?; // the inode of the target, which its handle tells
    Ok(CopyRange {
        source,
        source_offset,
        target: handle(&mut fields)?,
        target_offset: fields.u64()?,
        length: fields.u64()?,
        is_wide,
    })
}

fn flush(mut fields: Fields<'_>) -> Result<Request<'_>, ParseError> {
    let handle = handle(&mut fields)?;
    fields.skip(8)?;
    let table = DescriptorTable(fields.u64()?);
    Ok(Request::Flush { handle, table })
}

fn make_node(mut fields: Fields<'_>) -> Result<Request<'_>, ParseError> {
    let (mode, device) = (fields.u32()?, fields.u32()?);
    let umask = fields.u32()?;
    fields.skip(4)?;
    let name = fields.name()?;
    Ok(Request::MakeNode {
        name,
        mode,
        umask,
        device,
    })
}

fn rename(mut fields: Fields<'_>, with_flags: bool) -> Result<Request<'_>, ParseError> {
    let new_parent = Inode(fields.u64()?);
    let flags = if with_flags { fields.u32()? } else { 0 };
    fields.skip(if with_flags { 4 } else { 0 })?;
    Ok(Request::Rename {
        name: fields.name()?,
        new_parent,
        new_name: fields.name()?,
        flags,
    })
}

fn create(mut fields: Fields<'_>) -> Result<Request<'_>, ParseError> {
    let flags = fields.u32()?;
    let (mode, umask) = (fields.u32()?, fields.u32()?);
    fields.skip(4)?;
    let name = fields.name()?;
    Ok(Request::Create {
        name,
        flags,
        mode,
        umask,
    })
}
