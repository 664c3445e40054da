//! The files that rules look at.

use std::{fs, path::Path, process::Command};

use super::lexer::{blank, matching_end};

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
                    | "vfs-conformance"
            )
        })
    }

    /// The code, with comments, literals and inline test modules blanked.
    pub(super) fn production_code(&self) -> String {
        let mut code = blank(&self.text);
        for (start, end) in test_modules(&code).into_iter().rev() {
            let blanked: String = code[start..end]
                .chars()
                .map(|character| if character == '\n' { '\n' } else { ' ' })
                .collect();
            code.replace_range(start..end, &blanked);
        }
        code
    }

    /// Lines that hold a comment and nothing else.
    pub(super) fn comment_lines(&self) -> usize {
        let code = blank(&self.text);
        let lines = self.text.lines().zip(code.lines());
        lines
            .filter(|(text, code)| text.trim_start().starts_with("//") && code.trim().is_empty())
            .count()
    }

    /// Lines that belong to production code and lines of inline tests.
    pub(super) fn line_counts(&self) -> (usize, usize) {
        let code = blank(&self.text);
        let tests = test_modules(&code)
            .into_iter()
            .map(|(start, end)| code[start..end].lines().count())
            .sum();
        (self.text.lines().count() - tests, tests)
    }
}

/// Where inline `#[cfg(test)] mod … { … }` begin and end in blanked text.
fn test_modules(code: &str) -> Vec<(usize, usize)> {
    const MARK: &str = "#[cfg(test)]";
    let modules = code.match_indices(MARK).filter_map(|(start, _)| {
        let rest = start + MARK.len();
        let body = rest + code[rest..].find(['{', ';'])?;
        let declares_module = code[rest..body]
            .split_whitespace()
            .any(|word| word == "mod");
        let is_inline = code.as_bytes()[body] == b'{';
        (declares_module && is_inline).then_some((start, matching_end(code, body)?))
    });
    modules.collect()
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
        assert_eq!(file.line_counts(), (2, 4));
        let code = file.production_code();
        assert!(code.contains("fn a") && code.contains("fn c") && !code.contains("fn b"));
    }

    #[test]
    fn a_test_module_in_its_own_file_costs_no_lines_here() {
        assert_eq!(
            file("fn a() {}\n#[cfg(test)]\nmod tests;\n").line_counts(),
            (3, 0)
        );
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
