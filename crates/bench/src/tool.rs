//! What the tools print, read: fio's JSON, the lines of sysbench, which differ for `prepare` and `run`, those of our
//! rw-bench, and listings.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{load::Figures, suite::Tool};

/// The percentiles that are kept, by their names.
const KEPT: [(&str, f64); 4] = [("50", 0.5), ("95", 0.95), ("99", 0.99), ("99.9", 0.999)];
const NANOSECONDS: f64 = 1e9;
const MIB: f64 = (1 << 20) as f64;

/// What a tool said about its run; what it does not know stays empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Said {
    /// How long it worked by its own clock.
    pub(crate) seconds: Option<f64>,
    pub(crate) bytes: u64,
    pub(crate) operations: u64,
    pub(crate) latency_seconds: BTreeMap<String, f64>,
}

/// Reads a tool's output, which may say that something failed.
pub(crate) fn understand(tool: Tool, output: &str) -> Result<Said, String> {
    match tool {
        Tool::Fio => parse_fio(output),
        Tool::Sysbench => parse_sysbench(output),
        Tool::RwBench => parse_rw_bench(output),
        Tool::Lines => Ok(Said {
            operations: lines(output),
            ..Said::default()
        }),
        Tool::Objects => Ok(Said {
            operations: objects(output).ok_or("it does not say how many objects it has found")?,
            ..Said::default()
        }),
        Tool::Plain => Ok(Said::default()),
    }
}

/// Arguments that make a tool print what can be read, and with libaio the whole time of an
/// operation: a file system that is not asynchronous works while it is submitted. The source's
/// command is left as it is otherwise.
pub(crate) fn arguments(tool: Tool) -> &'static [&'static str] {
    match tool {
        Tool::Fio => &["--output-format=json", "--lat_percentiles=1"],
        _ => &[],
    }
}

fn parse_rw_bench(output: &str) -> Result<Said, String> {
    let line = output.lines().rev().find(|line| line.starts_with('{'));
    let figures = line.and_then(|line| serde_json::from_str(line).ok());
    let figures: Figures = figures.ok_or("rw-bench printed no figures")?;
    if figures.failed > 0 {
        return Err(format!("{} files failed", figures.failed));
    }
    Ok(Said {
        seconds: Some(figures.seconds),
        bytes: figures.bytes,
        operations: figures.files,
        latency_seconds: figures.latency_seconds,
    })
}

/// Entries of a listing; `ls -l` begins with a total.
fn lines(output: &str) -> u64 {
    let is_entry = |line: &&str| !line.is_empty() && !line.starts_with("total ");
    output.lines().filter(is_entry).count() as u64
}

/// The number before the word `objects`.
fn objects(output: &str) -> Option<u64> {
    let words: Vec<&str> = output.split_whitespace().collect();
    let is_word =
        |word: &str| word.trim_matches(|letter: char| !letter.is_alphabetic()) == "objects";
    let mut pairs = words.windows(2).filter(|pair| is_word(pair[1]));
    pairs.find_map(|pair| pair[0].replace(',', "").parse().ok())
}

/// Reads the JSON, which warnings may stand before. Reads and writes of all jobs are added.
fn parse_fio(output: &str) -> Result<Said, String> {
    let start = output.find('{').ok_or("fio printed no figures")?;
    let mut values = serde_json::Deserializer::from_str(&output[start..]).into_iter::<Value>();
    let report = values.next().and_then(Result::ok);
    let report = report.ok_or("fio's figures cannot be read")?;
    let jobs = report["jobs"].as_array().ok_or("fio ran no jobs")?;
    let mut said = Said::default();
    let mut milliseconds = 0;
    for job in jobs {
        if let Some(error) = job["error"].as_i64().filter(|error| *error != 0) {
            let error = std::io::Error::from_raw_os_error(error as i32);
            return Err(format!("fio: {error}"));
        }
        for part in [&job["read"], &job["write"]] {
            said.bytes += part["io_bytes"].as_u64().unwrap_or(0);
            said.operations += part["total_ios"].as_u64().unwrap_or(0);
            milliseconds = milliseconds.max(part["runtime"].as_u64().unwrap_or(0));
            let whole = &part["lat_ns"]["percentile"];
            let completion = &part["clat_ns"]["percentile"];
            let percentiles = if whole.is_object() { whole } else { completion };
            for (name, fraction) in KEPT {
                let value = percentiles[format!("{:.6}", fraction * 100.0)].as_f64();
                // The slower of reads and writes stands for both.
                let known = said.latency_seconds.get(name).copied().unwrap_or(0.0);
                let slower = value.map(|value| known.max(value / NANOSECONDS));
                said.latency_seconds
                    .extend(slower.map(|slower| (name.to_owned(), slower)));
            }
        }
    }
    said.seconds = Some(milliseconds as f64 / 1e3);
    Ok(said)
}

