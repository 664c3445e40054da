//! What ossfs 1.91 refuses to start with.
//!
//! Ranges of single options are the business of [`super::convert`]; here are names of buckets and
//! settings that exclude or need one another.

use super::collector::Collector;
use crate::{
    environment::Environment,
    failure::{Failure, Outcome},
    options::table,
};

/// Letters that no name of a bucket has.
const NOT_IN_NAMES: &str = "/:\\;!@#$%^&*?|+=";

/// Variables of which one holds the token that `use_session_token` insists on.
const TOKENS: [&str; 3] = [
    "OSSSESSIONTOKEN",
    "OSS_SESSION_TOKEN",
    "PENSTOCK_SESSION_TOKEN",
];

/// Finds mistakes in `bucket`, which may have a path, and in the settings as a whole.
pub(super) fn check(bucket: &str, collector: &Collector, environment: &Environment) -> Outcome {
    check_name(bucket, collector)?;
    check_credentials(collector, environment)?;
    check_pairs(collector)?;
    check_owner(collector)
}

fn check_name(bucket: &str, collector: &Collector) -> Outcome {
    let name = bucket.split(':').next().unwrap_or_default();
    if name.is_empty() || name.contains(|letter| NOT_IN_NAMES.contains(letter)) {
        return Err(Failure::usage(
            format!("`{name}` is not the name of a bucket"),
            "write BUCKET or BUCKET:/PATH",
        ));
    }
    let has_capitals = name.contains(|letter: char| letter.is_ascii_uppercase());
    if has_capitals && !collector.own_switch("use_path_request_style") {
        return Err(Failure::usage(
            format!("`{name}` has capitals, which host names do not tell apart"),
            "add `-o use_path_request_style`",
        ));
    }
    Ok(())
}

fn check_credentials(collector: &Collector, environment: &Environment) -> Outcome {
    if collector.own_switch("sigv4") && !collector.has(&table::REGION) {
        return Err(Failure::usage(
            "`sigv4` needs a region",
            "add `-o region=REGION`, such as cn-hangzhou",
        ));
    }
    let has_token = TOKENS
        .iter()
        .any(|name| environment.variable(name).is_some());
    if collector.own_switch("use_session_token") && !has_token {
        return Err(Failure::usage(
            "`use_session_token` is given, but there is no token",
            "set OSSSESSIONTOKEN in the environment, beside OSSACCESSKEYID and OSSSECRETACCESSKEY",
        ));
    }
    if let Some(command) = collector.own("credential_process")
        && (command.contains('$') || !command.starts_with('/'))
    {
        return Err(Failure::usage(
            "`credential_process` is not an absolute path without `$`",
            "no shell reads it: write the path of the program and its arguments",
        ));
    }
    Ok(())
}

fn check_pairs(collector: &Collector) -> Outcome {
    let is_set = |name| collector.own(name).is_some_and(|text| text != "0");
    if is_set("ensure_diskfree") && is_set("free_space_ratio") {
        return Err(exclusive("ensure_diskfree", "free_space_ratio"));
    }
    if collector.own_switch("use_xattr") && collector.own_switch("readdir_optimize") {
        return Err(exclusive("use_xattr", "readdir_optimize"));
    }
    Ok(())
}

fn exclusive(one: &str, other: &str) -> Failure {
    Failure::usage(
        format!("`{one}` and `{other}` exclude one another"),
        "leave one of them out",
    )
}

fn check_owner(collector: &Collector) -> Outcome {
    for name in ["uid", "gid"] {
        if collector.own(name) == Some("0") && !penstock_base::is_root() {
            return Err(Failure::usage(
                format!("only root may set `{name}` to 0"),
                "leave it out, or mount as root",
            ));
        }
    }
    Ok(())
}
