//! The NFS door: clients on any machine ask for each operation.

use std::{
    collections::HashMap,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use penstock_base::metrics::Registry;
use penstock_fuse::{UnmountError, UnmountMode, Unsaved};
use penstock_nfs::{
    HandleKey, NfsServer, NfsSettings, ServedVolume, StartError, TargetSettings, TargetStatus,
};
use tokio::task::JoinHandle;
use tracing::info;

use super::Door;
use crate::{
    environment::Environment,
    failure::{Failure, Outcome},
    filesets::{self, Fileset},
    limits,
    options::{Values, table},
    places,
    resources::Resources,
    serving::{Live, NamedTarget, Serving},
    stores,
    volumes::{Form, OpenedVolume, VolumeSpec},
};

/// The file with the key of handles.
const KEY: &str = "handle.key";
/// Begins the name of the file with the clients that hold locks, in front of the address that they know.
const LOCKERS: &str = "lockers-";
/// Where port mappers listen.
const PORT_MAPPERS: u16 = 111;
/// How long changes under way may take to end when targets are told to go.
const UNMOUNT_GRACE: Duration = Duration::from_secs(10);

/// Mount targets that others can tell to go while they are waited for.
pub(crate) struct NfsDoor {
    server: Arc<NfsServer>,
    live: Arc<Live>,
    watching: JoinHandle<()>,
}

impl NfsDoor {
    /// What is served now.
    pub(crate) fn live(&self) -> &Arc<Live> {
        &self.live
    }
}

#[async_trait]
impl Door for NfsDoor {
    async fn wait(&self) -> Unsaved {
        self.server.ended().await
    }

    /// Clients hold no files open that could be in the way: those of them that go on find nobody.
    async fn unmount(&self, _mode: UnmountMode) -> Result<(), UnmountError> {
        let server = Arc::clone(&self.server);
        tokio::spawn(async move { server.leave(UNMOUNT_GRACE).await });
        Ok(())
    }

    async fn leave(&self, grace: Duration) -> Unsaved {
        self.server.leave(grace).await
    }

    fn is_used(&self) -> bool {
        self.server.connections() > 0
    }

    async fn reload(&self) {
        self.live.look().await;
    }
}

impl Drop for NfsDoor {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Serves the files of volumes, which are those of `serving` in their order.
pub(crate) async fn open(
    serving: &Serving,
    volumes: &[Arc<OpenedVolume>],
    (environment, resources): (&Environment, &Resources),
) -> Outcome<NfsDoor> {
    let state = state_directory(&serving.values, environment)?;
    let registry = &resources.registry;
    let mut served = Vec::new();
    let mut is_read_only = HashMap::new();
    for (named, opened) in serving.volumes.iter().zip(volumes) {
        let Form::Files(files) = &opened.form else {
            return Err(Failure::usage(
                "a stream volume of disks is for the kernel",
                "mount it with `penstock stream`",
            ));
        };
        is_read_only.insert(named.name.clone(), opened.read_only);
        served.push(ServedVolume {
            name: named.name.clone(),
            identity: identity(&named.spec)?,
            volume: Arc::clone(files),
            registry: part_of(registry, "volume", &named.name),
        });
        if !files.features().persistent_ids {
            let source = &named.spec.source;
            info!(
                source,
                "this volume has no lasting file numbers: clients must mount again when this process has ended"
            );
        }
    }
    let target = |target: &NamedTarget| TargetSettings {
        name: target.name.clone(),
        address: target.listen,
        portmap: target.portmap,
        target_type: target.target_type,
        lockers: state.join(lockers_of(target)),
        registry: part_of(registry, "target", &target.name),
    };
    let settings = NfsSettings {
        volumes: served,
        targets: serving.targets.iter().map(target).collect(),
        exports: serving.effective_exports(&is_read_only),
        key: key(&state)?,
        grace_period: serving.values.duration(&table::GRACE_PERIOD),
        port_mappers_of_clients: PORT_MAPPERS,
    };
    // Each connection takes one.
    limits::raised_descriptor_limit();
    let server = NfsServer::start(settings, Arc::clone(&resources.pool)).await;
    let server = Arc::new(server.map_err(|error| unusable_address(&error))?);
    server.status().iter().for_each(tell);
    let live = Live::new(serving.clone(), Arc::clone(&server), is_read_only);
    Ok(NfsDoor {
        server,
        watching: tokio::spawn(Arc::clone(&live).watch()),
        live,
    })
}

/// The part of the metrics that is of something with a name.
pub(crate) fn part_of(registry: &Arc<Registry>, label: &'static str, name: &str) -> Arc<Registry> {
    match name {
        "" => Arc::clone(registry),
        name => registry.scope(&[(label, name)]),
    }
}

/// The file with the clients that hold locks: of the address that they know, or of the name where the system chooses one.
fn lockers_of(target: &NamedTarget) -> String {
    let NamedTarget { name, listen, .. } = target;
    match listen.port() {
        0 if !name.is_empty() => format!("{LOCKERS}{listen}-{name}"),
        _ => format!("{LOCKERS}{listen}"),
    }
}

fn tell(target: &TargetStatus) {
    let (name, address) = (&target.name, target.address);
    let paths: Vec<_> = target.exports.iter().map(|export| &*export.path).collect();
    let (paths, target_type) = (paths.join(" "), target.target_type);
    info!(name, %address, paths, %target_type, "NFS clients are served");
}

fn unusable_address(error: &StartError) -> Failure {
    let remedy = match error {
        StartError::Listen(..) => {
            "give it (--listen, or `listen` of the target) another address or port; below 1024 they are root's"
        }
        StartError::Portmap(_, error) if error.kind() == ErrorKind::AddrInUse => {
            "stop the rpcbind that has it (systemctl stop rpcbind.socket rpcbind), or leave --portmap away and mount \
             with `nolock`"
        }
        StartError::Portmap(..) => "give --portmap an address of this machine; port 111 is root's",
        StartError::Lockers(..) => {
            "see to that file, or remove it: clients that held locks are not told to reclaim them then"
        }
        StartError::Export(_) => "see to the exports",
    };
    Failure::new(error.to_string(), remedy)
}

/// The same from every target of a file system: a fileset has an identity, and of a bucket it is where it is.
fn identity(spec: &VolumeSpec) -> Outcome<String> {
    match filesets::name_in(&spec.source) {
        Some(name) => Ok(Fileset::new(name, &spec.environment)?.record()?.identity),
        None => stores::identity(&spec.source, &spec.values),
    }
}

/// Where targets keep what outlives them.
fn state_directory(values: &Values, environment: &Environment) -> Outcome<PathBuf> {
    let (place, made) = match values.path(&table::STATE_DIR) {
        Some(given) => (given.to_owned(), penstock_base::make_named_directory(given)),
        None => {
            let own = places::nfs(environment);
            (own.path(), own.make().map(drop))
        }
    };
    match made {
        Ok(()) => Ok(place),
        Err(error) => Err(unusable_state(&place, &error)),
    }
}

fn key(state: &Path) -> Outcome<HandleKey> {
    let key = HandleKey::kept_in(&state.join(KEY));
    key.map_err(|error| unusable_state(state, &error))
}

fn unusable_state(place: &Path, error: &io::Error) -> Failure {
    Failure::new(
        format!("the key of file handles in `{}`: {error}", place.display()),
        "see to that directory, or name another one with --state-dir",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_whose_ports_the_system_chooses_keep_their_lockers_apart() {
        let target = |name: &str, listen: &str| NamedTarget {
            name: name.to_owned(),
            listen: listen.parse().expect("an address"),
            portmap: None,
            target_type: penstock_nfs::TargetType::default(),
        };
        let of = |name, listen| lockers_of(&target(name, listen));
        assert_ne!(of("a", "127.0.0.1:0"), of("b", "127.0.0.1:0"));
        assert_eq!(of("", "127.0.0.1:0"), "lockers-127.0.0.1:0");
        assert_eq!(of("a", "127.0.0.1:1"), "lockers-127.0.0.1:1");
    }
}