/// Reads what `prepare` or `run` printed.
fn parse_sysbench(output: &str) -> Result<Said, String> {
    if let Some(why) = output.lines().find_map(|line| line.strip_prefix("FATAL:")) {
        return Err(format!("sysbench: {}", why.trim()));
    }
    let said = prepared(output).or_else(|| ran(output));
    said.ok_or_else(|| "sysbench printed no figures".to_owned())
}

/// `16777216 bytes written in 0.21 seconds (74.65 MiB/sec).`
fn prepared(output: &str) -> Option<Said> {
    let mut lines = output.lines();
    let (bytes, rest) = lines.find_map(|line| line.split_once(" bytes written in "))?;
    Some(Said {
        seconds: rest.split(' ').next()?.parse().ok(),
        bytes: bytes.trim().parse().ok()?,
        ..Said::default()
    })
}

fn ran(output: &str) -> Option<Said> {
    let seconds = number(output, "total time:")?;
    let rate = |name| number(output, name).unwrap_or(0.0);
    let moved = (rate("read, MiB/s:") + rate("written, MiB/s:")) * MIB * seconds;
    let latency = number(output, "95th percentile:");
    let latency = latency.map(|milliseconds| ("95".to_owned(), milliseconds / 1e3));
    Some(Said {
        seconds: Some(seconds),
        bytes: moved.round() as u64,
        operations: number(output, "total number of events:")? as u64,
        latency_seconds: BTreeMap::from_iter(latency),
    })
}

/// The number behind a name; its unit may follow at once.
fn number(output: &str, name: &str) -> Option<f64> {
    let mut lines = output.lines();
    let value = lines.find_map(|line| line.trim().strip_prefix(name))?;
    value.trim().trim_end_matches('s').parse().ok()
}

/// The kept percentiles of `values`, which get sorted; nothing of nothing.
pub(crate) fn percentiles(values: &mut [f64]) -> BTreeMap<String, f64> {
    values.sort_by(f64::total_cmp);
    let at = |fraction| nearest_rank(values, fraction);
    let kept = KEPT.into_iter();
    kept.filter_map(|(name, fraction)| Some((name.to_owned(), at(fraction)?)))
        .collect()
}

