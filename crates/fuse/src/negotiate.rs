//! What kernel and mount agree on at the start.
//!
//! An ability is granted when it is wanted here and offered by the kernel. Everything that is
//! wanted has a fallback in the kernel itself, so what is not offered costs speed, never
//! function; it is logged once.

use penstock_base::BLOCK_SIZE;
use tracing::{debug, info};

use crate::{
    FuseSettings,
    protocol::{Capabilities, InitReply, InitRequest, MINOR},
    system,
};

/// Bytes in the largest WRITE: one block of the buffer pool. More was measured and buys nothing.
pub(crate) const MAX_WRITE: u32 = BLOCK_SIZE as u32;
/// What every mount asks for.
///
/// Not among it: `READDIRPLUS_AUTO`, because a listing brings the attributes along anyway and
/// "auto" then asks for them one by one; `WRITEBACK_CACHE`, unless that is wished for and nobody else changes the files,
/// whose size and times the kernel then decides alone; locks, unless the
/// volume has some, since the kernel keeps those of its programs itself; access lists, unless the volume has some and the
/// kernel is to check permissions, which it does from then on; `HAS_RESEND`, unless another process
/// may take the mount over.
const WANTED: Capabilities = Capabilities::ASYNC_READ
    .union(Capabilities::ATOMIC_O_TRUNC)
    .union(Capabilities::EXPORT_SUPPORT)
    .union(Capabilities::BIG_WRITES)
    .union(Capabilities::DO_READDIRPLUS)
    .union(Capabilities::ASYNC_DIO)
    .union(Capabilities::PARALLEL_DIROPS)
    .union(Capabilities::MAX_PAGES)
    .union(Capabilities::EXPLICIT_INVAL_DATA)
    .union(Capabilities::HANDLE_KILLPRIV_V2)
    .union(Capabilities::SETXATTR_EXT)
    .union(Capabilities::INIT_EXT)
    .union(Capabilities::HAS_EXPIRE_ONLY)
    .union(Capabilities::DIRECT_IO_ALLOW_MMAP);

/// What a mount has of its own that decides what it asks the kernel for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// Threads that receive.
    pub(crate) threads: usize,
    /// The volume has locks.
    pub(crate) locks: bool,
    /// The volume has access lists.
    pub(crate) access_lists: bool,
    /// Others change its files.
    pub(crate) changes_elsewhere: bool,
}

/// What kernel and mount agreed on, for whoever shows it to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// Minor version of the protocol; the major one is 7.
    pub minor: u32,
    /// In use.
    pub granted: Capabilities,
    /// Wanted, and not offered by this kernel.
    pub missing: Capabilities,
    /// Bytes in the largest READ or WRITE.
    pub max_write: u32,
    /// Requests of the background queue that may be in flight.
    pub max_background: u16,
    /// Requests of the background queue from which the kernel reads less ahead.
    pub congestion_threshold: u16,
    /// Threads that receive from `/dev/fuse`.
    pub threads: usize,
    /// KiB that the kernel reads ahead; `None` when it could not be set.
    pub read_ahead_kib: Option<u32>,
}

impl Negotiated {
    /// What to answer to `offer`.
    pub(crate) fn new(offer: &InitRequest, settings: &FuseSettings, ready: Ready) -> Self {
        let mut wanted = WANTED;
        if settings.writeback_cache && !ready.changes_elsewhere {
            wanted = wanted.union(Capabilities::WRITEBACK_CACHE);
        } else if settings.local_files {
            // The kernel does one or the other.
            wanted = wanted.union(Capabilities::PASSTHROUGH);
        }
        if ready.locks {
            wanted = wanted.union(Capabilities::POSIX_LOCKS);
            wanted = wanted.union(Capabilities::FLOCK_LOCKS);
        }
        if ready.access_lists && settings.checks_permissions() {
            wanted = wanted.union(Capabilities::POSIX_ACL);
            // Where a directory hands a list down nothing is taken away, which the volume alone knows.
            wanted = wanted.union(Capabilities::DONT_MASK);
        }
        if settings.survivable {
            wanted = wanted.union(Capabilities::HAS_RESEND);
        }
        let granted = wanted.intersection(offer.offered);
        let negotiated = Self {
            minor: offer.minor.min(MINOR),
            granted,
            missing: wanted.without(offer.offered),
            max_write: MAX_WRITE,
            max_background: settings.max_background,
            congestion_threshold: settings.congestion_threshold,
            threads: ready.threads,
            read_ahead_kib: None,
        };
        negotiated.log(offer);
        negotiated
    }

    /// What holds for a mount that another process began: what it agreed on with the kernel, as
    /// far as it matters here.
    pub(crate) fn resumed(settings: &FuseSettings, threads: usize) -> Self {
        Self {
            minor: MINOR,
            granted: WANTED.union(Capabilities::HAS_RESEND),
            missing: Capabilities::NONE,
            max_write: MAX_WRITE,
            max_background: settings.max_background,
            congestion_threshold: settings.congestion_threshold,
            threads,
            read_ahead_kib: None,
        }
    }

