//! What machines do: kinds of operations in shares, by callers with pauses. Real sessions and the simulation do the same.

use std::time::Duration;

use fastrand::Rng;

/// What a caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file in a directory that this machine has seen: looks at two keys, changes four.
    Create,
    /// The close of a small file that this machine wrote: looks at one key, changes four.
    Close,
    /// The same of one of [`SHARED_FILES`] that all machines write.
    CloseShared,
    /// A name and its inode that this machine has seen.
    Lookup,
    /// The same, unseen: two pages.
    Unknown,
    /// An open, which catches up and looks at the inode.
    Open,
    /// The attributes of a file that this machine has seen.
    Stat,
}

/// Files that all machines write.
pub const SHARED_FILES: u64 = 200;
/// Keys that a change changes, but for the counter that all of a group do.
pub const KEYS: u64 = 3;
/// Pages that an unknown name takes.
pub const PAGES: u32 = 2;

impl Kind {
    pub const ALL: [Self; 7] = [
        Self::Create,
        Self::Close,
        Self::CloseShared,
        Self::Lookup,
        Self::Unknown,
        Self::Open,
        Self::Stat,
    ];

    /// What it is counted as.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Close | Self::CloseShared => "close",
            Self::Lookup | Self::Stat => "known",
            Self::Unknown => "unknown",
            Self::Open => "open",
        }
    }

    /// Whether it goes to the database in a group.
    pub fn is_change(self) -> bool {
        matches!(self, Self::Create | Self::Close | Self::CloseShared)
    }
}

/// What each machine does.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Parts of each kind, in the order of [`Kind::ALL`].
    pub shares: [u32; 7],
    /// Operations under way at most.
    pub callers: usize,
    /// What a caller waits between two operations, on average.
    pub pause: Duration,
}

impl Load {
    /// Of 100 operations 15 create, 15 close, 45 look at what is known and 5 at what is not, 20 open.
    pub const MIXED: Self = Self {
        shares: [300, 285, 15, 300, 100, 400, 600],
        callers: 16,
        pause: Duration::ZERO,
    };

    /// Of 100 operations 1 changes something, 40 open, 4 look at what is not known and 55 at what is.
    pub const READING: Self = Self {
        shares: [5, 5, 0, 275, 40, 400, 275],
        ..Self::MIXED
    };

    /// One kind alone.
    pub fn only(kind: Kind, callers: usize) -> Self {
        Self {
            shares: Kind::ALL.map(|one| u32::from(one == kind)),
            callers,
            pause: Duration::ZERO,
        }
    }

    /// The same with pauses.
    pub fn paced(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// What comes next.
    pub fn next(&self, chance: &mut Rng) -> Kind {
        let mut left = chance.u32(..self.shares.iter().sum::<u32>());
        for (kind, share) in Kind::ALL.into_iter().zip(self.shares) {
            match left.checked_sub(share) {
                Some(rest) => left = rest,
                None => return kind,
            }
        }
        Kind::Stat
    }

    /// The next pause: any length, longer ones more rarely, in the whole milliseconds that timers have.
    pub fn next_pause(&self, chance: &mut Rng) -> Duration {
        let pause = self.pause.mul_f64(-(1.0 - chance.f64()).ln());
        Duration::from_millis((pause.as_secs_f64() * 1e3).ceil() as u64)
    }
}
