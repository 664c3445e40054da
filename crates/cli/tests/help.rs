//! What the commands say about themselves. The files in `help/` are what users see; a change in
//! them is a change of the product.

use std::{fs, path::PathBuf, process::Command};

const COMMANDS: [&str; 18] = [
    "mount",
    "stream",
    "serve",
    "umount",
    "fileset",
    "stats",
    "sync",
    "unsaved",
    "check",
    "ls",
    "stat",
    "uploads",
    "cp",
    "rm",
    "tar",
    "cache",
    "help",
    "completions",
];

fn penstock(arguments: &[&str]) -> (String, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_penstock"))
        .args(arguments)
        .output()
        .expect("it was just built");
    let text = String::from_utf8(output.stdout).expect("plain text");
    (text, output.status.success())
}

/// `text` without the command that this binary is built without.
fn built(text: &str) -> String {
    let has = |line: &&str| cfg!(feature = "bench") || !line.starts_with("  bench ");
    text.split_inclusive('\n').filter(has).collect()
}

#[test]
fn the_help_of_each_command_is_as_written_down() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    for command in COMMANDS {
        let (text, success) = penstock(&["help", command]);
        assert!(success, "{command}");
        let path = folder.join(format!("{command}.txt"));
        let expected = built(&fs::read_to_string(&path).unwrap_or_default());
        assert!(
            text == expected,
            "the help of {command} changed; if that is meant, run\n\
             penstock help {command} > {}",
            path.display()
        );
    }
}

/// The options that a help text explains, one a line.
fn options(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().map(str::trim_start);
    lines.filter(|line| line.starts_with('-'))
}

#[test]
fn help_shows_what_most_mounts_need_and_help_all_the_rest() {
    let (common, _) = penstock(&["mount", "--help"]);
    let count = options(&common).count();
    assert!(count <= 55, "{count} options");
    assert!(!common.contains("--fuse-threads"));
    let (all, success) = penstock(&["mount", "--help-all"]);
    assert!(success && all.contains("--fuse-threads"), "{all}");
    for option in options(&common) {
        assert!(all.contains(option), "{option}");
    }
}

#[test]
fn help_is_found_in_every_usual_way() {
    let (long, _) = penstock(&["help", "umount"]);
    let (by_option, success) = penstock(&["umount", "--help"]);
    assert!(success);
    assert_eq!(by_option, long);
    let (list, success) = penstock(&["help"]);
    assert!(success);
    for command in COMMANDS {
        assert!(list.contains(&format!("\n  {command} ")), "{command}");
    }
}

#[test]
fn the_version_is_told() {
    let (text, success) = penstock(&["--version"]);
    assert!(success);
    assert_eq!(text, concat!("penstock ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn manual_and_completions_are_printed() {
    let (page, success) = penstock(&["man", "mount"]);
    assert!(success && page.contains(".TH penstock-mount"), "{page}");
    for shell in ["bash", "zsh", "fish"] {
        let (script, success) = penstock(&["completions", shell]);
        assert!(success && script.contains("allow-other"), "{shell}");
    }
}
