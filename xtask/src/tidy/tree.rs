//! The files that rules look at.

use std::{fs, path::Path, process::Command};

/// What stands above an inline test module.
const TEST_MARK: &str = "#[cfg(test)]";

/// Every text file that git knows, or would if it were added now.
pub(super) struct Tree {
    files: Vec<File>,
}

/// A text file.
pub(super) struct File {
    /// Its path from the root, with `/`.
    pub(super) path: String,
    /// What it says.
    pub(super) text: String,
}

impl Tree {
    /// Reads the tree at `root`. Files that are no text are left out.
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let output = Command::new("git")
            .current_dir(root)
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .output()
            .map_err(|error| format!("cannot run git: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let mut paths: Vec<_> = String::from_utf8_lossy(&output.stdout)
            .split('\0')
            .filter(|path| !path.is_empty())
            .map(str::to_owned)
            .collect();
        paths.sort();
        paths.dedup();
        let files = paths.into_iter().filter_map(|path| {
            let text = fs::read_to_string(root.join(&path)).ok()?;
            Some(File { path, text })
        });
        Ok(Self {
            files: files.collect(),
        })
    }

    /// A tree made up of `files`, for tests.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        });
        Self {
            files: files.collect(),
        }
    }

    /// All files.
    pub(super) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    /// The Rust files.
    pub(super) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// What the file at `path` says.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        let file = self.files.iter().find(|file| file.path == path)?;
        Some(&file.text)
    }
}

impl File {
    /// Whether the whole file is there for tests.
    pub(super) fn is_test(&self) -> bool {
        let parts: Vec<_> = self.path.split('/').collect();
        parts.iter().any(|part| {
            matches!(
                *part,
                "tests"
                    | "tests.rs"
                    | "benches"
                    | "examples"
                    | "fuzz"
                    | "object-testing"
                    | "skips"
                    | "vfs-conformance"
            ) || part.ends_with("_tests.rs")
        })
    }

    /// The lines of production code with their numbers, from 1: those outside of inline test modules.
    pub(super) fn production(&self) -> Vec<(usize, &str)> {
        let mut lines = (1..).zip(self.text.lines()).peekable();
        let mut production = Vec::new();
        while let Some((number, line)) = lines.next() {
            let next = lines.peek().map_or("", |(_, next)| next);
            if line == TEST_MARK && next.starts_with("mod ") && next.ends_with('{') {
                // The formatter puts the end of a module where it began.
                lines.find(|(_, line)| *line == "}");
            } else {
                production.push((number, line));
            }
        }
        production
    }
}

/// Whether `line` holds a comment and nothing else.
pub(super) fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// The line of `text` in which the byte at `offset` lies, from 1.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        File {
            path: "crates/a/src/lib.rs".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn inline_tests_are_no_production() {
        let file = file("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n");
        assert_eq!(file.production(), [(1, "fn a() {}"), (6, "fn c() {}")]);
    }

    #[test]
    fn a_test_module_in_its_own_file_costs_no_lines_here() {
        let file = file("fn a() {}\n#[cfg(test)]\nmod tests;\n");
        assert_eq!(file.production().len(), 3);
    }

    #[test]
    fn test_files_are_known_by_their_path() {
        let is_test = |path: &str| {
            let text = String::new();
            let path = path.to_owned();
            File { path, text }.is_test()
        };
        assert!(is_test("tests/src/model.rs") && is_test("crates/a/src/x/tests.rs"));
        assert!(!is_test("crates/a/src/attests.rs"));
    }
}
