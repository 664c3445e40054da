//! Exceptions to the rules, which may only shrink.
//!
//! Each line of the file is `rule subject amount`, with `#` for comments. A finding with an
//! entry of the same amount is let pass. An entry that allows more than there is must be lowered
//! or deleted, so that what was gained is kept; and the number of entries has a limit in this
//! file, so that a new one is a change to the rules, to be argued for.

use super::Finding;

/// Where exceptions are listed.
pub(super) const EXCEPTIONS_FILE: &str = "xtask/tidy-exceptions.txt";

/// Entries in the file. Lower it with each entry that goes.
const ENTRIES_MAX: usize = 0;

/// Rules without exceptions.
const ABSOLUTE: [&str; 3] = ["file-hard-cap", "layers", "shape"];

struct Entry<'a> {
    rule: &'a str,
    subject: &'a str,
    amount: usize,
}

/// The findings that stay after `exceptions`, with those about the exceptions themselves.
pub(super) fn apply(findings: Vec<Finding>, exceptions: &str) -> Vec<Finding> {
    apply_at_most(findings, exceptions, ENTRIES_MAX)
}

fn apply_at_most(findings: Vec<Finding>, exceptions: &str, entries_max: usize) -> Vec<Finding> {
    let (entries, mut left) = parse(exceptions);
    if entries.len() > entries_max {
        let count = entries.len();
        left.push(complaint(
            "entries",
            format!("{count} entries, at most {entries_max}: mend what you added instead"),
        ));
    }
    left.extend(entries.iter().filter_map(|entry| stale(entry, &findings)));
    let is_excepted = |finding: &Finding| {
        entries
            .iter()
            .any(|entry| entry.is_about(finding) && finding.amount <= entry.amount)
    };
    left.extend(findings.into_iter().filter(|finding| !is_excepted(finding)));
    left
}

impl Entry<'_> {
    fn is_about(&self, finding: &Finding) -> bool {
        self.rule == finding.rule && self.subject == finding.subject
    }
}

/// What is wrong with an entry that allows more than it must.
fn stale(entry: &Entry<'_>, findings: &[Finding]) -> Option<Finding> {
    let needed = findings
        .iter()
        .filter(|finding| entry.is_about(finding))
        .map(|finding| finding.amount)
        .max();
    let advice = match needed {
        None => "no longer needed: delete the line".to_owned(),
        Some(amount) if amount < entry.amount => format!("now {amount}: lower the entry"),
        Some(_) => return None,
    };
    Some(complaint(entry.subject, advice))
}

fn parse(text: &str) -> (Vec<Entry<'_>>, Vec<Finding>) {
    let mut entries = Vec::new();
    let mut complaints = Vec::new();
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match parse_entry(line) {
            Some(entry) if ABSOLUTE.contains(&entry.rule) => {
                complaints.push(complaint(line, "this rule has no exceptions".to_owned()));
            }
            Some(entry) => entries.push(entry),
            None => complaints.push(complaint(line, "is not `rule subject amount`".to_owned())),
        }
    }
    (entries, complaints)
}

fn parse_entry(line: &str) -> Option<Entry<'_>> {
    let mut words = line.split_whitespace();
    let (rule, subject) = (words.next()?, words.next()?);
    let amount = words.next()?.parse().ok()?;
    words.next().is_none().then_some(Entry {
        rule,
        subject,
        amount,
    })
}

fn complaint(subject: &str, message: String) -> Finding {
    Finding {
        rule: "exceptions",
        subject: format!("{EXCEPTIONS_FILE}: {subject}"),
        amount: 1,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(amount: usize) -> Vec<Finding> {
        vec![Finding {
            rule: "function-lines",
            subject: "a.rs::f".to_owned(),
            amount,
            message: String::new(),
        }]
    }

    fn left(findings: Vec<Finding>, exceptions: &str) -> Vec<&'static str> {
        apply_at_most(findings, exceptions, 1)
            .iter()
            .map(|finding| finding.rule)
            .collect()
    }

    #[test]
    fn an_exact_entry_lets_a_finding_pass() {
        assert_eq!(left(long(80), "function-lines a.rs::f 80"), [""; 0]);
    }

    #[test]
    fn growth_beyond_the_entry_is_found() {
        assert_eq!(
            left(long(81), "function-lines a.rs::f 80"),
            ["function-lines"]
        );
    }

    #[test]
    fn what_was_gained_must_be_kept() {
        assert_eq!(left(long(75), "function-lines a.rs::f 80"), ["exceptions"]);
        assert_eq!(left(vec![], "function-lines a.rs::f 80"), ["exceptions"]);
    }

    #[test]
    fn a_new_entry_is_an_entry_too_many() {
        let two = "function-lines a.rs::f 80\n# why\nerrno b.rs 1\n";
        let mut findings = long(80);
        findings.push(Finding {
            rule: "errno",
            subject: "b.rs".to_owned(),
            amount: 1,
            message: String::new(),
        });
        assert_eq!(left(findings, two), ["exceptions"]);
    }

    #[test]
    fn layers_and_malformed_lines_are_refused() {
        assert_eq!(left(vec![], "layers a 1"), ["exceptions"]);
        assert_eq!(left(vec![], "function-lines a.rs::f"), ["exceptions"]);
    }
}
