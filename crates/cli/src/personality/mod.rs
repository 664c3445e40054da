//! Other programs' command lines.
//!
//! Called by the name of another program (through a symbolic link, or as `penstock as NAME`),
//! this one takes that program's arguments and configuration file. Each of its options stands in
//! a table: it maps onto one of ours, is handled by the personality, or has no meaning here. What has no
//! meaning is named in one warning when it was set to something other than the program's own default; what is
//! in no table is an error.

mod collector;
mod convert;
mod flags;
mod goofys;
mod goofys_options;
mod ossfs;
mod ossfs2;
mod ossfs2_options;
mod ossfs_checks;
mod ossfs_options;
mod ossfs_settings;
mod ossfs_uploads;
mod stats;

#[cfg(test)]
mod ossfs_tests;
#[cfg(test)]
mod tests;

use std::ffi::OsString;

use crate::{
    environment::Environment,
    failure::{Failure, Outcome},
    options::OptionSpec,
    text_table,
};

pub(crate) use convert::Convert;

/// A program whose command line is understood.
pub(crate) struct Program {
    pub name: &'static str,
    /// How it is called, for the reference page.
    pub introduction: &'static str,
    pub options: &'static [ForeignOption],
    /// Defaults of the program that its users would notice, where ours differ.
    pub defaults: &'static [(&'static OptionSpec, &'static str)],
    run: fn(&[String], &Environment) -> Outcome,
}

/// Whether an option is followed by a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    Switch,
    Value,
}

/// An option of another program.
pub(crate) struct ForeignOption {
    pub name: &'static str,
    pub takes: Takes,
    /// The program's default; empty if it has none.
    pub default: &'static str,
    pub meaning: Meaning,
}

/// What another program's option means here.
pub(crate) enum Meaning {
    /// The same as one of ours, once its text is converted.
    Is(&'static OptionSpec, Convert),
    /// Handled by the personality; the text says what it does.
    Own(&'static str),
    /// What happens in any case; the text says so. Only asking for the opposite is worth a warning.
    Granted(&'static str),
    /// Nothing; the text says why.
    Nothing(&'static str),
    /// Something that would be dangerous to pass over; the text says what to do instead.
    Refused(&'static str),
}

impl Meaning {
    /// For the reference page.
    pub(crate) fn in_words(&self) -> String {
        match self {
            Self::Is(spec, _) => format!("`{}`", spec.name),
            Self::Own(what) => (*what).to_owned(),
            Self::Granted(what) => format!("always: {what}"),
            Self::Nothing(why) => format!("no meaning: {why}"),
            Self::Refused(remedy) => format!("refused: {remedy}"),
        }
    }
}

/// Columns of the text that introduces a program.
const HELP_WIDTH: usize = 100;

/// Every program.
pub(crate) static PROGRAMS: [&Program; 3] = [&ossfs2::PROGRAM, &ossfs::PROGRAM, &goofys::PROGRAM];

/// The program that is called `name`.
pub(crate) fn find(name: &str) -> Option<&'static Program> {
    PROGRAMS.into_iter().find(|program| program.name == name)
}

impl Program {
    /// Does what `arguments`, without the program's name, ask for.
    pub(crate) fn run(&self, arguments: &[OsString], environment: &Environment) -> Outcome {
        let text = |argument: &OsString| {
            argument.to_str().map(str::to_owned).ok_or_else(|| {
                Failure::usage(
                    format!("the argument {argument:?} is not UTF-8"),
                    "rename what it stands for",
                )
            })
        };
        let arguments: Vec<String> = arguments.iter().map(text).collect::<Outcome<_>>()?;
        (self.run)(&arguments, environment)
    }

    /// How it is called and what its options mean here, for people.
    pub(crate) fn help(&self) -> String {
        let introduction = self.introduction.replace('`', "");
        let introduction = penstock_base::text::wrap(&introduction, HELP_WIDTH).join("\n");
        let rows = self.options.iter().map(|option| {
            let default = match option.default {
                "" => String::new(),
                default => format!("[{default}]"),
            };
            let meaning = option.meaning.in_words().replace('`', "");
            vec![option.name.to_owned(), default, meaning]
        });
        let rows: Vec<_> = rows.collect();
        format!(
            "{introduction}\n\nIts options with their defaults, and what they are here:\n\n{}",
            text_table::columns(&rows)
        )
    }

    /// The option that is called `name`; `_` and `-` differ, as in the program itself.
    fn option(&self, name: &str) -> Option<&'static ForeignOption> {
        self.options.iter().find(|option| option.name == name)
    }
}

/// A switch of another program.
const fn switch(name: &'static str, default: &'static str, meaning: Meaning) -> ForeignOption {
    ForeignOption {
        name,
        takes: Takes::Switch,
        default,
        meaning,
    }
}

/// An option of another program that is followed by a value.
const fn value(name: &'static str, default: &'static str, meaning: Meaning) -> ForeignOption {
    ForeignOption {
        name,
        takes: Takes::Value,
        default,
        meaning,
    }
}
