//! One direction of a connection: records are sealed and opened where they lie.
//!
//! A record is a header of 5 bytes (its kind, a version, a length) and sealed bytes. TLS 1.3 hides the true kind behind
//! the plaintext and authenticates the header (RFC 8446, section 5.2); TLS 1.2 authenticates a number, the kind and the
//! length, and AES-GCM there shows 8 bytes of the nonce (RFC 5246, section 6.2.3.3, RFC 5288, RFC 7905).

use ring::aead::NONCE_LEN;
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};

use super::{
    Broken,
    record_cipher::{Algorithm, RecordCipher, TAG_LENGTH},
};

/// Bytes of plaintext in the largest record.
pub(super) const PLAIN_MAX: usize = 16 << 10;

const HEADER_LENGTH: usize = 5;

/// Sealed bytes in the largest record: TLS 1.2 allows most (RFC 5246, section 6.2.3).
const SEALED_MAX: usize = PLAIN_MAX + 2048;

/// The same of TLS 1.3 (RFC 8446, section 5.2).
const SEALED_13_MAX: usize = PLAIN_MAX + 256;

/// Bytes that a record has beside its plaintext, at most: a header, a shown nonce, a hidden kind and a tag.
const RECORD_OVERHEAD_MAX: usize = HEADER_LENGTH + SHOWN_NONCE_LENGTH + 1 + 16;

/// Bytes of the nonce that each record of TLS 1.2 with AES-GCM shows.
const SHOWN_NONCE_LENGTH: usize = 8;

/// Records that one key may seal with AES-GCM (RFC 8446, section 5.5, as rustls counts them). The other cipher could
/// seal more; a connection that sent 256 GiB is as good as any to end.
const RECORDS_MAX: u64 = 1 << 24;

/// Bytes that the records of so much plaintext have beside it, at most.
pub(super) const fn seals_of(plain: usize) -> usize {
    plain.div_ceil(PLAIN_MAX) * RECORD_OVERHEAD_MAX
}

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind(pub(super) u8);

impl Kind {
    pub(super) const ALERT: Self = Self(21);
    pub(super) const HANDSHAKE: Self = Self(22);
    pub(super) const DATA: Self = Self(23);
}

/// A record that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) kind: Kind,
    /// Bytes of plaintext.
    pub(super) length: usize,
}

/// Bytes of the record that `bytes` begin with, once its header is there.
pub(super) fn record_length(bytes: &[u8]) -> Result<Option<usize>, Broken> {
    let Some(&[_, major, _, high, low]) = bytes.first_chunk() else {
        return Ok(None);
    };
    let sealed = usize::from(u16::from_be_bytes([high, low]));
    if major != 3 || sealed > SEALED_MAX {
        return Err(Broken::new("what came is no record of TLS"));
    }
    Ok(Some(HEADER_LENGTH + sealed))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Tls13,
    Tls12,
    Tls12ShownNonce,
}

/// The key of one direction, and how many records it has seen.
pub(super) struct RecordKey {
    cipher: RecordCipher,
    initial: [u8; NONCE_LEN],
    number: u64,
    form: Form,
}

impl RecordKey {
    /// A key whose next record has this number.
    pub(super) fn new(
        version: ProtocolVersion,
        number: u64,
        secrets: &ConnectionTrafficSecrets,
    ) -> Result<Self, Broken> {
        use ConnectionTrafficSecrets as Of;
        let (algorithm, key, initial) = match secrets {
            Of::Aes128Gcm { key, iv } => (Algorithm::Aes128Gcm, key, iv),
            Of::Aes256Gcm { key, iv } => (Algorithm::Aes256Gcm, key, iv),
            Of::Chacha20Poly1305 { key, iv } => (Algorithm::ChaCha20Poly1305, key, iv),
            _ => return Err(Broken::new("an unknown cipher was agreed on")),
        };
        let form = match version {
            ProtocolVersion::TLSv1_3 => Form::Tls13,
            ProtocolVersion::TLSv1_2 if algorithm == Algorithm::ChaCha20Poly1305 => Form::Tls12,
            ProtocolVersion::TLSv1_2 => Form::Tls12ShownNonce,
            _ => return Err(Broken::new("an unknown version was agreed on")),
        };
        let unusable = |_| Broken::new("the agreed key does not fit its cipher");
        let cipher = RecordCipher::new(algorithm, key.as_ref()).map_err(unusable)?;
        let mut bytes = [0; NONCE_LEN];
        bytes.copy_from_slice(initial.as_ref());
        Ok(Self {
            cipher,
            initial: bytes,
            number,
            form,
        })
    }

    /// Whether it should seal nothing that is not begun: half of what it may is done.
    pub(super) fn is_worn(&self) -> bool {
        self.number >= RECORDS_MAX / 2
    }

