//! The state of one task in memory, and each transition of it. The file to read first.
//!
//! Owns what is remembered of a task: its run so far, who worked on it, what has been accepted, and whether it is in
//! flight or held. A transition takes the slot, what happened and when, and gives the next slot and the outcome as data;
//! it is total, so that no byte of a worker can make it fail. [`table`] lists each state beside each event, and a test
//! holds the functions to it; `docs/states.md` prints it.
//!
//! Refuses to know locks, counters, limits and other tasks: [`crate::in_flight`] applies a transition under the lock of
//! its task and moves the counters by the difference.
//!
//! Invariants: a slot in flight has accepted nothing in its run; a held one is in flight no more. What is remembered of
//! attempts and of accepted results is capped.

mod landing;
mod settling;
pub mod table;
#[cfg(test)]
mod tests;

pub use landing::{Acceptance, Accepted, Answered, Dropped, Lateness, NoResult, TakenBack};
pub use settling::{Settled, Settlement};

use crate::claim::Standing;
use crate::id::{Epoch, LeaseId, Run, TaskId, WorkerKey};
use crate::in_flight::Attribution;
use crate::lease::{Grant, LeaseRefusal, LeaseStart, Leased, ToldApart, is_due};
use crate::reap::{Taken, dead_letter_reason, time_limit_reason};
use crate::report::{Ending, Origin, Status};
use crate::retry::{Next, Retry, RunSoFar};
use crate::time::TimeMs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use landing::{Landing, no_result, result, take_back};
pub(crate) use settling::settle;

/// How many attempts of a task are remembered with their workers, the newest ones. A legacy result of an older one is
/// taken for the newest attempt, as if its worker had never had the task (rule C11).
pub const MAX_ATTEMPTS: usize = 64;

/// How many accepted results of a run are remembered to fall back on (rule C8), the newest ones.
pub const MAX_LANDED: usize = 16;

/// The next slot of a task, and what came of the event.
pub(crate) type Step<T> = (Option<Slot>, T);

/// When an event happens: now, and where a late-result window ends that begins now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: TimeMs,
    pub(crate) until: TimeMs,
}

/// What memory has of one task.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) task: TaskId,
    pub(crate) run: RunSoFar,
    /// Who worked on it, in the order of dispatch, earlier runs included; capped at [`MAX_ATTEMPTS`].
    pub(crate) attempts: Vec<Attempt>,
    /// What was accepted in this run and not taken back, in the order of acceptance: the last one stands. Capped at
    /// [`MAX_LANDED`].
    pub(crate) landed: Vec<Standing>,
    pub(crate) place: Place,
}

/// One dispatch of the task to one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) run: Run,
    pub(crate) epoch: Epoch,
    pub(crate) worker: WorkerKey,
    pub(crate) told_apart: ToldApart,
}

/// Where a task is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    InFlight(Lease),
    Held(Hold),
}

/// The lease of the newest attempt.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    /// `None` until its clock starts.
    pub(crate) deadline: Option<TimeMs>,
    pub(crate) begun: bool,
    pub(crate) answered: bool,
    /// How the attempt ended, where that is known before the reaper takes it.
    pub(crate) ending: Option<Ending>,
    /// Open receipts; made by the first one.
    pub(crate) receipts: Option<Arc<AtomicUsize>>,
    pub(crate) undo: Undo,
}

/// What returns when a lease is undone (rule L9).
#[derive(Clone, Debug)]
pub(crate) enum Undo {
    /// Too late: the worker has been heard of.
    Spent,
    /// Nothing: the set did not have the task.
    Nothing,
    /// What the lease replaced.
    Slot(Box<Slot>),
}

/// A task that is remembered for a while.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    /// The end of its late-result window.
    pub(crate) until: TimeMs,
    /// What it goes back to when all that was accepted is taken back (rule C8).
    pub(crate) base: Base,
    /// Whether its cause was told while it waited, and so overrides the one that its retry carries (rule L7).
    pub(crate) told: bool,
}

/// Under what was accepted.
#[derive(Clone, Debug)]
pub(crate) enum Base {
    /// A lease that left flight.
    Flight(Lease),
    /// A retry in its queue.
    Requeued,
}

/// Which attempt a reply belongs to (rule C11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Attempt(Epoch),
    Stale,
    Unknown,
}

impl Slot {
    pub(crate) fn standing(&self) -> Option<Standing> {
        self.landed.last().copied()
    }

