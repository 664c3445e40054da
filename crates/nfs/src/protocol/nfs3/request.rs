//! What a client asks for.

use std::{
    ops::Range,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use penstock_base::{FileName, NameError};
use penstock_vfs::{Device, SpecialFile, TimeChange};

use super::{HANDLE_MAX, VERIFIER};
use crate::protocol::xdr::{Decoded, Decoder, Malformed};

/// Bytes in the longest name that is read; one that is too long for a file is told so.
const NAME_MAX: usize = 4096;
/// Bytes in the longest target of a symbolic link.
const TARGET_MAX: usize = 4096;
/// Nanoseconds in a second.
const SECOND: u32 = 1_000_000_000;

/// A name in a directory, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The handle of the directory.
    pub directory: Bytes,
    /// The name.
    pub name: Bytes,
}

/// What is to be set of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct NewAttributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<TimeChange>,
    pub modified: Option<TimeChange>,
}

/// What CREATE does when the name is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateHow {
    /// Takes the file that is there.
    Unchecked(NewAttributes),
    /// Fails.
    Guarded(NewAttributes),
    /// Fails, unless the file was made with this very verifier.
    Exclusive([u8; VERIFIER]),
}

/// What MKNOD makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// Something that MKNOD can make.
    Special(SpecialFile, NewAttributes),
    /// Something that it cannot.
    Other,
}

/// How durable what is written must be before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// As the server likes.
    Unstable,
    /// The bytes, and what is needed to find them.
    DataSync,
    /// All.
    FileSync,
}

/// A call of one of the 22 procedures. Handles are bytes as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Request {
    Null,
    GetAttributes {
        file: Bytes,
    },
    SetAttributes {
        file: Bytes,
        new: NewAttributes,
        guard: Option<SystemTime>,
    },
    Lookup(Place),
    Access {
        file: Bytes,
        wanted: u32,
    },
    ReadLink {
        file: Bytes,
    },
    Read {
        file: Bytes,
        offset: u64,
        count: u32,
    },
    Write {
        file: Bytes,
        offset: u64,
        stability: Stability,
        data: Bytes,
    },
    Create(Place, CreateHow),
    MakeDirectory(Place, NewAttributes),
    MakeSymlink {
        place: Place,
        new: NewAttributes,
        target: Bytes,
    },
    MakeNode(Place, NodeKind),
    Remove(Place),
    RemoveDirectory(Place),
    Rename {
        source: Place,
        target: Place,
    },
    Link {
        file: Bytes,
        place: Place,
    },
    ReadDirectory {
        directory: Bytes,
        cookie: u64,
        verifier: [u8; VERIFIER],
        bytes: u32,
    },
    ReadDirectoryPlus {
        directory: Bytes,
        cookie: u64,
        verifier: [u8; VERIFIER],
        bytes: u32,
    },
    Statistics {
        file: Bytes,
    },
    Facts {
        file: Bytes,
    },
    PathFacts {
        file: Bytes,
    },
    Commit {
        file: Bytes,
        range: Range<u64>,
    },
}

impl Request {
    /// The handle of the first file that it is about; nothing for NULL, which is about none.
    pub(crate) fn file(&self) -> Option<&Bytes> {
        Some(match self {
            Self::Null => return None,
            Self::GetAttributes { file }
            | Self::SetAttributes { file, .. }
            | Self::Access { file, .. }
            | Self::ReadLink { file }
            | Self::Read { file, .. }
            | Self::Write { file, .. }
            | Self::Link { file, .. }
            | Self::Statistics { file }
            | Self::Facts { file }
            | Self::PathFacts { file }
            | Self::Commit { file, .. } => file,
            Self::Lookup(place)
            | Self::Create(place, _)
            | Self::MakeDirectory(place, _)
            | Self::MakeSymlink { place, .. }
            | Self::MakeNode(place, _)
            | Self::Remove(place)
            | Self::RemoveDirectory(place)
            | Self::Rename { source: place, .. } => &place.directory,
            Self::ReadDirectory { directory, .. } | Self::ReadDirectoryPlus { directory, .. } => {
                directory
            }
        })
    }

