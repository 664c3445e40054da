//! The ciphers of records, each by the library that is faster on this processor.
//!
//! For AES on x86-64, graviola has code for AVX-512 and ring has code for VAES with AVX2; where a processor has the first,
//! ring takes half as much time again (docs/decisions/tls.md).

#[cfg(target_arch = "x86_64")]
use graviola::aead::AesGcm;
use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};

/// Bytes of the tag behind what is sealed, with each cipher.
pub(super) const TAG_LENGTH: usize = 16;

/// What a record's bytes are enciphered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

/// A key of the wrong length or a tag that does not fit: neither library says more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused;

/// An algorithm with a key, by the library that does the work.
pub(super) enum RecordCipher {
    Ring(Box<LessSafeKey>),
    #[cfg(target_arch = "x86_64")]
    Graviola(Box<AesGcm>),
}

impl RecordCipher {
    /// Chooses the library. Fails where `key` has not the algorithm's length.
    pub(super) fn new(algorithm: Algorithm, key: &[u8]) -> Result<Self, Refused> {
        #[cfg(target_arch = "x86_64")]
        if algorithm != Algorithm::ChaCha20Poly1305 && has_wide_aes() {
            return Self::graviola(algorithm, key);
        }
        Self::ring(algorithm, key)
    }

    pub(super) fn ring(algorithm: Algorithm, key: &[u8]) -> Result<Self, Refused> {
        let algorithm = match algorithm {
            Algorithm::Aes128Gcm => &AES_128_GCM,
            Algorithm::Aes256Gcm => &AES_256_GCM,
            Algorithm::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, key).map_err(|_| Refused)?;
        Ok(Self::Ring(Box::new(LessSafeKey::new(key))))
    }

    #[cfg(target_arch = "x86_64")]
    fn graviola(algorithm: Algorithm, key: &[u8]) -> Result<Self, Refused> {
        match (algorithm, key.len()) {
            (Algorithm::Aes128Gcm, 16) | (Algorithm::Aes256Gcm, 32) => {
                Ok(Self::Graviola(Box::new(AesGcm::new(key))))
            }
            _ => Err(Refused),
        }
    }

    /// Opens what lies in `memory` from `sealed` to its end, its tag last, and returns the plaintext at the front. Where
    /// the tag does not fit, what `memory` holds from `sealed` on means nothing any more.
    pub(super) fn open<'a>(
        &self,
        nonce: [u8; NONCE_LEN],
        context: &[u8],
        memory: &'a mut [u8],
        sealed: usize,
    ) -> Result<&'a [u8], Refused> {
        match self {
            Self::Ring(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let opened = key.open_within(nonce, Aad::from(context), memory, sealed..);
                opened.map(|plain| &*plain).map_err(|_| Refused)
            }
            #[cfg(target_arch = "x86_64")]
            Self::Graviola(key) => {
                let bytes = memory.get_mut(sealed..).ok_or(Refused)?;
                let (text, tag) = bytes.split_last_chunk_mut().ok_or(Refused)?;
                let tag: &[u8; TAG_LENGTH] = tag;
                let opened = key.decrypt(&nonce, context, text, tag);
                opened.map_err(|_| Refused)?;
                let length = text.len();
                memory.copy_within(sealed..sealed + length, 0);
                Ok(&memory[..length])
            }
        }
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
                let nonce = Nonce::assume_unique_for_key(nonce);
                let made = key.seal_in_place_separate_tag(nonce, Aad::from(context), plain);
                tag.copy_from_slice(made.map_err(|_| Refused)?.as_ref());
            }
            #[cfg(target_arch = "x86_64")]
            Self::Graviola(key) => key.encrypt(&nonce, context, plain, &mut tag),
        }
        Ok(tag)
    }
}

/// Whether the processor runs graviola's code for AVX-512.
#[cfg(target_arch = "x86_64")]
fn has_wide_aes() -> bool {
    use std::arch::is_x86_feature_detected as has;
    let has_wide = has!("avx512f") && has!("avx512bw") && has!("avx512vl");
    runs_graviola() && has_wide && has!("vaes") && has!("vpclmulqdq")
}

