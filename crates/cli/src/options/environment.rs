//! Options in environment variables: `PENSTOCK_` and the name in capitals, and what the tools of AWS read.

use super::{Given, Origin, table};
use crate::environment::{Environment, FILESETS_VARIABLE};

const PREFIX: &str = "PENSTOCK_";

/// Where the tools of AWS look for the certificates that they trust.
const CA_BUNDLE: &str = "AWS_CA_BUNDLE";

/// The options that variables set. A variable with our prefix that names no option is reported
/// in the second list: it is a typing mistake, but no reason to fail whatever else runs there.
pub(crate) fn given(environment: &Environment) -> (Vec<Given>, Vec<String>) {
    let mut given = Vec::new();
    let mut unknown = Vec::new();
    for (name, value) in environment.variables() {
        let Some(word) = name.strip_prefix(PREFIX) else {
            continue;
        };
        if name == FILESETS_VARIABLE {
            continue;
        }
        match table::find(&word.to_ascii_lowercase()) {
            Some(spec) => given.push(Given {
                spec,
                spelling: name.clone(),
                text: value.clone(),
                origin: Origin::Environment,
            }),
            None => unknown.push(name.clone()),
        }
    }
    given.extend(environment.variable(CA_BUNDLE).map(|path| Given {
        spec: &table::CA_FILE,
        spelling: CA_BUNDLE.to_owned(),
        text: path.to_owned(),
        origin: Origin::Variable(CA_BUNDLE),
    }));
    (given, unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_sets_the_option_of_its_name() {
        let environment = Environment::of(&[
            ("PENSTOCK_ATTR_TIMEOUT", "5s"),
            ("PENSTOCK_TYPO", "1"),
            (FILESETS_VARIABLE, "/srv/filesets"),
            ("HOME", "/root"),
        ]);
        let (given, unknown) = given(&environment);
        assert_eq!(given.len(), 1);
        assert_eq!(
            (given[0].spec.name, given[0].text.as_str()),
            ("attr-timeout", "5s")
        );
        assert_eq!(unknown, ["PENSTOCK_TYPO"]);
    }
}
