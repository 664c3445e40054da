//! Parts that the store makes of what it has, and what stands in for them where it cannot.
//!
//! Such a part may be large, for it costs nothing here. A store that turns out to have no such copies
//! gets its bytes fetched and sent, in pieces that fit into memory. That makes more parts of one, so the
//! parts behind it have other numbers: each knows [`Numbers`] for both cases, and those behind the
//! first copy wait for its outcome, once in the life of a mount.

use penstock_base::MIB;
use penstock_object::{
    ErrorKind, HeadOptions, ObjectError, ObjectResult, Operation, Part, PartCopy, PartNumber,
    UploadId,
};
use tokio::sync::watch;

use super::upload::{Target, gave_up};
use crate::{ObjectVersion, Transfer, TransferResult};

/// Bytes in a piece that is fetched and sent, unless the store wants larger ones.
const PIECE: u64 = 8 * MIB;

/// The numbers of a part: if the store makes copies, and if it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    copied: PartNumber,
    sent: PartNumber,
}

impl Numbers {
    /// Those of the first part.
    pub(super) const FIRST: Self = Self { copied: 1, sent: 1 };

    /// Those of the next part, when this one becomes `pieces` pieces without copies.
    pub(super) fn after(self, pieces: PartNumber) -> Self {
        Self {
            copied: self.copied + 1,
            sent: self.sent + pieces,
        }
    }
}

/// Whether the store makes copies of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Verdict {
    #[default]
    Open,
    Copies,
    Sends,
    /// A copy failed for another reason, and the upload with it.
    Failed,
}

/// The verdict of one upload, which its parts share.
#[derive(Debug, Clone)]
pub(super) struct Copying(watch::Sender<Verdict>);

impl Copying {
    /// What is known at the beginning.
    pub(super) fn new(transfer: &Transfer) -> Self {
        let known = match transfer.makes_copies() {
            true => Verdict::Copies,
            false => Verdict::Open,
        };
        Self(watch::Sender::new(known))
    }

    /// Gives a verdict, and returns the one that stands: the first.
    fn settle(&self, verdict: Verdict) -> Verdict {
        self.0.send_if_modified(|standing| {
            let first = *standing == Verdict::Open;
            if first {
                *standing = verdict;
            }
            first
        });
        *self.0.borrow()
    }

    /// The number that a part has.
    pub(super) async fn number(&self, numbers: Numbers) -> ObjectResult<PartNumber> {
        if numbers.copied == numbers.sent {
            return Ok(numbers.copied);
        }
        let mut verdicts = self.0.subscribe();
        let verdict = verdicts.wait_for(|verdict| *verdict != Verdict::Open).await;
        match verdict.map(|verdict| *verdict) {
            Ok(Verdict::Copies) => Ok(numbers.copied),
            Ok(Verdict::Sends) => Ok(numbers.sent),
            _ => Err(gave_up(Operation::UploadPart)),
        }
    }
}

/// How many pieces stand in for a copy.
pub(super) fn pieces(transfer: &Transfer, copy: &PartCopy) -> PartNumber {
    let smallest = transfer.store().capabilities().part_size_min;
    let length = copy.range.end.saturating_sub(copy.range.start);
    // Equal pieces of up to twice the smallest part are none of them too small.
    let pieces = length.div_ceil(PIECE.max(2 * smallest)).max(1);
    PartNumber::try_from(pieces).unwrap_or(PartNumber::MAX)
}

/// Lets the store copy a part, or sends it as `numbers` say.
pub(super) async fn copy(
    target: &Target,
    upload: &UploadId,
    copying: &Copying,
    (copy, numbers): (PartCopy, Numbers),
) -> TransferResult<Vec<Part>> {
    let Target { transfer, key } = target;
    let copied = transfer
        .store()
        .copy_part(key, upload, numbers.copied, copy.clone())
        .await;
    let outcome = match copied {
        Ok(part) => {
            transfer.saw_copy();
            (copying.settle(Verdict::Copies) == Verdict::Copies).then_some(vec![part])
        }
        Err(error) if error.kind == ErrorKind::Unsupported => {
            if copying.settle(Verdict::Sends) == Verdict::Sends {
                return send_instead(target, upload, (copy, numbers)).await;
            }
            None
        }
        Err(error) => {
            copying.settle(Verdict::Failed);
            return Err(error.into());
        }
    };
    outcome.ok_or_else(|| {
        let message = "the store makes copies of some parts and not of others: try again";
        let error = ObjectError::new(ErrorKind::Protocol, Operation::CopyPart, message);
        error.about(key).into()
    })
}

async fn send_instead(
    target: &Target,
    upload: &UploadId,
    (copy, numbers): (PartCopy, Numbers),
) -> TransferResult<Vec<Part>> {
    let Target { transfer, key } = target;
    let count = pieces(transfer, &copy);
    let length = copy.range.end - copy.range.start;
    let start = copy.range.start;
    let border = |piece: PartNumber| {
        start + (u128::from(length) * u128::from(piece) / u128::from(count)) as u64
    };
    let parts_max = transfer.store().capabilities().parts_max;
    if numbers.sent.saturating_add(count) > parts_max.saturating_add(1) {
        let message = format!(
            "the store makes no copies of parts, and without them this takes more than {parts_max}"
        );
        let error = ObjectError::new(ErrorKind::TooLarge, Operation::CopyPart, message);
        return Err(error.about(key).into());
    }
    let source = transfer.store().head(&copy.source, HeadOptions::default());
    let source = source.await?;
    let version = ObjectVersion {
        key: copy.source,
        etag: copy.if_match.unwrap_or(source.etag),
        size: source.size,
    };
    let mut parts = Vec::new();
    for piece in 0..count {
        let _turn = transfer.resend_turn().await;
        let range = border(piece)..border(piece + 1);
        let memory = transfer.read_memory(Transfer::cost(range.end - range.start));
        let body = transfer
            .fetch(version.clone(), range, memory.await?)
            .await?;
        let number = numbers.sent + piece;
        let sent = transfer.store().upload_part(key, upload, number, body);
        parts.push(sent.await?);
    }
    Ok(parts)
}
