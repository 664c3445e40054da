//! How long files may be.
//!
//! A reader should hold a file in the head. The caps are per file; median and percentile keep the whole
//! from drifting towards them.

use std::fmt;

use super::{
    Finding,
    tree::{File, Tree, is_comment},
};

/// Lines of production code in a file.
const FILE_LINES_MAX: usize = 650;
/// Lines in a file of any kind; no exception lifts this one.
const FILE_LINES_HARD_MAX: usize = 900;
/// Lines of tests in a file of production code; more move to a `tests.rs` beside it.
const INLINE_TEST_LINES_MAX: usize = 300;
/// Median lines of files.
const FILE_MEDIAN_MAX: usize = 200;
/// The 95th percentile of the lines of files.
const FILE_P95_MAX: usize = FILE_LINES_MAX;

/// Everything that is longer than its cap.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let whole = file.text.lines().count();
    let production = file.production().len();
    let tests = whole - production;
    let over = |rule, lines: usize, limit: usize, remedy: &str| {
        (lines > limit).then(|| Finding {
            rule,
            subject: file.path.clone(),
            message: format!("{lines} lines, at most {limit}: {remedy}"),
        })
    };
    let mut findings = vec![over(
        "file-hard-cap",
        whole,
        FILE_LINES_HARD_MAX,
        "split it",
    )];
    if !file.is_test() {
        findings.push(over("file-lines", production, FILE_LINES_MAX, "split it"));
        let remedy = "move the tests to a tests.rs beside it";
        findings.push(over("inline-tests", tests, INLINE_TEST_LINES_MAX, remedy));
    }
    findings.into_iter().flatten().collect()
}

/// The distribution of sizes over all production code.
pub(super) struct Statistics {
    files: Distribution,
    production_lines: usize,
    comment_lines: usize,
    test_lines: usize,
}

impl Statistics {
    /// Measures `tree`.
    pub(super) fn of(tree: &Tree) -> Self {
        let mut statistics = Self {
            files: Distribution::default(),
            production_lines: 0,
            comment_lines: 0,
            test_lines: 0,
        };
        for file in tree.rust() {
            statistics.add(file);
        }
        statistics.files.sizes.sort_unstable();
        statistics
    }

    fn add(&mut self, file: &File) {
        let whole = file.text.lines().count();
        if file.is_test() {
            self.test_lines += whole;
            return;
        }
        let production = file.production();
        let comments = production.iter().filter(|(_, line)| is_comment(line));
        self.comment_lines += comments.count();
        self.production_lines += production.len();
        self.test_lines += whole - production.len();
        self.files.sizes.push(production.len());
    }

    /// Whether the whole keeps its shape.
    pub(super) fn check(&self) -> Vec<Finding> {
        let limits = [
            ("file median", self.files.at(50), FILE_MEDIAN_MAX),
            ("file p95", self.files.at(95), FILE_P95_MAX),
        ];
        let broken = limits.into_iter().filter(|(_, size, limit)| size > limit);
        let findings = broken.map(|(what, size, limit)| Finding {
            rule: "shape",
            subject: what.to_owned(),
            message: format!("{size} lines, at most {limit}"),
        });
        findings.collect()
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "files: {}", self.files)?;
        let all = (self.production_lines + self.test_lines).max(1);
        writeln!(
            f,
            "lines: {} production ({} % comments), {} tests ({} % of all)",
            self.production_lines,
            self.comment_lines * 100 / self.production_lines.max(1),
            self.test_lines,
            self.test_lines * 100 / all
        )
    }
}

/// Sizes in ascending order.
#[derive(Default)]
struct Distribution {
    sizes: Vec<usize>,
}

impl Distribution {
    /// The size that `percent` of the members do not exceed.
    fn at(&self, percent: usize) -> usize {
        let rank = (self.sizes.len() * percent).div_ceil(100).max(1);
        self.sizes.get(rank - 1).copied().unwrap_or(0)
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, lines median {} / p95 {} / p99 {} / max {}",
            self.sizes.len(),
            self.at(50),
            self.at(95),
            self.at(99),
            self.at(100)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        let tree = Tree::of(&[(path, text)]);
        check(&tree).iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn files_have_a_cap_for_production_and_one_for_all() {
        let lines = |count| "const A: u8 = 1;\n".repeat(count);
        assert_eq!(rules("crates/a/src/x.rs", &lines(650)), [""; 0]);
        assert_eq!(rules("crates/a/src/x.rs", &lines(651)), ["file-lines"]);
        assert_eq!(rules("crates/a/tests/x.rs", &lines(651)), [""; 0]);
        assert_eq!(rules("crates/a/tests/x.rs", &lines(901)), ["file-hard-cap"]);
    }

    #[test]
    fn long_inline_tests_must_move() {
        let text = format!(
            "#[cfg(test)]\nmod tests {{\n{}}}\n",
            "    const A: u8 = 1;\n".repeat(300)
        );
        assert_eq!(rules("crates/a/src/x.rs", &text), ["inline-tests"]);
    }

    #[test]
    fn percentiles_are_members() {
        let distribution = Distribution {
            sizes: (1..=100).collect(),
        };
        assert_eq!((distribution.at(50), distribution.at(95)), (50, 95));
        assert_eq!(Distribution::default().at(50), 0);
    }

    #[test]
    fn a_median_above_the_target_is_found() {
        let text = "const A: u8 = 1;\n".repeat(201);
        let tree = Tree::of(&[("crates/a/src/x.rs", &text)]);
        let findings = Statistics::of(&tree).check();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].subject, "file median");
    }
}
