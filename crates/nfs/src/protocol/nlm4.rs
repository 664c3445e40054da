//! NLM, version 4 (the Open Group's XNFS, chapters 10 and 14): locks of ranges.
//!
//! The asynchronous forms of the procedures (`_MSG` and `_RES`) are not served: what clients of Linux, macOS and the BSDs
//! use over TCP are the others.

use bytes::Bytes;

use super::{
    nfs3::HANDLE_MAX,
    outgoing::Procedure,
    xdr::{Decoded, Decoder, Encoder, Malformed},
};

/// The number of the program.
pub(crate) const PROGRAM: u32 = 100_021;
/// The only version.
pub(crate) const VERSION: u32 = 4;
/// The procedure of a client that takes note of a lock that was given late.
pub(crate) const GRANTED: Procedure = (PROGRAM, VERSION, 5);
/// The procedures that are served, by number, as metrics call them.
pub(crate) const PROCEDURES: [(u32, &str); 9] = [
    (1, "nlm_test"),
    (2, "nlm_lock"),
    (3, "nlm_cancel"),
    (4, "nlm_unlock"),
    (15, "nlm_granted_res"),
    (20, "nlm_share"),
    (21, "nlm_unshare"),
    (22, "nlm_nm_lock"),
    (23, "nlm_free_all"),
];
/// Bytes in the longest name of a client.
const CALLER_NAME_MAX: usize = 1024;
/// Bytes in the longest cookie, and in the longest name of an owner.
const OBJECT_MAX: usize = 1024;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Nothing.
    Null,
    /// Who would keep a lock from being given.
    Test(Bytes, Wanted),
    /// A lock.
    Lock(Bytes, Wanted, Asking),
    /// The client does not wait for a lock any more.
    Cancel(Bytes, Wanted),
    /// The client gives a lock back.
    Unlock(Bytes, Place),
    /// The client has taken note of a lock that was given late.
    GrantedResult,
    /// A reservation as DOS knows them, or its end.
    Share(Bytes),
    /// The client with this name holds nothing any more.
    FreeAll(Bytes),
}

/// Whose lock of which bytes of which file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// What the client calls itself.
    pub caller: Bytes,
    /// The handle of the file.
    pub file: Bytes,
    /// Who it is on the client, beside the process.
    pub owner: Bytes,
    /// The process.
    pub process: u32,
    /// The first byte.
    pub offset: u64,
    /// How many; 0 for all up to the end.
    pub length: u64,
}

/// A place, and whom a lock there is to keep out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Everybody, not only those who want it exclusively.
    pub is_exclusive: bool,
    /// Where.
    pub place: Place,
}

/// How a lock is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking {
    /// The client waits for it.
    pub waits: bool,
    /// It had the lock before the server was started.
    pub reclaims: bool,
    /// Which of the times that the client was started it comes from; 0 where it does not know.
    pub state: u32,
}

/// How a call went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockStatus {
    Granted = 0,
    Denied = 1,
    NoLocks = 2,
    Blocked = 3,
    GracePeriod = 4,
    Deadlock = 5,
    ReadOnly = 6,
    StaleHandle = 7,
    TooBig = 8,
    Failed = 9,
}

impl LockStatus {
    const ALL: [Self; 10] = [
        Self::Granted,
        Self::Denied,
        Self::NoLocks,
        Self::Blocked,
        Self::GracePeriod,
        Self::Deadlock,
        Self::ReadOnly,
        Self::StaleHandle,
        Self::TooBig,
        Self::Failed,
    ];

    /// Whether it says more than that somebody else holds the lock.
    pub(crate) fn is_error(self) -> bool {
        !matches!(self, Self::Granted | Self::Denied | Self::Blocked)
    }
}

