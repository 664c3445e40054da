//! What a mount counts.

use std::sync::Arc;

use penstock_base::{
    clock::{self, Instant},
    metrics::{Counter, Registry, table},
};

use crate::{
    adapter::{Answer, Outcome, Reply},
    protocol::Opcode,
};

/// Opcodes that are counted by name; all others together are `other`.
const COUNTED: [Opcode; 26] = [
    Opcode::Lookup,
    Opcode::GetAttributes,
    Opcode::SetAttributes,
    Opcode::ReadSymlink,
    Opcode::MakeSymlink,
    Opcode::MakeNode,
    Opcode::MakeDirectory,
    Opcode::Unlink,
    Opcode::RemoveDirectory,
    Opcode::Rename,
    Opcode::RenameWithFlags,
    Opcode::Link,
    Opcode::Open,
    Opcode::Create,
    Opcode::Read,
    Opcode::Write,
    Opcode::Statistics,
    Opcode::Flush,
    Opcode::Sync,
    Opcode::Release,
    Opcode::OpenDirectory,
    Opcode::ReadDirectory,
    Opcode::ReadDirectoryPlus,
    Opcode::ReleaseDirectory,
    Opcode::GetXattr,
    Opcode::Access,
];

/// What a mount counts.
pub(super) struct SessionMetrics {
    /// Indexed by the number of the opcode.
    by_number: Vec<Option<OperationMetrics>>,
    other: OperationMetrics,
    pub(super) interrupts: Arc<Counter>,
}

/// What is counted of one operation.
pub(super) struct OperationMetrics {
    requests: Arc<Counter>,
    errors: Arc<Counter>,
    microseconds: Arc<Counter>,
    bytes: Arc<Counter>,
}

impl SessionMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let mut by_number = Vec::new();
        for opcode in COUNTED {
            let number = opcode as usize;
            by_number.resize_with(by_number.len().max(number + 1), || None);
            by_number[number] = Some(OperationMetrics::new(registry, opcode.label()));
        }
        Self {
            by_number,
            other: OperationMetrics::new(registry, "other"),
            interrupts: registry.counter(&table::FUSE_INTERRUPTS, &[]),
        }
    }

    pub(super) fn of(&self, operation: Option<Opcode>) -> &OperationMetrics {
        operation
            .and_then(|opcode| self.by_number.get(opcode as usize)?.as_ref())
            .unwrap_or(&self.other)
    }
}

impl OperationMetrics {
    fn new(registry: &Registry, operation: &str) -> Self {
        let labels = [("operation", operation)];
        Self {
            requests: registry.counter(&table::FUSE_REQUESTS, &labels),
            errors: registry.counter(&table::FUSE_ERRORS, &labels),
            microseconds: registry.counter(&table::FUSE_REQUEST_MICROSECONDS, &labels),
            bytes: registry.counter(&table::FUSE_REPLY_BYTES, &labels),
        }
    }

    pub(super) fn count(&self, outcome: &Outcome, begun: Instant) {
        self.requests.increment();
        let spent = clock::now().saturating_duration_since(begun);
        self.microseconds
            .add(u64::try_from(spent.as_micros()).unwrap_or(u64::MAX));
        match outcome {
            Err(_) => self.errors.increment(),
            Ok(Answer { reply, .. }) => self.bytes.add(reply_bytes(reply)),
        }
    }
}

fn reply_bytes(reply: &Reply) -> u64 {
    match reply {
        Reply::Body(_) => 0,
        Reply::Bytes(bytes) => bytes.len() as u64,
        Reply::Data(payload) => payload.len() as u64,
    }
}
