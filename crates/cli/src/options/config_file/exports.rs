//! Mount targets and exports in a TOML file.
//!
//! ```toml
//! [target.lan]
//! listen = "10.0.0.5:2049"
//! portmap = "10.0.0.5:111"
//! type = "hpmt-20"
//!
//! [[export]]
//! path = "/home"
//! volume = "home"
//! targets = ["lan"]               # may be left out where there is one
//!
//! [[export.rule]]                 # in their order; the first that is for a client counts
//! source = "10.0.0.7"
//! access = "read-only"
//! identity-squash = "all"
//! ```
//!
//! The keys of a rule are those of the export options of OCI File Storage. An export without a rule is for everybody, as
//! one of the command line without `--clients`.

use std::net::SocketAddr;

use penstock_nfs::{Authentication, Export, Network, Rule, Squash, TargetType};
use toml::{Spanned, de::DeValue};

use super::{EXPORT, Key, Reader, TARGET, line_at, text_of};
use crate::options::{OptionSpec, Value, table};

mod checks;

pub(super) use checks::check;

/// The type of a mount target.
const TYPE: &str = "type";
/// What a fault in a section is told with.
const SEE: &str = "docs/operations.md shows such a section";

/// What a file says of one mount target.
#[derive(Debug)]
pub(crate) struct TargetSection {
    pub name: String,
    /// Where clients find it.
    pub listen: SocketAddr,
    pub portmap: Option<SocketAddr>,
    pub target_type: TargetType,
    line: usize,
}

/// What a file says of one export.
#[derive(Debug)]
pub(crate) struct ExportSection {
    pub export: Export,
    line: usize,
    /// Where it is could be read, or is not said.
    has_targets: bool,
}