    pub(crate) const fn newest(&self) -> LeaseId {
        LeaseId { task: self.task, run: self.run.run, epoch: self.run.newest }
    }

    pub(crate) const fn in_flight(&self) -> Option<&Lease> {
        match &self.place {
            Place::InFlight(lease) => Some(lease),
            Place::Held(_) => None,
        }
    }

    pub(crate) const fn held(&self) -> Option<&Hold> {
        match &self.place {
            Place::InFlight(_) => None,
            Place::Held(hold) => Some(hold),
        }
    }

    /// Whether it waits for its retry with nothing accepted.
    pub(crate) fn is_requeued(&self) -> bool {
        self.held().is_some() && self.landed.is_empty()
    }

    /// The worker of the newest attempt, where it is known.
    pub(crate) fn newest_worker(&self) -> Option<&WorkerKey> {
        self.attempts.last().filter(|a| a.run == self.run.run && a.epoch == self.run.newest).map(|a| &a.worker)
    }

    pub(crate) fn retry(&self) -> Retry {
        Retry { task: self.task, run: self.run.clone() }
    }

    /// Finds the attempt that a reply belongs to: by its token; else the newest attempt given to that worker; else the
    /// newest of all (rules C6, C7, C11, L14).
    pub(crate) fn find(&self, by: Attribution<'_>) -> Found {
        match by {
            Attribution::Token { run, epoch } if epoch < self.run.first || run < self.run.run => Found::Stale,
            Attribution::Token { run, epoch } if run > self.run.run || epoch > self.run.newest => Found::Unknown,
            Attribution::Token { epoch, .. } => Found::Attempt(epoch),
            Attribution::Worker(name) => match self.attempts.iter().rev().find(|a| a.worker.name == name) {
                Some(attempt) if attempt.run < self.run.run => Found::Stale,
                Some(attempt) => Found::Attempt(attempt.epoch),
                None => Found::Attempt(self.run.newest),
            },
        }
    }

    /// What returns when the lease `next`, which replaces this slot, is undone. It keeps nothing that it had replaced
    /// itself: memory goes one lease back and no further. A lease that is recorded again replaces what it replaced.
    fn into_undo(mut self, next: LeaseId) -> Undo {
        let recorded_again = self.newest() == next;
        match &mut self.place {
            Place::InFlight(lease) if recorded_again => return std::mem::replace(&mut lease.undo, Undo::Spent),
            Place::InFlight(lease) | Place::Held(Hold { base: Base::Flight(lease), .. }) => lease.undo = Undo::Spent,
            Place::Held(Hold { base: Base::Requeued, .. }) => {}
        }
        Undo::Slot(Box::new(self))
    }

    fn rebase(&mut self, base: Base) {
        if let Place::Held(hold) = &mut self.place {
            hold.base = base;
        }
    }

    fn remember(&mut self, attempt: Attempt) {
        self.attempts.retain(|a| (a.run, a.epoch) != (attempt.run, attempt.epoch));
        if self.attempts.len() >= MAX_ATTEMPTS {
            self.attempts.remove(0);
        }
        self.attempts.push(attempt);
    }
}

impl Lease {
    pub(crate) fn open_receipts(&self) -> usize {
        self.receipts.as_ref().map_or(0, |open| open.load(Ordering::Acquire))
    }

    /// Whether the reaper takes it (rules L3, X1, R3).
    pub(crate) fn is_due(&self, now: TimeMs) -> bool {
        self.deadline.is_some_and(|deadline| is_due(deadline, now)) && self.open_receipts() == 0
    }
}

/// Whether the claim of `run` and `epoch` may become a lease beside what the slot has (rules L4–L6).
///
/// `first` is the first attempt of the run, where the set numbers runs itself: runs of a task that was forgotten in
/// between may have one number, their attempts never.
pub(crate) fn admit(slot: Option<&Slot>, run: Run, epoch: Epoch, first: Option<Epoch>) -> Result<(), LeaseRefusal> {
    let Some(slot) = slot else { return Ok(()) };
    let current = slot.run.run;
    if run < current || first.is_some_and(|first| first < slot.run.first) {
        return Err(LeaseRefusal::OlderRun { current });
    }
    if run > current {
        return Ok(());
    }
    if let Some(by) = slot.standing().filter(|standing| standing.origin != Origin::ReaperStandIn) {
        return Err(LeaseRefusal::Finished { by });
    }
    let newest = slot.run.newest;
    let recorded_again = epoch == newest && slot.in_flight().is_some();
    if epoch > newest || recorded_again { Ok(()) } else { Err(LeaseRefusal::OlderClaim { newest }) }
}

