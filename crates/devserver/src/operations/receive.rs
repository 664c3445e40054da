//! Receiving a body into memory and checking what the client says about it.
//!
//! The client may send checksums in headers before the body or in trailers behind it; each is
//! computed over the bytes as they arrive, and nothing is stored if one does not match.

use std::io::{self, Read};

use super::Exchange;
use crate::{
    digest::{self, Algorithm, Digest, Value},
    http::{chunks::Chunks, request::Request},
    refusal::{Code, Refusal, Trouble},
    service::Flow,
    settings::EtagPolicy,
    store::{Content, ContentWriter},
};

/// Bytes in the largest body of one request.
const BODY_MAX: u64 = 5 << 30;
/// Bytes in the largest document that a request may carry.
const DOCUMENT_MAX: u64 = 8 << 20;
/// Bodies up to this get their MD5 as a tag, unless told otherwise.
const MD5_MAX: u64 = 1 << 20;

/// A body in memory.
pub(crate) struct Received {
    pub(crate) content: Content,
    /// Everything that was computed over it.
    pub(crate) values: Vec<Value>,
    /// The checksums that the client sent, in S3's terms.
    pub(crate) claimed: Vec<Value>,
}

impl Received {
    /// What is worth keeping with the object: what the client sent, and what OSS tells.
    pub(crate) fn checksums(&self) -> Vec<Value> {
        let own = self.value(Algorithm::Crc64Ecma);
        self.claimed.iter().chain(own).cloned().collect()
    }

    pub(crate) fn value(&self, algorithm: Algorithm) -> Option<&Value> {
        self.values
            .iter()
            .find(|value| value.algorithm == algorithm)
    }
}

/// What the headers say about a body.
struct Plan {
    /// Bytes of payload, where known.
    length: Option<u64>,
    aws_chunked: bool,
    /// Values that must come out.
    claims: Vec<Value>,
    /// The hash that the signature covers, which must come out too.
    signed: Option<Value>,
    /// A value that follows the body.
    trailer: Option<Algorithm>,
    /// To compute although nobody claims a value.
    extra: Option<Algorithm>,
}

impl Plan {
    fn of(exchange: &Exchange<'_>) -> Result<Self, Refusal> {
        let request = exchange.request;
        let aws_chunked = is_aws_chunked(request);
        let decoded = request.header("x-amz-decoded-content-length");
        let length = match decoded.filter(|_| aws_chunked) {
            Some(text) => Some(
                text.parse()
                    .map_err(|_| Refusal::from(Code::InvalidArgument))?,
            ),
            None if aws_chunked => None,
            None => exchange.body.remaining(),
        };
        if length.is_some_and(|length| length > BODY_MAX) {
            return Err(Code::EntityTooLarge.into());
        }
        let trailer = request.header("x-amz-trailer").unwrap_or("");
        let trailer = trailer.trim().to_ascii_lowercase();
        let verifies = exchange.service.settings.verify_signatures;
        Ok(Self {
            length,
            aws_chunked,
            claims: claims(exchange)?,
            signed: verifies.then(|| signed_hash(request)).flatten(),
            trailer: trailer
                .strip_prefix("x-amz-checksum-")
                .and_then(Algorithm::named),
            extra: exchange.is_oss().then_some(Algorithm::Crc64Ecma),
        })
    }

    fn digests(&self) -> Vec<Digest> {
        let claimed = self
            .claims
            .iter()
            .chain(&self.signed)
            .map(|value| value.algorithm);
        let mut algorithms: Vec<_> = claimed.chain(self.trailer).chain(self.extra).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        algorithms.into_iter().map(Digest::new).collect()
    }
}

/// Values that headers promise.
fn claims(exchange: &Exchange<'_>) -> Result<Vec<Value>, Refusal> {
    let request = exchange.request;
    let invalid = |name: &str| {
        Refusal::because(
            Code::InvalidDigest,
            format!("The value of {name} is not valid."),
        )
    };
    let mut claims = Vec::new();
    if let Some(text) = request.header("content-md5") {
        let value = Value::from_base64(Algorithm::Md5, text);
        claims.push(value.ok_or_else(|| invalid("Content-MD5"))?);
    }
    for algorithm in Algorithm::S3 {
        let name = algorithm.header();
        if let Some(text) = request.header(&name) {
            let value = Value::from_base64(algorithm, text);
            claims.push(value.ok_or_else(|| {
                Refusal::because(
                    Code::InvalidRequest,
                    format!("Value for {name} header is invalid."),
                )
            })?);
        }
    }
    Ok(claims)
}

/// The hash that the signature covers, where it covers one.
fn signed_hash(request: &Request) -> Option<Value> {
    let bytes = digest::from_hex(request.header("x-amz-content-sha256")?)?;
    (bytes.len() == 32).then_some(Value {
        algorithm: Algorithm::Sha256,
        bytes,
    })
}

fn is_aws_chunked(request: &Request) -> bool {
    let streaming = request
        .header("x-amz-content-sha256")
        .is_some_and(|hash| hash.starts_with("STREAMING-"));
    let coding = request.header("content-encoding").unwrap_or("");
    streaming
        || coding
            .split(',')
            .any(|word| word.trim().eq_ignore_ascii_case("aws-chunked"))
}

