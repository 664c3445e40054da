//! One thread's receive buffer.
//!
//! A request is read into two places: the first 80 bytes, as many as a WRITE has before its data,
//! into `head`, and the rest into a page-aligned block. So the data of a WRITE lies aligned and
//! alone in the block and can be handed over whole; the thread then takes a fresh block. What is
//! at most [`HEAP_BUFFER_MAX`] is copied into a buffer of its own size instead, because a small
//! WRITE must not hold a mebibyte. Any other request that is longer than the head is joined in
//! `joined`.

#![allow(unsafe_code)]

use std::{io, os::fd::BorrowedFd, sync::Arc};

use bytes::Bytes;
use penstock_base::{BLOCK_SIZE, Buffer, BufferView, BufferWriter, HEAP_BUFFER_MAX};

use super::{Admitted, Incoming, ReceiveReserve, Ticket, WriteData};
use crate::{
    protocol::{Opcode, ParseError, RequestHeader, WRITE_HEAD_SIZE, write_origin},
    system,
};

/// Bytes of `joined` that are kept from one request to the next. Only a large BATCH_FORGET is
/// longer.
const JOINED_KEPT: usize = 16 << 10;

/// One thread's receive buffer.
pub(super) struct ReceiveBuffer {
    head: [u8; WRITE_HEAD_SIZE],
    writer: BufferWriter,
    view: BufferView,
    joined: Vec<u8>,
    /// Bytes of the request that was received last.
    received: usize,
}

impl ReceiveBuffer {
    pub(super) fn new(block: Buffer) -> Self {
        let (writer, view) = block.share();
        Self {
            head: [0; WRITE_HEAD_SIZE],
            writer,
            view,
            joined: Vec::new(),
            received: 0,
        }
    }

    /// Waits for one request and receives it over the one before.
    pub(super) fn receive(&mut self, device: BorrowedFd<'_>) -> io::Result<()> {
        self.received = system::read_split(device, &mut self.head, self.writer.unfilled())?;
        Ok(())
    }

    /// The number that a reply to what was received needs, if it is a request at all.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        let header = RequestHeader::parse(self.head()).ok()?;
        Some(Ticket {
            unique: header.unique,
        })
    }

    /// The request that was received last. The data of a WRITE leaves the buffer with it.
    pub(super) fn take(
        &mut self,
        reserve: &Arc<ReceiveReserve>,
    ) -> Result<Incoming<'_>, ParseError> {
        if self.is_write() {
            let length = self.received - WRITE_HEAD_SIZE;
            let data = self.take_data(length, reserve);
            return Incoming::parse(&self.head, (length, data));
        }
        Incoming::parse(self.join(), (0, WriteData::default()))
    }

    fn head(&self) -> &[u8] {
        &self.head[..self.received.min(WRITE_HEAD_SIZE)]
    }

    fn is_write(&self) -> bool {
        let header = RequestHeader::parse(&self.head);
        let whole = self.received >= WRITE_HEAD_SIZE;
        whole && header.is_ok_and(|header| header.opcode == Opcode::Write as u32)
    }

    fn take_data(&mut self, length: usize, reserve: &Arc<ReceiveReserve>) -> WriteData {
        let origin = write_origin(&self.head);
        match reserve.admit(length, origin) {
            Admitted::InMemory { length, memory } => WriteData::Held {
                bytes: match length {
                    short if short <= HEAP_BUFFER_MAX => self.copy_data(short, reserve),
                    whole => self.hand_over(whole, reserve),
                },
                memory,
            },
            Admitted::OnDisk => reserve.spill(self.rest(length), origin),
        }
    }

    fn hand_over(&mut self, length: usize, reserve: &ReceiveReserve) -> Bytes {
        let (writer, view) = reserve.buffer(BLOCK_SIZE).share();
        // SAFETY: the kernel has just written `length` bytes to the start of the block.
        unsafe { self.writer.advance(length) };
        let data = self.view.slice(0..length);
        (self.writer, self.view) = (writer, view);
        data
    }

    fn copy_data(&mut self, length: usize, reserve: &ReceiveReserve) -> Bytes {
        let (mut writer, view) = reserve.buffer(length).share();
        writer.copy_from(self.rest(length));
        view.slice(0..length)
    }

    /// The whole of a request that is not a WRITE, in one piece.
    fn join(&mut self) -> &[u8] {
        let Some(length) = self.received.checked_sub(WRITE_HEAD_SIZE + 1) else {
            return &self.head[..self.received];
        };
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        joined.shrink_to(JOINED_KEPT);
        joined.extend_from_slice(&self.head);
        joined.extend_from_slice(self.rest(length + 1));
        self.joined = joined;
        &self.joined
    }

    /// What lies in the block.
    fn rest(&mut self, length: usize) -> &[u8] {
        debug_assert!(WRITE_HEAD_SIZE + length <= self.received);
        // SAFETY: the kernel has just written that many bytes to the start of the block.
        unsafe { system::initialised(self.writer.unfilled(), length) }
    }
}
