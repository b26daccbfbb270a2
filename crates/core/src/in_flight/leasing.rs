//! How tasks come into flight: leases from claims, adopted ones, fresh ones and retries of a service without a store.
//!
//! Owns admission (rule L10) and the numbering of attempts for services without a store.

use super::InFlightSet;
use super::counters::Reserved;
use crate::id::{Epoch, LeaseId, Run, TaskId, WorkerKey};
use crate::lease::{Grant, LeaseRefusal, LeaseStart, Leased, Terms};
use crate::retry::Retry;
use crate::slot::{self, Slot, Undone};
use crate::time::TimeMs;
use std::sync::atomic::Ordering;

impl InFlightSet {
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
    /// ```
    /// use dispatcher_core::id::{Epoch, LeaseId, Run, ServiceId, TaskId, WorkerKey};
    /// use dispatcher_core::in_flight::{InFlightSet, Limits};
    /// use dispatcher_core::lease::{Grant, Terms};
    /// use dispatcher_core::time::{SpanMs, TimeMs};
    ///
    /// let set = InFlightSet::new(Limits::default())?;
    /// let worker = WorkerKey { name: "w1".into(), incarnation: "a".into() };
    /// let lease = LeaseId { task: TaskId(7), run: Run(1), epoch: Epoch(3) };
    /// let grant = Grant::new(lease, worker, Terms::new(ServiceId(1), SpanMs::seconds(60)));
    /// // Handed out 50 s before this process began to look: 10 s are left.
    /// let leased = set.adopt(grant, Some(TimeMs(0)), None, TimeMs(50_000))?;
    /// assert_eq!(leased.deadline, Some(TimeMs(60_000)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    /// ```
    /// use dispatcher_core::id::{ServiceId, TaskId, WorkerKey};
    /// use dispatcher_core::in_flight::{InFlightSet, Limits};
    /// use dispatcher_core::lease::Terms;
    /// use dispatcher_core::time::{SpanMs, TimeMs};
    ///
    /// let set = InFlightSet::new(Limits::default())?;
    /// let worker = WorkerKey { name: "w1".into(), incarnation: "a".into() };
    /// let terms = Terms::new(ServiceId(1), SpanMs::seconds(60));
    /// let first = set.lease_fresh(TaskId(7), &worker, terms, TimeMs(0))?;
    /// let rerun = set.lease_fresh(TaskId(7), &worker, terms, TimeMs(1))?;
    /// assert!(rerun.lease.run > first.lease.run);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    pub(super) fn reserve(
        &self,
        slot: Option<&Slot>,
        limit: Option<usize>,
        reserved: &mut Reserved,
    ) -> Result<(), LeaseRefusal> {
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
    ///
    /// ```
    /// use dispatcher_core::id::{ServiceId, TaskId, WorkerKey};
    /// use dispatcher_core::in_flight::{InFlightSet, Limits};
    /// use dispatcher_core::lease::{LeaseStart, Terms};
    /// use dispatcher_core::time::{SpanMs, TimeMs};
    ///
    /// let set = InFlightSet::new(Limits::default())?;
    /// let worker = WorkerKey { name: "w1".into(), incarnation: "a".into() };
    /// let terms = Terms { start: LeaseStart::AtBegun, ..Terms::new(ServiceId(1), SpanMs::seconds(60)) };
    /// let leased = set.lease_fresh(TaskId(7), &worker, terms, TimeMs(0))?;
    /// // It may wait at its worker as long as that lives; a minute runs from here.
    /// assert!(set.begun(leased.lease, TimeMs(500_000)));
    /// assert!(set.sweep(TimeMs(560_000), 10).requeued.is_empty());
    /// assert_eq!(set.sweep(TimeMs(560_001), 10).requeued.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begun(&self, lease: LeaseId, now: TimeMs) -> bool {
        self.on_known(lease.task, now, |slot, moment| slot::begun(slot, lease, moment.now)).unwrap_or(false)
    }
}
