//! Calls of NLM on their way: whether one is a repeat, what it costs, and for how long it is waited for.
//!
//! A call that takes longer than [`LOCK_DEADLINE`] is not answered and goes on: who asks again with the same number has its
//! answer then. So no lock is given that nobody takes note of, and a volume that hangs holds up no more than one call of
//! each client: the next ones of that client are refused when the time is over.

use std::sync::Arc;

use penstock_base::{Payload, clock};
use tracing::debug;

use super::{
    Asked, Changing, Service,
    locking::{Caller, client_name},
};
use crate::{
    callbacks::Host,
    client::Client,
    duplicates::CallKey,
    limits::LOCK_DEADLINE,
    protocol::{
        nlm4::{self, LockStatus, Request},
        rpc::{Call, Refusal, Reply},
        xdr::Encoder,
    },
    target::Target,
    target_type::Cost,
    transport::Work,
};

impl Client {
    pub(crate) fn lock_manager(&self, mut call: Call) -> (Work, u64) {
        let (xid, procedure) = (call.xid, call.procedure);
        if call.version != nlm4::VERSION {
            return self.refuse(xid, Refusal::ProgramMismatch([nlm4::VERSION; 2]));
        }
        let arguments = call.arguments.rest().clone();
        let request = match Request::decode(procedure, &mut call.arguments) {
            None => return self.refuse(xid, Refusal::ProcedureUnavailable),
            Some(Err(_)) => return self.refuse(xid, Refusal::GarbageArguments),
            Some(Ok(request)) => request,
        };
        if request == Request::Null {
            let reply = Reply::finished(Reply::begin(xid), Payload::new());
            return (Work::Done(reply), 0);
        }
        let handle = request.file().cloned().unwrap_or_default();
        let (service, asked) = match self.asked(&call.credential, &handle) {
            Ok(found) => found,
            Err(status) => return self.refuse(xid, Refusal::Denied(status)),
        };
        let machines = match request {
            Request::FreeAll(_) => self.volumes(Some(&call.credential)),
            _ => Vec::new(),
        };
        let duplicates = &service.lock_calls;
        let key = duplicates.key(self.address.ip(), (xid, procedure), (&arguments[..], None));
        let call = LockCall {
            target: Arc::clone(&self.target),
            service,
            asked,
            machines,
            host: self.host,
            id: (xid, procedure),
        };
        (Work::Changes(Box::pin(call.answer(key, request))), 0)
    }
}

struct LockCall {
    target: Arc<Target>,
    service: Arc<Service>,
    asked: Asked,
    /// The volumes of which everything is given back that the machine holds, where it says that it was started again.
    machines: Vec<Arc<Service>>,
    host: Host,
    /// Its number and that of its procedure.
    id: (u32, u32),
}

impl LockCall {
    async fn answer(self, key: CallKey, request: Request) -> Option<Reply> {
        let xid = self.id.0;
        let carried_out = tokio::spawn(self.once(key, request));
        match clock::deadline(LOCK_DEADLINE, carried_out).await {
            Ok(answer) => answer.ok().flatten(),
            Err(_) => {
                debug!(xid, "a call for a lock takes long");
                None
            }
        }
    }

    async fn once(self, key: CallKey, request: Request) -> Option<Reply> {
        let (target, service) = (Arc::clone(&self.target), Arc::clone(&self.service));
        let xid = self.id.0;
        let answer = self.carry_out(request);
        target.once((&service.lock_calls, key), xid, answer).await
    }

    async fn carry_out(self, request: Request) -> Reply {
        let (target, (xid, procedure)) = (&self.target, self.id);
        let cost = Cost::of_lock_call(&request);
        target.wait_for_turn(self.host.address, cost).await;
        let begun = clock::now();
        let _changing = Changing::new(&self.service);
        let mut out = Reply::begin(xid);
        let status = self.perform(request, &mut out).await;
        let is_good = status.is_none_or(|status| !status.is_error());
        target.metrics.lock_answered(procedure, begun, is_good);
        target.metrics.operations.add(cost.operations);
        Reply::finished(out, Payload::new())
    }

    async fn perform(&self, request: Request, out: &mut Encoder) -> Option<LockStatus> {
        if let Request::FreeAll(caller) = &request {
            let name = client_name(self.host.address, caller);
            for service in &self.machines {
                service.free_all(&name).await;
            }
            return None;
        }
        let caller = Caller {
            host: self.host,
            monitored: &self.target.monitored,
        };
        let request = (caller, request);
        self.service.locking(&self.asked, request, out).await
    }
}
