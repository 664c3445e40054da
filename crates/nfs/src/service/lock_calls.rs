//! Calls of NLM on their way: whether one is a repeat, what it costs, and for how long it is waited for.
//!
//! A call that takes longer than [`LOCK_DEADLINE`] is not answered and goes on: who asks again with the same number has its
//! answer then. So no lock is given that nobody takes note of, and a volume that hangs holds up no more than one call of
//! each client: the next ones of that client are refused when the time is over.

use std::sync::Arc;

use penstock_base::{Payload, clock};
use tracing::debug;

use super::{Asked, Changing, Client, Service};
use crate::{
    callbacks::Host,
    duplicates::CallKey,
    limits::LOCK_DEADLINE,
    protocol::{
        nlm4::{self, Request},
        rpc::{Call, Refusal, Reply},
    },
    target_type::Cost,
    transport::Work,
};

impl Client {
    pub(super) fn lock_manager(&self, mut call: Call) -> (Work, u64) {
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
        let asked = match self.asked(&call.credential) {
            Ok(asked) => asked,
            Err(status) => return self.refuse(xid, Refusal::Denied(status)),
        };
        let duplicates = &self.service.lock_calls;
        let key = duplicates.key(self.address.ip(), (xid, procedure), &arguments);
        let call = LockCall {
            service: Arc::clone(&self.service),
            asked,
            host: self.host,
            id: (xid, procedure),
        };
        (Work::Changes(Box::pin(call.answer(key, request))), 0)
    }
}

struct LockCall {
    service: Arc<Service>,
    asked: Asked,
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
        let (service, xid) = (Arc::clone(&self.service), self.id.0);
        let answer = self.carry_out(request);
        service.once((&service.lock_calls, key), xid, answer).await
    }

    async fn carry_out(self, request: Request) -> Reply {
        let (service, (xid, procedure)) = (&self.service, self.id);
        let cost = Cost::of_lock_call(&request);
        service.wait_for_turn(self.host.address, cost).await;
        let begun = clock::now();
        let _changing = Changing::new(service);
        let mut out = Reply::begin(xid);
        let request = (self.host, request);
        let status = service.locking(&self.asked, request, &mut out).await;
        service.metrics.lock_answered(
            procedure,
            begun,
            status.is_none_or(|status| !status.is_error()),
        );
        service.metrics.operations.add(cost.operations);
        Reply::finished(out, Payload::new())
    }
}
