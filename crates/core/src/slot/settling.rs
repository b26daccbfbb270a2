//! What the store's decisions do to a slot.
//!
//! Owns how memory follows the store: where the two differ, the store is right (rule D5). Decides nothing itself.

use super::landing::{Lateness, land, lateness};
use super::{Base, Hold, Moment, Place, Slot, Step, undo};
use crate::claim::Standing;
use crate::id::LeaseId;

/// What the store decided about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// Its result stands. Also for a repeat of it.
    Stands(Standing),
    /// Its result lost against this one, which stands.
    Superseded {
        /// What stands.
        by: Standing,
    },
    /// The store has a later run of the task.
    Stale,
    /// An operator ended the task.
    Cancelled,
    /// The store has no such task or claim.
    Unknown,
    /// Its attempt ended without a result and the task is ready again.
    Requeued {
        /// Charged attempts of the run so far.
        charged: u32,
    },
    /// Its attempt ended without a result and so did the run: this stand-in stands.
    DeadLettered(Standing),
    /// The claim went back unsent and uncharged.
    Returned,
}

/// What the store's decision did to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// The result stands in memory too, and so late it was.
    Landed(Lateness),
    /// Memory follows.
    Followed,
    /// Memory had it so already, or has no place for it.
    Unchanged,
}

/// Applies what the store decided about `lease`.
pub(crate) fn settle(slot: Slot, lease: LeaseId, settlement: Settlement, moment: Moment) -> Step<Settled> {
    if lease.run != slot.run.run {
        return (Some(slot), Settled::Unchanged);
    }
    let is_newest = lease.epoch == slot.run.newest;
    match settlement {
        Settlement::Stands(stands) if slot.standing() == Some(stands) => (Some(slot), Settled::Unchanged),
        Settlement::Stands(stands) => {
            let late = lateness(&slot, stands);
            (land(slot, stands, moment), Settled::Landed(late))
        }
        Settlement::Superseded { by } if slot.standing() == Some(by) => (Some(slot), Settled::Unchanged),
        Settlement::Superseded { by } => (superseded(slot, by, is_newest, moment), Settled::Followed),
        Settlement::Stale | Settlement::Cancelled => (None, Settled::Followed),
        Settlement::Unknown if is_newest => (None, Settled::Followed),
        Settlement::Requeued { charged } if is_newest => requeued(slot, charged, moment),
        Settlement::DeadLettered(stands) if is_newest => dead_lettered(slot, stands, moment),
        Settlement::Returned => match undo(slot, lease) {
            (next, Some(_)) => (next, Settled::Followed),
            (next, None) => (next, Settled::Unchanged),
        },
        Settlement::Unknown | Settlement::Requeued { .. } | Settlement::DeadLettered(_) => {
            (Some(slot), Settled::Unchanged)
        }
    }
}

/// The store has a result of the run that memory did not know.
fn superseded(mut slot: Slot, by: Standing, is_newest: bool, moment: Moment) -> Option<Slot> {
    let (base, until) = match slot.place {
        // The current attempt has delivered, and nothing beats what stands.
        Place::InFlight(_) if is_newest && by.status.is_usable() => return None,
        Place::InFlight(lease) => (Base::Flight(lease), moment.until),
        Place::Held(hold) => (hold.base, hold.until),
    };
    slot.landed = vec![by];
    slot.place = Place::Held(Hold { until, base, told: false });
    Some(slot)
}

fn requeued(mut slot: Slot, charged: u32, moment: Moment) -> Step<Settled> {
    if slot.is_requeued() && slot.run.charged == charged {
        return (Some(slot), Settled::Unchanged);
    }
    if slot.in_flight().is_some() && charged <= slot.run.charged {
        slot.run.freed = slot.run.freed.saturating_add(1);
    }
    slot.run.charged = charged;
    slot.landed.clear();
    let (until, told) = match slot.place {
        Place::InFlight(_) => (moment.until, false),
        Place::Held(hold) => (hold.until, hold.told),
    };
    slot.place = Place::Held(Hold { until, base: Base::Requeued, told });
    (Some(slot), Settled::Followed)
}

fn dead_lettered(mut slot: Slot, stands: Standing, moment: Moment) -> Step<Settled> {
    if slot.standing() == Some(stands) {
        return (Some(slot), Settled::Unchanged);
    }
    let (base, until) = match slot.place {
        Place::InFlight(lease) => (Base::Flight(lease), moment.until),
        Place::Held(hold) => (hold.base, hold.until),
    };
    slot.landed = vec![stands];
    slot.place = Place::Held(Hold { until, base, told: false });
    (Some(slot), Settled::Followed)
}
