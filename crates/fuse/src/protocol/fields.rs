//! Reads fields off the front of a body.

use super::ParseError;

/// What is left of a body. Every method takes from the front and fails at the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    opcode: u32,
}

impl<'a> Fields<'a> {
    pub(super) fn new(rest: &'a [u8], opcode: u32) -> Self {
        Self { rest, opcode }
    }

    pub(super) fn u16(&mut self) -> Result<u16, ParseError> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, ParseError> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Passes over `count` bytes of padding or of fields that nobody here needs.
    pub(super) fn skip(&mut self, count: usize) -> Result<(), ParseError> {
        self.take(count).map(drop)
    }

    /// The bytes up to the next NUL, which is taken too.
    pub(super) fn name(&mut self) -> Result<&'a [u8], ParseError> {
        let end = self.rest.iter().position(|byte| *byte == 0);
        let end = end.ok_or(ParseError::UnterminatedName(self.opcode))?;
        let name = self.take(end)?;
        self.skip(1)?;
        Ok(name)
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], ParseError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(ParseError::Truncated(self.opcode))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Everything that is left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("as many bytes as were asked for"))
    }
}
