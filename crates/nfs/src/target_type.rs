//! Types of mount targets: what one delivers at most, and what each call costs of that.
//!
//! Types, rates and costs are those of Oracle's File Storage, as its paper on scaling out tells them ("Mount Target Types
//! and Performance", "NFS Operations to IOPS Mapping"): who sized his clients there finds the same target here.

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::protocol::{nfs3::Request, nlm4};

/// Bytes of a READ or WRITE that its base costs cover, and of each step beyond.
const STEP: u64 = 32 << 10;
/// Bytes in a gigabit.
const GIGABIT: u64 = 1_000_000_000 / 8;

/// What a mount target delivers at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TargetType {
    /// 1 Gb/s read, 0.5 Gb/s written, 5,000 operations a second.
    Standard,
    /// 20 Gb/s read, 10 Gb/s written, 100,000 operations a second.
    Hpmt20,
    /// 40 Gb/s read, 20 Gb/s written, 200,000 operations a second.
    Hpmt40,
    /// 80 Gb/s read, 40 Gb/s written, 400,000 operations a second.
    Hpmt80,
    /// Whatever the machine and the volume can.
    #[default]
    Unlimited,
}

impl TargetType {
    const ALL: [Self; 5] = [
        Self::Standard,
        Self::Hpmt20,
        Self::Hpmt40,
        Self::Hpmt80,
        Self::Unlimited,
    ];
    /// What they are called.
    pub const NAMES: [&'static str; 5] = ["standard", "hpmt-20", "hpmt-40", "hpmt-80", "unlimited"];

    /// What it delivers in a second; nothing where that is not limited.
    pub(crate) fn rates(self) -> Option<Cost> {
        let rates = |read, written, operations| {
            Some(Cost {
                operations,
                read,
                written,
            })
        };
        match self {
            Self::Standard => rates(GIGABIT, GIGABIT / 2, 5_000),
            Self::Hpmt20 => rates(20 * GIGABIT, 10 * GIGABIT, 100_000),
            Self::Hpmt40 => rates(40 * GIGABIT, 20 * GIGABIT, 200_000),
            Self::Hpmt80 => rates(80 * GIGABIT, 40 * GIGABIT, 400_000),
            Self::Unlimited => None,
        }
    }
}

impl fmt::Display for TargetType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES[*self as usize])
    }
}

/// There is no such type.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no type of mount target")]
pub struct UnknownTargetType(String);

impl FromStr for TargetType {
    type Err = UnknownTargetType;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let place = Self::NAMES.iter().position(|name| *name == text);
        place
            .map(|place| Self::ALL[place])
            .ok_or_else(|| UnknownTargetType(text.to_owned()))
    }
}

/// What calls cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cost {
    /// Operations at the back end.
    pub(crate) operations: u64,
    /// Bytes read from files.
    pub(crate) read: u64,
    /// Bytes written to files.
    pub(crate) written: u64,
}

impl Cost {
    /// What a call costs; a READ, if it gives all that it asks for.
    pub(crate) fn of(request: &Request) -> Self {
        let operations = match request {
            Request::Null => 0,
            Request::Access { .. }
            | Request::Commit { .. }
            | Request::Facts { .. }
            | Request::Statistics { .. }
            | Request::GetAttributes { .. }
            | Request::ReadLink { .. }
            | Request::PathFacts { .. } => 1,
            Request::Lookup(_) | Request::ReadDirectory { .. } | Request::SetAttributes { .. } => 2,
            Request::Create(..)
            | Request::Link { .. }
            | Request::MakeDirectory(..)
            | Request::MakeNode(..)
            | Request::ReadDirectoryPlus { .. }
            | Request::RemoveDirectory(_)
            | Request::MakeSymlink { .. } => 4,
            Request::Remove(_) | Request::Rename { .. } => 8,
            Request::Read { count, .. } => return Self::of_read((*count).into()),
            Request::Write { data, .. } => return Self::of_write(data.len() as u64),
        };
        Self {
            operations,
            ..Self::default()
        }
    }

    /// What a READ costs that gives so many bytes.
    pub(crate) fn of_read(bytes: u64) -> Self {
        Self {
            operations: 2 + steps_beyond(bytes),
            read: bytes,
            written: 0,
        }
    }

    /// What a call of NLM costs.
    pub(crate) fn of_lock_call(request: &nlm4::Request) -> Self {
        let operations = match request {
            nlm4::Request::Null => 0,
            nlm4::Request::FreeAll(_) => 8,
            _ => 4,
        };
        Self {
            operations,
            ..Self::default()
        }
    }

    fn of_write(bytes: u64) -> Self {
        Self {
            operations: 4 + 2 * steps_beyond(bytes),
            read: 0,
            written: bytes,
        }
    }
}

fn steps_beyond(bytes: u64) -> u64 {
    bytes.saturating_sub(STEP).div_ceil(STEP)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::protocol::{
        nfs3::{self, Stability},
        xdr::Decoder,
    };

    /// Procedures by number with what they cost, but READ and WRITE.
    const COSTS: [(u32, u64); 20] = [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 2),
        (4, 1),
        (5, 1),
        (8, 4),
        (9, 4),
        (10, 4),
        (11, 4),
        (12, 8),
        (13, 4),
        (14, 8),
        (15, 4),
        (16, 2),
        (17, 4),
        (18, 1),
        (19, 1),
        (20, 1),
        (21, 1),
    ];

    #[test]
    fn each_procedure_costs_what_the_table_says() {
        for (procedure, operations) in COSTS {
            // Handles and names are empty, all else is 0; the kind of a node must be one.
            let mut arguments = [0; 64];
            arguments[11] = if procedure == 11 { 7 } else { 0 };
            let mut arguments = Decoder::new(Bytes::copy_from_slice(&arguments));
            let request = Request::decode(procedure, &mut arguments, None);
            let request = request.expect("there is one").expect("it can be read");
            let name = nfs3::PROCEDURES[procedure as usize];
            let expected = Cost {
                operations,
                ..Cost::default()
            };
            assert_eq!(Cost::of(&request), expected, "{name}");
        }
    }

    #[test]
    fn reads_and_writes_cost_more_with_each_step() {
        let read = |count| {
            let file = Bytes::new();
            Cost::of(&Request::Read {
                file,
                offset: 0,
                count,
            })
        };
        let write = |length| {
            Cost::of(&Request::Write {
                file: Bytes::new(),
                offset: 0,
                stability: Stability::Unstable,
                data: vec![0; length].into(),
            })
        };
        let cases = [
            (0, 2, 4),
            (1, 2, 4),
            (32 << 10, 2, 4),
            ((32 << 10) + 1, 3, 6),
            (64 << 10, 3, 6),
            ((64 << 10) + 1, 4, 8),
            (1 << 20, 33, 66),
        ];
        for (bytes, of_read, of_write) in cases {
            assert_eq!(read(bytes).operations, of_read, "READ of {bytes}");
            assert_eq!(read(bytes).read, bytes.into());
            assert_eq!(
                write(bytes as usize).operations,
                of_write,
                "WRITE of {bytes}"
            );
            assert_eq!(write(bytes as usize).written, bytes.into());
        }
    }

    #[test]
    fn types_are_known_by_their_names() {
        for (name, one) in TargetType::NAMES.into_iter().zip(TargetType::ALL) {
            assert_eq!((name.parse(), one.to_string()), (Ok(one), name.to_owned()));
        }
        assert!("hpmt-60".parse::<TargetType>().is_err());
    }
}