    /// Opens the record that fills `memory` from `start` to its end. The plaintext is moved to the front.
    pub(super) fn open(&mut self, memory: &mut [u8], start: usize) -> Result<Opened, Broken> {
        if self.form == Form::Tls13 && memory.len() - start > HEADER_LENGTH + SEALED_13_MAX {
            return Err(Broken::new("a record is too long"));
        }
        let sealed = start + HEADER_LENGTH + self.shown_length();
        let length = memory.len().checked_sub(sealed + TAG_LENGTH);
        let length = length.ok_or(Broken::new("a record is too short"))?;
        let kind = Kind(memory[start]);
        let nonce = self.nonce_of(&memory[start + HEADER_LENGTH..sealed]);
        let (context, used) = self.context(kind, &memory[start..sealed], length);
        let opened = self.cipher.open(nonce, &context[..used], memory, sealed);
        let plain = opened.map_err(|_| Broken::new("a record was changed on its way"))?;
        self.number += 1;
        let opened = match self.form {
            Form::Tls13 if kind != Kind::DATA => {
                return Err(Broken::new("a record is not sealed"));
            }
            Form::Tls13 => unpadded(plain)?,
            Form::Tls12 | Form::Tls12ShownNonce => Opened { kind, length },
        };
        if opened.length > PLAIN_MAX {
            return Err(Broken::new("a record is too long"));
        }
        Ok(opened)
    }

    /// Seals one record behind what is in `out`; `fill` adds its plaintext, at most [`PLAIN_MAX`] bytes.
    pub(super) fn seal(
        &mut self,
        kind: Kind,
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Broken> {
        if self.number >= RECORDS_MAX {
            return Err(Broken::new(
                "the connection has sent as much as its key may",
            ));
        }
        let start = out.len();
        let nonce = self.nonce();
        out.extend_from_slice(&[0; HEADER_LENGTH]);
        out.extend_from_slice(&nonce[NONCE_LEN - self.shown_length()..]);
        let sealed = out.len();
        fill(out);
        let length = out.len() - sealed;
        if self.form == Form::Tls13 {
            out.push(kind.0);
        }
        let after_header = out.len() + TAG_LENGTH - start - HEADER_LENGTH;
        let [high, low] = (after_header as u16).to_be_bytes();
        let shown_kind = if self.form == Form::Tls13 {
            Kind::DATA
        } else {
            kind
        };
        out[start..start + HEADER_LENGTH].copy_from_slice(&[shown_kind.0, 3, 3, high, low]);
        let (context, used) = self.context(shown_kind, &out[start..sealed], length);
        let plain = &mut out[sealed..];
        let tag = self.cipher.seal(nonce, &context[..used], plain);
        let Ok(tag) = tag else {
            // Plaintext must not leave.
            out.truncate(start);
            return Err(Broken::new("a record cannot be sealed"));
        };
        out.extend_from_slice(&tag);
        self.number += 1;
        Ok(())
    }

    fn shown_length(&self) -> usize {
        match self.form {
            Form::Tls12ShownNonce => SHOWN_NONCE_LENGTH,
            Form::Tls13 | Form::Tls12 => 0,
        }
    }

    fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = self.initial;
        let tail = nonce.iter_mut().rev();
        for (byte, number) in tail.zip(self.number.to_le_bytes()) {
            *byte ^= number;
        }
        nonce
    }

    /// The nonce of a record that shows so much of it.
    fn nonce_of(&self, shown: &[u8]) -> [u8; NONCE_LEN] {
        let mut nonce = self.nonce();
        nonce[NONCE_LEN - shown.len()..].copy_from_slice(shown);
        nonce
    }

    /// What is authenticated beside the plaintext: so many bytes of the array.
    fn context(&self, kind: Kind, head: &[u8], length: usize) -> ([u8; 13], usize) {
        let mut context = [0; 13];
        if self.form == Form::Tls13 {
            context[..HEADER_LENGTH].copy_from_slice(&head[..HEADER_LENGTH]);
            return (context, HEADER_LENGTH);
        }
        let [high, low] = (length as u16).to_be_bytes();
        context[..8].copy_from_slice(&self.number.to_be_bytes());
        context[8..].copy_from_slice(&[kind.0, 3, 3, high, low]);
        (context, context.len())
    }
}

