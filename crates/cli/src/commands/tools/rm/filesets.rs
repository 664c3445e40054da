//! `parrm fileset://NAME/path`: a fileset that is not mounted is opened in this process.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use penstock_tools::{
    Report, Stop,
    direct::Place,
    remove::{self, Settings, VolumePath},
};

use crate::{
    command_line,
    commands::tools::direct::{Opened, Opening},
    environment::Environment,
    failure::Outcome,
    options::Scope,
};

const SCHEME: &str = "fileset://";
/// Nothing is copied.
const NO_TARGET: &str = ".";

/// Whether `path` is in a fileset, and not on this machine's file systems.
pub(super) fn is_meant(path: &Path) -> bool {
    path.as_os_str()
        .as_encoded_bytes()
        .starts_with(SCHEME.as_bytes())
}

/// Opens the filesets that `paths` name, if there are any.
pub(super) fn open(
    paths: &[PathBuf],
    matches: &ArgMatches,
    environment: &Environment,
) -> Outcome<Option<Opened>> {
    if paths.is_empty() {
        return Ok(None);
    }
    let opening = Opening {
        given: command_line::given_by_name(matches, Scope::Fileset),
        environment,
        keeps_metadata: false,
        is_exact: false,
        deletes: false,
    };
    opening.open(paths, Path::new(NO_TARGET)).map(Some)
}

/// Removes what was named, and makes that durable.
pub(super) fn remove(opened: Opened, settings: &Settings, report: &Report, stop: &Stop) {
    let paths: Vec<VolumePath> = opened.sources.iter().filter_map(in_volume).collect();
    remove::remove_in_volumes(&paths, settings, report, stop);
    drop(paths);
    opened.shut_down(report);
}

fn in_volume(place: &Place) -> Option<VolumePath> {
    match place {
        Place::Local(_) => None,
        Place::Volume(place) => Some(VolumePath {
            tree: place.tree.clone(),
            path: place.path.clone(),
            is_directory: place.shown.ends_with('/'),
            shown: PathBuf::from(&place.shown),
        }),
    }
}