/// The smallest value that at least this fraction of the sorted values does not exceed.
fn nearest_rank(sorted: &[f64], fraction: f64) -> Option<f64> {
    let rank = (fraction * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_are_counted_without_the_total() {
        let said = understand(Tool::Lines, "total 8\n-rw a\n-rw b\n").expect("lines");
        assert_eq!(said.operations, 2);
    }

    #[test]
    fn objects_are_counted_by_who_found_them() {
        let text = "/c/objects: 12,000 objects, 1.1GiB, in 12 directories; the image has 2MiB";
        let said = understand(Tool::Objects, text).expect("a number");
        assert_eq!(said.operations, 12_000);
        assert!(understand(Tool::Objects, "no objects").is_err());
    }

    #[test]
    fn rw_bench_that_failed_is_a_failure() {
        let line = r#"{"seconds":1.5,"bytes":10,"files":1,"failed":1,"latency_seconds":{}}"#;
        assert_eq!(
            understand(Tool::RwBench, line),
            Err("1 files failed".to_owned())
        );
        let good = line.replace("\"failed\":1", "\"failed\":0");
        let said = understand(Tool::RwBench, &format!("Total time\n{good}\n")).expect("figures");
        assert_eq!((said.seconds, said.bytes), (Some(1.5), 10));
        assert!(understand(Tool::RwBench, "nothing").is_err());
    }

    const FIO: &str = r#"note: both iodepth >= 1 and synchronous I/O engine are selected
{ "fio version" : "fio-3.33", "jobs" : [ { "jobname" : "x", "error" : 0,
  "read" : { "io_bytes" : 0, "runtime" : 0, "total_ios" : 0, "clat_ns" : { "min" : 0 } },
  "write" : { "io_bytes" : 16777216, "runtime" : 1300, "total_ios" : 16, "clat_ns" : {
    "percentile" : { "1.000000" : 456704, "50.000000" : 505856, "99.000000" : 2113536,
      "99.900000" : 2200000 } } } } ] }
"#;

    #[test]
    fn figures_are_read_behind_notes() {
        let said = parse_fio(FIO).expect("figures");
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
        let said = parse_fio(&FIO.replace("\"clat_ns\"", whole)).expect("figures");
        assert_eq!(said.latency_seconds.len(), 1);
        assert!((said.latency_seconds["50"] - 0.007).abs() < 1e-12);
    }

    #[test]
    fn an_error_of_a_job_is_a_failure() {
        let output = FIO.replace("\"error\" : 0", "\"error\" : 5");
        assert!(
            parse_fio(&output)
                .expect_err("failed")
                .contains("Input/output error")
        );
        assert!(parse_fio("fio: no such option").is_err());
    }

    proptest! {
        #[test]
        fn no_output_of_fio_is_too_strange(text in ".{0,200}", cut in 0_usize..500) {
            let _ = parse_fio(&text);
            let _ = parse_fio(&FIO[..cut.min(FIO.len())]);
        }
    }

    const SYSBENCH: &str = "File operations:
    reads/s:                      46849.91
    writes/s:                     31233.44

Throughput:
    read, MiB/s:                  732.00
    written, MiB/s:               488.00

General statistics:
    total time:                          2.0000s
    total number of events:              157562

Latency (ms):
         avg:                                    0.03
         95th percentile:                        0.06
";

    #[test]
    fn a_run_is_read() {
        let said = parse_sysbench(SYSBENCH).expect("figures");
        assert_eq!((said.seconds, said.operations), (Some(2.0), 157_562));
        assert_eq!(said.bytes, 2440 << 20);
        assert!((said.latency_seconds["95"] - 0.000_06).abs() < 1e-12);
    }

    #[test]
    fn preparing_is_read() {
        let said =
            parse_sysbench("Creating\n16777216 bytes written in 0.21 seconds (74.65 MiB/sec).\n");
        let said = said.expect("figures");
        assert_eq!((said.seconds, said.bytes), (Some(0.21), 16 << 20));
    }

    #[test]
    fn what_is_fatal_is_a_failure() {
        let text = format!("{SYSBENCH}FATAL: Failed to write file! file: 3 errno: 95 (x)\n");
        assert!(
            parse_sysbench(&text)
                .expect_err("fatal")
                .contains("errno: 95")
        );
    }

    proptest! {
        #[test]
        fn no_output_of_sysbench_is_too_strange(text in ".{0,200}", cut in 0_usize..500) {
            let _ = parse_sysbench(&text);
            let _ = parse_sysbench(&SYSBENCH[..cut.min(SYSBENCH.len())]);
        }
    }

    #[test]
    fn nearest_rank_of_a_hundred() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let table = percentiles(&mut values);
        assert_eq!(
            (table["50"], table["95"], table["99"], table["99.9"]),
            (50.0, 95.0, 99.0, 100.0)
        );
        assert!(percentiles(&mut []).is_empty());
    }
}
