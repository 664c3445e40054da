//! The NFS door: clients on any machine ask for each operation.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use penstock_fuse::{UnmountError, UnmountMode, Unsaved};
use penstock_nfs::{
    Export, ExportId, HandleKey, Network, NfsServer, NfsSettings, Rule, Squash, StartError,
    TargetType,
};
use penstock_vfs::{Owner, Volume};
use tracing::info;

use super::{Door, DoorSpec};
use crate::{
    failure::{Failure, Outcome},
    filesets::{self, Fileset},
    limits,
    options::{OptionSpec, Values, table},
    places,
    resources::Resources,
    stores,
    volumes::OpenedVolume,
};

/// The file with the key of handles.
const KEY: &str = "handle.key";
/// Begins the name of the file with the clients that hold locks, in front of the address that they know.
const LOCKERS: &str = "lockers-";
/// Where port mappers listen.
const PORT_MAPPERS: u16 = 111;
/// How long changes under way may take to end when a target is told to go.
const UNMOUNT_GRACE: Duration = Duration::from_secs(10);

/// A mount target that others can tell to go while it is waited for.
pub(super) struct NfsDoor(Arc<NfsServer>);

#[async_trait]
impl Door for NfsDoor {
    async fn wait(&self) -> Unsaved {
        self.0.ended().await
    }

    /// Clients hold no files open that could be in the way: those of them that go on find nobody.
    async fn unmount(&self, _mode: UnmountMode) -> Result<(), UnmountError> {
        let server = Arc::clone(&self.0);
        tokio::spawn(async move { server.leave(UNMOUNT_GRACE).await });
        Ok(())
    }

    async fn leave(&self, grace: Duration) -> Unsaved {
        self.0.leave(grace).await
    }

    fn is_used(&self) -> bool {
        self.0.connections() > 0
    }
}

/// Serves the files of a volume.
pub(super) async fn open(
    files: &Arc<dyn Volume>,
    volume: &OpenedVolume,
    (spec, address): (&DoorSpec<'_>, SocketAddr),
    resources: &Resources,
) -> Outcome<NfsDoor> {
    let state = state_directory(spec)?;
    let settings = NfsSettings {
        export: export(spec.values, volume.read_only)?,
        export_id: export_id(spec)?,
        key: key(&state)?,
        target_type: target_type(spec.values),
        portmap: spec.values.address(&table::PORTMAP),
        lockers: state.join(format!("{LOCKERS}{address}")),
        grace_period: spec.values.duration(&table::GRACE_PERIOD),
        port_mappers_of_clients: PORT_MAPPERS,
    };
    let path = settings.export.path.clone();
    // Each connection takes one.
    limits::raised_descriptor_limit();
    let memory = (Arc::clone(&resources.pool), &*resources.registry);
    let server = NfsServer::start(Arc::clone(files), address, settings, memory).await;
    let server = server.map_err(|error| unusable_address(&error))?;
    let (address, source) = (server.address(), spec.source);
    let target_type = target_type(spec.values);
    info!(%address, source, path, %target_type, "NFS clients are served");
    if !files.features().persistent_ids {
        info!(
            "this volume has no lasting file numbers: clients must mount again when this process has ended"
        );
    }
    Ok(NfsDoor(Arc::new(server)))
}

fn unusable_address(error: &StartError) -> Failure {
    let remedy = match error {
        StartError::Listen(..) => {
            "give --listen another address or port; below 1024 they are root's"
        }
        StartError::Portmap(_, error) if error.kind() == ErrorKind::AddrInUse => {
            "stop the rpcbind that has it (systemctl stop rpcbind.socket rpcbind), or leave --portmap away and mount \
             with `nolock`"
        }
        StartError::Portmap(..) => "give --portmap an address of this machine; port 111 is root's",
        StartError::Lockers(..) => {
            "see to that file, or remove it: clients that held locks are not told to reclaim them then"
        }
    };
    Failure::new(error.to_string(), remedy)
}

/// What the target delivers at most. The option has no other choices than there are types.
fn target_type(values: &Values) -> TargetType {
    values
        .choice(&table::TARGET_TYPE)
        .parse()
        .unwrap_or_default()
}

/// What clients may do, as options say it.
fn export(values: &Values, read_only: bool) -> Outcome<Export> {
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
        read_only,
        squash: match values.choice(&table::SQUASH) {
            "none" => Squash::None,
            "all" => Squash::All,
            _ => Squash::Root,
        },
        anonymous: Owner {
            uid: id(&table::ANONYMOUS_UID).unwrap_or(penstock_nfs::NOBODY),
            gid: id(&table::ANONYMOUS_GID).unwrap_or(penstock_nfs::NOBODY),
        },
        privileged_port: values.flag(&table::PRIVILEGED_PORT),
        ..Rule::default()
    };
    Ok(Export {
        path: path.to_owned(),
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
        text.parse()
            .map_err(|error: penstock_nfs::ParseNetworkError| {
                Failure::usage(error.to_string(), "see to --clients")
            })
    });
    networks.collect()
}

/// The same from every target of a file system: a fileset has an identity, and of a bucket it is where it is.
fn export_id(spec: &DoorSpec<'_>) -> Outcome<ExportId> {
    let name = match filesets::name_in(spec.source) {
        Some(name) => Fileset::new(name, spec.environment)?.record()?.identity,
        None => stores::identity(spec.source, spec.values)?,
    };
    Ok(ExportId::of(&name))
}

/// Where a target keeps what outlives it.
fn state_directory(spec: &DoorSpec<'_>) -> Outcome<PathBuf> {
    let (place, made) = match spec.values.path(&table::STATE_DIR) {
        Some(given) => (given.to_owned(), penstock_base::make_named_directory(given)),
        None => {
            let own = places::nfs(spec.environment);
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
