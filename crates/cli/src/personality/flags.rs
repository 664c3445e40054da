//! Command lines and files of flags: `--name=value`, `--name value`, `-name`, `--noname`.
//!
//! Which flags are followed by a value is looked up in the program's table. A file of flags has
//! one flag a line, and lines that begin with `#`.

use std::path::Path;

use super::{Program, Takes};
use crate::{
    failure::{Failure, Outcome},
    options::{Origin, mount_words},
};

/// A flag that was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub name: String,
    pub text: String,
    pub origin: Origin,
}

/// A command line, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    pub settings: Vec<Setting>,
    pub positionals: Vec<String>,
}

/// Takes a command line apart. Flags and other arguments may stand in any order; `--` ends flags.
pub(super) fn parse_arguments(program: &Program, arguments: &[String]) -> Outcome<Parsed> {
    let mut parsed = Parsed::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            parsed.positionals.extend(rest.by_ref().cloned());
        } else if argument == "-" || !argument.starts_with('-') {
            parsed.positionals.push(argument.clone());
        } else {
            let flag = Flag::of(argument);
            let next = || rest.next().cloned();
            let (name, text) = flag.resolve(program, next)?;
            parsed.settings.push(Setting {
                name,
                text,
                origin: Origin::CommandLine,
            });
        }
    }
    Ok(parsed)
}

/// The settings among the words of a list that mount(8) passes.
pub(super) fn parse_words(list: &str) -> impl Iterator<Item = Setting> {
    let words = mount_words::split(list).into_iter();
    let words = words.filter(|word| !word.is_passed_over());
    words.map(|word| Setting {
        name: word.name,
        text: word.value.unwrap_or_else(|| "true".to_owned()),
        origin: Origin::MountWord,
    })
}

/// Reads the text of a file of flags.
pub(super) fn parse_file(program: &Program, path: &Path, text: &str) -> Outcome<Vec<Setting>> {
    let mut settings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let origin = Origin::File {
            path: path.to_owned(),
            line: number + 1,
        };
        if !line.starts_with('-') {
            return Err(Failure::usage(
                format!("{origin}: the line does not begin with `--`"),
                "write `--name=value`, or begin the line with # to pass over it",
            ));
        }
        let resolved = Flag::of(line).resolve(program, || None);
        let (name, text) = resolved.map_err(|failure| {
            Failure::usage(format!("{origin}: {failure}"), "").with_exit(failure.exit())
        })?;
        settings.push(Setting { name, text, origin });
    }
    Ok(settings)
}

/// A flag as it was written.
struct Flag<'a> {
    name: &'a str,
    value: Option<&'a str>,
}

impl<'a> Flag<'a> {
    fn of(argument: &'a str) -> Self {
        let bare = argument.strip_prefix('-').unwrap_or(argument);
        let bare = bare.strip_prefix('-').unwrap_or(bare);
        match bare.split_once('=') {
            Some((name, value)) => Self {
                name,
                value: Some(value),
            },
            None => Self {
                name: bare,
                value: None,
            },
        }
    }

    /// The name and the text of the flag; `next` yields the argument behind it.
    fn resolve(
        &self,
        program: &Program,
        next: impl FnOnce() -> Option<String>,
    ) -> Outcome<(String, String)> {
        let name = self.name.to_owned();
        let value = self.value.map(|value| unquote(value).to_owned());
        match program.option(self.name).map(|option| option.takes) {
            Some(Takes::Switch) => Ok((name, value.unwrap_or_else(|| "true".to_owned()))),
            Some(Takes::Value) => match value.or_else(next) {
                Some(value) => Ok((name, value)),
                None => Err(Failure::usage(
                    format!("`--{name}` has no value"),
                    format!("write `--{name}=VALUE`"),
                )),
            },
            None => self.negated(program).ok_or_else(|| unknown(program, &name)),
        }
    }

    /// `--noname` for a switch called `name`.
    fn negated(&self, program: &Program) -> Option<(String, String)> {
        let name = self.name.strip_prefix("no")?;
        let option = program.option(name)?;
        let is_switch = option.takes == Takes::Switch && self.value.is_none();
        is_switch.then(|| (name.to_owned(), "false".to_owned()))
    }
}

fn unknown(program: &Program, name: &str) -> Failure {
    Failure::usage(
        format!("{} has no option `--{name}`", program.name),
        "docs/compatibility.md lists the options that are understood",
    )
}

/// Takes off quotes that a shell would have taken off.
fn unquote(value: &str) -> &str {
    for quote in ['"', '\''] {
        let inner = value
            .strip_prefix(quote)
            .and_then(|v| v.strip_suffix(quote));
        if let Some(inner) = inner {
            return inner;
        }
    }
    value
}
