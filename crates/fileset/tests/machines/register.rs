//! Whether what was read of registers, and written to them, can have happened one after the other.
//!
//! Each value is written once. A value and all reads of it are a zone: from the first end among them to the last beginning.
//! Where that runs forward somebody held the value all the time in between, so no two such zones meet, and nothing that
//! happened as a whole within one fits anywhere (Gibbons and Korach, "Testing Shared Memories", 1997).

use std::{collections::HashMap, fmt::Debug};

/// What was done to a register, from `began` to `ended`: nanoseconds of one clock.
#[derive(Debug, Clone, Copy)]
pub struct Deed {
    pub value: u64,
    pub is_write: bool,
    pub began: u64,
    /// `None` of a write that failed: it may be made, at any time.
    pub ended: Option<u64>,
}

/// A value that a register had, as its deeds show it.
#[derive(Debug, Clone, Copy)]
struct Zone {
    first_end: u64,
    last_begin: u64,
}

impl Zone {
    fn is_forward(&self) -> bool {
        self.first_end < self.last_begin
    }

    fn start(&self) -> u64 {
        self.first_end.min(self.last_begin)
    }

    fn end(&self) -> u64 {
        self.first_end.max(self.last_begin)
    }

    fn excludes(&self, other: &Self) -> bool {
        let meets = self.start() < other.end() && other.start() < self.end();
        let is_within = self.start() < other.start() && other.end() < self.end();
        match (self.is_forward(), other.is_forward()) {
            (true, true) => meets,
            (true, false) => is_within,
            (false, _) => false,
        }
    }
}

/// Says why the deeds of a register, whose first value is 0, cannot have happened one after the other.
pub fn contradiction(deeds: &[Deed]) -> Option<String> {
    let first = Deed {
        value: 0,
        is_write: true,
        began: 0,
        ended: Some(0),
    };
    let mut values: HashMap<u64, Vec<Deed>> = HashMap::new();
    for deed in deeds.iter().chain([&first]) {
        values.entry(deed.value).or_default().push(*deed);
    }
    let mut zones = Vec::new();
    for (value, deeds) in values {
        match zone(&deeds) {
            Err(why) => return Some(format!("{value}: {why}")),
            Ok(zone) => zones.extend(zone.map(|zone| (value, zone))),
        }
    }
    zones.iter().find_map(|(value, zone)| {
        let other = zones
            .iter()
            .find(|(other, of_other)| other != value && zone.excludes(of_other));
        other.map(|other| format!("{value} was held over {other:?}: {zone:?}"))
    })
}

/// The zone of a value, if it certainly was there.
fn zone(deeds: &[Deed]) -> Result<Option<Zone>, String> {
    let Some(write) = deeds.iter().find(|deed| deed.is_write) else {
        return Err(told(&"it was read and never written", deeds));
    };
    let mut ends = deeds.iter().filter_map(|deed| deed.ended).peekable();
    if ends.peek().is_none() {
        return Ok(None);
    }
    let is_early = |deed: &Deed| deed.ended.is_some_and(|ended| ended < write.began);
    if deeds.iter().any(is_early) {
        return Err(told(&"it was read before it was written", deeds));
    }
    let begins = deeds.iter().map(|deed| deed.began);
    Ok(ends
        .min()
        .zip(begins.max())
        .map(|(first_end, last_begin)| Zone {
            first_end,
            last_begin,
        }))
}

fn told(what: &impl Debug, deeds: &[Deed]) -> String {
    format!("{what:?} {deeds:#?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deeds(all: &[(u64, bool, u64, Option<u64>)]) -> Vec<Deed> {
        let at = |time| time + 1;
        let all = all.iter().map(|(value, is_write, began, ended)| Deed {
            value: *value,
            is_write: *is_write,
            began: at(*began),
            ended: ended.map(at),
        });
        all.collect()
    }

    #[test]
    fn what_can_be_put_in_order_is_no_contradiction() {
        for all in [
            vec![
                (0, false, 0, Some(1)),
                (1, true, 2, Some(3)),
                (1, false, 4, Some(5)),
            ],
            // Those that overlap come in either order.
            vec![
                (1, true, 0, Some(9)),
                (0, false, 1, Some(2)),
                (1, false, 3, Some(4)),
            ],
            vec![
                (1, true, 0, Some(9)),
                (2, true, 1, Some(8)),
                (1, false, 10, Some(11)),
            ],
            // One that failed is made late, or never.
            vec![
                (1, true, 0, None),
                (0, false, 1, Some(2)),
                (1, false, 5, Some(6)),
            ],
            vec![(1, true, 0, None), (0, false, 5, Some(6))],
        ] {
            assert_eq!(contradiction(&deeds(&all)), None, "{all:?}");
        }
    }

    #[test]
    fn what_cannot_be_put_in_order_is_found() {
        for all in [
            // An old value.
            vec![(1, true, 0, Some(1)), (0, false, 2, Some(3))],
            // There and back.
            vec![
                (1, true, 0, Some(9)),
                (1, false, 1, Some(2)),
                (0, false, 3, Some(4)),
            ],
            // Two held at once.
            vec![
                (1, true, 0, Some(1)),
                (2, true, 2, Some(3)),
                (1, false, 4, Some(5)),
            ],
            vec![
                (1, true, 0, Some(9)),
                (2, true, 0, Some(9)),
                (1, false, 10, Some(11)),
                (2, false, 12, Some(13)),
                (1, false, 14, Some(15)),
            ],
            // From nowhere, and before its time.
            vec![(7, false, 0, Some(1))],
            vec![(1, false, 0, Some(1)), (1, true, 2, Some(3))],
        ] {
            assert!(contradiction(&deeds(&all)).is_some(), "{all:?}");
        }
    }
}
