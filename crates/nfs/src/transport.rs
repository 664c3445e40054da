//! Records on connections.
//!
//! ```text
//! socket -> Records: one call after the other -> a future each -> Outbox -> socket
//!              |  the content of a WRITE into a block of the pool
//!              '-- Load: waits here while too much is under way
//! ```
//!
//! A connection is one task that receives. What a call needs beyond a first look becomes a task of its own, so that calls
//! overtake each other. Whoever reads replies slowly keeps calls under way, and so stops being read from.

mod connection;
mod load;
mod outbox;
mod records;

pub(crate) use connection::{Answering, Work, serve};
pub(crate) use load::Load;
pub use records::whole_record;
