use std::{cell::Cell, collections::BTreeSet, path::PathBuf};

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};

use super::*;
use crate::Scratch;

/// Hands out new folders on a local file system.
fn folders(scratch: &Scratch) -> impl FnMut(Planted) -> PathBuf {
    let count = Cell::new(0);
    move |planted| {
        count.set(count.get() + 1);
        let folder = scratch.folder(&format!("case-{}", count.get()));
        for path in planted {
            let file = folder.join(path);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("it can be made");
            std::fs::write(file, path).expect("it can be written");
        }
        folder
    }
}

fn settings(rules: Rules, cases: u32) -> Settings {
    Settings {
        rules,
        cases,
        length: 40,
        regressions: None,
    }
}

#[test]
fn a_local_file_system_keeps_the_rules_of_posix() {
    let scratch = Scratch::new();
    check(&settings(Rules::Posix, 150), folders(&scratch));
}

#[test]
fn a_wrong_model_is_found_and_shrunk() {
    let scratch = Scratch::new();
    let difference = counterexample(&settings(Rules::Streaming, 200), folders(&scratch))
        .expect("a local disk is no bucket");
    assert!(difference.steps.len() <= 10, "not shrunk:\n{difference}");
}

#[test]
fn sequences_exercise_every_kind_of_step() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..60 {
        let tree = sequences(40).new_tree(&mut runner);
        let sequence = tree.expect("the strategy rejects nothing").current();
        for action in sequence.actions {
            let name = format!("{action:?}");
            seen.insert(name.split('(').next().unwrap_or_default().to_owned());
        }
    }
    assert_eq!(seen.len(), 15, "{seen:?}");
}