/// Whether results of `worker` could be told from those of an earlier run (rule L8).
pub(crate) fn admit_worker(
    slot: Option<&Slot>,
    run: Run,
    told_apart: ToldApart,
    worker: &WorkerKey,
) -> Result<(), LeaseRefusal> {
    let worked_earlier =
        |a: &Attempt| a.run < run && a.told_apart == ToldApart::ByWorker && a.worker.name == worker.name;
    let confusing = told_apart == ToldApart::ByWorker && slot.is_some_and(|s| s.attempts.iter().any(worked_earlier));
    if confusing { Err(LeaseRefusal::WorkedEarlier { worker: worker.name.clone() }) } else { Ok(()) }
}

/// When the clock of a lease started that is handed out `now`.
pub(crate) fn clock_of(start: LeaseStart, now: TimeMs) -> Option<TimeMs> {
    match start {
        LeaseStart::Now => Some(now),
        LeaseStart::AtBegun => None,
    }
}

/// Leases the task under an admitted grant whose clock started at `clock` (rules L1, L3, L4, L13, L14).
pub(crate) fn lease(
    slot: Option<Slot>,
    mut grant: Grant,
    first: Epoch,
    clock: Option<TimeMs>,
    now: TimeMs,
) -> (Slot, Leased) {
    let (id, terms, retries, worker) = (grant.lease, grant.terms, grant.retries, grant.worker.take());
    let attempts = slot.as_ref().map_or_else(Vec::new, |before| before.attempts.clone());
    let run = run_of(grant, first, slot.as_ref());
    // A lease that is taken over after a restart keeps its limit, but never gets more than a whole one from now: the
    // clock that its start was read from may have been set back since.
    let deadline = clock.map(|at| terms.deadline(at, retries).min(terms.deadline(now, retries)));
    let leased = Leased {
        lease: id,
        attempts: run.attempts,
        retries,
        limit: terms.limit(retries),
        deadline,
        cause: run.cause.as_deref().cloned(),
    };
    let undo = slot.map_or(Undo::Nothing, |before| before.into_undo(id));
    let lease = Lease { deadline, begun: clock.is_some(), answered: false, ending: None, receipts: None, undo };
    let mut slot = Slot { task: id.task, run, attempts, landed: Vec::new(), place: Place::InFlight(lease) };
    if let Some(worker) = worker {
        slot.remember(Attempt { run: id.run, epoch: id.epoch, worker, told_apart: terms.told_apart });
    }
    (slot, leased)
}

/// The run that a grant begins or, where `before` is of the same run, goes on with (rules L7, L14).
fn run_of(grant: Grant, first: Epoch, before: Option<&Slot>) -> RunSoFar {
    let Grant { lease, terms, retries: charged, freed, cause, reason, .. } = grant;
    let mut run = RunSoFar {
        run: lease.run,
        first,
        newest: lease.epoch,
        attempts: charged.saturating_add(freed).saturating_add(1),
        charged,
        freed,
        terms,
        cause: cause.map(Box::new),
        reason: reason.map(Box::new),
    };
    let Some(before) = before.filter(|before| before.run.run == lease.run) else { return run };
    let recorded_again = before.run.newest == lease.epoch;
    let told_while_waiting = before.held().is_some_and(|hold| hold.told);
    run.first = before.run.first;
    run.attempts = run.attempts.max(before.run.attempts.saturating_add(u32::from(!recorded_again)));
    run.freed = run.freed.max(before.run.freed);
    run.cause = run.cause.filter(|_| !told_while_waiting).or_else(|| before.run.cause.clone());
    run.reason = run.reason.or_else(|| before.run.reason.clone());
    run
}

/// Starts the clock of the newest attempt, once (rule L1). Says whether it did.
pub(crate) fn begun(mut slot: Slot, lease: LeaseId, now: TimeMs) -> Step<bool> {
    let is_newest = slot.newest() == lease;
    let deadline = slot.run.terms.deadline(now, slot.run.charged);
    let started = match &mut slot.place {
        Place::InFlight(lease) if is_newest && lease.deadline.is_none() => {
            lease.begun = true;
            lease.deadline = Some(deadline);
            lease.undo = Undo::Spent;
            true
        }
        _ => false,
    };
    (Some(slot), started)
}

