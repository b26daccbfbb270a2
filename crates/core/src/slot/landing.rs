//! What replies do to a slot: results, causes, unusable replies, and the taking back of what could not be published.
//!
//! Owns rules C1–C5, C8–C10, R1, R2, R4–R6 and R8 for one task. Who wins is asked of [`crate::claim`].

use super::{Base, Hold, Lease, MAX_LANDED, Moment, Place, Slot, Step, Undo};
use crate::claim::{Offer, Standing, Verdict, decide};
use crate::id::{Epoch, LeaseId, ServiceId};
use crate::lease::DUE_AT_ONCE;
use crate::report::{Ending, Message, Origin, Status};
use crate::retry::Retry;

/// How late an accepted result is (rule C10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lateness {
    /// Not: the current attempt of a task in flight.
    OnTime,
    /// An older attempt of a task in flight (rule C2).
    OlderAttempt,
    /// The task waited for its retry, which is cancelled (rule C4).
    AfterRequeue,
    /// The run had ended in a dead letter (rule C4).
    AfterDeadLetter,
    /// An attempt newer than the one whose result it replaces.
    NewerAttempt,
    /// An attempt not newer than the one whose failure it replaces.
    ReplacesFailure,
}

/// What an acceptance says (rule C10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// The task, its run and the attempt.
    pub lease: LeaseId,
    /// Its service.
    pub service: ServiceId,
    /// How it went.
    pub status: Status,
    /// Who files it.
    pub origin: Origin,
    /// Attempts of the run so far.
    pub attempts: u32,
    /// What it replaced: attempt and status.
    pub replaced: Option<Standing>,
    /// How late it is.
    pub late: Lateness,
}

impl Acceptance {
    pub(crate) const fn standing(&self) -> Standing {
        Standing { epoch: self.lease.epoch, status: self.status, origin: self.origin }
    }
}

/// An accepted result of a service without a store, to be published.
///
/// Once it is published this may be dropped; if it cannot be, it goes to
/// [`crate::in_flight::InFlightSet::take_back`] (rule C8).
#[derive(Debug)]
pub struct Accepted {
    /// What was accepted.
    pub facts: Acceptance,
    /// The slot before it was.
    pub(crate) before: Box<Slot>,
}

/// What came of taking an accepted result back (rule C8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakenBack {
    /// An earlier result of the run stands again.
    Stands(Standing),
    /// A later result was accepted in between: it stays, and only what it falls back on is corrected.
    Kept(Standing),
    /// The task waits again: its cancelled retry goes back to the queue.
    Requeued(Retry),
    /// The task is in flight again and its lease is due at once.
    DueAtOnce(LeaseId),
    /// The task is in flight or waits in this very run already, so that there is nothing to open.
    AlreadyOpen,
    /// The task is in a later run, which feels nothing of it.
    LaterRun,
}

/// What is told of an attempt that brings no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoResult {
    /// The worker told a retryable cause (rule R4).
    Cause(Message),
    /// The reply was no result, and why (rule R1).
    Unusable(Message),
    /// The worker is gone (rule A3).
    WorkerLost {
        /// Whether work had begun, by its word or because it has to be assumed (rule A2).
        began: bool,
        /// What was seen.
        why: Message,
    },
    /// It took longer than the service allows, and who saw that was not the reaper.
    TimeLimit(Message),
    /// The worker gave it back in good order.
    HandedBack,
    /// It never reached its worker (rule L9).
    Undeliverable,
}

impl NoResult {
    /// How the attempt ends by it.
    #[must_use]
    pub const fn ending(&self) -> Ending {
        match self {
            Self::Cause(_) => Ending::RetryableCause,
            Self::Unusable(_) => Ending::Unusable,
            Self::WorkerLost { .. } => Ending::WorkerLost,
            Self::TimeLimit(_) => Ending::TimeLimit,
            Self::HandedBack => Ending::HandedBack,
            Self::Undeliverable => Ending::Undeliverable,
        }
    }

