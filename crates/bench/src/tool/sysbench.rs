//! sysbench fileio: lines of text, different for `prepare` and `run`.

use std::collections::BTreeMap;

use super::Said;

const MIB: f64 = (1 << 20) as f64;

/// Reads what `prepare` or `run` printed.
pub(super) fn parse(output: &str) -> Result<Said, String> {
    if let Some(line) = output.lines().find(|line| line.starts_with("FATAL:")) {
        return Err(format!(
            "sysbench: {}",
            line.trim_start_matches("FATAL:").trim()
        ));
    }
    prepared(output)
        .or_else(|| ran(output))
        .ok_or_else(|| "sysbench printed no figures".to_owned())
}

/// `16777216 bytes written in 0.21 seconds (74.65 MiB/sec).`
fn prepared(output: &str) -> Option<Said> {
    let line = output
        .lines()
        .find(|line| line.contains(" bytes written in "))?;
    let (bytes, rest) = line.split_once(" bytes written in ")?;
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
    let line = output
        .lines()
        .find_map(|line| line.trim().strip_prefix(name))?;
    line.trim().trim_end_matches('s').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RUN: &str = "File operations:
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
        let said = parse(RUN).expect("figures");
        assert_eq!((said.seconds, said.operations), (Some(2.0), 157_562));
        assert_eq!(said.bytes, 2440 << 20);
        assert!((said.latency_seconds["95"] - 0.000_06).abs() < 1e-12);
    }

    #[test]
    fn preparing_is_read() {
        let said = parse("Creating\n16777216 bytes written in 0.21 seconds (74.65 MiB/sec).\n");
        let said = said.expect("figures");
        assert_eq!((said.seconds, said.bytes), (Some(0.21), 16 << 20));
    }

    #[test]
    fn what_is_fatal_is_a_failure() {
        let text = format!("{RUN}FATAL: Failed to write file! file: 3 errno: 95 (x)\n");
        assert!(parse(&text).expect_err("fatal").contains("errno: 95"));
    }

    proptest! {
        #[test]
        fn no_output_is_too_strange(text in ".{0,200}", cut in 0_usize..500) {
            let _ = parse(&text);
            let _ = parse(&RUN[..cut.min(RUN.len())]);
        }
    }
}
