//! Each figure that a report shows: its name, its unit, which way is better, and how it follows from a sample.
//!
//! A row counts bytes, operations or nothing but its time ([`Counts`]); its speed, its processor cost and its requests are
//! given in what it counts. [`Aspect`] is the question ("how fast?"), [`Figure`] the answer in one row's units.
//!
//! A figure that cannot be had (nothing was moved, no time passed, the server does not count) is `None`, never zero: a
//! zero would be drawn, averaged and won with.

use serde::Serialize;

use crate::{
    record::{Row, Sample},
    report::units::{self, Unit, Units},
};

/// Bytes in a GiB, the unit that costs are given for.
pub(super) const GIB: f64 = (1_u64 << 30) as f64;

/// What a workload counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// Payload alone.
    Bytes,
    /// Files, I/Os or entries.
    Operations,
    /// Neither: how long it took is all there is.
    Time,
}

impl Counts {
    /// What `row` counts, by its samples.
    pub(crate) fn of(row: &Row) -> Self {
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
pub(crate) enum Aspect {
    Speed,
    /// When everything is in the store, where that is waited for.
    Stored,
    /// Processor time of the client for a unit of work.
    Processor,
    Memory,
    Requests,
}

impl Aspect {
    pub(crate) const ALL: [Self; 5] = [
        Self::Speed,
        Self::Stored,
        Self::Processor,
        Self::Memory,
        Self::Requests,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Speed => "Speed",
            Self::Stored => "Stored",
            Self::Processor => "CPU",
            Self::Memory => "Memory",
            Self::Requests => "Requests",
        }
    }

    /// The figure that answers in a row that counts `counts`.
    pub(crate) fn figure(self, counts: Counts) -> Figure {
        match (self, counts) {
            (Self::Speed, Counts::Bytes) => Figure::Bandwidth,
            (Self::Speed, Counts::Operations) => Figure::OperationRate,
            (Self::Speed, Counts::Time) => Figure::Duration,
            (Self::Stored, _) => Figure::Stored,
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
pub(crate) struct Percentile(u32);

impl Percentile {
    /// Reads "50", "99.9".
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let percent: f64 = text.trim().parse().ok()?;
        let valid = (0.0..=100.0).contains(&percent);
        valid.then(|| Self((percent * 1000.0).round() as u32))
    }

    /// "99.9".
    pub(crate) fn name(self) -> String {
        format!("{}", f64::from(self.0) / 1000.0)
    }
}

/// A number that follows from a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    Bandwidth,
    OperationRate,
    Duration,
    /// How long it took until everything was in the store.
    Stored,
    CpuPerGib,
    CpuPerOperation,
    CpuTime,
    PeakMemory,
    /// Greatest use of temporary and cache directories.
    PeakDisk,
    RequestsPerGib,
    RequestsPerOperation,
    Requests,
    /// Body bytes on the network for an operation.
    BytesPerOperation,
    /// Body bytes on the network for a byte of payload.
    Amplification,
    Latency(Percentile),
}

impl Figure {
    /// Its value in `sample`, in base units (bytes, seconds); `None` when the sample does not have it.
    pub(crate) fn of(self, sample: &Sample) -> Option<f64> {
        let (bytes, operations) = (sample.bytes as f64, sample.operations as f64);
        let processor = sample.client_cpu_seconds;
        let requests = requests(sample);
        match self {
            Self::Bandwidth => ratio(bytes, sample.seconds).filter(|_| sample.bytes > 0),
            Self::OperationRate => {
                ratio(operations, sample.seconds).filter(|_| sample.operations > 0)
            }
            Self::Duration => (sample.seconds > 0.0).then_some(sample.seconds),
            Self::Stored => sample.stored_seconds,
            Self::CpuPerGib => ratio(processor, bytes / GIB),
            Self::CpuPerOperation => ratio(processor, operations),
            Self::CpuTime => Some(processor),
            Self::PeakMemory => non_zero(sample.peak_resident_bytes),
            Self::PeakDisk => Some(sample.peak_disk_bytes as f64),
            Self::RequestsPerGib => ratio(requests?, bytes / GIB),
            Self::RequestsPerOperation => ratio(requests?, operations),
            Self::Requests => requests,
            // Body bytes that crossed the network, both ways. 1 is ideal; less means that a cache answered.
            Self::Amplification => requests.and(ratio(crossed(sample), bytes)),
            Self::BytesPerOperation => requests.and(ratio(crossed(sample), operations)),
            Self::Latency(wanted) => latency(sample, wanted),
        }
    }

    /// Its name for headings, and its units.
    fn facts(self) -> (&'static str, Units) {
        match self {
            Self::Bandwidth => ("Bandwidth", units::BYTE_RATES),
            Self::OperationRate => ("Operations", &[(0.0, 1.0, "op/s")]),
            Self::Duration => ("Time", units::SECONDS),
            Self::Stored => ("All stored", units::SECONDS),
            Self::CpuPerGib => ("Client CPU", &[(0.0, 1.0, "s/GiB")]),
            Self::CpuPerOperation => ("Client CPU", units::SECONDS_PER_OPERATION),
            Self::CpuTime => ("Client CPU", units::SECONDS),
            Self::PeakMemory => ("Peak memory", units::BYTES),
            Self::PeakDisk => ("Peak disk", units::BYTES),
            Self::RequestsPerGib => ("Requests", &[(0.0, 1.0, "per GiB")]),
            Self::RequestsPerOperation => ("Requests", &[(0.0, 1.0, "per op")]),
            Self::Requests => ("Requests", &[(0.0, 1.0, "in all")]),
            Self::BytesPerOperation => ("Bytes", units::BYTES_PER_OPERATION),
            Self::Amplification => ("Amplification", &[(0.0, 1.0, "×")]),
            Self::Latency(_) => ("Latency", units::SECONDS),
        }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Latency(percentile) => format!("Latency {} %", percentile.name()),
            other => other.facts().0.to_owned(),
        }
    }

    /// A name that fits above numbers.
    pub(crate) fn short_name(self) -> String {
        match self {
            Self::PeakMemory => "memory".to_owned(),
            Self::PeakDisk => "disk".to_owned(),
            Self::CpuPerGib | Self::CpuPerOperation | Self::CpuTime => "CPU".to_owned(),
            Self::Amplification => "amplif.".to_owned(),
            Self::Stored => "stored".to_owned(),
            Self::Latency(percentile) => format!("p{}", percentile.name()),
            other => other.name().to_lowercase(),
        }
    }

    pub(crate) fn unit_for(self, greatest: f64) -> Unit {
        units::unit_for(self.facts().1, greatest)
    }

    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, Self::Bandwidth | Self::OperationRate)
    }

    pub(super) fn direction(self) -> &'static str {
        match self.more_is_better() {
            true => "more is better",
            false => "less is better",
        }
    }

    pub(crate) fn is_better(self, a: f64, b: f64) -> bool {
        if self.more_is_better() { a > b } else { a < b }
    }

    /// How many times better `a` is than `b`: above 1 when it is better. Two zeros are equal.
    pub(crate) fn advantage(self, a: f64, b: f64) -> f64 {
        match self.more_is_better() {
            _ if a == b => 1.0,
            true => a / b,
            false => b / a,
        }
    }

    /// What is too little to speak of, in base units: below it two values are the same.
    pub(crate) fn negligible(self) -> f64 {
        match self {
            Self::PeakMemory | Self::PeakDisk => (1_u64 << 20) as f64,
            // The kernel counts processor time in ticks of up to 10 ms.
            Self::CpuTime => 0.02,
            _ => 0.0,
        }
    }
}