    /// Whether the worker itself tells that no result will come.
    const fn is_told_by_worker(&self) -> bool {
        !matches!(self, Self::WorkerLost { .. } | Self::TimeLimit(_))
    }

    /// Whether work had begun, where `begun` is what was known of it.
    const fn began(&self, begun: bool) -> bool {
        match self {
            Self::Cause(_) | Self::Unusable(_) | Self::TimeLimit(_) => true,
            Self::WorkerLost { began, .. } => *began,
            Self::HandedBack | Self::Undeliverable => begun,
        }
    }
}

/// What came of a cause, an unusable reply, or the end of an attempt that was seen otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The lease is due at once: the next sweep takes it (rules R1, R4).
    DueAtOnce(LeaseId),
    /// The task stays in flight until its deadline (rule R1).
    Waits(LeaseId),
    /// The attempt had ended so already (rule R8).
    Repeated(LeaseId),
    /// The cause came from the last attempt of the budget and became a stand-in: to be published like a result, and
    /// reported whether or not that works (rule R5).
    StandIn(Acceptance),
    /// The task waits for its retry, and the cause goes along (rule R6).
    RidesAlong(LeaseId),
    /// It changes nothing, and why.
    Dropped(Dropped),
}

/// Why a cause or an unusable reply changes nothing (rules R2, R6, R8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// A newer attempt is under way or waits.
    OlderAttempt,
    /// A result of the run stands.
    Finished,
    /// The run ended in a dead letter.
    DeadLettered,
    /// The task is held, where only a cause has an effect.
    NotInFlight,
    /// It belongs to an earlier run (rule C6).
    Stale,
    /// Nothing in memory has a place for it (rule C7).
    Unknown,
    /// It names another service (rule C12).
    WrongService,
}

/// What came of a result.
#[derive(Debug)]
pub(crate) enum Landing {
    Accepted(Accepted),
    Superseded { by: Standing },
}

/// Decides a result of attempt `epoch` of the slot's run (rules C1–C5, C9, C10).
pub(crate) fn result(slot: Slot, epoch: Epoch, status: Status, moment: Moment) -> Step<Landing> {
    let offer = Offer { run: slot.run.run, epoch, status, origin: Origin::Worker };
    match decide(slot.run.run, slot.run.newest, slot.standing(), offer) {
        Verdict::Lands { .. } => accept(slot, offer.standing(), moment),
        Verdict::Superseded { by } => (Some(slot), Landing::Superseded { by }),
        // Whoever found the attempt has sorted these out; what stands is all that is left to name.
        Verdict::Stale | Verdict::Unknown => {
            let by = slot.standing().unwrap_or_else(|| offer.standing());
            (Some(slot), Landing::Superseded { by })
        }
    }
}

/// Accepts what has won, and keeps the slot as it was, for the case that it cannot be published.
fn accept(slot: Slot, lands: Standing, moment: Moment) -> Step<Landing> {
    let (late, replaced) = (lateness(&slot, lands), slot.standing());
    let facts = acceptance(&slot, lands, late, replaced);
    let (next, before) = if leaves(&slot, lands) { (None, slot) } else { (land(slot.clone(), lands, moment), slot) };
    (next, Landing::Accepted(Accepted { facts, before: Box::new(before) }))
}

/// Whether nothing better than `lands` is to be expected, so that the task is not held (rules C1, C3). What comes late
/// is always followed by a window (rules C2, C9).
fn leaves(slot: &Slot, lands: Standing) -> bool {
    lateness(slot, lands) == Lateness::OnTime && (lands.status.is_usable() || slot.run.attempts <= 1)
}

