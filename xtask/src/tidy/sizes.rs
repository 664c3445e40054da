//! How long files, functions and parameter lists may be.
//!
//! A reader should hold a file in the head and a function on the screen. The caps are per piece;
//! the medians and percentiles keep the whole from drifting towards the caps.

use std::fmt;

use super::{
    Finding,
    functions::functions,
    tree::{File, Tree},
};

/// Lines of production code in a file.
const FILE_LINES_MAX: usize = 650;
/// Lines in a file of any kind; no exception lifts this one.
const FILE_LINES_HARD_MAX: usize = 900;
/// Lines of tests in a file of production code; more move to a `tests.rs` beside it.
const INLINE_TEST_LINES_MAX: usize = 300;
/// Lines of a function, unless it is a table.
const FUNCTION_LINES_MAX: usize = 70;
/// Parameters of a function besides `self`; more become an options struct.
const PARAMETERS_MAX: usize = 5;
/// Median lines of files and functions, and the 95th percentile of each.
const FILE_MEDIAN_MAX: usize = 200;
const FILE_P95_MAX: usize = FILE_LINES_MAX;
const FUNCTION_MEDIAN_MAX: usize = 8;
const FUNCTION_P95_MAX: usize = 45;

/// Everything that is longer than its cap.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust().flat_map(check_file);
    let functions = tree
        .rust()
        .filter(|file| !file.is_test())
        .flat_map(check_functions);
    files.chain(functions).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let (production, tests) = file.line_counts();
    let whole = production + tests;
    let over = |rule, lines: usize, limit: usize, remedy: &str| {
        (lines > limit).then(|| Finding {
            rule,
            subject: file.path.clone(),
            amount: lines,
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

fn check_functions(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for function in functions(&file.production_code()) {
        let subject = format!("{}::{}", file.path, function.name);
        if function.lines > FUNCTION_LINES_MAX && !function.is_table {
            findings.push(Finding {
                rule: "function-lines",
                subject: subject.clone(),
                amount: function.lines,
                message: format!(
                    "{} lines at line {}, at most {FUNCTION_LINES_MAX}",
                    function.lines, function.line
                ),
            });
        }
        if function.parameters > PARAMETERS_MAX {
            findings.push(Finding {
                rule: "parameters",
                subject,
                amount: function.parameters,
                message: format!(
                    "{} parameters at line {}, at most {PARAMETERS_MAX}: use an options struct",
                    function.parameters, function.line
                ),
            });
        }
    }
    findings
}

/// The distribution of sizes over all production code.
pub(super) struct Statistics {
    files: Distribution,
    functions: Distribution,
    production_lines: usize,
    comment_lines: usize,
    test_lines: usize,
}

impl Statistics {
    /// Measures `tree`.
    pub(super) fn of(tree: &Tree) -> Self {
        let mut statistics = Self {
            files: Distribution::default(),
            functions: Distribution::default(),
            production_lines: 0,
            comment_lines: 0,
            test_lines: 0,
        };
        for file in tree.rust() {
            statistics.add(file);
        }
        statistics.files.sizes.sort_unstable();
        statistics.functions.sizes.sort_unstable();
        statistics
    }

    fn add(&mut self, file: &File) {
        let (production, tests) = file.line_counts();
        if file.is_test() {
            self.test_lines += production + tests;
            return;
        }
        self.production_lines += production;
        self.comment_lines += file.comment_lines();
        self.test_lines += tests;
        self.files.sizes.push(production);
        let lengths = functions(&file.production_code());
        self.functions
            .sizes
            .extend(lengths.iter().map(|function| function.lines));
    }

    /// Whether the whole keeps its shape.
    pub(super) fn check(&self) -> Vec<Finding> {
        let limits = [
            ("file median", self.files.at(50), FILE_MEDIAN_MAX),
            ("file p95", self.files.at(95), FILE_P95_MAX),
            (
                "function median",
                self.functions.at(50),
                FUNCTION_MEDIAN_MAX,
            ),
            ("function p95", self.functions.at(95), FUNCTION_P95_MAX),
        ];
        let broken = limits.into_iter().filter(|(_, size, limit)| size > limit);
        let findings = broken.map(|(what, size, limit)| Finding {
            rule: "shape",
            subject: what.to_owned(),
            amount: size,
            message: format!("{size} lines, at most {limit}"),
        });
        findings.collect()
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "files: {}", self.files)?;
        writeln!(f, "functions: {}", self.functions)?;
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

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_may_have_seventy_lines_and_no_more() {
        assert_eq!(rules("crates/a/src/x.rs", &function_of(70)), [""; 0]);
        assert_eq!(
            rules("crates/a/src/x.rs", &function_of(71)),
            ["function-lines"]
        );
        assert_eq!(rules("crates/a/tests/x.rs", &function_of(71)), [""; 0]);
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
    fn six_parameters_are_too_many() {
        assert_eq!(
            rules(
                "crates/a/src/x.rs",
                "fn f(&self, a: A, b: A, c: A, d: A, e: A) {}"
            ),
            [""; 0]
        );
        assert_eq!(
            rules(
                "crates/a/src/x.rs",
                "fn f(a: A, b: A, c: A, d: A, e: A, g: A) {}"
            ),
            ["parameters"]
        );
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
        let text = function_of(20).repeat(3);
        let tree = Tree::of(&[("crates/a/src/x.rs", &text)]);
        let findings = Statistics::of(&tree).check();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].subject, "function median");
    }
}
