//! The queue of retries of a service without a store.
//!
//! Owns the order in which retries are offered to workers. Does not own the tasks: whether a retry still has to run is
//! asked of the set at the moment it is leased (rules L5, L6), so that an entry may be out of date without harm.

use super::Retry;
use crate::id::{ServiceId, TaskId, WorkerKey};
use crate::in_flight::InFlightSet;
use crate::lease::{LeaseRefusal, Leased};
use crate::time::TimeMs;
use std::collections::BTreeMap;

/// What a look at the service's own records says of a task that the set does not know any more (rule L12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Look {
    /// It is still to be done.
    Open,
    /// It is finished, or gone.
    Over,
}

/// Where an entry stands in its service's queue: not before when, then in the order of arrival; below zero is the front.
type Place = (TimeMs, i64);

/// Retries that wait, in a queue for each service (rules X2, L5–L7, L12).
///
/// It belongs to the leasing part alone. When that part is restarted on purpose, a new one is filled from
/// [`InFlightSet::waiting`] (rule S3).
///
/// It holds at most one entry a task. It grows by what the reaper takes, so by at most `max_in_flight` while nothing
/// fresh is leased; a service that looks at [`Requeues::is_full`] before it fetches fresh tasks keeps it bounded.
///
/// ```
/// use dispatcher_core::id::{ServiceId, TaskId, WorkerKey};
/// use dispatcher_core::in_flight::{InFlightSet, Limits};
/// use dispatcher_core::lease::Terms;
/// use dispatcher_core::retry::{Look, Requeues};
/// use dispatcher_core::time::{SpanMs, TimeMs};
///
/// let set = InFlightSet::new(Limits::default())?;
/// let mut queue = Requeues::new(1000);
/// let worker = WorkerKey { name: "w1".into(), incarnation: "a".into() };
/// let terms = Terms::new(ServiceId(1), SpanMs::seconds(60));
///
/// set.lease_fresh(TaskId(7), &worker, terms, TimeMs(0))?;
/// // Nobody answers. The reaper takes the lease and the queue has it again.
/// for taken in set.sweep(TimeMs(60_001), 100).requeued {
///     queue.push(taken.retry, TimeMs(60_001));
/// }
/// let again = queue.lease_next(&set, ServiceId(1), &worker, TimeMs(60_002), |_| Look::Open);
/// assert_eq!(again.map(|leased| (leased.lease.task, leased.retries)), Some((TaskId(7), 1)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Requeues {
    queues: BTreeMap<ServiceId, BTreeMap<Place, Retry>>,
    places: BTreeMap<TaskId, (ServiceId, Place)>,
    arrivals: i64,
    full_at: usize,
}

impl Requeues {
    /// An empty queue that calls itself full at `full_at` entries.
    #[must_use]
    pub fn new(full_at: usize) -> Self {
        Self { queues: BTreeMap::new(), places: BTreeMap::new(), arrivals: 0, full_at }
    }

    /// How many retries wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether so many wait that nothing fresh should be fetched. Retries are taken all the same: none is lost.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= self.full_at
    }

    /// Puts a retry at the end of its service's queue, not to be leased before `not_before`. An entry of the same task
    /// is replaced.
    pub fn push(&mut self, retry: Retry, not_before: TimeMs) {
        self.arrivals += 1;
        self.place(retry, (not_before, self.arrivals));
    }

    /// Puts a retry whose lease was undone at the front of its service's queue (rule L9).
    pub fn push_front(&mut self, retry: Retry) {
        self.arrivals += 1;
        self.place(retry, (TimeMs(i64::MIN), -self.arrivals));
    }

    /// Takes the task's retry out of the queue, because a late result was accepted (rule C4) or the task is cancelled.
    pub fn cancel(&mut self, task: TaskId) -> Option<Retry> {
        let (service, place) = self.places.remove(&task)?;
        let queue = self.queues.get_mut(&service)?;
        let retry = queue.remove(&place);
        if queue.is_empty() {
            self.queues.remove(&service);
        }
        retry
    }

    /// Leases the next retry of `service` that may run now to `worker`; `None` where there is none or the set is at its
    /// limit.
    ///
    /// An entry that is refused for good leaves the queue, and the set where it still waits there, and the next one is
    /// tried (rules L5, L6, L12). One that this worker may not have waits for another worker (rule L8). `look` is asked
    /// for tasks that the set does not know any more, and only for them.
    pub fn lease_next(
        &mut self,
        set: &InFlightSet,
        service: ServiceId,
        worker: &WorkerKey,
        now: TimeMs,
        mut look: impl FnMut(TaskId) -> Look,
    ) -> Option<Leased> {
        let mut refused_for_good = Vec::new();
        let mut leased = None;
        for retry in self.queues.get(&service)?.iter().take_while(|((at, _), _)| *at <= now).map(|(_, retry)| retry) {
            let mut tried = set.lease_retry(retry, worker, now);
            if tried == Err(LeaseRefusal::LookFirst) {
                match look(retry.task) {
                    Look::Open => tried = set.lease_forgotten(retry, worker, now),
                    Look::Over => {
                        refused_for_good.push(retry.task);
                        continue;
                    }
                }
            }
            match tried {
                Ok(lease) => {
                    leased = Some(lease);
                    break;
                }
                Err(refusal) if refusal.is_final() => refused_for_good.push(retry.task),
                Err(LeaseRefusal::WorkedEarlier { .. }) => {}
                Err(_) => break,
            }
        }
        for task in refused_for_good {
            if let Some(retry) = self.cancel(task) {
                set.abandon(&retry);
            }
        }
        if let Some(leased) = &leased {
            self.cancel(leased.lease.task);
        }
        leased
    }

    /// Puts `retry` at `place` and drops the entry that its task had.
    fn place(&mut self, retry: Retry, place: Place) {
        self.cancel(retry.task);
        let service = retry.run.terms.service;
        self.places.insert(retry.task, (service, place));
        self.queues.entry(service).or_default().insert(place, retry);
    }
}
