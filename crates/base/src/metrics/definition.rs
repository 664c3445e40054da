//! What is known of a metric before anything is counted.

/// What kind of number a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// See [`super::Counter`].
    Counter,
    /// See [`super::Gauge`].
    Gauge,
    /// See [`super::Histogram`]; the upper bounds of its buckets, ascending.
    Histogram(&'static [u64]),
}

impl Kind {
    /// The word for it in the Prometheus text format.
    pub fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// What a metric is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things, such as requests.
    Count,
    /// Bytes.
    Bytes,
    /// Microseconds.
    Microseconds,
}

impl Unit {
    /// The word for it; none for things.
    pub fn word(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Bytes => "bytes",
            Self::Microseconds => "microseconds",
        }
    }
}

/// A metric, whatever its labels.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    /// The name without the `penstock_` prefix, unit last: `object_received_bytes_total`.
    pub name: &'static str,
    /// What kind of number it is.
    pub kind: Kind,
    /// What it is measured in.
    pub unit: Unit,
    /// The names of the labels that tell one from others of its name.
    pub labels: &'static [&'static str],
    /// What it counts, in one sentence.
    pub help: &'static str,
}
