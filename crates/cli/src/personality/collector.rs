//! Turns another program's settings into options of ours.

use std::collections::BTreeMap;

use super::{Meaning, Program, convert::Converted, flags::Setting};
use crate::{
    failure::{Failure, Outcome},
    options::{Accepts, Given, OptionSpec, Origin},
    output,
};

/// What a program's settings come to.
pub(super) struct Collector {
    program: &'static Program,
    given: Vec<Given>,
    /// Every setting, for those that the personality handles itself; the last one of a name wins.
    settings: BTreeMap<&'static str, String>,
    /// Settings without a meaning here, with the reason.
    passed_over: Vec<String>,
}

impl Collector {
    /// Nothing but the defaults of `program`.
    pub(super) fn new(program: &'static Program) -> Self {
        let mut collector = Self {
            program,
            given: Vec::new(),
            settings: BTreeMap::new(),
            passed_over: Vec::new(),
        };
        for (spec, text) in program.defaults.iter().copied() {
            collector.default(spec, text);
        }
        collector
    }

    /// Adds a default of the program; a later one wins over an earlier one.
    pub(super) fn default(&mut self, spec: &'static OptionSpec, text: &str) {
        self.given.push(Given {
            spec,
            spelling: spec.name.to_owned(),
            text: text.to_owned(),
            origin: Origin::Program(self.program.name),
        });
    }

    /// Takes settings in; later ones win over earlier ones of the same origin.
    pub(super) fn extend(&mut self, settings: Vec<Setting>) -> Outcome {
        for setting in settings {
            self.take(setting)?;
        }
        Ok(())
    }

    fn take(&mut self, setting: Setting) -> Outcome {
        let Some(option) = self.program.option(&setting.name) else {
            return Err(Failure::usage(
                format!("{} has no option `{}`", self.program.name, setting.name),
                "docs/compatibility.md lists the options that are understood",
            ));
        };
        self.settings.insert(option.name, setting.text.clone());
        match option.meaning {
            Meaning::Is(spec, convert) => match convert(&setting.text) {
                Converted::Text(text) => self.give(spec, text, setting)?,
                Converted::Default => {}
                Converted::Wrong(valid) => return Err(wrong(&setting, valid)),
            },
            Meaning::Own(_) => {}
            Meaning::Granted(what) => {
                let is_refused = crate::options::parse_flag(&setting.text) == Some(false);
                if is_refused && option.default != setting.text {
                    self.pass_over(option.name, what);
                }
            }
            Meaning::Nothing(why) if setting.text != option.default => {
                self.pass_over(option.name, why);
            }
            Meaning::Nothing(_) => {}
            Meaning::Refused(remedy) => {
                return Err(Failure::usage(
                    format!(
                        "`{}` cannot be obeyed (from {})",
                        option.name, setting.origin
                    ),
                    remedy,
                ));
            }
        }
        Ok(())
    }

    fn give(&mut self, spec: &'static OptionSpec, text: String, setting: Setting) -> Outcome {
        let Setting { name, origin, .. } = setting;
        if spec.accepts == Accepts::Privately && origin.is_public() {
            // The program itself takes credentials there; its documents put them into the file.
            return Err(Failure::usage(
                format!(
                    "`{name}` is not taken from {origin}, which every user of this machine can read"
                ),
                "put it into the configuration file, or set the variables of the store's tools",
            ));
        }
        self.given.push(Given {
            spec,
            spelling: name,
            text,
            origin,
        });
        Ok(())
    }

    /// Warns that a setting has no meaning, or not the whole one.
    pub(super) fn pass_over(&mut self, name: &str, why: &str) {
        let note = format!("{name} ({why})");
        if !self.passed_over.contains(&note) {
            self.passed_over.push(note);
        }
    }

    /// Sets one of our options on the program's behalf.
    pub(super) fn set(&mut self, spec: &'static OptionSpec, spelling: &str, text: &str) {
        self.given.push(Given {
            spec,
            spelling: spelling.to_owned(),
            text: text.to_owned(),
            origin: Origin::CommandLine,
        });
    }

    /// The text of a setting, unless it is missing or empty.
    pub(super) fn own(&self, name: &str) -> Option<&str> {
        let text = self.settings.get(name)?;
        (!text.is_empty()).then_some(text.as_str())
    }

    /// Whether a switch is on.
    pub(super) fn own_switch(&self, name: &str) -> bool {
        self.own(name).and_then(crate::options::parse_flag) == Some(true)
    }

    /// Whether one of our options was set.
    pub(super) fn has(&self, spec: &OptionSpec) -> bool {
        self.given.iter().any(|given| given.spec.name == spec.name)
    }

    /// The options, after the warnings were given.
    pub(super) fn finish(self) -> Vec<Given> {
        for warning in self.warnings() {
            output::complain(&warning);
        }
        self.given
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.passed_over.is_empty() {
            warnings.push(format!(
                "warning: without meaning here and passed over: {}",
                self.passed_over.join(", ")
            ));
        }
        warnings
    }

    #[cfg(test)]
    pub(super) fn into_parts(self) -> (Vec<Given>, Vec<String>) {
        let warnings = self.warnings();
        (self.given, warnings)
    }
}

fn wrong(setting: &Setting, valid: &str) -> Failure {
    Failure::usage(
        format!(
            "`{}` cannot be `{}` (from {})",
            setting.name, setting.text, setting.origin
        ),
        format!("it must be {valid}"),
    )
}
