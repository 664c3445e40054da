//! AppendObject of OSS: an object that grows.

use super::{
    Exchange,
    answer::invalid_argument,
    put,
    receive::{opaque_tag, receive},
};
use crate::{
    digest::Algorithm,
    http::response::Response,
    refusal::{Code, Refusal, Trouble},
    store::{Condition, Content, Kind, Object},
};

pub(crate) fn append_object(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let position: u64 = exchange
        .number("position")?
        .ok_or_else(|| invalid_argument("position", ""))?;
    put::check_write(exchange, &Condition::Always)?;
    let bucket = exchange.bucket()?;
    let key = exchange.address.key.clone();
    // Once before the body, to spare the client sending it, and once more when it happens.
    check_position(bucket.get(&key).as_deref(), position)?;
    let attributes = put::attributes(exchange)?;
    let received = receive(exchange)?;
    let etag = opaque_tag(exchange, 1);
    let appended = bucket.replace(&key, |current| {
        let current = current.map(AsRef::as_ref);
        check_position(current, position)?;
        let before = current
            .map(|object| object.content.clone())
            .unwrap_or_default();
        let mut object = Object::new(Content::joined([&before, &received.content]), etag);
        object.kind = Kind::Appendable;
        object.attributes = current.map_or(attributes, |object| object.attributes.clone());
        if let Some(value) = grown_checksum(current, &received)? {
            object.checksums.push(value);
        }
        Ok::<_, Trouble>(object)
    })?;
    let crc = appended.checksum(Algorithm::Crc64Ecma);
    Ok(Response::new(200)
        .header("ETag", super::answer::quoted(&appended.etag))
        .header("x-oss-next-append-position", appended.length().to_string())
        .header("x-oss-hash-crc64ecma", crc.number().to_string()))
}

/// The checksum of the whole from those of what was there and what came.
fn grown_checksum(
    current: Option<&Object>,
    received: &super::receive::Received,
) -> Result<Option<crate::digest::Value>, Trouble> {
    let tail = received
        .values
        .iter()
        .find(|value| value.algorithm == Algorithm::Crc64Ecma);
    let Some((object, tail)) = current.zip(tail) else {
        return Ok(tail.cloned());
    };
    let head = object.checksum(Algorithm::Crc64Ecma);
    Ok(head.followed_by(tail, received.content.length()))
}

fn check_position(current: Option<&Object>, position: u64) -> Result<(), Refusal> {
    match current {
        Some(object) if object.kind != Kind::Appendable => Err(Code::ObjectNotAppendable.into()),
        _ => {
            let length = current.map_or(0, Object::length);
            let refused = || {
                Refusal::from(Code::PositionNotEqualToLength)
                    .header("x-oss-next-append-position", length.to_string())
            };
            (position == length).then_some(()).ok_or_else(refused)
        }
    }
}
