//! The Prometheus text exposition format, version 0.0.4.

use std::fmt::Write as _;

use super::{Distribution, Sample};

/// All samples, those of one name together.
pub(super) fn prometheus(mut samples: Vec<Sample>) -> String {
    samples.sort_by_key(|sample| sample.name);
    let mut text = String::new();
    let mut last = "";
    for sample in &samples {
        if sample.name != last {
            write_head(&mut text, sample);
            last = sample.name;
        }
        match &sample.distribution {
            Some(distribution) => write_distribution(&mut text, sample, distribution),
            None => write_value(&mut text, sample.name, &labels(sample, None), sample.value),
        }
    }
    text
}

fn write_head(text: &mut String, sample: &Sample) {
    let (name, help, kind) = (sample.name, sample.help, sample.kind.word());
    let _ = writeln!(
        text,
        "# HELP penstock_{name} {help}\n# TYPE penstock_{name} {kind}"
    );
}

fn write_distribution(text: &mut String, sample: &Sample, distribution: &Distribution) {
    let name = sample.name;
    for bucket in &distribution.buckets {
        let bound = bucket
            .bound
            .map_or("+Inf".to_owned(), |bound| bound.to_string());
        let labels = labels(sample, Some(&bound));
        write_value(text, &format!("{name}_bucket"), &labels, bucket.count);
    }
    let labels = labels(sample, None);
    write_value(text, &format!("{name}_sum"), &labels, distribution.sum);
    write_value(
        text,
        &format!("{name}_count"),
        &labels,
        distribution.count(),
    );
}

fn write_value(text: &mut String, name: &str, labels: &str, value: u64) {
    let _ = writeln!(text, "penstock_{name}{labels} {value}");
}

/// The labels of a sample, with the bound of a bucket where there is one.
fn labels(sample: &Sample, bound: Option<&str>) -> String {
    let own = sample
        .labels
        .iter()
        .map(|(name, value)| (*name, value.as_str()));
    let labels: Vec<String> = own
        .chain(bound.map(|bound| ("le", bound)))
        .map(|(name, value)| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            format!("{name}=\"{value}\"")
        })
        .collect();
    if labels.is_empty() {
        return String::new();
    }
    format!("{{{}}}", labels.join(","))
}

#[cfg(test)]
mod tests {
    use super::super::{Definition, Kind, Registry, Unit};

    static A: Definition = Definition {
        name: "a_total",
        kind: Kind::Counter,
        unit: Unit::Count,
        labels: &["op"],
        help: "Things.",
    };

    static B: Definition = Definition {
        name: "b",
        kind: Kind::Gauge,
        unit: Unit::Count,
        labels: &[],
        help: "Level.",
    };

    static C: Definition = Definition {
        name: "c_microseconds",
        kind: Kind::Histogram(&[10, 20]),
        unit: Unit::Microseconds,
        labels: &["op"],
        help: "Time.",
    };

    #[test]
    fn prometheus_groups_by_name_and_escapes_labels() {
        let registry = Registry::new();
        registry.counter(&A, &[("op", "x\"y")]).add(2);
        registry.gauge(&B, &[]).set(7);
        registry.counter(&A, &[("op", "z")]).increment();
        assert_eq!(
            registry.prometheus(),
            "# HELP penstock_a_total Things.\n# TYPE penstock_a_total counter\n\
             penstock_a_total{op=\"x\\\"y\"} 2\npenstock_a_total{op=\"z\"} 1\n\
             # HELP penstock_b Level.\n# TYPE penstock_b gauge\npenstock_b 7\n"
        );
    }

    #[test]
    fn histograms_have_buckets_a_sum_and_a_count() {
        let registry = Registry::new();
        let times = registry.histogram(&C, &[("op", "get")]);
        times.record(10);
        times.record(25);
        assert_eq!(
            registry.prometheus(),
            "# HELP penstock_c_microseconds Time.\n# TYPE penstock_c_microseconds histogram\n\
             penstock_c_microseconds_bucket{op=\"get\",le=\"10\"} 1\n\
             penstock_c_microseconds_bucket{op=\"get\",le=\"20\"} 1\n\
             penstock_c_microseconds_bucket{op=\"get\",le=\"+Inf\"} 2\n\
             penstock_c_microseconds_sum{op=\"get\"} 35\n\
             penstock_c_microseconds_count{op=\"get\"} 2\n"
        );
    }
}
