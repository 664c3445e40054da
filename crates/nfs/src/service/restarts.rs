//! Machines that were started again: clients, which hold nothing any more, and this server, whose clients reclaim what
//! they held.
//!
//! For a while after the start, if clients held locks before, only what is reclaimed is given: else somebody new could
//! have what another one holds and believes to keep. A volume whose locks outlive the process, as those of a fileset on
//! several machines do until its session is over, may keep what is reclaimed from being given for as long: it is tried
//! until then.

use std::{net::IpAddr, sync::Arc, time::Duration};

use penstock_base::{Payload, clock, clock::Instant};
use tokio::task::JoinSet;
use tracing::{debug, info};

use super::Service;
use crate::{
    callbacks::Host,
    client::Client,
    limits::{LOCK_DEADLINE, NOTICE_PAUSES},
    lockers::Locker,
    protocol::{
        nlm4::LockStatus,
        nsm::{self, Request},
        rpc::{AuthStatus, Call, Refusal, Reply},
    },
    target::Target,
    transport::Work,
};

/// The start of a client that does not say which one it is.
const UNKNOWN_START: u32 = 0;

/// The time in which clients reclaim their locks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GracePeriod {
    end: Option<Instant>,
}

impl GracePeriod {
    /// One that begins now, if it is of use.
    pub(crate) fn begin(length: Duration, is_needed: bool) -> Self {
        let end = is_needed.then(|| clock::now() + length);
        Self { end }
    }

    pub(super) fn is_on(&self) -> bool {
        self.end.is_some_and(|end| clock::now() < end)
    }
}

impl Client {
    pub(crate) fn status_monitor(&self, mut call: Call) -> (Work, u64) {
        let xid = call.xid;
        if call.version != nsm::VERSION {
            return self.refuse(xid, Refusal::ProgramMismatch([nsm::VERSION; 2]));
        }
        let request = match Request::decode(call.procedure, &mut call.arguments) {
            None => return self.refuse(xid, Refusal::ProcedureUnavailable),
            Some(Err(_)) => return self.refuse(xid, Refusal::GarbageArguments),
            Some(Ok(request)) => request,
        };
        if request != Request::Null && !self.target.exports().take(self.place()) {
            return self.refuse(xid, Refusal::Denied(AuthStatus::BadCredential));
        }
        let (target, address) = (Arc::clone(&self.target), self.host.address);
        let mut out = Reply::begin(xid);
        match request {
            Request::Null => {}
            Request::State => nsm::write_state(&mut out, target.monitored.state()),
            Request::Notify(name, state) => {
                // A notice says nothing of who sends it: the place that it comes from decides.
                let volumes = self.volumes(None);
                let answer = async move {
                    let freed = tokio::spawn(client_started(volumes, (address, name), state));
                    // Who hears nothing tells it again.
                    let freed = clock::deadline(LOCK_DEADLINE, freed).await;
                    freed.is_ok().then(|| Reply::finished(out, Payload::new()))
                };
                return (Work::Changes(Box::pin(answer)), 0);
            }
        }
        (Work::Done(Reply::finished(out, Payload::new())), 0)
    }
}

impl Service {
    /// A client was started, and holds nothing of what it was given in another state.
    async fn client_started(&self, (address, name): (IpAddr, &[u8]), state: u32) {
        for client in self.lockers.of_machine(address, name) {
            match client.start().await {
                Some(mut known) if *known != state => {
                    self.started_again(&client, address).await;
                    *known = state;
                }
                _ => {}
            }
        }
    }

    /// A call says from which start of its client it comes. One that comes sooner than the notice of that start says the
    /// same. A smaller number is none of a later start.
    pub(super) async fn calls_in(
        &self,
        (client, address): (&Locker, IpAddr),
        state: u32,
    ) -> Result<(), LockStatus> {
        let mut known = client.start().await.ok_or(LockStatus::NoLocks)?;
        if state > *known {
            if *known != UNKNOWN_START {
                self.started_again(client, address).await;
            }
            *known = state;
        }
        Ok(())
    }

    async fn started_again(&self, client: &Locker, address: IpAddr) {
        info!(%address, "a client was started again: it holds no locks any more");
        self.free(client).await;
    }
}

/// The same of several volumes.
async fn client_started(
    volumes: Vec<Arc<Service>>,
    (address, name): (IpAddr, bytes::Bytes),
    state: u32,
) {
    for service in volumes {
        service.client_started((address, &name), state).await;
    }
}

impl Target {
    /// Tells clients that held locks that the server was started, all at once and each until it knows or is taken for
    /// gone.
    pub(crate) async fn tell_of_start(self: Arc<Self>) {
        let untold = self.monitored.untold();
        if untold.is_empty() {
            return;
        }
        info!(
            clients = untold.len(),
            "clients are told to reclaim their locks"
        );
        let mut telling = JoinSet::new();
        for host in untold {
            telling.spawn(Arc::clone(&self).tell_client(host));
        }
        telling.join_all().await;
    }

    async fn tell_client(self: Arc<Self>, host: Host) {
        let name = host.server.map(|server| server.to_string());
        let name = name.unwrap_or_default();
        let state = self.monitored.state();
        for pause in NOTICE_PAUSES {
            clock::sleep(pause).await;
            let write = |out: &mut _| nsm::write_notice(out, &name, state);
            match self.notices.call(host, nsm::NOTIFY, write).await {
                Ok(_) => break,
                Err(error) => {
                    debug!(client = %host.address, %error, "cannot tell a client of the start");
                }
            }
        }
        self.monitored.told(host);
    }
}
