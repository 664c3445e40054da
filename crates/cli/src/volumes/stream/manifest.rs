//! The file that takes the place of a listing: on this machine, or an object.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_base::metrics::Registry;
use penstock_object::{HeadOptions, Key, Store};
use penstock_stream::{ManifestLocation, ManifestSettings};

use super::IndexRequest;
use crate::{
    explain,
    failure::{Failure, Outcome},
    options::table,
    stores,
};

/// A manifest that was asked for.
pub(super) enum Manifest {
    File(PathBuf),
    Object {
        url: String,
        store: Arc<dyn Store>,
        key: Key,
    },
}

impl Manifest {
    /// What `--manifest` names, if it is given.
    pub(super) fn of(request: &IndexRequest<'_>) -> Outcome<Option<Self>> {
        if let Some(path) = request.values.path(&table::MANIFEST) {
            return Ok(Some(Self::File(path.to_owned())));
        }
        let Some(url) = request.values.text(&table::MANIFEST) else {
            return Ok(None);
        };
        match url.strip_prefix("file://") {
            Some(path) => Ok(Some(Self::File(PathBuf::from(path)))),
            None => Self::object(url, request).map(Some),
        }
    }

    fn object(url: &str, request: &IndexRequest<'_>) -> Outcome<Self> {
        let (bucket, key) = split(url, request.source)?;
        // Endpoint and credentials are those of the volume.
        let registry = Registry::new();
        let store = stores::open(&bucket, request.values, request.environment, &registry)?;
        let key = Key::new(key).map_err(|error| {
            Failure::usage(
                format!("the manifest `{url}` has no valid key: {error}"),
                "check its name",
            )
        })?;
        Ok(Self::Object {
            url: url.to_owned(),
            store,
            key,
        })
    }

    /// Where its bytes are.
    pub(super) fn location(&self) -> ManifestLocation {
        match self {
            Self::File(path) => ManifestLocation::File(path.clone()),
            Self::Object { store, key, .. } => ManifestLocation::Object {
                store: Arc::clone(store),
                key: key.clone(),
            },
        }
    }

    /// What tells this state of it from every other. Fails when it cannot be had.
    pub(super) async fn version(&self) -> Outcome<String> {
        match self {
            Self::File(path) => file_version(path),
            Self::Object { url, store, key } => {
                let info = store.head(key, HeadOptions::default()).await;
                let info = info.map_err(|error| explain::store_error(url, &error))?;
                Ok(format!("{url} {}", info.etag))
            }
        }
    }
}

/// How the manifest of this request is read. Its keys are those of the bucket, as inventories have
/// them, whatever path of the bucket is shown.
pub(super) fn settings(request: &IndexRequest<'_>) -> Outcome<ManifestSettings> {
    Ok(ManifestSettings {
        prefix: stores::parse(request.source)?.prefix().to_owned(),
        columns: request
            .values
            .text(&table::MANIFEST_COLUMNS)
            .map(str::to_owned),
        ..ManifestSettings::default()
    })
}

fn file_version(path: &Path) -> Outcome<String> {
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| {
        Failure::new(
            format!("cannot read the manifest `{shown}`: {error}"),
            "check its path, or write s3://BUCKET/KEY or oss://BUCKET/KEY for an object",
        )
    })?;
    let modified = metadata.modified().ok();
    Ok(format!("{shown} {} {modified:?}", metadata.len()))
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
