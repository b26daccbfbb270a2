//! What replies do to the set: receipts, results, causes and unusable replies, and what comes of publishing a result.

use super::{Attribution, InFlightSet, Receipt, Reply};
use crate::claim::Standing;
use crate::id::{LeaseId, ServiceId, WorkerKey};
use crate::lease::LeaseRefusal;
use crate::report::{Message, Status};
use crate::slot::{self, Accepted, Answered, Dropped, Found, Landing, NoResult, Slot, TakenBack};
use crate::time::TimeMs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What one received result means (rules C1–C7, C10). What is dropped has changed nothing but a counter.
#[derive(Debug)]
#[must_use = "an accepted result is to be published"]
pub enum Claim {
    /// It stands.
    Accepted(Accepted),
    /// It lost against one that stands.
    Superseded {
        /// The attempt that lost.
        lease: LeaseId,
        /// The attempt that stands.
        by: Standing,
    },
    /// It belongs to an earlier run (rule C6).
    Stale,
    /// Nothing in memory has a place for it (rule C7). With a store it is put to the store now (rule C13).
    Unknown,
    /// It names another service than the task's: the reply is unusable (rule C12).
    WrongService {
        /// The task's service.
        service: ServiceId,
    },
}

/// What memory has of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// In flight, and this is its newest attempt.
    InFlight {
        /// Whether its clock runs.
        begun: bool,
        /// Whether its worker has told that no result will come.
        answered: bool,
    },
    /// Its task is in flight under a newer attempt, which this one may still beat.
    Older,
    /// Held: waits for its retry, ended in a dead letter, or has a result.
    Held {
        /// What stands, where something does.
        standing: Option<Standing>,
    },
    /// It belongs to an earlier run.
    Stale,
    /// Memory has no place for it.
    Unknown,
}

