//! How requests come in and replies go out.
//!
//! A [`Transport`] runs on threads of its own: each calls [`Transport::serve`], which hands every
//! request to a [`Handler`] until the mount is gone. Replies may be sent from any thread, with the
//! [`Ticket`] that came with the request. [`DevFuse`] is always there; io_uring goes beside it
//! where the kernel has it.

mod dev_fuse;
mod receive;
mod reserve;
mod ring;
mod spill;

use std::{
    fmt,
    io::{self, IoSlice},
    sync::Arc,
};

use bytes::Bytes;
use penstock_base::{FsError, FsResult, Reservation};

use crate::protocol::{Message, ParseError, parse_detached};

pub(crate) use dev_fuse::{DevFuse, SharedDevFuse, WeakDevFuse};
pub(crate) use reserve::{Admitted, ReceiveReserve, WriteMemory};
pub(crate) use ring::RingTransport;
use spill::Spilled;

/// What a reply needs to find its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The number that the kernel gave the request.
    pub(crate) unique: u64,
    /// Where the transport keeps the request, if it does.
    pub(crate) slot: u32,
}

/// A request as it came in.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) message: Message<'a>,
    pub(crate) ticket: Ticket,
    /// What `message` was parsed from, but for the data of a WRITE.
    pub(crate) bytes: &'a [u8],
    /// The data of a WRITE.
    pub(crate) data: WriteData,
}

impl<'a> Incoming<'a> {
    /// Parses a request of which the last `detached` bytes are `data`.
    pub(crate) fn parse(
        bytes: &'a [u8],
        (detached, data): (usize, WriteData),
        slot: u32,
    ) -> Result<Self, ParseError> {
        let message = parse_detached(bytes, detached)?;
        let ticket = Ticket {
            unique: message.header.unique,
            slot,
        };
        Ok(Self {
            message,
            ticket,
            bytes,
            data,
        })
    }
}

/// The data of a WRITE.
#[derive(Debug, Default)]
pub(crate) enum WriteData {
    /// The request is another.
    #[default]
    Nothing,
    /// All of it, or the beginning when memory is short; `memory` pays for it until the volume has
    /// accepted it.
    Held { bytes: Bytes, memory: WriteMemory },
    /// All of it, on the disk until there is memory.
    Spilled(Spilled, Arc<ReceiveReserve>),
    /// It could not be kept.
    Refused(FsError),
}

impl WriteData {
    /// The bytes, and what pays for them. Waits for memory that is owed.
    pub(crate) async fn paid(self) -> FsResult<(Bytes, Option<Reservation>)> {
        match self {
            Self::Nothing => Ok((Bytes::new(), None)),
            Self::Held { bytes, memory } => Ok((bytes, Some(memory.paid().await?))),
            Self::Spilled(spilled, reserve) => {
                let (bytes, memory) = reserve.fetch(spilled).await?;
                Ok((bytes, Some(memory)))
            }
            Self::Refused(error) => Err(error),
        }
    }
}

/// Takes requests. Called from the transport's threads, several at a time. None of its methods
/// may wait: a thread that waits does not hear who is to be interrupted.
pub(crate) trait Handler: Send + Sync {
    /// Takes one request: replies now or later.
    fn handle(&self, incoming: Incoming<'_>);

    /// A request that makes no sense; it gets an error if it can have one.
    fn refuse(&self, ticket: Option<Ticket>, reason: &dyn fmt::Display);
}

/// Why a reply did not reach the kernel.
#[derive(Debug)]
pub(crate) enum ReplyError {
    /// Nobody waits any more: the request was interrupted or the mount is gone.
    GivenUp,
    /// The kernel did not accept it, for a reason that was logged.
    Refused,
}

/// A way for requests to come in and for replies to go out.
pub(crate) trait Transport: Send + Sync + fmt::Debug {
    /// How many threads should call [`Transport::serve`].
    fn threads(&self) -> usize;

    /// Hands requests to `handler` until the mount is gone. After an error what the kernel has for this
    /// thread may never be received.
    fn serve(&self, thread: usize, handler: &dyn Handler) -> io::Result<()>;

    /// Sends a whole reply, header first. The kernel has copied it when this returns.
    fn reply(&self, ticket: Ticket, parts: &[IoSlice<'_>]) -> Result<(), ReplyError>;
}
