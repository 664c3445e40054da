//! Numbers of files that outlive a mount.

use std::fmt;

use smallvec::SmallVec;

/// Which file it is, in the volume's own words: bytes that mean the same in every process that serves the
/// volume, today and after a restart. NFS handles and `name_to_handle_at(2)` are made of them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(SmallVec<[u8; 24]>);

impl NodeId {
    /// Bytes in the longest: an NFSv3 handle has 64, of which a door needs some.
    pub const LENGTH_MAX: usize = 48;

    /// The number with these bytes, unless they are too many or none.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let fits = (1..=Self::LENGTH_MAX).contains(&bytes.len());
        fits.then(|| Self(SmallVec::from_slice(bytes)))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeId(")?;
        for byte in &self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_between_1_and_48_bytes() {
        assert_eq!(NodeId::new(&[]), None);
        assert_eq!(NodeId::new(&[0; 49]), None);
        let longest = NodeId::new(&[7; 48]).expect("it fits");
        assert_eq!(longest.as_bytes(), [7; 48]);
        let short = NodeId::new(&[1, 0xab]).expect("it fits");
        assert_eq!(format!("{short:?}"), "NodeId(01ab)");
    }
}
