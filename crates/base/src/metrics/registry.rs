//! Which metrics there are, and their values.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::Mutex;

use super::{Counter, Definition, Distribution, Gauge, Histogram, Kind};

/// Label names and values, such as `operation="get"`.
pub type Labels = Vec<(&'static str, String)>;

/// One metric at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The name without the `penstock_` prefix.
    pub name: &'static str,
    /// What it counts, in one sentence.
    pub help: &'static str,
    /// What kind of number it is.
    pub kind: Kind,
    /// The labels that tell it from others of its name.
    pub labels: Labels,
    /// The value; of a histogram the number of values.
    pub value: u64,
    /// The values of a histogram.
    pub distribution: Option<Distribution>,
}

/// Where a value comes from.
#[derive(Clone)]
enum Source {
    Counter(Arc<Counter>),
    Gauge(Arc<Gauge>),
    Histogram(Arc<Histogram>),
    Observed(Arc<dyn Fn() -> u64 + Send + Sync>),
}

#[derive(Clone)]
struct Entry {
    definition: &'static Definition,
    labels: Labels,
    /// The scopes that it is in, outermost first.
    scopes: Arc<[u64]>,
    source: Source,
}

impl Entry {
    fn sample(self) -> Sample {
        let distribution = match &self.source {
            Source::Histogram(histogram) => Some(histogram.distribution()),
            _ => None,
        };
        Sample {
            name: self.definition.name,
            help: self.definition.help,
            kind: self.definition.kind,
            labels: self.labels,
            value: match &self.source {
                Source::Counter(counter) => counter.value(),
                Source::Gauge(gauge) => gauge.value(),
                Source::Observed(read) => read(),
                Source::Histogram(_) => distribution.as_ref().map_or(0, Distribution::count),
            },
            distribution,
        }
    }
}

/// What all scopes of a process share.
#[derive(Default)]
struct Shared {
    entries: Mutex<Vec<Entry>>,
    last_scope: AtomicU64,
}

/// The metrics of a process, or of one scope in it.
///
/// Dropping a scope, which lives as long as the last that has it, removes its metrics. What is registered twice
/// with the same labels in the same scope is the same metric.
#[derive(Default)]
pub struct Registry {
    shared: Arc<Shared>,
    /// This scope and those around it, outermost first; none for the whole process.
    scopes: Arc<[u64]>,
    labels: Labels,
    /// The scope around this one, which must not go before.
    _around: Option<Arc<Self>>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A part whose metrics carry `labels` beside their own.
    pub fn scope(self: &Arc<Self>, labels: &[(&'static str, &str)]) -> Arc<Self> {
        let number = self.shared.last_scope.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            shared: Arc::clone(&self.shared),
            scopes: self.scopes.iter().copied().chain([number]).collect(),
            labels: self.with_own(labels),
            _around: Some(Arc::clone(self)),
        })
    }

