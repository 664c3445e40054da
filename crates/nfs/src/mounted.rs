//! What clients have mounted, as far as they said so and nobody forgot: for people, not for anything that counts.

use std::{collections::VecDeque, net::IpAddr};

use bytes::Bytes;

use crate::limits::MOUNTS_MAX;

/// Bytes of one beside its path.
const AROUND: u64 = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Mounted(VecDeque<(IpAddr, Bytes)>);

impl Mounted {
    pub(crate) fn add(&mut self, client: IpAddr, path: Bytes) {
        self.remove(client, Some(&path));
        self.0.push_back((client, path));
        if self.0.len() > MOUNTS_MAX {
            self.0.pop_front();
        }
    }

    /// A client lets go of a path, or of all.
    pub(crate) fn remove(&mut self, client: IpAddr, path: Option<&Bytes>) {
        let is_gone =
            |known: &(IpAddr, Bytes)| known.0 == client && path.is_none_or(|path| *path == known.1);
        self.0.retain(|known| !is_gone(known));
    }

    /// Bytes that it takes to tell all of them, at most.
    pub(crate) fn bytes(&self) -> u64 {
        let paths = self.0.iter().map(|(_, path)| path.len() as u64);
        paths.map(|length| length + AROUND).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(IpAddr, Bytes)> {
        self.0.iter()
    }
}
