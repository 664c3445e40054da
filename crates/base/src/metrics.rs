//! Counters that components own and exporters read.
//!
//! A [`Registry`] belongs to one mount; there is no global. A component registers its metrics
//! once, keeps the handles, and updates them with relaxed atomics. An exporter walks
//! [`Registry::samples`] and prints what it finds, as JSON or in the Prometheus text format.

use std::{
    fmt::Write as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// The sum so far.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Replaces the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Takes `amount` off.
    pub fn subtract(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    /// The value now.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Label names and values, such as `operation="get"`.
pub type Labels = Vec<(&'static str, String)>;

/// What kind of number a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// See [`Counter`].
    Counter,
    /// See [`Gauge`].
    Gauge,
}

/// One metric's description and value at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The name without the `penstock_` prefix, unit last: `object_received_bytes_total`.
    pub name: &'static str,
    /// What it counts, in one sentence.
    pub help: &'static str,
    /// Counter or gauge.
    pub kind: Kind,
    /// The labels that tell it from others of its name.
    pub labels: Labels,
    /// The value.
    pub value: u64,
}

type Reader = Box<dyn Fn() -> u64 + Send + Sync>;

struct Entry {
    sample: Sample,
    read: Reader,
}

/// All metrics of one mount.
#[derive(Default)]
pub struct Registry {
    entries: Mutex<Vec<Entry>>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Registers a counter and returns its handle.
    pub fn counter(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
    ) -> Arc<Counter> {
        let counter = Arc::<Counter>::default();
        let handle = Arc::clone(&counter);
        self.register(sample(Kind::Counter, name, help, labels), move || {
            counter.value()
        });
        handle
    }

    /// Registers a gauge and returns its handle.
    pub fn gauge(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
    ) -> Arc<Gauge> {
        let gauge = Arc::<Gauge>::default();
        let handle = Arc::clone(&gauge);
        self.register(sample(Kind::Gauge, name, help, labels), move || {
            gauge.value()
        });
        handle
    }

    /// Registers a gauge whose value is asked for when it is read.
    pub fn observe(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        self.register(sample(Kind::Gauge, name, help, &[]), read);
    }

    /// Every metric with its value now, in order of registration.
    pub fn samples(&self) -> Vec<Sample> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries
            .iter()
            .map(|entry| Sample {
                value: (entry.read)(),
                ..entry.sample.clone()
            })
            .collect()
    }

    /// The Prometheus text exposition format, version 0.0.4.
    pub fn prometheus(&self) -> String {
        let mut samples = self.samples();
        samples.sort_by_key(|sample| sample.name);
        let mut text = String::new();
        let mut last = "";
        for sample in &samples {
            if sample.name != last {
                write_head(&mut text, sample);
                last = sample.name;
            }
            write_value(&mut text, sample);
        }
        text
    }

    fn register(&self, sample: Sample, read: impl Fn() -> u64 + Send + Sync + 'static) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push(Entry {
            sample,
            read: Box::new(read),
        });
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.samples()).finish()
    }
}

fn sample(
    kind: Kind,
    name: &'static str,
    help: &'static str,
    labels: &[(&'static str, &str)],
) -> Sample {
    let labels = labels
        .iter()
        .map(|(key, value)| (*key, (*value).to_owned()))
        .collect();
    Sample {
        name,
        help,
        kind,
        labels,
        value: 0,
    }
}

fn write_head(text: &mut String, sample: &Sample) {
    let kind = match sample.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
    };
    let Sample { name, help, .. } = sample;
    let _ = writeln!(
        text,
        "# HELP penstock_{name} {help}\n# TYPE penstock_{name} {kind}"
    );
}

fn write_value(text: &mut String, sample: &Sample) {
    let labels: Vec<String> = sample
        .labels
        .iter()
        .map(|(key, value)| {
            format!(
                "{key}=\"{}\"",
                value.replace('\\', "\\\\").replace('"', "\\\"")
            )
        })
        .collect();
    let labels = if labels.is_empty() {
        String::new()
    } else {
        format!("{{{}}}", labels.join(","))
    };
    let _ = writeln!(text, "penstock_{}{labels} {}", sample.name, sample.value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_groups_by_name_and_escapes_labels() {
        let registry = Registry::new();
        registry
            .counter("a_total", "Things.", &[("op", "x\"y")])
            .add(2);
        registry.gauge("b", "Level.", &[]).set(7);
        registry
            .counter("a_total", "Things.", &[("op", "z")])
            .increment();
        assert_eq!(
            registry.prometheus(),
            "# HELP penstock_a_total Things.\n# TYPE penstock_a_total counter\n\
             penstock_a_total{op=\"x\\\"y\"} 2\npenstock_a_total{op=\"z\"} 1\n\
             # HELP penstock_b Level.\n# TYPE penstock_b gauge\npenstock_b 7\n"
        );
    }
}
