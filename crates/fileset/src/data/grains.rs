//! Grains as they come out of objects.

use std::ops::Range;

use bytes::Bytes;
use penstock_base::{ChecksumKind, Payload, Summing};
use penstock_transfer::Decoder;

use crate::schema::{Frames, GRAIN, Stored};

/// Hands the plain bytes of grains of a run over, one grain after the other where they are compressed. `received` is what
/// their object has of them. Returns whether it is what was written: what was handed over means nothing if it is not.
pub(crate) fn open(
    stored: &Stored,
    grains: Range<usize>,
    received: &Payload,
    take: &mut dyn FnMut(&[u8]),
) -> bool {
    let Some(sums) = stored.checksums.get(grains.clone()) else {
        return false;
    };
    match &stored.frames {
        Some(frames) => open_frames(frames, received, (stored, grains), take),
        None => {
            received.slices().iter().for_each(|slice| take(slice));
            checksums(received.slices().iter()) == sums
        }
    }
}

fn open_frames(
    frames: &Frames,
    received: &Payload,
    (stored, grains): (&Stored, Range<usize>),
    take: &mut dyn FnMut(&[u8]),
) -> bool {
    let wanted = stored.lies(&grains).map(|lies| lies.end - lies.start);
    if wanted.is_none_or(|wanted| wanted as usize != received.len()) {
        return false;
    }
    let (mut decoder, mut plain, mut at) = (Decoder::new(frames.codec), Vec::new(), 0);
    for index in grains {
        let end = at + u64::from(frames.lengths[index]);
        let frame = received.slice(&(at..end)).to_vec();
        at = end;
        plain.resize(stored.grain_length(index) as usize, 0);
        let grain = match frame.len() == plain.len() {
            true => &frame,
            false if decoder.decode(&frame, &mut plain) => &plain,
            false => return false,
        };
        if sum(grain) != stored.checksums[index] {
            return false;
        }
        take(grain);
    }
    true
}

fn sum(grain: &[u8]) -> u32 {
    let mut summing = Summing::new(ChecksumKind::Crc32c);
    summing.add(grain);
    summing.take().value() as u32
}

/// The checksum of each grain.
pub(crate) fn checksums<'a>(slices: impl Iterator<Item = &'a Bytes>) -> Vec<u32> {
    let mut summing = Summing::new(ChecksumKind::Crc32c);
    let (mut sums, mut filled) = (Vec::new(), 0);
    for slice in slices {
        let mut rest = &slice[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(GRAIN as usize - filled));
            summing.add(now);
            filled += now.len();
            rest = later;
            if filled == GRAIN as usize {
                sums.push(summing.take().value() as u32);
                filled = 0;
            }
        }
    }
    if filled > 0 {
        sums.push(summing.take().value() as u32);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_do_not_depend_on_how_the_bytes_came() {
        let whole = (0..GRAIN as usize * 2 + 3).map(|at| at as u8);
        let whole: Bytes = whole.collect();
        let sums = checksums([&whole].into_iter());
        assert_eq!(sums.len(), 3);
        let slices = [
            whole.slice(..5),
            whole.slice(5..200_000),
            whole.slice(200_000..),
        ];
        assert_eq!(checksums(slices.iter()), sums);
    }
}
