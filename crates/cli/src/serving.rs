//! What `penstock serve` serves: volumes, mount targets, and what these export.
//!
//! It comes from a file with [target.NAME] and [[export]] ([`Serving::of_file`]), or from a source and options
//! ([`Serving::of_source`]), which make the same with one of each, that have no names. A file is looked at again while its
//! targets are served: `live`.

mod apart;
mod live;

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use penstock_nfs::{Export, Network, ParseNetworkError, Rule, Squash, TargetType};
use penstock_vfs::Owner;

use crate::{
    environment::Environment,
    failure::{Failure, Outcome},
    filesets, mount_point,
    mount_point::Own,
    options::{
        Given, OptionSpec, Values,
        config_file::{self, ConfigFile},
        table,
    },
    output, places, stores,
    volumes::{VolumeKind, VolumeSpec},
};

pub(crate) use live::Live;

/// Options that a file with exports says in its sections.
const OF_SECTIONS: [(&OptionSpec, &str); 9] = [
    (&table::LISTEN, "`listen` in [target.NAME]"),
    (&table::PORTMAP, "`portmap` in [target.NAME]"),
    (&table::TARGET_TYPE, "`type` in [target.NAME]"),
    (&table::EXPORT_PATH, "`path` in [[export]]"),
    (&table::CLIENTS, "`source` in [[export.rule]]"),
    (&table::SQUASH, "`identity-squash` in [[export.rule]]"),
    (&table::ANONYMOUS_UID, "`anonymous-uid` in [[export.rule]]"),
    (&table::ANONYMOUS_GID, "`anonymous-gid` in [[export.rule]]"),
    (
        &table::PRIVILEGED_PORT,
        "`require-privileged-source-port` in [[export.rule]]",
    ),
];

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Serving {
    /// What holds for the process, whatever it serves: its memory, its log, where it keeps its state.
    pub values: Values,
    /// What people call all of it.
    pub title: String,
    /// What the process is called where mounts are called by their mount points.
    pub place: PathBuf,
    pub volumes: Vec<NamedVolume>,
    pub targets: Vec<NamedTarget>,
    pub exports: Vec<Export>,
    /// Where it stands, if it stands in a file, and what holds beside that.
    pub file: Option<(PathBuf, Vec<Given>)>,
    environment: Environment,
}

/// A volume as exports call it.
#[derive(Debug, Clone)]
pub(crate) struct NamedVolume {
    pub name: String,
    pub spec: VolumeSpec,
}

/// A mount target as exports call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedTarget {
    pub name: String,
    pub listen: SocketAddr,
    pub portmap: Option<SocketAddr>,
    pub target_type: TargetType,
}

impl Serving {
    /// One volume, one target and one export, as options say.
    pub(crate) fn of_source(
        source: &str,
        values: &Values,
        environment: &Environment,
    ) -> Outcome<Self> {
        let listen = values.address(&table::LISTEN).ok_or_else(|| {
            Failure::usage(
                "no address to listen on is given",
                "name one with --listen, such as 127.0.0.1:12049",
            )
        })?;
        let place = places::of_target(&listen.to_string());
        let spec = volume_of(source, place.clone(), (values.clone(), environment))?;
        Ok(Self {
            values: values.clone(),
            title: source.to_owned(),
            place,
            volumes: vec![NamedVolume {
                name: String::new(),
                spec,
            }],
            targets: vec![NamedTarget {
                name: String::new(),
                listen,
                portmap: values.address(&table::PORTMAP),
                target_type: target_type(values),
            }],
            exports: vec![export(values)?],
            file: None,
            environment: environment.clone(),
        })
    }

