//! The ciphers of records, each by the library that is faster on this processor.
//!
//! For AES, aws-lc has code for AVX-512 and takes half of ring's time with it. Without AVX-512 it takes twice ring's time,
//! for ring has code for VAES with AVX2 (docs/decisions/tls.md).

use ring::aead::NONCE_LEN;

/// Bytes of the tag behind what is sealed, with each cipher.
pub(super) const TAG_LENGTH: usize = 16;

/// What a record's bytes are enciphered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

/// A key of the wrong length, a tag that does not fit, or more bytes than the algorithm takes: neither library says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused;

/// An algorithm with a key, by the library that does the work.
pub(super) enum RecordCipher {
    Ring(Box<ring::aead::LessSafeKey>),
    AwsLc(aws_lc_rs::aead::LessSafeKey),
}

impl RecordCipher {
    /// Chooses the library. Fails where `key` has not the algorithm's length.
    pub(super) fn new(algorithm: Algorithm, key: &[u8]) -> Result<Self, Refused> {
        if algorithm != Algorithm::ChaCha20Poly1305 && has_wide_aes() {
            Self::aws_lc(algorithm, key)
        } else {
            Self::ring(algorithm, key)
        }
    }

    fn ring(algorithm: Algorithm, key: &[u8]) -> Result<Self, Refused> {
        use ring::aead::{AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305, LessSafeKey, UnboundKey};
        let algorithm = match algorithm {
            Algorithm::Aes128Gcm => &AES_128_GCM,
            Algorithm::Aes256Gcm => &AES_256_GCM,
            Algorithm::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, key).map_err(|_| Refused)?;
        Ok(Self::Ring(Box::new(LessSafeKey::new(key))))
    }

    fn aws_lc(algorithm: Algorithm, key: &[u8]) -> Result<Self, Refused> {
        use aws_lc_rs::aead::{
            AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305, LessSafeKey, UnboundKey,
        };
        let algorithm = match algorithm {
            Algorithm::Aes128Gcm => &AES_128_GCM,
            Algorithm::Aes256Gcm => &AES_256_GCM,
            Algorithm::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, key).map_err(|_| Refused)?;
        Ok(Self::AwsLc(LessSafeKey::new(key)))
    }

    /// Opens what lies in `memory` from `sealed` to its end, its tag last, and returns the plaintext at the front.
    pub(super) fn open<'a>(
        &self,
        nonce: [u8; NONCE_LEN],
        context: &[u8],
        memory: &'a mut [u8],
        sealed: usize,
    ) -> Result<&'a [u8], Refused> {
        let opened = match self {
            Self::Ring(key) => {
                use ring::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.open_within(nonce, Aad::from(context), memory, sealed..)
                    .map_err(|_| Refused)
            }
            Self::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.open_within(nonce, Aad::from(context), memory, sealed..)
                    .map_err(|_| Refused)
            }
        };
        opened.map(|plain| &*plain)
    }

    /// Seals `plain` where it lies; returns its tag.
    pub(super) fn seal(
        &self,
        nonce: [u8; NONCE_LEN],
        context: &[u8],
        plain: &mut [u8],
    ) -> Result<[u8; TAG_LENGTH], Refused> {
        let mut tag = [0; TAG_LENGTH];
        match self {
            Self::Ring(key) => {
                use ring::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce);
                let made = key.seal_in_place_separate_tag(nonce, Aad::from(context), plain);
                tag.copy_from_slice(made.map_err(|_| Refused)?.as_ref());
            }
            Self::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce);
                let made = key.seal_in_place_separate_tag(nonce, Aad::from(context), plain);
                tag.copy_from_slice(made.map_err(|_| Refused)?.as_ref());
            }
        }
        Ok(tag)
    }
}

/// Whether aws-lc has code for AES in registers of 512 bits that this processor runs.
#[cfg(target_arch = "x86_64")]
fn has_wide_aes() -> bool {
    use std::arch::is_x86_feature_detected as has;
    // What `crypto_gcm_avx512_enabled` of aws-lc asks for.
    has!("vaes")
        && has!("vpclmulqdq")
        && has!("avx512f")
        && has!("avx512bw")
        && has!("avx512dq")
        && has!("avx512vl")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_wide_aes() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALGORITHMS: [(Algorithm, usize); 3] = [
        (Algorithm::Aes128Gcm, 16),
        (Algorithm::Aes256Gcm, 32),
        (Algorithm::ChaCha20Poly1305, 32),
    ];

    proptest! {
        /// Whatever the processor makes each side choose, what one library seals the other opens, over what stands
        /// before it, and not once a bit of it changed.
        #[test]
        fn the_libraries_understand_each_other(
            chosen in 0..ALGORITHMS.len(),
            nonce in any::<[u8; NONCE_LEN]>(),
            context in prop::collection::vec(any::<u8>(), 0..14),
            plain in prop::collection::vec(any::<u8>(), 0..1_000),
            before in 0..20_usize,
            changed in any::<prop::sample::Index>(),
        ) {
            let (algorithm, length) = ALGORITHMS[chosen];
            let ring = RecordCipher::ring(algorithm, &vec![7; length]).expect("a key");
            let aws_lc = RecordCipher::aws_lc(algorithm, &vec![7; length]).expect("a key");
            for (sealing, opening) in [(&ring, &aws_lc), (&aws_lc, &ring)] {
                let mut memory = vec![0; before];
                memory.extend_from_slice(&plain);
                let tag = sealing.seal(nonce, &context, &mut memory[before..]).expect("sealed");
                memory.extend_from_slice(&tag);
                let mut other = memory.clone();
                let opened = opening.open(nonce, &context, &mut memory, before);
                prop_assert_eq!(opened, Ok(&plain[..]));
                let at = before + changed.index(other.len() - before);
                other[at] ^= 1;
                prop_assert_eq!(opening.open(nonce, &context, &mut other, before), Err(Refused));
            }
        }
    }

    #[test]
    fn a_key_has_the_length_of_its_algorithm() {
        for (algorithm, length) in ALGORITHMS {
            for wrong in [0, 15, length - 1, length + 1] {
                let key = vec![7; wrong];
                assert!(RecordCipher::ring(algorithm, &key).is_err());
                assert!(RecordCipher::aws_lc(algorithm, &key).is_err());
            }
        }
    }
}
