//! What a server does wrong, changing all the time.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use penstock_devserver::{Fault, FaultRule, Faults, Operation};

use super::Chance;
use crate::Bucket;

/// Requests that may hang: those that do no harm when they are carried out much later.
const MAY_HANG: [Operation; 6] = [
    Operation::GetObject,
    Operation::HeadObject,
    Operation::ListObjects,
    Operation::ListObjectsV2,
    Operation::CreateUpload,
    Operation::UploadPart,
];
/// Requests whose bodies may be damaged, beside the answers to small files, which come whole. A
/// damaged part never becomes an object; a whole object that arrives damaged is stored by OSS before
/// it tells the checksum, and stays if the next attempts fail.
const UPLOADS: [Operation; 1] = [Operation::UploadPart];

/// See [the module](self).
#[derive(Debug)]
pub struct Weather(Chance);

impl Weather {
    /// Weather that is the same for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(Chance::new(seed))
    }

    /// Lets it change over `bucket` until `done`, saying each time what comes; then all is well.
    pub fn pass_over(mut self, bucket: &Bucket, done: &AtomicBool) {
        let began = Instant::now();
        while !done.load(Ordering::Relaxed) {
            let (faults, lasts) = self.change();
            println!("{:.1?}, for {lasts:?}: {}", began.elapsed(), told(&faults));
            bucket.fail(faults);
            thread::sleep(lasts);
        }
        bucket.heal();
    }

    /// What goes wrong next, and for how long.
    pub fn change(&mut self) -> (Faults, Duration) {
        let chance = &mut self.0;
        let rules = match chance.below(6) {
            0 => Vec::new(),
            1 => vec![any_rule(chance), any_rule(chance)],
            _ => vec![any_rule(chance)],
        };
        let faults = Faults {
            seed: chance.next(),
            latency_ms: *chance.pick(&[0, 0, 0, 30]),
            bandwidth_total: *chance.pick(&[None, None, None, Some(30 << 20)]),
            rules,
            ..Faults::default()
        };
        let lasts = Duration::from_millis(500 + chance.below(3500) as u64);
        (faults, lasts)
    }
}

/// Faults in a line.
fn told(faults: &Faults) -> String {
    let rules = faults.rules.iter();
    let rules: Vec<_> = rules
        .map(|rule| format!("{:?} at {}", rule.fault, rule.rate))
        .collect();
    let (latency, bandwidth) = (faults.latency_ms, faults.bandwidth_total);
    format!("{latency} ms, {bandwidth:?} bytes/s, {}", rules.join(", "))
}

fn any_rule(chance: &mut Chance) -> FaultRule {
    let retry_after = *chance.pick(&[None, Some(1)]);
    let hang = Fault::Hang {
        duration_ms: 60_000,
    };
    let often = |fault| FaultRule::new(fault).rate(0.3);
    match chance.below(11) {
        0 => often(Fault::InternalError),
        1 => often(Fault::SlowDown { retry_after }),
        2 => often(Fault::TooManyRequests { retry_after }),
        3 => often(Fault::Reset { after: 0 }),
        4 => often(Fault::Reset { after: 300_000 }),
        5 => often(Fault::LoseAnswer),
        6 => often(Fault::CutBody { after: 100_000 }).on(&[Operation::GetObject]),
        7 => FaultRule::new(hang).rate(0.05).on(&MAY_HANG),
        8 => FaultRule::new(Fault::FlipByte { at: 100 })
            .rate(0.1)
            .on(&UPLOADS),
        9 => FaultRule::new(Fault::FlipByte { at: 100 })
            .rate(0.1)
            .on(&[Operation::GetObject])
            .below("small"),
        // Nothing works for a while.
        _ => FaultRule::new(Fault::InternalError),
    }
}
