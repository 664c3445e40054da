//! How requests come in and replies go out.
//!
//! Threads that only receive call [`DevFuse::serve`], which hands every request to a [`Handler`] until
//! the mount is gone. Replies may be sent from any thread, with the [`Ticket`] that came with the
//! request.

mod dev_fuse;
mod receive;
mod reserve;
mod spill;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use penstock_base::{FsError, FsResult, Reservation};

use crate::protocol::{Message, ParseError, parse_detached};

pub(crate) use dev_fuse::{DevFuse, SharedDevFuse, WeakDevFuse};
pub(crate) use reserve::{Admitted, ReceiveReserve, WriteMemory};
use spill::Spilled;

/// What a reply needs to find its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The number that the kernel gave the request.
    pub(crate) unique: u64,
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
    ) -> Result<Self, ParseError> {
        let message = parse_detached(bytes, detached)?;
        let ticket = Ticket {
            unique: message.header.unique,
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

/// Takes requests. Called from the receiving threads, several at a time. None of its methods
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
