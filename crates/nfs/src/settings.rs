//! What the door is told.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use penstock_base::metrics::Registry;
use penstock_vfs::Volume;

use crate::{Export, HandleKey, TargetType};

/// Everything that a server needs to know.
pub struct NfsSettings {
    /// The volumes, told apart by their names.
    pub volumes: Vec<ServedVolume>,
    /// The mount targets, told apart by their names.
    pub targets: Vec<TargetSettings>,
    /// What clients mount, and what they may do.
    pub exports: Vec<Export>,
    /// What handles are made with, the same for every server of a volume.
    pub key: HandleKey,
    /// How long clients may reclaim their locks after a start, while nobody else is given any.
    pub grace_period: Duration,
    /// The port at which port mappers of clients listen: 111 everywhere but in tests.
    pub port_mappers_of_clients: u16,
}

/// A volume that is served.
pub struct ServedVolume {
    /// What exports call it.
    pub name: String,
    /// Which file system it is, the same from every server of it, and another one for each.
    pub identity: String,
    /// What it is.
    pub volume: Arc<dyn Volume>,
    /// What is counted of its locks.
    pub registry: Arc<Registry>,
}

/// A mount target.
pub struct TargetSettings {
    /// What exports call it.
    pub name: String,
    /// Where clients find NFS, MOUNT, NLM and NSM.
    pub address: SocketAddr,
    /// Where it tells clients its ports, over TCP and UDP; nowhere where there is none.
    pub portmap: Option<SocketAddr>,
    /// What it delivers at most.
    pub target_type: TargetType,
    /// The file with the clients that hold locks, of this target alone.
    pub lockers: PathBuf,
    /// What is counted of its calls.
    pub registry: Arc<Registry>,
}
