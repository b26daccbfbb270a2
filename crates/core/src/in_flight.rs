//! The set of tasks in flight and held: the concurrent owner of the slots.
//!
//! Owns the map, the counters, the limits (rule L10), the index of deadlines and the numbering of attempts for a service
//! without a store. What an event does to a task is [`crate::slot`]'s to say; who wins is [`crate::claim`]'s.
//!
//! Refuses to know clocks, threads and sockets: time is an argument, and whoever has a clock sweeps ([`crate::reap`]).
//!
//! Beside a store, a lease is made from a claim ([`InFlightSet::lease`]), and what the store decides is applied
//! ([`InFlightSet::settle`]): where memory and store differ, the store is right. A service without a store lets the set
//! number runs and attempts ([`InFlightSet::lease_fresh`], [`InFlightSet::lease_retry`]) and decide
//! ([`InFlightSet::claim`]).
//!
//! Invariants and order of locks (rules G5, G6):
//! - Each transition runs under the lock of its task's shard, once, and touches no other task. It moves counters and index
//!   by the difference it makes, so that at rest both equal the map.
//! - Under a shard's lock only the index and the counters are taken, for a moment each; under those, nothing. Nothing
//!   holds the index while it takes a shard, and nothing takes two shards. No lock is held when a call returns.
//! - No lock is held across what a caller does: no callback runs under one.

mod counters;
mod deadlines;
mod receipt;
mod reply;

pub use counters::Counts;
pub use receipt::Receipt;
pub use reply::{Attribution, Reply};

use crate::claim::Standing;
use crate::id::{Epoch, LeaseId, Run, ServiceId, TaskId, WorkerKey};
use crate::lease::{Grant, LeaseRefusal, LeaseStart, Leased, Terms};
use crate::reap::Taken;
use crate::report::{Message, Status};
use crate::retry::Retry;
use crate::slot::table::SlotState;
use crate::slot::{
    self, Accepted, Answered, Dropped, Found, Landing, Moment, NoResult, Settled, Settlement, Slot, Step, TakenBack,
    Undone,
};
use crate::time::{SpanMs, TimeMs};
use counters::{Counters, Footprint, Reserved};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use deadlines::Deadlines;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Hashes without random keys: task ids come from our own store, and core uses no randomness.
type Hasher = BuildHasherDefault<DefaultHasher>;

/// The bounds of an [`InFlightSet`]. Its memory never grows beyond them (rules L10, X4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// No task is leased while so many are in flight.
    pub max_in_flight: usize,
    /// So many may be in flight through what cannot be refused; one more is [`LeaseRefusal::HardLimit`].
    pub hard_limit: usize,
    /// The late-result window in milliseconds: how long a task is held. Zero or less: nothing is.
    pub window_ms: i64,
    /// So many may be held.
    pub max_held: usize,
    /// Into how many parts with a lock of their own the map is cut: a power of two, at least 2.
    pub shards: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_in_flight: 8000, hard_limit: 10_000, window_ms: 3_600_000, max_held: 50_000, shards: 64 }
    }
}

/// Why a set cannot be made with these limits. Checked when the configuration is loaded (rule L10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// Nothing could ever be leased.
    #[error("max_in_flight is 0: nothing could be leased")]
    NothingInFlight,
    /// The hard limit does not lie strictly above the other.
    #[error("the hard limit {hard_limit} does not lie above max_in_flight {max_in_flight}")]
    HardLimitNotAbove {
        /// `max_in_flight`.
        max_in_flight: usize,
        /// `hard_limit`.
        hard_limit: usize,
    },
    /// The map cannot be cut so.
    #[error("{0} shards: a power of two from 2 on is needed")]
    Shards(usize),
}

impl Limits {
    fn check(&self) -> Result<(), LimitsError> {
        let Self { max_in_flight, hard_limit, shards, .. } = *self;
        if max_in_flight == 0 {
            return Err(LimitsError::NothingInFlight);
        }
        if hard_limit <= max_in_flight {
            return Err(LimitsError::HardLimitNotAbove { max_in_flight, hard_limit });
        }
        if shards < 2 || !shards.is_power_of_two() {
            return Err(LimitsError::Shards(shards));
        }
        Ok(())
    }

    /// How many tasks may be held: none without a window.
    const fn room_to_hold(&self) -> usize {
        if self.window_ms > 0 { self.max_held } else { 0 }
    }

    fn moment(&self, now: TimeMs) -> Moment {
        Moment { now, until: now.after(SpanMs(u64::try_from(self.window_ms).unwrap_or(0))) }
    }
}

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

