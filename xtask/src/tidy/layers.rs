//! Which crate may depend on which.
//!
//! ```text
//! cli  ->  fuse (door)    ->          vfs  ->  base
//!      ->  nfs (door)     ->          vfs  ->  base
//!      ->  block (door)    ->          fuse
//!      ->  bucket (volume) ->  vfs, transfer  ->  object  ->  base
//!      ->  stream (volume) ->  vfs, transfer
//!      ->  fileset (volume) ->  vfs, transfer
//!      ->  tikv (database of filesets) ->  fileset
//!      ->  tools           ->          vfs, object  ->  base
//!      ->  bench           ->          development server
//!      ->  control         ->          base
//! ```
//!
//! Volumes and doors know only `vfs`, never each other. The development server uses nothing of
//! ours, so that it can judge what we send; of what users run only the benchmark starts it. Tests of
//! every crate say with `skips` what they could not do.
//! Protocol libraries stay below the seam that hides them.

use std::{path::Path, process::Command};

use serde_json::Value;

use super::Finding;

/// A crate of ours with the crates of ours that it may use.
const LAYERS: [(&str, &[&str]); 22] = [
    ("penstock-base", &[]),
    ("penstock-control", &["penstock-base"]),
    ("penstock-object", &["penstock-base"]),
    (STORES, &["penstock-base", "penstock-object"]),
    ("penstock-transfer", &["penstock-base", "penstock-object"]),
    ("penstock-vfs", &["penstock-base"]),
    (CONFORMANCE, &["penstock-base", "penstock-vfs"]),
    (TOYS, &["penstock-base", "penstock-vfs"]),
    (
        "penstock-bucket",
        &[
            "penstock-base",
            "penstock-object",
            "penstock-transfer",
            "penstock-vfs",
        ],
    ),
    (
        "penstock-stream",
        &[
            "penstock-base",
            "penstock-object",
            "penstock-transfer",
            "penstock-vfs",
        ],
    ),
    (
        "penstock-fileset",
        &[
            "penstock-base",
            "penstock-object",
            "penstock-transfer",
            "penstock-vfs",
        ],
    ),
    (
        "penstock-tikv",
        &[
            "penstock-base",
            "penstock-fileset",
            // Its tests put a volume above it.
            "penstock-object",
            "penstock-transfer",
            "penstock-vfs",
        ],
    ),
    ("penstock-fuse", &["penstock-base", "penstock-vfs"]),
    ("penstock-nfs", &["penstock-base", "penstock-vfs"]),
    (
        "penstock-block",
        &["penstock-base", "penstock-fuse", "penstock-vfs"],
    ),
    (
        "penstock-cli",
        &[
            "penstock-base",
            "penstock-bench",
            "penstock-block",
            "penstock-bucket",
            "penstock-control",
            "penstock-fileset",
            "penstock-fuse",
            "penstock-nfs",
            "penstock-object",
            "penstock-stream",
            "penstock-tikv",
            "penstock-tools",
            "penstock-transfer",
            "penstock-vfs",
        ],
    ),
    (
        "penstock-tools",
        &["penstock-base", "penstock-object", "penstock-vfs"],
    ),
    ("penstock-bench", &["penstock-base", DEVELOPMENT_SERVER]),
    (DEVELOPMENT_SERVER, &[]),
    (SKIPS, &[]),
    (
        "penstock-tests",
        &[
            "penstock-base",
            "penstock-object",
            DEVELOPMENT_SERVER,
            SKIPS,
        ],
    ),
    ("xtask", &[]),
];

const DEVELOPMENT_SERVER: &str = "penstock-devserver";
const SKIPS: &str = "penstock-skips";
const CONFORMANCE: &str = "penstock-vfs-conformance";
const TOYS: &str = "penstock-toys";
const STORES: &str = "penstock-object-testing";
/// Crates of ours that the tests of every crate may use.
const FOR_TESTS: [&str; 5] = [DEVELOPMENT_SERVER, SKIPS, CONFORMANCE, STORES, TOYS];