    /// Reads the arguments of a procedure, of which the bytes of a WRITE may have been received apart. Nothing where
    /// there is no such procedure.
    pub fn decode(
        procedure: u32,
        arguments: &mut Decoder,
        data: Option<Bytes>,
    ) -> Option<Decoded<Self>> {
        ((procedure as usize) < super::PROCEDURES.len()).then(|| decode(procedure, arguments, data))
    }

    /// Bytes of content that it brings.
    pub(crate) fn content_received(&self) -> u64 {
        match self {
            Self::Write { data, .. } => data.len() as u64,
            _ => 0,
        }
    }

    /// Bytes of content that its answer may have.
    pub(crate) fn content_of_answer(&self) -> u64 {
        match self {
            Self::Read { count, .. } => (*count).into(),
            Self::ReadDirectory { bytes, .. } | Self::ReadDirectoryPlus { bytes, .. } => {
                (*bytes).into()
            }
            _ => 0,
        }
    }

    /// What it does to files.
    pub(crate) fn effect(&self) -> Effect {
        match self {
            Self::Write { .. } => Effect::Writes,
            Self::Commit { .. } => Effect::Saves,
            Self::SetAttributes { .. }
            | Self::Create(..)
            | Self::MakeDirectory(..)
            | Self::MakeSymlink { .. }
            | Self::MakeNode(..)
            | Self::Remove(_)
            | Self::RemoveDirectory(_)
            | Self::Rename { .. }
            | Self::Link { .. } => Effect::Changes,
            _ => Effect::None,
        }
    }
}

/// What a call does to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It looks.
    None,
    /// It changes names or attributes: done twice it would fail, or do harm.
    Changes,
    /// It writes: done late once more it would undo what was written since.
    Writes,
    /// It makes durable what is there, as often as anybody likes.
    Saves,
}

fn decode(procedure: u32, from: &mut Decoder, data: Option<Bytes>) -> Decoded<Request> {
    Ok(match procedure {
        0 => Request::Null,
        1 => Request::GetAttributes {
            file: handle(from)?,
        },
        2 => Request::SetAttributes {
            file: handle(from)?,
            new: new_attributes(from)?,
            guard: from.option(time)?,
        },
        3 => Request::Lookup(place(from)?),
        4 => Request::Access {
            file: handle(from)?,
            wanted: from.u32()?,
        },
        5 => Request::ReadLink {
            file: handle(from)?,
        },
        6 => Request::Read {
            file: handle(from)?,
            offset: from.u64()?,
            count: from.u32()?,
        },
        7 => write(from, data)?,
        8 => Request::Create(place(from)?, create_how(from)?),
        9 => Request::MakeDirectory(place(from)?, new_attributes(from)?),
        10 => Request::MakeSymlink {
            place: place(from)?,
            new: new_attributes(from)?,
            target: from.opaque(TARGET_MAX)?,
        },
        11 => Request::MakeNode(place(from)?, node_kind(from)?),
        12 => Request::Remove(place(from)?),
        13 => Request::RemoveDirectory(place(from)?),
        14 => Request::Rename {
            source: place(from)?,
            target: place(from)?,
        },
        15 => Request::Link {
            file: handle(from)?,
            place: place(from)?,
        },
        16 => Request::ReadDirectory {
            directory: handle(from)?,
            cookie: from.u64()?,
            verifier: from.fixed()?,
            bytes: from.u32()?,
        },
        17 => read_directory_plus(from)?,
        18 => Request::Statistics {
            file: handle(from)?,
        },
        19 => Request::Facts {
            file: handle(from)?,
        },
        20 => Request::PathFacts {
            file: handle(from)?,
        },
        21 => commit(from)?,
        _ => return Err(Malformed),
    })
}

fn handle(from: &mut Decoder) -> Decoded<Bytes> {
    from.opaque(HANDLE_MAX)
}

fn place(from: &mut Decoder) -> Decoded<Place> {
    Ok(Place {
        directory: handle(from)?,
        name: from.opaque(NAME_MAX)?,
    })
}

fn time(from: &mut Decoder) -> Decoded<SystemTime> {
    let (seconds, nanoseconds) = (from.u32()?, from.u32()?);
    if nanoseconds >= SECOND {
        return Err(Malformed);
    }
    Ok(SystemTime::UNIX_EPOCH + Duration::new(seconds.into(), nanoseconds))
}

