//! One entry: the buffers that a request comes in and its reply goes out by.

#![allow(unsafe_code)]

use std::{io::IoSlice, mem::MaybeUninit, sync::Arc};

use penstock_base::{Buffer, BufferWriter};

use super::layout::header;
use crate::{
    protocol::{
        Opcode, ParseError, REPLY_HEADER_SIZE, REQUEST_HEADER_SIZE, RequestHeader, WRITE_HEAD_SIZE,
        write_origin,
    },
    system,
    transport::{Admitted, ReceiveReserve, ReplyError, WriteData},
};

/// One entry. The kernel writes to its buffers from registration or commit until the completion;
/// between completion and commit they are ours alone.
pub(super) struct Entry {
    header: Box<[u8; header::SIZE]>,
    /// A block that is written and overwritten, so never advanced.
    payload: BufferWriter,
    /// Where the two buffers are, as REGISTER wants to be told.
    places: Box<[libc::iovec; 2]>,
    /// The request that waits for its reply here.
    waiting: Option<u64>,
}

// SAFETY: the addresses in `places` are those of the entry's own buffers, which move with it.
unsafe impl Send for Entry {}

impl Entry {
    pub(super) fn new(block: Buffer) -> Self {
        let (mut payload, _) = block.share();
        let mut header = Box::new([0; header::SIZE]);
        let memory = payload.unfilled();
        let places = Box::new([
            libc::iovec {
                iov_base: header.as_mut_ptr().cast(),
                iov_len: header::SIZE,
            },
            libc::iovec {
                iov_base: memory.as_mut_ptr().cast(),
                iov_len: memory.len(),
            },
        ]);
        Self {
            header,
            payload,
            places,
            waiting: None,
        }
    }

    /// The address of the pair of buffers.
    pub(super) fn places(&self) -> *const libc::iovec {
        self.places.as_ptr()
    }

    /// What a commit must name.
    pub(super) fn commit_id(&self) -> u64 {
        let bytes = &self.header[header::COMMIT_ID..header::COMMIT_ID + 8];
        u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
    }

    /// The request that waits for its reply here.
    pub(super) fn waiting(&self) -> Option<u64> {
        self.waiting
    }

    /// Puts the request that the kernel has just left here into `message`, in the form that it
    /// would have on `/dev/fuse`, but for the data of a WRITE, which is copied into a buffer of
    /// its own.
    pub(super) fn take_request(
        &mut self,
        message: &mut Vec<u8>,
        reserve: &Arc<ReceiveReserve>,
    ) -> Result<WriteData, ParseError> {
        message.clear();
        let head = &self.header[header::IN_OUT..REQUEST_HEADER_SIZE];
        message.extend_from_slice(head);
        let request = RequestHeader::parse(head)?;
        self.waiting = Some(request.unique);
        let payload = self.payload_size();
        let fixed = (request.length as usize).saturating_sub(REQUEST_HEADER_SIZE + payload);
        let fixed = fixed.min(header::COMMIT_ID - 8 - header::OPERATION);
        message.extend_from_slice(&self.header[header::OPERATION..header::OPERATION + fixed]);
        if request.opcode != Opcode::Write as u32 {
            message.extend_from_slice(self.payload(payload));
            return Ok(WriteData::default());
        }
        let head = message[..].first_chunk::<WRITE_HEAD_SIZE>();
        let head = head.ok_or(ParseError::Truncated(request.opcode))?;
        let (data, origin) = (self.payload(payload), write_origin(head));
        Ok(match reserve.admit(data.len(), origin) {
            Admitted::InMemory { length, memory } => reserve.hold(&data[..length], memory),
            Admitted::OnDisk => reserve.spill(data, origin),
        })
    }

    /// Puts a reply in, header first. Only the request that waits here is answered, and once.
    pub(super) fn put_reply(
        &mut self,
        unique: u64,
        parts: &[IoSlice<'_>],
    ) -> Result<(), ReplyError> {
        if self.waiting != Some(unique) {
            return Err(ReplyError::GivenUp);
        }
        let Some((head, body)) = parts.split_first() else {
            return Err(ReplyError::Refused);
        };
        let length: usize = body.iter().map(|part| part.len()).sum();
        if length > self.payload.unfilled().len() || head.len() != REPLY_HEADER_SIZE {
            return Err(ReplyError::Refused);
        }
        self.waiting = None;
        self.fill_payload(body);
        let size = u32::try_from(length).expect("at most one block");
        self.header[header::PAYLOAD_SIZE..header::PAYLOAD_SIZE + 4]
            .copy_from_slice(&size.to_ne_bytes());
        self.header[header::IN_OUT..REPLY_HEADER_SIZE].copy_from_slice(head);
        Ok(())
    }

    fn fill_payload(&mut self, body: &[IoSlice<'_>]) {
        let mut room = self.payload.unfilled();
        for part in body {
            let (place, rest) = room.split_at_mut(part.len());
            place.copy_from_slice(as_uninit(part));
            room = rest;
        }
    }

    fn payload_size(&self) -> usize {
        let bytes = &self.header[header::PAYLOAD_SIZE..header::PAYLOAD_SIZE + 4];
        u32::from_ne_bytes(bytes.try_into().expect("four bytes")) as usize
    }

    fn payload(&mut self, length: usize) -> &[u8] {
        let memory = self.payload.unfilled();
        let length = length.min(memory.len());
        // SAFETY: the kernel has filled that much of it, as it said in the header.
        unsafe { system::initialised(memory, length) }
    }
}

fn as_uninit(bytes: &[u8]) -> &[MaybeUninit<u8>] {
    // SAFETY: the layout is the same, and initialised bytes may be seen as possibly not so.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
}
