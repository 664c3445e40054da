//! For whom volumes are exported, over all mount targets: what decides whether a client may keep what it holds of a file,
//! whichever target it asked for that.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use penstock_base::Mutex;
use tokio::sync::watch;

use crate::{
    export::Export, exports::Exports, handles::ExportId, protocol::rpc::Credential,
    service::Service,
};

/// The exports of each number: one for each target that has it, with the rules there.
type ById = HashMap<ExportId, Vec<Export>>;

/// See the module. It is for nobody until it is told.
#[derive(Debug)]
pub(crate) struct Audience {
    exports: Mutex<Arc<ById>>,
    /// How often it was changed.
    changes: watch::Sender<u64>,
}

impl Default for Audience {
    fn default() -> Self {
        Self {
            exports: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }
}

impl Audience {
    /// From now on it is that of these tables, of all targets.
    pub(crate) fn become_of<'a>(&self, tables: impl IntoIterator<Item = &'a Exports>) {
        let mut exports = ById::new();
        for exported in tables.into_iter().flat_map(Exports::iter) {
            let same = exports.entry(exported.id).or_default();
            same.push(exported.export.clone());
        }
        *self.exports.lock() = Arc::new(exports);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Tells of changes: also of one that was made before, and of many at once.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        let mut changes = self.changes.subscribe();
        changes.mark_changed();
        changes
    }

    fn now(&self) -> Arc<ById> {
        Arc::clone(&self.exports.lock())
    }

    /// Whether a client may ask for the file with a handle somewhere.
    pub(crate) fn knows(&self, client: IpAddr, handle: &[u8]) -> bool {
        let exports = self.now();
        let same = ExportId::told(handle).and_then(|id| exports.get(&id));
        let mut same = same.into_iter().flatten();
        same.any(|export| export.is_known(client))
    }

    /// Whether a client may use some export of a volume; who does not say who asks is judged by where it calls from.
    pub(crate) fn takes(
        &self,
        volume: &str,
        (client, port): (IpAddr, u16),
        credential: Option<&Credential>,
    ) -> bool {
        let exports = self.now();
        let mut of_volume = exports.values().flatten();
        of_volume.any(|export| {
            let rule = export.rule(client, port);
            let taken = |credential| rule.is_some_and(|rule| rule.identity(credential).is_some());
            export.volume == volume && credential.map_or(rule.is_some(), taken)
        })
    }
}

/// The volumes of a server, and their audience.
#[derive(Default)]
pub(crate) struct Volumes {
    services: Mutex<Arc<[Arc<Service>]>>,
    pub(crate) audience: Arc<Audience>,
}

impl Volumes {
    /// All of them, in their order.
    pub(crate) fn all(&self) -> Arc<[Arc<Service>]> {
        Arc::clone(&self.services.lock())
    }

    /// From now on these are all.
    pub(crate) fn become_all(&self, services: impl Into<Arc<[Arc<Service>]>>) {
        *self.services.lock() = services.into();
    }

    /// Those of which a client may use an export of some target, as [`Audience::takes`] has it.
    pub(crate) fn of_client(
        &self,
        place: (IpAddr, u16),
        credential: Option<&Credential>,
    ) -> Vec<Arc<Service>> {
        let all = self.all();
        let own = all
            .iter()
            .filter(|service| self.audience.takes(&service.name, place, credential));
        own.cloned().collect()
    }
}
