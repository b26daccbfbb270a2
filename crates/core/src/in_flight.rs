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
mod leasing;
mod limits;
mod receipt;
mod replies;
mod reply;

pub use counters::Counts;
pub use limits::{Limits, LimitsError};
pub use receipt::Receipt;
pub use replies::{Claim, LeaseState};
pub use reply::{Attribution, Reply};

use crate::id::{LeaseId, ServiceId, TaskId};
use crate::reap::Taken;
use crate::retry::Retry;
use crate::slot::table::SlotState;
use crate::slot::{self, Moment, Settled, Settlement, Slot, Step};
use crate::time::TimeMs;
use counters::{Counters, Footprint, Reserved};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use deadlines::Deadlines;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Hashes without random keys: task ids come from our own store, and core uses no randomness.
type Hasher = BuildHasherDefault<DefaultHasher>;

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
///     Claim::Accepted(accepted) => assert_eq!(accepted.facts.attempts, 1), // and publish it
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

    /// Applies what the store decided about a lease: where memory and store differ, the store is right (rule D5). A task
    /// that memory does not know stays unknown.
    ///
    /// ```
    /// use dispatcher_core::id::{Epoch, LeaseId, Run, ServiceId, TaskId, WorkerKey};
    /// use dispatcher_core::in_flight::{InFlightSet, LeaseState, Limits};
    /// use dispatcher_core::lease::{Grant, Terms};
    /// use dispatcher_core::slot::Settlement;
    /// use dispatcher_core::time::{SpanMs, TimeMs};
    ///
    /// let set = InFlightSet::new(Limits::default())?;
    /// let worker = WorkerKey { name: "w1".into(), incarnation: "a".into() };
    /// let lease = LeaseId { task: TaskId(7), run: Run(1), epoch: Epoch(1) };
    /// set.lease(Grant::new(lease, worker, Terms::new(ServiceId(1), SpanMs::seconds(60))), TimeMs(0))?;
    /// // The transaction that ended the attempt made the task ready again.
    /// set.settle(lease, &Settlement::Requeued { charged: 1 }, TimeMs(5));
    /// assert_eq!(set.lease_state(lease), LeaseState::Held { standing: None });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    ///
    /// ```
    /// use dispatcher_core::id::{ServiceId, TaskId, WorkerKey};
    /// use dispatcher_core::in_flight::{InFlightSet, Limits};
    /// use dispatcher_core::lease::Terms;
    /// use dispatcher_core::retry::Requeues;
    /// use dispatcher_core::time::{SpanMs, TimeMs};
    ///
    /// let set = InFlightSet::new(Limits::default())?;
    /// let worker = WorkerKey { name: "w1".into(), incarnation: "a".into() };
    /// let terms = Terms::new(ServiceId(1), SpanMs::seconds(60));
    /// set.lease_fresh(TaskId(7), &worker, terms, TimeMs(0))?;
    /// let _ = set.sweep(TimeMs(60_001), 10);
    /// let mut queue = Requeues::new(1000);
    /// for retry in set.waiting() {
    ///     queue.push(retry, TimeMs(60_002));
    /// }
    /// assert_eq!(queue.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn waiting(&self) -> Vec<Retry> {
        let requeued = |slot: &Slot| slot.is_requeued().then(|| slot.retry());
        let mut waiting: Vec<_> = self.slots.iter().filter_map(|entry| entry.as_ref().and_then(requeued)).collect();
        waiting.sort_unstable_by_key(|retry| retry.task);
        waiting
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
