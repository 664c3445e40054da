//! A small reply body that needs no allocation.

use smallvec::SmallVec;

/// The largest fixed body is CREATE's 144 bytes; READDIRPLUS entries add a name.
const INLINE: usize = 256;

/// Bytes of a reply after its header.
#[derive(Debug, Default, Clone)]
pub(crate) struct Body(SmallVec<[u8; INLINE]>);

impl Body {
    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn zeros(&mut self, count: usize) -> &mut Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }
}
