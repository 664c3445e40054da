//! What the compiler and clippy do not check.
//!
//! Each rule is a module with one function that takes the tree and returns [`Finding`]s:
//!
//! - [`layers`]: which crate may depend on which.
//! - [`sizes`]: how long files may be.
//! - [`prose`]: module heads, unfinished work, words of a workplace, the change log.
//! - [`errno`]: who may name the numbers of a protocol.
//! - [`links`]: links between documents lead somewhere.
//!
//! Rules look at files that git knows ([`tree`]), as `cargo fmt` has laid them out. How long functions and
//! lists of parameters may be is clippy's to say (`clippy.toml`).

mod errno;
mod layers;
mod links;
mod prose;
mod sizes;
mod tree;

use std::{fmt, path::Path};

use tree::Tree;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    /// The rule's name.
    rule: &'static str,
    /// What it is about: a path, or the whole.
    subject: String,
    /// What is wrong and what to do, in one line.
    message: String,
}

/// The outcome of all rules.
pub(crate) struct Report {
    findings: Vec<Finding>,
    statistics: sizes::Statistics,
}

impl Report {
    /// Whether nothing was found.
    pub(crate) fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(
                f,
                "{}: {}: {}",
                finding.rule, finding.subject, finding.message
            )?;
        }
        write!(f, "{}", self.statistics)?;
        match self.findings.len() {
            0 => writeln!(f, "tidy: clean"),
            count => writeln!(f, "tidy: {count} findings"),
        }
    }
}

/// Runs every rule on the repository at `root`.
pub(crate) fn check(root: &Path) -> Result<Report, String> {
    let tree = Tree::read(root)?;
    let statistics = sizes::Statistics::of(&tree);
    let findings = [
        layers::check(root)?,
        sizes::check(&tree),
        statistics.check(),
        prose::check(&tree),
        errno::check(&tree),
        links::check(&tree, root),
    ]
    .concat();
    Ok(Report {
        findings,
        statistics,
    })
}
