//! Calls of clients that are carried out once.
//!
//! A client that hears no answer asks again: the same door, one that was started anew, or another one that took over the
//! address. A door that serves such clients says with each change of names in which call it is made
//! ([`crate::Identity::call`]). A volume that remembers calls ([`crate::Features::remembers_calls`]) keeps that together
//! with the change, and answers a repeat with success where it would else find the name taken, or gone, or
//! somebody else's by now.

/// Which call: numbers are the client's own and come again, so what it asks for, and for whom, is part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId {
    /// Which client.
    pub client: [u8; 16],
    /// What the client calls it by.
    pub number: u32,
    /// A checksum of what it asks for and for whom, the same from each door.
    pub sum: u64,
}
