//! What the server did, counted.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{dialect::Dialect, operations::Operation, system};

/// Statuses have three digits.
const STATUS_MAX: usize = 600;

/// Counts at one moment, since the start or the last reset.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Requests by dialect and operation, under the names that these have; what never came
    /// is not there.
    pub requests: BTreeMap<String, BTreeMap<String, u64>>,
    /// Answers by status.
    pub status: BTreeMap<u16, u64>,
    /// Bytes of bodies that were received.
    pub bytes_in: u64,
    /// Bytes of bodies that were sent.
    pub bytes_out: u64,
    /// Requests that are being worked on.
    pub in_flight: u64,
    /// The most that `in_flight` was.
    pub in_flight_max: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Whole handshakes of connections that were enciphered.
    pub handshakes: u64,
    /// Short ones, of clients that came back.
    pub resumptions: u64,
    /// Faults that struck.
    pub faults: u64,
    /// Processor seconds of the whole process; means something where the server has its own.
    pub cpu_seconds: f64,
}

impl Counters {
    /// Requests of one operation, in both dialects together.
    pub fn operation(&self, operation: Operation) -> u64 {
        self.requests
            .values()
            .filter_map(|operations| operations.get(operation.name()))
            .sum()
    }

    /// All requests.
    pub fn total(&self) -> u64 {
        self.requests.values().flat_map(BTreeMap::values).sum()
    }

    /// Answers with this status.
    pub fn status(&self, status: u16) -> u64 {
        self.status.get(&status).copied().unwrap_or(0)
    }
}

/// The counts of a running server.
#[derive(Debug)]
pub(crate) struct CounterTable {
    requests: Vec<AtomicU64>,
    status: Vec<AtomicU64>,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    in_flight: AtomicU64,
    in_flight_max: AtomicU64,
    connections: AtomicU64,
    handshakes: AtomicU64,
    resumptions: AtomicU64,
    faults: AtomicU64,
    /// Processor time when counting began, in nanoseconds.
    cpu_start: AtomicU64,
}

impl Default for CounterTable {
    fn default() -> Self {
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            requests: zeros(Dialect::ALL.len() * Operation::ALL.len()),
            status: zeros(STATUS_MAX),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            in_flight_max: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            handshakes: AtomicU64::new(0),
            resumptions: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            cpu_start: AtomicU64::new(cpu_nanoseconds()),
        }
    }
}

fn cpu_nanoseconds() -> u64 {
    u64::try_from(system::process_time().as_nanos()).unwrap_or(u64::MAX)
}

fn slot(dialect: Dialect, operation: Operation) -> usize {
    dialect as usize * Operation::ALL.len() + operation as usize
}

/// A request that is being worked on, until dropped.
pub(crate) struct InFlight<'a>(&'a CounterTable);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

impl CounterTable {
    pub(crate) fn begin(&self, dialect: Dialect, operation: Operation) -> InFlight<'_> {
        self.requests[slot(dialect, operation)].fetch_add(1, Relaxed);
        let now = self.in_flight.fetch_add(1, Relaxed) + 1;
        self.in_flight_max.fetch_max(now, Relaxed);
        InFlight(self)
    }

    pub(crate) fn answered(&self, status: u16) {
        if let Some(count) = self.status.get(usize::from(status)) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.bytes_in.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn sent(&self, bytes: u64) {
        self.bytes_out.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    pub(crate) fn shook_hands(&self, is_resumed: bool) {
        let count = match is_resumed {
            true => &self.resumptions,
            false => &self.handshakes,
        };
        count.fetch_add(1, Relaxed);
    }

    pub(crate) fn struck(&self) {
        self.faults.fetch_add(1, Relaxed);
    }

    /// Begins anew. What is in flight stays.
    pub(crate) fn reset(&self) {
        let counts = [
            &self.bytes_in,
            &self.bytes_out,
            &self.connections,
            &self.handshakes,
            &self.resumptions,
            &self.faults,
        ];
        let tables = self.requests.iter().chain(&self.status);
        tables
            .chain(counts)
            .for_each(|count| count.store(0, Relaxed));
        self.in_flight_max
            .store(self.in_flight.load(Relaxed), Relaxed);
        self.cpu_start.store(cpu_nanoseconds(), Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Counters {
        let statuses = self
            .status
            .iter()
            .enumerate()
            .map(|(status, count)| (status, count.load(Relaxed)));
        let cpu = cpu_nanoseconds().saturating_sub(self.cpu_start.load(Relaxed));
        Counters {
            requests: self.requests_by_name(),
            status: statuses
                .filter(|(_, count)| *count > 0)
                .map(|(status, count)| (u16::try_from(status).unwrap_or(u16::MAX), count))
                .collect(),
            bytes_in: self.bytes_in.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            in_flight_max: self.in_flight_max.load(Relaxed),
            connections: self.connections.load(Relaxed),
            handshakes: self.handshakes.load(Relaxed),
            resumptions: self.resumptions.load(Relaxed),
            faults: self.faults.load(Relaxed),
            cpu_seconds: Duration::from_nanos(cpu).as_secs_f64(),
        }
    }

    fn requests_by_name(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        let mut requests = BTreeMap::<_, BTreeMap<_, _>>::new();
        for dialect in Dialect::ALL {
            for operation in Operation::ALL {
                let count = self.requests[slot(dialect, *operation)].load(Relaxed);
                if count > 0 {
                    let operations = requests.entry(dialect.name().to_owned()).or_default();
                    operations.insert(operation.name().to_owned(), count);
                }
            }
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_come_out_by_name_and_reset() {
        let table = CounterTable::default();
        drop(table.begin(Dialect::S3, Operation::GetObject));
        let flying = table.begin(Dialect::Oss, Operation::GetObject);
        table.answered(206);
        let counters = table.snapshot();
        assert_eq!(counters.operation(Operation::GetObject), 2);
        assert_eq!(counters.requests["oss"]["get_object"], 1);
        assert_eq!(
            (counters.status(206), counters.in_flight, counters.total()),
            (1, 1, 2)
        );
        table.reset();
        assert_eq!(table.snapshot().total(), 0);
        assert_eq!(table.snapshot().in_flight, 1);
        drop(flying);
        assert_eq!(table.snapshot().in_flight, 0);
    }

    #[test]
    fn serde_names_are_the_names() {
        for operation in Operation::ALL {
            let text = serde_json::to_string(operation).expect("plain data");
            assert_eq!(text, format!("\"{}\"", operation.name()));
        }
    }
}
