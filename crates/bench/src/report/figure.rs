//! Each figure that a report shows: its name, its unit, which way is better, and how it follows from a sample.
//!
//! A row counts bytes, operations or nothing but its time ([`Counts`]); its speed, its processor cost and its requests are
//! given in what it counts. [`Aspect`] is the question ("how fast?"), [`Figure`] the answer in one row's units.

use serde::Serialize;

use crate::{
    record::{Row, Sample},
    report::units::{Dimension, Unit},
};

/// What a workload counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Payload alone.
    Bytes,
    /// Files, I/Os or entries.
    Operations,
    /// Neither: how long it took is all there is.
    Time,
}

impl Counts {
    /// What `row` counts, by its samples.
    #[must_use]
    pub fn of(row: &Row) -> Self {
        let any =
            |test: fn(&Sample) -> bool| row.cells.iter().flat_map(|cell| &cell.samples).any(test);
        if any(|sample| sample.operations > 0) {
            Self::Operations
        } else if any(|sample| sample.bytes > 0) {
            Self::Bytes
        } else {
            Self::Time
        }
    }
}

/// What users compare clients by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aspect {
    /// How fast.
    Speed,
    /// Processor time of the client for a unit of work.
    Processor,
    /// Peak resident memory.
    Memory,
    /// Requests for a unit of work.
    Requests,
}

impl Aspect {
    /// In the order of importance.
    pub const ALL: [Self; 4] = [Self::Speed, Self::Processor, Self::Memory, Self::Requests];

    /// One word or two for headings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Speed => "Speed",
            Self::Processor => "CPU",
            Self::Memory => "Memory",
            Self::Requests => "Requests",
        }
    }

    /// The figure that answers in a row that counts `counts`.
    #[must_use]
    pub fn figure(self, counts: Counts) -> Figure {
        match (self, counts) {
            (Self::Speed, Counts::Bytes) => Figure::Bandwidth,
            (Self::Speed, Counts::Operations) => Figure::OperationRate,
            (Self::Speed, Counts::Time) => Figure::Duration,
            (Self::Processor, Counts::Bytes) => Figure::CpuPerGib,
            (Self::Processor, Counts::Operations) => Figure::CpuPerOperation,
            (Self::Processor, Counts::Time) => Figure::CpuTime,
            (Self::Memory, _) => Figure::PeakMemory,
            (Self::Requests, Counts::Bytes) => Figure::RequestsPerGib,
            (Self::Requests, Counts::Operations) => Figure::RequestsPerOperation,
            (Self::Requests, Counts::Time) => Figure::Requests,
        }
    }
}

/// A percentile, in thousandths of a percent, so that it can be compared and sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Percentile(u32);

impl Percentile {
    /// Reads "50", "99.9".
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let percent: f64 = text.trim().parse().ok()?;
        let valid = (0.0..=100.0).contains(&percent);
        valid.then(|| Self((percent * 1000.0).round() as u32))
    }

    /// "99.9".
    #[must_use]
    pub fn name(self) -> String {
        format!("{}", f64::from(self.0) / 1000.0)
    }
}

/// A number that follows from a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Payload per second.
    Bandwidth,
    /// Operations per second.
    OperationRate,
    /// Wall time of the workload.
    Duration,
    /// Processor seconds of the client for a GiB.
    CpuPerGib,
    /// Processor seconds of the client for an operation.
    CpuPerOperation,
    /// Processor seconds of the client.
    CpuTime,
    /// Greatest resident memory of the client.
    PeakMemory,
    /// Greatest use of temporary and cache directories.
    PeakDisk,
    /// Requests for a GiB.
    RequestsPerGib,
    /// Requests for an operation.
    RequestsPerOperation,
    /// Requests in all.
    Requests,
    /// Body bytes on the network for a byte of payload.
    Amplification,
    /// Latency of one operation.
    Latency(Percentile),
}

impl Figure {
    /// Those that every row is asked for; latencies depend on the row.
    pub const FIXED: [Self; 12] = [
        Self::Bandwidth,
        Self::OperationRate,
        Self::Duration,
        Self::CpuPerGib,
        Self::CpuPerOperation,
        Self::CpuTime,
        Self::PeakMemory,
        Self::PeakDisk,
        Self::RequestsPerGib,
        Self::RequestsPerOperation,
        Self::Requests,
        Self::Amplification,
    ];

