//! Where things lie in the buffers and commands of FUSE over io_uring.

/// Command numbers.
pub(super) mod command {
    /// Gives the kernel an entry.
    pub(in super::super) const REGISTER: u32 = 1;
    /// Answers the request in an entry and asks for the next.
    pub(in super::super) const COMMIT_AND_FETCH: u32 = 2;
}

/// Offsets in the header buffer.
pub(super) mod header {
    /// The request's header, and then the reply's.
    pub(in super::super) const IN_OUT: usize = 0;
    /// The fixed part of the request.
    pub(in super::super) const OPERATION: usize = 128;
    /// What a commit must name, u64.
    pub(in super::super) const COMMIT_ID: usize = 264;
    /// Bytes in the payload, u32.
    pub(in super::super) const PAYLOAD_SIZE: usize = 272;
    /// Bytes of the whole header.
    pub(in super::super) const SIZE: usize = 288;
}

/// The 80 bytes that a command carries: flags, the commit id, the queue.
pub(super) fn command_bytes(commit_id: u64, queue: u16) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    bytes[16..18].copy_from_slice(&queue.to_ne_bytes());
    bytes
}
