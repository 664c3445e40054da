//! What is written beside the code: heads, leftovers, words, the change log.

use super::{
    Finding,
    tree::{File, Tree, line_of},
};

/// Lines of the `//!` text at the top of a file.
const HEAD_LINES_MAX: usize = 40;

/// Marks of work that was left lying. Written apart, so that this file does not match itself.
const UNFINISHED: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("todo", "!("),
    concat!("unimple", "mented!("),
    concat!("#[ign", "ore"),
];

/// Words of one machine or one company's network; the project must make sense anywhere.
const WORKPLACE: [&str; 5] = [
    concat!("/wo", "rk/"),
    concat!("/fa", "rm/"),
    concat!("index.crates", ".io"),
    concat!("proxy.golang", ".org"),
    concat!("files.python", "hosted"),
];

/// Runs every rule about prose.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let heads = tree.rust().filter_map(check_head);
    let leftovers = tree
        .rust()
        .flat_map(|file| check_words(file, "unfinished", &UNFINISHED));
    let words = tree
        .files()
        .filter(|file| file.path != "Cargo.lock")
        .flat_map(|file| check_words(file, "workplace", &WORKPLACE));
    heads
        .chain(leftovers)
        .chain(words)
        .chain(check_change_log(tree))
        .collect()
}

/// Each file begins by teaching its design; files of unit tests are explained by their subject.
fn check_head(file: &File) -> Option<Finding> {
    if file.path.ends_with("/tests.rs") || file.path.ends_with("build.rs") {
        return None;
    }
    let lines = file
        .text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .count();
    let message = match lines {
        0 => "begins without `//!`: say what this file is and why it is so".to_owned(),
        1..=HEAD_LINES_MAX => return None,
        _ => format!("a head of {lines} lines, at most {HEAD_LINES_MAX}: move it to docs/"),
    };
    Some(finding("head", file, message))
}

fn check_words(file: &File, rule: &'static str, words: &[&str]) -> Vec<Finding> {
    let found = words.iter().filter_map(|word| {
        let offset = file.text.find(word)?;
        let line = line_of(&file.text, offset);
        Some(finding(rule, file, format!("`{word}` at line {line}")))
    });
    found.collect()
}

fn check_change_log(tree: &Tree) -> Option<Finding> {
    const PATH: &str = "CHANGELOG.md";
    let has_section = tree
        .text(PATH)
        .is_some_and(|text| text.lines().any(|line| line.starts_with("## Unreleased")));
    (!has_section).then(|| Finding {
        rule: "change-log",
        subject: PATH.to_owned(),
        message: "has no section `## Unreleased`".to_owned(),
    })
}

fn finding(rule: &'static str, file: &File, message: String) -> Finding {
    Finding {
        rule,
        subject: file.path.clone(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: (&str, &str) = ("CHANGELOG.md", "# Changes\n\n## Unreleased\n");

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        let tree = Tree::of(&[LOG, (path, text)]);
        check(&tree).iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn every_file_begins_with_a_head() {
        assert_eq!(rules("crates/a/src/x.rs", "//! Why.\n"), [""; 0]);
        assert_eq!(rules("crates/a/src/x.rs", "use std::fs;\n"), ["head"]);
        assert_eq!(
            rules("crates/a/src/x.rs", &"//! Why.\n".repeat(41)),
            ["head"]
        );
        assert_eq!(rules("crates/a/src/x/tests.rs", "use super::*;\n"), [""; 0]);
    }

    #[test]
    fn nothing_is_left_lying() {
        for word in UNFINISHED {
            let text = format!("//! Why.\n// {word}\n");
            assert_eq!(rules("crates/a/src/x.rs", &text), ["unfinished"], "{word}");
        }
    }

    #[test]
    fn the_project_speaks_of_itself_alone() {
        for word in WORKPLACE {
            assert_eq!(rules("docs/a.md", word), ["workplace"], "{word}");
        }
    }

    #[test]
    fn the_change_log_has_a_place_for_the_next_change() {
        let tree = Tree::of(&[("CHANGELOG.md", "# Changes\n")]);
        assert_eq!(check(&tree)[0].rule, "change-log");
    }
}
