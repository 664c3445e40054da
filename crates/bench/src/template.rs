//! Commands and file contents with places to fill: `{bucket}`, `{mountpoint}`.
//!
//! An argument that begins with `?` is left out when one of its places is empty, so that one
//! template serves a bucket with and without a prefix: `?--prefix={prefix}/`.

use std::collections::BTreeMap;

use crate::{BenchError, BenchResult};

pub(crate) type Variables = BTreeMap<String, String>;

pub(crate) fn variables<const N: usize>(pairs: [(&str, String); N]) -> Variables {
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Fills the places of one text. `{{` is a brace.
pub(crate) fn expand(template: &str, variables: &Variables) -> BenchResult<String> {
    Ok(fill(template, variables)?.0)
}

/// Fills the places of a command, and leaves out arguments that do not apply.
pub(crate) fn expand_all(templates: &[String], variables: &Variables) -> BenchResult<Vec<String>> {
    let mut arguments = Vec::with_capacity(templates.len());
    for template in templates {
        let optional = template.strip_prefix('?');
        let (text, has_empty_place) = fill(optional.unwrap_or(template), variables)?;
        if optional.is_none() || !has_empty_place {
            arguments.push(text);
        }
    }
    Ok(arguments)
}

/// The text, and whether one of its places is empty.
fn fill(template: &str, variables: &Variables) -> BenchResult<(String, bool)> {
    let mut text = String::with_capacity(template.len());
    let mut has_empty_place = false;
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('{') {
            text.push('{');
            rest = behind;
            continue;
        }
        let (name, behind) = rest.split_once('}').ok_or_else(|| unclosed(template))?;
        let value = variables
            .get(name)
            .ok_or_else(|| unknown(name, template, variables))?;
        has_empty_place |= value.is_empty();
        text.push_str(value);
        rest = behind;
    }
    text.push_str(rest);
    Ok((text, has_empty_place))
}

fn unclosed(template: &str) -> BenchError {
    BenchError::new(
        format!("`{template}` has a brace that is not closed"),
        "write `{{` where a brace is meant",
    )
}

fn unknown(name: &str, template: &str, variables: &Variables) -> BenchError {
    let known: Vec<_> = variables.keys().map(String::as_str).collect();
    BenchError::new(
        format!("`{template}` names {{{name}}}, which does not exist"),
        format!("there are {}", known.join(", ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Variables {
        variables([
            ("bucket", "b".to_owned()),
            ("prefix", String::new()),
            ("mountpoint", "/m".to_owned()),
        ])
    }

    #[test]
    fn places_are_filled_and_braces_kept() {
        assert_eq!(
            expand("s3://{bucket}{prefix} {{x} {mountpoint}", &known()).expect("valid"),
            "s3://b {x} /m"
        );
    }

    #[test]
    fn an_argument_that_does_not_apply_is_left_out() {
        let templates = ["a", "?--prefix={prefix}/", "?--bucket={bucket}"].map(str::to_owned);
        let arguments = expand_all(&templates, &known()).expect("valid");
        assert_eq!(arguments, ["a", "--bucket=b"]);
    }

    #[test]
    fn a_misspelt_place_is_an_error_that_names_the_others() {
        let error = expand("{buckett}", &known()).expect_err("unknown");
        assert!(
            error
                .to_string()
                .contains("there are bucket, mountpoint, prefix")
        );
        assert!(expand("{bucket", &known()).is_err());
    }
}