/// A lock that keeps another one from being given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) is_exclusive: bool,
    pub(crate) process: u32,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Request {
    /// The handle of the file that it is about, if it is about one.
    pub(crate) fn file(&self) -> Option<&Bytes> {
        match self {
            Self::Null | Self::GrantedResult | Self::FreeAll(_) | Self::Share(_) => None,
            Self::Test(_, wanted) | Self::Lock(_, wanted, _) | Self::Cancel(_, wanted) => {
                Some(&wanted.place.file)
            }
            Self::Unlock(_, place) => Some(&place.file),
        }
    }

    /// The arguments of a procedure; nothing where there is no such procedure.
    pub fn decode(procedure: u32, arguments: &mut Decoder) -> Option<Decoded<Self>> {
        let request = match procedure {
            0 => Ok(Self::Null),
            1 => test(arguments),
            2 => lock(arguments),
            3 => cancel(arguments),
            4 => unlock(arguments),
            15 => Ok(Self::GrantedResult),
            20 | 21 => object(arguments).map(Self::Share),
            22 => lock(arguments).map(Self::without_waiting),
            23 => arguments.opaque(CALLER_NAME_MAX).map(Self::FreeAll),
            _ => return None,
        };
        Some(request)
    }

    /// NM_LOCK is of clients that cannot be called back.
    fn without_waiting(self) -> Self {
        match self {
            Self::Lock(cookie, wanted, asking) => {
                let waits = false;
                Self::Lock(cookie, wanted, Asking { waits, ..asking })
            }
            other => other,
        }
    }
}

fn object(arguments: &mut Decoder) -> Decoded<Bytes> {
    arguments.opaque(OBJECT_MAX)
}

fn place(arguments: &mut Decoder) -> Decoded<Place> {
    Ok(Place {
        caller: arguments.opaque(CALLER_NAME_MAX)?,
        file: arguments.opaque(HANDLE_MAX)?,
        owner: object(arguments)?,
        process: arguments.u32()?,
        offset: arguments.u64()?,
        length: arguments.u64()?,
    })
}

fn wanted(arguments: &mut Decoder) -> Decoded<Wanted> {
    Ok(Wanted {
        is_exclusive: arguments.bool()?,
        place: place(arguments)?,
    })
}

fn test(arguments: &mut Decoder) -> Decoded<Request> {
    Ok(Request::Test(object(arguments)?, wanted(arguments)?))
}

fn cancel(arguments: &mut Decoder) -> Decoded<Request> {
    let (cookie, _waits) = (object(arguments)?, arguments.bool()?);
    Ok(Request::Cancel(cookie, wanted(arguments)?))
}

fn unlock(arguments: &mut Decoder) -> Decoded<Request> {
    Ok(Request::Unlock(object(arguments)?, place(arguments)?))
}

fn lock(arguments: &mut Decoder) -> Decoded<Request> {
    let (cookie, waits) = (object(arguments)?, arguments.bool()?);
    let wanted = wanted(arguments)?;
    let reclaims = arguments.bool()?;
    let state = arguments.u32()?;
    let asking = Asking {
        waits,
        reclaims,
        state,
    };
    Ok(Request::Lock(cookie, wanted, asking))
}

/// Writes what most procedures answer.
pub(crate) fn answer(out: &mut Encoder, cookie: &Bytes, status: LockStatus) {
    out.opaque(cookie);
    out.u32(status as u32);
}

/// Writes what a client is told of a lock that was given late.
pub(crate) fn write_granted(out: &mut Encoder, cookie: &Bytes, wanted: &Wanted) {
    out.opaque(cookie);
    out.bool(wanted.is_exclusive);
    let place = &wanted.place;
    for bytes in [&place.caller, &place.file, &place.owner] {
        out.opaque(bytes);
    }
    out.u32(place.process);
    out.u64(place.offset);
    out.u64(place.length);
}

/// What a client answers to that.
pub(crate) fn read_status(results: &mut Decoder) -> Decoded<LockStatus> {
    let _cookie = object(results)?;
    let status = results.u32()? as usize;
    LockStatus::ALL.get(status).copied().ok_or(Malformed)
}

/// Writes who keeps a lock from being given. The owner has no name there: what other doors and machines call theirs is
/// not told.
pub(crate) fn holder(out: &mut Encoder, holder: &Holder) {
    out.bool(holder.is_exclusive);
    out.u32(holder.process);
    out.opaque(b"");
    out.u64(holder.offset);
    out.u64(holder.length);
}
