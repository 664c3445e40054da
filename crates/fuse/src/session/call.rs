//! One request that waits for its reply.

use std::{io::IoSlice, sync::Arc};

use penstock_base::clock::{self, Instant};
use penstock_vfs::Inode;
use smallvec::SmallVec;

use super::{dispatch::Shared, metrics::OperationMetrics};
use crate::{
    adapter::{Answer, Outcome, Reply, Undo},
    protocol::{Opcode, RequestHeader, encode},
    system::SLICES_MAX,
    transport::{ReplyError, SharedDevFuse, Ticket},
};

/// One request that waits for its reply, with all that is needed to send it.
pub(super) struct Call {
    shared: Arc<Shared>,
    device: SharedDevFuse,
    ticket: Ticket,
    /// The thread that waits, as a process number; 0 if it cannot be seen from here.
    process: u32,
    node: Inode,
    operation: Option<Opcode>,
    begun: Instant,
}

impl Call {
    pub(super) fn new(
        shared: &Arc<Shared>,
        device: &SharedDevFuse,
        ticket: Ticket,
        header: &RequestHeader,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            device: Arc::clone(device),
            ticket,
            process: header.caller.pid,
            node: header.node,
            operation: Opcode::from_number(header.opcode),
            begun: clock::now(),
        }
    }

    pub(super) fn unique(&self) -> u64 {
        self.ticket.unique
    }

    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// Sends the reply. What nobody hears of is undone.
    pub(super) fn finish(&self, outcome: Outcome) {
        self.metrics().count(&outcome, self.begun);
        match outcome {
            Err(failure) => {
                failure.log(self.operation.map_or("unknown", Opcode::label), self.node);
                // An error that nobody hears of needs no more.
                let _ = self.send(-failure.errno().0, &[]);
            }
            Ok(answer) => self.send_answer(answer),
        }
    }

    /// The request has been answered otherwise: only undoes.
    pub(super) fn undo(&self, outcome: Outcome) {
        if let Ok(Answer { undo, .. }) = outcome {
            self.spawn_undo(undo);
        }
    }

    fn send_answer(&self, answer: Answer) {
        let sent = match &answer.reply {
            Reply::Body(body) => self.send(0, &[body.as_slice()]),
            Reply::Bytes(bytes) => self.send(0, &[bytes]),
            Reply::Data(payload) if payload.slices().len() < SLICES_MAX => {
                let slices = payload.slices().iter().map(|slice| &slice[..]);
                self.send(0, &slices.collect::<SmallVec<[_; 4]>>())
            }
            Reply::Data(payload) => self.send(0, &[&payload.to_vec()]),
        };
        match sent {
            Ok(()) => {
                answer.undo.heard();
                if let Some(inode) = answer.outdated {
                    self.shared.adapter.drop_pages(inode);
                }
            }
            Err(ReplyError::GivenUp) => self.spawn_undo(answer.undo),
            Err(ReplyError::Refused) => {
                self.spawn_undo(answer.undo);
                let _ = self.send(-libc::EIO, &[]);
            }
        }
    }

    fn send(&self, error: i32, body: &[&[u8]]) -> Result<(), ReplyError> {
        let length = body.iter().map(|part| part.len()).sum();
        let header = encode::reply_header(self.ticket.unique, error, length);
        let mut parts: SmallVec<[IoSlice<'_>; 5]> = SmallVec::new();
        parts.push(IoSlice::new(&header));
        parts.extend(body.iter().map(|part| IoSlice::new(part)));
        self.device.reply(self.ticket, &parts)
    }

    fn spawn_undo(&self, undo: Undo) {
        if matches!(undo, Undo::Nothing) {
            return;
        }
        let adapter = self.shared.adapter.clone();
        self.shared.runtime.spawn(adapter.undo(undo));
    }

    fn metrics(&self) -> &OperationMetrics {
        self.shared.metrics.of(self.operation)
    }
}
