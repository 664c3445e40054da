//! Requests read from and replies written to `/dev/fuse`.
//!
//! All threads read from one descriptor: the kernel wakes one of them per request. Clones of the
//! descriptor were measured and bring nothing, and a reply could then not come from any thread.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use penstock_base::BLOCK_SIZE;
use tracing::warn;

use super::{Handler, ReceiveReserve, ReplyError, Ticket, receive::ReceiveBuffer};
use crate::{
    protocol::{self, InitReply, InitRequest, Request},
    system,
};

const TOO_OLD: &str =
    "the kernel is older than Linux 4.20, whose FUSE is the oldest that is spoken";

/// The connection that a mount was made with.
#[derive(Debug)]
pub(crate) struct DevFuse {
    device: OwnedFd,
    reserve: Arc<ReceiveReserve>,
}

/// What became of an attempt to receive.
enum Received {
    Request,
    /// The request vanished, or a signal came: try again.
    Nothing,
    /// The mount is gone.
    Unmounted,
}

impl DevFuse {
    pub(crate) fn new(device: OwnedFd, reserve: Arc<ReceiveReserve>) -> Self {
        Self { device, reserve }
    }

    /// Waits for INIT and answers it with what `answer` makes of it. To be called once, before
    /// any thread serves.
    pub(crate) fn negotiate(
        &self,
        mut answer: impl FnMut(&InitRequest) -> InitReply,
    ) -> io::Result<()> {
        let mut buffer = self.buffer();
        loop {
            match self.receive(&mut buffer)? {
                Received::Request => {}
                Received::Nothing => continue,
                Received::Unmounted => return Err(io::ErrorKind::NotConnected.into()),
            }
            let incoming = buffer.take(&self.reserve).map_err(io::Error::other)?;
            let Request::Init(offer) = &incoming.message.request else {
                return Err(io::Error::other("the first request is not INIT"));
            };
            // A kernel with a newer major version asks again when it sees ours.
            let settled = offer.major <= protocol::MAJOR;
            if settled && offer.minor < protocol::MINOR_MIN {
                return Err(io::Error::other(TOO_OLD));
            }
            self.send_init(incoming.ticket, &answer(offer))?;
            if settled {
                return Ok(());
            }
        }
    }

    fn send_init(&self, ticket: Ticket, reply: &InitReply) -> io::Result<()> {
        let body = reply.encode();
        let header = protocol::encode::reply_header(ticket.unique, 0, body.as_slice().len());
        self.send(&[IoSlice::new(&header), IoSlice::new(body.as_slice())])
    }

    /// The connection itself.
    pub(crate) fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Writes one whole message: a reply, or a notification.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        system::write_message(self.device.as_fd(), parts)
    }

    /// Hands requests to `handler` until the mount is gone. After an error what the kernel has for this
    /// thread may never be received.
    pub(crate) fn serve(&self, handler: &dyn Handler) -> io::Result<()> {
        let mut buffer = self.buffer();
        loop {
            match self.receive(&mut buffer)? {
                Received::Request => {}
                Received::Nothing => continue,
                Received::Unmounted => return Ok(()),
            }
            let ticket = buffer.ticket();
            match buffer.take(&self.reserve) {
                Ok(incoming) => handler.handle(incoming),
                Err(reason) => handler.refuse(ticket, &reason),
            }
        }
    }

    /// Sends a whole reply, header first. The kernel has copied it when this returns.
    pub(crate) fn reply(&self, ticket: Ticket, parts: &[IoSlice<'_>]) -> Result<(), ReplyError> {
        let Err(error) = self.send(parts) else {
            return Ok(());
        };
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::EPERM) => Err(ReplyError::GivenUp),
            _ => {
                warn!(unique = ticket.unique, %error, "the kernel refused a reply");
                Err(ReplyError::Refused)
            }
        }
    }

    fn buffer(&self) -> ReceiveBuffer {
        ReceiveBuffer::new(self.reserve.buffer(BLOCK_SIZE))
    }

    fn receive(&self, buffer: &mut ReceiveBuffer) -> io::Result<Received> {
        let Err(error) = buffer.receive(self.device.as_fd()) else {
            return Ok(Received::Request);
        };
        match error.raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN | libc::ENOENT) => Ok(Received::Nothing),
            Some(libc::ENODEV | libc::ECONNABORTED) => Ok(Received::Unmounted),
            _ => Err(error),
        }
    }
}

/// For [`crate::Notifier`], which must not keep a dead mount's connection alive.
pub(crate) type WeakDevFuse = std::sync::Weak<DevFuse>;

/// Shared by the threads and by replies under way.
pub(crate) type SharedDevFuse = Arc<DevFuse>;
