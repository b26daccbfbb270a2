//! Who wins: the one function that decides what a result of a run means beside what already stands (rule C5 and the
//! rules around it).
//!
//! Owns the order among results. The set in memory and the store's transaction both ask here, so that they cannot
//! differ. Knows nothing of leases, receipts or windows; those sort out what is hopeless before anybody asks.

use crate::id::{Epoch, Run};
use crate::report::{Message, Origin, Severity, Status};
use serde::{Deserialize, Serialize};

/// A result of one attempt, or a stand-in filed for it, as it asks to be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Offer {
    /// The run it belongs to.
    pub run: Run,
    /// The claim it was computed under.
    pub epoch: Epoch,
    /// How it went.
    pub status: Status,
    /// Who files it.
    pub origin: Origin,
}

/// What stands for the current run of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Standing {
    /// The claim it was computed under.
    pub epoch: Epoch,
    /// How it went.
    pub status: Status,
    /// Who filed it.
    pub origin: Origin,
}

/// What one offer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// It stands from now on, in place of `replaces`.
    Lands {
        /// What stood until now.
        replaces: Option<Standing>,
    },
    /// Something at least as good stands.
    Superseded {
        /// What stands.
        by: Standing,
    },
    /// It belongs to an earlier run (rule C6).
    Stale,
    /// It belongs to a run or a claim that the task never had (rule C7).
    Unknown,
}

impl Offer {
    /// This offer as what stands, once it has landed.
    #[must_use]
    pub const fn standing(self) -> Standing {
        Standing { epoch: self.epoch, status: self.status, origin: self.origin }
    }
}

impl Standing {
    /// Whether `offer` says again what already stands: the same attempt with the same status from the same source.
    ///
    /// Such a repeat is superseded like any equal result (rule C5), but whoever sends it is told "stored" again, because
    /// its result is (rule D6).
    #[must_use]
    pub fn is_repeated_by(&self, offer: &Offer) -> bool {
        *self == offer.standing()
    }
}

/// Decides what `offer` means for a task whose current run is `run`, whose newest claim is `newest`, and for which
/// `standing` has been accepted in that run.
///
/// ```
/// use dispatcher_core::claim::{decide, Offer, Standing, Verdict};
/// use dispatcher_core::id::{Epoch, Run};
/// use dispatcher_core::report::{Origin, Status};
///
/// let failure = Standing { epoch: Epoch(3), status: Status::Fatal, origin: Origin::Worker };
/// let late_but_good = Offer { run: Run(1), epoch: Epoch(2), status: Status::Warning, origin: Origin::Worker };
/// assert_eq!(
///     decide(Run(1), Epoch(3), Some(failure), late_but_good),
///     Verdict::Lands { replaces: Some(failure) },
/// );
/// ```
#[must_use]
pub fn decide(run: Run, newest: Epoch, standing: Option<Standing>, offer: Offer) -> Verdict {
    if offer.run < run {
        return Verdict::Stale;
    }
    if offer.run > run || offer.epoch > newest {
        return Verdict::Unknown;
    }
    match standing {
        Some(stands) if !beats(offer, stands) => Verdict::Superseded { by: stands },
        replaces => Verdict::Lands { replaces },
    }
}

/// Whether `offer` takes the place of `stands`, both of one run.
fn beats(offer: Offer, stands: Standing) -> bool {
    match (offer.origin, stands.origin) {
        // The reaper's stand-in lands only where the run has no result at all (rule D5).
        (Origin::ReaperStandIn, _) => false,
        // It counts as "nothing accepted yet", so that any result of the run takes its place (rules C4, X3).
        (_, Origin::ReaperStandIn) => true,
        // A last-attempt stand-in gives way to a usable result only (rule R5).
        (_, Origin::LastAttemptStandIn) => offer.status.is_usable(),
        // Good result wins; like against like, only the newer attempt (rule C5).
        (_, Origin::Worker) => match (offer.status.is_usable(), stands.status.is_usable()) {
            (true, false) => true,
            (false, true) => false,
            _ => offer.epoch > stands.epoch,
        },
    }
}

