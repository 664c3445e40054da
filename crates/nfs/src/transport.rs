//! Records on connections.
//!
//! ```text
//! socket -> Records: one call after the other -> a future each -> Outbox -> socket
//!              |  the content of a WRITE into a block of the pool
//!              '-- Load: waits here while too much is under way
//! ```
//!
//! Datagrams are answered by the same, with less: `datagrams`.
//!
//! A connection is one task that receives. What a call needs beyond a first look becomes a task of its own, so that calls
//! overtake each other. Whoever reads replies slowly keeps calls under way, and so stops being read from.

mod connection;
mod datagrams;
mod load;
mod outbox;
mod records;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use crate::protocol::rpc::Transport;

pub(crate) use connection::{Answering, Work, serve};
pub(crate) use datagrams::serve_datagrams;
pub(crate) use load::{Load, Share};
pub(crate) use records::Admitted;
pub use records::whole_record;

/// Who calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The address of this machine that a connection came to.
    pub(crate) local: Option<IpAddr>,
    pub(crate) transport: Transport,
}

/// Who answers whom; nobody where there is no answer at all.
pub(crate) type Greeting = Arc<dyn Fn(Peer) -> Option<Arc<dyn Answering>> + Send + Sync>;
