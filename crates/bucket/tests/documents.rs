//! The documents of semantics name a test in every row, and the tests exist.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

/// A row of a table: its cells, and the heads of their columns.
struct Row {
    line: usize,
    heads: Vec<String>,
    cells: Vec<String>,
}

impl Row {
    fn cell(&self, head: &str) -> &str {
        let index = self.heads.iter().position(|other| other == head);
        index
            .and_then(|index| self.cells.get(index))
            .map_or("", String::as_str)
    }
}

fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    crates.canonicalize().expect("the workspace exists")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("the file exists")
}

/// The rows of all tables of a document.
fn rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut heads: Option<Vec<String>> = None;
    for (number, line) in text.lines().enumerate() {
        let Some(inner) = line.strip_prefix('|') else {
            heads = None;
            continue;
        };
        let inner = inner
            .strip_suffix('|')
            .expect("a table row ends with a bar");
        let cells: Vec<String> = inner
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect();
        match &heads {
            None => heads = Some(cells),
            Some(_) if cells.iter().all(|cell| cell.starts_with("---")) => {}
            Some(heads) => rows.push(Row {
                line: number + 1,
                heads: heads.clone(),
                cells,
            }),
        }
    }
    rows
}

fn unquoted(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`')
}

/// Names of all functions in test code and in crates' sources.
fn functions() -> HashSet<String> {
    let mut names = HashSet::new();
    let mut folders = vec![root().join("crates"), root().join("tests")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for path in entries.map(|entry| entry.expect("readable").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                collect(&fs::read_to_string(&path).expect("readable"), &mut names);
            }
        }
    }
    names
}

/// Functions that a test attribute stands before, and those that are a test for each engine.
fn collect(source: &str, names: &mut HashSet<String>) {
    let (mut is_test, mut is_list) = (false, false);
    for line in source.lines().map(str::trim) {
        is_list |=
            line.starts_with("on_") && line.ends_with("!(") || line.starts_with("on_each_engine!(");
        if is_list {
            let words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            names.extend(words.map(str::to_owned));
            is_list = !line.ends_with(");");
            continue;
        }
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.contains("::test");
            continue;
        }
        let function = line
            .strip_prefix("async ")
            .unwrap_or(line)
            .strip_prefix("fn ");
        if let (true, Some(function)) = (is_test, function) {
            names.extend(function.split(['(', '<']).next().map(str::to_owned));
        }
        is_test = false;
    }
}

fn check(document: &str, rows_min: usize) {
    let known = functions();
    let rows = rows(&read(document));
    assert!(
        rows.len() >= rows_min,
        "{document}: only {} rows were found",
        rows.len()
    );
    for row in &rows {
        let line = row.line;
        assert_eq!(
            row.cells.len(),
            row.heads.len(),
            "{document}:{line}: cells do not match"
        );
        assert_eq!(
            row.heads.last().map(String::as_str),
            Some("Test"),
            "{document}:{line}"
        );
        for test in row.cell("Test").split(", ") {
            let test = unquoted(test).unwrap_or_default();
            assert!(!test.is_empty(), "{document}:{line}: the row names no test");
            assert!(
                known.contains(test),
                "{document}:{line}: there is no test `{test}`"
            );
        }
    }
}

#[test]
fn every_row_of_the_bucket_document_has_a_test() {
    check("docs/semantics/bucket.md", 120);
}

#[test]
fn the_bucket_document_has_a_section_on_kept_metadata() {
    let text = read("docs/semantics/bucket.md");
    let section = text
        .split("## ")
        .find(|part| part.starts_with("Kept metadata"));
    let section = section.expect("the section exists");
    assert!(rows(section).len() >= 35, "rows are missing");
}

#[test]
fn every_row_of_the_fileset_document_has_a_test() {
    check("docs/semantics/fileset.md", 34);
}

#[test]
fn every_row_of_the_stream_document_has_a_test() {
    check("docs/semantics/stream.md", 35);
}

#[test]
fn every_row_of_the_nfs_document_has_a_test() {
    check("docs/semantics/nfs.md", 45);
}

#[test]
fn every_row_of_the_errno_document_has_a_test() {
    check("docs/semantics/errno.md", 35);
}

/// The door's match is the truth; the document must say the same, for every error.
#[test]
fn every_error_has_the_errno_of_the_table() {
    let door = read("crates/fuse/src/errno.rs");
    let mut expected = HashSet::new();
    for line in door.lines().filter(|line| line.contains("=> libc::")) {
        let (errors, errno) = line.split_once("=> libc::").expect("filtered for it");
        let errors = errors
            .split('|')
            .filter_map(|error| error.trim().strip_prefix("FsError::"));
        for error in errors {
            let error = error.split('(').next().expect("split has a first item");
            expected.insert((error.to_owned(), errno.trim_end_matches(',').to_owned()));
        }
    }
    let rows = rows(&read("docs/semantics/errno.md"));
    let pair = |row: &Row| {
        let (error, errno) = (
            unquoted(row.cell("`FsError`"))?,
            unquoted(row.cell("errno"))?,
        );
        Some((error.to_owned(), errno.to_owned()))
    };
    let documented: HashSet<_> = rows.iter().filter_map(pair).collect();
    assert!(expected.len() > 20, "the door's table was not found");
    let invented: Vec<_> = documented.difference(&expected).collect();
    assert!(invented.is_empty(), "the door does not say {invented:?}");
    let missing: Vec<_> = expected.difference(&documented).collect();
    assert!(missing.is_empty(), "the document does not say {missing:?}");
}