/// Libraries that speak a protocol, with the crates that may use them; those that none may are for tests.
const CONFINED: [(&str, &[&str]); 10] = [
    ("httparse", &["penstock-object", DEVELOPMENT_SERVER]),
    ("quick-xml", &["penstock-object", DEVELOPMENT_SERVER]),
    (
        "rustls",
        &["penstock-object", "penstock-fileset", DEVELOPMENT_SERVER],
    ),
    ("tokio-rustls", &["penstock-object", "penstock-fileset"]),
    ("tokio-postgres", &["penstock-fileset"]),
    ("tikv-client", &["penstock-tikv"]),
    ("io-uring", &["penstock-block"]),
    ("nfs3_client", &[]),
    ("nfs3_types", &[]),
    ("clap", &["penstock-cli", DEVELOPMENT_SERVER]),
];

/// Asks cargo for the packages at `root` and compares their dependencies with the table.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("metadata: {error}"))?;
    Ok(check_metadata(&metadata))
}

fn check_metadata(metadata: &Value) -> Vec<Finding> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages.flat_map(check_package).collect()
}

fn check_package(package: &Value) -> Vec<Finding> {
    let name = text(&package["name"]);
    let Some((_, allowed)) = LAYERS.iter().find(|(known, _)| *known == name) else {
        let advice = "is not in the table: give it a layer in xtask/src/tidy/layers.rs";
        return vec![finding(name, advice.to_owned())];
    };
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    dependencies
        .filter_map(|dependency| {
            let target = text(&dependency["name"]);
            let is_for_tests = dependency["kind"].as_str() == Some("dev");
            (!is_allowed(name, allowed, target, is_for_tests))
                .then(|| finding(name, format!("may not depend on {target}")))
        })
        .collect()
}

fn is_allowed(name: &str, allowed: &[&str], target: &str, is_for_tests: bool) -> bool {
    if FOR_TESTS.contains(&target) && is_for_tests {
        return true;
    }
    if LAYERS.iter().any(|(known, _)| *known == target) {
        return allowed.contains(&target) || target == name;
    }
    CONFINED
        .iter()
        .all(|(library, users)| *library != target || is_for_tests || users.contains(&name))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn finding(subject: &str, message: String) -> Finding {
    Finding {
        rule: "layers",
        subject: subject.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(name: &str, dependency: &str, kind: Option<&str>) -> Vec<String> {
        let metadata = json!({"packages": [{
            "name": name,
            "dependencies": [{"name": dependency, "kind": kind}],
        }]});
        let findings = check_metadata(&metadata);
        findings.into_iter().map(|found| found.message).collect()
    }

    #[test]
    fn volumes_and_doors_never_see_each_other() {
        assert_eq!(messages("penstock-bucket", "penstock-fuse", None).len(), 1);
        assert_eq!(messages("penstock-fuse", "penstock-bucket", None).len(), 1);
        assert_eq!(
            messages("penstock-fuse", "penstock-object", Some("dev")).len(),
            1
        );
        assert_eq!(messages("penstock-fuse", "penstock-vfs", None).len(), 0);
    }

    #[test]
    fn the_development_server_is_for_tests_alone() {
        let server = DEVELOPMENT_SERVER;
        assert_eq!(messages("penstock-cli", server, None).len(), 1);
        assert_eq!(messages("penstock-cli", server, Some("dev")).len(), 0);
        assert_eq!(messages(server, "penstock-base", None).len(), 1);
        assert_eq!(messages("penstock-tests", server, None).len(), 0);
    }

    #[test]
    fn only_tests_can_be_skipped() {
        assert_eq!(messages("penstock-fuse", SKIPS, None).len(), 1);
        assert_eq!(messages("penstock-fuse", SKIPS, Some("dev")).len(), 0);
    }

    #[test]
    fn protocol_libraries_stay_below_their_seam() {
        assert_eq!(messages("penstock-bucket", "httparse", None).len(), 1);
        assert_eq!(messages("penstock-object", "httparse", None).len(), 0);
        assert_eq!(messages("penstock-bucket", "bytes", None).len(), 0);
    }

    #[test]
    fn a_crate_without_a_layer_is_found() {
        let found = messages("penstock-novelty", "bytes", None);
        assert!(found[0].contains("give it a layer"), "{found:?}");
    }
}
