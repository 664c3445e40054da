//! What a mount target exports now: found by the number in a handle, and by the path that a client mounts.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use thiserror::Error;

use crate::{
    export::{Export, components},
    handles::ExportId,
    protocol::rpc::{AuthStatus, Credential},
    service::{Asked, Service},
};

/// Why exports cannot be those of a server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExportError {
    /// It is not absolute.
    #[error("`{0}` is no path that can be mounted: it does not begin with `/`")]
    Path(String),
    /// There is no volume of this name.
    #[error("`{path}` is to export the volume `{volume}`, which is not served")]
    Volume {
        /// That of the export.
        path: String,
        /// The name.
        volume: String,
    },
    /// There is no mount target of this name.
    #[error("`{path}` is to be exported by the mount target `{target}`, which is not there")]
    Target {
        /// That of the export.
        path: String,
        /// The name.
        target: String,
    },
    /// Two exports of one mount target cannot be told apart.
    #[error("`{path}` is exported twice by the mount target `{target}`")]
    Twice {
        /// That of the second export.
        path: String,
        /// The name of the mount target.
        target: String,
    },
}

/// An export with the volume that is behind it.
pub(crate) struct Exported {
    pub(crate) id: ExportId,
    pub(crate) export: Export,
    pub(crate) service: Arc<Service>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Exports {
    /// In the order in which they were given.
    list: Vec<Arc<Exported>>,
    by_id: HashMap<ExportId, Arc<Exported>>,
}

impl Exports {
    /// Those of `exports` that the mount target called `target` has.
    pub(crate) fn of_target(
        target: &str,
        exports: &[Export],
        services: &[Arc<Service>],
    ) -> Result<Self, ExportError> {
        let mut table = Self::default();
        for export in exports {
            if export.targets.iter().any(|name| name == target) {
                table.add(target, export, services)?;
            }
        }
        Ok(table)
    }

    fn add(
        &mut self,
        target: &str,
        export: &Export,
        services: &[Arc<Service>],
    ) -> Result<(), ExportError> {
        let path = || export.path.clone();
        if !export.path.starts_with('/') {
            return Err(ExportError::Path(path()));
        }
        let service = services.iter().find(|known| known.name == export.volume);
        let service = service.ok_or_else(|| ExportError::Volume {
            path: path(),
            volume: export.volume.clone(),
        })?;
        let is_there = |known: &Arc<Exported>| known.export.components().eq(export.components());
        let exported = Arc::new(Exported {
            id: service.export_id(export),
            export: export.clone(),
            service: Arc::clone(service),
        });
        let is_taken = self.by_id.contains_key(&exported.id) || self.list.iter().any(is_there);
        if is_taken {
            return Err(ExportError::Twice {
                path: path(),
                target: target.to_owned(),
            });
        }
        self.by_id.insert(exported.id, Arc::clone(&exported));
        self.list.push(exported);
        Ok(())
    }

    /// All of them, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Exported>> {
        self.list.iter()
    }

    /// The one with the longest path that `path` begins with, and the names on the rest of the way.
    pub(crate) fn at_path<'a>(&self, path: &'a [u8]) -> Option<(&Arc<Exported>, Vec<&'a [u8]>)> {
        let wanted: Vec<_> = components(path).collect();
        let depth = |exported: &&Arc<Exported>| exported.export.components().count();
        let is_above = |exported: &&Arc<Exported>| {
            let mut way = wanted.iter();
            let mut above = exported.export.components();
            above.all(|component| way.next() == Some(&component))
        };
        let found = self.list.iter().filter(is_above).max_by_key(depth)?;
        let rest = wanted[depth(&found)..].to_vec();
        Some((found, rest))
    }

    /// Whether there is a rule for a client in any of them.
    pub(crate) fn know(&self, client: IpAddr) -> bool {
        let mut exports = self.list.iter();
        exports.any(|exported| exported.export.is_known(client))
    }

    /// The export that a handle says it is of.
    pub(crate) fn of_handle(&self, handle: &[u8]) -> Option<&Arc<Exported>> {
        self.by_id.get(&ExportId::told(handle)?)
    }

    /// The export of the file with a handle, and for whom a call of that file is carried out. A handle of none of them, as
    /// that of a call that is about no file, belongs to nobody: where the client may use anything, the first export that
    /// it may use finds the handle stale or forged.
    pub(crate) fn asked(
        &self,
        (client, port): (IpAddr, u16),
        (credential, handle): (&Credential, &[u8]),
    ) -> Result<(&Arc<Exported>, Asked), AuthStatus> {
        let mut exports: &[Arc<Exported>] = &self.list;
        if let Some(exported) = self.of_handle(handle) {
            exports = std::slice::from_ref(exported);
        }
        let mut refusal = AuthStatus::BadCredential;
        for exported in exports {
            let Some(rule) = exported.export.rule(client, port) else {
                continue;
            };
            match Asked::by(credential, (exported.id, rule)) {
                Some(asked) => return Ok((exported, asked)),
                None => refusal = AuthStatus::TooWeak,
            }
        }
        Err(refusal)
    }

    /// Whether there is a rule for a client that does not say who asks.
    pub(crate) fn take(&self, (client, port): (IpAddr, u16)) -> bool {
        let mut exports = self.list.iter();
        exports.any(|exported| exported.export.rule(client, port).is_some())
    }
}