/// The true kind of a record of TLS 1.3 stands behind its plaintext, before zeros that hide its length.
fn unpadded(plain: &[u8]) -> Result<Opened, Broken> {
    let last = plain.iter().rposition(|&byte| byte != 0);
    let length = last.ok_or(Broken::new("a record says not what it is"))?;
    let kind = Kind(plain[length]);
    Ok(Opened { kind, length })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls::crypto::cipher::{AeadKey, Iv};

    use super::*;

    fn key(chosen: usize, number: u64) -> RecordKey {
        let (key, iv) = (AeadKey::from([7; 32]), Iv::new([9; 12]));
        let version = [ProtocolVersion::TLSv1_3, ProtocolVersion::TLSv1_2][chosen % 2];
        let secrets = if chosen < 2 {
            ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        } else {
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }
        };
        RecordKey::new(version, number, &secrets).expect("a key")
    }

    /// Bytes of a record, short or as long as may be.
    fn plain() -> impl Strategy<Value = Vec<u8>> {
        let lengths = prop_oneof![0..300_usize, PLAIN_MAX - 300..=PLAIN_MAX];
        (lengths, any::<u8>()).prop_map(|(length, first)| {
            let bytes = (0..length).map(|at| first.wrapping_add((at % 251) as u8));
            bytes.collect()
        })
    }

    /// The same by ring, whatever the processor has.
    fn key_by_ring(chosen: usize, number: u64) -> RecordKey {
        let algorithm = match chosen < 2 {
            true => Algorithm::Aes256Gcm,
            false => Algorithm::ChaCha20Poly1305,
        };
        RecordKey {
            cipher: RecordCipher::ring(algorithm, &[7; 32]).expect("a key"),
            ..key(chosen, number)
        }
    }

    proptest! {
        /// Records behind one another, of any kind and length, are opened over the headers between.
        #[test]
        fn what_was_sealed_is_opened_at_the_front(
            chosen in 0..4_usize,
            number in 0..1_000_u64,
            by_ring in any::<bool>(),
            records in prop::collection::vec((21..24_u8, plain()), 1..6),
        ) {
            let opening = if by_ring { key_by_ring } else { key };
            let (mut sealing, mut opening) = (key(chosen, number), opening(chosen, number));
            let mut memory = Vec::new();
            for (kind, plain) in &records {
                let fill = |out: &mut Vec<u8>| out.extend_from_slice(plain);
                sealing.seal(Kind(*kind), &mut memory, fill).expect("sealed");
            }
            let (mut front, mut at) = (0, 0);
            for (kind, plain) in &records {
                let length = record_length(&memory[at..]).expect("a record").expect("whole");
                let opened = opening.open(&mut memory[front..at + length], at - front);
                prop_assert_eq!(opened, Ok(Opened { kind: Kind(*kind), length: plain.len() }));
                prop_assert_eq!(&memory[front..front + plain.len()], &plain[..]);
                at += length;
                front += plain.len();
            }
            prop_assert_eq!(at, memory.len());
        }

        /// One bit of a record is changed, or it comes as another than it was sent: it is not opened.
        #[test]
        fn what_was_changed_is_not_opened(
            chosen in 0..4_usize,
            plain in prop::collection::vec(any::<u8>(), 0..100),
            place in any::<prop::sample::Index>(),
            bit in 0..8,
            skipped in any::<bool>(),
        ) {
            let mut record = Vec::new();
            let fill = |out: &mut Vec<u8>| out.extend_from_slice(&plain);
            key(chosen, 5).seal(Kind::DATA, &mut record, fill).expect("sealed");
            let mut late = key(chosen, 6);
            if !skipped {
                let at = place.index(record.len());
                // What TLS 1.2 authenticates of a version is that which was agreed on.
                prop_assume!(chosen % 2 == 0 || !(1..5).contains(&at));
                record[at] ^= 1_u8 << bit;
                late = key(chosen, 5);
            }
            prop_assert!(late.open(&mut record, 0).is_err());
        }

        #[test]
        fn nothing_that_comes_is_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), chosen in 0..4_usize) {
            let Ok(Some(length)) = record_length(&bytes) else {
                return Ok(());
            };
            let mut bytes = bytes;
            if bytes.len() >= length {
                bytes.truncate(length);
                prop_assert!(key(chosen, 0).open(&mut bytes, 0).is_err());
            }
        }
    }

    #[test]
    fn a_key_seals_no_more_than_it_may() {
        let mut worn = key(0, RECORDS_MAX - 1);
        assert!(worn.is_worn() && !key(0, 0).is_worn());
        let mut out = Vec::new();
        assert!(worn.seal(Kind::DATA, &mut out, |_| {}).is_ok());
        assert!(worn.seal(Kind::DATA, &mut out, |_| {}).is_err());
    }

    /// A record that hides `length` bytes less 11 of padding behind 10 of data.
    fn padded(length: usize) -> Vec<u8> {
        let mut record = Vec::new();
        let fill = |out: &mut Vec<u8>| {
            let start = out.len();
            out.extend_from_slice(&[7; 10]);
            out.push(Kind::DATA.0);
            out.resize(start + length - 1, 0);
        };
        key(0, 0).seal(Kind(0), &mut record, fill).expect("sealed");
        record
    }

    /// TLS 1.3 bounds what is sealed, so padding, too (RFC 8446, section 5.2).
    #[test]
    fn a_record_is_not_longer_than_its_version_allows() {
        let longest = PLAIN_MAX + 256 - TAG_LENGTH;
        let opened = key(0, 0).open(&mut padded(longest), 0);
        assert_eq!(opened.map(|opened| opened.length), Ok(10));
        let opened = key(0, 0).open(&mut padded(longest + 1), 0);
        assert_eq!(opened, Err(Broken::new("a record is too long")));
    }

    /// Padding of any length hides how long a record was (RFC 8446, section 5.4).
    #[test]
    fn padding_is_taken_off() {
        let opened = unpadded(&[1, 2, 0, 23, 0, 0]);
        assert_eq!(
            opened,
            Ok(Opened {
                kind: Kind::DATA,
                length: 3
            })
        );
        assert!(unpadded(&[0, 0]).is_err());
    }
}
