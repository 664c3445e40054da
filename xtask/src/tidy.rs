//! What the compiler and clippy do not check.
//!
//! Each rule is a module with one function that takes the tree and returns [`Finding`]s:
//!
//! - [`layers`]: which crate may depend on which.
//! - [`sizes`]: how long files, functions and parameter lists may be.
//! - [`prose`]: module heads, unfinished work, words of a workplace, the change log.
//! - [`errno`]: who may name the numbers of a protocol.
//! - [`links`]: links between documents lead somewhere.
//!
//! Rules look at files that git knows ([`tree`]), with comments and strings blanked where code
//! is meant ([`lexer`]). A finding that cannot be mended today goes into `tidy-exceptions.txt`,
//! which may only shrink ([`ratchet`]).

mod errno;
mod functions;
mod layers;
mod lexer;
mod links;
mod prose;
mod ratchet;
mod sizes;
mod tree;

use std::{fmt, path::Path};

use tree::Tree;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    /// The rule's name, as the exceptions file spells it.
    rule: &'static str,
    /// What it is about: a path, or `path::function`.
    subject: String,
    /// How much, for rules that measure; 1 for the others.
    amount: usize,
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
    let exceptions = tree.text(ratchet::EXCEPTIONS_FILE).unwrap_or_default();
    Ok(Report {
        findings: ratchet::apply(findings, exceptions),
        statistics,
    })
}