/// The tasks that are in flight or held. Shared by reference between threads.
///
/// ```
/// use dispatcher_core::id::{ServiceId, TaskId, WorkerKey};
/// use dispatcher_core::in_flight::{Claim, InFlightSet, Limits};
/// use dispatcher_core::lease::Terms;
/// use dispatcher_core::report::Status;
/// use dispatcher_core::time::{SpanMs, TimeMs};
///
/// // A service without a store: the set numbers attempts and decides.
/// let set = InFlightSet::new(Limits::default())?;
/// let worker = WorkerKey { name: "w1".into(), incarnation: "a".into() };
/// let terms = Terms::new(ServiceId(1), SpanMs::seconds(60));
///
/// // The lease is on record before the task is sent.
/// let leased = set.lease_fresh(TaskId(7), &worker, terms, TimeMs(0))?;
/// assert_eq!(set.counts().in_flight, 1);
///
/// // A result arrives: a receipt keeps the reaper away until it is decided.
/// let receipt = set.receipt(leased.lease);
/// match set.claim(leased.lease, Status::Warning, TimeMs(30_000)) {
///     Claim::Accepted(accepted) => set.published(&accepted),
///     other => panic!("{other:?}"),
/// }
/// drop(receipt);
/// assert_eq!(set.counts().in_flight, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct InFlightSet {
    limits: Limits,
    /// A slot is taken out for its transition and put back under the same lock; at rest none is missing.
    slots: DashMap<TaskId, Option<Slot>, Hasher>,
    counters: Counters,
    deadlines: Mutex<Deadlines>,
    /// The highest attempt that the set has numbered itself. One count for all tasks, so that no number comes back after
    /// its task has been forgotten.
    numbered: AtomicU64,
}

impl InFlightSet {
    /// An empty set.
    ///
    /// # Errors
    /// [`LimitsError`] where the limits contradict each other.
    pub fn new(limits: Limits) -> Result<Self, LimitsError> {
        limits.check()?;
        Ok(Self {
            limits,
            slots: DashMap::with_hasher_and_shard_amount(Hasher::default(), limits.shards),
            counters: Counters::default(),
            deadlines: Mutex::default(),
            numbered: AtomicU64::new(0),
        })
    }

