//! Who may name the error numbers of a protocol.
//!
//! Volumes and everything below them speak `FsError`; the doors translate. The few files outside
//! that ask the operating system for something and must tell one answer from another are listed
//! here with the reason.

use super::{
    Finding,
    tree::{File, Tree, is_comment},
};

/// Folders whose business errno is.
const DOORS: [&str; 3] = ["crates/block/", "crates/fuse/", "tests/"];

/// Files that read errno of system calls that they make themselves.
const CALLERS: [(&str, &str); 0] = [];

/// Every mention of an errno constant elsewhere.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let is_free = |file: &&File| {
        !DOORS.iter().any(|door| file.path.starts_with(door))
            && !CALLERS.iter().any(|(path, _)| *path == file.path)
            && !file.is_test()
    };
    tree.rust().filter(is_free).filter_map(check_file).collect()
}

fn check_file(file: &File) -> Option<Finding> {
    let lines = file.production().into_iter();
    let mut mentions = lines.filter(|(_, line)| !is_comment(line) && mentions_errno(line));
    let (line, _) = mentions.next()?;
    Some(Finding {
        rule: "errno",
        subject: file.path.clone(),
        message: format!(
            "names an errno at line {line}: use FsError or io::ErrorKind, or list the file with a \
             reason in xtask/src/tidy/errno.rs"
        ),
    })
}

/// Whether there is a `libc::E…` constant in `line`.
fn mentions_errno(line: &str) -> bool {
    let is_upper = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit();
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    line.split("libc::").skip(1).any(|rest| {
        let word = &rest[..rest.find(|letter| !is_word(letter)).unwrap_or(rest.len())];
        let is_constant = word.len() > 2 && word.starts_with('E') && word.chars().all(is_upper);
        is_constant && !word.starts_with("EPOLL")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn errno_belongs_to_the_doors() {
        let text = "fn f() -> i32 { libc::ENOENT + libc::EIO }";
        assert_eq!(found("crates/bucket/src/a.rs", text), 1);
        assert_eq!(found("crates/fuse/src/a.rs", text), 0);
    }

    #[test]
    fn other_constants_and_comments_are_free() {
        let text = "// libc::EIO\nfn f() -> i32 { libc::EPOLLIN | libc::O_EXCL }";
        assert_eq!(found("crates/object/src/a.rs", text), 0);
    }
}