/// The verdict on a result above its service's size cap: Invalid, with a message that names the cap (rule R7). `None`
/// where `size` bytes are within `cap` bytes. None of its bytes are to stay on disk.
///
/// ```
/// use dispatcher_core::claim::too_large;
/// use dispatcher_core::report::Status;
///
/// assert_eq!(too_large(100, 100), None);
/// assert_eq!(too_large(101, 100).map(|(status, _)| status), Some(Status::Invalid));
/// ```
#[must_use]
pub fn too_large(size: u64, cap: u64) -> Option<(Status, Message)> {
    (size > cap).then(|| {
        let message = Message {
            severity: Severity::Invalid,
            category: crate::reap::CATEGORY.into(),
            what: "result_too_large".into(),
            details: format!("the result has more than the {cap} bytes that its service allows"),
        };
        (Status::Invalid, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Run = Run(2);

    fn offer(epoch: u64, status: Status) -> Offer {
        Offer { run: RUN, epoch: Epoch(epoch), status, origin: Origin::Worker }
    }

    fn stand_in(epoch: u64, origin: Origin) -> Offer {
        Offer { run: RUN, epoch: Epoch(epoch), status: Status::Fatal, origin }
    }

    /// What stands after these offers, in this order.
    fn fold(offers: &[Offer]) -> Option<Standing> {
        offers.iter().fold(None, |stands, offer| match decide(RUN, Epoch(9), stands, *offer) {
            Verdict::Lands { replaces } => {
                assert_eq!(replaces, stands);
                Some(offer.standing())
            }
            Verdict::Superseded { by } => {
                assert_eq!(Some(by), stands);
                stands
            }
            Verdict::Stale | Verdict::Unknown => panic!("{offer:?} is of the run"),
        })
    }

    fn each_order(offers: &[Offer], visit: &mut impl FnMut(&[Offer])) {
        fn permute(done: &mut Vec<Offer>, left: &[Offer], visit: &mut impl FnMut(&[Offer])) {
            if left.is_empty() {
                visit(done);
            }
            for at in 0..left.len() {
                let rest: Vec<_> = left.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, offer)| *offer).collect();
                done.push(left[at]);
                permute(done, &rest, visit);
                done.pop();
            }
        }
        permute(&mut Vec::new(), offers, visit);
    }

    // Rule C5.
    #[test]
    fn in_every_order_the_newest_usable_result_stands_at_the_end() {
        let offers = [
            offer(1, Status::Fatal),
            offer(2, Status::Warning),
            offer(3, Status::NoProblem),
            offer(3, Status::Fatal),
            offer(4, Status::Invalid),
        ];
        each_order(&offers, &mut |order| {
            assert_eq!(fold(order), Some(offer(3, Status::NoProblem).standing()), "{order:?}")
        });
        let failures = [offer(1, Status::Invalid), offer(2, Status::Fatal), offer(4, Status::Fatal)];
        each_order(&failures, &mut |order| {
            assert_eq!(fold(order), Some(offer(4, Status::Fatal).standing()), "{order:?}")
        });
    }

    // Rule C5.
    #[test]
    fn like_against_like_an_equal_or_lower_attempt_is_superseded() {
        let stands = offer(3, Status::Error).standing();
        for epoch in [1, 2, 3] {
            let verdict = decide(RUN, Epoch(9), Some(stands), offer(epoch, Status::NoProblem));
            assert_eq!(verdict, Verdict::Superseded { by: stands });
        }
        let newer = decide(RUN, Epoch(9), Some(stands), offer(4, Status::Error));
        assert_eq!(newer, Verdict::Lands { replaces: Some(stands) });
    }

    // Rules C4, X3, D5.
    #[test]
    fn the_reapers_stand_in_gives_way_to_any_result_and_never_takes_its_place() {
        let stand_in = stand_in(5, Origin::ReaperStandIn);
        for status in Status::ALL {
            let result = offer(1, status);
            each_order(&[stand_in, result], &mut |order| assert_eq!(fold(order), Some(result.standing()), "{order:?}"));
        }
        assert_eq!(fold(&[stand_in]), Some(stand_in.standing()));
    }

    // Rule R5.
    #[test]
    fn a_last_attempt_stand_in_gives_way_to_a_usable_result_only() {
        let stands = stand_in(3, Origin::LastAttemptStandIn).standing();
        for status in Status::ALL {
            for epoch in [1, 3] {
                let verdict = decide(RUN, Epoch(9), Some(stands), offer(epoch, status));
                assert_eq!(matches!(verdict, Verdict::Lands { .. }), status.is_usable(), "{status:?} of {epoch}");
            }
        }
        let again = stand_in(3, Origin::LastAttemptStandIn);
        assert_eq!(decide(RUN, Epoch(9), Some(stands), again), Verdict::Superseded { by: stands });
        assert!(stands.is_repeated_by(&again));
    }

    // Rules C6, C7.
    #[test]
    fn another_run_is_stale_or_unknown_whatever_it_brings() {
        for status in Status::ALL {
            let of = |run, epoch| Offer { run: Run(run), ..offer(epoch, status) };
            assert_eq!(decide(RUN, Epoch(9), None, of(1, 9)), Verdict::Stale);
            assert_eq!(decide(RUN, Epoch(9), None, of(3, 9)), Verdict::Unknown);
            assert_eq!(decide(RUN, Epoch(9), None, of(2, 10)), Verdict::Unknown);
        }
    }

    // Rule R7.
    #[test]
    fn a_result_above_the_cap_is_invalid_and_its_message_names_the_cap() {
        assert_eq!(too_large(4000, 4000), None);
        let (status, message) = too_large(4001, 4000).expect("above");
        assert_eq!((status, message.severity), (Status::Invalid, Severity::Invalid));
        assert!(message.details.contains("4000"), "{}", message.details);
    }
}
