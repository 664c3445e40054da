//! Who may name the error numbers of a protocol.
//!
//! Volumes and everything below them speak `FsError`; the doors translate. The few files outside
//! that ask the operating system for something and must tell one answer from another are listed
//! here with the reason.

use super::{
    Finding,
    lexer::{is_word, line_of},
    tree::{File, Tree},
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
    let code = file.production_code();
    let mentions = mentions(&code);
    let first = *mentions.first()?;
    Some(Finding {
        rule: "errno",
        subject: file.path.clone(),
        amount: mentions.len(),
        message: format!(
            "names an errno at line {}: use FsError or io::ErrorKind, or list the file with a \
             reason in xtask/src/tidy/errno.rs",
            line_of(&code, first)
        ),
    })
}

/// Offsets of `libc::E…` constants.
fn mentions(code: &str) -> Vec<usize> {
    let is_constant = |offset: usize| {
        let word: Vec<u8> = code[offset..]
            .bytes()
            .take_while(|byte| is_word(*byte))
            .collect();
        word.len() > 2
            && word[0] == b'E'
            && !word.starts_with(b"EPOLL")
            && word
                .iter()
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
    };
    code.match_indices("libc::")
        .map(|(offset, prefix)| offset + prefix.len())
        .filter(|offset| is_constant(*offset))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)]))
            .first()
            .map_or(0, |finding| finding.amount)
    }

    #[test]
    fn errno_belongs_to_the_doors() {
        let text = "fn f() -> i32 { libc::ENOENT + libc::EIO }";
        assert_eq!(found("crates/bucket/src/a.rs", text), 2);
        assert_eq!(found("crates/fuse/src/a.rs", text), 0);
    }

    #[test]
    fn other_constants_and_comments_are_free() {
        let text = "// libc::EIO\nfn f() -> i32 { libc::EPOLLIN | libc::O_EXCL }";
        assert_eq!(found("crates/object/src/a.rs", text), 0);
    }
}
