//! Concerns that cut across every store, one wrapper each.
//!
//! A layer is a [`Store`](crate::Store) around a `Store`; what it does not care about it passes
//! on. Each can be tested alone around a [`MemoryStore`](crate::MemoryStore).

mod prefixed;

pub use prefixed::Prefixed;
