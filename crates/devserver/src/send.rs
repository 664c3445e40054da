//! Sending answers: the head, and the body straight from the object's memory.

use std::{io, ops::Range};

use crate::{
    faults::Fault,
    http::{
        response::{Payload, Response},
        wire::Wire,
    },
    service::Flow,
    store::Content,
};

/// Bodies up to this are copied behind the head and sent with it; that is cheaper than
/// setting up a transfer of pages.
pub(crate) const INLINE_MAX: u64 = 16 << 10;
/// Bytes at a time where they cannot go straight.
const STEP: u64 = 256 << 10;

/// Sends a response with its common header fields. Faults that concern the answer are applied;
/// false if the connection is of no more use.
pub(crate) fn send(
    flow: Flow<'_>,
    wire: &mut Wire,
    response: &Response,
    head: Vec<u8>,
    fault: Option<&Fault>,
) -> io::Result<bool> {
    match (&response.payload, fault) {
        (Payload::None | Payload::Omitted(_), _) => wire.send(&head)?,
        (Payload::Text(text), None) => {
            send_inline(flow, wire, head, text)?;
        }
        (Payload::Text(text), Some(fault)) => {
            return send_harmed(flow, wire, &head, fault, text);
        }
        (Payload::Content { content, range }, None) => {
            send_content(flow, wire, head, content, range)?;
        }
        (Payload::Content { content, range }, Some(fault)) => {
            let body = content.bytes(range.clone());
            return send_harmed(flow, wire, &head, fault, &body);
        }
    }
    Ok(true)
}

fn send_inline(flow: Flow<'_>, wire: &mut Wire, mut head: Vec<u8>, body: &[u8]) -> io::Result<()> {
    head.extend_from_slice(body);
    flow.wait(body.len() as u64)?;
    wire.send(&head)?;
    flow.service.counters.sent(body.len() as u64);
    Ok(())
}

fn send_content(
    flow: Flow<'_>,
    wire: &mut Wire,
    head: Vec<u8>,
    content: &Content,
    range: &Range<u64>,
) -> io::Result<()> {
    let length = range.end - range.start;
    if length <= INLINE_MAX {
        return send_inline(flow, wire, head, &content.bytes(range.clone()));
    }
    wire.send_more(&head)?;
    if wire.is_secure() {
        return send_slices(flow, wire, content, range);
    }
    let limited = flow.is_limited();
    for (file, mut place) in content.places(range.clone()) {
        while !place.is_empty() {
            let step = if limited {
                flow.step(usize::MAX) as u64
            } else {
                u64::MAX
            };
            let end = place.end.min(place.start.saturating_add(step));
            if limited {
                flow.wait(end - place.start)?;
            }
            let sent = wire.send_file(file, place.start..end)?;
            if sent == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            flow.service.counters.sent(sent);
            place.start += sent;
        }
    }
    Ok(())
}

/// Sends a body from where it lies, as [`send_content`] does, where it must be enciphered first.
fn send_slices(
    flow: Flow<'_>,
    wire: &mut Wire,
    content: &Content,
    range: &Range<u64>,
) -> io::Result<()> {
    for slice in content.slices(range.clone()) {
        for piece in slice.chunks(flow.step(STEP as usize)) {
            flow.wait(piece.len() as u64)?;
            wire.send_more(piece)?;
            flow.service.counters.sent(piece.len() as u64);
        }
    }
    wire.send(b"")
}

/// Sends with damage; false if the connection ends with it.
fn send_harmed(
    flow: Flow<'_>,
    wire: &mut Wire,
    head: &[u8],
    fault: &Fault,
    body: &[u8],
) -> io::Result<bool> {
    let mut body = body.to_vec();
    let mut keep = true;
    match fault {
        Fault::CutBody { after } | Fault::Reset { after } => {
            body.truncate(usize::try_from(*after).unwrap_or(usize::MAX));
            keep = false;
        }
        Fault::FlipByte { at } => {
            if let Some(byte) = body.get_mut(usize::try_from(*at).unwrap_or(usize::MAX)) {
                *byte ^= 1;
            }
        }
        _ => {}
    }
    wire.send_more(head)?;
    for piece in body.chunks(flow.step(STEP as usize)) {
        flow.wait(piece.len() as u64)?;
        wire.send(piece)?;
        flow.service.counters.sent(piece.len() as u64);
    }
    match fault {
        Fault::Reset { .. } => wire.reset()?,
        Fault::CutBody { .. } => wire.cut()?,
        _ => wire.send(b"")?,
    }
    Ok(keep)
}