fn time_change(from: &mut Decoder) -> Decoded<Option<TimeChange>> {
    Ok(match from.u32()? {
        0 => None,
        1 => Some(TimeChange::Now),
        2 => Some(TimeChange::To(time(from)?)),
        _ => return Err(Malformed),
    })
}

fn new_attributes(from: &mut Decoder) -> Decoded<NewAttributes> {
    Ok(NewAttributes {
        mode: from.option(Decoder::u32)?,
        uid: from.option(Decoder::u32)?,
        gid: from.option(Decoder::u32)?,
        size: from.option(Decoder::u64)?,
        accessed: time_change(from)?,
        modified: time_change(from)?,
    })
}

fn create_how(from: &mut Decoder) -> Decoded<CreateHow> {
    Ok(match from.u32()? {
        0 => CreateHow::Unchecked(new_attributes(from)?),
        1 => CreateHow::Guarded(new_attributes(from)?),
        2 => CreateHow::Exclusive(from.fixed()?),
        _ => return Err(Malformed),
    })
}

fn node_kind(from: &mut Decoder) -> Decoded<NodeKind> {
    let kind = from.u32()?;
    Ok(match kind {
        3 | 4 => {
            let new = new_attributes(from)?;
            let device = device(from.u32()?, from.u32()?);
            let special = match kind {
                3 => SpecialFile::BlockDevice(device),
                _ => SpecialFile::CharacterDevice(device),
            };
            NodeKind::Special(special, new)
        }
        6 => NodeKind::Special(SpecialFile::Socket, new_attributes(from)?),
        7 => NodeKind::Special(SpecialFile::Pipe, new_attributes(from)?),
        1 | 2 | 5 => NodeKind::Other,
        _ => return Err(Malformed),
    })
}

/// A device as Linux packs it into 32 bits.
fn device(major: u32, minor: u32) -> Device {
    Device((minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xfff00) << 12))
}

fn read_directory_plus(from: &mut Decoder) -> Decoded<Request> {
    let (directory, cookie, verifier) = (handle(from)?, from.u64()?, from.fixed()?);
    // How much of the answer may be names is of no use: entries have one size here.
    let _names = from.u32()?;
    Ok(Request::ReadDirectoryPlus {
        directory,
        cookie,
        verifier,
        bytes: from.u32()?,
    })
}

fn commit(from: &mut Decoder) -> Decoded<Request> {
    let (file, offset, count) = (handle(from)?, from.u64()?, from.u32()?);
    let end = match count {
        0 => u64::MAX,
        count => offset.saturating_add(count.into()),
    };
    Ok(Request::Commit {
        file,
        range: offset..end,
    })
}

/// A WRITE up to its bytes: handle, offset, stability, and how many there are.
pub fn decode_write(from: &mut Decoder) -> Decoded<(Bytes, u64, Stability, u32)> {
    let (file, offset, count) = (handle(from)?, from.u64()?, from.u32()?);
    let stability = match from.u32()? {
        0 => Stability::Unstable,
        1 => Stability::DataSync,
        2 => Stability::FileSync,
        _ => return Err(Malformed),
    };
    let length = from.u32()?;
    (length == count)
        .then_some((file, offset, stability, length))
        .ok_or(Malformed)
}

fn write(from: &mut Decoder, data: Option<Bytes>) -> Decoded<Request> {
    let mut bytes = from.clone();
    let (file, offset, stability, length) = decode_write(from)?;
    let data = match data {
        Some(data) => data,
        None => {
            // The length is that of an opaque, which is read once more.
            let skipped = bytes.rest().len() - from.rest().len() - 4;
            bytes = Decoder::new(bytes.rest().slice(skipped..));
            bytes.opaque(length as usize)?
        }
    };
    if data.len() != length as usize {
        return Err(Malformed);
    }
    Ok(Request::Write {
        file,
        offset,
        stability,
        data,
    })
}

/// The name that these bytes are.
pub(crate) fn name_of(bytes: &Bytes) -> Result<FileName, NameError> {
    FileName::new(bytes)
}
