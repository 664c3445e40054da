//! HTTP/1.1, as much as an object server needs: heads, bodies, percent-encoding, ranges.

pub(crate) mod body;
pub(crate) mod chunks;
pub(crate) mod encoding;
pub(crate) mod range;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod secure;
pub(crate) mod wire;
