//! The transitions of a slot as data.

use super::{Place, Slot};
use crate::report::Origin;

/// Where a task is, seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlotState {
    /// Memory has nothing of it.
    Absent,
    /// In flight, and its worker has not said that no result will come.
    InFlight,
    /// In flight, and its worker has said so.
    Answered,
    /// Held, waiting for its retry.
    Requeued,
    /// Held, and the run ended in a dead letter.
    Dead,
    /// Held, and a last-attempt stand-in stands.
    StandIn,
    /// Held, and a worker's failure stands.
    Failure,
    /// Held, and a usable result stands.
    Usable,
}

impl SlotState {
    /// The state of a slot.
    pub(crate) fn of(slot: Option<&Slot>) -> Self {
        let Some(slot) = slot else { return Self::Absent };
        if let Place::InFlight(lease) = &slot.place {
            return if lease.answered { Self::Answered } else { Self::InFlight };
        }
        match slot.standing() {
            None => Self::Requeued,
            Some(stands) => match stands.origin {
                Origin::ReaperStandIn => Self::Dead,
                Origin::LastAttemptStandIn => Self::StandIn,
                Origin::Worker if stands.status.is_usable() => Self::Usable,
                Origin::Worker => Self::Failure,
            },
        }
    }
}
