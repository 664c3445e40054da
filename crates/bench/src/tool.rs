//! What the tools print, read.

use std::collections::BTreeMap;

use crate::{rw_bench, suite::Tool};

mod fio;
mod sysbench;

/// What a tool said about its run; what it does not know stays empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Said {
    /// How long it worked by its own clock.
    pub(crate) seconds: Option<f64>,
    pub(crate) bytes: u64,
    pub(crate) operations: u64,
    pub(crate) latency_seconds: BTreeMap<String, f64>,
}

/// Reads a tool's output.
///
/// # Errors
/// The output is not that tool's, or says that something failed.
pub(crate) fn understand(tool: Tool, output: &str) -> Result<Said, String> {
    match tool {
        Tool::Fio => fio::parse(output),
        Tool::Sysbench => sysbench::parse(output),
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
    let figures: rw_bench::Figures = line
        .and_then(|line| serde_json::from_str(line).ok())
        .ok_or("rw-bench printed no figures")?;
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
