//! What people write on command lines and into files: `-o` lists, TOML files, files of flags,
//! sizes and durations.
//!
//! The command is a program and no library, so its readers are built in here from their sources.

#![no_main]
#![allow(dead_code, unused_imports)]

#[path = "../../crates/cli/src/environment.rs"]
mod environment;
#[path = "../../crates/cli/src/failure.rs"]
mod failure;
#[path = "../../crates/cli/src/legible.rs"]
mod legible;
#[path = "../../crates/cli/src/options/mod.rs"]
mod options;

#[path = "../../crates/cli/src/personality/flags.rs"]
mod flags;

use std::path::Path;

use failure::{Failure, Outcome};
use libfuzzer_sys::fuzz_target;
use options::{Given, Scope, Values, config_file, duration, mount_words};
use penstock_base::ByteSize;

fuzz_target!(|text: &str| {
    check_size(text);
    check_duration(text);
    check_words(text);
    for scope in [Scope::Mount, Scope::Stream] {
        check_options(mount_words::given(text, scope));
    }
    let (file, faults) = config_file::parse(Path::new("/x.toml"), text);
    for fault in &faults {
        check_line(fault);
    }
    check_options(Ok(file.of(Some("s3://bucket/data"))));
    check_flags(text);
});

fn check_size(text: &str) {
    if let Ok(size) = text.parse::<ByteSize>() {
        assert_eq!(size.to_string().parse(), Ok(size));
    }
}

fn check_duration(text: &str) {
    if let Some(duration) = duration::parse(text) {
        assert_eq!(
            duration::parse(&duration::display(duration)),
            Some(duration)
        );
    }
}

/// A list that is written down again splits into the same words.
fn check_words(text: &str) {
    let words = mount_words::split(text);
    let escape = |text: &str| text.replace('\\', r"\\").replace(',', r"\,");
    let written: Vec<String> = words
        .iter()
        .map(|word| match &word.value {
            Some(value) => format!("{}={}", escape(&word.name), escape(value)),
            None => escape(&word.name),
        })
        .collect();
    assert_eq!(mount_words::split(&written.join(",")), words);
}

/// What was given is accepted, or refused in one line that shows no credential.
fn check_options(given: Outcome<Vec<Given>>) {
    // Messages name options and places; a text that is none of these has a digit and is long.
    let telling = |text: &str| text.len() > 12 && text.bytes().any(|byte| byte.is_ascii_digit());
    let secrets: Vec<String> = given
        .iter()
        .flatten()
        .filter(|given| given.spec.kind == options::Kind::Secret && telling(&given.text))
        .map(|given| given.text.clone())
        .collect();
    if let Err(failure) = given.and_then(Values::resolve) {
        let line = check_line(&failure);
        assert!(secrets.iter().all(|secret| !line.contains(secret.as_str())));
    }
}

/// What is told is one line.
fn check_line(failure: &Failure) -> String {
    let line = failure.to_string();
    assert!(!line.is_empty() && !line.contains('\n'), "{line}");
    line
}

fn check_flags(text: &str) {
    let program = Program { name: "program" };
    if let Ok(settings) = flags::parse_file(&program, Path::new("/x.conf"), text) {
        assert!(settings.len() <= text.lines().count());
        let held = settings.iter().map(|set| set.name.len() + set.text.len());
        // A switch without a value is given one of at most five letters.
        assert!(held.sum::<usize>() <= text.len() + 5 * settings.len());
    }
    let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    if let Ok(parsed) = flags::parse_arguments(&program, &arguments) {
        assert!(parsed.settings.len() + parsed.positionals.len() <= arguments.len());
    }
}

/// As much of a program whose command line is understood as `flags` needs of it.
struct Program {
    name: &'static str,
}

struct ForeignOption {
    takes: Takes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Switch,
    Value,
}

impl Program {
    fn option(&self, name: &str) -> Option<&'static ForeignOption> {
        match name {
            "f" | "allow_other" => Some(&ForeignOption {
                takes: Takes::Switch,
            }),
            "o" | "oss_bucket" | "total_mem_limit" => Some(&ForeignOption {
                takes: Takes::Value,
            }),
            _ => None,
        }
    }
}