    fn log(&self, offer: &InitRequest) {
        debug!(major = offer.major, minor = offer.minor, offered = ?offer.offered, "kernel offers");
        if self.missing != Capabilities::NONE {
            info!(missing = %self.missing, "this kernel lacks abilities that would save time");
        }
    }

    /// Whether names can be made to expire.
    pub(crate) fn expires_names(&self) -> bool {
        self.granted.contains(Capabilities::HAS_EXPIRE_ONLY)
    }

    /// Whether the kernel gathers writes.
    pub(crate) fn gathers_writes(&self) -> bool {
        self.granted.contains(Capabilities::WRITEBACK_CACHE)
    }

    /// Whether the kernel reads local files by itself.
    pub(crate) fn reads_local_files(&self) -> bool {
        self.granted.contains(Capabilities::PASSTHROUGH)
    }

    pub(crate) fn reply(&self, offer: &InitRequest) -> InitReply {
        let pages = MAX_WRITE as usize / system::page_size();
        InitReply {
            minor: self.minor,
            max_readahead: offer.max_readahead,
            granted: self.granted,
            max_background: self.max_background,
            congestion_threshold: self.congestion_threshold,
            max_write: self.max_write,
            max_stack_depth: u32::from(self.reads_local_files()),
            max_pages: u16::try_from(pages.max(1)).unwrap_or(u16::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(offered: Capabilities) -> InitRequest {
        InitRequest {
            major: 7,
            minor: 50,
            max_readahead: 131_072,
            offered,
        }
    }

    const READY: Ready = Ready {
        threads: 4,
        locks: false,
        access_lists: false,
        changes_elsewhere: false,
    };

    #[test]
    fn grants_only_what_is_wanted_and_offered() {
        let offered = Capabilities::ASYNC_READ
            .union(Capabilities::WRITEBACK_CACHE)
            .union(Capabilities::READDIRPLUS_AUTO);
        let settings = FuseSettings::new("/mnt", "test");
        let negotiated = Negotiated::new(&offer(offered), &settings, READY);
        assert_eq!(negotiated.granted, Capabilities::ASYNC_READ);
        assert!(negotiated.missing.contains(Capabilities::MAX_PAGES));
        assert_eq!(negotiated.minor, MINOR);
    }

    #[test]
    fn what_nobody_uses_is_not_asked_for() {
        let offer = offer(Capabilities(u64::MAX));
        let settings = FuseSettings::new("/mnt", "test");
        let granted = Negotiated::new(&offer, &settings, READY).granted;
        for unused in [
            Capabilities::PASSTHROUGH,
            Capabilities::HAS_RESEND,
            Capabilities::WRITEBACK_CACHE,
            Capabilities::READDIRPLUS_AUTO,
            Capabilities::POSIX_ACL,
            Capabilities::DONT_MASK,
        ] {
            assert_eq!(granted.intersection(unused), Capabilities::NONE);
        }
    }

    #[test]
    fn local_files_are_asked_for_where_there_are_some() {
        let offer = offer(Capabilities(u64::MAX));
        let mut settings = FuseSettings::new("/mnt", "test");
        let stacked = |settings: &FuseSettings| {
            let negotiated = Negotiated::new(&offer, settings, READY);
            negotiated.reply(&offer).max_stack_depth
        };
        assert_eq!(stacked(&settings), 0);
        settings.local_files = true;
        assert_eq!(stacked(&settings), 1);
    }

    #[test]
    fn writes_of_files_that_others_change_are_not_gathered() {
        let offer = offer(Capabilities(u64::MAX));
        let mut settings = FuseSettings::new("/mnt", "test");
        settings.writeback_cache = true;
        let gathers = |changes_elsewhere| {
            let ready = Ready {
                changes_elsewhere,
                ..READY
            };
            Negotiated::new(&offer, &settings, ready).gathers_writes()
        };
        assert!(gathers(false));
        assert!(!gathers(true));
    }

    #[test]
    fn access_lists_are_checked_by_a_kernel_that_checks_permissions() {
        let offer = offer(Capabilities(u64::MAX));
        let mut settings = FuseSettings::new("/mnt", "test");
        let both = Capabilities::POSIX_ACL.union(Capabilities::DONT_MASK);
        let ready = Ready {
            access_lists: true,
            ..READY
        };
        let granted = |settings: &FuseSettings, ready| {
            let granted = Negotiated::new(&offer, settings, ready).granted;
            granted.intersection(both)
        };
        assert_eq!(granted(&settings, ready), Capabilities::NONE);
        settings.default_permissions = Some(true);
        assert_eq!(granted(&settings, ready), both);
        assert_eq!(granted(&settings, READY), Capabilities::NONE);
    }

    #[test]
    fn locks_are_asked_for_where_the_volume_has_some() {
        let offer = offer(Capabilities(u64::MAX));
        let settings = FuseSettings::new("/mnt", "test");
        let both = Capabilities::POSIX_LOCKS.union(Capabilities::FLOCK_LOCKS);
        let granted = |locks| {
            let ready = Ready { locks, ..READY };
            Negotiated::new(&offer, &settings, ready).granted
        };
        assert_eq!(granted(false).intersection(both), Capabilities::NONE);
        assert!(granted(true).contains(both));
    }
}
