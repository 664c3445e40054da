//! The block that begins each member, as POSIX.1-1988 and GNU have it.

use super::BLOCK;

/// A block.
pub(super) type Block = [u8; BLOCK];

/// Where a field lies: first byte and length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field(usize, usize);

pub(super) const NAME: Field = Field(0, 100);
pub(super) const MODE: Field = Field(100, 8);
pub(super) const UID: Field = Field(108, 8);
pub(super) const GID: Field = Field(116, 8);
pub(super) const SIZE: Field = Field(124, 12);
pub(super) const MODIFIED: Field = Field(136, 12);
const CHECKSUM: Field = Field(148, 8);
pub(super) const KIND: usize = 156;
pub(super) const LINK: Field = Field(157, 100);
const MAGIC: Field = Field(257, 8);
pub(super) const USER: Field = Field(265, 32);
pub(super) const GROUP: Field = Field(297, 32);
pub(super) const MAJOR: Field = Field(329, 8);
pub(super) const MINOR: Field = Field(337, 8);
pub(super) const PREFIX: Field = Field(345, 155);
/// GNU: whether a block of more of the map follows.
pub(super) const IS_EXTENDED: usize = 482;
/// GNU: the size with holes.
pub(super) const REAL_SIZE: Field = Field(483, 12);

const POSIX: &[u8; 8] = b"ustar\x0000";
const GNU: &[u8; 8] = b"ustar  \0";

impl Field {
    /// The entry of this index in a map of holes that begins at `begin`: offset and length.
    pub(super) fn of_map(begin: usize, index: usize) -> (Self, Self) {
        let at = begin + index * 24;
        (Self(at, 12), Self(at + 12, 12))
    }

    /// Its bytes.
    pub(super) fn of(self, block: &Block) -> &[u8] {
        &block[self.0..self.0 + self.1]
    }

    /// Its bytes up to the first NUL.
    pub(super) fn text(self, block: &Block) -> &[u8] {
        let bytes = self.of(block);
        let end = bytes.iter().position(|byte| *byte == 0);
        &bytes[..end.unwrap_or(bytes.len())]
    }

    /// The number in it: octal, or binary if its first bit is set. None if it is no number.
    pub(super) fn number(self, block: &Block) -> Option<i64> {
        let bytes = self.of(block);
        if bytes[0] & 0x80 != 0 {
            return binary(bytes);
        }
        let mut value: i64 = 0;
        let digits = bytes.iter().skip_while(|byte| **byte == b' ');
        for digit in digits.take_while(|byte| !matches!(byte, 0 | b' ')) {
            if !(b'0'..=b'7').contains(digit) {
                return None;
            }
            value = value.checked_mul(8)?.checked_add(i64::from(digit - b'0'))?;
        }
        Some(value)
    }

    /// Whether `value` fits in as octal digits.
    pub(super) fn fits(self, value: i64) -> bool {
        value >= 0 && (value as u64) < 1 << (3 * (self.1 - 1)).min(62)
    }

    /// Writes bytes, as many as fit.
    pub(super) fn put(self, block: &mut Block, bytes: &[u8]) {
        let length = bytes.len().min(self.1);
        block[self.0..self.0 + length].copy_from_slice(&bytes[..length]);
    }

    /// Writes a number, as octal digits if it fits, else as binary, which is GNU's.
    pub(super) fn put_number(self, block: &mut Block, value: i64) {
        if self.fits(value) {
            let digits = format!("{value:0width$o}", width = self.1 - 1);
            return self.put(block, digits.as_bytes());
        }
        let target = &mut block[self.0..self.0 + self.1];
        target.fill(if value < 0 { 0xff } else { 0 });
        let bytes = value.to_be_bytes();
        let count = bytes.len().min(self.1 - 1);
        target[self.1 - count..].copy_from_slice(&bytes[bytes.len() - count..]);
        target[0] = if value < 0 { 0xff } else { 0x80 };
    }
}

fn binary(bytes: &[u8]) -> Option<i64> {
    let is_negative = bytes[0] & 0x40 != 0;
    let fill = if is_negative { 0xff } else { 0 };
    let first = if is_negative {
        bytes[0]
    } else {
        bytes[0] & 0x7f
    };
    let (low, high) = (
        &bytes[bytes.len().saturating_sub(8)..],
        bytes.len().saturating_sub(8),
    );
    let is_wide = (0..high).any(|at| (if at == 0 { first } else { bytes[at] }) != fill);
    if is_wide {
        return None;
    }
    let mut all = [fill; 8];
    all[8 - low.len()..].copy_from_slice(low);
    if low.len() == bytes.len() {
        all[8 - low.len()] = first;
    }
    Some(i64::from_be_bytes(all))
}

/// What the checksum of a block should be: the sum of its bytes, those of the checksum taken as blanks.
fn sums(block: &Block) -> (i64, i64) {
    let (mut unsigned, mut signed) = (0, 0);
    for (at, byte) in block.iter().enumerate() {
        let is_checksum = (CHECKSUM.0..CHECKSUM.0 + CHECKSUM.1).contains(&at);
        let byte = if is_checksum { b' ' } else { *byte };
        unsigned += i64::from(byte);
        signed += i64::from(byte.cast_signed());
    }
    (unsigned, signed)
}

/// Whether a block is a header. Old programs summed signed bytes.
pub(super) fn is_valid(block: &Block) -> bool {
    let (unsigned, signed) = sums(block);
    let said = CHECKSUM.number(block);
    said == Some(unsigned) || said == Some(signed)
}

/// Writes the checksum.
pub(super) fn seal(block: &mut Block) {
    let digits = format!("{:06o}\0 ", sums(block).0);
    CHECKSUM.put(block, digits.as_bytes());
}

/// Says which standard the block is by.
pub(super) fn sign(block: &mut Block, is_gnu: bool) {
    MAGIC.put(block, if is_gnu { GNU } else { POSIX });
}

/// Whether the second part of the block is as POSIX has it, where a name may have a beginning.
pub(super) fn is_posix(block: &Block) -> bool {
    MAGIC.of(block)[..6] == POSIX[..6]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_kind_come_back() {
        for value in [
            0,
            7,
            0o7777777,
            0o77777777,
            1 << 40,
            -1,
            -1_000_000_000,
            i64::MAX >> 8,
        ] {
            let mut block = [0; BLOCK];
            MODIFIED.put_number(&mut block, value);
            assert_eq!(MODIFIED.number(&block), Some(value), "{value}");
        }
        let mut block = [0; BLOCK];
        UID.put_number(&mut block, 3_000_000_000);
        assert_eq!(UID.number(&block), Some(3_000_000_000));
        SIZE.put(&mut block, b"12x");
        assert_eq!(SIZE.number(&block), None);
    }
}