    /// The counter with these labels.
    pub fn counter(
        &self,
        definition: &'static Definition,
        labels: &[(&'static str, &str)],
    ) -> Arc<Counter> {
        let found = |source: &Source| match source {
            Source::Counter(counter) => Some(Arc::clone(counter)),
            _ => None,
        };
        self.find_or_add(definition, labels, found, || {
            let counter = Arc::<Counter>::default();
            (Arc::clone(&counter), Source::Counter(counter))
        })
    }

    /// The gauge with these labels.
    pub fn gauge(
        &self,
        definition: &'static Definition,
        labels: &[(&'static str, &str)],
    ) -> Arc<Gauge> {
        let found = |source: &Source| match source {
            Source::Gauge(gauge) => Some(Arc::clone(gauge)),
            _ => None,
        };
        self.find_or_add(definition, labels, found, || {
            let gauge = Arc::<Gauge>::default();
            (Arc::clone(&gauge), Source::Gauge(gauge))
        })
    }

    /// The histogram with these labels; one without bounds where the definition is of another kind.
    pub fn histogram(
        &self,
        definition: &'static Definition,
        labels: &[(&'static str, &str)],
    ) -> Arc<Histogram> {
        let found = |source: &Source| match source {
            Source::Histogram(histogram) => Some(Arc::clone(histogram)),
            _ => None,
        };
        self.find_or_add(definition, labels, found, || {
            let bounds = match definition.kind {
                Kind::Histogram(bounds) => bounds,
                Kind::Counter | Kind::Gauge => &[],
            };
            let histogram = Arc::new(Histogram::new(bounds));
            (Arc::clone(&histogram), Source::Histogram(histogram))
        })
    }

    /// Registers a gauge whose value is asked for when it is read. `read` must not keep this scope alive.
    pub fn observe(
        &self,
        definition: &'static Definition,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        let entry = self.entry(definition, &[], Source::Observed(Arc::new(read)));
        self.shared.entries.lock().push(entry);
    }

    /// Every metric of this scope with its value now, in order of registration.
    pub fn samples(&self) -> Vec<Sample> {
        let own: Vec<Entry> = {
            let entries = self.shared.entries.lock();
            let own = entries.iter().filter(|entry| self.has(entry));
            own.cloned().collect()
        };
        // A reader may let go of the last that keeps a scope, which then takes the lock.
        own.into_iter().map(Entry::sample).collect()
    }

    /// The Prometheus text exposition format, version 0.0.4.
    pub fn prometheus(&self) -> String {
        super::text::prometheus(self.samples())
    }

    fn find_or_add<T>(
        &self,
        definition: &'static Definition,
        labels: &[(&'static str, &str)],
        found: impl Fn(&Source) -> Option<T>,
        make: impl FnOnce() -> (T, Source),
    ) -> T {
        let wanted = self.with_own(labels);
        let mut entries = self.shared.entries.lock();
        let mut same = entries.iter().filter(|entry| {
            entry.definition == definition && entry.labels == wanted && entry.scopes == self.scopes
        });
        if let Some(handle) = same.find_map(|entry| found(&entry.source)) {
            return handle;
        }
        let (handle, source) = make();
        entries.push(self.entry(definition, labels, source));
        handle
    }

    fn entry(
        &self,
        definition: &'static Definition,
        labels: &[(&'static str, &str)],
        source: Source,
    ) -> Entry {
        let names = labels.iter().map(|(name, _)| name);
        debug_assert!(
            names.eq(definition.labels),
            "{} has the labels {:?}",
            definition.name,
            definition.labels
        );
        Entry {
            definition,
            labels: self.with_own(labels),
            scopes: Arc::clone(&self.scopes),
            source,
        }
    }

    /// Whether an entry is in this scope or in one inside it.
    fn has(&self, entry: &Entry) -> bool {
        entry.scopes.starts_with(&self.scopes)
    }

    fn with_own(&self, labels: &[(&'static str, &str)]) -> Labels {
        let given = labels
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        self.labels.iter().cloned().chain(given).collect()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if self.scopes.is_empty() {
            return;
        }
        let gone: Vec<Entry> = {
            let mut entries = self.shared.entries.lock();
            let all = std::mem::take(&mut *entries);
            let (gone, kept) = all.into_iter().partition(|entry| self.has(entry));
            *entries = kept;
            gone
        };
        // What their readers hold may be much, and is let go of without the lock.
        drop(gone);
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.samples()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Unit, *};

    static THINGS: Definition = Definition {
        name: "things_total",
        kind: Kind::Counter,
        unit: Unit::Count,
        labels: &["op"],
        help: "Things.",
    };

    static LEVEL: Definition = Definition {
        name: "level",
        kind: Kind::Gauge,
        unit: Unit::Count,
        labels: &[],
        help: "Level.",
    };

    #[test]
    fn what_is_registered_twice_is_one_metric() {
        let registry = Registry::new();
        registry.counter(&THINGS, &[("op", "a")]).increment();
        registry.counter(&THINGS, &[("op", "a")]).increment();
        registry.counter(&THINGS, &[("op", "b")]).increment();
        let values: Vec<_> = registry
            .samples()
            .iter()
            .map(|sample| sample.value)
            .collect();
        assert_eq!(values, [2, 1]);
    }

    #[test]
    fn the_metrics_of_a_scope_carry_its_labels_and_go_with_it() {
        let registry = Registry::new();
        registry.gauge(&LEVEL, &[]).set(1);
        let volume = registry.scope(&[("volume", "v")]);
        let things = volume.counter(&THINGS, &[("op", "a")]);
        things.increment();
        let export = volume.scope(&[("export", "e")]);
        export.observe(&LEVEL, || 7);
        assert_eq!(export.samples().len(), 1);
        assert_eq!(volume.samples().len(), 2);
        assert_eq!(
            registry.prometheus(),
            "# HELP penstock_level Level.\n# TYPE penstock_level gauge\npenstock_level 1\n\
             penstock_level{volume=\"v\",export=\"e\"} 7\n\
             # HELP penstock_things_total Things.\n# TYPE penstock_things_total counter\n\
             penstock_things_total{volume=\"v\",op=\"a\"} 1\n"
        );
        drop(volume);
        assert_eq!(registry.samples().len(), 3, "there is a scope in it");
        drop(export);
        assert_eq!(registry.samples().len(), 1);
        things.increment();
    }
}
