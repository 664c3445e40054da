//! The table of operations in ARCHITECTURE.md says what the code does: which volume implements what, and which door
//! asks for it.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

/// Volumes, with the file that implements [`penstock_vfs::Volume`].
const VOLUMES: [(&str, &str); 6] = [
    ("bucket", "crates/bucket/src/volume.rs"),
    ("stream", "crates/stream/src/volume.rs"),
    ("fileset", "crates/fileset/src/volume.rs"),
    ("disk files", "crates/block/src/disk_files.rs"),
    ("memory", "crates/vfs-conformance/src/memory.rs"),
    ("toy", "crates/toys/src/generated.rs"),
];

/// Doors, with where they ask a volume.
const DOORS: [(&str, &str); 4] = [
    ("fuse", "crates/fuse/src"),
    ("nfs", "crates/nfs/src"),
    ("tools", "crates/tools/src/volume"),
    ("walk", "crates/toys/src/walk.rs"),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text_of(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// The text from `start` to the brace that closes it at the beginning of a line.
fn block<'a>(text: &'a str, start: &str) -> &'a str {
    let from = &text[text.find(start).unwrap()..];
    &from[..from.find("\n}").unwrap()]
}

/// Each method with what follows its name.
fn methods(block: &str) -> impl Iterator<Item = (&str, &str)> {
    let starts = block
        .match_indices("    fn ")
        .chain(block.match_indices("    async fn "));
    let mut starts: Vec<_> = starts.map(|(at, start)| at + start.len()).collect();
    starts.sort_unstable();
    starts.into_iter().map(|at| {
        let end = block[at..].find('(').unwrap();
        (&block[at..at + end], &block[at + end..])
    })
}

/// What a volume does that says nothing of an operation.
fn default_of(rest: &str) -> &'static str {
    let at = rest.find([';', '{']).unwrap();
    match rest[at..].strip_prefix('{') {
        Some(body) if body.trim_start().starts_with("Err(") => "refuses",
        Some(_) => "default",
        None => "must",
    }
}

/// All code below `path` without white space.
fn code(path: &Path) -> String {
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap();
        return entries.map(|entry| code(&entry.unwrap().path())).collect();
    }
    let text = fs::read_to_string(path).unwrap();
    text.split_whitespace().collect()
}

fn table() -> String {
    let seam = text_of("crates/vfs/src/volume.rs");
    let own = VOLUMES.map(|(_, path)| {
        let text = text_of(path);
        let names = methods(block(&text, "\nimpl Volume for "));
        names
            .map(|(name, _)| name.to_owned())
            .collect::<BTreeSet<_>>()
    });
    let doors = DOORS.map(|(_, path)| code(&repository().join(path)));
    let names = VOLUMES.iter().chain(&DOORS).map(|(name, _)| *name);
    let mut table = format!(
        "| operation | {} |\n",
        names.collect::<Vec<_>>().join(" | ")
    );
    table += &"|---".repeat(1 + VOLUMES.len() + DOORS.len());
    table += "|\n";
    for (name, rest) in methods(block(&seam, "pub trait Volume")) {
        write!(table, "| `{name}` |").unwrap();
        for own in &own {
            let does = if own.contains(name) {
                "own"
            } else {
                default_of(rest)
            };
            assert_ne!(does, "must", "{name} has no default");
            write!(table, " {does} |").unwrap();
        }
        for door in &doors {
            let calls = [format!("volume.{name}("), format!("volume().{name}(")];
            let asks = calls.iter().any(|call| door.contains(call));
            write!(table, " {} |", if asks { "asks" } else { "" }).unwrap();
        }
        table += "\n";
    }
    table
}

#[test]
fn architecture_has_the_table_of_operations() {
    let table = table();
    let is_there = text_of("ARCHITECTURE.md").contains(&table);
    assert!(is_there, "ARCHITECTURE.md should have this:\n{table}");
}
