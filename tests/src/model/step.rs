//! One concrete operation, and what it can answer.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::system::{Errno, Status};

/// The number of an open handle, counted from the start of a sequence and never used twice.
pub type Slot = usize;

/// What a handle is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// `O_RDONLY`
    Read,
    /// `O_WRONLY`
    Write,
    /// `O_RDWR`
    Both,
}

impl Access {
    /// Whether reads are allowed.
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Whether writes are allowed.
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenMode {
    /// What for.
    pub access: Access,
    /// `O_CREAT`
    pub create: bool,
    /// `O_EXCL`; only with `create`.
    pub exclusive: bool,
    /// `O_APPEND`
    pub append: bool,
    /// `O_TRUNC`
    pub truncate: bool,
}

/// One operation on paths relative to the root under test.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Step {
    Open {
        slot: Slot,
        path: String,
        mode: OpenMode,
    },
    Write {
        slot: Slot,
        offset: u64,
        length: usize,
        seed: u8,
    },
    Read {
        slot: Slot,
        offset: u64,
        length: usize,
    },
    TruncateOpen {
        slot: Slot,
        size: u64,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Sync {
        slot: Slot,
    },
    Close {
        slot: Slot,
    },
    StatusOpen {
        slot: Slot,
    },
    Status {
        path: String,
    },
    List {
        path: String,
    },
    MakeDirectory {
        path: String,
    },
    RemoveDirectory {
        path: String,
    },
    Remove {
        path: String,
    },
    Rename {
        from: String,
        to: String,
        no_replace: bool,
    },
}

/// What a step answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Success without a value.
    Done,
    /// That many bytes were written.
    Wrote(usize),
    /// These bytes were read.
    Data(Content),
    /// A status.
    Status(Status),
    /// The sorted names in a directory.
    Names(Vec<String>),
    /// Failure.
    Failed(Errno),
}

impl<T: Into<Outcome>> From<Result<T, Errno>> for Outcome {
    fn from(result: Result<T, Errno>) -> Self {
        result.map_or_else(Self::Failed, Into::into)
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// What a step may answer: any of these. Usually there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Expected(pub Vec<Outcome>);

impl Expected {
    /// Whether `outcome` is one of them.
    pub fn allows(&self, outcome: &Outcome) -> bool {
        self.0.contains(outcome)
    }
}

impl<T: Into<Outcome>> From<T> for Expected {
    fn from(outcome: T) -> Self {
        Self(vec![outcome.into()])
    }
}

impl fmt::Debug for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, outcome) in self.0.iter().enumerate() {
            let separator = if number > 0 { ", or " } else { "" };
            write!(f, "{separator}{outcome:?}")?;
        }
        Ok(())
    }
}

/// Bytes that print as what one needs to tell two of them apart.
#[derive(Clone, PartialEq, Eq)]
pub struct Content(pub Vec<u8>);

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        let first = &self.0[..self.0.len().min(SHOWN)];
        write!(
            f,
            "{} bytes, hash {:08x}, first {first:02x?}",
            self.0.len(),
            hasher.finish() as u32
        )
    }
}

/// The bytes that a write step writes: different for each seed, and no two places in a piece are
/// alike nearby, so that bytes in a wrong place are noticed.
pub(super) fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|at| {
            let mixed = at.wrapping_mul(2_654_435_761).rotate_left(11) ^ (at >> 8);
            (mixed >> 16) as u8 ^ seed
        })
        .collect()
}
