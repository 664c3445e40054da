//! Keyed hashes.

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::digest;

/// HMAC-SHA-256.
pub(super) fn sha256(key: &[u8], message: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// HMAC-SHA-1 in Base64.
pub(super) fn sha1_base64(key: &str, message: &str) -> String {
    let mut mac =
        Hmac::<Sha1>::new_from_slice(key.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(message.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

/// A chain of HMACs: each one's result is the next one's key.
pub(super) fn chain(secret: &str, messages: &[&str]) -> Vec<u8> {
    messages
        .iter()
        .fold(secret.as_bytes().to_vec(), |key, message| {
            sha256(&key, message)
        })
}

/// SHA-256 in hexadecimal.
pub(super) fn hash(text: &str) -> String {
    digest::hex(&Sha256::digest(text.as_bytes()))
}