/// Whether the processor has what all of graviola asks for, which panics without.
#[cfg(target_arch = "x86_64")]
fn runs_graviola() -> bool {
    use std::arch::is_x86_feature_detected as has;
    let has_ciphers = has!("aes") && has!("pclmulqdq");
    has_ciphers && has!("adx") && has!("avx2") && has!("bmi1") && has!("bmi2")
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::tls::record_key::PLAIN_MAX;

    const ALGORITHMS: [(Algorithm, usize); 2] =
        [(Algorithm::Aes128Gcm, 16), (Algorithm::Aes256Gcm, 32)];

    /// Both libraries with one key; `None` where the processor cannot run one of them at all.
    fn both(chosen: usize) -> Option<[RecordCipher; 2]> {
        if !runs_graviola() {
            return None;
        }
        let (algorithm, length) = ALGORITHMS[chosen];
        let key: Vec<u8> = (0..length as u8).collect();
        let ring = RecordCipher::ring(algorithm, &key);
        let graviola = RecordCipher::graviola(algorithm, &key);
        Some([ring, graviola].map(|cipher| cipher.expect("a key")))
    }

    /// Short ones, and those of a record and around it.
    fn lengths() -> impl Strategy<Value = usize> {
        prop_oneof![0..600_usize, PLAIN_MAX - 300..PLAIN_MAX + 257]
    }

    proptest! {
        /// What one library seals the other seals in the same way and opens, over what stands before it, and not once a bit
        /// of it changed.
        #[test]
        fn the_libraries_are_one_cipher(
            chosen in 0..ALGORITHMS.len(),
            nonce in any::<[u8; NONCE_LEN]>(),
            context in prop::collection::vec(any::<u8>(), 0..14),
            length in lengths(),
            first in any::<u8>(),
            before in 0..20_usize,
            changed in any::<prop::sample::Index>(),
        ) {
            let Some([ring, graviola]) = both(chosen) else {
                return Ok(());
            };
            let plain: Vec<u8> = (0..length).map(|at| first.wrapping_add((at % 251) as u8)).collect();
            let sealed = [&ring, &graviola].map(|cipher| {
                let mut memory = vec![0; before];
                memory.extend_from_slice(&plain);
                let tag = cipher.seal(nonce, &context, &mut memory[before..]).expect("sealed");
                memory.extend_from_slice(&tag);
                memory
            });
            prop_assert_eq!(&sealed[0], &sealed[1]);
            for opening in [&graviola, &ring] {
                let mut memory = sealed[0].clone();
                let opened = opening.open(nonce, &context, &mut memory, before);
                prop_assert_eq!(opened, Ok(&plain[..]));
                let mut memory = sealed[0].clone();
                memory[before + changed.index(length + TAG_LENGTH)] ^= 1;
                prop_assert_eq!(opening.open(nonce, &context, &mut memory, before), Err(Refused));
            }
        }
    }

    #[test]
    fn what_is_no_longer_than_its_tag_is_not_opened() {
        if !runs_graviola() {
            penstock_skips::skipped("the processor cannot run graviola");
        }
        for cipher in both(0).into_iter().flatten() {
            for length in 0..TAG_LENGTH {
                let mut memory = vec![7; length];
                assert_eq!(
                    cipher.open([0; NONCE_LEN], &[], &mut memory, 0),
                    Err(Refused)
                );
                assert_eq!(
                    cipher.open([0; NONCE_LEN], &[], &mut memory, length + 1),
                    Err(Refused)
                );
            }
        }
    }

    #[test]
    fn a_key_has_the_length_of_its_algorithm() {
        for (algorithm, length) in ALGORITHMS {
            for wrong in [0, 15, 24, length - 1, length + 1] {
                let key = vec![7; wrong];
                assert!(RecordCipher::ring(algorithm, &key).is_err());
                assert!(RecordCipher::graviola(algorithm, &key).is_err());
            }
        }
    }
}
