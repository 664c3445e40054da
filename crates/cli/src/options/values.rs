//! The value of every option, after every place was looked at.

use std::{collections::HashMap, net::SocketAddr, path::Path, time::Duration};

use penstock_base::Secret;

use super::{Accepts, Default, Given, Group, OptionSpec, Origin, Value, table};
use crate::failure::{Failure, Outcome};

/// What every option is set to, and by whom.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    values: HashMap<&'static str, (Value, Option<Origin>)>,
}

impl Values {
    /// Reads everything that was given, even what a stronger place overrides, so that a mistake
    /// is found before it matters. Among equals the last one wins, as on any command line.
    pub(crate) fn resolve(mut given: Vec<Given>) -> Outcome<Self> {
        given.sort_by_key(|given| given.origin.rank());
        let mut values = defaults();
        for given in given {
            check_place(&given)?;
            let value = given.read()?;
            values.insert(given.spec.name, (value, Some(given.origin)));
        }
        Ok(Self { values })
    }

    /// Where an option was given, if it was.
    pub(crate) fn origin(&self, spec: &OptionSpec) -> Option<&Origin> {
        self.values.get(spec.name)?.1.as_ref()
    }

    /// The first option that has another value there, wherever either was given.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        let options = table::ALL.into_iter();
        let mut different = options.filter(|spec| self.get(spec) != other.get(spec));
        different.next().map(|spec| spec.name)
    }

    /// A flag.
    pub(crate) fn flag(&self, spec: &OptionSpec) -> bool {
        matches!(self.get(spec), Some(Value::Flag(true)))
    }

    /// A size in bytes, if it has a value.
    pub(crate) fn size(&self, spec: &OptionSpec) -> Option<u64> {
        match self.get(spec) {
            Some(Value::Size(bytes)) => Some(*bytes),
            _ => None,
        }
    }

    /// A number, if it has a value.
    pub(crate) fn count(&self, spec: &OptionSpec) -> Option<u64> {
        match self.get(spec) {
            Some(Value::Count(count)) => Some(*count),
            _ => None,
        }
    }

    /// A duration; every option that holds one has a default.
    pub(crate) fn duration(&self, spec: &OptionSpec) -> Duration {
        match self.get(spec) {
            Some(Value::Duration(duration)) => *duration,
            _ => Duration::ZERO,
        }
    }

    /// The duration of an option that may be a duration or a flag, if it is one.
    pub(crate) fn switch_or_duration(&self, spec: &OptionSpec) -> Option<Duration> {
        match self.get(spec) {
            Some(Value::Duration(duration)) => Some(*duration),
            _ => None,
        }
    }

    /// Permission bits; every option that holds them has a default.
    pub(crate) fn mode(&self, spec: &OptionSpec) -> u16 {
        match self.get(spec) {
            Some(Value::Mode(mode)) => *mode,
            _ => 0,
        }
    }

    /// A word out of a choice; every option that holds one has a default.
    pub(crate) fn choice(&self, spec: &OptionSpec) -> &'static str {
        match self.get(spec) {
            Some(Value::Choice(word)) => word,
            _ => "",
        }
    }

    /// Text, if it has a value.
    pub(crate) fn text(&self, spec: &OptionSpec) -> Option<&str> {
        match self.get(spec) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// An absolute path, if it has a value.
    pub(crate) fn path(&self, spec: &OptionSpec) -> Option<&Path> {
        match self.get(spec) {
            Some(Value::Path(path)) => Some(path),
            _ => None,
        }
    }

    /// An address to listen on, if it has a value.
    pub(crate) fn address(&self, spec: &OptionSpec) -> Option<SocketAddr> {
        match self.get(spec) {
            Some(Value::Address(address)) => Some(*address),
            _ => None,
        }
    }

    /// A credential, if it has a value.
    pub(crate) fn secret(&self, spec: &OptionSpec) -> Option<Secret> {
        match self.get(spec) {
            Some(Value::Secret(secret)) => Some(secret.clone()),
            _ => None,
        }
    }

    /// What an option is set to, as text that says to another process of this version whether it is the same. None of
    /// what may hold a secret, or is not set.
    pub(crate) fn told(&self, spec: &OptionSpec) -> Option<String> {
        let secret = [&table::PROXY, &table::ENCRYPTION_KEY_COMMAND];
        let is_secret =
            spec.group == Group::Credentials || secret.iter().any(|other| other.name == spec.name);
        match self.get(spec).filter(|_| !is_secret)? {
            Value::Flag(true) => Some("on".to_owned()),
            Value::Flag(false) => Some("off".to_owned()),
            Value::Secret(_) => None,
            value => Some(format!("{value:?}")),
        }
    }

    fn get(&self, spec: &OptionSpec) -> Option<&Value> {
        self.values.get(spec.name).map(|(value, _)| value)
    }
}

fn defaults() -> HashMap<&'static str, (Value, Option<Origin>)> {
    let value_of = |spec: &&'static OptionSpec| {
        let Default::Is(text) = spec.default else {
            return None;
        };
        let value = spec
            .kind
            .parse(text)
            .expect("a test reads every default of the table");
        Some((spec.name, (value, None)))
    };
    table::ALL.iter().filter_map(value_of).collect()
}

/// Refuses credentials where other users can see them.
fn check_place(given: &Given) -> Outcome {
    if given.spec.accepts != Accepts::Privately || !given.origin.is_public() {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "`{}` is not taken from {}, which every user of this machine can read",
            given.spelling, given.origin
        ),
        format!(
            "set {} in the environment, or put it into a file for --config",
            given.spec.variable()
        ),
    ))
}