    /// The limits it was made with.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The counters, each read in constant time (rule G5). Off by the changes under way; equal to the map at rest.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counters.read()
    }

    /// Tasks of one service in flight.
    #[must_use]
    pub fn in_flight_of(&self, service: ServiceId) -> usize {
        self.counters.in_flight_of(service)
    }

    /// Whether so many are in flight that nothing is leased. Held tasks do not count (rules L10, X6).
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.counters.in_flight() >= self.limits.max_in_flight
    }

    /// How many entries the index of deadlines has, of leases and of windows: never more than are in flight and held.
    #[must_use]
    pub fn indexed(&self) -> (usize, usize) {
        self.deadlines().len()
    }

    /// Leases a claimed task (rules L1, L2, L4–L8, L10–L14). The task may be sent after this returns, and not before.
    ///
    /// A claim above the set's run begins a new run, equal to it it is a retry, below it it is dropped.
    ///
    /// ```
    /// use dispatcher_core::id::{Epoch, LeaseId, Run, ServiceId, TaskId, WorkerKey};
    /// use dispatcher_core::in_flight::{InFlightSet, Limits};
    /// use dispatcher_core::lease::{Grant, LeaseRefusal, Terms};
    /// use dispatcher_core::time::{SpanMs, TimeMs};
    ///
    /// let set = InFlightSet::new(Limits::default())?;
    /// let worker = WorkerKey { name: "w1".into(), incarnation: "a".into() };
    /// let terms = Terms::new(ServiceId(1), SpanMs::seconds(60));
    /// let claimed = LeaseId { task: TaskId(7), run: Run(2), epoch: Epoch(5) };
    /// set.lease(Grant::new(claimed, worker.clone(), terms), TimeMs(0))?;
    ///
    /// let of_run_1 = LeaseId { run: Run(1), epoch: Epoch(4), ..claimed };
    /// let refusal = set.lease(Grant::new(of_run_1, worker, terms), TimeMs(0));
    /// assert_eq!(refusal, Err(LeaseRefusal::OlderRun { current: Run(2) }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Why the task may not go to this worker now; nothing has changed then.
    pub fn lease(&self, grant: Grant, now: TimeMs) -> Result<Leased, LeaseRefusal> {
        let task = grant.lease.task;
        let clock = slot::clock_of(grant.terms.start, now);
        self.admit(task, now, clock, Some(self.limits.max_in_flight), |_| Ok((grant, None)))
    }

    /// Takes over a lease that was out before this process began, with the clock it had (rule S4). `handed_at` and
    /// `began_at` are what was written of it.
    ///
    /// It is not refused at `max_in_flight`: leasing stops until the set is below it again.
    ///
    /// # Errors
    /// [`LeaseRefusal::HardLimit`] where the hard limit is filled; others as for [`InFlightSet::lease`].
    pub fn adopt(
        &self,
        grant: Grant,
        handed_at: Option<TimeMs>,
        began_at: Option<TimeMs>,
        now: TimeMs,
    ) -> Result<Leased, LeaseRefusal> {
        let task = grant.lease.task;
        let started = match grant.terms.start {
            LeaseStart::Now => Some(handed_at.unwrap_or(now)),
            LeaseStart::AtBegun => began_at,
        };
        self.admit(task, now, started, None, |_| Ok((grant, None)))
    }

    /// Leases a task fetched afresh, of a service without a store (rules L4, L8, L10). A task that the set still knows
    /// begins a new run.
    ///
    /// # Errors
    /// Why the task may not go to this worker now; nothing has changed then.
    pub fn lease_fresh(
        &self,
        task: TaskId,
        worker: &WorkerKey,
        terms: Terms,
        now: TimeMs,
    ) -> Result<Leased, LeaseRefusal> {
        let clock = slot::clock_of(terms.start, now);
        self.admit(task, now, clock, Some(self.limits.max_in_flight), |slot| {
            let run = slot.map_or(Run::FIRST, |slot| Run(slot.run.run.0.saturating_add(1)));
            let epoch = self.number(slot);
            Ok((Grant::new(LeaseId { task, run, epoch }, worker.clone(), terms), Some(epoch)))
        })
    }

    /// Leases a retry of a service without a store (rules L5–L8, L10, L12). [`crate::retry::Requeues`] calls this for its
    /// entries.
    ///
    /// # Errors
    /// [`LeaseRefusal::LookFirst`] where the set does not know the task: look it up, then
    /// [`InFlightSet::lease_forgotten`]. Others say why it may not go to this worker now, or not at all.
    pub fn lease_retry(&self, retry: &Retry, worker: &WorkerKey, now: TimeMs) -> Result<Leased, LeaseRefusal> {
        self.lease_queued(retry, worker, now, true)
    }

    /// Leases a retry whose task the set has forgotten and which was looked up and is not finished (rule L12).
    ///
    /// # Errors
    /// As for [`InFlightSet::lease_retry`].
    pub fn lease_forgotten(&self, retry: &Retry, worker: &WorkerKey, now: TimeMs) -> Result<Leased, LeaseRefusal> {
        self.lease_queued(retry, worker, now, false)
    }

    fn lease_queued(
        &self,
        retry: &Retry,
        worker: &WorkerKey,
        now: TimeMs,
        must_be_known: bool,
    ) -> Result<Leased, LeaseRefusal> {
        let clock = slot::clock_of(retry.run.terms.start, now);
        self.admit(retry.task, now, clock, Some(self.limits.max_in_flight), |slot| {
            if slot.is_none() && must_be_known {
                return Err(LeaseRefusal::LookFirst);
            }
            let grant = Grant {
                lease: LeaseId { task: retry.task, run: retry.run.run, epoch: self.number(slot) },
                worker: Some(worker.clone()),
                terms: retry.run.terms,
                retries: retry.run.charged,
                freed: retry.run.freed,
                cause: retry.run.cause.as_deref().cloned(),
                reason: retry.run.reason.as_deref().cloned(),
            };
            Ok((grant, Some(retry.run.first)))
        })
    }

    /// The number of the next attempt of a task that the set numbers itself: growing, never used before.
    fn number(&self, slot: Option<&Slot>) -> Epoch {
        if let Some(slot) = slot {
            self.numbered.fetch_max(slot.run.newest.0, Ordering::Relaxed);
        }
        Epoch(self.numbered.fetch_add(1, Ordering::Relaxed).saturating_add(1))
    }

    /// Admission and lease in one step (rule L10). `grant` makes the grant beside what the slot has, and the first attempt
    /// of its run where the set numbers runs itself. Without `limit` the lease is adopted: it is out already.
    fn admit(
        &self,
        task: TaskId,
        now: TimeMs,
        clock: Option<TimeMs>,
        limit: Option<usize>,
        grant: impl FnOnce(Option<&Slot>) -> Result<(Grant, Option<Epoch>), LeaseRefusal>,
    ) -> Result<Leased, LeaseRefusal> {
        if !task.is_tracked() {
            return Err(LeaseRefusal::Untracked(task));
        }
        self.transition(task, |slot, reserved| {
            let admitted = grant(slot.as_ref()).and_then(|(grant, first)| {
                let LeaseId { run, epoch, .. } = grant.lease;
                slot::admit(slot.as_ref(), run, epoch, first)?;
                if let (Some(_), Some(worker)) = (limit, &grant.worker) {
                    slot::admit_worker(slot.as_ref(), run, grant.terms.told_apart, worker)?;
                }
                self.reserve(slot.as_ref(), limit, reserved)?;
                Ok((grant, first.unwrap_or(Epoch::NONE)))
            });
            match admitted {
                Ok((grant, first)) => {
                    let (next, leased) = slot::lease(slot, grant, first, clock, now);
                    (Some(next), Ok(leased))
                }
                Err(refusal) => (slot, Err(refusal)),
            }
        })
    }

    /// Takes a place in flight for a task that is not there yet.
    fn reserve(&self, slot: Option<&Slot>, limit: Option<usize>, reserved: &mut Reserved) -> Result<(), LeaseRefusal> {
        if slot.is_some_and(|slot| slot.in_flight().is_some()) {
            return Ok(());
        }
        reserved.in_flight = self.counters.reserve_in_flight(limit.unwrap_or(self.limits.hard_limit));
        match (reserved.in_flight, limit) {
            (true, _) => Ok(()),
            (false, Some(limit)) => Err(LeaseRefusal::Saturated { limit }),
            (false, None) => Err(LeaseRefusal::HardLimit { limit: self.limits.hard_limit }),
        }
    }

    /// Undoes a lease whose task was refused while it was being sent: what it replaced returns, nothing is charged and no
    /// attempt is remembered (rule L9). `None` where its worker has been heard of, or a newer lease has taken over.
    ///
    /// ```
    /// use dispatcher_core::id::{ServiceId, TaskId, WorkerKey};
    /// use dispatcher_core::in_flight::{InFlightSet, Limits};
    /// use dispatcher_core::lease::Terms;
    /// use dispatcher_core::time::{SpanMs, TimeMs};
    ///
    /// let set = InFlightSet::new(Limits::default())?;
    /// let gone = WorkerKey { name: "w1".into(), incarnation: "a".into() };
    /// let leased = set.lease_fresh(TaskId(7), &gone, Terms::new(ServiceId(1), SpanMs::seconds(60)), TimeMs(0))?;
    /// assert!(set.undo(leased.lease, TimeMs(0)).is_some());
    /// assert_eq!((set.counts().in_flight, set.counts().undone), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn undo(&self, lease: LeaseId, now: TimeMs) -> Option<Undone> {
        let undone = self.on_known(lease.task, now, |slot, _| slot::undo(slot, lease)).flatten();
        if undone.is_some() {
            self.counters.undone.fetch_add(1, Ordering::Relaxed);
        }
        undone
    }

    /// Starts the clock of a lease whose worker has begun (rule L1). Whether it did: not for a repeat, nor for a lease
    /// that is not the newest of its task.
    pub fn begun(&self, lease: LeaseId, now: TimeMs) -> bool {
        self.on_known(lease.task, now, |slot, moment| slot::begun(slot, lease, moment.now)).unwrap_or(false)
    }

    /// Takes a receipt for a reply that has begun to arrive (rules R3, C12). `None` where the reply is stale, unknown, or
    /// names another service: it has nothing to hold off.
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

    /// Notes that an accepted result is published, so that nothing before it is fallen back on any more (rule C8).
    pub fn published(&self, accepted: &Accepted) {
        let (facts, first) = (&accepted.facts, accepted.before.run.first);
        self.on_known(facts.lease.task, TimeMs::default(), |slot, _| slot::published(slot, facts, first));
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

    /// Applies what the store decided about a lease: where memory and store differ, the store is right (rule D5). A task
    /// that memory does not know stays unknown.
    pub fn settle(&self, lease: LeaseId, settlement: &Settlement, now: TimeMs) -> Settled {
        self.on_known(lease.task, now, |slot, moment| slot::settle(slot, lease, *settlement, moment))
            .unwrap_or(Settled::Unchanged)
    }

    /// Removes a task from flight; whether it was there. A held one stays (rules L11, X6).
    pub fn remove(&self, task: TaskId) -> bool {
        self.on_known(task, TimeMs::default(), |slot, _| slot::remove(slot)).unwrap_or(false)
    }

    /// Removes what waits in the set for a retry that was refused for good, so that it is not queued again (rules L12,
    /// S3). A task that is in flight, finished or in a later run is not touched.
    pub fn abandon(&self, retry: &Retry) -> bool {
        self.on_known(retry.task, TimeMs::default(), |slot, _| slot::abandon(slot, retry)).unwrap_or(false)
    }

    /// The retries that neither a lease nor a late result has taken, in the order of their tasks: what a restarted leasing
    /// part queues again, due at once (rule S3). Looks at each task; what is in flight or held is not touched.
    #[must_use]
    pub fn waiting(&self) -> Vec<Retry> {
        let requeued = |slot: &Slot| slot.is_requeued().then(|| slot.retry());
        let mut waiting: Vec<_> = self.slots.iter().filter_map(|entry| entry.as_ref().and_then(requeued)).collect();
        waiting.sort_unstable_by_key(|retry| retry.task);
        waiting
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

    /// In which state of `docs/states.md` a task is.
    #[must_use]
    pub fn state_of(&self, task: TaskId) -> SlotState {
        self.slots.get(&task).map_or(SlotState::Absent, |entry| SlotState::of(entry.value().as_ref()))
    }

    pub(crate) fn due_after(&self, now: TimeMs, after: Option<deadlines::Entry>, max: usize) -> Vec<deadlines::Entry> {
        self.deadlines().due(now, after, max)
    }

    pub(crate) fn ended_after(
        &self,
        now: TimeMs,
        after: Option<deadlines::Entry>,
        max: usize,
    ) -> Vec<deadlines::Entry> {
        self.deadlines().ended(now, after, max)
    }

    pub(crate) fn expire(&self, task: TaskId, now: TimeMs) -> Option<Taken> {
        self.on_known(task, now, slot::expire).flatten()
    }

    pub(crate) fn forget(&self, task: TaskId, now: TimeMs) -> Option<LeaseId> {
        self.on_known(task, now, |slot, moment| slot::forget(slot, moment.now)).flatten()
    }

    fn deadlines(&self) -> MutexGuard<'_, Deadlines> {
        self.deadlines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One transition of a task that the set knows.
    fn on_known<T>(&self, task: TaskId, now: TimeMs, step: impl FnOnce(Slot, Moment) -> Step<T>) -> Option<T> {
        let moment = self.limits.moment(now);
        self.transition(task, |slot, _| match slot {
            Some(slot) => {
                let (next, outcome) = step(slot, moment);
                (next, Some(outcome))
            }
            None => (None, None),
        })
    }

    /// One transition of one task, atomic against every other of that task (rule G6). Counters and index move by the
    /// difference (rule L13); what would be held without a window or at the cap leaves the set instead (rule X4).
    fn transition<T>(&self, task: TaskId, step: impl FnOnce(Option<Slot>, &mut Reserved) -> Step<T>) -> T {
        let mut entry = self.slots.entry(task);
        let slot = match &mut entry {
            Entry::Occupied(occupied) => occupied.get_mut().take(),
            Entry::Vacant(_) => None,
        };
        let before = Footprint::of(slot.as_ref());
        let mut reserved = Reserved::default();
        let (mut next, outcome) = step(slot, &mut reserved);
        if !before.held && next.as_ref().is_some_and(|slot| slot.held().is_some()) {
            reserved.held = self.counters.reserve_held(self.limits.room_to_hold());
            if !reserved.held {
                next = None;
            }
        }
        let after = Footprint::of(next.as_ref());
        self.counters.shift(&before, &after, &reserved);
        if (before.due, before.until) != (after.due, after.until) {
            self.deadlines().shift(task, &before, &after);
        }
        match (entry, next) {
            (Entry::Occupied(mut occupied), Some(slot)) => *occupied.get_mut() = Some(slot),
            (Entry::Occupied(occupied), None) => {
                occupied.remove();
            }
            (Entry::Vacant(vacant), Some(slot)) => {
                vacant.insert(Some(slot));
            }
            (Entry::Vacant(_), None) => {}
        }
        outcome
    }
}

/// Whether a reply names another service than its task's (rule C12).
fn is_wrong_service(slot: &Slot, reply: Reply<'_>) -> bool {
    reply.service.is_some_and(|service| service != slot.run.terms.service)
}
