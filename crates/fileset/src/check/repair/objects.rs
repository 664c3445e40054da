//! What is counted of objects and of all.

use penstock_base::FsResult;

use super::{Repair, number};
use crate::{
    check::{Survey, hexadecimal, ranges},
    data::ObjectId,
    engine::Reads,
    schema::{self, ObjectUse, Share, Stored},
    snapshots,
};

/// Keys that do not say whose bytes they have go. What files lack by that stays theirs, and cannot be read.
pub(super) fn contents(reads: &dyn Reads, survey: &Survey) -> FsResult<Vec<Repair>> {
    let contents = &survey.contents;
    let keys = contents.unreadable().iter();
    keys.map(|key| {
        // One that is too short may be of any of them.
        let object = schema::object_in(key).ok();
        let is_lost =
            |run: &Stored| object.is_none_or(|object| object == run.object) && contents.lack(run);
        let lost = ranges::of(reads, survey, &is_lost)?;
        let lost = match lost.is_empty() {
            true => "no file is known to lack its bytes".to_owned(),
            false => lost.join("; "),
        };
        let text = format!(
            "key {}: does not say whose bytes it has, and goes: {lost}",
            hexadecimal(key)
        );
        Ok(Repair::new(text).delete(key))
    })
    .collect()
}

/// Uses of objects are what extents say. What nothing uses is held for snapshots or garbage, as if the last use had gone.
pub(super) fn uses(reads: &dyn Reads, survey: &Survey) -> FsResult<Vec<Repair>> {
    let latest = snapshots::epoch(reads)?.map_or(0, |epoch| epoch.latest);
    let mut repairs = Vec::new();
    for (object, (counted, used)) in &survey.objects {
        let before = counted.map_or(Share::default(), ObjectUse::share);
        let is_garbage = survey.garbage.contains_key(object);
        if before == *used && !is_garbage {
            continue;
        }
        let mut known = counted.unwrap_or_else(|| ObjectUse {
            length: survey.lengths.get(object).copied().unwrap_or_default(),
            ..ObjectUse::default()
        });
        let mut repair = Repair::new(recounted(*object, (before, *used)));
        if known.died != 0 {
            repair = repair.delete(&schema::held(known.died, *object));
        }
        known.used = used.bytes.cast_unsigned();
        known.spared = used.spared.cast_unsigned();
        known.died = match known.used {
            0 if latest > known.born => latest,
            _ => 0,
        };
        let (key, garbage) = (schema::object(*object), schema::garbage(*object));
        repairs.push(match (known.used, known.died) {
            (0, 0) => repair.delete(&key).put(&garbage, schema::nothing()),
            (0, died) => repair
                .put(&key, known.encode())
                .put(&schema::held(died, *object), schema::nothing())
                .delete(&garbage),
            _ => repair.put(&key, known.encode()).delete(&garbage),
        });
    }
    Ok(repairs)
}

fn recounted(object: ObjectId, (before, after): (Share, Share)) -> String {
    let mut text = format!(
        "{object}: bytes in use: {}, now {}",
        before.bytes, after.bytes
    );
    if before.spared != after.spared {
        let (before, after) = (before.spared, after.spared);
        text += &format!("; spared by compression: {before}, now {after}");
    }
    text
}

/// The counters of files and of bytes.
pub(super) fn counters(_: &dyn Reads, survey: &Survey) -> FsResult<Vec<Repair>> {
    let there = survey.inodes.values().filter(|seen| seen.node.is_some());
    let files = there.count() as i64;
    let bytes: u64 = survey.inodes.values().map(|seen| seen.allocated).sum();
    let counters = [
        ("files", schema::FILES, survey.files, files),
        ("bytes", schema::BYTES, survey.bytes, bytes as i64),
        (
            "bytes that compression spares",
            schema::SPARED,
            survey.spared,
            survey.spared_by_extents(),
        ),
    ];
    let wrong = counters
        .iter()
        .filter(|(.., before, after)| before != after);
    let repairs = wrong.map(|(what, key, before, after)| {
        let text = format!("{what} of the file system: {before}, now {after}");
        Repair::new(text).put(&(*key).into(), number(after.cast_unsigned()))
    });
    Ok(repairs.collect())
}

/// Numbers that new files and snapshots get are behind all that are there, and changes are kept for the latest snapshot.
pub(super) fn marks(_: &dyn Reads, survey: &Survey) -> FsResult<Vec<Repair>> {
    let wrong = survey.wrong_marks().into_iter();
    let repairs = wrong.map(|wrong| {
        let repair = Repair::new(wrong.to_string());
        match wrong.right() {
            (key, Some(value)) => repair.put(&key.into(), value),
            (key, None) => repair.delete(key),
        }
    });
    Ok(repairs.collect())
}

/// What is counted of whose files are limited, or may be.
pub(super) fn quotas(_: &dyn Reads, survey: &Survey) -> FsResult<Vec<Repair>> {
    let wrong = survey.quotas.wrong(&survey.inodes);
    let repairs = wrong.map(|wrong| {
        let key = schema::used(wrong.subject, wrong.counted);
        Repair::new(wrong.to_string()).put(&key, number(wrong.there.cast_unsigned()))
    });
    Ok(repairs.collect())
}
