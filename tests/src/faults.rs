//! Faults that the server shows, by name.

use penstock_devserver::{Fault, FaultRule, Faults, Operation};

/// Faults that a client must ride out, whether it reads or writes. A reset within a body comes after
/// so many bytes of it.
pub fn passing_faults(reset_after: u64) -> Vec<(&'static str, FaultRule)> {
    let retry_after = None;
    let hang = Fault::Hang {
        duration_ms: 60_000,
    };
    let reset = |after| often(Fault::Reset { after });
    vec![
        ("500", often(Fault::InternalError)),
        ("503", often(Fault::SlowDown { retry_after })),
        ("429", often(Fault::TooManyRequests { retry_after })),
        ("reset before the answer", reset(0)),
        ("reset in the body", reset(reset_after)),
        ("lost answer", often(Fault::LoseAnswer)),
        ("hang", FaultRule::new(hang).rate(0.05)),
    ]
}

/// A body that ends after so many bytes, which only readers see.
pub fn cut_body(after: u64) -> (&'static str, FaultRule) {
    ("cut body", often(Fault::CutBody { after }))
}

/// Every body that is read has one byte changed.
pub fn damaged_bodies() -> Faults {
    let flip = FaultRule::new(Fault::FlipByte { at: 100 });
    Faults::rule(flip.on(&[Operation::GetObject]))
}

/// Three requests of ten.
fn often(fault: Fault) -> FaultRule {
    FaultRule::new(fault).rate(0.3)
}
