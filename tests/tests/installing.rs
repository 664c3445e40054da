//! `make install`.

#![allow(clippy::disallowed_methods)]

use std::{fs, path::Path, process::Command};

use penstock_tests::{Patience, Scratch, penstock_path, run_within};

const PATIENCE: Patience = Patience::seconds(60);

#[test]
fn what_is_installed_works_under_each_of_its_names() {
    let scratch = Scratch::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/install.sh");
    let mut install = Command::new("bash");
    install.arg(script).env("PROGRAM", penstock_path());
    install.env("DESTDIR", scratch.path()).env("PREFIX", "/usr");
    // The second time all of it is there already.
    for _ in 0..2 {
        run_within(PATIENCE, &mut install).expect_success();
    }
    let place = scratch.path().join("usr");
    for (name, says) in [
        ("penstock", "penstock <COMMAND>"),
        ("parcp", "Copies SOURCE"),
        ("partar", "archive"),
        ("parrm", "Removes files"),
    ] {
        let mut program = Command::new(place.join("bin").join(name));
        let helped = run_within(PATIENCE, program.arg("--help")).expect_success();
        assert!(helped.stdout.contains(says), "{name}: {}", helped.stdout);
        let manual = fs::read_to_string(place.join(format!("share/man/man1/{name}.1")));
        assert!(manual.expect("it is there").contains(".SH NAME"), "{name}");
    }
    let completions = place.join("share/bash-completion/completions/penstock");
    assert!(fs::metadata(completions).expect("it is there").len() > 0);
}
