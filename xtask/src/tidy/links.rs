//! Links between documents lead somewhere.

use std::path::Path;

use super::{
    Finding,
    tree::{File, Tree, line_of},
};

/// Every relative link in a Markdown file whose target is missing under `root`, and every path
/// in backquotes that looks like a source file of ours and is none.
pub(super) fn check(tree: &Tree, root: &Path) -> Vec<Finding> {
    let documents = tree.files().filter(|file| file.path.ends_with(".md"));
    documents.flat_map(|file| check_file(file, root)).collect()
}

fn check_file(file: &File, root: &Path) -> Vec<Finding> {
    let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let linked = link_targets(&file.text).map(|(offset, target)| (offset, folder.join(target)));
    let quoted = quoted_paths(&file.text).map(|(offset, path)| (offset, path.into()));
    linked
        .chain(quoted)
        .filter(|(_, target)| !root.join(target).exists())
        .map(|(offset, target)| Finding {
            rule: "links",
            subject: file.path.clone(),
            message: format!(
                "line {}: there is no {}",
                line_of(&file.text, offset),
                target.display()
            ),
        })
        .collect()
}

/// Targets of `[text](target)` that are paths, without their fragment.
fn link_targets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("](").filter_map(|(offset, mark)| {
        let rest = &text[offset + mark.len()..];
        let target = &rest[..rest.find(')')?];
        let path = target.split('#').next().unwrap_or_default();
        let is_path = !path.is_empty() && !path.contains("://") && !path.starts_with("mailto:");
        is_path.then_some((offset, path))
    })
}

/// Words in backquotes that name a Rust file by its path from the root.
fn quoted_paths(text: &str) -> impl Iterator<Item = (usize, &str)> {
    const ROOTS: [&str; 4] = ["crates/", "docs/", "tests/", "xtask/"];
    text.match_indices('`').filter_map(|(offset, _)| {
        let rest = &text[offset + 1..];
        let word = &rest[..rest.find('`')?];
        let is_ours = ROOTS.iter().any(|root| word.starts_with(root));
        let is_plain = !word.contains(|c: char| c.is_whitespace() || "*{<…".contains(c));
        (is_ours && is_plain).then_some((offset, word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_must_lead_to_a_file() {
        let root = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(root.path().join("docs")).expect("a folder");
        std::fs::write(root.path().join("docs/a.md"), "").expect("a file");
        let text = "[a](docs/a.md#part) [b](docs/b.md) [c](https://example.com) `docs/c.md`\n";
        let tree = Tree::of(&[("README.md", text), ("docs/d.md", "[up](a.md)")]);
        let messages: Vec<_> = check(&tree, root.path())
            .into_iter()
            .map(|finding| finding.message)
            .collect();
        assert_eq!(
            messages,
            [
                "line 1: there is no docs/b.md",
                "line 1: there is no docs/c.md"
            ]
        );
    }
}