    /// Its value in `sample`, in base units (bytes, seconds); `None` when the sample does not have it.
    #[must_use]
    pub fn of(self, sample: &Sample) -> Option<f64> {
        match self {
            Self::Bandwidth => sample.bytes_per_second(),
            Self::OperationRate => sample.operations_per_second(),
            Self::Duration => (sample.seconds > 0.0).then_some(sample.seconds),
            Self::CpuPerGib => sample.client_cpu_seconds_per_gib(),
            Self::CpuPerOperation => sample.client_cpu_seconds_per_operation(),
            Self::CpuTime => Some(sample.client_cpu_seconds),
            Self::PeakMemory => non_zero(sample.peak_resident_bytes),
            Self::PeakDisk => Some(sample.peak_disk_bytes as f64),
            Self::RequestsPerGib => sample.requests_per_gib(),
            Self::RequestsPerOperation => sample.requests_per_operation(),
            Self::Requests => sample.request_count(),
            Self::Amplification => sample.amplification(),
            Self::Latency(wanted) => latency(sample, wanted),
        }
    }

    /// Its name for headings.
    #[must_use]
    pub fn name(self) -> String {
        let name = match self {
            Self::Bandwidth => "Bandwidth",
            Self::OperationRate => "Operations",
            Self::Duration => "Time",
            Self::CpuPerGib | Self::CpuPerOperation | Self::CpuTime => "Client CPU",
            Self::PeakMemory => "Peak memory",
            Self::PeakDisk => "Peak disk",
            Self::RequestsPerGib | Self::RequestsPerOperation | Self::Requests => "Requests",
            Self::Amplification => "Amplification",
            Self::Latency(percentile) => return format!("Latency {} %", percentile.name()),
        };
        name.to_owned()
    }

    /// What it counts.
    #[must_use]
    pub fn dimension(self) -> Dimension {
        match self {
            Self::Bandwidth => Dimension::ByteRate,
            Self::OperationRate => Dimension::Plain("op/s"),
            Self::Duration | Self::CpuTime | Self::Latency(_) => Dimension::Seconds,
            Self::CpuPerGib => Dimension::Plain("s/GiB"),
            Self::CpuPerOperation => Dimension::SecondsPerOperation,
            Self::PeakMemory | Self::PeakDisk => Dimension::Bytes,
            Self::RequestsPerGib => Dimension::Plain("per GiB"),
            Self::RequestsPerOperation => Dimension::Plain("per op"),
            Self::Requests => Dimension::Plain("in all"),
            Self::Amplification => Dimension::Plain("×"),
        }
    }

    /// The unit for a column of which `greatest` is the greatest value.
    #[must_use]
    pub fn unit_for(self, greatest: f64) -> Unit {
        self.dimension().unit_for(greatest)
    }

    /// Whether more of it is better; of all else less is.
    #[must_use]
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::Bandwidth | Self::OperationRate)
    }

    /// Whether `a` is better than `b`.
    #[must_use]
    pub fn is_better(self, a: f64, b: f64) -> bool {
        if self.more_is_better() { a > b } else { a < b }
    }

    /// How many times better `a` is than `b`: above 1 when it is better. Two zeros are equal.
    #[must_use]
    pub fn advantage(self, a: f64, b: f64) -> f64 {
        let (numerator, denominator) = if self.more_is_better() {
            (a, b)
        } else {
            (b, a)
        };
        if numerator == denominator {
            1.0
        } else {
            numerator / denominator
        }
    }

    /// What is too little to speak of, in base units: below it two values are the same.
    #[must_use]
    pub fn negligible(self) -> f64 {
        match self {
            Self::PeakMemory | Self::PeakDisk => (1_u64 << 20) as f64,
            // The kernel counts processor time in ticks of up to 10 ms.
            Self::CpuTime => 0.02,
            _ => 0.0,
        }
    }
}

fn non_zero(value: u64) -> Option<f64> {
    (value > 0).then_some(value as f64)
}

fn latency(sample: &Sample, wanted: Percentile) -> Option<f64> {
    let mut known = sample.latency_seconds.iter();
    let found = known.find(|(name, _)| Percentile::parse(name) == Some(wanted));
    found.map(|(_, seconds)| *seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_read_and_sorted_as_numbers() {
        let mut names: Vec<Percentile> = ["99.9", "50", "9"]
            .iter()
            .filter_map(|name| Percentile::parse(name))
            .collect();
        names.sort();
        assert_eq!(
            names.iter().map(|it| it.name()).collect::<Vec<_>>(),
            ["9", "50", "99.9"]
        );
        assert_eq!(Percentile::parse("max"), None);
        assert_eq!(Percentile::parse("101"), None);
    }

    #[test]
    fn an_advantage_is_above_one_for_the_better() {
        assert_eq!(Figure::Bandwidth.advantage(3.0, 2.0), 1.5);
        assert_eq!(Figure::PeakMemory.advantage(2.0, 3.0), 1.5);
        assert_eq!(Figure::PeakDisk.advantage(0.0, 0.0), 1.0);
        assert_eq!(Figure::PeakDisk.advantage(0.0, 1.0), f64::INFINITY);
        assert!(Figure::PeakMemory.is_better(1.0, 2.0) && Figure::Bandwidth.is_better(2.0, 1.0));
    }
}
