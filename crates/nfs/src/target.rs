//! A mount target: an address, with what is exported there and what it delivers. All of it can be changed while clients
//! use it: each call is decided by what holds when it comes.

use std::{net::IpAddr, sync::Arc};

use bytes::Bytes;
use penstock_base::{Mutex, Payload, metrics::Registry};
use tracing::debug;

use crate::{
    TargetSettings,
    audience::Volumes,
    callbacks::Callbacks,
    duplicates::{Arrival, CallKey, Duplicates},
    exports::Exports,
    metrics::NfsMetrics,
    monitored::Monitored,
    mounted::Mounted,
    pace::Pace,
    protocol::rpc::Reply,
    target_type::{Cost, TargetType},
};

/// See the module.
pub(crate) struct Target {
    pub(crate) name: String,
    exports: Mutex<Arc<Exports>>,
    pub(crate) mounted: Mutex<Mounted>,
    pace: Mutex<(TargetType, Option<Arc<Pace>>)>,
    pub(crate) monitored: Monitored,
    /// Calls of clients that the server was started.
    pub(crate) notices: Callbacks,
    /// All volumes of the process, whether or not they are exported here.
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) metrics: NfsMetrics,
    /// The metrics go with it.
    _registry: Arc<Registry>,
}

impl Target {
    /// One that exports nothing yet.
    pub(crate) fn new(
        settings: &TargetSettings,
        (monitored, port_mappers): (Monitored, u16),
        volumes: &Arc<Volumes>,
    ) -> Self {
        Self {
            name: settings.name.clone(),
            exports: Mutex::default(),
            mounted: Mutex::default(),
            pace: Mutex::new(paced(settings.target_type)),
            monitored,
            notices: Callbacks::new(port_mappers),
            volumes: Arc::clone(volumes),
            metrics: NfsMetrics::new(&settings.registry),
            _registry: Arc::clone(&settings.registry),
        }
    }

    /// What is exported now.
    pub(crate) fn exports(&self) -> Arc<Exports> {
        Arc::clone(&self.exports.lock())
    }

    /// From now on this is exported.
    pub(crate) fn export(&self, exports: Exports) {
        *self.exports.lock() = Arc::new(exports);
    }

    /// From now on it delivers what this type says. Calls that wait already go as the type before lets them.
    pub(crate) fn become_type(&self, target_type: TargetType) {
        let mut pace = self.pace.lock();
        if pace.0 != target_type {
            *pace = paced(target_type);
        }
    }

    pub(crate) fn target_type(&self) -> TargetType {
        self.pace.lock().0
    }

    /// Whether a client may ask for anything.
    pub(crate) fn knows(&self, client: IpAddr) -> bool {
        self.exports().know(client)
    }

    /// Waits as long as the target delivers no more to a client. What it was held to is returned.
    pub(crate) async fn wait_for_turn(&self, client: IpAddr, expected: Cost) -> Option<Arc<Pace>> {
        let pace = self.pace.lock().1.clone()?;
        let waited = pace.pass(client, expected).await;
        self.metrics.waited(waited);
        Some(pace)
    }

    /// Carries a call out, unless it was carried out before: then it has the answer that it had. A repeat of one that is
    /// still carried out is not answered: a client takes whatever comes for the answer to both.
    pub(crate) async fn once(
        &self,
        (duplicates, key): (&Duplicates, CallKey),
        xid: u32,
        answer: impl Future<Output = Reply>,
    ) -> Option<Reply> {
        match duplicates.arrive(key).await {
            Arrival::First(running) => {
                let reply = answer.await;
                running.answered(reply.head.clone());
                Some(reply)
            }
            Arrival::Repeat(head) => Some(self.repeated(head)),
            Arrival::Late => {
                debug!(xid, "a call that is still carried out was repeated");
                None
            }
        }
    }

    fn repeated(&self, head: Bytes) -> Reply {
        self.metrics.repeated.increment();
        Reply {
            head,
            payload: Payload::new(),
        }
    }
}

fn paced(target_type: TargetType) -> (TargetType, Option<Arc<Pace>>) {
    (target_type, Pace::of(target_type).map(Arc::new))
}