impl InFlightSet {
    /// Takes a receipt for a reply that has begun to arrive (rules R3, C12). `None` where the reply is stale, unknown, or
    /// names another service: it has nothing to hold off.
    ///
    /// ```
    /// use dispatcher_core::id::{ServiceId, TaskId, WorkerKey};
    /// use dispatcher_core::in_flight::{InFlightSet, Limits};
    /// use dispatcher_core::lease::Terms;
    /// use dispatcher_core::time::{SpanMs, TimeMs};
    ///
    /// let set = InFlightSet::new(Limits::default())?;
    /// let worker = WorkerKey { name: "w1".into(), incarnation: "a".into() };
    /// let terms = Terms::new(ServiceId(1), SpanMs::seconds(60));
    /// let leased = set.lease_fresh(TaskId(7), &worker, terms, TimeMs(0))?;
    /// let receipt = set.receipt(leased.lease);
    /// assert!(set.sweep(TimeMs(60_001), 10).requeued.is_empty());
    /// drop(receipt);
    /// assert_eq!(set.sweep(TimeMs(60_001), 10).requeued.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receipt<'a>(&self, reply: impl Into<Reply<'a>>) -> Option<Receipt> {
        let reply = reply.into();
        let mut entry = self.slots.get_mut(&reply.task)?;
        let slot = entry.value_mut().as_mut()?;
        if is_wrong_service(slot, reply) {
            return None;
        }
        let Found::Attempt(epoch) = slot.find(reply.by) else { return None };
        let lease = LeaseId { epoch, ..slot.newest() };
        let of_lease = match &mut slot.place {
            slot::Place::InFlight(lease) => Some(Arc::clone(lease.receipts.get_or_insert_default())),
            slot::Place::Held(_) => None,
        };
        Some(Receipt::take(lease, of_lease, Arc::clone(&self.counters.receipts)))
    }

    /// Takes the word that an attempt brings no result (rules R1, R2, R4–R6, R8, A3).
    ///
    /// ```
    /// use dispatcher_core::id::{ServiceId, TaskId, WorkerKey};
    /// use dispatcher_core::in_flight::{InFlightSet, Limits};
    /// use dispatcher_core::lease::Terms;
    /// use dispatcher_core::report::{Message, Severity};
    /// use dispatcher_core::slot::{Answered, NoResult};
    /// use dispatcher_core::time::{SpanMs, TimeMs};
    ///
    /// let set = InFlightSet::new(Limits::default())?;
    /// let worker = WorkerKey { name: "w1".into(), incarnation: "a".into() };
    /// let terms = Terms::new(ServiceId(1), SpanMs::seconds(60));
    /// let leased = set.lease_fresh(TaskId(7), &worker, terms, TimeMs(0))?;
    /// let oom = Message {
    ///     severity: Severity::Error,
    ///     category: "oom".into(),
    ///     what: "shed".into(),
    ///     details: String::new(),
    /// };
    /// // Another try is worth while: the next sweep requeues the task, and its retry carries the cause.
    /// let answered = set.answered(leased.lease, NoResult::Cause(oom), TimeMs(5));
    /// assert_eq!(answered, Answered::DueAtOnce(leased.lease));
    /// let retry = set.sweep(TimeMs(5), 10).requeued.remove(0).retry;
    /// assert_eq!(retry.run.cause.map(|cause| cause.what), Some("shed".to_owned()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn answered<'a>(&self, reply: impl Into<Reply<'a>>, word: NoResult, now: TimeMs) -> Answered {
        let reply = reply.into();
        let by_token = matches!(reply.by, Attribution::Token { .. });
        let answered = self.on_known(reply.task, now, |slot, moment| {
            if is_wrong_service(&slot, reply) {
                return (Some(slot), Answered::Dropped(Dropped::WrongService));
            }
            match slot.find(reply.by) {
                Found::Attempt(epoch) => slot::no_result(slot, epoch, word, by_token, moment),
                Found::Stale => (Some(slot), Answered::Dropped(Dropped::Stale)),
                Found::Unknown => (Some(slot), Answered::Dropped(Dropped::Unknown)),
            }
        });
        let answered = answered.unwrap_or(Answered::Dropped(Dropped::Unknown));
        match answered {
            Answered::Dropped(Dropped::Stale) => self.counters.stale.fetch_add(1, Ordering::Relaxed),
            Answered::Dropped(Dropped::Unknown) => self.counters.unknown.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        answered
    }

    /// Decides what a result means, for a service without a store (rules C1–C7, C9–C12).
    ///
    /// ```
    /// use dispatcher_core::id::{ServiceId, TaskId, WorkerKey};
    /// use dispatcher_core::in_flight::{Claim, InFlightSet, Limits, Reply};
    /// use dispatcher_core::lease::{Terms, ToldApart};
    /// use dispatcher_core::report::Status;
    /// use dispatcher_core::slot::Lateness;
    /// use dispatcher_core::time::{SpanMs, TimeMs};
    ///
    /// // A wire without tokens: results are told apart by worker name.
    /// let set = InFlightSet::new(Limits::default())?;
    /// let terms = Terms { told_apart: ToldApart::ByWorker, ..Terms::new(ServiceId(1), SpanMs::seconds(1)) };
    /// let worker = |name: &str| WorkerKey { name: name.into(), incarnation: String::new() };
    /// set.lease_fresh(TaskId(7), &worker("slow"), terms, TimeMs(0))?;
    /// let taken = set.sweep(TimeMs(1001), 10).requeued.remove(0);
    /// set.lease_retry(&taken.retry, &worker("quick"), TimeMs(1001))?;
    ///
    /// // The slow worker's result comes after all: it is late, and it is kept.
    /// let reply = Reply::by_worker(TaskId(7), "slow", ServiceId(1));
    /// match set.claim(reply, Status::NoProblem, TimeMs(2000)) {
    ///     Claim::Accepted(accepted) => assert_eq!(accepted.facts.late, Lateness::OlderAttempt),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn claim<'a>(&self, reply: impl Into<Reply<'a>>, status: Status, now: TimeMs) -> Claim {
        let reply = reply.into();
        let claim = self.on_known(reply.task, now, |slot, moment| {
            if is_wrong_service(&slot, reply) {
                let service = slot.run.terms.service;
                return (Some(slot), Claim::WrongService { service });
            }
            let (epoch, task) = match slot.find(reply.by) {
                Found::Attempt(epoch) => (epoch, slot.newest()),
                Found::Stale => return (Some(slot), Claim::Stale),
                Found::Unknown => return (Some(slot), Claim::Unknown),
            };
            let (next, landing) = slot::result(slot, epoch, status, moment);
            let claim = match landing {
                Landing::Accepted(accepted) => Claim::Accepted(accepted),
                Landing::Superseded { by } => Claim::Superseded { lease: LeaseId { epoch, ..task }, by },
            };
            (next, claim)
        });
        let claim = claim.unwrap_or(Claim::Unknown);
        match claim {
            Claim::Superseded { .. } => self.counters.superseded.fetch_add(1, Ordering::Relaxed),
            Claim::Stale => self.counters.stale.fetch_add(1, Ordering::Relaxed),
            Claim::Unknown => self.counters.unknown.fetch_add(1, Ordering::Relaxed),
            Claim::Accepted(_) | Claim::WrongService { .. } => 0,
        };
        claim
    }

    /// Takes an accepted result back that could not be published, and says what stands now (rule C8). `why` becomes the
    /// last reason seen, should the run end without a result.
    ///
    /// Whoever removes a task drops what was accepted of it: taking that back would open the task again.
    ///
    /// ```
    /// use dispatcher_core::id::{ServiceId, TaskId, WorkerKey};
    /// use dispatcher_core::in_flight::{Claim, InFlightSet, Limits};
    /// use dispatcher_core::lease::Terms;
    /// use dispatcher_core::reap::unusable_reason;
    /// use dispatcher_core::report::Status;
    /// use dispatcher_core::slot::TakenBack;
    /// use dispatcher_core::time::{SpanMs, TimeMs};
    ///
    /// let set = InFlightSet::new(Limits::default())?;
    /// let worker = WorkerKey { name: "w1".into(), incarnation: "a".into() };
    /// let leased = set.lease_fresh(TaskId(7), &worker, Terms::new(ServiceId(1), SpanMs::seconds(60)), TimeMs(0))?;
    /// let Claim::Accepted(accepted) = set.claim(leased.lease, Status::NoProblem, TimeMs(1)) else { panic!() };
    /// // The disk is full: the task is open again, and the next sweep requeues it.
    /// let taken_back = set.take_back(accepted, unusable_reason("disk full"), TimeMs(2))?;
    /// assert_eq!(taken_back, TakenBack::DueAtOnce(leased.lease));
    /// assert_eq!(set.sweep(TimeMs(2), 10).requeued.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LeaseRefusal::HardLimit`] where the task had to be opened again and the hard limit is filled.
    pub fn take_back(&self, accepted: Accepted, why: Message, now: TimeMs) -> Result<TakenBack, LeaseRefusal> {
        let moment = self.limits.moment(now);
        self.transition(accepted.facts.lease.task, |slot, reserved| {
            // Whether the task comes back into flight is seen only by trying, so the place is taken first.
            let room = self.reserve(slot.as_ref(), None, reserved);
            match (slot::take_back(slot, accepted, why, moment), room) {
                ((_, TakenBack::DueAtOnce(_)), Err(refusal)) => (None, Err(refusal)),
                ((next, taken_back), _) => (next, Ok(taken_back)),
            }
        })
    }

    /// The newest attempt that was given to that worker, where the reply names one (rule C11). None where memory has no
    /// attempt of that worker, or the reply names another service: whether it is the newest of all is the store's to say.
    ///
    /// ```
    /// use dispatcher_core::id::{ServiceId, TaskId, WorkerKey};
    /// use dispatcher_core::in_flight::{InFlightSet, Limits, Reply};
    /// use dispatcher_core::lease::Terms;
    /// use dispatcher_core::time::{SpanMs, TimeMs};
    ///
    /// let set = InFlightSet::new(Limits::default())?;
    /// let terms = Terms::new(ServiceId(1), SpanMs::seconds(60));
    /// let leased = set.lease_fresh(TaskId(7), &WorkerKey::legacy("w1"), terms, TimeMs(0))?;
    /// let given = |name| set.given_to_worker(Reply::by_worker(TaskId(7), name, ServiceId(1)));
    /// assert_eq!((given("w1"), given("w2")), (Some(leased.lease), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn given_to_worker(&self, reply: Reply<'_>) -> Option<LeaseId> {
        let Attribution::Worker(name) = reply.by else { return None };
        let entry = self.slots.get(&reply.task)?;
        let slot = entry.value().as_ref().filter(|slot| !is_wrong_service(slot, reply))?;
        let attempt = slot.attempts.iter().rev().find(|attempt| attempt.worker.name == name)?;
        Some(LeaseId { task: reply.task, run: attempt.run, epoch: attempt.epoch })
    }

    /// Who has or had a lease, where memory knows it.
    #[must_use]
    pub fn worker_of(&self, lease: LeaseId) -> Option<WorkerKey> {
        let entry = self.slots.get(&lease.task)?;
        let attempts = &entry.value().as_ref()?.attempts;
        attempts.iter().find(|a| (a.run, a.epoch) == (lease.run, lease.epoch)).map(|attempt| attempt.worker.clone())
    }

    /// What memory has of a lease: enough to sort out what is hopeless before its bytes are written down.
    #[must_use]
    pub fn lease_state(&self, lease: LeaseId) -> LeaseState {
        let Some(entry) = self.slots.get(&lease.task) else { return LeaseState::Unknown };
        let Some(slot) = entry.value() else { return LeaseState::Unknown };
        match (slot.find(Reply::from(lease).by), slot.in_flight()) {
            (Found::Stale, _) => LeaseState::Stale,
            (Found::Unknown, _) => LeaseState::Unknown,
            (Found::Attempt(_), None) => LeaseState::Held { standing: slot.standing() },
            (Found::Attempt(epoch), Some(_)) if epoch < slot.run.newest => LeaseState::Older,
            (Found::Attempt(_), Some(lease)) => LeaseState::InFlight { begun: lease.begun, answered: lease.answered },
        }
    }
}

/// Whether a reply names another service than its task's (rule C12).
fn is_wrong_service(slot: &Slot, reply: Reply<'_>) -> bool {
    reply.service.is_some_and(|service| service != slot.run.terms.service)
}
