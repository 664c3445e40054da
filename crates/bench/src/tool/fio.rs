//! fio, with `--output-format=json`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Said;
use crate::percentile;

const NANOSECONDS: f64 = 1e9;

/// Reads the JSON, which warnings may stand before. Reads and writes of all jobs are added.
pub(super) fn parse(output: &str) -> Result<Said, String> {
    let start = output.find('{').ok_or("fio printed no figures")?;
    let mut values = serde_json::Deserializer::from_str(&output[start..]).into_iter::<Value>();
    let report = values
        .next()
        .and_then(Result::ok)
        .ok_or("fio's figures cannot be read")?;
    let jobs = report["jobs"].as_array().ok_or("fio ran no jobs")?;
    let mut said = Said::default();
    let mut milliseconds = 0;
    for job in jobs {
        if let Some(error) = job["error"].as_i64().filter(|error| *error != 0) {
            return Err(format!(
                "fio: {}",
                std::io::Error::from_raw_os_error(error as i32)
            ));
        }
        for direction in ["read", "write"] {
            let part = &job[direction];
            said.bytes += part["io_bytes"].as_u64().unwrap_or(0);
            said.operations += part["total_ios"].as_u64().unwrap_or(0);
            milliseconds = milliseconds.max(part["runtime"].as_u64().unwrap_or(0));
            let whole = &part["lat_ns"]["percentile"];
            let completion = &part["clat_ns"]["percentile"];
            let percentiles = if whole.is_object() { whole } else { completion };
            merge(&mut said.latency_seconds, percentiles);
        }
    }
    said.seconds = Some(milliseconds as f64 / 1e3);
    Ok(said)
}

/// The slower of reads and writes stands for both.
fn merge(latencies: &mut BTreeMap<String, f64>, percentiles: &Value) {
    let Some(percentiles) = percentiles.as_object() else {
        return;
    };
    for (name, value) in percentiles {
        let (Ok(name), Some(value)) = (name.parse::<f64>(), value.as_f64()) else {
            continue;
        };
        let kept = percentile::KEPT
            .iter()
            .find(|(_, fraction)| (fraction * 100.0 - name).abs() < 1e-6);
        if let Some((kept, _)) = kept {
            let seconds = latencies.entry((*kept).to_owned()).or_insert(0.0);
            *seconds = seconds.max(value / NANOSECONDS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OUTPUT: &str = r#"note: both iodepth >= 1 and synchronous I/O engine are selected
{ "fio version" : "fio-3.33", "jobs" : [ { "jobname" : "x", "error" : 0,
  "read" : { "io_bytes" : 0, "runtime" : 0, "total_ios" : 0, "clat_ns" : { "min" : 0 } },
  "write" : { "io_bytes" : 16777216, "runtime" : 1300, "total_ios" : 16, "clat_ns" : {
    "percentile" : { "1.000000" : 456704, "50.000000" : 505856, "99.000000" : 2113536,
      "99.900000" : 2200000 } } } } ] }
"#;

    #[test]
    fn figures_are_read_behind_notes() {
        let said = parse(OUTPUT).expect("figures");
        assert_eq!(
            (said.bytes, said.operations, said.seconds),
            (16 << 20, 16, Some(1.3))
        );
        assert_eq!(said.latency_seconds.len(), 3);
        assert!((said.latency_seconds["99"] - 0.002_113_536).abs() < 1e-12);
    }

    #[test]
    fn the_whole_time_of_an_operation_is_preferred() {
        let whole = "\"lat_ns\" : { \"percentile\" : { \"50.000000\" : 7000000 } }, \"clat_ns\"";
        let said = parse(&OUTPUT.replace("\"clat_ns\"", whole)).expect("figures");
        assert_eq!(said.latency_seconds.len(), 1);
        assert!((said.latency_seconds["50"] - 0.007).abs() < 1e-12);
    }

    #[test]
    fn an_error_of_a_job_is_a_failure() {
        let output = OUTPUT.replace("\"error\" : 0", "\"error\" : 5");
        assert!(
            parse(&output)
                .expect_err("failed")
                .contains("Input/output error")
        );
        assert!(parse("fio: no such option").is_err());
    }

    proptest! {
        #[test]
        fn no_output_is_too_strange(text in ".{0,200}", cut in 0_usize..500) {
            let _ = parse(&text);
            let _ = parse(&OUTPUT[..cut.min(OUTPUT.len())]);
        }
    }
}
