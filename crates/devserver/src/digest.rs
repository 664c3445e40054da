//! Checksums and hashes of bodies, computed while they arrive.

use base64::{Engine, engine::general_purpose::STANDARD};
use crc_fast::CrcAlgorithm;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use crate::store::Content;

/// What can be computed over a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Algorithm {
    Md5,
    Sha1,
    Sha256,
    Crc32,
    Crc32c,
    Crc64Nvme,
    Crc64Ecma,
}

impl Algorithm {
    /// Those that S3 has a header for.
    pub(crate) const S3: [Self; 5] = [
        Self::Crc32,
        Self::Crc32c,
        Self::Crc64Nvme,
        Self::Sha1,
        Self::Sha256,
    ];

    /// The word in S3's headers and elements, such as `CRC32C`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Crc64Ecma => "CRC64ECMA",
        }
    }

    /// The header that carries its value in S3, such as `x-amz-checksum-crc32c`.
    pub(crate) fn header(self) -> String {
        format!("x-amz-checksum-{}", self.name().to_ascii_lowercase())
    }

    /// By its word, in any case.
    pub(crate) fn named(word: &str) -> Option<Self> {
        Self::S3
            .into_iter()
            .find(|algorithm| algorithm.name().eq_ignore_ascii_case(word))
    }

    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Self::Crc64Ecma => Some(CrcAlgorithm::Crc64Xz),
            Self::Md5 | Self::Sha1 | Self::Sha256 => None,
        }
    }

    /// Whether values of pieces can be combined into the value of the whole.
    pub(crate) fn combines(self) -> bool {
        self.crc().is_some()
    }

    /// Bytes in a value.
    fn width(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme | Self::Crc64Ecma => 8,
        }
    }
}

/// The value of one algorithm over some bytes; checksums are big-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) algorithm: Algorithm,
    pub(crate) bytes: Vec<u8>,
}

impl Value {
    /// From its Base64 text; `None` if it is not one or has the wrong length.
    pub(crate) fn from_base64(algorithm: Algorithm, text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.trim()).ok()?;
        (bytes.len() == algorithm.width()).then_some(Self { algorithm, bytes })
    }

    pub(crate) fn base64(&self) -> String {
        STANDARD.encode(&self.bytes)
    }

    pub(crate) fn hex(&self) -> String {
        hex(&self.bytes)
    }

    /// A checksum as a number.
    pub(crate) fn number(&self) -> u64 {
        self.bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn from_number(algorithm: Algorithm, number: u64) -> Self {
        let bytes = number.to_be_bytes()[8 - algorithm.width()..].to_vec();
        Self { algorithm, bytes }
    }

    /// The value over these bytes followed by `next_length` bytes whose value is `next`. Only
    /// for algorithms that combine.
    pub(crate) fn followed_by(&self, next: &Self, next_length: u64) -> Option<Self> {
        let crc = self.algorithm.crc()?;
        let number = crc_fast::checksum_combine(crc, self.number(), next.number(), next_length);
        Some(Self::from_number(self.algorithm, number))
    }

    /// The value over the bytes of `content`.
    pub(crate) fn of_content(algorithm: Algorithm, content: &Content) -> Self {
        let mut digest = Digest::new(algorithm);
        content
            .slices(0..content.length())
            .for_each(|bytes| digest.update(bytes));
        digest.finish()
    }
}

/// A value in the making.
pub(crate) struct Digest {
    algorithm: Algorithm,
    state: State,
}

enum State {
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    Crc(Box<crc_fast::Digest>),
}

impl Digest {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        let state = match (algorithm, algorithm.crc()) {
            (_, Some(crc)) => State::Crc(Box::new(crc_fast::Digest::new(crc))),
            (Algorithm::Sha1, _) => State::Sha1(Sha1::new()),
            (Algorithm::Sha256, _) => State::Sha256(Sha256::new()),
            _ => State::Md5(Md5::new()),
        };
        Self { algorithm, state }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Md5(state) => state.update(bytes),
            State::Sha1(state) => state.update(bytes),
            State::Sha256(state) => state.update(bytes),
            State::Crc(state) => state.update(bytes),
        }
    }

    pub(crate) fn finish(self) -> Value {
        let algorithm = self.algorithm;
        let bytes = match self.state {
            State::Md5(state) => state.finalize().to_vec(),
            State::Sha1(state) => state.finalize().to_vec(),
            State::Sha256(state) => state.finalize().to_vec(),
            State::Crc(state) => return Value::from_number(algorithm, state.finalize()),
        };
        Value { algorithm, bytes }
    }
}

/// The value over bytes at hand.
pub(crate) fn of_bytes(algorithm: Algorithm, bytes: &[u8]) -> Value {
    let mut digest = Digest::new(algorithm);
    digest.update(bytes);
    digest.finish()
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// The bytes behind hexadecimal digits of either case.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values that the catalogue of CRCs and the RFCs give for "123456789".
    #[test]
    fn check_values() {
        let number = |algorithm| of_bytes(algorithm, b"123456789").number();
        assert_eq!(number(Algorithm::Crc32), 0xcbf4_3926);
        assert_eq!(number(Algorithm::Crc32c), 0xe306_9283);
        assert_eq!(number(Algorithm::Crc64Ecma), 0x995d_c9bb_df19_39fa);
        assert_eq!(number(Algorithm::Crc64Nvme), 0xae8b_1486_0a79_9888);
        let md5 = of_bytes(Algorithm::Md5, b"123456789");
        assert_eq!(md5.hex(), "25f9e794323b453885f5181f1b624d0b");
    }

    #[test]
    fn checksums_combine() {
        for algorithm in [
            Algorithm::Crc32,
            Algorithm::Crc32c,
            Algorithm::Crc64Nvme,
            Algorithm::Crc64Ecma,
        ] {
            let (head, tail) = (of_bytes(algorithm, b"1234"), of_bytes(algorithm, b"56789"));
            assert_eq!(
                head.followed_by(&tail, 5),
                Some(of_bytes(algorithm, b"123456789"))
            );
        }
    }

    #[test]
    fn hexadecimal_round_trips() {
        assert_eq!(from_hex("00ff10aB"), Some(vec![0, 255, 16, 171]));
        assert_eq!(hex(&[0, 255, 16, 171]), "00ff10ab");
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("zz"), None);
    }
}