/// Makes `lands` what stands, whatever stood: the task leaves flight and is held where a better result may come.
pub(super) fn land(mut slot: Slot, lands: Standing, moment: Moment) -> Option<Slot> {
    if leaves(&slot, lands) {
        return None;
    }
    let base = match slot.place {
        Place::InFlight(mut lease) => {
            if lands.epoch >= slot.run.newest {
                lease.undo = Undo::Spent;
            }
            Base::Flight(lease)
        }
        Place::Held(hold) => hold.base,
    };
    if slot.landed.len() >= MAX_LANDED {
        slot.landed.remove(0);
    }
    slot.landed.push(lands);
    slot.place = Place::Held(Hold { until: moment.until, base, told: false });
    Some(slot)
}

/// How late `lands` is beside what the slot has (rule C10).
pub(super) fn lateness(slot: &Slot, lands: Standing) -> Lateness {
    match (slot.in_flight(), slot.standing()) {
        (Some(_), _) if lands.epoch >= slot.run.newest => Lateness::OnTime,
        (Some(_), _) => Lateness::OlderAttempt,
        (None, None) => Lateness::AfterRequeue,
        (None, Some(stood)) if stood.origin == Origin::ReaperStandIn => Lateness::AfterDeadLetter,
        (None, Some(stood)) if lands.epoch > stood.epoch => Lateness::NewerAttempt,
        (None, Some(_)) => Lateness::ReplacesFailure,
    }
}

fn acceptance(slot: &Slot, stands: Standing, late: Lateness, replaced: Option<Standing>) -> Acceptance {
    Acceptance {
        lease: LeaseId { epoch: stands.epoch, ..slot.newest() },
        service: slot.run.terms.service,
        status: stands.status,
        origin: stands.origin,
        attempts: slot.run.attempts,
        replaced,
        late,
    }
}

/// Takes the word that attempt `epoch` brings no result. `at_once`: its reply carried a token, so that the lease need
/// not wait for its deadline (rule R1).
pub(crate) fn no_result(slot: Slot, epoch: Epoch, word: NoResult, at_once: bool, moment: Moment) -> Step<Answered> {
    let is_newest = epoch == slot.run.newest;
    let dropped = |slot, why| (Some(slot), Answered::Dropped(why));
    match (&slot.place, word) {
        (Place::InFlight(_), _) if !is_newest => dropped(slot, Dropped::OlderAttempt),
        (Place::InFlight(_), NoResult::Cause(cause)) if slot.run.is_last_attempt() => stand_in(slot, cause, moment),
        (Place::InFlight(_), word) => end_in_flight(slot, word, at_once),
        (Place::Held(_), NoResult::Cause(cause)) => match slot.standing() {
            Some(stands) if stands.origin == Origin::ReaperStandIn => dropped(slot, Dropped::DeadLettered),
            Some(_) => dropped(slot, Dropped::Finished),
            None if !is_newest => dropped(slot, Dropped::OlderAttempt),
            None => ride_along(slot, cause),
        },
        (Place::Held(_), _) => dropped(slot, Dropped::NotInFlight),
    }
}

/// The end of a lease in flight that leaves the rest to the reaper (rules R1, R4, R8).
fn end_in_flight(mut slot: Slot, word: NoResult, at_once: bool) -> Step<Answered> {
    let newest = slot.newest();
    let Slot { run, place: Place::InFlight(lease), .. } = &mut slot else {
        return (Some(slot), Answered::Dropped(Dropped::NotInFlight));
    };
    if lease.ending.is_some() && !matches!(word, NoResult::Cause(_)) {
        return (Some(slot), Answered::Repeated(newest));
    }
    let ending = word.ending();
    lease.begun = word.began(lease.begun);
    lease.answered |= word.is_told_by_worker();
    lease.ending = Some(ending);
    lease.undo = Undo::Spent;
    // Without a token the deadline stays, unless the clock never started: nobody would ever come for the task.
    let waits = ending == Ending::Unusable && !at_once && lease.deadline.is_some();
    if !waits {
        lease.deadline = Some(DUE_AT_ONCE);
    }
    match word {
        NoResult::Cause(cause) => run.cause = Some(Box::new(cause)),
        NoResult::Unusable(why) | NoResult::WorkerLost { why, .. } | NoResult::TimeLimit(why) => {
            run.reason = Some(Box::new(why));
        }
        NoResult::HandedBack | NoResult::Undeliverable => {}
    }
    (Some(slot), if waits { Answered::Waits(newest) } else { Answered::DueAtOnce(newest) })
}

