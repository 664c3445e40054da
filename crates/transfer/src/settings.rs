//! What can be set about moving bytes. Limits that nobody has a reason to change are constants
//! where they are used.

use std::time::Duration;

use penstock_base::MIB;

/// Settings of a [`crate::Transfer`]. Values outside their range are moved to its nearest end.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferSettings {
    /// Bytes in the first parts of a multipart upload. Default 8 MiB; from the store's smallest
    /// part (at least 1 MiB) to its largest. Later parts of very large objects are larger. More
    /// means fewer requests and more memory for each file that is being written.
    pub upload_part_size: u64,
    /// Parts of one writer that are on their way at once. Default 16, from 1 to 256. The memory
    /// budget may allow fewer.
    pub uploads_in_flight: usize,
    /// Bytes in the largest GET of read-ahead. Default 8 MiB, from 1 MiB to 64 MiB. Streams begin
    /// with 1 MiB and double as they are read.
    pub read_part_size: u64,
    /// The fraction of the memory budget that all read-ahead together may occupy, in equal shares
    /// per stream. Default 0.6, from 0.05 to 0.95.
    pub read_ahead_share: f64,
    /// Bytes that all read-ahead together may occupy, whatever its share. Default none.
    pub read_ahead_max: Option<u64>,
    /// Parts of [`Self::read_part_size`] that may be fetched ahead in one open file; with 0 reads fetch
    /// what they ask for. Default none: as many as bandwidth and latency call for.
    pub parts_ahead_max: Option<u64>,
    /// Files up to this many bytes are fetched whole, whatever is read of them: in one request, and
    /// compared with their checksum, which stores do not tell for a piece. Default 1 MiB, from 0
    /// (never) to 64 MiB.
    pub whole_file_max: u64,
    /// Sequential streams that are told apart on one handle. Default 4, from 1 to 16.
    pub streams_per_reader: usize,
    /// Bytes that a stream may skip ahead, or come back for, and still be the same stream: covers
    /// the disorder of the kernel's own read-ahead. Default 4 MiB, from 0 to 64 MiB.
    pub skip_max: u64,
    /// How long a read waits for memory before it fails, and a write while nobody gets any.
    /// Default 60 s, from 1 s.
    pub memory_wait: Duration,
}

impl Default for TransferSettings {
    fn default() -> Self {
        Self {
            upload_part_size: 8 * MIB,
            uploads_in_flight: 16,
            read_part_size: 8 * MIB,
            read_ahead_share: 0.6,
            read_ahead_max: None,
            parts_ahead_max: None,
            whole_file_max: MIB,
            streams_per_reader: 4,
            skip_max: 4 * MIB,
            memory_wait: Duration::from_secs(60),
        }
    }
}

impl TransferSettings {
    /// Whether an object of `size` bytes is fetched whole.
    pub fn comes_whole(&self, size: u64) -> bool {
        size <= self.whole_file_max
    }

    /// Bytes that may be fetched ahead in one open file.
    pub(crate) fn window_max(&self) -> u64 {
        let parts = self.parts_ahead_max.unwrap_or(u64::MAX);
        parts.saturating_mul(self.read_part_size)
    }

    /// The same settings with every value within its range.
    #[must_use]
    pub(crate) fn clamped(mut self) -> Self {
        self.upload_part_size = self.upload_part_size.max(MIB);
        self.uploads_in_flight = self.uploads_in_flight.clamp(1, 256);
        self.read_part_size = self.read_part_size.clamp(MIB, 64 * MIB);
        self.read_ahead_share = self.read_ahead_share.clamp(0.05, 0.95);
        self.whole_file_max = self.whole_file_max.min(64 * MIB);
        self.streams_per_reader = self.streams_per_reader.clamp(1, 16);
        self.skip_max = self.skip_max.min(64 * MIB);
        self.memory_wait = self.memory_wait.max(Duration::from_secs(1));
        self
    }
}