    /// What a file says; `given` are the options of the command line and of the environment. Fails with every fault that
    /// can be found without asking a store or listening anywhere.
    pub(crate) fn of_file(
        path: &Path,
        given: Vec<Given>,
        environment: &Environment,
    ) -> Result<Self, Vec<Failure>> {
        let (file, mut faults) = config_file::read_all(path).map_err(|fault| vec![fault])?;
        if !file.has_exports() && faults.is_empty() {
            faults.push(Failure::usage(
                format!(
                    "`{}` has no [target.NAME] and no [[export]]",
                    path.display()
                ),
                "write them, or name a SOURCE and --listen",
            ));
        }
        // What is wrong with a value of all is told once, and not with each volume.
        let values = match values_of(&file, None, (&given, environment)) {
            Ok(values) => Some(values),
            Err(fault) => {
                add_new(&mut faults, fault);
                None
            }
        };
        let place = places::of_target(&path.display().to_string());
        let mut volumes = Vec::new();
        for section in &file.volumes {
            let mut exports = file.exports.iter();
            if exports.any(|known| known.export.volume == section.name) {
                let spec = values_of(&file, Some(&section.source), (&given, environment)).and_then(
                    |values| {
                        volume_of(
                            &section.source,
                            place.join(&section.name),
                            (values, environment),
                        )
                    },
                );
                match spec {
                    Ok(spec) => volumes.push(NamedVolume {
                        name: section.name.clone(),
                        spec,
                    }),
                    Err(fault) if faults.contains(&fault) => {}
                    Err(fault) => faults.push(in_volume(&section.name, &fault)),
                }
            }
        }
        faults.extend(apart::faults(&volumes));
        let Some(values) = values else {
            return Err(faults);
        };
        let state = values.path(&table::STATE_DIR);
        faults.extend(apart::check_state(state, &volumes, environment));
        faults.extend(misplaced(&values));
        if !faults.is_empty() {
            return Err(faults);
        }
        let targets = file.targets.iter().map(|target| NamedTarget {
            name: target.name.clone(),
            listen: target.listen,
            portmap: target.portmap,
            target_type: target.target_type,
        });
        Ok(Self {
            values,
            title: path.display().to_string(),
            place,
            volumes,
            targets: targets.collect(),
            exports: file.exports.into_iter().map(|known| known.export).collect(),
            file: Some((path.to_owned(), given)),
            environment: environment.clone(),
        })
    }

    /// What the process is as one volume: what holds for all that it serves.
    pub(crate) fn process(&self) -> VolumeSpec {
        let first = self.volumes.first().map(|volume| volume.spec.kind);
        VolumeSpec {
            kind: first.unwrap_or(VolumeKind::Bucket),
            source: self.title.clone(),
            mountpoint: self.place.clone(),
            values: self.values.clone(),
            environment: self.environment.clone(),
        }
    }

    /// In a few words.
    pub(crate) fn summary(&self) -> String {
        let count = |count: usize, word: &str| match count {
            1 => format!("1 {word}"),
            many => format!("{many} {word}s"),
        };
        format!(
            "{} of {} at {}",
            count(self.exports.len(), "export"),
            count(self.volumes.len(), "volume"),
            count(self.targets.len(), "mount target")
        )
    }

    /// The exports as they are served: nothing may be changed of a volume that is read-only.
    pub(crate) fn effective_exports(&self, is_read_only: &HashMap<String, bool>) -> Vec<Export> {
        let mut exports = self.exports.clone();
        for export in &mut exports {
            let is_read_only = is_read_only.get(&export.volume).copied().unwrap_or(true);
            for rule in &mut export.rules {
                rule.read_only |= is_read_only;
            }
        }
        exports
    }
}

fn values_of(
    file: &ConfigFile,
    source: Option<&str>,
    (given, environment): (&[Given], &Environment),
) -> Outcome<Values> {
    let mut all = given.to_vec();
    all.extend(file.of(source));
    if let Some(name) = source.and_then(filesets::name_in) {
        all.extend(filesets::kept_options(name, environment));
    }
    Values::resolve(all)
}

