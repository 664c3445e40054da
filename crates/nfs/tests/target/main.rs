//! A mount target over TCP, asked by a client that is not ours (`nfs3_client`) and, where that one is too well-behaved,
//! by bytes.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::panic,
    clippy::large_futures,
    clippy::needless_pass_by_value,
    clippy::wildcard_imports,
    unreachable_pub
)]

mod access_lists;
mod clients;
mod connections;
mod data;
mod exports;
mod listing;
mod lock_calls;
mod locks;
mod messages;
mod mounting;
mod names;
mod pace;
mod port_mapper;
mod reloads;
mod repeats;
mod restarts;
mod support;
mod volumes;
mod waiting;
