//! The file that takes the place of a listing: on this machine, or an object.

use std::path::{Path, PathBuf};

use penstock_base::metrics::Registry;
use penstock_object::Key;
use penstock_stream::{Manifest, ManifestLocation, ManifestSettings};

use crate::{
    environment::Environment,
    failure::{Failure, Outcome},
    options::{Values, table},
    stores,
};

/// What `--manifest` names, if it is given. Its keys are those of the bucket, as inventories have them, whatever
/// path of the bucket is shown.
pub(super) fn of(
    source: &str,
    values: &Values,
    environment: &Environment,
) -> Outcome<Option<Manifest>> {
    let path = values.path(&table::MANIFEST).map(Path::to_owned);
    let url = values.text(&table::MANIFEST);
    let path = path.or_else(|| Some(PathBuf::from(url?.strip_prefix("file://")?)));
    let (name, location) = match (path, url) {
        (Some(path), _) => (path.display().to_string(), ManifestLocation::File(path)),
        (None, Some(url)) => (url.to_owned(), object(url, source, values, environment)?),
        (None, None) => return Ok(None),
    };
    Ok(Some(Manifest {
        location,
        name,
        settings: ManifestSettings {
            prefix: stores::parse(source)?.prefix().to_owned(),
            columns: values.text(&table::MANIFEST_COLUMNS).map(str::to_owned),
            ..ManifestSettings::default()
        },
    }))
}

fn object(
    url: &str,
    source: &str,
    values: &Values,
    environment: &Environment,
) -> Outcome<ManifestLocation> {
    let (bucket, key) = split(url, source)?;
    // Endpoint and credentials are those of the volume.
    let store = stores::open(&bucket, values, environment, &Registry::new())?;
    let key = Key::new(key).map_err(|error| {
        Failure::usage(
            format!("the manifest `{url}` has no valid key: {error}"),
            "check its name",
        )
    })?;
    Ok(ManifestLocation::Object { store, key })
}

/// The bucket and the key of a manifest that is an object.
fn split<'a>(url: &'a str, source: &str) -> Outcome<(String, &'a str)> {
    let (scheme, place) = url.split_once("://").unwrap_or_default();
    let (own, _) = source.split_once("://").unwrap_or_default();
    if scheme != own || own == "file" {
        return Err(Failure::usage(
            format!("the manifest `{url}` is in another kind of store than {own}://"),
            "copy it to a local file, or beside the objects",
        ));
    }
    match place.split_once('/') {
        Some((bucket, key)) if !key.is_empty() && !key.ends_with('/') => {
            Ok((format!("{scheme}://{bucket}"), key))
        }
        _ => Err(Failure::usage(
            format!("the manifest `{url}` is no object"),
            format!("name it whole, such as {own}://BUCKET/inventory.csv"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_an_object_of_the_same_kind_of_store() {
        let found = split("s3://b/a/keys.csv", "s3://c/data").expect("an object");
        assert_eq!(found, ("s3://b".to_owned(), "a/keys.csv"));
        for (url, source, part) in [
            ("oss://b/keys", "s3://b", "another kind of store than s3://"),
            ("s3://b/keys", "file:///b", "another kind of store"),
            ("s3://b", "s3://b", "is no object"),
            ("s3://b/", "s3://b", "is no object"),
            ("s3://b/a/", "s3://b", "is no object"),
        ] {
            let failure = split(url, source).expect_err(url);
            assert!(failure.cause().contains(part), "{}", failure.cause());
            assert!(!failure.remedy().is_empty());
        }
    }
}
