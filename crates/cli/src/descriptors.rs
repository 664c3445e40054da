//! Open files that one process gives another over a socket.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Descriptors in a message.
const DESCRIPTORS_MAX: usize = 2;

/// Bytes in the longest note.
const NOTE_SIZE_MAX: usize = 8192;

/// What came in one message.
#[derive(Debug)]
pub(crate) struct Received {
    pub descriptors: Vec<OwnedFd>,
    pub note: Vec<u8>,
}

/// Gives the process at the other end `descriptors`, two at most, with a note that is not empty.
pub(crate) fn send(
    socket: &UnixStream,
    descriptors: &[BorrowedFd<'_>],
    note: &[u8],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    let note = [IoSlice::new(note)];
    sendmsg(socket, &note, &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// Waits for the next message; `None` when the other end is closed.
pub(crate) fn receive(socket: &UnixStream) -> io::Result<Option<Received>> {
    let mut note = vec![0; NOTE_SIZE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut note)];
    let message = recvmsg(
        socket,
        &mut buffers,
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if message.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    note.truncate(message.bytes);
    Ok(Some(Received { descriptors, note }))
}