/// What came of undoing a lease (rule L9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    /// The lease that is no more.
    pub lease: LeaseId,
    /// What goes back to the front of the queue of a service without a store, where the lease was a retry. A first
    /// attempt is fetched again.
    pub retry: Option<Retry>,
    /// Whether a late result finished the task meanwhile, so that nothing goes back to any queue.
    pub finished: bool,
}

/// Undoes the lease of the newest attempt, whose task never left: what it replaced returns (rule L9). `None` where it is
/// not the newest, or its worker has been heard of.
pub(crate) fn undo(mut slot: Slot, lease: LeaseId) -> Step<Option<Undone>> {
    let is_newest = slot.newest() == lease;
    let undo = match &mut slot.place {
        Place::InFlight(lease) | Place::Held(Hold { base: Base::Flight(lease), .. }) if is_newest => {
            std::mem::replace(&mut lease.undo, Undo::Spent)
        }
        _ => Undo::Spent,
    };
    let before = match undo {
        Undo::Spent => return (Some(slot), None),
        Undo::Nothing => None,
        Undo::Slot(before) => Some(*before),
    };
    let finished = !slot.landed.is_empty();
    let retry = (slot.run.attempts > 1 && !finished).then(|| {
        let mut retry = slot.retry();
        retry.run.attempts -= 1;
        retry
    });
    let undone = Undone { lease, retry, finished };
    if !finished {
        return (before, Some(undone));
    }
    // A result of an older attempt was accepted while the undone one was being sent: it stands, over what was before.
    if let Some(before) = before {
        slot.run = before.run;
        slot.attempts = before.attempts;
        let base = match before.place {
            Place::InFlight(lease) => Base::Flight(lease),
            Place::Held(hold) => hold.base,
        };
        slot.rebase(base);
    } else {
        slot.run.attempts = slot.run.attempts.saturating_sub(1);
        slot.attempts.retain(|attempt| attempt.epoch != lease.epoch);
        slot.rebase(Base::Requeued);
    }
    (Some(slot), Some(undone))
}

/// Takes the lease if it is due and no receipt is open on it (rules X1, X2, X3).
pub(crate) fn expire(mut slot: Slot, moment: Moment) -> Step<Option<Taken>> {
    let Place::InFlight(lease) = &slot.place else { return (Some(slot), None) };
    if !lease.is_due(moment.now) {
        return (Some(slot), None);
    }
    let began = lease.begun;
    let unheard = match slot.run.terms.start {
        LeaseStart::Now => Ending::Expired,
        LeaseStart::AtBegun => Ending::TimeLimit,
    };
    let ending = lease.ending.unwrap_or(unheard);
    if lease.ending.is_none() && ending == Ending::TimeLimit {
        slot.run.reason = Some(Box::new(time_limit_reason(slot.run.terms.limit(slot.run.charged))));
    }
    let (charged, next) = slot.run.end_attempt(ending, began);
    let mut taken = Taken {
        lease: slot.newest(),
        worker: slot.newest_worker().cloned(),
        ending,
        began,
        charged,
        dead: None,
        retry: slot.retry(),
    };
    if next == Next::DeadLetter {
        let stand_in = Standing { epoch: slot.run.newest, status: Status::Fatal, origin: Origin::ReaperStandIn };
        slot.landed = vec![stand_in];
        taken.dead = Some(dead_letter_reason(slot.run.cause.as_deref(), slot.run.reason.as_deref()));
    }
    slot.place = Place::Held(Hold { until: moment.until, base: Base::Requeued, told: false });
    (Some(slot), Some(taken))
}

/// Forgets a held task at the end of its window, that instant included (rule X5).
pub(crate) fn forget(slot: Slot, now: TimeMs) -> Step<Option<LeaseId>> {
    match slot.held() {
        Some(hold) if hold.until <= now => (None, Some(slot.newest())),
        _ => (Some(slot), None),
    }
}

/// Removes a task from flight, never a held one (rules L11, X6). Says whether it did.
pub(crate) fn remove(slot: Slot) -> Step<bool> {
    if slot.in_flight().is_some() { (None, true) } else { (Some(slot), false) }
}

/// Removes a held task that still waits for this retry, which was refused for good (rule L12). Says whether it did.
pub(crate) fn abandon(slot: Slot, retry: &Retry) -> Step<bool> {
    let same_run = (slot.run.run, slot.run.first) == (retry.run.run, retry.run.first);
    if same_run && slot.is_requeued() { (None, true) } else { (Some(slot), false) }
}
