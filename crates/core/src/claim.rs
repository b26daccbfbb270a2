//! Who wins: the one function that decides what a result of a run means beside what already stands (rule C5 and the
//! rules around it).
//!
//! Owns the order among results. The set in memory and the store's transaction both ask here, so that they cannot
//! differ. Knows nothing of leases, receipts or windows; those sort out what is hopeless before anybody asks.

use crate::id::{Epoch, Run};
use crate::report::{Origin, Status};
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
