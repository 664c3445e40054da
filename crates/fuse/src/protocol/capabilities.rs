//! What kernel and daemon agree on when the mount begins.

use std::fmt;

macro_rules! capabilities {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        impl Capabilities {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*

            const NAMES: &'static [(Self, &'static str)] = &[$((Self::$name, stringify!($name)),)*];
        }
    };
}

/// A set of kernel abilities: offered by the kernel, wanted by us, or granted by both.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(pub u64);

capabilities! {
    /// Several READs of one file in flight.
    ASYNC_READ = 0;
    /// Locks of fcntl(2) come here.
    POSIX_LOCKS = 1;
    /// `O_TRUNC` comes with OPEN instead of as a SETATTR.
    ATOMIC_O_TRUNC = 3;
    /// An inode that the kernel forgot, and the directory above one, can be asked for: LOOKUP of `.` and `..`.
    EXPORT_SUPPORT = 4;
    /// WRITEs of more than a page.
    BIG_WRITES = 5;
    /// The umask of who makes a file comes along and is not taken away before.
    DONT_MASK = 6;
    /// Locks of flock(2) come here.
    FLOCK_LOCKS = 10;
    /// READDIRPLUS is understood.
    DO_READDIRPLUS = 13;
    /// The kernel chooses between READDIR and READDIRPLUS.
    READDIRPLUS_AUTO = 14;
    /// Several READs or WRITEs of one direct call in flight.
    ASYNC_DIO = 15;
    /// Small writes are gathered in the page cache.
    WRITEBACK_CACHE = 16;
    /// Lookups in one directory at the same time.
    PARALLEL_DIROPS = 18;
    /// The kernel checks access lists, which it asks for as extended attributes.
    POSIX_ACL = 20;
    /// The reply says how many pages a request may have.
    MAX_PAGES = 22;
    /// Cached pages are dropped only when we say so.
    EXPLICIT_INVAL_DATA = 25;
    /// Set-user-id bits are the volume's business.
    HANDLE_KILLPRIV_V2 = 28;
    /// SETXATTR has a field of its own flags.
    SETXATTR_EXT = 29;
    /// The upper half of this set is valid.
    INIT_EXT = 30;
    /// What is known under a name can be made to expire without taking the name out of the tree.
    HAS_EXPIRE_ONLY = 35;
    /// Shared mappings of files that bypass the page cache.
    DIRECT_IO_ALLOW_MMAP = 36;
    /// The kernel reads local files by itself.
    PASSTHROUGH = 37;
    /// Requests that a dead daemon had taken can be asked for again.
    HAS_RESEND = 39;
    /// Requests can come through an io_uring.
    OVER_IO_URING = 41;
}

impl Capabilities {
    /// None of them.
    pub const NONE: Self = Self(0);

    /// What is in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What is here and not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` is here.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Joins the halves that the wire keeps apart.
    pub(super) fn from_halves(low: u32, high: u32) -> Self {
        Self(u64::from(low) | u64::from(high) << 32)
    }

    pub(super) fn halves(self) -> (u32, u32) {
        ((self.0 & 0xffff_ffff) as u32, (self.0 >> 32) as u32)
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Self::NAMES
            .iter()
            .filter(|(capability, _)| self.contains(*capability));
        let mut separator = "";
        for (_, name) in known {
            write!(f, "{separator}{name}")?;
            separator = " ";
        }
        Ok(())
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Capabilities({self} {:#x})", self.0)
    }
}
