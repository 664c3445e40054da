//! The first request and its answer.

use super::{Capabilities, MAJOR, ParseError, encode::Body, fields::Fields};

/// What the kernel offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct InitRequest {
    pub major: u32,
    pub minor: u32,
    /// Bytes that the kernel would read ahead.
    pub max_readahead: u32,
    pub offered: Capabilities,
}

impl InitRequest {
    pub(super) fn parse(mut fields: Fields<'_>) -> Result<Self, ParseError> {
        let (major, minor) = (fields.u32()?, fields.u32()?);
        let max_readahead = fields.u32()?;
        let low = fields.u32()?;
        let extended = Capabilities::from_halves(low, 0).contains(Capabilities::INIT_EXT);
        let high = if extended { fields.u32()? } else { 0 };
        Ok(Self {
            major,
            minor,
            max_readahead,
            offered: Capabilities::from_halves(low, high),
        })
    }
}

/// What was agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct InitReply {
    pub minor: u32,
    pub max_readahead: u32,
    pub granted: Capabilities,
    pub max_background: u16,
    pub congestion_threshold: u16,
    /// Bytes in the largest WRITE.
    pub max_write: u32,
    /// Pages in the largest request.
    pub max_pages: u16,
    /// File systems that may lie on top of each other below this mount; 0 without passthrough.
    pub max_stack_depth: u32,
}

impl InitReply {
    /// Nanoseconds between two time stamps that can be told apart.
    const TIME_GRANULARITY: u32 = 1;

    pub(crate) fn encode(&self) -> Body {
        let (low, high) = self.granted.halves();
        let mut body = Body::default();
        body.u32(MAJOR).u32(self.minor).u32(self.max_readahead);
        body.u32(low);
        body.u16(self.max_background).u16(self.congestion_threshold);
        body.u32(self.max_write).u32(Self::TIME_GRANULARITY);
        body.u16(self.max_pages).u16(0);
        body.u32(high).u32(self.max_stack_depth);
        body.zeros(24);
        body
    }
}
