//! Every option, once.
//!
//! An [`OptionSpec`] says what an option is called, what it holds, what it does and what that
//! costs. From the one table come the command line ([`crate::command_line`]), the `-o` words
//! ([`mount_words`]), the environment variables, the keys of configuration files
//! ([`config_file`]), the reference page, the man page and the shell completions
//! ([`crate::generate`]). Other programs' options ([`crate::personality`]) are mapped onto it.
//!
//! A setting takes three steps: each place that can hold options yields [`Given`]s, which are
//! plain text with their origin; [`Values::resolve`] validates all of them and keeps the one of
//! the strongest origin; [`crate::stores`], [`crate::volumes`] and [`crate::doors`] make settings
//! of the values.

pub(crate) mod config_file;
pub(crate) mod duration;
pub(crate) mod environment;
mod given;
pub(crate) mod mount_words;
mod spec;
pub(crate) mod table;
mod value;
mod values;

#[cfg(test)]
mod tests;

pub(crate) use given::{Given, Origin};
pub(crate) use spec::{Accepts, Default, Group, Level, OptionSpec, Scope};
pub(crate) use value::{Kind, Value, parse_flag};
pub(crate) use values::Values;
