//! Whether the store respects a condition of writes, put to the proof once.
//!
//! Imitations of S3 take conditions that they pass over, and a success tells nothing. So a look, one HEAD,
//! precedes each write that insists on a state, until the store was seen to refuse one. No mount waits for
//! that to happen by chance: the first small write that went through, and by that ended the state on which
//! it insists, is sent once more as it was.
//!
//! | the answer | means |
//! |---|---|
//! | a refusal | the condition holds: from now on nobody looks first |
//! | a success | it is passed over: the same bytes are there as another version, whose tag the caller gets. Looks go on, and the log says so once |
//! | anything else | nothing is known; a later write is tried, [`UNDECIDED_MAX`] times in all |
//!
//! The first answer stands: a trial that fails is no failed write. If the second request may have been
//! carried out, a HEAD shows whether the version that was told is there. If it is not, or cannot be seen, the write ends
//! as one whose answer was lost does, and whoever repeats it finds out whose version it is.
//!
//! On a store that passes over conditions the trial is a write without one: what another client stores
//! between the two requests is lost, as between each look and its write. It happens once for each
//! condition and mount. A second request whose answer was given up may be carried out later, as any write
//! that is repeated; so it has the patience of a usual one.

use penstock_base::Mutex;

use super::{Dialect, Draft, RestStore, WriteKind, WritePlan, plan::is_refused};
use crate::{Checksum, ObjectError, ObjectResult, Stored, WriteCondition};

/// Trials without a result after which none is begun any more.
const UNDECIDED_MAX: u32 = 3;

/// Bytes in the largest body that is sent once more.
const BODY_MAX: usize = 256 << 10;

/// What is known of a condition.
#[derive(Debug)]
pub(crate) struct Proof {
    state: Mutex<State>,
    name: &'static str,
    consequence: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody has seen it at work, in so many trials.
    Unseen {
        undecided: u32,
    },
    OnTrial {
        undecided: u32,
    },
    Holds,
    PassedOver,
}

impl Proof {
    /// A condition of which nothing is known. `consequence` says what its lack means.
    pub(crate) fn new(name: &'static str, consequence: &'static str) -> Self {
        Self {
            state: Mutex::new(State::Unseen { undecided: 0 }),
            name,
            consequence,
        }
    }

    /// The same; a condition that is `trusted` holds.
    #[must_use]
    pub(crate) fn trusted(self, trusted: bool) -> Self {
        if trusted {
            *self.state.lock() = State::Holds;
        }
        self
    }

    /// Whether the store is known to refuse a write for this condition.
    pub(crate) fn holds(&self) -> bool {
        *self.state.lock() == State::Holds
    }

    /// Learns that the store refused a write for this condition.
    pub(crate) fn saw_refusal(&self) {
        *self.state.lock() = State::Holds;
    }

    /// Begins a trial, unless one is under way or would tell nothing new.
    fn begin(&self) -> Option<Trial<'_>> {
        let mut state = self.state.lock();
        match *state {
            State::Unseen { undecided } if undecided < UNDECIDED_MAX => {
                *state = State::OnTrial { undecided };
                Some(Trial(self))
            }
            _ => None,
        }
    }
}

/// The one trial of a condition that is under way. Dropped without a result it is undecided.
#[derive(Debug)]
struct Trial<'a>(&'a Proof);

impl Trial<'_> {
    fn refused(self) {
        self.0.saw_refusal();
        tracing::debug!("the store respects {}", self.0.name);
    }

    fn passed_over(self) {
        let Proof {
            state,
            name,
            consequence,
        } = self.0;
        *state.lock() = State::PassedOver;
        tracing::warn!("the store passes over {name}: {consequence}");
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if let State::OnTrial { undecided } = *state {
            let undecided = undecided + 1;
            *state = State::Unseen { undecided };
        }
    }
}

/// A PUT that went through.
pub(super) struct Put<'a> {
    pub(super) draft: &'a Draft,
    pub(super) condition: &'a WriteCondition,
    pub(super) plan: WritePlan,
    pub(super) ours: Option<Checksum>,
    pub(super) stored: Stored,
}

impl Put<'_> {
    /// Whether a store that respects conditions must refuse it now.
    fn must_fail_again(&self) -> bool {
        let Self {
            draft,
            condition,
            plan,
            stored,
            ..
        } = self;
        // Directory markers are something special to some stores.
        let is_usual = draft.body.len() <= BODY_MAX && !draft.key_text().ends_with('/');
        let ended = match condition {
            WriteCondition::Always => false,
            WriteCondition::IfAbsent => true,
            WriteCondition::IfMatch(before) => *before != stored.etag,
        };
        plan.condition && is_usual && ended && !stored.etag.as_str().is_empty()
    }
}

impl<D: Dialect> RestStore<D> {
    /// What is stored after `put`, which is sent once more if that can show what its condition is worth.
    pub(super) async fn put_to_the_proof(&self, put: Put<'_>) -> ObjectResult<Stored> {
        let kind = WriteKind::new(put.draft.operation, put.condition);
        let proof = self.dialect.proof(kind);
        let trial = proof.filter(|_| put.must_fail_again());
        match trial.and_then(Proof::begin) {
            Some(trial) => self.put_again(put, trial).await,
            None => Ok(put.stored),
        }
    }

    async fn put_again(&self, put: Put<'_>, trial: Trial<'_>) -> ObjectResult<Stored> {
        match self.send_put(put.draft, put.ours).await {
            Ok(again) => {
                trial.passed_over();
                Ok(again)
            }
            Err(error) if is_refused(&error) => {
                trial.refused();
                Ok(put.stored)
            }
            Err(error) if error.kind.is_doubtful() => self.confirm(put, error).await,
            Err(_) => Ok(put.stored),
        }
    }

    /// What `put` stored, if that is there although the second request may have been carried out;
    /// `doubt` says how that one ended.
    async fn confirm(&self, put: Put<'_>, doubt: ObjectError) -> ObjectResult<Stored> {
        let Some(key) = &put.draft.key else {
            return Err(doubt);
        };
        match self.head(key).await {
            Ok(info) if info.etag == put.stored.etag => Ok(put.stored),
            _ => Err(doubt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof() -> Proof {
        Proof::new("this", "that")
    }

    #[test]
    fn one_trial_is_under_way_at_a_time() {
        let proof = proof();
        let trial = proof.begin().expect("the first");
        assert!(proof.begin().is_none());
        drop(trial);
        assert!(proof.begin().is_some(), "nothing was found out");
    }

    #[test]
    fn a_result_ends_the_trials() {
        let (one, other) = (proof(), proof());
        one.begin().expect("the first").refused();
        other.begin().expect("the first").passed_over();
        assert_eq!((one.holds(), other.holds()), (true, false));
        assert!(one.begin().is_none() && other.begin().is_none());
    }

    #[test]
    fn so_do_trials_without_one() {
        let proof = proof();
        let begun = |_: &u32| proof.begin().is_some();
        assert_eq!((0..10).filter(begun).count(), UNDECIDED_MAX as usize);
        proof.saw_refusal();
        assert!(proof.holds(), "what is seen by chance counts all the same");
    }
}
