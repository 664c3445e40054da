//! What the door is told.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use crate::{Export, ExportId, HandleKey, TargetType};

/// Everything that a server needs to know beside its volume and its address.
#[derive(Debug)]
pub struct NfsSettings {
    /// What clients mount, and what they may do.
    pub export: Export,
    /// Which file system it is, the same from every server of it.
    pub export_id: ExportId,
    /// What handles are made with, the same for every server of it.
    pub key: HandleKey,
    /// What it delivers at most.
    pub target_type: TargetType,
    /// Where it tells clients its ports, over TCP and UDP; nowhere where there is none.
    pub portmap: Option<SocketAddr>,
    /// The file with the clients that hold locks, of this target alone.
    pub lockers: PathBuf,
    /// How long clients may reclaim their locks after a start, while nobody else is given any.
    pub grace_period: Duration,
    /// The port at which port mappers of clients listen: 111 everywhere but in tests.
    pub port_mappers_of_clients: u16,
}
