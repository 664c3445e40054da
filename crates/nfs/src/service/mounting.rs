//! The procedures of MOUNT.

use std::{collections::VecDeque, net::IpAddr};

use bytes::Bytes;
use penstock_base::FileName;
use penstock_vfs::AccessMask;

use super::{Asked, Service};
use crate::{
    export::Rule,
    limits::MOUNTS_MAX,
    nodes::Node,
    protocol::{
        mount3::{MountStatus, Request},
        nfs3::Status,
        rpc::{AUTH_NONE, AUTH_SYS},
        xdr::Encoder,
    },
};

/// What clients have mounted, as far as they said so and nobody forgot: for people, not for anything that counts.
#[derive(Debug, Default)]
pub(super) struct Mounted(VecDeque<(IpAddr, Bytes)>);

impl Mounted {
    fn add(&mut self, client: IpAddr, path: Bytes) {
        self.remove(client, Some(&path));
        self.0.push_back((client, path));
        if self.0.len() > MOUNTS_MAX {
            self.0.pop_front();
        }
    }

    fn remove(&mut self, client: IpAddr, path: Option<&Bytes>) {
        let is_gone =
            |known: &(IpAddr, Bytes)| known.0 == client && path.is_none_or(|path| *path == known.1);
        self.0.retain(|known| !is_gone(known));
    }
}

impl Service {
    /// Answers a call; `asked` is nothing for a client whom no rule is for.
    pub(super) async fn mounting(
        &self,
        asked: Option<Asked>,
        (client, request): (IpAddr, Request),
        out: &mut Encoder,
    ) {
        match request {
            Request::Null => {}
            Request::Mount(path) => self.mount(asked, (client, path), out).await,
            Request::Dump => self.write_mounted(out),
            Request::Unmount(path) => self.mounted.lock().remove(client, Some(&path)),
            Request::UnmountAll => self.mounted.lock().remove(client, None),
            Request::Exports => self.write_exports(out),
        }
    }

    async fn mount(
        &self,
        asked: Option<Asked>,
        (client, path): (IpAddr, Bytes),
        out: &mut Encoder,
    ) {
        let found = match &asked {
            Some(asked) => self.find_path(asked, &path).await,
            None => Err(MountStatus::Access),
        };
        let node = match found {
            Ok(node) => node,
            Err(status) => return out.u32(status as u32),
        };
        self.mounted.lock().add(client, path);
        out.u32(MountStatus::Ok as u32);
        out.opaque(&self.nodes.handle_for_ever(node));
        let without_user = self
            .export
            .rule(client, 0)
            .is_some_and(|rule| rule.without_user);
        let flavors = [Some(AUTH_SYS), without_user.then_some(AUTH_NONE)];
        let flavors: Vec<_> = flavors.into_iter().flatten().collect();
        out.u32(flavors.len() as u32);
        flavors.into_iter().for_each(|flavor| out.u32(flavor));
    }

    /// The directory that a path leads to: that of the export, or one below.
    async fn find_path(&self, asked: &Asked, path: &Bytes) -> Result<Node, MountStatus> {
        let mut wanted = components(path);
        for component in components(self.export.path.as_bytes()) {
            if wanted.next() != Some(component) {
                return Err(MountStatus::NoEntry);
            }
        }
        let mut node = self.nodes.root(&asked.by).await.map_err(mount_status)?;
        for component in wanted {
            let name = FileName::new(component).map_err(|error| mount_status(error.into()))?;
            let searched = asked.check(&node.attributes, AccessMask::EXECUTE);
            searched.map_err(mount_status)?;
            let found = self
                .look_up(asked, &node, &name)
                .await
                .map_err(mount_status)?;
            node = found.ok_or(MountStatus::NoEntry)?;
            node = node.directory().map_err(mount_status)?;
        }
        Ok(node)
    }

    fn write_mounted(&self, out: &mut Encoder) {
        for (client, path) in &self.mounted.lock().0 {
            out.bool(true);
            out.opaque(client.to_string().as_bytes());
            out.opaque(path);
        }
        out.bool(false);
    }

    /// The export with the clients that it is for; nobody in particular where it is for all.
    fn write_exports(&self, out: &mut Encoder) {
        let export = &self.export;
        let is_for_all = export
            .rules
            .iter()
            .any(|rule: &Rule| rule.clients.is_empty());
        out.bool(true);
        out.opaque(export.path.as_bytes());
        let clients = export.rules.iter().flat_map(|rule| &rule.clients);
        for client in clients.filter(|_| !is_for_all) {
            out.bool(true);
            out.opaque(client.to_string().as_bytes());
        }
        out.bool(false);
        out.bool(false);
    }
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|component| !component.is_empty())
}

fn mount_status(status: Status) -> MountStatus {
    match status {
        Status::NO_ENTRY | Status::STALE => MountStatus::NoEntry,
        Status::ACCESS | Status::NOT_OWNER => MountStatus::Access,
        Status::NOT_DIRECTORY => MountStatus::NotDirectory,
        Status::NAME_TOO_LONG => MountStatus::NameTooLong,
        Status::INVALID | Status::EXISTS => MountStatus::Invalid,
        _ => MountStatus::Io,
    }
}
