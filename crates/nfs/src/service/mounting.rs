//! The procedures of MOUNT.

use std::{net::IpAddr, sync::Arc};

use bytes::Bytes;
use penstock_base::{FileName, Payload};
use penstock_vfs::AccessMask;

use super::{Asked, Service};
use crate::{
    client::Client,
    export::Rule,
    nodes::Node,
    protocol::{
        mount3::{self, MountStatus, Request},
        nfs3::Status,
        rpc::{AUTH_NONE, AUTH_SYS, Call, Credential, Refusal, Reply},
        xdr::Encoder,
    },
    target::Target,
    transport::Work,
};

impl Client {
    pub(crate) fn mount(&self, mut call: Call) -> (Work, u64) {
        let (xid, procedure) = (call.xid, call.procedure);
        let versions = [mount3::OLD_VERSION, mount3::VERSION];
        if !versions.contains(&call.version) {
            return self.refuse(xid, Refusal::ProgramMismatch(versions));
        }
        let which = (call.version, procedure);
        let request = match mount3::Request::decode(which, &mut call.arguments) {
            None => return self.refuse(xid, Refusal::ProcedureUnavailable),
            Some(Err(_)) => return self.refuse(xid, Refusal::GarbageArguments),
            Some(Ok(request)) => request,
        };
        let mounting = Mounting {
            target: Arc::clone(&self.target),
            client: (self.address.ip(), self.address.port()),
            credential: call.credential,
        };
        let content = match request {
            Request::Dump => mounting.target.mounted.lock().bytes(),
            _ => 0,
        };
        let answer = async move {
            let mut out = Reply::begin(xid);
            mounting.answer(request, &mut out).await;
            Some(Reply::finished(out, Payload::new()))
        };
        (Work::Looks(Box::pin(answer)), content)
    }
}

/// A call of MOUNT on its way.
struct Mounting {
    target: Arc<Target>,
    /// The address and the port that it came from.
    client: (IpAddr, u16),
    credential: Credential,
}

impl Mounting {
    async fn answer(&self, request: Request, out: &mut Encoder) {
        let (address, _) = self.client;
        let mounted = &self.target.mounted;
        let is_known = self.target.knows(address);
        match request {
            Request::Null => {}
            Request::Mount(path) => self.mount(path, out).await,
            // Who has no rule is told nothing.
            Request::Dump | Request::Exports if !is_known => out.bool(false),
            Request::Dump => self.write_mounted(out),
            Request::Unmount(path) => mounted.lock().remove(address, Some(&path)),
            Request::UnmountAll => mounted.lock().remove(address, None),
            Request::Exports => self.write_exports(out),
        }
    }

    async fn mount(&self, path: Bytes, out: &mut Encoder) {
        let (handle, flavors) = match self.find(&path).await {
            Ok(found) => found,
            Err(status) => return out.u32(status as u32),
        };
        self.target.mounted.lock().add(self.client.0, path);
        out.u32(MountStatus::Ok as u32);
        out.opaque(&handle);
        out.u32(flavors.len() as u32);
        flavors.into_iter().for_each(|flavor| out.u32(flavor));
    }

    /// The handle of the directory that a path leads to, that of an export or one below, and how a client may say there
    /// who asks.
    async fn find(&self, path: &Bytes) -> Result<(Vec<u8>, Vec<u32>), MountStatus> {
        let exports = self.target.exports();
        let (address, port) = self.client;
        let Some((exported, below)) = exports.at_path(path) else {
            return Err(match exports.know(address) {
                true => MountStatus::NoEntry,
                false => MountStatus::Access,
            });
        };
        let rule = exported.export.rule(address, port);
        let rule = rule.ok_or(MountStatus::Access)?;
        let asked = Asked::by(&self.credential, (exported.id, rule));
        let asked = asked.ok_or(MountStatus::Access)?;
        let service = &exported.service;
        let node = service.find_below(&asked, &below).await?;
        let handle = service.nodes.handle_for_ever(asked.export, node);
        Ok((handle.to_vec(), flavors(rule)))
    }

    fn write_mounted(&self, out: &mut Encoder) {
        for (client, path) in self.target.mounted.lock().iter() {
            out.bool(true);
            out.opaque(client.to_string().as_bytes());
            out.opaque(path);
        }
        out.bool(false);
    }

    /// Each export with the clients that it is for; nobody in particular where it is for all.
    fn write_exports(&self, out: &mut Encoder) {
        for exported in self.target.exports().iter() {
            let export = &exported.export;
            let mut rules = export.rules.iter();
            let is_for_all = rules.any(|rule: &Rule| rule.clients.is_empty());
            out.bool(true);
            out.opaque(export.path.as_bytes());
            let clients = export.rules.iter().flat_map(|rule| &rule.clients);
            for client in clients.filter(|_| !is_for_all) {
                out.bool(true);
                out.opaque(client.to_string().as_bytes());
            }
            out.bool(false);
        }
        out.bool(false);
    }
}

fn flavors(rule: &Rule) -> Vec<u32> {
    let authentication = rule.authentication;
    let system = authentication.takes_users().then_some(AUTH_SYS);
    let none = authentication.takes_nobody().then_some(AUTH_NONE);
    system.into_iter().chain(none).collect()
}

impl Service {
    /// The directory to which names lead from the root.
    async fn find_below(&self, asked: &Asked, names: &[&[u8]]) -> Result<Node, MountStatus> {
        let mut node = self.nodes.root(&asked.by).await.map_err(mount_status)?;
        for name in names {
            let name = FileName::new(name).map_err(|error| mount_status(error.into()))?;
            let searched = asked.check(&node.attributes, AccessMask::EXECUTE);
            searched.map_err(mount_status)?;
            let found = self.look_up(asked, &node, &name).await;
            node = found.map_err(mount_status)?.ok_or(MountStatus::NoEntry)?;
            node = node.directory().map_err(mount_status)?;
        }
        Ok(node)
    }
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