fn volume_of(
    source: &str,
    mountpoint: PathBuf,
    (values, environment): (Values, &Environment),
) -> Outcome<VolumeSpec> {
    let spec = VolumeSpec {
        kind: VolumeKind::of(source),
        source: source.to_owned(),
        mountpoint,
        values,
        environment: environment.clone(),
    };
    check_volume(&spec)?;
    Ok(spec)
}

/// Refuses a source that is none, and what is kept on this machine among the objects of a local directory.
fn check_volume(spec: &VolumeSpec) -> Outcome {
    let store = filesets::place_of(&spec.source, &spec.environment)?.store;
    stores::check_source(&store, &spec.values)?;
    let directory = stores::local_directory(&store);
    let own = [
        (Own::Cache, spec.values.path(&table::CACHE_DIR)),
        (Own::Staging, spec.named_staging()),
    ];
    for (what, path) in own {
        if let Some((directory, path)) = directory.as_ref().zip(path) {
            mount_point::check_own_apart(what, path, directory)?;
        }
    }
    Ok(())
}

fn add_new(faults: &mut Vec<Failure>, fault: Failure) {
    if !faults.contains(&fault) {
        faults.push(fault);
    }
}

fn in_volume(name: &str, fault: &Failure) -> Failure {
    Failure::usage(
        format!("[volume.{name}]: {}", fault.cause()),
        fault.remedy(),
    )
}

/// Options that would say something else than the sections.
fn misplaced(values: &Values) -> Vec<Failure> {
    let given = OF_SECTIONS
        .iter()
        .filter_map(|(spec, place)| Some((spec, values.origin(spec)?, place)));
    let faults = given.map(|(spec, origin, place)| {
        Failure::usage(
            format!(
                "`{}` (from {origin}) is for the one export of a SOURCE on the command line",
                spec.name
            ),
            format!("say it as {place}"),
        )
    });
    faults.collect()
}

/// Tells faults, each in a line, and becomes the one that the command ends with.
pub(crate) fn told(faults: &[Failure], path: &Path) -> Failure {
    for fault in faults {
        output::complain(&fault.to_string());
    }
    let count = match faults.len() {
        1 => "1 fault".to_owned(),
        many => format!("{many} faults"),
    };
    Failure::usage(
        format!("{count} in what `{}` says", path.display()),
        "correct it, and try it with `penstock serve --check --config FILE`",
    )
}

/// What the target delivers at most. The option has no other choices than there are types.
fn target_type(values: &Values) -> TargetType {
    values
        .choice(&table::TARGET_TYPE)
        .parse()
        .unwrap_or_default()
}

/// What clients may do, as options say it.
fn export(values: &Values) -> Outcome<Export> {
    let path = values.text(&table::EXPORT_PATH).unwrap_or("/");
    if !path.starts_with('/') {
        return Err(Failure::usage(
            format!("`{path}` is no path that can be mounted"),
            "give --export a path that begins with `/`",
        ));
    }
    let id = |spec: &OptionSpec| values.count(spec).and_then(|id| u32::try_from(id).ok());
    let rule = Rule {
        clients: clients(values)?,
        squash: Squash::of_word(values.choice(&table::SQUASH)).unwrap_or(Squash::Root),
        anonymous: Owner {
            uid: id(&table::ANONYMOUS_UID).unwrap_or(penstock_nfs::NOBODY),
            gid: id(&table::ANONYMOUS_GID).unwrap_or(penstock_nfs::NOBODY),
        },
        privileged_port: values.flag(&table::PRIVILEGED_PORT),
        ..Rule::default()
    };
    Ok(Export {
        path: path.to_owned(),
        volume: String::new(),
        targets: vec![String::new()],
        rules: vec![rule],
    })
}

fn clients(values: &Values) -> Outcome<Vec<Network>> {
    let given = values.text(&table::CLIENTS).unwrap_or_default();
    let networks = given
        .split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty());
    let networks = networks.map(|text| {
        text.parse().map_err(|error: ParseNetworkError| {
            Failure::usage(error.to_string(), "see to --clients")
        })
    });
    networks.collect()
}
