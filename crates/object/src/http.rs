//! A small HTTP/1.1 client, made for object bodies.
//!
//! It is on the hot path, so it does as little as it can per byte:
//!
//! - A request is one short head, sent together with the body's slices by vectored writes: no
//!   slice is ever joined or copied ([`connection`]).
//! - A response head is read into a small buffer of the connection ([`buffer`]). What came along
//!   of the body is copied to the caller's [`crate::BodySink`]; everything after is received
//!   straight into the sink's memory ([`body`], [`fill`]).
//! - Connections are kept in a last in, first out list per [`Origin`] ([`pool`]). One that the
//!   server had closed meanwhile is noticed before a response byte arrived and replaced once.
//! - Names resolve to many addresses, and connections take them in turn ([`resolve`]), which is
//!   how an object store spreads its load.
//!
//! Every wait has a deadline: connecting, the first byte of a response, and progress of a body in
//! either direction ([`stall`]). Dropping a request or a half-read response closes its
//! connection. There are no redirects, cookies, compression or HTTP/2.

mod body;
mod buffer;
mod chunked;
mod client;
mod connect;
mod connection;
mod error;
// The only unsafe code here: receiving into memory that is not initialised.
#[allow(unsafe_code)]
mod fill;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
mod headers;
mod origin;
mod pool;
mod request;
mod resolve;
mod response;
mod settings;
mod stall;
mod stream;
mod tls;

#[cfg(test)]
mod tests;

pub(crate) use client::{Client, ClientMetrics};
pub(crate) use error::HttpError;
pub(crate) use headers::{RequestHeaders, ResponseHeaders, is_printable};
pub(crate) use origin::Origin;
pub(crate) use request::{Patience, Request};
pub(crate) use response::Response;
pub(crate) use settings::HttpSettings;
pub use tls::{CertificateFacts, TlsReport, TrustedBy, read_system_trust, room_for_seals};
