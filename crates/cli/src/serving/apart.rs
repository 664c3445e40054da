//! Whether volumes that one process serves are apart: in their sources, and in what they keep on this machine.
//!
//! Paths are compared where they lead, so that links, `..` and slashes hide nothing.
//!
//! | two volumes | |
//! |---|---|
//! | of one source | refused: neither would know of the other's unsaved files and locks. One can be exported twice |
//! | one source within the other, and both can be changed | refused, for the same reason; the data of a fileset would be files that clients can remove |
//! | the same, and one of them is read-only | allowed: that one sees late what the other one saved, as a mount elsewhere would |
//! | of which one keeps something in a directory of the other, or in its source | refused: who clears the one away loses the other; files of a cache would be files of clients |
//!
//! What one volume keeps within another directory of its own, such as `DIR` and `DIR/staging`, is its own affair.

use std::path::{Path, PathBuf};

use penstock_object::StoreUrl;

use super::NamedVolume;
use crate::{
    environment::Environment, failure::Failure, filesets, mount_point, options::table, places,
    stores,
};

/// What a volume has somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Its objects, and whether they can be changed.
    Source { read_only: bool },
    /// What it keeps, as the option calls it.
    Own(&'static str),
}

/// Something that a volume has in a directory of this machine, or in a bucket.
#[derive(Debug, Clone)]
struct Place<'a> {
    volume: &'a str,
    what: What,
    /// What tells stores apart; empty for this machine.
    store: String,
    /// Where it leads. Within a bucket it is the prefix.
    path: PathBuf,
}

impl Place<'_> {
    fn is_around(&self, other: &Self) -> bool {
        self.store == other.store && other.path.starts_with(&self.path)
    }

    fn shown(&self) -> String {
        let path = self.path.display();
        match self.what {
            What::Source { .. } => format!("the source of [volume.{}]", self.volume),
            What::Own(option) => format!("`{option}` of [volume.{}], `{path}`", self.volume),
        }
    }
}

/// The faults between volumes, one for each cause.
pub(super) fn faults(volumes: &[NamedVolume]) -> Vec<Failure> {
    let places: Vec<_> = volumes.iter().flat_map(places_of).collect();
    let (mut faults, mut told) = (Vec::new(), Vec::new());
    for (index, place) in places.iter().enumerate() {
        let is_same = |other: &&Place<'_>| {
            other.volume != place.volume && other.store == place.store && other.path == place.path
        };
        // All that are at one place are told at once, with the first of them.
        if told.contains(&(&place.store, &place.path)) {
            continue;
        }
        let same: Vec<_> = places[index..].iter().filter(is_same).collect();
        if !same.is_empty() {
            told.push((&place.store, &place.path));
            faults.push(shared(place, &same));
        }
    }
    for (index, one) in places.iter().enumerate() {
        for other in places[index..]
            .iter()
            .filter(|other| other.volume != one.volume)
        {
            faults.extend(nested(one, other));
        }
    }
    faults
}

/// Refuses what keeps the key of handles where clients could read it.
pub(super) fn check_state(
    state: Option<&Path>,
    volumes: &[NamedVolume],
    environment: &Environment,
) -> Option<Failure> {
    let state = state.map_or_else(|| places::nfs(environment).path(), Path::to_owned);
    let state = mount_point::real(&state);
    let places: Vec<_> = volumes.iter().flat_map(places_of).collect();
    let is_source = |place: &&Place<'_>| matches!(place.what, What::Source { .. });
    let mut sources = places.iter().filter(is_source);
    let around = sources.find(|place| place.store.is_empty() && state.starts_with(&place.path))?;
    Some(Failure::usage(
        format!(
            "the state of mount targets, `{}`, lies within {}: clients could read its key",
            state.display(),
            around.shown()
        ),
        "put it elsewhere with `state-dir`",
    ))
}

fn places_of(volume: &NamedVolume) -> Vec<Place<'_>> {
    let NamedVolume { name, spec } = volume;
    let values = &spec.values;
    let own = |option, path: &Path| Place {
        volume: name,
        what: What::Own(option),
        store: String::new(),
        path: mount_point::real(path),
    };
    let cache = values.path(&table::CACHE_DIR);
    let mut places: Vec<_> = cache
        .map(|path| own("cache-dir", path))
        .into_iter()
        .collect();
    places.extend(spec.named_staging().map(|path| own("staging-dir", path)));
    let source = filesets::place_of(&spec.source, &spec.environment);
    let url = source.and_then(|place| stores::parse(&place.store));
    places.extend(url.ok().map(|url| {
        let (store, path) = match url {
            StoreUrl::File { directory, prefix } => {
                (String::new(), mount_point::real(&directory).join(prefix))
            }
            StoreUrl::S3(bucket) | StoreUrl::Oss(bucket) => {
                let place = [&table::ENDPOINT, &table::REGION];
                let place = place.map(|option| values.text(option).unwrap_or_default());
                let store = format!("{} {}", bucket.bucket, place.join(" "));
                (store, PathBuf::from(bucket.prefix))
            }
        };
        let read_only = values.flag(&table::READ_ONLY);
        Place {
            volume: name,
            what: What::Source { read_only },
            store,
            path,
        }
    }));
    places
}

/// Several volumes have something at one place.
fn shared(place: &Place<'_>, others: &[&Place<'_>]) -> Failure {
    let mut names = vec![place.volume];
    for other in others {
        if !names.contains(&other.volume) {
            names.push(other.volume);
        }
    }
    let (last, first) = names.split_last().unwrap_or((&place.volume, &[]));
    let first: Vec<_> = first
        .iter()
        .map(|name| format!("[volume.{name}]"))
        .collect();
    let names = format!("{} and [volume.{last}]", first.join(", "));
    let all = || others.iter().copied().chain([place]);
    if all().all(|place| matches!(place.what, What::Source { .. })) {
        let cause = format!("{names} have the same source");
        return Failure::usage(cause, "export one of them twice");
    }
    Failure::usage(
        format!("{names} have the same directory `{}`", place.path.display()),
        "give each volume a `cache-dir` and a `staging-dir` of its own, in its section",
    )
}

/// One lies within the other, but not at the same place.
fn nested(one: &Place<'_>, other: &Place<'_>) -> Option<Failure> {
    let (outer, inner) = match (one.is_around(other), other.is_around(one)) {
        (true, false) => (one, other),
        (false, true) => (other, one),
        _ => return None,
    };
    let (outer_shown, inner_shown) = (outer.shown(), inner.shown());
    Some(match (outer.what, inner.what) {
        (What::Source { read_only: true }, What::Source { .. })
        | (What::Source { .. }, What::Source { read_only: true }) => return None,
        (What::Source { .. }, What::Source { .. }) => Failure::usage(
            format!("{inner_shown} lies within {outer_shown}, and both can be changed"),
            "export the outer one alone, or make one of them `read-only = true`",
        ),
        (What::Source { .. }, What::Own(option)) => Failure::usage(
            format!(
                "{inner_shown}, lies within {outer_shown}: its files would be files of clients"
            ),
            format!("put it elsewhere with `{option}`"),
        ),
        (What::Own(option), _) => Failure::usage(
            format!("{inner_shown} lies within {outer_shown}"),
            format!("give each volume a place of its own; move `{option}`"),
        ),
    })
}