impl Reader<'_> {
    pub(super) fn target(
        &mut self,
        name: &Key<'_>,
        section: &DeValue<'_>,
    ) -> Option<TargetSection> {
        let section = self.section((TARGET, name), section)?;
        let (mut listen, mut portmap, mut target_type) = (None, None, TargetType::default());
        for (key, value) in section {
            let value = value.get_ref();
            match key.get_ref().as_ref() {
                "listen" => listen = self.address(&table::LISTEN, key, value),
                "portmap" => portmap = self.address(&table::PORTMAP, key, value),
                TYPE => {
                    if let Some(Value::Choice(word)) = self.value(&table::TARGET_TYPE, key, value) {
                        target_type = word.parse().unwrap_or_default();
                    }
                }
                other => {
                    let known = "it has `listen`, `portmap` and `type`";
                    let cause = format!("`{other}` is no key of a mount target");
                    self.fault(self.line(key), &cause, known);
                }
            }
        }
        let name_text = name.get_ref();
        if !section.keys().any(|key| key.get_ref() == "listen") {
            let cause = format!("[target.{name_text}] has no address to listen on");
            let remedy = "give it one, such as listen = \"10.0.0.5:2049\"";
            self.fault(self.line(name), &cause, remedy);
        }
        self.check_name((TARGET, name_text), self.line(name));
        Some(TargetSection {
            name: name_text.to_string(),
            listen: listen.unwrap_or_else(nowhere),
            portmap,
            target_type,
            line: self.line(name),
        })
    }

    fn value(
        &mut self,
        spec: &'static OptionSpec,
        key: &Key<'_>,
        value: &DeValue<'_>,
    ) -> Option<Value> {
        let read = self.given(spec, key, value).and_then(|given| given.read());
        self.understood(self.line(key), read)
    }

    fn address(
        &mut self,
        spec: &'static OptionSpec,
        key: &Key<'_>,
        value: &DeValue<'_>,
    ) -> Option<SocketAddr> {
        match self.value(spec, key, value)? {
            Value::Address(address) => Some(address),
            _ => None,
        }
    }

    pub(super) fn exports(&mut self, key: &Key<'_>, value: &DeValue<'_>) -> Vec<ExportSection> {
        let DeValue::Array(sections) = value else {
            self.fault(self.line(key), "exports are a list", "write [[export]]");
            self.unread.push((EXPORT, String::new()));
            return Vec::new();
        };
        let sections: Vec<_> = sections.iter().collect();
        sections
            .into_iter()
            .filter_map(|section| self.export(section))
            .collect()
    }

    fn export(&mut self, section: &Spanned<DeValue<'_>>) -> Option<ExportSection> {
        let line = line_at(self.text, section.span().start);
        let DeValue::Table(keys) = section.get_ref() else {
            self.fault(line, "an export is a section", "write [[export]]");
            self.unread.push((EXPORT, String::new()));
            return None;
        };
        let mut export = Export {
            path: String::new(),
            volume: String::new(),
            targets: Vec::new(),
            rules: Vec::new(),
        };
        let mut has_targets = true;
        for (key, value) in keys {
            let value = value.get_ref();
            match key.get_ref().as_ref() {
                "path" => export.path = self.name(key, value),
                "volume" => export.volume = self.name(key, value),
                "targets" => {
                    export.targets = self.texts(key, value);
                    has_targets = !export.targets.is_empty();
                }
                "rule" => export.rules = self.rules(key, value),
                other => {
                    let known = "it has `path`, `volume`, `targets` and [[export.rule]]";
                    let cause = format!("`{other}` is no key of an export");
                    self.fault(self.line(key), &cause, known);
                }
            }
        }
        for name in ["path", "volume"] {
            if !keys.keys().any(|key| key.get_ref() == name) {
                self.fault(line, &format!("the export has no `{name}`"), SEE);
            }
        }
        // Without one it is for everybody; none that could be read is for nobody.
        if !keys.keys().any(|key| key.get_ref() == "rule") {
            export.rules.push(Rule::default());
        }
        Some(ExportSection {
            export,
            line,
            has_targets,
        })
    }

    fn rules(&mut self, key: &Key<'_>, value: &DeValue<'_>) -> Vec<Rule> {
        let DeValue::Array(rules) = value else {
            self.fault(self.line(key), "rules are a list", "write [[export.rule]]");
            return Vec::new();
        };
        if rules.is_empty() {
            let remedy = "write [[export.rule]] for those who may mount it";
            self.fault(
                self.line(key),
                "an empty list of rules is for nobody",
                remedy,
            );
        }
        let rules: Vec<_> = rules.iter().collect();
        rules
            .into_iter()
            .filter_map(|rule| self.rule(rule))
            .collect()
    }

    fn rule(&mut self, rule: &Spanned<DeValue<'_>>) -> Option<Rule> {
        let line = line_at(self.text, rule.span().start);
        let DeValue::Table(keys) = rule.get_ref() else {
            self.fault(line, "a rule is a section", "write [[export.rule]]");
            return None;
        };
        let mut made = Rule::default();
        for (key, value) in keys {
            self.rule_key(&mut made, key, value.get_ref());
        }
        Some(made)
    }

    fn rule_key(&mut self, rule: &mut Rule, key: &Key<'_>, value: &DeValue<'_>) {
        match key.get_ref().as_ref() {
            "source" => rule.clients = self.networks(key, value),
            "access" => {
                let words = [("read-only", true), ("read-write", false)];
                rule.read_only = self.word(key, value, &words).unwrap_or(true);
            }
            "identity-squash" => {
                let words = Squash::EACH.map(|squash| (squash.word(), squash));
                rule.squash = self.word(key, value, &words).unwrap_or(Squash::All);
            }
            "anonymous-uid" => {
                let id = self.id(&table::ANONYMOUS_UID, key, value);
                rule.anonymous.uid = id.unwrap_or(penstock_nfs::NOBODY);
            }
            "anonymous-gid" => {
                let id = self.id(&table::ANONYMOUS_GID, key, value);
                rule.anonymous.gid = id.unwrap_or(penstock_nfs::NOBODY);
            }
            "require-privileged-source-port" => {
                let flag = self.value(&table::PRIVILEGED_PORT, key, value);
                rule.privileged_port = matches!(flag, Some(Value::Flag(true)));
            }
            "allowed-auth" => rule.authentication = self.authentication(key, value),
            other => {
                let known = "it has `source`, `access`, `identity-squash`, `anonymous-uid`, `anonymous-gid`, \
                             `require-privileged-source-port` and `allowed-auth`";
                let cause = format!("`{other}` is no key of a rule");
                self.fault(self.line(key), &cause, known);
            }
        }
    }

    fn networks(&mut self, key: &Key<'_>, value: &DeValue<'_>) -> Vec<Network> {
        let mut networks = Vec::new();
        for text in self.texts(key, value) {
            match text.parse() {
                Ok(network) => networks.push(network),
                Err(error) => {
                    let cause = format!("`source`: {error}");
                    let remedy = "write an address, or a network with the number of its bits";
                    self.fault(self.line(key), &cause, remedy);
                }
            }
        }
        networks
    }

    fn id(&mut self, spec: &'static OptionSpec, key: &Key<'_>, value: &DeValue<'_>) -> Option<u32> {
        match self.value(spec, key, value)? {
            Value::Count(id) => u32::try_from(id).ok(),
            _ => None,
        }
    }

    fn authentication(&mut self, key: &Key<'_>, value: &DeValue<'_>) -> Authentication {
        let given = self.texts(key, value);
        let has = |word: &str| given.iter().any(|given| given.eq_ignore_ascii_case(word));
        let is_known = |given: &String| ["sys", "none"].contains(&&*given.to_ascii_lowercase());
        if let Some(other) = given.iter().find(|given| !is_known(given)) {
            let cause = format!("`allowed-auth` cannot be `{other}`");
            self.fault(
                self.line(key),
                &cause,
                "it must be a list of `sys` and `none`",
            );
        }
        match (has("sys"), has("none")) {
            (true, true) => Authentication::Both,
            (false, true) => Authentication::None,
            _ => Authentication::System,
        }
    }

    /// What one of some words means, however it is written: as `READ_ONLY` or as `read-only`.
    fn word<T: Copy>(
        &mut self,
        key: &Key<'_>,
        value: &DeValue<'_>,
        words: &[(&str, T)],
    ) -> Option<T> {
        let given = self.text(key, value)?;
        let written = given.to_ascii_lowercase().replace('_', "-");
        let found = words.iter().find(|(word, _)| *word == written);
        if found.is_none() {
            let cause = format!("`{}` cannot be `{given}`", key.get_ref());
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.fault(
                self.line(key),
                &cause,
                format!("it must be {}", words.join(" or ")),
            );
        }
        found.map(|(_, meaning)| *meaning)
    }

    /// A text that is not empty; what is none is told, and becomes an empty one.
    fn name(&mut self, key: &Key<'_>, value: &DeValue<'_>) -> String {
        let name = self.text(key, value);
        if name.as_deref() == Some("") {
            let cause = format!("`{}` is empty", key.get_ref());
            self.fault(self.line(key), &cause, SEE);
        }
        name.unwrap_or_default()
    }

    fn text(&mut self, key: &Key<'_>, value: &DeValue<'_>) -> Option<String> {
        let text = text_of(value);
        if text.is_none() {
            let cause = format!("`{}` must be one value", key.get_ref());
            self.fault(self.line(key), &cause, SEE);
        }
        text
    }

    /// One text, or a list of them, of which there is at least one.
    fn texts(&mut self, key: &Key<'_>, value: &DeValue<'_>) -> Vec<String> {
        let texts: Option<Vec<_>> = match value {
            DeValue::Array(values) => values
                .iter()
                .map(|value| text_of(value.get_ref()))
                .collect(),
            other => text_of(other).map(|text| vec![text]),
        };
        let texts = texts.unwrap_or_default();
        if texts.is_empty() {
            let cause = format!("`{}` must be a text, or a list of some", key.get_ref());
            self.fault(self.line(key), &cause, SEE);
        }
        texts
    }
}

/// Stands for an address that could not be read.
fn nowhere() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 0))
}

#[cfg(test)]
mod tests;
