//! Records as clients of NFS send them: record marks, RPC, portmap, MOUNT, NLM, NSM and NFS. What is accepted came out of the bytes that
//! were received, and nothing of what is made of it is larger.

#![no_main]

use std::sync::LazyLock;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use penstock_base::{BufferPool, MemoryBudget};
use penstock_nfs::{
    protocol::{mount3, nfs3, nlm4, nsm, outgoing, portmap, rpc::Call},
    whole_record,
};
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime")
});

fuzz_target!(|bytes: &[u8]| {
    let pool = BufferPool::new(MemoryBudget::new(64 << 20));
    let record = RUNTIME.block_on(whole_record(bytes, &pool));
    if let Some((message, data)) = record {
        let received = message.len() + data.as_ref().map_or(0, Bytes::len);
        assert!(received <= bytes.len());
        call(message, data);
    }
    // A client that is called may answer anything.
    let xid = bytes.first_chunk().map_or(0, |xid| u32::from_be_bytes(*xid));
    let _ = outgoing::results(xid, Bytes::copy_from_slice(bytes));
    // Without a mark in front it is a message.
    call(Bytes::copy_from_slice(bytes), None);
});

fn call(message: Bytes, data: Option<Bytes>) {
    let received = message.len() + data.as_ref().map_or(0, Bytes::len);
    let Ok(call) = Call::decode(message) else {
        return;
    };
    if let Some(Ok(mount3::Request::Mount(path))) =
        mount3::Request::decode((call.version, call.procedure), &mut call.arguments.clone())
    {
        assert!(path.len() <= received);
    }
    if let Some(Ok(nsm::Request::Notify(name, _))) =
        nsm::Request::decode(call.procedure, &mut call.arguments.clone())
    {
        assert!(name.len() <= received);
    }
    let version = [portmap::PORTMAP, portmap::RPCBIND[1]][(call.version % 2) as usize];
    portmap::Request::decode((version, call.procedure), &mut call.arguments.clone());
    let port = portmap::read_place(version, &mut call.arguments.clone());
    assert_ne!(port, Ok(Some(0)));
    if let Some(Ok(nlm4::Request::Lock(cookie, wanted, _))) =
        nlm4::Request::decode(call.procedure, &mut call.arguments.clone())
    {
        let place = wanted.place;
        let kept = [cookie, place.caller, place.file, place.owner];
        assert!(kept.iter().map(Bytes::len).sum::<usize>() <= received);
    }
    let request = nfs3::Request::decode(call.procedure, &mut call.arguments.clone(), data);
    if let Some(Ok(nfs3::Request::Write { data, .. })) = request {
        assert!(data.len() <= received);
    }
}