/// Requests in all. The server counts some of every run, or it does not count; where it was asked when all was
/// stored, none is none.
fn requests(sample: &Sample) -> Option<f64> {
    let requests = sample.requests.values().map(|count| *count as f64);
    let counted = requests.reduce(|a, b| a + b);
    counted.or(sample.stored_seconds.map(|_| 0.0))
}

/// Body bytes that crossed the network, both ways.
fn crossed(sample: &Sample) -> f64 {
    sample.server_sent_bytes as f64 + sample.server_received_bytes as f64
}

/// The quotient, where it is a number.
fn ratio(dividend: f64, divisor: f64) -> Option<f64> {
    let quotient = dividend / divisor;
    (divisor > 0.0 && quotient.is_finite()).then_some(quotient)
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

    fn sample() -> Sample {
        Sample {
            seconds: 2.0,
            stored_seconds: Some(3.0),
            bytes: 4 << 30,
            operations: 8,
            client_cpu_seconds: 1.0,
            requests: [("GetObject".to_owned(), 24), ("HeadObject".to_owned(), 8)].into(),
            server_sent_bytes: 5 << 30,
            server_received_bytes: 1 << 30,
            ..Sample::default()
        }
    }

    #[test]
    fn each_figure_is_the_quotient_that_its_name_says() {
        for (figure, value) in [
            (Figure::Bandwidth, 2.0 * GIB),
            (Figure::OperationRate, 4.0),
            (Figure::CpuPerGib, 0.25),
            (Figure::CpuPerOperation, 0.125),
            (Figure::RequestsPerOperation, 4.0),
            (Figure::RequestsPerGib, 8.0),
            (Figure::Amplification, 1.5),
            (Figure::BytesPerOperation, 0.75 * GIB),
            (Figure::Stored, 3.0),
        ] {
            assert_eq!(figure.of(&sample()), Some(value), "{figure:?}");
        }
    }

    #[test]
    fn what_cannot_be_divided_is_absent() {
        let nothing = Sample::default();
        for figure in [
            Figure::Bandwidth,
            Figure::OperationRate,
            Figure::CpuPerGib,
            Figure::RequestsPerOperation,
            Figure::Amplification,
            Figure::BytesPerOperation,
            Figure::Stored,
        ] {
            assert_eq!(figure.of(&nothing), None, "{figure:?}");
        }
        let frozen = Sample {
            seconds: 0.0,
            ..sample()
        };
        assert_eq!(Figure::Bandwidth.of(&frozen), None);
        let uncounted = Sample {
            requests: [].into(),
            stored_seconds: None,
            ..sample()
        };
        assert_eq!(Figure::Amplification.of(&uncounted), None);
        let none = Sample {
            requests: [].into(),
            ..sample()
        };
        assert_eq!(Figure::Requests.of(&none), Some(0.0));
    }
}