/// Receives the body of a request that stores it.
pub(crate) fn receive(exchange: &mut Exchange<'_>) -> Result<Received, Trouble> {
    let plan = Plan::of(exchange)?;
    let mut intake = Intake::new(exchange, &plan);
    let trailers = if plan.aws_chunked {
        let mut chunks = Chunks::new(&mut exchange.body);
        intake.take(&mut chunks)?;
        chunks.trailers().to_vec()
    } else {
        intake.take(&mut exchange.body)?;
        Vec::new()
    };
    // What a decoder leaves, such as the last line end, must not be taken for a request.
    exchange.body.drain();
    let received = intake.finish(&plan, &trailers)?;
    if plan
        .length
        .is_some_and(|length| length != received.content.length())
    {
        return Err(Code::IncompleteBody.into());
    }
    Ok(received)
}

/// Receives a body that is a document, in S3's checksums and codings too.
pub(crate) fn receive_document(exchange: &mut Exchange<'_>) -> Result<String, Trouble> {
    if exchange
        .body
        .remaining()
        .is_some_and(|length| length > DOCUMENT_MAX)
    {
        return Err(Code::MalformedXml.into());
    }
    let received = receive(exchange)?;
    let bytes = received.content.bytes(0..received.content.length());
    String::from_utf8(bytes).map_err(|_| Code::MalformedXml.into())
}

/// A body on its way from the socket to where it stays.
struct Intake<'a> {
    flow: Flow<'a>,
    digests: Vec<Digest>,
    writer: ContentWriter,
    /// Bytes to come, where known.
    length: Option<u64>,
    received: u64,
    flip: Option<u64>,
}

impl<'a> Intake<'a> {
    fn new(exchange: &Exchange<'a>, plan: &Plan) -> Self {
        Self {
            flow: exchange.flow,
            digests: plan.digests(),
            writer: ContentWriter::new(exchange.service.data.arena(), plan.length),
            length: plan.length,
            received: 0,
            flip: exchange.flip_received,
        }
    }

    /// Moves everything from `source`.
    fn take(&mut self, source: &mut impl Read) -> Result<(), Trouble> {
        loop {
            if Some(self.received) == self.length {
                return self.expect_end(source);
            }
            let room = self.writer.room()?;
            let limit = self.flow.step(room.len());
            let count = source.read(&mut room[..limit]).map_err(incomplete)?;
            if count == 0 {
                return Ok(());
            }
            damage(&mut room[..count], self.received, self.flip);
            for digest in &mut self.digests {
                digest.update(&room[..count]);
            }
            self.writer.advance(count);
            self.received += count as u64;
            if self.received > BODY_MAX {
                return Err(Code::EntityTooLarge.into());
            }
            self.flow.service.counters.received(count as u64);
            self.flow.wait(count as u64)?;
        }
    }

    /// Takes what a decoder leaves behind the last byte, without memory for more bytes.
    fn expect_end(&self, source: &mut impl Read) -> Result<(), Trouble> {
        match source.read(&mut [0]).map_err(incomplete)? {
            0 => Ok(()),
            _ => Err(Code::IncompleteBody.into()),
        }
    }

    fn finish(self, plan: &Plan, trailers: &[(String, String)]) -> Result<Received, Trouble> {
        let content = self.writer.finish();
        let mut claims = plan.claims.clone();
        if let Some(algorithm) = plan.trailer {
            let name = algorithm.header();
            let trailer = trailers.iter().find(|(field, _)| *field == name);
            let value = trailer.and_then(|(_, text)| Value::from_base64(algorithm, text));
            claims.push(value.ok_or(Code::InvalidDigest)?);
        }
        let values: Vec<_> = self.digests.into_iter().map(Digest::finish).collect();
        if plan
            .signed
            .as_ref()
            .is_some_and(|hash| !values.contains(hash))
        {
            return Err(Code::PayloadHashMismatch.into());
        }
        if let Some(claim) = claims.iter().find(|claim| !values.contains(claim)) {
            return Err(mismatch(claim).into());
        }
        claims.retain(|claim| Algorithm::S3.contains(&claim.algorithm));
        Ok(Received {
            content,
            values,
            claimed: claims,
        })
    }
}

/// Flips the byte that a fault rule chose, if it is among these.
fn damage(bytes: &mut [u8], start: u64, flip: Option<u64>) {
    let at = flip.and_then(|at| at.checked_sub(start));
    if let Some(byte) = at.and_then(|at| bytes.get_mut(at as usize)) {
        *byte ^= 1;
    }
}

fn mismatch(claim: &Value) -> Refusal {
    let name = claim.algorithm.name();
    Refusal::because(
        Code::BadDigest,
        format!("The {name} you specified did not match what we received."),
    )
}

/// A body that ends early leaves a connection that is of no use.
fn incomplete(error: io::Error) -> Trouble {
    match error.kind() {
        io::ErrorKind::InvalidData => Code::IncompleteBody.into(),
        _ => Trouble::Broken(error),
    }
}

/// The tag of a received body: its MD5 where the policy wants it, else one that looks like
/// that of a multipart upload, which no client takes for a hash.
pub(crate) fn etag_of(exchange: &Exchange<'_>, received: &Received) -> String {
    if let Some(value) = received.value(Algorithm::Md5) {
        return value.hex();
    }
    let hash = match exchange.service.settings.etag {
        EtagPolicy::Md5 => true,
        EtagPolicy::Auto => received.content.length() <= MD5_MAX,
        EtagPolicy::Opaque => false,
    };
    if hash {
        return Value::of_content(Algorithm::Md5, &received.content).hex();
    }
    opaque_tag(exchange, 1)
}

/// A tag that never repeats.
pub(crate) fn opaque_tag(exchange: &Exchange<'_>, parts: usize) -> String {
    let unique = exchange.service.data.unique();
    format!(
        "{}-{parts}",
        digest::of_bytes(Algorithm::Md5, unique.as_bytes()).hex()
    )
}