/// The last attempt's cause becomes its failure, and is held for a usable result of any attempt (rule R5).
fn stand_in(mut slot: Slot, cause: Message, moment: Moment) -> Step<Answered> {
    let stands = Standing { epoch: slot.run.newest, status: Status::Fatal, origin: Origin::LastAttemptStandIn };
    let facts = acceptance(&slot, stands, Lateness::OnTime, None);
    slot.run.cause = Some(Box::new(cause));
    slot.run.end_attempt(Ending::RetryableCause, true);
    slot.landed = vec![stands];
    let base = match slot.place {
        Place::InFlight(lease) => Base::Flight(Lease { undo: Undo::Spent, ..lease }),
        Place::Held(hold) => hold.base,
    };
    slot.place = Place::Held(Hold { until: moment.until, base, told: false });
    (Some(slot), Answered::StandIn(facts))
}

/// A cause told while the task waits goes along to the retry and overrides the one that it carries (rules L7, R6).
fn ride_along(mut slot: Slot, cause: Message) -> Step<Answered> {
    slot.run.cause = Some(Box::new(cause));
    if let Place::Held(hold) = &mut slot.place {
        hold.told = true;
    }
    let newest = slot.newest();
    (Some(slot), Answered::RidesAlong(newest))
}

/// Takes an accepted result back that could not be published (rule C8).
pub(crate) fn take_back(slot: Option<Slot>, accepted: Accepted, why: Message, moment: Moment) -> Step<TakenBack> {
    let Accepted { facts, before } = accepted;
    let Some(mut slot) = slot else { return open_again(*before, &facts, why, moment) };
    if (slot.run.run, slot.run.first) != (before.run.run, before.run.first) {
        return (Some(slot), TakenBack::LaterRun);
    }
    let stood = slot.standing();
    if stood.is_none() {
        return (Some(slot), TakenBack::AlreadyOpen);
    }
    if let Some(at) = slot.landed.iter().position(|landed| *landed == facts.standing()) {
        slot.landed.remove(at);
    }
    match slot.standing() {
        Some(stands) if stood == Some(stands) => (Some(slot), TakenBack::Kept(stands)),
        Some(stands) => (Some(slot), TakenBack::Stands(stands)),
        None => open_again(slot, &facts, why, moment),
    }
}

/// Opens a task again of which nothing that was accepted is left.
fn open_again(mut slot: Slot, facts: &Acceptance, why: Message, moment: Moment) -> Step<TakenBack> {
    // What was there before this result was accepted, where the task has been forgotten since.
    if let Some(stands) = slot.standing() {
        return (None, TakenBack::Stands(stands));
    }
    let newest = slot.newest();
    let base = match slot.place {
        Place::InFlight(lease) => Base::Flight(lease),
        Place::Held(hold) => hold.base,
    };
    match base {
        Base::Requeued => {
            slot.place = Place::Held(Hold { until: moment.until, base, told: false });
            let retry = slot.retry();
            (Some(slot), TakenBack::Requeued(retry))
        }
        Base::Flight(mut lease) => {
            // The worker of this attempt has delivered and will not deliver again. One of a newer attempt may.
            if facts.lease.epoch == slot.run.newest {
                lease.ending = Some(Ending::Unusable);
                lease.answered = true;
                lease.begun = true;
            }
            lease.deadline = Some(DUE_AT_ONCE);
            lease.receipts = None;
            lease.undo = Undo::Spent;
            slot.run.reason = Some(Box::new(why));
            slot.place = Place::InFlight(lease);
            (Some(slot), TakenBack::DueAtOnce(newest))
        }
    }
}
